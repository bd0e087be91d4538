/* group/full.c - full attention, its MLA and sink forms: every block is kept to the end.
 *
 *      hashes   h0 h1 h2 h3 h4      a hash names all tokens up to its block's end, so that the
 *      cached    x  x  x  -  x      first miss ends the hit: 3 blocks
 *
 * Where hits may end inside a block, the block behind the full ones is looked up by the hashes that
 * end in it, the longest first:
 *
 *      block of 4 hashes   h0 h1 h2 h3 | h4 h5 h6 h7
 *      cached                        x      x           6 hashes, in 2 blocks: not h6, but h5
 */
#include "group/group.h"

static uint32_t find_full(const qr_group_set *set, const qr_lookup *lookup, uint32_t max_tokens,
                          bool eagle, uint32_t alignment)
{
    const qr_group *group = &lookup->groups[set->ids[0]];
    uint32_t end = qr_lookup_max_blocks(lookup, group, max_tokens);
    uint32_t num_hit = qr_set_find_run(set, lookup, 0, end);
    if (eagle && num_hit > 0)
        num_hit--;
    return qr_align_blocks(num_hit, group->block_size, alignment);
}

/* With EAGLE the tokens of one hash are dropped; what is before them is still in the block. */
static uint32_t find_full_parts(const qr_group_set *set, const qr_lookup *lookup,
                                uint32_t max_tokens, bool eagle)
{
    const qr_group *group = &lookup->groups[set->ids[0]];
    uint32_t end = qr_lookup_max_blocks(lookup, group, max_tokens);
    uint32_t first = qr_set_find_run(set, lookup, 0, end) * group->hashes_joined;
    uint32_t most = max_tokens / group->alignment;
    most = most < lookup->num_hashes ? most : lookup->num_hashes;
    if (most > first + group->hashes_joined - 1)
        most = first + group->hashes_joined - 1;
    uint32_t num_hashes = most > first ? most : first;
    while (num_hashes > first && !qr_set_find_part(set, lookup, num_hashes - 1))
        num_hashes--;
    if (eagle && num_hashes > 0)
        num_hashes--;
    return num_hashes * group->alignment;
}

const qr_group_ops qr_full_ops = {
    .need = qr_group_need,
    .allocate = qr_group_allocate,
    .cache_tail = qr_group_cache_tail,
    .find = find_full,
    .find_parts = find_full_parts,
};
