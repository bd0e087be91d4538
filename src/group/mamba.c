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
 * With blocks of several hashes the state where the prompt ends, at a hash, gets a key of its own:
 * others resume there. The request itself goes on in the same block. So before its next tokens the
 * key moves to a fresh block, to which the state is copied (cache/parts.h).
 *
 * A state is written at the end of the step that computes it. Another request must not use it as a
 * hit in the same step: stamps tell in which step a block got its key. All blocks of one key have
 * the same stamp, the newest one.
 */
#include "group/checkpoint.h"
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
    uint32_t num_new;   /* without a copy */
} qr_align_step;

/* With a checkpoint the block before the last one is no null block. */
static qr_align_step plan_align_step(const qr_group *group, uint32_t have, bool has_state,
                                     uint32_t num_main, bool checkpoint)
{
    uint32_t spec = group->spec.num_speculative_blocks;
    qr_align_step s = {.required = qr_ceil_div(num_main, group->block_size) + spec};
    if (s.required <= have && !checkpoint)
        return s;
    s.null_end = s.required - spec > 0 ? s.required - spec - 1 : 0;
    if (checkpoint)
        s.null_end--; /* the chunk has two blocks at least */
    uint32_t filled = have > s.null_end ? have : s.null_end;
    uint32_t first_draft = have - (has_state ? spec : 0);
    if (has_state && s.null_end > first_draft)
        s.num_moved = s.null_end - first_draft < spec ? s.null_end - first_draft : spec;
    s.num_new = s.required > filled + s.num_moved ? s.required - filled - s.num_moved : 0;
    return s;
}

/* Drafts of the step before may be rejected: count them as if they were. */
static uint32_t certain_tokens(const qr_group *group, uint32_t computed)
{
    uint32_t drafts = group->rules.frees_states_at_once ? 0 : group->spec.num_speculative_blocks;
    return computed > drafts ? computed - drafts : 0;
}

