/* sched/step/admit.c - waiting requests that the step has room for.
 *
 *      swapped, skipped, then waiting      (PRIORITY: the more urgent head of the two queues)
 *
 *      prefix     with prefix_window, one of the first that wait may go before them     prefix.c
 *      held up    by a grammar, a load, an adapter too many, a connector that does not know yet:
 *                 passed over, and back to the skipped ones in order at the end of the step
 *      no room    of budget, blocks, places: the end of admission, so that nobody overtakes
 */
#include "sched/sched.h"

typedef enum qr_verdict {
    QR_ADMITTED,
    QR_HELD_UP, /* look at the next one */
    QR_NO_ROOM  /* stop */
} qr_verdict;

/* One request on its way in. */
typedef struct qr_admission {
    uint32_t index;
    qr_request *r;
    uint32_t num_local;
    uint32_t num_external;
    uint32_t num_swapped; /* kept when it was preempted, past the local ones */
    uint32_t is_async;
    uint32_t num_computed;
    uint32_t num_new;
    uint32_t connector_queries;
    quire_block_span *hits; /* NULL: none looked up */
    qr_encoder_plan encoder;
    quire_reason reason; /* why not */
    uint32_t num_dropped;
    uint32_t num_padded; /* drafts without a value, for a request of one token */
} qr_admission;

/* Whether a request that waits for something has got it. */
static bool promote(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    if (r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS)
        return qr_sched_promote_loaded(s, index);
    if (r->status != QUIRE_REQ_WAITING_FOR_GRAMMAR)
        return false;
    const quire_grammar *g = &s->partners.grammar;
    int is_ready = g->is_ready == NULL ? 1 : g->is_ready(g->user, qr_sched_req_of(s, index));
    if (is_ready < 0)
        qr_sched_doom(s, &s->results.bad_grammars, index);
    if (is_ready <= 0)
        return false;
    r->status = QUIRE_REQ_WAITING;
    return true;
}

/* ---- what is there already ------------------------------------------------- */

/* After an asynchronous load of all tokens the last one is computed again. Mamba layers cannot:
 * they have the state behind it, and need the one before. */
static bool must_leave_one(const quire_sched *s, const qr_admission *a)
{
    return !a->is_async ||
           (qr_sched_has_states(s) && (s->settings.quirks & QR_QUIRK(WINDOW_AHEAD)) == 0);
}

/* The connector is asked behind the last place where all groups have whole blocks. If it has more
 * than the hit that goes on from there, that part is loaded too; else the hit stays as it is. */
static void choose_part(quire_sched *s, qr_admission *a, uint32_t part)
{
    if (a->num_external <= part) {
        a->num_external = 0;
        return;
    }
    a->num_local -= part;
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        uint32_t num_blocks = a->num_local / s->cache->groups[g].block_size;
        if (a->hits[g].count > num_blocks)
            a->hits[g].count = num_blocks;
    }
}

static qr_verdict ask_connector(quire_sched *s, qr_admission *a)
{
    const quire_connector *c = &s->partners.connector;
    if (!s->partners.has_connector || c->get_num_new_matched_tokens == NULL ||
        a->r->has_failed_load)
        return QR_ADMITTED;
    s->partners.asked_req = qr_sched_req_of(s, a->index);
    uint32_t part = s->cache->takes_parts ? a->num_local % s->cache->block_multiple : 0;
    s->partners.asked_part = part;
    int answer = c->get_num_new_matched_tokens(c->user, s->partners.asked_req, a->num_local - part,
                                               &a->num_external, &a->is_async);
    s->partners.asked_req = 0;
    bool is_cut_to_hit = a->num_local >= a->r->kv.num_tokens; /* then it is looked up again */
    if (s->settings.rules.skips_connector_too && a->r->kv.skip_reading_prefix)
        answer = QUIRE_MISS;
    if (answer == QUIRE_RETRY || is_cut_to_hit) {
        a->reason = QUIRE_REASON_CONNECTOR;
        return QR_HELD_UP;
    }
    uint32_t most = a->r->kv.num_tokens - (a->num_local - part);
    if (answer != QUIRE_OK || a->num_external > most) /* what it cannot have, it has not */
        a->num_external = 0;
    if (must_leave_one(s, a) && a->num_external == most) /* one token must be computed */
        a->num_external--;
    if (part > 0)
        choose_part(s, a, part);
    if (a->num_external == 0)
        a->is_async = 0;
    bool must_wait = a->is_async && !qr_deadlock_may_load(s, a->r);
    /* A load may begin before the step's swap-outs were read. */
    bool would_overwrite = a->num_external > 0 && s->swap.out.count > 0;
    if (must_wait || would_overwrite) {
        a->reason = QUIRE_REASON_LOADING;
        return QR_HELD_UP;
    }
    a->connector_queries = a->r->kv.num_tokens - a->num_local;
    return QR_ADMITTED;
}

