#include "sched/step/pace.h"

#include "base/refuse.h"
#include "sched/sched.h"

int qr_pace_check(const quire_sched_config *c)
{
    bool is_given = c->num_spec_tokens_by_batch != NULL;
    if (is_given != (c->num_batch_sizes > 0))
        return qr_refuse("num_batch_sizes is %u, but num_spec_tokens_by_batch is %s",
                         c->num_batch_sizes, is_given ? "given" : "NULL");
    for (uint32_t i = 0; i < c->num_batch_sizes; i++)
        if (c->num_spec_tokens_by_batch[i] > c->num_spec_tokens)
            return qr_refuse("num_spec_tokens_by_batch[%u] is %u, but num_spec_tokens is %u", i,
                             c->num_spec_tokens_by_batch[i], c->num_spec_tokens);
    return QUIRE_OK;
}

void qr_pace_carve(qr_pace *pace, qr_arena *arena, const quire_sched_config *c)
{
    pace->num_sizes = c->num_batch_sizes;
    if (c->num_batch_sizes > 0)
        pace->drafts = qr_arena_take(arena, c->num_batch_sizes, sizeof *pace->drafts);
}

void qr_pace_init(qr_pace *pace, const quire_sched_config *c)
{
    pace->decode_interval = c->decode_interval > 1 ? c->decode_interval : 1;
    for (uint32_t i = 0; i < pace->num_sizes; i++)
        pace->drafts[i] = c->num_spec_tokens_by_batch[i];
}

static bool has_decoding(const quire_sched *s)
{
    for (uint32_t i = 0; i < s->queues.num_running; i++)
        if (!s->table.requests[s->queues.running[i]].is_prefill_chunk)
            return true;
    return false;
}

void qr_pace_begin(quire_sched *s)
{
    qr_pace *p = &s->pace;
    p->defers_prefills = p->is_throttled && !p->is_bound && has_decoding(s);
    p->is_on = p->defers_prefills || p->decode_interval > 1;
}

bool qr_pace_passes_over(const quire_sched *s, const qr_request *r)
{
    return s->flight.step < r->next_decode || (s->pace.defers_prefills && r->is_prefill_chunk);
}

void qr_pace_end_admission(quire_sched *s)
{
    if (!s->pace.defers_prefills)
        s->pace.is_bound =
            s->queues.waiting.count + s->queues.skipped.count > s->queues.num_deferred;
}

uint32_t qr_pace_drafts(const quire_sched *s, uint32_t num_reqs)
{
    const qr_pace *p = &s->pace;
    if (p->num_sizes == 0 || num_reqs == 0)
        return s->settings.num_spec_tokens;
    return p->drafts[(num_reqs < p->num_sizes ? num_reqs : p->num_sizes) - 1];
}
