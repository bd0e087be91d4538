/* sched/step/schedule.c - one step, from the top.
 *
 *      begin     budget, empty arrays
 *      relieve   preempt while the pool is fuller than preempt_above                   preempt.c
 *      running   those that run, in order; preempt the last when there is no room      running.c
 *      waiting   those that wait, until something runs out                             admit.c
 *      end       the arrays, what finished, what is to be zeroed                       step.c
 *      meta      what the connectors' workers must do
 *      advance   tokens count as computed from here on; the batch is in flight
 */
#include "sched/sched.h"

/* What other profiles have no use for: it lies in a part of the request that they do not touch. */
static inline void note_in_flight(const quire_sched *s, qr_request *r, uint32_t num_tokens)
{
    r->num_in_flight += num_tokens;
    r->is_prefilling = r->is_prefilling && r->is_prefill_chunk;
    if (s->fences.is_on)
        r->last_fence = s->fences.scheduled;
}

/* Tokens count as computed as soon as they are scheduled, so that the next step can be scheduled
 * before this one has run; drafts that are rejected are taken back in update. */
static inline void advance_request(quire_sched *s, const qr_batch *batch, uint32_t place,
                                   bool counts_in_flight)
{
    qr_step_builder *b = &s->builder;
    qr_request *r = &s->table.requests[quire_req_index(b->reqs[place])];
    r->kv.num_computed_tokens += b->num_tokens[place];
    r->is_prefill_chunk = r->kv.num_computed_tokens < r->kv.num_tokens + r->num_placeholders;
    r->last_step = (uint32_t)s->flight.step;
    batch->is_past_prompt[place] = !r->is_prefill_chunk;
    batch->num_preemptions[place] = r->num_preemptions;
    if (counts_in_flight)
        note_in_flight(s, r, b->num_tokens[place]);
    if (r->is_prefill_chunk)
        return;
    b->out.has_grammar_reqs |= r->use_grammar;
    if (!s->settings.is_async)
        return;
    b->out.has_pending_grammar_tokens |= r->use_grammar && r->num_placeholders > 0;
    r->num_placeholders += s->settings.num_sampled + b->num_drafts[place];
    r->num_drafts = b->out.num_spec_tokens; /* the workers' own: nobody looks at their values */
    for (uint32_t i = 0; i < r->num_drafts; i++)
        qr_sched_drafts_of(s, quire_req_index(b->reqs[place]))[i] = -1;
    if (QR_UNLIKELY(s->pace.decode_interval > 1))
        r->next_decode = s->flight.step + s->pace.decode_interval;
}

/* For the snapshot, while the request is at hand. */
static inline void count_request(quire_sched *s, uint32_t place)
{
    qr_step_builder *b = &s->builder;
    uint32_t num_tokens = b->num_tokens[place];
    bool is_new = b->kinds[place] != QUIRE_STEP_RUNNING;
    bool is_prompt = b->num_computed[place] <
                     s->table.requests[quire_req_index(b->reqs[place])].num_prompt_tokens;
    if (QR_LIKELY(!is_new && !is_prompt && num_tokens == 1))
        return;
    b->num_new += b->kinds[place] == QUIRE_STEP_NEW;
    b->num_resumed += b->kinds[place] == QUIRE_STEP_RESUMED;
    b->num_draft_tokens += b->num_drafts[place];
    if (is_new || is_prompt || num_tokens > 1 + b->num_drafts[place])
        b->num_prefill_tokens += num_tokens;
}

int qr_sched_schedule(quire_sched *s, const quire_step **step)
{
    if (s->flight.num_batches == s->settings.max_batches)
        return QUIRE_FULL;
    uint64_t began_ns = qr_sched_begins(s);
    qr_cache_begin_step(s->cache);
    if (s->pins.num_pins > 0)
        qr_pins_expire(s);
    if (s->ahead.max > 0)
        qr_lookahead_turn(s);
    qr_step_begin(s);
    qr_pace_begin(s);
    if (s->settings.uses_pressure)
        qr_sched_relieve(s);
    qr_sched_run_running(s);
    bool admits_holders = s->settings.rules.holders_first && s->pause == QUIRE_PAUSED_NEW;
    if (s->builder.num_preempted == 0 && (s->pause == QUIRE_UNPAUSED || admits_holders)) {
        qr_sched_admit_waiting(s);
        qr_pace_end_admission(s);
    }
    const quire_step *out = qr_step_end(s);
    if (s->partners.has_connector && s->partners.connector.build_meta != NULL)
        s->builder.out.connector_meta =
            s->partners.connector.build_meta(s->partners.connector.user, out);
    const quire_encoder_connector *e = &s->partners.encoder_connector;
    if (s->partners.has_encoder_connector && e->build_meta != NULL)
        s->builder.out.encoder_connector_meta = e->build_meta(e->user, out);
    qr_batch *batch = qr_flight_batch(s, s->flight.num_batches++);
    batch->step = s->flight.step;
    batch->num_reqs = out->num_reqs;
    batch->loads = s->builder.loads;
    s->fences.scheduled += s->fences.is_on && out->num_reqs > 0;
    const bool counts_in_flight = s->settings.rules.counts_in_flight;
    const bool is_told = s->watch.monitor != NULL || s->observer.on_snapshot != NULL;
    for (uint32_t i = 0; i < out->num_reqs; i++) {
        if (i + QR_FETCH_AHEAD < out->num_reqs)
            qr_sched_fetch(s, quire_req_index(out->reqs[i + QR_FETCH_AHEAD]));
        advance_request(s, batch, i, counts_in_flight);
        if (is_told)
            count_request(s, i);
    }
    qr_sched_tell_step(s, began_ns);
    *step = out;
    qr_assert_expensive(qr_sched_is_valid(s));
    return QUIRE_OK;
}
