/* sched/sched_check.c - the walker: does everything that request.h and sched.h say still hold? */
#include "sched/sched.h"

static bool is_queue_right(const quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->requests[index];
    uint32_t queue = s->waiters[index].queue;
    switch (r->status) {
    case QUIRE_REQ_WAITING:
    case QUIRE_REQ_PREEMPTED:
        return queue == s->waiting.number || queue == s->skipped.number;
    case QUIRE_REQ_WAITING_FOR_GRAMMAR:
    case QUIRE_REQ_WAITING_FOR_REMOTE_KVS:
    case QUIRE_REQ_WAITING_FOR_STREAMING:
        return queue == s->skipped.number;
    default: /* running, or finished and not yet gone */
        return queue == 0;
    }
}

/* Pages that a request has, and those that it may take, are enough for all that it may become. */
static bool pages_are_right(const quire_sched *s, const qr_request *r)
{
    uint32_t most = qr_text_pages_for(&s->text, qr_sched_last_token_of(s, r));
    if (r->has_promise)
        return (uint64_t)r->num_promised_pages + r->text.num_pages >= most;
    bool needs_none = r->status == QUIRE_REQ_WAITING ||
                      r->status == QUIRE_REQ_WAITING_FOR_GRAMMAR ||
                      r->status == QUIRE_REQ_WAITING_FOR_STREAMING || qr_request_is_finished(r);
    return needs_none && r->num_promised_pages == 0 && r->text.num_pages <= most;
}

static bool request_is_valid(const quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->requests[index];
    if (!r->is_in_use)
        return r->text.num_pages == 0 && r->kv.seq == 0 && s->waiters[index].queue == 0;
    bool has_blocks = r->kv.seq != 0;
    if (has_blocks && qr_cache_row_of(s->cache, r->kv.seq) == QR_NIL)
        return false;
    bool is_loaded = r->kv.num_computed_tokens > 0 || r->kv.num_tokens == 1; /* all but one */
    if (has_blocks && r->status == QUIRE_REQ_PREEMPTED && !is_loaded)
        return false;
    bool loads_now = r->status == QUIRE_REQ_RUNNING && qr_flight_find(s, r->load_step) != QR_NIL;
    if (r->load_step != 0 && !loads_now && r->status != QUIRE_REQ_WAITING_FOR_REMOTE_KVS)
        return false;
    if (r->text.num_tokens != r->kv.num_tokens || r->num_prompt_tokens > r->kv.num_tokens ||
        r->kv.num_tokens > s->max_model_len || r->num_drafts > s->num_spec_tokens)
        return false;
    return is_queue_right(s, index) && pages_are_right(s, r);
}

bool qr_sched_is_valid(const quire_sched *s)
{
    uint32_t live = 0;
    uint32_t running = 0;
    uint32_t pages = 0;
    uint32_t with_blocks = 0;
    uint32_t promised = 0;
    uint32_t waiting_pages = 0;
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < s->max_requests; i++) {
        const qr_request *r = &s->requests[i];
        if (!request_is_valid(s, i))
            return false;
        live += r->is_in_use;
        running += r->is_in_use && r->status == QUIRE_REQ_RUNNING;
        pages += r->text.num_pages + s->inputs[i].text.num_pages;
        with_blocks += r->kv.seq != 0;
        promised += r->num_promised_pages;
        waiting_pages += s->inputs[i].text.num_pages;
        waiting_pages += r->has_promise ? 0 : r->text.num_pages;
        chunks += r->flags.num_chunks + s->inputs[i].flags.num_chunks;
        if (!qr_flag_chain_is_valid(&s->flags, &r->flags) ||
            !qr_flag_chain_is_valid(&s->flags, &s->inputs[i].flags))
            return false;
    }
    for (uint32_t i = 0; i < s->num_running; i++)
        if (s->requests[s->running[i]].status != QUIRE_REQ_RUNNING)
            return false;
    return live == s->num_live && running == s->num_running && s->num_running <= s->max_num_seqs &&
           pages + s->text.num_free == s->text.num_pages && promised == s->num_promised_pages &&
           promised <= s->text.num_free && waiting_pages == s->num_waiting_pages &&
           with_blocks <= s->cache->num_seqs && qr_waiting_is_valid(&s->waiting) &&
           qr_waiting_is_valid(&s->skipped) && s->step_skipped.count == 0 &&
           qr_starved_is_valid(s) && chunks + s->flags.num_free == s->flags.num_chunks &&
           qr_flags_are_valid(&s->flags) && qr_encoder_is_valid(&s->encoder) &&
           qr_swap_is_valid(s) && qr_pins_are_valid(s) && qr_lookahead_is_valid(s) &&
           qr_cache_is_valid(s->cache);
}