/* The rule: where states that no step needs any more end in a row; they begin at num_retired. */
static uint32_t end_of_retired(const qr_group *group, uint32_t row, uint32_t certain)
{
    uint32_t end = mamba_skipped(group, certain) / group->block_size;
    return end < group->rows[row].num_blocks ? end : group->rows[row].num_blocks;
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

/* Whether the row's block is a null block, or will be once remove_skipped has run. */
static bool is_gone(const qr_group *group, const qr_want *want, uint32_t place)
{
    uint32_t certain = certain_tokens(group, want->num_certain);
    return qr_group_row_blocks(group, want->row)[place] == QUIRE_NULL_BLOCK ||
           place < end_of_retired(group, want->row, certain) ||
           place == stale_state(group, want->row, certain);
}

uint32_t qr_mamba_plan_checkpoint(const qr_group *group, const qr_want *want)
{
    uint32_t spec = group->spec.num_speculative_blocks;
    if (!is_align(group) || group->spec.num_prefill_checkpoint_blocks == 0 ||
        want->num_main < want->prefill_end)
        return 0;
    qr_checkpoint_chunk chunk = {.start = want->total_computed,
                                 .end = want->num_main,
                                 .hash_size = group->hash_size,
                                 .block_size = group->block_size,
                                 .alignment = group->spec.prefill_checkpoint_alignment};
    uint32_t end = qr_checkpoint_end(want->num_main, group->alignment, group->drops_state);
    if (!qr_checkpoint_is_possible(&chunk, end))
        return 0;
    uint32_t place = qr_ceil_div(want->num_main, group->block_size) - 2;
    const qr_row *row = want->row == QR_NIL ? NULL : &group->rows[want->row];
    bool is_free = row == NULL || place >= row->num_blocks || is_gone(group, want, place) ||
                   (row->has_state && place + spec >= row->num_blocks);
    return is_free ? end : 0;
}

/* Whether a block that the step uses again, for drafts or because it is to be copied, is no longer
 * the row's alone, or is given back before. */
static bool has_lost_blocks(const qr_group *group, const qr_want *want, const qr_align_step *step)
{
    const qr_row *row = &group->rows[want->row];
    const uint32_t *blocks = qr_group_row_blocks(group, want->row);
    uint32_t partial = qr_group_part(group, want->row).partial;
    if (partial != QR_NIL && is_gone(group, want, partial))
        return true;
    uint32_t at = row->num_blocks - group->spec.num_speculative_blocks;
    for (uint32_t end = at + step->num_moved; at < end; at++) {
        const qr_block *b = &group->pool->queue.blocks[blocks[at]];
        if (is_gone(group, want, at) || b->ref_cnt != 1 || qr_block_has_key(b))
            return true;
    }
    return false;
}

static quire_block_span hits_of(const qr_group *group, const qr_want *want)
{
    return want->hits != NULL ? want->hits[group->id] : (quire_block_span){0};
}

static qr_need need_aligned(const qr_group *group, const qr_want *want)
{
    const qr_row *row = want->row == QR_NIL ? NULL : &group->rows[want->row];
    uint32_t have = row == NULL ? 0 : row->num_blocks;
    bool has_state = row != NULL && row->has_state;
    uint32_t spec = group->spec.num_speculative_blocks;
    bool may_be_less = group->rules.retires_past_gaps;
    qr_need need = {0};
    if (want->keeps_hits && row != NULL && !row->is_settled)
        need.status = QUIRE_E_ARGUMENT;
    bool keeps_now = want->keeps_hits && row == NULL;

    qr_kept k = keeps_now ? qr_group_kept_hits(group, want) : (qr_kept){0};
    uint32_t start = keeps_now ? k.skipped + k.num_kept + k.num_external : have;
    bool checkpoint = qr_mamba_plan_checkpoint(group, want) > 0;
    qr_align_step step = plan_align_step(group, start, has_state, want->num_main, checkpoint);
    bool copies = qr_group_part(group, want->row).partial != QR_NIL;
    bool ends_inside = qr_want_ends_inside(group, want);
    if (ends_inside && need.status == QUIRE_OK)
        need.status = qr_want_check_inside(group, want);
    need.taken = qr_group_count_evictable(group, k.kept, k.num_kept, &need.status);
    need.taken += (int64_t)k.num_external + step.num_new;
    need.taken += copies || (ends_inside && k.num_kept > 0);
    copies = copies || ends_inside;
    need.predicted = need.taken;
    bool shrinks = (group->quirks & QR_QUIRK(MAMBA_ALIGN_SHRINK)) != 0 && step.required < start;
    bool is_lost = row != NULL && may_be_less && has_lost_blocks(group, want, &step);
    if ((shrinks || is_lost) && !want->for_admission)
        need.taken = INT32_MAX; /* vLLM raises */
    if ((group->quirks & QR_QUIRK(MAMBA_ALIGN_ESTIMATE)) == 0)
        return need;
    quire_block_span hits = hits_of(group, want);
    need.predicted = (int64_t)step.required - hits.count - have;
    if (copies)
        need.predicted = need.predicted > 0 ? need.predicted + 1 : 1;
    int64_t most = (has_state ? 1 : 1 + (int64_t)spec) + copies + checkpoint;
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
    qr_part part = qr_group_part(group, want->row);
    bool checkpoint = part.checkpoint != QR_NIL;
    qr_align_step step = plan_align_step(group, before, row->has_state, want->num_main, checkpoint);
    if (step.required <= before && part.partial == QR_NIL && !checkpoint) {
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

static void retire(qr_group *group, uint32_t row, uint32_t certain)
{
    uint32_t first = group->rows[row].num_retired;
    uint32_t end = end_of_retired(group, row, certain);
    if (first >= end)
        return;
    uint32_t *blocks = qr_group_row_blocks(group, row) + first;
    qr_pool_free_row(group->pool, blocks, end - first); /* passes over null blocks */
    memset(blocks, 0, (size_t)(end - first) * sizeof *blocks);
    group->rows[row].num_retired = end & QR_MOST_RETIRED;
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

/* Extra keys are no blocks: a hit is known by its own key. */
static void stamp_ring(qr_group *group, uint32_t first)
{
    const qr_block *records = group->pool->queue.blocks;
    uint32_t at = first;
    do {
        if (at < group->pool->queue.num_blocks)
            group->stamps[at] = group->step;
        at = records[at].dup_next;
    } while (at != first);
}

void qr_mamba_stamp(qr_group *group, uint32_t block)
{
    uint32_t other = group->pool->queue.blocks[block].dup_next;
    bool is_block = other != block && other < group->pool->queue.num_blocks;
    if (is_block && group->stamps[other] == group->step) /* and so have all others */
        group->stamps[block] = group->step;
    else
        stamp_ring(group, block);
}

static void mamba_cached(qr_group *group, uint32_t row, uint32_t first, uint32_t end)
{
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    for (uint32_t i = first; i < end; i++)
        if (qr_block_has_key(&group->pool->queue.blocks[blocks[i]])) /* the null block has none */
            qr_mamba_stamp(group, blocks[i]);
}

/* Whether the prompt itself, a boundary or another request asks for the state at a checkpoint. */
static bool is_kept_checkpoint(const qr_group *group, uint32_t row, uint32_t end)
{
    const qr_prompt *prompt = &group->prompts[row];
    if (end == qr_checkpoint_end(prompt->num_tokens, group->alignment, group->drops_state) ||
        end == prompt->shared_boundary)
        return true;
    uint32_t interval = group->retention;
    if (end % group->block_size != 0 || interval == 0)
        return false;
    return interval == QUIRE_RETAIN_ALL || interval <= group->block_size || end % interval == 0;
}

/* The state of a token inside the chunk takes the place of the one that the block was for. Behind
 * the request's own tokens, among drafts, it has no hash. */
static void cache_checkpoint(qr_group *group, uint32_t row, const quire_cache_request *request)
{
    qr_part *part = &group->parts[row];
    uint32_t block = qr_group_row_blocks(group, row)[part->checkpoint];
    if (block == QUIRE_NULL_BLOCK)
        return;
    bool has_hash = part->checkpoint_end / group->hash_size <= request->num_hashes;
    if (!has_hash || !is_kept_checkpoint(group, row, part->checkpoint_end)) {
        qr_pool_evict_blocks(group->pool, &block, 1);
        return;
    }
    qr_partial_key key = qr_group_key_at(group, block, request, part->checkpoint_end);
    part->keyed = part->checkpoint;
    part->keyed_end = part->checkpoint_end;
    if (qr_map_has_key(&group->pool->map, block, key.key))
        return;
    key.replaces = true;
    qr_pool_cache_partial(group->pool, &key);
    stamp_ring(group, block);
}

/* Whether a state behind num_tokens tokens gets a key, besides those at the ends of blocks: the
 * last one of the prompt, and where other requests have gone on differently. */
static bool is_tail(const qr_group *group, uint32_t row, const quire_cache_request *request,
                    uint32_t num_tokens)
{
    const qr_prompt *prompt = &group->prompts[row];
    uint32_t size = group->hash_size;
    if (num_tokens == 0 || num_tokens % size != 0)
        return false;
    if (num_tokens == qr_checkpoint_end(prompt->num_tokens, size, group->drops_state))
        return true;
    return group->has_junctions && num_tokens == prompt->shared_boundary &&
           request->num_computed_tokens < num_tokens && num_tokens <= prompt->num_tokens;
}

/* Align mode: while a request has got as far as the last state of its prompt, each of its steps
 * counts as the one that computes this state. */
static void mamba_cache_tail(qr_group *group, uint32_t row, const quire_cache_request *request,
                             uint32_t num_tokens)
{
    qr_row *r = &group->rows[row];
    if (qr_group_part(group, row).checkpoint != QR_NIL) {
        cache_checkpoint(group, row, request);
        return;
    }
    if (!is_tail(group, row, request, num_tokens))
        return;
    uint32_t index = qr_ceil_div(num_tokens, group->block_size) - 1;
    uint32_t block = index < r->num_blocks ? qr_group_row_blocks(group, row)[index] : 0;
    if (block == QUIRE_NULL_BLOCK)
        return;
    qr_partial_key key = qr_group_key_at(group, block, request, num_tokens);
    qr_pool_cache_partial(group->pool, &key);
    stamp_ring(group, qr_map_get(&group->pool->map, key.key));
    if (key.is_whole)
        return;
    group->parts[row].partial = index;
    r->num_cached = index;
    r->is_settled = true;
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

/* The same by all hashes, of which several end in a block. */
static uint32_t find_state_parts(const qr_group_set *set, const qr_lookup *lookup,
                                 uint32_t max_tokens, bool eagle)
{
    (void)eagle;
    const qr_group *group = &lookup->groups[set->ids[0]];
    uint32_t most = max_tokens / group->alignment;
    uint32_t num_hashes = most < lookup->num_hashes ? most : lookup->num_hashes;
    while (num_hashes > 0 && !qr_set_find_part(set, lookup, num_hashes - 1))
        num_hashes--;
    if (num_hashes > 0)
        qr_set_fill_null(set, lookup, (num_hashes - 1) / group->hashes_joined);
    return num_hashes * group->alignment;
}

const qr_group_ops qr_mamba_ops = {
    .skipped_tokens = mamba_skipped,
    .quiet_tokens = mamba_quiet,
    .need = mamba_need,
    .allocate = mamba_allocate,
    .remove_skipped = mamba_remove_skipped,
    .count_skipped = mamba_count_skipped,
    .cached = mamba_cached,
    .cache_tail = mamba_cache_tail,
    .find = find_state,
    .find_parts = find_state_parts,
};
