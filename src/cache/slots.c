/* cache/slots.c - room for a request's tokens: allocate_slots and what belongs to it.
 *
 * First everything is counted, over all groups, and nothing is changed; then the steps of
 * group/group.h run, which cannot fail. Hits of all groups are kept before the first new block is
 * taken, so that no group takes a block that is another's hit.
 */
#include "cache/parts.h"

/* ---- counting -------------------------------------------------------------- */

static bool has_hits(const quire_cache *cache, const quire_allocate_params *p)
{
    for (uint32_t g = 0; p->new_computed_blocks != NULL && g < cache->num_groups; g++)
        if (p->new_computed_blocks[g].count > 0)
            return true;
    return false;
}

static int check_hits(const quire_cache *cache, const quire_block_span *hits, bool has_row)
{
    if (!cache->enable_caching)
        return QUIRE_E_DISABLED;
    if (has_row)
        return QUIRE_E_ARGUMENT;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        if (hits[g].count > cache->groups[g].max_row)
            return QUIRE_E_RANGE;
        if (hits[g].count > 0 && hits[g].ids == NULL)
            return QUIRE_E_ARGUMENT;
    }
    return QUIRE_OK;
}

/* Where the request's prompt ends, and what it had computed before a preemption. If all boundaries
 * have states, each chunk may end the prompt of another request. */
static uint32_t prefill_end_of(const quire_cache *cache, const quire_cache_request *request,
                               const quire_allocate_params *p, uint32_t row)
{
    uint32_t num_prompt = p->num_prompt_tokens;
    if (cache->groups[0].retention != 0)
        return 0;
    if (num_prompt == 0)
        num_prompt = row == QR_NIL ? request->num_tokens : cache->prompts[row].num_tokens;
    return num_prompt > request->num_tokens - 1 ? num_prompt : request->num_tokens - 1;
}

/* The parts of a want that allocate_slots and can_fit share. */
static int read_want(const quire_cache *cache, const quire_cache_request *request,
                     const quire_allocate_params *p, qr_want *want)
{
    *want = (qr_want){.row = QR_NIL};
    if (request->seq != 0) {
        want->row = qr_cache_row_of(cache, request->seq);
        if (want->row == QR_NIL)
            return QUIRE_E_UNKNOWN_SEQ;
    }
    uint64_t total = (uint64_t)request->num_computed_tokens + p->num_new_computed_tokens +
                     p->num_external_computed_tokens;
    if (total > cache->max_model_len)
        return QUIRE_E_RANGE;
    want->total_computed = (uint32_t)total;
    want->num_certain =
        p->num_uncertain_tokens < total ? (uint32_t)total - p->num_uncertain_tokens : 0;
    want->num_kept = cache->rules.skips_by_computed ? want->total_computed : want->num_certain;
    want->num_external = p->num_external_computed_tokens;
    want->num_local = cache->takes_parts ? (uint32_t)total - want->num_external : 0;
    if (QR_UNLIKELY(cache->has_checkpoints))
        want->prefill_end = prefill_end_of(cache, request, p, want->row);
    want->num_encoder_tokens = p->num_encoder_tokens;
    want->num_prompt = p->num_prompt_tokens;
    if (want->num_prompt == 0 && want->row != QR_NIL && cache->prompts != NULL)
        want->num_prompt = cache->prompts[want->row].num_tokens;
    want->unzeroed = p->skip_zeroing_group_ids;
    want->num_unzeroed = p->num_skip_zeroing_group_ids;
    want->keeps_hits = want->num_external > 0;
    if (!has_hits(cache, p))
        return QUIRE_OK;
    want->hits = p->new_computed_blocks;
    want->keeps_hits = true;
    return check_hits(cache, want->hits, want->row != QR_NIL);
}

static qr_need total_need(const quire_cache *cache, const qr_want *want)
{
    qr_need total = {0};
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        qr_need need = group->ops->need(group, want);
        if (QR_UNLIKELY(need.status != QUIRE_OK))
            return need;
        total.predicted += need.predicted;
        total.taken += need.taken;
    }
    return total;
}

