/* sched/sched_check.c - the walker: does everything that request.h and sched.h say still hold? */
#include "sched/sched.h"

/* With holders_first a request may have found its queue before it got or lost its blocks. */
static bool is_queue_right(const quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    uint32_t queue = s->table.waiters[index].queue;
    if (s->settings.rules.holders_first && r->status != QUIRE_REQ_RUNNING &&
        !qr_request_is_finished(r))
        return queue == s->queues.waiting.number || queue == s->queues.skipped.number;
    switch (r->status) {
    case QUIRE_REQ_WAITING:
    case QUIRE_REQ_PREEMPTED:
        return queue == s->queues.waiting.number || queue == s->queues.skipped.number;
    case QUIRE_REQ_WAITING_FOR_GRAMMAR:
    case QUIRE_REQ_WAITING_FOR_REMOTE_KVS:
    case QUIRE_REQ_WAITING_FOR_STREAMING:
        return queue == s->queues.skipped.number;
    default: /* running, or finished and not yet gone */
        return queue == 0;
    }
}

/* Pages that a request has, and those that it may take, are enough for all that it may become. */
static bool pages_are_right(const quire_sched *s, const qr_request *r)
{
    uint32_t most = qr_text_pages_for(&s->texts.store, qr_sched_last_token_of(s, r));
    if (r->has_promise)
        return (uint64_t)r->num_promised_pages + r->text.num_pages >= most;
    bool needs_none = r->status == QUIRE_REQ_WAITING ||
                      r->status == QUIRE_REQ_WAITING_FOR_GRAMMAR ||
                      r->status == QUIRE_REQ_WAITING_FOR_STREAMING || qr_request_is_finished(r);
    return needs_none && r->num_promised_pages == 0 && r->text.num_pages <= most;
}

/* Whether the step that the request loads in is in flight, and will confirm the load. */
static bool loads_in_flight(const quire_sched *s, uint32_t index)
{
    uint32_t place = qr_flight_find(s, s->table.requests[index].load_step);
    if (place == QR_NIL)
        return false;
    const qr_batch *batch = qr_flight_batch(s, place);
    for (uint32_t i = 0; batch->loads && i < batch->num_reqs; i++)
        if (qr_flight_who_waits(s, batch, i) == index)
            return true;
    return false;
}

/* A request that takes the output of a step in flight runs, and was not preempted since: else the
 * step would have been made void for it. Not so with the quirks. */
static bool taker_is_right(const quire_sched *s, const qr_batch *batch, uint32_t i)
{
    uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
    const qr_request *r = index == QR_NIL ? NULL : &s->table.requests[index];
    uint64_t late = QR_QUIRK(STALE_OUTPUTS) | QR_QUIRK(SESSION_KEEPS_AHEAD);
    if (r == NULL || qr_request_is_finished(r) || batch->step < r->first_valid_step ||
        (s->settings.quirks & late) != 0 || s->settings.rules.delivers_stale)
        return true;
    return r->status == QUIRE_REQ_RUNNING && batch->num_preemptions[i] == r->num_preemptions;
}

/* Steps in flight: numbers that grow, and requests whose slots are there. */
static bool batches_are_valid(const quire_sched *s)
{
    uint64_t before = 0;
    if (s->flight.num_batches > s->settings.max_batches)
        return false;
    for (uint32_t i = 0; i < s->flight.num_batches; i++) {
        const qr_batch *batch = qr_flight_batch(s, i);
        if (batch->step <= before || batch->step > s->flight.step ||
            batch->num_reqs > s->settings.max_num_seqs)
            return false;
        before = batch->step;
        for (uint32_t k = 0; k < batch->num_reqs; k++)
            if (quire_req_index(batch->reqs[k]) >= s->settings.max_requests ||
                !taker_is_right(s, batch, k))
                return false;
    }
    return true;
}

/* A load is told of while a request waits for it, and left behind where a request has ended. */
static bool load_is_right(const qr_request *r)
{
    if (r->load == QR_LOAD_LEFT)
        return qr_request_is_finished(r);
    return r->load == QR_LOAD_OPEN || r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS;
}

/* Which requests have blocks: all that run or load, none that waits for its grammar. A request that
 * has ended is there only while a transfer needs its blocks. */
static bool blocks_are_right(const qr_request *r)
{
    bool has_blocks = r->kv.seq != 0;
    if (r->status == QUIRE_REQ_RUNNING || r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS)
        return has_blocks;
    if (r->status == QUIRE_REQ_WAITING_FOR_GRAMMAR)
        return !has_blocks;
    return !qr_request_is_finished(r) || r->load == QR_LOAD_LEFT || r->awaits_sending;
}

/* A session may keep computed tokens past the end of its text: in vLLM 0.32 those of drafts that
 * were accepted behind the token that stopped it. */
