/* group/mamba.c - Mamba and other layers that keep one state, whatever the length of the request.
 *
 *      mode none, all   a block for every block_size tokens, the last one holds the newest state;
 *                       num_speculative_blocks more for the states of drafts
 *      mode align       blocks at the ends of steps alone; those between are null blocks:
 *
 *          step 1   [ - ][ - ][ a ][ s ][ t ]                   a: state, s and t: for drafts
 *          step 2   [ - ][ - ][ a ][ - ][ - ][ s ][ t ][ n ]    s and t are used again, n is new
 *                               last_state: a is given back when its successor is computed
 *
 * A state is written at the end of the step that computes it. Another request must not use it as a
 * hit in the same step: stamps tell in which step a block got its key. All blocks of one key have
 * the same stamp, the newest one.
 */
#include "group/group.h"

static bool is_align(const qr_group *group)
{
    return group->spec.mamba_mode == QUIRE_MAMBA_MODE_ALIGN;
}

static uint32_t mamba_skipped(const qr_group *group, uint32_t computed)
{
    (void)group;
    return computed > 0 ? computed - 1 : 0;
}

/* Every step may move states. */
static uint32_t mamba_quiet(const qr_group *group, uint32_t computed)
{
    (void)group;
    (void)computed;
    return 0;
}

/* ---- need ------------------------------------------------------------------ */

static bool is_hit_of_this_step(const qr_group *group, const qr_want *want)
{
    if (want->hits == NULL || want->hits[group->id].count == 0 || group->stamps == NULL)
        return false;
    quire_block_span hits = want->hits[group->id];
    uint32_t last = hits.ids[hits.count - 1];
    return last < group->pool->queue.num_blocks && group->stamps[last] == group->step &&
           qr_block_has_key(&group->pool->queue.blocks[last]);
}

/* Align mode: what allocate does to a row of `have` blocks. */
typedef struct qr_align_step {
    uint32_t required;
    uint32_t null_end;  /* null blocks up to here */
    uint32_t num_moved; /* blocks for drafts that are used again */
    uint32_t num_new;
} qr_align_step;

static qr_align_step plan_align_step(const qr_group *group, uint32_t have, bool has_state,
                                     uint32_t num_main)
{
    uint32_t spec = group->spec.num_speculative_blocks;
    qr_align_step s = {.required = qr_ceil_div(num_main, group->block_size) + spec};
    if (s.required <= have)
        return s;
    s.null_end = s.required - spec > 0 ? s.required - spec - 1 : 0;
    uint32_t filled = have > s.null_end ? have : s.null_end;
    uint32_t first_draft = have - (has_state ? spec : 0);
    if (has_state && s.null_end > first_draft)
        s.num_moved = s.null_end - first_draft < spec ? s.null_end - first_draft : spec;
    s.num_new = s.required - filled - s.num_moved;
    return s;
}

static qr_need need_aligned(const qr_group *group, const qr_want *want)
{
    const qr_row *row = want->row == QR_NIL ? NULL : &group->rows[want->row];
    uint32_t have = row == NULL ? 0 : row->num_blocks;
    bool has_state = row != NULL && row->has_state;
    uint32_t spec = group->spec.num_speculative_blocks;
    qr_need need = {0};
    if (want->keeps_hits && row != NULL && !row->is_settled)
        need.status = QUIRE_E_ARGUMENT;
    bool keeps_now = want->keeps_hits && row == NULL;

    qr_kept k = {0};
    if (keeps_now)
        k = qr_group_kept_hits(group, want);
    uint32_t start = keeps_now ? k.skipped + k.num_kept + k.num_external : have;
    qr_align_step step = plan_align_step(group, start, has_state, want->num_main);
    need.taken = qr_group_count_evictable(group, k.kept, k.num_kept, &need.status);
    need.taken += (int64_t)k.num_external + step.num_new;
    need.predicted = need.taken;
    if ((group->quirks & QR_QUIRK(MAMBA_ALIGN_SHRINK)) != 0 && step.required < start &&
        !want->for_admission)
        need.taken = INT32_MAX; /* vLLM raises */
    if ((group->quirks & QR_QUIRK(MAMBA_ALIGN_ESTIMATE)) == 0)
        return need;
    quire_block_span hits = {0};
    if (want->hits != NULL)
        hits = want->hits[group->id];
    need.predicted = (int64_t)step.required - hits.count - have;
    int64_t most = has_state ? 1 : 1 + (int64_t)spec;
    bool may_be_less = group->rules.retires_past_gaps;
    if (need.predicted > (may_be_less ? most : 0))
        need.predicted = most;
    need.predicted += qr_group_count_evictable(group, hits.ids, hits.count, &need.status);
    return need;
}