/* Blocks behind the hit that were cached once: they will be computed again. */
static uint32_t count_dropped(const quire_sched *s, const qr_admission *a)
{
    const qr_request *r = a->r;
    uint32_t first = s->hasher == NULL ? 0 : a->num_computed / s->settings.hash_block_size;
    if (s->hasher == NULL || s->cache->num_groups == 0 || first >= r->kv.num_hashes)
        return 0;
    const qr_group *group = &s->cache->groups[0];
    uint32_t n = (r->kv.num_hashes - first) / group->hashes_joined;
    const unsigned char *hashes =
        qr_text_hash_row(&s->texts.store, &r->text, first, r->kv.num_hashes);
    return qr_observer_count_ghosts(&s->observer, hashes + group->first_key, group->hash_len,
                                    group->key_stride, n);
}

/* Whether the request continues with its blocks: it was loaded, or is a session that goes on. After
 * a load no token may be computed: the only one is computed again, or STALE_OUTPUTS took them. */
static bool goes_on(const quire_sched *s, const qr_request *r)
{
    bool keeps_blocks = r->kv.seq != 0 && (s->settings.quirks & QR_QUIRK(LOAD_ASKED_AGAIN)) == 0;
    return r->kv.num_computed_tokens > 0 || keeps_blocks;
}

/* Held up while the encoder's connector still brings what the request needs next. */
static qr_verdict wait_for_inputs(const quire_sched *s, qr_admission *a)
{
    if (a->r->num_features == 0 || qr_sched_has_encoder_inputs(s, a->r, a->num_computed))
        return QR_ADMITTED;
    a->reason = QUIRE_REASON_ENCODER;
    return QR_HELD_UP;
}

/* Tokens whose keys and values need not be computed. */
static qr_verdict find_computed(quire_sched *s, qr_admission *a)
{
    qr_request *r = a->r;
    if (goes_on(s, r)) {
        a->num_computed = r->kv.num_computed_tokens;
        return wait_for_inputs(s, a);
    }
    a->hits = s->room.spans;
    qr_sched_show_all_hashes(s, a->index);
    bool has_diverged = qr_sched_find_hit(s, r, a->hits, &a->num_local);
    a->num_swapped = r->num_saved > a->num_local ? r->num_saved - a->num_local : 0;
    qr_verdict verdict = a->num_swapped > 0 ? QR_ADMITTED : ask_connector(s, a);
    if (verdict != QR_ADMITTED)
        return verdict;
    if (has_diverged && a->num_external == 0) {
        qr_sched_agree_on_hit(s, r, a->hits, &a->num_local);
        a->connector_queries = r->kv.num_tokens - a->num_local;
    }
    a->num_computed = a->num_local + a->num_external + a->num_swapped;
    if (wait_for_inputs(s, a) != QR_ADMITTED)
        return QR_HELD_UP;
    if (s->observer.on_decision != NULL)
        a->num_dropped = count_dropped(s, a);
    bool is_first = !s->settings.rules.delivers_stale || r->num_preemptions == 0;
    if (r->has_prefill_stats && a->num_swapped == 0 && is_first) {
        r->num_local_cached = a->num_local;
        r->num_external_cached = a->num_external;
    }
    return QR_ADMITTED;
}

/* ---- how much of it -------------------------------------------------------- */

