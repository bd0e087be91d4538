/* group/chunked.c - chunked local attention: a token looks at the tokens of its own chunk.
 *
 *      chunk 8, block size 4
 *
 *      tokens   0..3 | 4..7 || 8..11 | 12..15 ||     at 13 computed tokens, those of the first
 *      blocks     -      -      b        c           chunk are skipped
 */
#include "group/group.h"

static uint32_t chunk_skipped(const qr_group *group, uint32_t computed)
{
    return computed / group->spec.attention_chunk_size * group->spec.attention_chunk_size;
}

/* Until the next chunk begins. */
static uint32_t chunk_quiet(const qr_group *group, uint32_t computed)
{
    uint64_t skipped = chunk_skipped(group, computed);
    return qr_clamp_u32(skipped + group->spec.attention_chunk_size - 1);
}

/* What is before the chunk counts as a hit without being looked up. Where a chunk begins inside a
 * block and that block is missing, the rest ends in the chunk before, which then must be there. */
static uint32_t find_chunk(const qr_group_set *set, const qr_lookup *lookup, uint32_t max_tokens,
                           bool eagle, uint32_t alignment)
{
    const qr_group *group = &lookup->groups[set->ids[0]];
    qr_assert(!eagle && alignment == group->block_size); /* no such cache is made */
    for (;;) {
        uint32_t start_token = chunk_skipped(group, max_tokens);
        uint32_t start = start_token / group->block_size;
        uint32_t end = qr_lookup_max_blocks(lookup, group, max_tokens);
        uint32_t num_hit = qr_set_find_run(set, lookup, start, end);
        bool is_whole = num_hit > 0 || start * group->block_size == start_token ||
                        (group->quirks & QR_QUIRK(CHUNK_INSIDE_BLOCK)) != 0;
        if (is_whole) {
            qr_set_fill_null(set, lookup, start);
            return start + num_hit;
        }
        max_tokens = start * group->block_size;
    }
}

const qr_group_ops qr_chunked_ops = {
    .skipped_tokens = chunk_skipped,
    .quiet_tokens = chunk_quiet,
    .need = qr_group_need,
    .allocate = qr_group_allocate,
    .remove_skipped = qr_group_remove_to,
    .count_skipped = qr_group_count_to,
    .find = find_chunk,
};