static uint32_t with_speculative(const qr_group *group, uint32_t num_tokens)
{
    return num_tokens + group->block_size * group->spec.num_speculative_blocks;
}

static qr_need mamba_need(const qr_group *group, const qr_want *want)
{
    qr_need need = is_align(group)
                       ? need_aligned(group, want)
                       : qr_group_need_for(group, want, with_speculative(group, want->num_tokens));
    if (is_hit_of_this_step(group, want)) /* ask again in the next step */
        need.predicted = (int64_t)group->pool->queue.num_blocks + 1;
    return need;
}

/* ---- allocate -------------------------------------------------------------- */

static uint32_t allocate_aligned(qr_group *group, const qr_want *want)
{
    qr_row *row = &group->rows[want->row];
    uint32_t *blocks = qr_group_row_blocks(group, want->row);
    uint32_t before = row->num_blocks;
    uint32_t spec = group->spec.num_speculative_blocks;
    qr_align_step step = plan_align_step(group, before, row->has_state, want->num_main);
    if (step.required <= before) {
        row->has_state = row->has_state || group->rules.retires_past_gaps;
        return 0;
    }
    if (row->has_state)
        row->last_state = before - 1 - spec;
    else if (before > 0)
        row->last_state = before - 1;
    while (row->num_blocks < step.null_end)
        blocks[row->num_blocks++] = QUIRE_NULL_BLOCK;
    for (uint32_t i = 0; i < step.num_moved; i++) {
        uint32_t *draft = &blocks[before - spec + i];
        blocks[row->num_blocks++] = *draft;
        *draft = QUIRE_NULL_BLOCK;
    }
    qr_group_take(group, want->row, step.num_new);
    row->has_state = true;
    return row->num_blocks - before;
}

static uint32_t mamba_allocate(qr_group *group, const qr_want *want)
{
    if (is_align(group))
        return allocate_aligned(group, want);
    return qr_group_allocate_for(group, want->row, with_speculative(group, want->num_tokens));
}

/* ---- skipped states -------------------------------------------------------- */

/* Drafts of the step before may be rejected: count them as if they were. */
static uint32_t certain_tokens(const qr_group *group, uint32_t computed)
{
    uint32_t drafts = group->rules.frees_states_at_once ? 0 : group->spec.num_speculative_blocks;
    return computed > drafts ? computed - drafts : 0;
}

/* Align mode: the place of a state whose successor is computed, or QR_NIL. */
static uint32_t stale_state(const qr_group *group, uint32_t row, uint32_t certain)
{
    uint32_t last = group->rows[row].last_state;
    uint32_t end = qr_ceil_div(certain, group->block_size);
    if (!is_align(group) || last == QR_NIL || end == 0 || last >= end - 1)
        return QR_NIL;
    return qr_group_row_blocks(group, row)[last] == QUIRE_NULL_BLOCK ? QR_NIL : last;
}

/* The rule: where states that no step needs any more end in a row; they begin at num_retired. */
static uint32_t end_of_retired(const qr_group *group, uint32_t row, uint32_t certain)
{
    uint32_t end = mamba_skipped(group, certain) / group->block_size;
    return end < group->rows[row].num_blocks ? end : group->rows[row].num_blocks;
}

static void retire(qr_group *group, uint32_t row, uint32_t certain)
{
    uint32_t first = group->rows[row].num_retired;
    uint32_t end = end_of_retired(group, row, certain);
    if (first >= end)
        return;
    uint32_t *blocks = qr_group_row_blocks(group, row) + first;
    qr_pool_free_row(group->pool, blocks, end - first); /* passes over null blocks */
    memset(blocks, 0, (size_t)(end - first) * sizeof *blocks);
    group->rows[row].num_retired = end;
}

static bool retires(const qr_group *group)
{
    return is_align(group) && group->rules.retires_past_gaps;
}

