/* sched/running.c - the running requests of a step, in order; and preemption.
 *
 *      running   [ a ][ b ][ c ][ d ]     c finds no room: d gives its blocks back (FCFS) and goes
 *                            ^            to the head of the waiting ones; then c again, and so on,
 *                                         until there is room or c itself had to go
 */
#include "sched/sched.h"

/* The steps in flight are sure to reach max_tokens, whatever drafts are rejected. */
static bool is_done_ahead(const qr_request *r)
{
    return r->num_placeholders > 0 &&
           (int64_t)r->kv.num_computed_tokens + 2 - (int64_t)r->num_placeholders >=
               (int64_t)r->num_prompt_tokens + r->max_tokens;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t wanted_tokens(const quire_sched *s, const qr_request *r)
{
    uint32_t end = r->kv.num_tokens + r->num_drafts + r->num_placeholders;
    uint32_t n = end > r->kv.num_computed_tokens ? end - r->kv.num_computed_tokens : 0;
    if (s->long_prefill_threshold > 0)
        n = smaller(n, s->long_prefill_threshold);
    n = smaller(n, s->builder.budget);
    uint32_t last = s->max_model_len - 1; /* positions end there, drafts too */
    return smaller(n, last > r->kv.num_computed_tokens ? last - r->kv.num_computed_tokens : 0);
}

uint32_t qr_sched_align_tokens(const quire_sched *s, const qr_request *r, uint32_t computed,
                               uint32_t num_new)
{
    uint32_t size = s->mamba_block_size;
    uint32_t num_tokens = r->kv.num_tokens;
    uint32_t prefill_end =
        r->num_prompt_tokens > num_tokens - 1 ? r->num_prompt_tokens : num_tokens - 1;
    if (computed >= prefill_end)
        return num_new;
    uint32_t inside = computed % size; /* of a session that goes on, or behind loaded tokens */
    if (inside > 0 && num_new > size - inside && (s->quirks & QUIRE_QUIRK(MAMBA_ALIGN_INSIDE)) == 0)
        num_new = size - inside;
    if (inside > 0 && (s->quirks & QUIRE_QUIRK(MAMBA_ALIGN_INSIDE)) == 0)
        return num_new;
    uint32_t last = num_tokens - num_tokens % size; /* the last state that can be kept */
    if (s->use_eagle)
        last = last > size ? last - size : 0;
    if (computed + num_new < last)
        return num_new / size * size;
    if (computed < last && last < computed + num_new)
        return last - computed;
    return num_new;
}

/* ---- preemption ------------------------------------------------------------ */

void qr_sched_leave_running(quire_sched *s, uint32_t place)
{
    s->num_running--;
    memmove(&s->running[place], &s->running[place + 1],
            (s->num_running - place) * sizeof *s->running);
}

void qr_sched_preempt(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->requests[index];
    qr_assert(r->status == QUIRE_REQ_RUNNING);
    quire_cache_free(s->cache, &r->kv);
    if (r->num_features > 0)
        qr_encoder_free(&s->encoder, r->features, r->num_features);
    r->status = QUIRE_REQ_PREEMPTED;
    r->kv.num_computed_tokens = 0;
    r->num_drafts = 0;
    r->load_step = 0;
    if ((s->quirks & QUIRE_QUIRK(STALE_OUTPUTS)) == 0 && s->num_batches > 0) {
        r->num_placeholders = 0;
        qr_request_void_steps(r, s->step);
    }
    r->num_preemptions++;
    r->kv.was_preempted = 1;
    if (s->monitor != NULL)
        qr_metrics_add(&s->monitor->metrics, QR_METRIC_PREEMPTIONS, 0, 1);
    qr_waiting_prepend(&s->waiting, index);
    if (s->ahead.max > 0) /* before the blocks that it gave back are taken */
        qr_lookahead_add(s, index);
}

/* The place in running of the largest (priority, arrival time). Of equals it is the largest id, as
 * in the queues: if it were the first of them, two that need each other's blocks could be preempted
 * in turns, for ever. */
static uint32_t find_least_urgent(const quire_sched *s)
{
    uint32_t worst = 0;
    bool takes_first = (s->quirks & QUIRE_QUIRK(PRIORITY_TIES)) != 0;
    for (uint32_t i = 1; i < s->num_running; i++) {
        const qr_waiter *a = &s->waiters[s->running[worst]];
        const qr_waiter *b = &s->waiters[s->running[i]];
        bool is_equal = b->priority == a->priority && b->arrival_time == a->arrival_time;
        if (qr_waiter_before(a, b) && !(is_equal && takes_first))
            worst = i;
    }
    return worst;
}

void qr_sched_forget_from(quire_sched *s, const qr_request *r, uint32_t token)
{
    quire_cache_get_blocks(s->cache, r->kv.seq, s->spans);
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        uint32_t first = token / s->cache->groups[g].block_size;
        quire_block_span blocks = s->spans[g];
        if (first < blocks.count)
            quire_cache_evict_blocks(s->cache, blocks.ids + first, blocks.count - first);
    }
}