/* A request of one token among requests that decode has as many tokens as they have, so that all
 * are computed in the same way. False: there is no room for that. */
static bool pad_drafts(quire_sched *s, qr_admission *a, uint32_t budget)
{
    uint32_t num_drafts = s->settings.num_spec_tokens;
    bool decodes = s->builder.num_ran > 0 || a->num_computed > 0;
    if (!s->settings.rules.pads_drafts || num_drafts == 0 || s->pace.num_sizes > 0 ||
        s->settings.num_sampled == 0 || a->num_new != 1 || !decodes || qr_step_has_prefill(s))
        return true;
    if ((uint64_t)a->num_computed + 1 + num_drafts + 1 > s->settings.max_model_len)
        return true;
    if (1 + num_drafts > budget)
        return false;
    a->num_new = 1 + num_drafts;
    a->num_padded = num_drafts;
    return true;
}

/* All drafts or none: where something leaves fewer tokens, vLLM fails with an assertion or, for
 * Mamba, drops the padding. */
static void keep_padding_whole(qr_admission *a)
{
    if (a->num_padded == 0 || a->num_new == 1 + a->num_padded)
        return;
    a->num_new = a->num_new > 0;
    a->num_padded = 0;
}

static qr_verdict choose_tokens(quire_sched *s, qr_admission *a)
{
    const qr_request *r = a->r;
    uint32_t budget = s->builder.budget;
    if (a->is_async)
        return QR_ADMITTED; /* the load first */
    a->reason = QUIRE_REASON_THROTTLED;
    if (s->pace.defers_prefills && a->num_computed + 1 < r->kv.num_tokens)
        return QR_NO_ROOM;
    a->reason = QUIRE_REASON_STREAMING;
    if (a->num_computed > r->kv.num_tokens) /* SESSION_KEEPS_AHEAD: vLLM fails with an assertion */
        return QR_HELD_UP;
    a->num_new = r->kv.num_tokens - a->num_computed;
    a->reason = QUIRE_REASON_CHUNK;
    if (!pad_drafts(s, a, budget))
        return QR_NO_ROOM;
    if (s->builder.threshold > 0 && a->num_new > s->builder.threshold)
        a->num_new = s->builder.threshold;
    if (!s->settings.chunked_prefill && !s->settings.is_encoder_only && a->num_new > budget)
        return QR_NO_ROOM;
    if (a->num_new > budget)
        a->num_new = budget;
    if (s->settings.mamba_block_size > 0 && s->settings.rules.aligns_to_stops) {
        a->reason = QUIRE_REASON_ALIGN;
        a->num_new = qr_sched_align_tokens(s, r, a->num_computed, a->num_new);
        if (a->num_new == 0)
            return QR_NO_ROOM;
        keep_padding_whole(a);
    }
    a->reason = QUIRE_REASON_ENCODER;
    if (r->num_features > 0) {
        a->encoder = qr_sched_plan_encoder(s, r, a->num_computed, a->num_new);
        a->num_new = a->encoder.num_new_tokens;
    }
    if (s->settings.prefill_lookahead > 1)
        a->num_new = qr_sched_leave_lookahead(s, r, a->num_computed, a->num_new);
    keep_padding_whole(a);
    return a->num_new > 0 ? QR_ADMITTED : QR_NO_ROOM;
}

static uint32_t encoder_tokens(const quire_sched *s, const qr_admission *a)
{
    uint32_t n = 0;
    for (uint32_t i = 0; s->settings.is_encoder_decoder && i < a->encoder.num_inputs; i++)
        n += a->r->features[s->builder.encoder_planned[i]].num_embeds;
    return n;
}

/* Whether the step loads blocks: until update says that they came nobody else may find them. */
static bool must_confirm(const quire_sched *s, const qr_admission *a)
{
    return a->num_external > 0 && (s->settings.quirks & QR_QUIRK(FAILED_BLOCKS_STAY)) == 0;
}

/* The request was refused its blocks. A hit may be stale where a connector's callback has evicted
 * blocks: looked up again later. Encoder input past cache.max_encoder_tokens is taken in with
 * HOPELESS_WAITS alone. With LOAD_ASKED_AGAIN a request may have blocks and find a hit: vLLM fails
 * with an assertion; here the request releases its blocks, and the next step can use the hit. */
