/* sched/step/running.c - the running requests of a step, in order.
 *
 *      running   [ a ][ b ][ c ][ d ]     c finds no room: d gives its blocks back (FCFS) and goes
 *                            ^            to the head of the waiting ones; then c again, and so on,
 *                                         until there is room or c itself had to go
 */
#include "group/checkpoint.h"
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
    n = smaller(n, s->builder.budget);
    /* Positions end there, drafts too. */
    uint32_t last = s->settings.max_model_len - s->settings.num_sampled;
    return smaller(n, last > r->kv.num_computed_tokens ? last - r->kv.num_computed_tokens : 0);
}

/* Whether a chunk of the prompt may be as long as a block. */
static bool fits_block(const quire_sched *s, uint32_t size)
{
    uint32_t most = s->settings.max_scheduled;
    uint32_t threshold = s->settings.long_prefill_threshold;
    return size <= (threshold > 0 && threshold < most ? threshold : most);
}

/* Whether the layers write the prompt's last state themselves, inside the chunk that ends it. */
static bool has_checkpoint(const quire_sched *s, uint32_t start, uint32_t end, uint32_t prefill_end)
{
    if (s->settings.checkpoint_alignment == 0 || end < prefill_end)
        return false;
    qr_checkpoint_chunk chunk = {.start = start,
                                 .end = end,
                                 .hash_size = s->settings.hash_block_size,
                                 .block_size = s->settings.mamba_block_size,
                                 .alignment = s->settings.checkpoint_alignment};
    uint32_t size =
        s->settings.keeps_tails ? s->settings.hash_block_size : s->cache->block_multiple;
    return qr_checkpoint_is_possible(&chunk,
                                     qr_checkpoint_end(prefill_end, size, s->settings.use_eagle));
}

/* Where a chunk that begins before what other requests have in common with its own must end, for a
 * state to be kept: at the end of a block, or there. */
static uint32_t junction_of(const quire_sched *s, const qr_request *r, uint32_t start, uint32_t end)
{
    uint32_t size = s->settings.mamba_block_size;
    if (start >= r->shared_prefix || r->shared_prefix >= end)
        return 0;
    bool is_kept = s->settings.keeps_junctions && r->shared_prefix <= r->num_prompt_tokens;
    return is_kept ? r->shared_prefix : start + (r->shared_prefix - start) / size * size;
}

/* The end of a chunk: at a block's end, if it is not the prompt's last, and at the first place
 * before it where a state must be kept: the end of a block that the chunk begins inside of, the
 * last state of the request, the prompt's last hash, the end of what other requests have in common
 * with it. */
static uint32_t align_to_stops(const quire_sched *s, const qr_request *r, uint32_t start,
                               uint32_t num_new, uint32_t prefill_end)
{
    uint32_t size = s->settings.mamba_block_size;
    bool use_eagle = s->settings.use_eagle;
    uint32_t end = start + num_new;
    bool is_written = has_checkpoint(s, start, end, prefill_end);
    uint32_t aligned = end / size * size;
    if (end < prefill_end && (aligned > start || fits_block(s, size)))
        end = aligned;
    bool is_inside = start % size != 0 && !is_written;
    uint32_t last = is_written ? 0 : qr_checkpoint_end(r->kv.num_tokens, size, use_eagle);
    uint32_t tail = 0;
    if (s->settings.keeps_tails && !is_written)
        tail = qr_checkpoint_end(r->num_prompt_tokens, s->settings.hash_block_size, use_eagle);
    bool has_tail = last < tail && tail < r->num_prompt_tokens;
    uint32_t stops[] = {is_inside ? (start / size + 1) * size : 0, last, has_tail ? tail : 0,
                        junction_of(s, r, start, end)};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (start < stops[i] && stops[i] < end)
            end = stops[i];
    return end > start ? end - start : 0;
}

uint32_t qr_sched_align_tokens(const quire_sched *s, const qr_request *r, uint32_t computed,
                               uint32_t num_new)
{
    uint32_t size = s->settings.mamba_block_size;
    uint32_t num_tokens = r->kv.num_tokens;
    uint32_t prefill_end =
        r->num_prompt_tokens > num_tokens - 1 ? r->num_prompt_tokens : num_tokens - 1;
    if (computed >= prefill_end)
        return num_new;
    if (s->settings.rules.aligns_to_stops)
        return align_to_stops(s, r, computed, num_new, prefill_end);
    uint32_t inside = computed % size; /* of a session that goes on, or behind loaded tokens */
    if (inside > 0 && num_new > size - inside &&
        (s->settings.quirks & QR_QUIRK(MAMBA_ALIGN_INSIDE)) == 0)
        num_new = size - inside;
    if (inside > 0 && (s->settings.quirks & QR_QUIRK(MAMBA_ALIGN_INSIDE)) == 0)
        return num_new;
    uint32_t last = num_tokens - num_tokens % size; /* the last state that can be kept */
    if (s->settings.use_eagle)
        last = last > size ? last - size : 0;
    if (computed + num_new < last)
        return num_new / size * size;
    if (computed < last && last < computed + num_new)
        return last - computed;
    return num_new;
}