static uint32_t count_skipped(const quire_cache *cache, const qr_want *want)
{
    uint32_t count = 0;
    for (uint32_t g = 0; g < cache->num_groups && want->row != QR_NIL; g++) {
        const qr_group *group = &cache->groups[g];
        if (group->ops->count_skipped != NULL)
            count += group->ops->count_skipped(group, want->row, want->num_certain);
        else if (group->ops == &qr_rswa_ops && want->num_prompt > 0)
            count += qr_rswa_count_gap(group, want->row, want->num_certain, want->num_prompt);
    }
    return count;
}

void qr_cache_remove_skipped(quire_cache *cache, uint32_t row, uint32_t computed,
                             uint32_t num_prompt)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_group *group = &cache->groups[g];
        if (group->ops->remove_skipped != NULL)
            group->ops->remove_skipped(group, row, computed);
        else if (group->ops == &qr_rswa_ops && num_prompt > 0)
            qr_rswa_remove_gap(group, row, computed, num_prompt);
    }
}

/* Blocks that a new request must leave free, for sequences that have blocks and may want more.
 * Without such sequences it need not leave any: it would wait for ever. */
static int64_t watermark_for(const quire_cache *cache, const quire_allocate_params *p,
                             const qr_want *want)
{
    bool applies = want->row == QR_NIL && cache->num_seqs > 0;
    if (cache->rules.watermark_by_caller)
        applies = p->has_scheduled_reqs != 0;
    return applies ? cache->watermark_blocks : 0;
}

/* Whether the blocks are there. Those that remove_skipped will give back count as free; they are
 * counted only when it matters. */
static int check_space(const quire_cache *cache, const quire_allocate_params *p,
                       const qr_want *want, const qr_need *need)
{
    int64_t reserve = watermark_for(cache, p, want) + p->reserved_blocks;
    int64_t most =
        need->predicted + reserve > need->taken ? need->predicted + reserve : need->taken;
    int64_t free_blocks = cache->pool->queue.num_free;
    if (QR_LIKELY(most <= free_blocks))
        return QUIRE_OK;
    free_blocks += count_skipped(cache, want);
    if (need->predicted + reserve > free_blocks)
        return QUIRE_NO_SPACE;
    return need->taken > free_blocks ? QUIRE_E_PREDICTION : QUIRE_OK;
}

/* ---- allocate_slots -------------------------------------------------------- */

static inline int read_allocation(const quire_cache *cache, const quire_cache_request *request,
                                  const quire_allocate_params *p, qr_want *want)
{
    bool has_hit = cache->rules.takes_bare_hits && p->num_new_computed_tokens > 0;
    if (p->num_new_tokens == 0 && p->num_external_computed_tokens == 0 && !has_hit)
        return QUIRE_E_ARGUMENT;
    int err = read_want(cache, request, p, want);
    if (err != QUIRE_OK)
        return err;
    uint64_t main_tokens = (uint64_t)want->total_computed + p->num_new_tokens;
    if (main_tokens > cache->max_model_len)
        return QUIRE_E_RANGE;
    uint64_t all_tokens = main_tokens + p->num_lookahead_tokens;
    want->num_main = (uint32_t)main_tokens;
    want->num_tokens =
        all_tokens < cache->max_model_len ? (uint32_t)all_tokens : cache->max_model_len;
    return QUIRE_OK;
}

/* Tokens whose blocks get keys: those that are certain. */
static uint32_t tokens_to_cache(const qr_want *want, const quire_cache_request *request)
{
    return want->num_main < request->num_tokens ? want->num_main : request->num_tokens;
}

static bool has_hashes_for(const quire_cache *cache, const quire_cache_request *request,
                           uint32_t num_tokens)
{
    return ((uint64_t)request->num_hashes + 1) * cache->hash_block_size > num_tokens;
}

/* Blocks that a request holds at one time, at most, when it is alone. */
static uint64_t blocks_alone(const qr_group *group, uint32_t num_tokens, uint32_t num_encoder)
{
    if (group->spec.kind == QUIRE_LAYER_CROSS)
        return qr_ceil_div(num_encoder, group->block_size);
    if (group->ops == &qr_ring_ops)
        return 1;
    uint64_t blocks = qr_ceil_div(num_tokens, group->block_size);
    if (group->spec.kind != QUIRE_LAYER_MAMBA)
        return blocks < group->admission_cap ? blocks : group->admission_cap;
    if (group->spec.mamba_mode == QUIRE_MAMBA_MODE_ALIGN)
        blocks = blocks < 2 ? blocks : 2; /* the state, and the one before it */
    return blocks + group->spec.num_speculative_blocks + group->spec.num_prefill_checkpoint_blocks;
}