static bool may_be_ahead(const quire_sched *s)
{
    return (s->settings.quirks & QR_QUIRK(SESSION_KEEPS_AHEAD)) != 0 ||
           s->settings.rules.input_sets_max_tokens;
}

/* What was computed lies within what is known or expected. A request that has not ended can get at
 * least one token more, except at max_model_len, where MIN_TOKENS_HIDES_LENGTH keeps it. */
static bool tokens_are_right(const quire_sched *s, const qr_request *r)
{
    uint32_t computed = r->kv.num_computed_tokens;
    uint64_t known = (uint64_t)r->kv.num_tokens + r->num_placeholders;
    if (!s->settings.is_async && r->num_placeholders != 0)
        return false;
    bool is_special = r->use_grammar || r->is_pooling || r->num_features > 0 || r->discards_async ||
                      r->first_valid_step > 0 || r->num_stale > 0;
    bool has_begun = r->status == QUIRE_REQ_RUNNING || qr_request_is_finished(r);
    if (r->num_stale > r->num_in_flight ||
        (s->settings.rules.delivers_stale && !has_begun && r->num_stale != r->num_in_flight))
        return false;
    if (r->num_prompt_tokens == 0 || (r->is_plain && is_special))
        return false;
    if (r->status == QUIRE_REQ_RUNNING &&
        computed > known + (s->settings.is_async ? 0 : s->settings.num_spec_tokens))
        return false;
    bool keeps_ahead = may_be_ahead(s);
    if (qr_request_is_finished(r) || r->status == QUIRE_REQ_WAITING_FOR_STREAMING)
        return true;
    if (r->status != QUIRE_REQ_RUNNING && computed > r->kv.num_tokens && !keeps_ahead)
        return false;
    return r->kv.num_tokens < qr_sched_last_token_of(s, r) ||
           r->kv.num_tokens == s->settings.max_model_len;
}

/* Inputs that wait belong to sessions that go on; a session that waits for one has none. */
static bool session_is_right(const quire_sched *s, const qr_request *r)
{
    if (r->first_input != QR_NIL && !r->is_resumable && !qr_request_is_finished(r))
        return false;
    if (r->status != QUIRE_REQ_WAITING_FOR_STREAMING)
        return true;
    bool has_lost_blocks = r->kv.seq == 0 && r->kv.num_computed_tokens == 0;
    bool keeps_ahead = may_be_ahead(s);
    bool ends_turns = s->settings.rules.input_sets_max_tokens; /* no output of its turn counts */
    if (ends_turns && (r->num_stale != r->num_in_flight || (r->num_stale > 0 && !r->drops_stale)))
        return false;
    return r->is_resumable && r->first_input == QR_NIL &&
           (keeps_ahead || has_lost_blocks || r->num_kept == r->kv.num_computed_tokens);
}

/* A session keeps the hash of a block that is full no longer with SESSION_STALE_HASH. */
static bool hashes_are_right(const quire_sched *s, const qr_request *r)
{
    if (s->hasher == NULL)
        return r->kv.num_hashes == 0;
    uint32_t full = r->kv.num_tokens / s->settings.hash_block_size;
    bool may_be_stale = (s->settings.quirks & QR_QUIRK(SESSION_STALE_HASH)) != 0;
    return r->kv.num_hashes == full || (may_be_stale && r->kv.num_hashes > full);
}

/* Only a request that waits can have been held up. */
static bool deferral_is_right(const quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    bool waits = r->status != QUIRE_REQ_RUNNING && !qr_request_is_finished(r);
    return !s->table.waiters[index].is_deferred || (waits && s->settings.rules.holders_first);
}

/* Rows in order, the first of a step that has not ended. Copies of a step without tokens wait for
 * the next step, and blocks that come behind them may be those of the step before. */
static bool fences_are_valid(const quire_sched *s)
{
    const qr_fences *f = &s->fences;
    uint64_t before = f->processed + 1;
    uint32_t num_seqs = 0;
    uint64_t num_copies = 0;
    if (f->num_rows > f->max_rows || f->processed > f->scheduled)
        return false;
    for (uint32_t i = 0; i < f->num_rows; i++) {
        const qr_fenced_row *row = &f->rows[(f->first + i) % f->max_rows];
        bool has_copies = row->num_copies > 0;
        bool follows_copies = i > 0 && s->cache->copies_parts;
        if (row->fence + follows_copies < before || row->fence > f->scheduled + has_copies ||
            (row->seq != 0) == has_copies ||
            (!has_copies && qr_cache_row_of(s->cache, row->seq) == QR_NIL))
            return false;
        before = row->fence > before ? row->fence : before;
        num_seqs += !has_copies;
        num_copies += row->num_copies;
    }
    return num_seqs == f->num_seqs && num_seqs <= f->max_seqs && num_copies == s->cache->num_told;
}