uint32_t qr_sched_leave_lookahead(const quire_sched *s, const qr_request *r, uint32_t computed,
                                  uint32_t num_new)
{
    uint32_t end = computed + num_new;
    uint32_t left = r->kv.num_tokens > end ? r->kv.num_tokens - end : 0;
    if (left == 0 || left >= s->settings.prefill_lookahead)
        return num_new;
    uint32_t lacking = s->settings.prefill_lookahead - left;
    return num_new > lacking ? num_new - lacking : 0;
}

/* ---- one request ----------------------------------------------------------- */

/* A request that has all blocks that any request has or holds, and still finds no room, will find
 * none later. */
static bool has_all_blocks(const quire_sched *s)
{
    return s->queues.num_running == 1 && s->cache->num_seqs == 1 && s->cache->pool->num_held == 0 &&
           s->cache->num_copies == 0 && (s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) == 0;
}

bool qr_sched_end_outgrown(quire_sched *s, uint32_t index)
{
    quire_req req = qr_sched_req_of(s, index);
    const qr_request *r = &s->table.requests[index];
    if (s->results.num_outgrown == s->settings.max_batches)
        return false;
    s->results.outgrown[s->results.num_outgrown++] =
        (quire_output){.req = req,
                       .user = r->kv.user,
                       .client_index = r->client_index,
                       .finish_reason = QUIRE_FINISH_LENGTH};
    qr_observer_tell(&s->observer, (quire_decision){.kind = QUIRE_DECISION_OUTGROWN, .req = req});
    qr_sched_finish(s, &req, 1, QUIRE_REQ_FINISHED_LENGTH, NULL);
    return true;
}

bool qr_sched_may_shrink(const quire_sched *s, const qr_request *r)
{
    bool is_whole = s->settings.disable_chunked_mm && r->num_features > 0;
    return s->settings.chunked_prefill && s->settings.mamba_block_size == 0 && !is_whole &&
           (s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) == 0;
}

/* Gets room for the tokens, preempting others for it, or for fewer tokens if there are no others;
 * false when the request itself had to go. 0 tokens: the step has as many copies on write as it may
 * have, and the request waits for the next step. */