uint64_t qr_cache_blocks_alone(const quire_cache *cache, uint32_t num_tokens,
                               uint32_t num_encoder_tokens)
{
    uint64_t needed = 0;
    for (uint32_t g = 0; g < cache->num_groups; g++)
        needed += blocks_alone(&cache->groups[g], num_tokens, num_encoder_tokens);
    return needed;
}

uint32_t qr_cache_most_full_blocks(const quire_cache_config *c)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < c->num_groups; g++)
        n += c->max_model_len / c->groups[g].spec.block_size;
    return n < c->num_blocks ? (uint32_t)n : c->num_blocks;
}

uint64_t qr_cache_most_blocks(const quire_cache *cache)
{
    uint64_t most = cache->pool->queue.num_blocks - 1;
    for (uint32_t g = 0; g < cache->num_groups; g++)
        most -= cache->groups[g].num_sinks;
    return most;
}

/* Of so many certain tokens, those whose blocks get keys in this group: the last ones may be
 * computed again, and with several groups no hit ends between two multiples of the alignment. With
 * EAGLE it needs one block more, which is dropped. */
static uint32_t tokens_for_keys(const quire_cache *cache, const qr_group *group,
                                uint32_t num_tokens)
{
    if (cache->caches_all_tokens)
        return num_tokens;
    uint32_t again = cache->num_recomputed;
    uint32_t final = num_tokens > again ? num_tokens - again : 0;
    uint32_t step = cache->takes_parts ? 1 : cache->block_multiple;
    if (cache->num_groups == 1)
        return final;
    uint32_t aligned = num_tokens / step * step;
    if (!group->drops_eagle || aligned == 0)
        return aligned;
    uint32_t most = final / step * step + group->block_size;
    return most < final ? most : final;
}

static QR_NOINLINE void cache_some(quire_cache *cache, const quire_cache_request *request,
                                   uint32_t row, uint32_t num_tokens)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_group *group = &cache->groups[g];
        if (group->ops == &qr_ring_ops)
            continue; /* no block of it gets a key */
        uint32_t n = tokens_for_keys(cache, group, num_tokens);
        uint32_t first = group->rows[row].num_cached;
        qr_group_cache(group, row, request, n);
        uint32_t end = group->rows[row].num_cached; /* a tail may set it back */
        if (group->has_tails)
            group->ops->cache_tail(group, row, request, n);
        if (cache->on_state != NULL)
            qr_cache_tell_states(cache, g, row, first, end);
    }
}

static void cache_full(quire_cache *cache, const quire_cache_request *request, uint32_t row,
                       uint32_t num_tokens)
{
    /* tails need several groups */
    if (QR_UNLIKELY(!cache->caches_all_tokens || cache->on_state != NULL)) {
        cache_some(cache, request, row, num_tokens);
        return;
    }
    for (uint32_t g = 0; g < cache->num_groups; g++)
        qr_group_cache(&cache->groups[g], row, request, num_tokens);
}

/* Blocks for the tokens that a load brings. A circular buffer takes its block here, since the load
 * may write it. */
static void add_external(qr_group *group, const qr_want *want)
{
    if (group->ops->find != NULL)
        qr_group_add_external(group, want);
    else if (group->ops == &qr_ring_ops)
        group->ops->allocate(group, want);
}

/* A request's first blocks: a row, and its hits. */
static void begin_request(quire_cache *cache, quire_cache_request *request, qr_want *want,
                          const quire_allocate_params *p)
{
    want->row = qr_cache_open_row(cache, &request->seq);
    for (uint32_t g = 0; g < cache->num_groups && want->keeps_hits; g++)
        if (cache->groups[g].ops->find != NULL)
            qr_group_keep_hits(&cache->groups[g], want);
    for (uint32_t g = 0; g < cache->num_groups && want->num_external > 0; g++)
        add_external(&cache->groups[g], want);
    bool counts = cache->log_stats && cache->enable_caching && request->skip_reading_prefix == 0;
    if (counts && (cache->quirks & QR_QUIRK(STATS_EVERY_LOOKUP)) == 0)
        qr_cache_count_lookup(cache, request, p->num_new_computed_tokens);
}