static qr_verdict refuse_blocks(quire_sched *s, qr_admission *a, int err)
{
    qr_request *r = a->r;
    bool is_hopeless =
        s->settings.is_encoder_decoder && (s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) != 0;
    bool has_both = err == QUIRE_E_ARGUMENT && r->kv.seq != 0 && a->hits != NULL;
    qr_assert(qr_cache_lacks_room(err) || (err == QUIRE_E_STALE_HIT && s->partners.has_connector) ||
              (err == QUIRE_E_RANGE && is_hopeless) || has_both);
    if (r->num_features > 0)
        qr_encoder_free(&s->encoder, r->features, r->num_features);
    if (!has_both)
        return QR_NO_ROOM;
    qr_cache_drop(s->cache, &r->kv);
    qr_deadlock_note_holder(s, r);
    a->reason = QUIRE_REASON_LOADING;
    return QR_HELD_UP;
}

static qr_verdict allocate(quire_sched *s, qr_admission *a)
{
    bool had_blocks = a->r->kv.seq != 0;
    qr_request *r = a->r;
    quire_allocate_params p = {.size = sizeof(quire_allocate_params),
                               .num_new_tokens = a->num_new,
                               .num_new_computed_tokens = a->num_local,
                               .new_computed_blocks = a->hits,
                               .num_external_computed_tokens = a->num_external + a->num_swapped,
                               .num_encoder_tokens = encoder_tokens(s, a),
                               .delay_cache_blocks = a->is_async || must_confirm(s, a)};
    bool is_whole = a->is_async && a->num_computed == r->kv.num_tokens;
    if (is_whole && (s->settings.quirks & QR_QUIRK(WINDOW_AHEAD)) == 0)
        p.num_uncertain_tokens = 1; /* it will be computed again */
    if (s->settings.rules.counts_in_flight)
        p.num_uncertain_tokens = r->num_in_flight;
    bool looks_ahead = s->settings.rules.lookahead_at_admission
                           ? !a->is_async
                           : a->hits == NULL && r->kv.num_computed_tokens > 0;
    p.num_lookahead_tokens = looks_ahead ? s->settings.num_lookahead : 0;
    p.num_prompt_tokens = r->num_prompt_tokens;
    p.shared_prefix_boundary = r->shared_prefix;
    p.has_scheduled_reqs = s->queues.num_running > 0;
    if (a->is_async && s->settings.rules.reserves_for_prefills)
        p.reserved_blocks = qr_sched_count_reserved(s);
    if (a->is_async && s->settings.rules.zeroes_no_loads) {
        p.skip_zeroing_group_ids = s->room.group_ids;
        p.num_skip_zeroing_group_ids = s->cache->num_groups;
    }
    if (a->hits == NULL)
        qr_sched_show_hashes(s, a->index, a->num_computed + a->num_new);
    int err = QUIRE_OK;
    a->reason = QUIRE_REASON_BLOCKS;
    s->observer.taker = qr_sched_req_of(s, a->index);
    if (s->settings.reserve_full_sequence && s->settings.rules.checks_whole_sequence)
        p.full_sequence_must_fit = 1;
    else if (s->settings.reserve_full_sequence)
        err = qr_cache_can_fit(s->cache, &r->kv, &p);
    if (err == QUIRE_OK)
        err = qr_cache_allocate_slots(s->cache, &r->kv, &p, NULL);
    bool is_alone = qr_cache_is_unused(s->cache) && qr_sched_may_shrink(s, r);
    while (err != QUIRE_OK && is_alone && p.num_new_tokens > 1) {
        p.num_new_tokens /= 2;
        err = qr_cache_allocate_slots(s->cache, &r->kv, &p, NULL);
    }
    a->num_new = p.num_new_tokens;
    s->observer.taker = 0;
    /* It may have had blocks, without a computed token: then it was looked up again. */
    bool is_counted = had_blocks && a->hits != NULL && s->settings.rules.delivers_stale &&
                      s->cache->log_stats && r->kv.skip_reading_prefix == 0;
    if (err == QUIRE_OK && is_counted && s->cache->enable_caching)
        qr_cache_count_lookup(s->cache, &r->kv, a->num_local);
    if (err == QUIRE_OK)
        return QR_ADMITTED;
    return refuse_blocks(s, a, err);
}