/* Takes a request that was scheduled already out of the step. */
static void unschedule(quire_sched *s, uint32_t place)
{
    qr_step_builder *b = &s->builder;
    const qr_request *r = &s->requests[quire_req_index(b->reqs[place])];
    bool stays = (s->quirks & QUIRE_QUIRK(UNENCODED_STAYS)) != 0;
    for (uint32_t i = 0; i < b->encoder_count[place]; i++) {
        uint32_t input = b->encoder_found[b->encoder_first[place] + i];
        b->encoder_budget += r->features[input].num_embeds;
        if (!stays)
            qr_encoder_forget(&s->encoder, r->features, r->num_features, input);
    }
    if (!stays) /* what got its key in the step being made will not be computed in it */
        qr_sched_forget_from(s, r, r->kv.num_computed_tokens);
    qr_step_remove(s, place);
}

/* A request that has all blocks that any request has or holds, and still finds no room, will find
 * none later. */
static bool has_all_blocks(const quire_sched *s)
{
    return s->num_running == 1 && s->cache->num_seqs == 1 && s->cache->pool->num_held == 0 &&
           (s->quirks & QUIRE_QUIRK(HOPELESS_WAITS)) == 0;
}

bool qr_sched_end_outgrown(quire_sched *s, uint32_t index)
{
    quire_req req = qr_sched_req_of(s, index);
    const qr_request *r = &s->requests[index];
    if (s->num_outgrown == s->max_batches)
        return false;
    s->outgrown[s->num_outgrown++] = (quire_output){.req = req,
                                                    .user = r->kv.user,
                                                    .client_index = r->client_index,
                                                    .finish_reason = QUIRE_FINISH_LENGTH};
    qr_observer_tell(&s->observer, (quire_decision){.kind = QUIRE_DECISION_OUTGROWN, .req = req});
    qr_sched_finish(s, &req, 1, QUIRE_REQ_FINISHED_LENGTH, NULL);
    return true;
}

/* Preempts one request; *cursor is the place of the request that needs room. Returns the victim. */
static uint32_t preempt_one(quire_sched *s, uint32_t *cursor)
{
    uint32_t place = s->num_running - 1;
    bool was_scheduled = false;
    if (s->policy == QUIRE_POLICY_PRIORITY) {
        place = find_least_urgent(s);
        uint32_t in_step = qr_step_find(s, qr_sched_req_of(s, s->running[place]));
        was_scheduled = in_step != QR_NIL;
        if (was_scheduled)
            unschedule(s, in_step);
    }
    uint32_t victim = s->running[place];
    qr_sched_leave_running(s, place);
    bool skips = (s->quirks & QUIRE_QUIRK(PRIORITY_SKIP)) != 0;
    if (was_scheduled || (place < *cursor && !skips))
        (*cursor)--;
    qr_swap_out(s, victim);
    qr_sched_preempt(s, victim);
    s->builder.preempted[s->num_preempted++] = qr_sched_req_of(s, victim);
    return victim;
}

/* ---- one request ----------------------------------------------------------- */

bool qr_sched_may_shrink(const quire_sched *s, const qr_request *r)
{
    bool is_whole = s->disable_chunked_mm && r->num_features > 0;
    return s->chunked_prefill && s->mamba_block_size == 0 && !is_whole &&
           (s->quirks & QUIRE_QUIRK(HOPELESS_WAITS)) == 0;
}

/* Gets room for the tokens, preempting others for it, or for fewer tokens if there are no others;
 * false when the request itself had to go. */