/* Copies on write that the new tokens cause; the want's space must hold them too. */
static int check_copies(const quire_cache *cache, const qr_want *want, qr_need *need)
{
    if (cache->max_copies == 0 || want->row == QR_NIL)
        return QUIRE_OK;
    uint32_t n = qr_cache_count_shared(cache, want->row, want->total_computed, want->num_tokens);
    need->predicted += n;
    need->taken += n;
    return n > cache->max_copies - cache->num_copies ? QUIRE_FULL : QUIRE_OK;
}

/* Changes nothing. QUIRE_NO_SPACE: too few blocks are free. */
static inline int check_allocation(const quire_cache *cache, const quire_cache_request *request,
                                   const quire_allocate_params *p, const qr_want *want)
{
    bool caches = cache->enable_caching && p->delay_cache_blocks == 0;
    if (caches && !has_hashes_for(cache, request, tokens_to_cache(want, request)))
        return QUIRE_E_RANGE;
    qr_need need = total_need(cache, want);
    if (need.status != QUIRE_OK)
        return need.status;
    int full = check_copies(cache, want, &need);
    int err = check_space(cache, p, want, &need);
    if (err != QUIRE_OK)
        return err;
    if (want->row == QR_NIL && !qr_cache_has_row(cache))
        return QUIRE_FULL;
    return full;
}

/* The next allocations of the row that will change nothing: most of those in decoding. Writing into
 * shared blocks is a change, and not foreseen here. */
static void note_quiet(quire_cache *cache, const qr_want *want)
{
    uint32_t quiet = cache->max_copies > 0 || cache->has_tails ? 0 : cache->max_model_len;
    for (uint32_t g = 0; g < cache->num_groups && quiet > 0; g++) {
        const qr_group *group = &cache->groups[g];
        uint32_t of_group = qr_group_quiet_tokens(group, want->row, want->num_certain);
        bool is_rswa = group->ops == &qr_rswa_ops && cache->prompts != NULL;
        if (is_rswa && qr_rswa_has_gap(group, want->row, want->num_certain,
                                       cache->prompts[want->row].num_tokens))
            of_group = 0; /* the gap of a hit */
        quiet = of_group < quiet ? of_group : quiet;
    }
    cache->row_states[want->row].quiet_until = quiet;
}

/* Blocks that the group takes for a row's first `end` tokens. */
static inline uint32_t count_missing(const qr_group *group, uint32_t row, uint64_t end)
{
    uint64_t room = (uint64_t)group->rows[row].num_blocks * group->block_size;
    uint32_t missing = end > room ? (uint32_t)(end - room) : 0;
    return missing > group->block_size ? qr_ceil_div(missing, group->block_size) : missing > 0;
}

/* The second path through allocation, for a decoding request of a model whose groups are full or of
 * windows: takes a block where the last one is full, gives the one before it its key, and gives
 * back what a window has left. False when the request needs the general path; then nothing has
 * changed. Without this path, for 256 and for 1,024 requests, cache/decode/full takes 1.26 and 1.20
 * times as long, and cache/decode/window 1.25 and 1.17 times (quire_bench --filter cache/decode, on
 * x86_64). */
static inline QR_INLINE bool allocate_shortly(quire_cache *cache,
                                              const quire_cache_request *request,
                                              const quire_allocate_params *p,
                                              quire_block_span *new_blocks, uint32_t num_groups)
{
    uint32_t row = qr_cache_row_of(cache, request->seq);
    uint64_t end = qr_cache_all_tokens(request, p);
    if (row == QR_NIL || !qr_cache_is_plain(p) || end > cache->max_model_len)
        return false;
    uint64_t n = 0;
    for (uint32_t g = 0; g < num_groups; g++)
        n += count_missing(&cache->groups[g], row, end);
    uint32_t main_tokens = (uint32_t)end - p->num_lookahead_tokens;
    uint32_t known = main_tokens < request->num_tokens ? main_tokens : request->num_tokens;
    bool caches = cache->enable_caching && p->delay_cache_blocks == 0;
    if (n > cache->pool->queue.num_free || (caches && !has_hashes_for(cache, request, known)))
        return false;
    uint32_t computed = request->num_computed_tokens;
    uint32_t certain = p->num_uncertain_tokens < computed ? computed - p->num_uncertain_tokens : 0;
    for (uint32_t g = 0; g < num_groups; g++)
        if (cache->groups[g].ops->remove_skipped != NULL)
            qr_group_remove_to(&cache->groups[g], row, certain);
    uint32_t quiet = cache->max_model_len;
    for (uint32_t g = 0; g < num_groups; g++) {
        qr_group *group = &cache->groups[g];
        uint32_t num_new = count_missing(group, row, end);
        if (num_new > 0)
            qr_group_take(group, row, num_new);
        if (new_blocks != NULL)
            new_blocks[g] = (quire_block_span){
                qr_group_row_blocks(group, row) + group->rows[row].num_blocks - num_new, num_new};
    }
    for (uint32_t g = 0; g < num_groups; g++) {
        qr_group *group = &cache->groups[g];
        if (caches)
            qr_group_cache(group, row, request, known);
        uint32_t of_group = qr_group_quiet_tokens(group, row, certain);
        quiet = of_group < quiet ? of_group : quiet;
    }
    cache->row_states[row].quiet_until = quiet;
    qr_assert_expensive(qr_cache_is_valid(cache));
    return true;
}