/* ---- in -------------------------------------------------------------------- */

static void tell_connector(quire_sched *s, const qr_admission *a)
{
    const quire_connector *c = &s->partners.connector;
    if (!s->partners.has_connector)
        return;
    quire_req req = qr_sched_req_of(s, a->index);
    if (c->update_state_after_alloc != NULL)
        c->update_state_after_alloc(c->user, req, s->room.spans, a->num_external);
    if (!s->settings.counts_stats || a->connector_queries == 0)
        return;
    qr_prefix_stats_count(&s->partners.connector_stats, a->r->num_preemptions > 0,
                          a->connector_queries, a->num_external);
}

static void add_padding(quire_sched *s, const qr_admission *a)
{
    qr_step_builder *b = &s->builder;
    b->num_drafts[b->out.num_reqs - 1] = a->num_padded;
    b->padded[b->num_padded++] = b->out.num_reqs - 1;
    b->has_drafts = true;
}

static void enter_running(quire_sched *s, qr_admission *a)
{
    qr_request *r = a->r;
    s->queues.running[s->queues.num_running++] = a->index;
    qr_sched_undefer(s, a->index);
    bool is_known = r->status == QUIRE_REQ_PREEMPTED && !qr_request_is_untold(r);
    quire_step_kind kind = is_known ? QUIRE_STEP_RESUMED : QUIRE_STEP_NEW;
    if (s->settings.max_loras > 0)
        qr_step_add_lora(s, r->lora_id);
    r->status = QUIRE_REQ_RUNNING;
    qr_deadlock_note_holder(s, r);
    r->kv.num_computed_tokens = a->num_computed;
    r->is_prefilling |= a->num_computed + a->num_new < r->kv.num_tokens;
    if (s->watch.monitor != NULL)
        qr_metrics_admit(&s->watch.monitor->metrics, a->index);
    qr_sched_make_text_room(s, r);
    qr_step_add(s, a->index, kind, a->num_new, a->num_computed, s->room.spans);
    if (a->num_padded > 0)
        add_padding(s, a);
    if (a->encoder.num_inputs + a->encoder.num_external > 0)
        qr_step_add_encoder(s, r, &a->encoder);
}

/* Whether the head of a queue can be taken in; then it has its blocks. */
static qr_verdict try_admission(quire_sched *s, qr_admission *a)
{
    if (a->r->is_offloaded) {
        a->reason = QUIRE_REASON_OFFLOADED;
        return QR_HELD_UP;
    }
    bool was_held = qr_request_is_held(a->r);
    if (was_held && !promote(s, a->index)) {
        a->reason = a->r->status == QUIRE_REQ_WAITING_FOR_GRAMMAR      ? QUIRE_REASON_GRAMMAR
                    : a->r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS ? QUIRE_REASON_LOADING
                                                                       : QUIRE_REASON_STREAMING;
        return QR_HELD_UP;
    }
    if (a->r->num_stale > 0 && !a->r->drops_stale) { /* outputs of earlier steps come first */
        a->reason = QUIRE_REASON_STALE;
        return QR_HELD_UP;
    }
    if (s->settings.uses_pressure && !qr_sched_admits(s, a->r)) {
        a->reason = QUIRE_REASON_PRESSURE;
        return QR_NO_ROOM;
    }
    if (s->settings.max_loras > 0 && a->r->lora_id > 0 &&
        s->builder.num_loras == s->settings.max_loras && !qr_step_has_lora(s, a->r->lora_id)) {
        a->reason = QUIRE_REASON_LORA;
        return QR_HELD_UP;
    }
    qr_verdict verdict = find_computed(s, a);
    if (verdict == QR_ADMITTED)
        verdict = choose_tokens(s, a);
    if (verdict == QR_ADMITTED && s->settings.mamba_block_size > 0 &&
        !s->settings.rules.aligns_to_stops) {
        a->reason = QUIRE_REASON_ALIGN;
        a->num_new = qr_sched_align_tokens(s, a->r, a->num_computed, a->num_new);
        verdict = a->num_new > 0 ? QR_ADMITTED : QR_NO_ROOM;
    }
    if (verdict != QR_ADMITTED)
        return verdict;
    a->reason = QUIRE_REASON_TEXT;
    return qr_texts_promise(&s->texts, a->r, qr_sched_last_token_of(s, a->r)) ? allocate(s, a)
                                                                              : QR_NO_ROOM;
}

