/* group/full.c - full attention, its MLA and sink forms, hidden states: every block is kept to the
 * end.
 *
 *      hashes   h0 h1 h2 h3 h4      a hash names all tokens up to its block's end, so that the
 *      cached    x  x  x  -  x      first miss ends the hit: 3 blocks
 */
#include "group/group.h"

uint32_t qr_full_find(const qr_group_set *set, const qr_lookup *lookup, uint32_t max_tokens,
                      bool eagle, uint32_t alignment)
{
    const qr_group *group = &lookup->groups[set->ids[0]];
    uint32_t end = qr_lookup_max_blocks(lookup, group, max_tokens);
    uint32_t num_hit = qr_set_find_run(set, lookup, 0, end);
    if (eagle && num_hit > 0)
        num_hit--;
    return qr_align_blocks(num_hit, group->block_size, alignment);
}

const qr_group_ops qr_full_ops = {
    .need = qr_group_need,
    .allocate = qr_group_allocate,
    .find = qr_full_find,
};