static void note_prompt(quire_cache *cache, const quire_cache_request *request, uint32_t row,
                        bool is_new, const quire_allocate_params *p)
{
    qr_prompt *prompt = &cache->prompts[row];
    if (is_new)
        *prompt = (qr_prompt){.num_tokens = request->num_tokens};
    if (p->num_prompt_tokens > 0)
        prompt->num_tokens = p->num_prompt_tokens;
    if (p->shared_prefix_boundary > 0)
        prompt->shared_boundary = p->shared_prefix_boundary;
}

/* vLLM gives blocks outside the window back before it sees that the others do not suffice. */
static void trim(quire_cache *cache, qr_want *want)
{
    if (want->row == QR_NIL)
        return;
    if (cache->has_checkpoints)
        qr_cache_plan_checkpoints(cache, want);
    qr_cache_remove_skipped(cache, want->row, want->num_certain, want->num_prompt);
    if (cache->has_checkpoints)
        qr_cache_note_checkpoints(cache, want);
}

/* Apart, so that the quiet path does not pay for its stack. */
static QR_NOINLINE int allocate_with_changes(quire_cache *cache, quire_cache_request *request,
                                             const quire_allocate_params *p,
                                             quire_block_span *new_blocks)
{
    qr_want want;
    int err = read_allocation(cache, request, p, &want);
    if (err == QUIRE_OK && p->full_sequence_must_fit != 0 && cache->rules.checks_whole_sequence) {
        err = qr_cache_can_fit(cache, request, p);
        if (err != QUIRE_OK)
            return err; /* nothing was given back */
    }
    if (err == QUIRE_OK)
        err = check_allocation(cache, request, p, &want);
    if (err == QUIRE_NO_SPACE && (cache->quirks & QR_QUIRK(TRIM_ON_FAILURE)) != 0)
        trim(cache, &want);
    if (QR_UNLIKELY(err != QUIRE_OK))
        return err;

    bool is_new = want.row == QR_NIL;
    if (QR_UNLIKELY(cache->has_checkpoints))
        qr_cache_plan_checkpoints(cache, &want);
    if (is_new) {
        begin_request(cache, request, &want, p);
    } else {
        qr_cache_remove_skipped(cache, want.row, want.num_certain, want.num_prompt);
        if (cache->max_copies > 0)
            qr_cache_copy_shared(cache, want.row, want.total_computed, want.num_tokens);
    }
    if (QR_UNLIKELY(cache->has_checkpoints))
        qr_cache_note_checkpoints(cache, &want);
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_group *group = &cache->groups[g];
        uint32_t n = QR_UNLIKELY(cache->copies_parts) ? qr_cache_allocate_parts(cache, g, &want)
                                                      : group->ops->allocate(group, &want);
        const uint32_t *blocks = qr_group_row_blocks(group, want.row);
        if (new_blocks != NULL)
            new_blocks[g] = (quire_block_span){blocks + group->rows[want.row].num_blocks - n, n};
    }
    if (cache->prompts != NULL)
        note_prompt(cache, request, want.row, is_new, p);
    if (cache->enable_caching && p->delay_cache_blocks == 0)
        cache_full(cache, request, want.row, tokens_to_cache(&want, request));
    note_quiet(cache, &want);
    qr_assert_expensive(qr_cache_is_valid(cache));
    return QUIRE_OK;
}

