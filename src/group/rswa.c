/* group/rswa.c - reference sliding window attention: every token looks at the whole prompt, and at
 * the last rswa_window tokens.
 *
 *      prompt 5, window 4, block size 2, 13 tokens computed
 *
 *      tokens   0 1 | 2 3 | 4 5 | 6 7 | 8 9 | 10 11 | 12 .
 *      blocks    a     b     c     -     e     f       g      the window begins at token 9
 *               `---- prompt ---'  gap
 *
 * The gap is the whole blocks between the prompt and the window; they are given back as the window
 * moves. A lookup is as for full attention: blocks of the gap keep their keys until they are taken.
 */
#include "group/group.h"

/* Until the window has moved past one more block, wherever the prompt ends. */
static uint32_t rswa_quiet(const qr_group *group, uint32_t computed)
{
    uint64_t window = group->spec.rswa_window;
    uint64_t behind = computed > window ? computed - window : 0;
    return qr_clamp_u32((behind / group->block_size + 1) * group->block_size + window - 1);
}

/* The blocks [*first, *end) of the gap that were not given back yet. */
static void find_gap(const qr_group *group, uint32_t row, uint32_t computed, uint32_t num_prompt,
                     uint32_t *first, uint32_t *end)
{
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    uint32_t window = group->spec.rswa_window;
    uint32_t start = computed > window ? computed - window : 0;
    uint32_t begin = qr_ceil_div(num_prompt, group->block_size);
    uint32_t last = (start > num_prompt ? start : num_prompt) / group->block_size;
    if (last > group->rows[row].num_blocks)
        last = group->rows[row].num_blocks;
    *end = *first = last;
    while (*first > begin && blocks[*first - 1] != QUIRE_NULL_BLOCK)
        --*first;
}

void qr_rswa_remove_gap(qr_group *group, uint32_t row, uint32_t computed, uint32_t num_prompt)
{
    uint32_t first;
    uint32_t end;
    find_gap(group, row, computed, num_prompt, &first, &end);
    if (first == end)
        return;
    uint32_t *blocks = qr_group_row_blocks(group, row) + first;
    qr_pool_free_row(group->pool, blocks, end - first);
    memset(blocks, 0, (size_t)(end - first) * sizeof *blocks); /* QUIRE_NULL_BLOCK */
}

bool qr_rswa_has_gap(const qr_group *group, uint32_t row, uint32_t computed, uint32_t num_prompt)
{
    uint32_t first;
    uint32_t end;
    find_gap(group, row, computed, num_prompt, &first, &end);
    return first != end;
}

uint32_t qr_rswa_count_gap(const qr_group *group, uint32_t row, uint32_t computed,
                           uint32_t num_prompt)
{
    uint32_t first;
    uint32_t end;
    uint32_t count = 0;
    find_gap(group, row, computed, num_prompt, &first, &end);
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    for (uint32_t i = first; i < end; i++)
        count += qr_pool_is_one_user(group->pool, blocks[i]);
    return count;
}

const qr_group_ops qr_rswa_ops = {
    .quiet_tokens = rswa_quiet,
    .need = qr_group_need,
    .allocate = qr_group_allocate,
    .cache_tail = qr_group_cache_tail,
    .find = qr_full_find,
    .find_parts = qr_full_find_parts,
};