static void explain(const quire_sched *s, const qr_admission *a, qr_verdict verdict)
{
    bool is_held = verdict == QR_HELD_UP;
    qr_observer_tell(&s->observer, (quire_decision){.kind = is_held ? QUIRE_DECISION_HELD_UP
                                                                    : QUIRE_DECISION_NO_ROOM,
                                                    .reason = a->reason,
                                                    .req = qr_sched_req_of(s, a->index),
                                                    .num = s->cache->pool->queue.num_free});
}

static qr_verdict admit_one(quire_sched *s, uint32_t index)
{
    qr_admission a = {.index = index, .r = &s->table.requests[index]};
    qr_verdict verdict = try_admission(s, &a);
    if (verdict != QR_ADMITTED) {
        if (a.r->num_features > 0 && (s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) == 0)
            qr_encoder_free(&s->encoder, a.r->features, a.r->num_features);
        explain(s, &a, verdict);
        if (a.reason == QUIRE_REASON_BLOCKS && s->builder.without_blocks == QR_NIL)
            s->builder.without_blocks = index;
        return verdict;
    }
    s->observer.num_hit_tokens += a.num_local;
    s->observer.num_external_tokens += a.num_external;
    s->observer.num_query_tokens += a.hits != NULL ? a.r->kv.num_tokens : 0;
    if (a.num_dropped > 0)
        qr_observer_tell(&s->observer, (quire_decision){.kind = QUIRE_DECISION_DROPPED,
                                                        .req = qr_sched_req_of(s, index),
                                                        .num = a.num_dropped});
    qr_cache_get_blocks(s->cache, a.r->kv.seq, s->room.spans);
    if (s->pins.num_pins > 0)
        qr_pins_reused(s, qr_sched_req_of(s, index), a.num_local);
    if (s->ahead.num > 0)
        qr_lookahead_drop(s, index);
    tell_connector(s, &a);
    a.r->load_step = must_confirm(s, &a) ? s->flight.step : 0;
    s->builder.loads = s->builder.loads || (a.r->load_step != 0 && !a.is_async);
    a.r->load_end = a.num_computed;
    qr_sched_dequeue(s, index);
    if (s->prefix.window > 0)
        qr_prefix_admitted(s, index, a.r->kv.num_tokens - a.num_computed, s->builder.is_chosen);
    qr_deadlock_note_change(s);
    a.r->num_hosted = 0;
    if (a.r->num_saved > 0)
        qr_swap_in(s, index, a.num_local);
    if (a.is_async) { /* it has its blocks, and waits until they are filled */
        a.r->status = QUIRE_REQ_WAITING_FOR_REMOTE_KVS;
        a.r->is_prefilling = true;
        qr_deadlock_note_holder(s, a.r);
        a.r->kv.num_computed_tokens = a.num_computed;
        qr_sched_skip(s, index);
        return QR_ADMITTED;
    }
    enter_running(s, &a);
    return QR_ADMITTED;
}

/* The queue whose head is next. */
static qr_waiting *choose_queue(quire_sched *s)
{
    if (s->queues.skipped.count == 0 || s->queues.waiting.count == 0 ||
        s->settings.rules.holders_first)
        return s->queues.skipped.count > 0 ? &s->queues.skipped : &s->queues.waiting;
    const qr_waiter *waiting = &s->table.waiters[qr_waiting_peek(&s->queues.waiting)];
    const qr_waiter *skipped = &s->table.waiters[qr_waiting_peek(&s->queues.skipped)];
    if (s->settings.policy == QUIRE_POLICY_FCFS)
        return waiting->is_swapped && !skipped->is_swapped ? &s->queues.waiting
                                                           : &s->queues.skipped;
    return qr_waiter_before(waiting, skipped) ? &s->queues.waiting : &s->queues.skipped;
}

