/* group/window.c - sliding window attention: the last sliding_window tokens are looked at.
 *
 *      window 5, block size 2, 9 tokens computed, the next is token 9
 *
 *      tokens   0 1 | 2 3 | 4 5 | 6 7 | 8 .        token 9 looks at 5, 6, 7, 8, 9
 *      blocks    -     -     b     c     d         0..4 are skipped: two whole blocks
 *
 * A hit needs the window's blocks alone, not those before it. So a lookup goes from right to left
 * and ends at the first run that is long enough; a shorter one is a hit at the request's start.
 */
#include "group/group.h"

static uint32_t window_skipped(const qr_group *group, uint32_t computed)
{
    uint64_t kept = (uint64_t)group->spec.sliding_window + group->extra_tokens;
    return computed + 1 > kept ? computed + 1 - (uint32_t)kept : 0;
}

/* Until the window has moved past one more block. */
static uint32_t window_quiet(const qr_group *group, uint32_t computed)
{
    uint64_t skipped = window_skipped(group, computed) / group->block_size;
    return qr_clamp_u32((skipped + 1) * group->block_size + group->spec.sliding_window +
                        group->extra_tokens - 2);
}

typedef struct qr_window_run {
    uint32_t first;
    uint32_t end;
    bool is_enough; /* else it is the run at the start, perhaps empty */
} qr_window_run;

/* The rightmost run of `wanted` blocks whose last one ends at an aligned place. */
static qr_window_run find_window_run(const qr_group_set *set, const qr_lookup *lookup, uint32_t end,
                                     uint32_t wanted, bool eagle, uint32_t alignment)
{
    const qr_group *group = &lookup->groups[set->ids[0]];
    uint32_t run = 0;
    for (uint32_t i = end; i-- > 0;) {
        if (!qr_set_find_block(set, lookup, i)) {
            run = 0;
            continue;
        }
        uint32_t stop = eagle ? i : i + 1; /* eagle drops the last one */
        if (run == 0 && group->block_size != alignment &&
            (uint64_t)stop * group->block_size % alignment != 0)
            continue;
        run++;
        if (run >= wanted)
            return (qr_window_run){i, i + run, true};
    }
    return (qr_window_run){0, run, false};
}

static uint32_t find_window(const qr_group_set *set, const qr_lookup *lookup, uint32_t max_tokens,
                            bool eagle, uint32_t alignment)
{
    const qr_group *group = &lookup->groups[set->ids[0]];
    uint32_t wanted = qr_ceil_div(group->spec.sliding_window - 1, group->block_size) + eagle;
    uint32_t end = qr_lookup_max_blocks(lookup, group, max_tokens);
    qr_window_run run = find_window_run(set, lookup, end, wanted, eagle, alignment);
    qr_set_fill_null(set, lookup, run.first);
    uint32_t num_hit = run.end;
    if (!run.is_enough)
        num_hit = qr_align_blocks(num_hit, group->block_size, alignment);
    if (eagle && num_hit > 0)
        num_hit = qr_align_blocks(num_hit - 1, group->block_size, alignment);
    return num_hit;
}

const qr_group_ops qr_window_ops = {
    .skipped_tokens = window_skipped,
    .quiet_tokens = window_quiet,
    .need = qr_group_need,
    .allocate = qr_group_allocate,
    .remove_skipped = qr_group_remove_to,
    .count_skipped = qr_group_count_to,
    .find = find_window,
};