static QR_NOINLINE bool make_room(quire_sched *s, uint32_t *cursor, uint32_t *num_tokens,
                                  quire_block_span *blocks)
{
    uint32_t index = s->running[*cursor];
    qr_request *r = &s->requests[index];
    quire_allocate_params p = {.num_new_tokens = *num_tokens,
                               .num_lookahead_tokens = s->num_lookahead};
    if ((s->quirks & QUIRE_QUIRK(WINDOW_AHEAD)) == 0)
        p.num_uncertain_tokens = r->num_placeholders;
    if (r->load_step != 0) { /* no keys, and no block leaves the row, before the load is known */
        p.delay_cache_blocks = 1;
        p.num_uncertain_tokens = r->kv.num_computed_tokens;
    }
    quire_req req = qr_sched_req_of(s, index);
    s->observer.taker = req;
    if (s->monitor != NULL)
        qr_prefetch(&r->lora_id); /* and has_extra: which an event will ask for */
    for (;;) {
        qr_sched_show_hashes(s, index, r->kv.num_computed_tokens + *num_tokens);
        int err = qr_cache_allocate_slots(s->cache, &r->kv, &p, blocks);
        if (QR_LIKELY(err == QUIRE_OK))
            break;
        qr_assert(qr_cache_lacks_room(err));
        bool is_alone = s->num_running == 1;
        if (is_alone && (qr_pins_give_way(s) || qr_starved_take_blocks(s)))
            continue;
        bool has_all = has_all_blocks(s);
        if (has_all && *num_tokens > 1 && qr_sched_may_shrink(s, r)) {
            *num_tokens /= 2;
            p.num_new_tokens = *num_tokens;
            continue;
        }
        if (has_all && (r->num_placeholders > 0 || r->load_step != 0))
            return false; /* once the steps in flight are known, windows may give blocks back */
        if (has_all && qr_sched_end_outgrown(s, index))
            return false;
        uint32_t victim = preempt_one(s, cursor);
        qr_observer_tell(&s->observer, (quire_decision){.kind = QUIRE_DECISION_PREEMPTED,
                                                        .req = qr_sched_req_of(s, victim),
                                                        .other = req});
        if (victim == index)
            return false;
    }
    s->observer.taker = 0;
    return true;
}

/* Drafts that fit among the tokens of this step. */
static void take_drafts(quire_sched *s, qr_request *r, uint32_t num_tokens)
{
    qr_step_builder *b = &s->builder;
    uint64_t known = (uint64_t)r->kv.num_tokens + r->num_placeholders;
    uint64_t end = (uint64_t)r->kv.num_computed_tokens + num_tokens;
    if (end > known) {
        b->num_drafts[b->out.num_reqs - 1] = smaller(r->num_drafts, (uint32_t)(end - known));
        b->has_drafts = true;
    }
    r->num_drafts = 0; /* new ones come before the next step */
}

/* Schedules running[*cursor], or passes over it; false ends the running ones of this step. */
static bool run_one(quire_sched *s, uint32_t *cursor)
{
    uint32_t index = s->running[*cursor];
    qr_request *r = &s->requests[index];
    uint32_t n = is_done_ahead(r) ? 0 : wanted_tokens(s, r);
    qr_encoder_plan e = {0};
    if (QR_UNLIKELY(r->num_features > 0 && n > 0)) {
        e = qr_sched_plan_encoder(s, r, r->kv.num_computed_tokens, n);
        n = e.num_new_tokens;
    }
    if (s->mamba_block_size > 0 && n > 0)
        n = qr_sched_align_tokens(s, r, r->kv.num_computed_tokens, n);
    if (n == 0) { /* somebody behind it may still be scheduled */
        ++*cursor;
        return true;
    }
    quire_block_span *blocks = s->no_spans;
    uint64_t end = (uint64_t)r->kv.num_computed_tokens + n + s->num_lookahead;
    if (QR_UNLIKELY(!qr_cache_is_quiet(s->cache, r->kv.seq, end))) {
        blocks = s->spans;
        if (!make_room(s, cursor, &n, blocks))
            return false;
    }
    qr_sched_make_text_room(s, r);
    qr_step_add(s, index, QUIRE_STEP_RUNNING, n, r->kv.num_computed_tokens, blocks);
    if (r->num_drafts > 0)
        take_drafts(s, r, n);
    if (e.num_inputs + e.num_external > 0)
        qr_step_add_encoder(s, r, &e);
    ++*cursor;
    return true;
}

/* Nobody could be scheduled, and nothing is in flight that would change that: they wait for each
 * other's places in the encoder cache. One of them gives its own up. */
static bool are_stuck(const quire_sched *s)
{
    return s->builder.out.num_reqs == 0 && s->num_running > 1 && s->num_batches == 0 &&
           s->builder.budget > 0 && s->num_preempted == 0 &&
           (s->quirks & QUIRE_QUIRK(HOPELESS_WAITS)) == 0;
}

void qr_sched_run_running(quire_sched *s)
{
    uint32_t cursor = 0;
    while (cursor < s->num_running && s->builder.budget > 0) {
        if (cursor + QR_FETCH_AHEAD < s->num_running)
            qr_sched_fetch(s, s->running[cursor + QR_FETCH_AHEAD]);
        if (!run_one(s, &cursor))
            break;
    }
    if (QR_UNLIKELY(are_stuck(s)))
        preempt_one(s, &cursor);
    if (s->max_loras == 0)
        return;
    for (uint32_t i = 0; i < s->builder.out.num_reqs; i++)
        qr_step_add_lora(s, s->requests[quire_req_index(s->builder.reqs[i])].lora_id);
    bool all_count = (s->quirks & QUIRE_QUIRK(LORA_OF_STEP)) == 0;
    for (uint32_t i = 0; all_count && i < s->num_running; i++)
        qr_step_add_lora(s, s->requests[s->running[i]].lora_id);
}