/* Nobody runs, so nothing will change for one that finds no room, while some behind it may have
 * what it needs: blocks, or pages. */
static bool may_go_past(const quire_sched *s)
{
    return s->queues.num_running == 0 && (s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) == 0;
}

/* The request that is tried next. */
static uint32_t choose_next(quire_sched *s)
{
    qr_waiting *queue = choose_queue(s);
    bool may_choose = s->prefix.window > 0 && !s->builder.is_in_order && !s->deadlock.is_active;
    s->builder.is_chosen = may_choose && queue == &s->queues.waiting;
    return s->builder.is_chosen ? qr_prefix_choose(s) : qr_waiting_peek(queue);
}

/* A request that was to overtake others was not admitted: it keeps its place in the queue, and this
 * step admits in the order of the queue from here on. */
static bool ends_overtaking(quire_sched *s, uint32_t index, bool had_promise)
{
    qr_request *r = &s->table.requests[index];
    if (!s->builder.is_chosen || s->prefix.chosen == 0)
        return false;
    if (r->has_promise && !had_promise)
        qr_texts_take_back(&s->texts, r);
    s->builder.is_in_order = true;
    return true;
}

/* While no new request may start, those that hold blocks may go on. */
static bool has_candidate(const quire_sched *s)
{
    return s->queues.skipped.count > 0 ||
           (s->queues.waiting.count > 0 && s->pause == QUIRE_UNPAUSED);
}

static bool has_place(const quire_sched *s)
{
    if (!s->settings.rules.holders_first)
        return s->queues.num_running < s->settings.max_num_seqs;
    return s->queues.num_running + s->queues.num_waiting_for_streaming < s->settings.max_active;
}

/* Whether somebody was not admitted for want of room. */
static bool admit_all(quire_sched *s)
{
    bool lacked_room = false;
    s->builder.without_blocks = QR_NIL;
    s->builder.is_in_order = false;
    qr_deadlock_begin_round(s);
    while (has_candidate(s) && s->builder.budget > 0 && has_place(s)) {
        uint32_t index = choose_next(s);
        bool had_promise = s->table.requests[index].has_promise;
        qr_verdict verdict = admit_one(s, index);
        if (verdict != QR_ADMITTED && ends_overtaking(s, index, had_promise))
            continue;
        lacked_room = lacked_room || verdict == QR_NO_ROOM;
        if (verdict == QR_NO_ROOM && !may_go_past(s))
            break;
        if (verdict != QR_ADMITTED) {
            qr_sched_dequeue(s, index);
            qr_sched_skip(s, index);
        }
    }
    qr_waiting_prepend_all(&s->queues.skipped, &s->queues.step_skipped);
    qr_waiting_prepend_all(&s->queues.waiting, &s->queues.step_waiting);
    return lacked_room;
}

/* No request has blocks and no block is held: a request that finds no room now never will. It was
 * accepted, and has grown since. */
static bool end_without_hope(quire_sched *s)
{
    uint32_t index = s->builder.without_blocks;
    return qr_cache_is_unused(s->cache) && index != QR_NIL &&
           (s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) == 0 && qr_sched_end_outgrown(s, index);
}

/* When no request runs and none could be admitted, pins end; then requests that wait with blocks
 * give them up, one after the other (deadlock.c); then requests that do not fit an empty pool end.
 * After that there is room for one that is left, or something outside the scheduler has blocks. */
void qr_sched_admit_waiting(quire_sched *s)
{
    while (admit_all(s) && s->queues.num_running == 0 && s->builder.budget > 0) {
        if (qr_pins_give_way(s))
            continue;
        bool goes_on = s->cache->num_seqs > 0 ? qr_deadlock_take_blocks(s) : end_without_hope(s);
        if (!goes_on)
            break;
    }
    if (QR_UNLIKELY(s->deadlock.is_active))
        qr_deadlock_end_round(s);
}