static bool request_is_valid(const quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    if (!r->is_in_use)
        return r->text.num_pages == 0 && r->kv.seq == 0 && s->table.waiters[index].queue == 0;
    bool has_blocks = r->kv.seq != 0;
    if (has_blocks && qr_cache_row_of(s->cache, r->kv.seq) == QR_NIL)
        return false;
    bool takes_stale =
        (s->settings.quirks & QR_QUIRK(STALE_OUTPUTS)) != 0; /* of a load's tokens too */
    bool is_loaded = r->kv.num_computed_tokens > 0 || r->kv.num_tokens == 1 || takes_stale;
    bool will_be_loaded = r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS &&
                          (r->load == QR_LOAD_OPEN || r->load == QR_LOAD_DONE);
    if (has_blocks && !is_loaded && (r->status == QUIRE_REQ_PREEMPTED || will_be_loaded))
        return false;
    if (r->load_step != 0 && r->status != QUIRE_REQ_WAITING_FOR_REMOTE_KVS &&
        (r->status != QUIRE_REQ_RUNNING || !loads_in_flight(s, index)))
        return false;
    if (r->text.num_tokens != r->kv.num_tokens || r->num_prompt_tokens > r->kv.num_tokens ||
        r->kv.num_tokens > s->settings.max_model_len || r->num_drafts > s->settings.num_spec_tokens)
        return false;
    return is_queue_right(s, index) && pages_are_right(s, r) && blocks_are_right(r) &&
           load_is_right(r) && tokens_are_right(s, r) && session_is_right(s, r) &&
           hashes_are_right(s, r) && deferral_is_right(s, index) &&
           r->last_fence <= s->fences.scheduled && r->first_valid_step <= s->flight.step + 1;
}

bool qr_sched_is_valid(const quire_sched *s)
{
    if (!batches_are_valid(s))
        return false;
    uint32_t live = 0;
    uint32_t running = 0;
    uint32_t pages = 0;
    uint32_t with_blocks = 0;
    uint32_t promised = 0;
    uint32_t waiting_pages = 0;
    uint32_t streaming = 0;
    uint32_t deferred = 0;
    /* vLLM counts a session again that stops once more by a stale output */
    bool counts_twice = (s->settings.quirks & QR_QUIRK(STALE_OUTPUTS)) != 0;
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < s->settings.max_requests; i++) {
        const qr_request *r = &s->table.requests[i];
        if (!request_is_valid(s, i))
            return false;
        live += r->is_in_use;
        running += r->is_in_use && r->status == QUIRE_REQ_RUNNING;
        pages += r->text.num_pages + s->sessions.inputs[i].text.num_pages;
        with_blocks += r->kv.seq != 0;
        streaming += r->is_in_use && r->status == QUIRE_REQ_WAITING_FOR_STREAMING;
        deferred += r->is_in_use && s->table.waiters[i].is_deferred;
        promised += r->num_promised_pages;
        waiting_pages += s->sessions.inputs[i].text.num_pages;
        waiting_pages += r->has_promise ? 0 : r->text.num_pages;
        chunks += r->flags.num_chunks + s->sessions.inputs[i].flags.num_chunks;
        if (!qr_flag_chain_is_valid(&s->flags, &r->flags) ||
            !qr_flag_chain_is_valid(&s->flags, &s->sessions.inputs[i].flags))
            return false;
    }
    for (uint32_t i = 0; i < s->queues.num_running; i++)
        if (s->table.requests[s->queues.running[i]].status != QUIRE_REQ_RUNNING)
            return false;
    return live == s->table.num_live &&
           (streaming == s->queues.num_waiting_for_streaming || counts_twice) &&
           running == s->queues.num_running &&
           s->queues.num_running + s->ended.num_asked <= s->settings.max_num_seqs &&
           pages + s->texts.store.num_free == s->texts.store.num_pages &&
           promised == s->texts.num_promised_pages && promised <= s->texts.store.num_free &&
           waiting_pages == s->texts.num_waiting_pages &&
           with_blocks + s->fences.num_seqs <= s->cache->num_seqs &&
           deferred == s->queues.num_deferred && fences_are_valid(s) &&
           qr_waiting_is_valid(&s->queues.waiting) && qr_waiting_is_valid(&s->queues.skipped) &&
           s->queues.step_skipped.count == 0 && s->queues.step_waiting.count == 0 &&
           qr_deadlock_is_valid(s) && chunks + s->flags.num_free == s->flags.num_chunks &&
           qr_flags_are_valid(&s->flags) && qr_encoder_is_valid(&s->encoder) &&
           qr_swap_is_valid(s) && qr_pins_are_valid(s) && qr_lookahead_is_valid(s) &&
           qr_prefix_is_valid(s) && qr_cache_is_valid(s->cache);
}