int qr_cache_allocate_more(quire_cache *cache, quire_cache_request *request,
                           const quire_allocate_params *p, quire_block_span *new_blocks)
{
    bool is_done = false;
    if (cache->is_plain && cache->num_groups == 1) /* most models: no loops */
        is_done = allocate_shortly(cache, request, p, new_blocks, 1);
    else if (cache->is_plain)
        is_done = allocate_shortly(cache, request, p, new_blocks, cache->num_groups);
    return is_done ? QUIRE_OK : allocate_with_changes(cache, request, p, new_blocks);
}

int qr_cache_can_allocate(const quire_cache *cache, const quire_cache_request *request,
                          const quire_allocate_params *p)
{
    qr_want want;
    int err = read_allocation(cache, request, p, &want);
    return err == QUIRE_OK ? check_allocation(cache, request, p, &want) : err;
}

int qr_cache_can_fit(const quire_cache *cache, const quire_cache_request *request,
                     const quire_allocate_params *p)
{
    qr_want want;
    int err = read_want(cache, request, p, &want);
    if (err != QUIRE_OK)
        return err;
    want.for_admission = true;
    want.num_main =
        request->num_tokens < cache->max_model_len ? request->num_tokens : cache->max_model_len;
    want.num_tokens = want.num_main;
    qr_need need = total_need(cache, &want);
    if (need.status != QUIRE_OK)
        return need.status;
    int64_t reserve = watermark_for(cache, p, &want);
    return need.predicted + reserve <= cache->pool->queue.num_free ? QUIRE_OK : QUIRE_NO_SPACE;
}

uint32_t qr_cache_count_remaining(const quire_cache *cache, const quire_cache_request *request,
                                  uint32_t num_more)
{
    qr_want want;
    int err = read_want(cache, request, &(quire_allocate_params){0}, &want);
    qr_assert(err == QUIRE_OK);
    want.for_admission = true;
    want.num_main =
        request->num_tokens < cache->max_model_len ? request->num_tokens : cache->max_model_len;
    want.num_tokens = want.num_main + num_more;
    qr_need need = total_need(cache, &want);
    return need.status == QUIRE_OK && need.predicted > 0 ? (uint32_t)need.predicted : 0;
}

/* ---- the rest -------------------------------------------------------------- */

int qr_cache_cache_blocks(quire_cache *cache, const quire_cache_request *request, uint32_t row,
                          uint32_t num_tokens)
{
    if (!cache->enable_caching || cache->num_sets == 0)
        return QUIRE_OK;
    if (!has_hashes_for(cache, request, num_tokens))
        return QUIRE_E_RANGE;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        uint32_t n = tokens_for_keys(cache, group, num_tokens);
        uint32_t num_blocks = group->rows[row].num_blocks;
        qr_part part = qr_group_part(group, row); /* of an allocation that found no room, perhaps */
        bool has_room = n / group->block_size <= num_blocks || group->ops == &qr_ring_ops;
        if (!has_room || (part.checkpoint != QR_NIL && part.checkpoint >= num_blocks))
            return QUIRE_E_RANGE;
    }
    cache_full(cache, request, row, num_tokens);
    qr_assert_expensive(qr_cache_is_valid(cache));
    return QUIRE_OK;
}

void qr_cache_free_joined(quire_cache *cache, quire_seq seq)
{
    uint32_t row = qr_cache_row_of(cache, seq);
    qr_assert(row != QR_NIL);
    qr_pool_freeing freeing = qr_pool_free_begin(cache->pool);
    for (uint32_t g = cache->num_groups; g-- > 0;) {
        qr_group *group = &cache->groups[g];
        qr_pool_free_part(cache->pool, &freeing, qr_group_row_blocks(group, row),
                          group->rows[row].num_blocks);
        qr_group_init_row(group, row);
    }
    qr_pool_free_end(cache->pool, &freeing);
    qr_cache_close_row(cache, row);
    qr_assert_expensive(qr_cache_is_valid(cache));
}

void qr_cache_free(quire_cache *cache, uint32_t row)
{
    for (uint32_t g = 0; g < cache->num_groups; g++)
        qr_group_free(&cache->groups[g], row);
    qr_cache_close_row(cache, row);
    if (cache->num_copies > 0 && !cache->copies_parts)
        qr_cache_drop_copies(cache);
    qr_assert_expensive(qr_cache_is_valid(cache));
}