static QR_NOINLINE bool make_room(quire_sched *s, uint32_t *cursor, uint32_t *num_tokens,
                                  quire_block_span *blocks)
{
    uint32_t index = s->queues.running[*cursor];
    qr_request *r = &s->table.requests[index];
    quire_allocate_params p = {.size = sizeof(quire_allocate_params),
                               .num_new_tokens = *num_tokens,
                               .num_lookahead_tokens = s->settings.num_lookahead};
    if (s->settings.rules.counts_in_flight)
        p.num_uncertain_tokens = r->num_in_flight;
    else if ((s->settings.quirks & QR_QUIRK(WINDOW_AHEAD)) == 0)
        p.num_uncertain_tokens = r->num_placeholders;
    if (r->load_step != 0) { /* no keys, and no block leaves the row, before the load is known */
        p.delay_cache_blocks = 1;
        p.num_uncertain_tokens = r->kv.num_computed_tokens;
    }
    quire_req req = qr_sched_req_of(s, index);
    s->observer.taker = req;
    if (s->watch.monitor != NULL)
        qr_prefetch(&r->lora_id); /* and has_extra: which an event will ask for */
    for (;;) {
        qr_sched_show_hashes(s, index, r->kv.num_computed_tokens + *num_tokens);
        int err = qr_cache_allocate_slots(s->cache, &r->kv, &p, blocks);
        if (QR_LIKELY(err == QUIRE_OK))
            break;
        qr_assert(qr_cache_lacks_room(err));
        if (err == QUIRE_FULL && s->cache->num_copies > 0) {
            *num_tokens = 0;
            break;
        }
        bool is_alone = s->queues.num_running == 1;
        if (is_alone && (qr_pins_give_way(s) || qr_deadlock_take_blocks(s)))
            continue;
        bool has_all = has_all_blocks(s);
        if (has_all && *num_tokens > 1 && qr_sched_may_shrink(s, r)) {
            *num_tokens /= 2;
            p.num_new_tokens = *num_tokens;
            continue;
        }
        /* Once the steps in flight are known, windows may give blocks back. */
        bool is_in_flight = r->num_placeholders > 0 || r->load_step != 0;
        if (has_all && (is_in_flight || qr_sched_end_outgrown(s, index)))
            return false;
        if (!qr_sched_can_preempt(s))
            return false;
        uint32_t victim = qr_sched_preempt_one(s, cursor, true);
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

/* A request that is not to compute anything in this step, whatever it has left to do. */
static bool is_passed_over(const quire_sched *s, const qr_request *r)
{
    if (is_done_ahead(r) || (s->pace.is_on && qr_pace_passes_over(s, r)))
        return true;
    return r->num_features > 0 && !qr_sched_has_encoder_inputs(s, r, qr_request_certain_tokens(r));
}

/* Whether a rule of this step limits the tokens of running requests beside the budget. */
static bool shapes_chunks(const quire_sched *s)
{
    return s->builder.threshold > 0 || s->settings.mamba_block_size > 0 ||
           s->settings.prefill_lookahead > 1 || s->pace.is_on;
}

/* The tokens of a request for which more than the budget counts. */
static QR_NOINLINE uint32_t shaped_tokens(quire_sched *s, qr_request *r, qr_encoder_plan *e)
{
    *e = (qr_encoder_plan){0};
    uint32_t n = is_passed_over(s, r) ? 0 : wanted_tokens(s, r);
    bool aligns = s->settings.mamba_block_size > 0;
    bool aligns_first = s->settings.rules.aligns_to_stops;
    if (s->builder.threshold > 0)
        n = smaller(n, s->builder.threshold);
    if (aligns && aligns_first && n > 0)
        n = qr_sched_align_tokens(s, r, r->kv.num_computed_tokens, n);
    if (r->num_features > 0 && n > 0) {
        *e = qr_sched_plan_encoder(s, r, r->kv.num_computed_tokens, n);
        n = e->num_new_tokens;
    }
    if (s->settings.prefill_lookahead > 1)
        n = qr_sched_leave_lookahead(s, r, r->kv.num_computed_tokens, n);
    if (aligns && !aligns_first && n > 0)
        n = qr_sched_align_tokens(s, r, r->kv.num_computed_tokens, n);
    return n;
}

/* Schedules running[*cursor], or passes over it; false ends the running ones of this step. */
static bool run_one(quire_sched *s, uint32_t *cursor)
{
    uint32_t index = s->queues.running[*cursor];
    qr_request *r = &s->table.requests[index];
    bool is_shaped = s->builder.shapes_chunks || !r->is_plain; /* plain: it has no features */
    qr_encoder_plan e;                                         /* if is_shaped */
    uint32_t n = 0;
    if (QR_UNLIKELY(is_shaped))
        n = shaped_tokens(s, r, &e);
    else if (!is_done_ahead(r))
        n = wanted_tokens(s, r);
    if (n == 0) { /* somebody behind it may still be scheduled */
        ++*cursor;
        return true;
    }
    quire_block_span *blocks = s->room.no_spans;
    quire_step_kind kind = QUIRE_STEP_RUNNING;
    uint64_t end = (uint64_t)r->kv.num_computed_tokens + n + s->settings.num_lookahead;
    if (QR_UNLIKELY(!qr_cache_is_quiet(s->cache, r->kv.seq, end))) {
        blocks = s->room.spans;
        uint32_t num_tokens = n; /* n stays in a register */
        if (!make_room(s, cursor, &num_tokens, blocks))
            return false;
        n = num_tokens;
        if (n == 0) {
            ++*cursor;
            return true;
        }
        if (qr_request_is_untold(r)) {
            kind = QUIRE_STEP_NEW;
            qr_cache_get_blocks(s->cache, r->kv.seq, blocks);
        }
    }
    qr_sched_make_text_room(s, r);
    qr_step_add(s, index, kind, n, r->kv.num_computed_tokens, blocks);
    if (r->num_drafts > 0)
        take_drafts(s, r, n);
    if (QR_UNLIKELY(is_shaped) && e.num_inputs + e.num_external > 0)
        qr_step_add_encoder(s, r, &e);
    ++*cursor;
    return true;
}

/* Nobody could be scheduled, and nothing is in flight that would change that: they wait for each
 * other's places in the encoder cache. One of them gives its own up. */
static bool are_stuck(const quire_sched *s)
{
    return s->builder.out.num_reqs == 0 && s->queues.num_running > 1 &&
           s->flight.num_batches == 0 && s->builder.budget > 0 && s->builder.num_preempted == 0 &&
           (s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) == 0;
}

void qr_sched_run_running(quire_sched *s)
{
    uint32_t cursor = 0;
    s->builder.shapes_chunks = shapes_chunks(s);
    while (cursor < s->queues.num_running && s->builder.budget > 0) {
        if (cursor + QR_FETCH_AHEAD < s->queues.num_running)
            qr_sched_fetch(s, s->queues.running[cursor + QR_FETCH_AHEAD]);
        if (!run_one(s, &cursor))
            break;
    }
    s->builder.num_ran = s->builder.out.num_reqs;
    if (QR_UNLIKELY(are_stuck(s)))
        qr_sched_preempt_one(s, &cursor, true);
    if (s->settings.max_loras == 0)
        return;
    for (uint32_t i = 0; i < s->builder.out.num_reqs; i++)
        qr_step_add_lora(s, s->table.requests[quire_req_index(s->builder.reqs[i])].lora_id);
    bool all_count = (s->settings.quirks & QR_QUIRK(LORA_OF_STEP)) == 0;
    for (uint32_t i = 0; all_count && i < s->queues.num_running; i++)
        qr_step_add_lora(s, s->table.requests[s->queues.running[i]].lora_id);
}