static void mamba_remove_skipped(qr_group *group, uint32_t row, uint32_t computed)
{
    uint32_t certain = certain_tokens(group, computed);
    if (retires(group))
        retire(group, row, certain);
    else
        qr_group_remove_to(group, row, certain);
    uint32_t stale = stale_state(group, row, certain);
    if (stale == QR_NIL)
        return;
    uint32_t *block = &qr_group_row_blocks(group, row)[stale];
    qr_pool_free_row(group->pool, block, 1);
    *block = QUIRE_NULL_BLOCK;
}

static uint32_t mamba_count_skipped(const qr_group *group, uint32_t row, uint32_t computed)
{
    uint32_t certain = certain_tokens(group, computed);
    uint32_t first = group->rows[row].num_retired;
    uint32_t end = end_of_retired(group, row, certain);
    uint32_t count = 0;
    if (retires(group)) {
        const uint32_t *blocks = qr_group_row_blocks(group, row);
        for (uint32_t i = first; i < end; i++)
            count += blocks[i] != QUIRE_NULL_BLOCK && qr_pool_is_one_user(group->pool, blocks[i]);
    } else {
        qr_group_skipped_range(group, row, certain, &first, &end);
        count = qr_group_count_to(group, row, certain);
    }
    uint32_t stale = stale_state(group, row, certain);
    if (stale == QR_NIL)
        return count;
    bool is_counted = stale >= first && stale < end;
    uint32_t block = qr_group_row_blocks(group, row)[stale];
    return count + (!is_counted && qr_pool_is_one_user(group->pool, block));
}

/* ---- stamps and hits ------------------------------------------------------- */

static void stamp_key(qr_group *group, uint32_t block)
{
    const qr_block *records = group->pool->queue.blocks;
    uint32_t other = records[block].dup_next;
    bool others_done = other != block && group->stamps[other] == group->step;
    for (; other != block && !others_done; other = records[other].dup_next)
        group->stamps[other] = group->step;
    group->stamps[block] = group->step;
}

static void mamba_cached(qr_group *group, uint32_t row, uint32_t first, uint32_t end)
{
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    for (uint32_t i = first; i < end; i++)
        if (qr_block_has_key(&group->pool->queue.blocks[blocks[i]])) /* the null block has none */
            stamp_key(group, blocks[i]);
}

/* vLLM 0.32, align mode: while a request has got as far as the last state of its prompt that others
 * can resume at, each of its steps counts as the one that computes this state. */
static void mamba_reached(qr_group *group, uint32_t row, uint32_t num_tokens)
{
    if (!retires(group) || group->stamps == NULL)
        return;
    uint32_t size = group->block_size;
    uint32_t end = (group->prompts[row].num_tokens - !group->cache_eagles) / size * size;
    if (group->cache_eagles)
        end = end > size ? end - size : 0;
    if (end == 0 || num_tokens != end || end / size > group->rows[row].num_blocks)
        return;
    uint32_t block = qr_group_row_blocks(group, row)[end / size - 1];
    if (qr_block_has_key(&group->pool->queue.blocks[block])) /* the null block has none */
        stamp_key(group, block);
}

void qr_mamba_new_step(qr_group *group)
{
    group->step++;
    if (group->step == 0) { /* once in 2^32 steps: old stamps must not look new */
        memset(group->stamps, 0, (size_t)group->pool->queue.num_blocks * sizeof *group->stamps);
        group->step = 1;
    }
}

/* The newest state is enough: from right to left, and null blocks before it. */
static uint32_t find_state(const qr_group_set *set, const qr_lookup *lookup, uint32_t max_tokens,
                           bool eagle, uint32_t alignment)
{
    (void)eagle; /* vLLM drops nothing here */
    const qr_group *group = &lookup->groups[set->ids[0]];
    for (uint32_t i = qr_lookup_max_blocks(lookup, group, max_tokens); i-- > 0;) {
        if (!qr_set_find_block(set, lookup, i))
            continue;
        if (group->block_size != alignment &&
            (uint64_t)(i + 1) * group->block_size % alignment != 0)
            continue;
        qr_set_fill_null(set, lookup, i);
        return i + 1;
    }
    return 0;
}

const qr_group_ops qr_mamba_ops = {
    .skipped_tokens = mamba_skipped,
    .quiet_tokens = mamba_quiet,
    .need = mamba_need,
    .allocate = mamba_allocate,
    .remove_skipped = mamba_remove_skipped,
    .count_skipped = mamba_count_skipped,
    .cached = mamba_cached,
    .reached = mamba_reached,
    .find = find_state,
};
