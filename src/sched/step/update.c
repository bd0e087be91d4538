/* sched/step/update.c - what the engine computed, request by request.
 *
 *      drafts     k drafts, n tokens came out: n - 1 were accepted, the others are not computed
 *      tokens     appended, hashed where they fill a block, until one of them ends the request
 *      end        blocks back, told to connector and encoder cache; a session waits for more
 *      output     one for each request that has new tokens or ended
 */
#include "sched/sched.h"

/* One request of the batch. */
typedef struct qr_arrival {
    uint32_t index;
    uint32_t place; /* in the batch */
    uint32_t num_drafts;
    uint32_t num_tokens; /* sampled, and then those that count */
    quire_token *tokens; /* of the output */
    bool has_pooled;
    bool is_void;  /* computed before its request was preempted, or before a reset */
    bool is_stale; /* the same, and it is delivered, but changes no count */
    bool stopped;
    quire_finish_reason reason;
} qr_arrival;

/* Of a request that has just stopped by itself. */
static quire_finish_reason reason_of(uint8_t status)
{
    switch (status) {
    case QUIRE_REQ_FINISHED_LENGTH:
        return QUIRE_FINISH_LENGTH;
    case QUIRE_REQ_FINISHED_ERROR:
        return QUIRE_FINISH_ERROR;
    case QUIRE_REQ_FINISHED_REPETITION:
        return QUIRE_FINISH_REPETITION;
    default:
        qr_assert(status == QUIRE_REQ_FINISHED_STOPPED);
        return QUIRE_FINISH_STOP;
    }
}

/* ---- drafts ---------------------------------------------------------------- */

static void count_drafts(quire_sched *s, const quire_model_output *output, const qr_arrival *a)
{
    if (!s->settings.counts_stats)
        return;
    uint32_t accepted = a->num_tokens - 1;
    uint32_t invalid =
        output->num_invalid_drafts == NULL ? 0 : output->num_invalid_drafts[a->place];
    quire_spec_stats *stats = &s->results.stats.spec;
    stats->num_drafts++;
    stats->num_draft_tokens += a->num_drafts - invalid;
    stats->num_accepted_tokens += accepted;
    for (uint32_t i = 0; i < accepted; i++)
        s->results.accepted_per_pos[i]++;
    for (uint32_t i = 0; i < a->num_drafts - invalid; i++)
        s->results.drafts_per_pos[i]++;
}

/* value - rejected, from 0 to most. */
static uint32_t less_rejected(uint32_t value, int64_t rejected, uint32_t most)
{
    int64_t left = (int64_t)value - rejected;
    return left < 0 ? 0 : left < most ? (uint32_t)left : most;
}

/* Tokens of rejected drafts were counted as computed when they were scheduled. Where more came than
 * were scheduled, which is vLLM's alone, those count as computed too. */
static void take_back_rejected(const quire_sched *s, qr_request *r, const qr_arrival *a)
{
    int64_t rejected = (int64_t)a->num_drafts + 1 - a->num_tokens;
    if (r->kv.num_computed_tokens > 0)
        r->kv.num_computed_tokens =
            less_rejected(r->kv.num_computed_tokens, rejected, s->settings.max_model_len);
    if (r->num_placeholders > 0)
        r->num_placeholders = less_rejected(r->num_placeholders, rejected, QR_MAX_TOKENS);
}

/* ---- tokens ---------------------------------------------------------------- */

static void append_tokens(quire_sched *s, qr_arrival *a)
{
    qr_request *r = &s->table.requests[a->index];
    for (uint32_t i = 0; i < a->num_tokens && !a->stopped; i++) {
        if (r->kv.num_tokens ==
            s->settings.max_model_len) { /* MIN_TOKENS_HIDES_LENGTH, and no place left */
            a->num_tokens = i;
            return;
        }
        qr_sched_append(s, a->index, a->tokens[i]);
        a->stopped = qr_sched_check_stop(s, r, a->tokens[i]);
        if (a->stopped)
            a->num_tokens = i + 1;
    }
}

/* Async: so many placeholders have become tokens; blocks that they fill get their keys. */
static inline void settle_tokens(quire_sched *s, uint32_t index, uint32_t n, bool was_running)
{
    qr_request *r = &s->table.requests[index];
    r->num_placeholders -= n < r->num_placeholders ? n : r->num_placeholders;
    if (!was_running || s->hasher == NULL || QR_UNLIKELY(r->load_step != 0))
        return;
    uint32_t certain = qr_request_certain_tokens(r);
    if (!qr_cache_is_quiet(s->cache, r->kv.seq, certain) &&
        qr_cache_has_uncached(s->cache, r->kv.seq, certain))
        qr_sched_cache_blocks(s, index, certain);
}

static void take_tokens(quire_sched *s, qr_arrival *a)
{
    qr_request *r = &s->table.requests[a->index];
    if (!s->settings.is_async) {
        append_tokens(s, a);
        return;
    }
    if (r->discards_async) {
        r->discards_async = false;
        a->num_tokens = 0;
        return;
    }
    bool was_running = r->status == QUIRE_REQ_RUNNING;
    append_tokens(s, a);
    settle_tokens(s, a->index, a->is_stale ? 0 : a->num_tokens, was_running);
}

static void check_grammar(quire_sched *s, qr_arrival *a)
{
    qr_request *r = &s->table.requests[a->index];
    const quire_grammar *g = &s->partners.grammar;
    quire_req req = qr_sched_req_of(s, a->index);
    bool decides = s->settings.rules.grammar_decides;
    if (!decides && (g->should_advance == NULL || !g->should_advance(g->user, req)))
        return;
    if (g->accept_tokens == NULL || g->accept_tokens(g->user, req, a->tokens, a->num_tokens))
        return;
    r->status = QUIRE_REQ_FINISHED_ERROR;
    r->is_resumable = false;
    a->stopped = true;
}

/* ---- end and output -------------------------------------------------------- */

/* Tokens of the prompt that were computed and got keys. */
static uint32_t count_created(const quire_sched *s, const qr_request *r, const quire_output *out)
{
    uint32_t keyed = qr_cache_count_keyed(s->cache, r->kv.seq);
    uint32_t cached = out->num_local_cached + out->num_external_cached;
    keyed = keyed < out->num_prompt_tokens ? keyed : out->num_prompt_tokens;
    return keyed > cached ? keyed - cached : 0;
}

/* Before the request may be gone. */
static void write_output(quire_sched *s, const qr_arrival *a)
{
    qr_request *r = &s->table.requests[a->index];
    quire_output *out = &s->results.outputs[s->results.result.num_outputs++];
    out->req = qr_sched_req_of(s, a->index);
    out->user = r->kv.user;
    out->client_index = r->client_index;
    out->num_new_tokens = a->num_tokens;
    out->new_tokens = a->tokens;
    out->finish_reason = a->reason;
    out->has_stop_reason = r->stopped_by == QR_STOPPED_BY_TOKEN;
    out->stop_reason = out->has_stop_reason ? r->stop_reason : 0;
    out->has_repeated = r->stopped_by == QR_STOPPED_BY_REPETITION;
    out->has_prefill_stats = 0;
    if (r->has_prefill_stats) {
        uint32_t num_prompt = r->num_prompt_tokens; /* of a fork, output may have been found too */
        uint32_t local = r->num_local_cached < num_prompt ? r->num_local_cached : num_prompt;
        uint32_t external = r->num_external_cached;
        out->has_prefill_stats = 1;
        out->num_local_cached = local;
        out->num_external_cached = external < num_prompt - local ? external : num_prompt - local;
        out->num_prompt_tokens = num_prompt;
        r->has_prefill_stats = false;
        if (s->settings.rules.counts_created)
            s->results.num_created[s->results.result.num_outputs - 1] = count_created(s, r, out);
    }
}

static void end_request(quire_sched *s, const qr_arrival *a, bool was_running)
{
    if (!was_running) {
        qr_sched_dequeue(s, a->index);
        qr_sched_undefer(s, a->index);
        qr_deadlock_note_holder(s, &s->table.requests[a->index]);
    }
    bool ends = qr_sched_session_ends(s, a->index);
    if (was_running)
        s->results.num_stopped++; /* leaves running at the end of the update, all at once */
    if (ends)
        qr_sched_free_request(s, a->index, false);
}

/* Tokens whose features the request needs no longer. A draft model may read behind them. */
static uint32_t encoded_tokens(const quire_sched *s, const qr_request *r)
{
    if (!s->settings.rules.counts_inputs || s->settings.is_encoder_decoder)
        return r->kv.num_computed_tokens;
    uint32_t certain = qr_request_certain_tokens(r);
    return certain > s->settings.prefill_lookahead ? certain - s->settings.prefill_lookahead : 0;
}

void qr_sched_free_encoded(quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    qr_encoder_free_computed(&s->encoder, r->features, r->num_features, encoded_tokens(s, r));
}

static void take_arrival(quire_sched *s, const quire_model_output *output, qr_arrival *a)
{
    qr_request *r = &s->table.requests[a->index];
    bool was_running = r->status == QUIRE_REQ_RUNNING;
    if (QR_UNLIKELY(a->is_void)) /* it will be computed again, or is not wanted any more */
        return;
    if (a->num_drafts > 0 && a->num_tokens > 0) {
        if (!a->is_stale)
            take_back_rejected(s, r, a);
        count_drafts(s, output, a);
    }
    if (r->num_features > 0)
        qr_sched_free_encoded(s, a->index);
    if (a->num_tokens > 0) {
        take_tokens(s, a);
    } else if ((r->is_pooling && a->has_pooled) ||
               (s->settings.is_encoder_only && r->kv.num_computed_tokens >= r->num_prompt_tokens)) {
        r->status = QUIRE_REQ_FINISHED_STOPPED;
        a->stopped = true;
    }
    if (a->num_tokens > 0 && r->use_grammar)
        check_grammar(s, a);
    if (a->stopped)
        a->reason = reason_of(r->status);
    if (a->num_tokens > 0 || a->has_pooled || a->stopped)
        write_output(s, a);
    if (a->stopped)
        end_request(s, a, was_running);
}

/* ---- the batch ------------------------------------------------------------- */

static uint32_t num_sampled(const qr_batch *batch, const quire_model_output *output, uint32_t i)
{
    if (output->sampled == NULL)
        return 0;
    return output->num_sampled == NULL ? batch->is_past_prompt[i] : output->num_sampled[i];
}

/* How many tokens a request's row may have. vLLM takes any number; its stats only what could be. */
static uint32_t most_sampled(const quire_sched *s, const qr_batch *batch, uint32_t i)
{
    if ((s->settings.quirks & QR_QUIRK(ANY_OUTPUT)) != 0)
        return batch->num_drafts[i] == 0 ? UINT32_MAX : s->settings.num_spec_tokens + 1;
    return batch->is_past_prompt[i] ? batch->num_drafts[i] + 1 : 0;
}

static int check_output(const quire_sched *s, const qr_batch *batch,
                        const quire_model_output *output)
{
    uint32_t stride = output->stride == 0 ? 1 : output->stride;
    uint64_t room = (uint64_t)s->settings.max_num_seqs * (s->settings.num_spec_tokens + 1);
    for (uint32_t i = 0; output->num_sampled != NULL && i < batch->num_reqs; i++) {
        uint32_t n = output->num_sampled[i];
        if (n > most_sampled(s, batch, i) || n > stride || n > room)
            return QUIRE_E_RANGE;
        room -= n;
    }
    for (uint32_t i = 0; output->num_invalid_drafts != NULL && i < batch->num_reqs; i++)
        if (output->num_invalid_drafts[i] > batch->num_drafts[i])
            return QUIRE_E_RANGE;
    for (uint32_t i = 0; i < output->num_invalid_blocks; i++)
        if (output->invalid_blocks[i] >= s->cache->pool->queue.num_blocks)
            return QUIRE_E_UNKNOWN_BLOCK;
    return QUIRE_OK;
}

/* Those that stopped while running are no longer RUNNING, or not there any more. */
static void compact_running(quire_sched *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->queues.num_running; i++) {
        const qr_request *r = &s->table.requests[s->queues.running[i]];
        s->queues.running[kept] = s->queues.running[i];
        kept += r->is_in_use && r->status == QUIRE_REQ_RUNNING;
    }
    s->queues.num_running = kept;
    s->results.num_stopped = 0;
}

/* Plain decoding, the shortest way: one token, and the request goes on. False, and nothing done,
 * for all else. */
static inline bool take_plain(quire_sched *s, const qr_batch *batch,
                              const quire_model_output *output, uint32_t i, uint32_t index,
                              quire_token *tokens)
{
    qr_request *r = &s->table.requests[index];
    if (!r->is_plain || r->has_more_stops || r->has_prefill_stats || r->stopped_by != 0 ||
        r->status != QUIRE_REQ_RUNNING || batch->num_drafts[i] > 0 ||
        num_sampled(batch, output, i) != 1)
        return false;
    quire_token token = output->sampled[(size_t)i * (output->stride == 0 ? 1 : output->stride)];
    uint32_t num_tokens = r->kv.num_tokens + 1;
    if ((r->has_eos && token == r->eos_token_id) || num_tokens >= s->settings.max_model_len ||
        num_tokens - r->num_prompt_tokens >= r->max_tokens)
        return false;
    qr_sched_append(s, index, token);
    if (s->settings.is_async)
        settle_tokens(s, index, 1, true);
    *tokens = token;
    quire_output *out = &s->results.outputs[s->results.result.num_outputs++];
    out->req = batch->reqs[i];
    out->user = r->kv.user;
    out->client_index = r->client_index;
    out->num_new_tokens = 1;
    out->new_tokens = tokens;
    out->finish_reason = QUIRE_FINISH_NONE;
    out->has_stop_reason = 0;
    out->has_repeated = 0;
    out->has_prefill_stats = 0;
    return true;
}

/* The output of a step whose load failed does not come: nor do its placeholders become tokens. */
static void drop_placeholders(quire_sched *s, const qr_batch *batch, uint32_t i, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    uint32_t n = batch->is_past_prompt[i] ? 1 + batch->num_drafts[i] : 0;
    if ((s->settings.quirks & QR_QUIRK(FAILED_BLOCKS_STAY)) == 0)
        r->num_placeholders -= n < r->num_placeholders ? n : r->num_placeholders;
}

/* Where the next token goes; the request itself was fetched before. */
static inline void fetch_tail(const quire_sched *s, uint32_t index)
{
    qr_prefetch_write(s->table.requests[index].text.tail);
}

static void take_batch(quire_sched *s, const qr_batch *batch, const quire_model_output *output,
                       const uint32_t *has_failed)
{
    uint32_t stride = output->stride == 0 ? 1 : output->stride;
    quire_token *tokens = s->results.output_tokens;
    const bool counts_in_flight = s->settings.rules.counts_in_flight;
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        if (i + 2 * QR_FETCH_AHEAD < batch->num_reqs)
            qr_sched_fetch(s, quire_req_index(batch->reqs[i + 2 * QR_FETCH_AHEAD]));
        if (i + QR_FETCH_AHEAD < batch->num_reqs)
            fetch_tail(s, quire_req_index(batch->reqs[i + QR_FETCH_AHEAD]));
        uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
        bool is_stale = counts_in_flight && index != QR_NIL &&
                        qr_request_drain(&s->table.requests[index], batch->num_tokens[i]);
        if (index == QR_NIL || qr_request_is_finished(&s->table.requests[index]))
            continue; /* ended while it was computed */
        if (has_failed != NULL && has_failed[index] != 0) {
            drop_placeholders(s, batch, i, index);
            continue;
        }
        if (QR_LIKELY(take_plain(s, batch, output, i, index, tokens))) {
            tokens++;
            continue;
        }
        qr_arrival a = {.index = index,
                        .place = i,
                        .num_drafts = batch->num_drafts[i],
                        .num_tokens = num_sampled(batch, output, i),
                        .has_pooled = output->has_pooled != NULL && output->has_pooled[i] != 0,
                        .tokens = tokens};
        const qr_request *r = &s->table.requests[index];
        a.is_stale = is_stale;
        a.is_void = is_stale ? r->drops_stale : !r->is_plain && batch->step < r->first_valid_step;
        for (uint32_t k = 0; k < a.num_tokens; k++)
            tokens[k] = output->sampled[(size_t)i * stride + k];
        tokens += a.num_tokens;
        take_arrival(s, output, &a);
    }
}

static void end_by_error(quire_sched *s, quire_req req)
{
    uint32_t index = qr_sched_index_of(s, req);
    if (index == QR_NIL || qr_request_is_finished(&s->table.requests[index]))
        return;
    const qr_request *r = &s->table.requests[index];
    s->results.outputs[s->results.result.num_outputs++] =
        (quire_output){.req = req,
                       .user = r->kv.user,
                       .client_index = r->client_index,
                       .finish_reason = QUIRE_FINISH_ERROR};
    qr_sched_finish(s, &req, 1, QUIRE_REQ_FINISHED_ERROR, NULL);
}

/* Requests whose loads failed end, where that is the policy. */
static void end_failed(quire_sched *s, const qr_failed_reqs *failed)
{
    for (uint32_t i = 0; i < failed->num; i++)
        end_by_error(s, failed->reqs[i]);
}

static void end_doomed(quire_sched *s, qr_doomed *doomed)
{
    for (uint32_t i = 0; i < doomed->num; i++)
        end_by_error(s, doomed->reqs[i]);
    doomed->num = 0;
}

/* Requests that end by errors. Those whose encoder outputs will not come end last, but are asked
 * for before any other ends. */
static void end_by_errors(quire_sched *s, const qr_failed_reqs *failed)
{
    const quire_encoder_connector *e = &s->partners.encoder_connector;
    uint32_t most = s->settings.max_requests;
    uint32_t num_lost =
        e->take_unavailable == NULL ? 0 : e->take_unavailable(e->user, s->room.lost_reqs, most);
    end_doomed(s, &s->results.bad_grammars);
    end_doomed(s, &s->results.other_sizes);
    if (s->settings.fails_on_load_error)
        end_failed(s, failed);
    for (uint32_t i = 0; i < num_lost && i < most; i++)
        end_by_error(s, s->room.lost_reqs[i]);
}

/* Counts and levels as they are; what was counted since the last stats goes with them. */
static void fill_stats(quire_sched *s)
{
    quire_sched_stats *stats = &s->results.stats;
    stats->num_running = s->queues.num_running;
    uint32_t num_apart =
        s->settings.rules.holders_first ? s->queues.num_deferred : s->queues.skipped.count;
    stats->num_waiting = s->queues.waiting.count + s->queues.skipped.count - num_apart;
    stats->num_skipped = num_apart;
    stats->kv_cache_usage = qr_pool_level(s->cache->pool);
    stats->spec.accepted_per_pos = s->results.accepted_per_pos;
    stats->drafts_per_pos = s->results.drafts_per_pos;
    stats->connector_prefix = s->partners.connector_stats;
    s->partners.connector_stats = (quire_prefix_stats){0};
    if (s->cache->log_stats)
        stats->prefix = qr_cache_take_stats(s->cache);
}

static void clear_stats(quire_sched *s)
{
    s->results.stats = (quire_sched_stats){0};
    for (uint32_t i = 0; i < s->settings.num_spec_tokens; i++)
        s->results.accepted_per_pos[i] = s->results.drafts_per_pos[i] = 0;
}

const quire_sched_stats *qr_sched_take_stats(quire_sched *s)
{
    clear_stats(s);
    fill_stats(s);
    qr_metrics *metrics = qr_sched_timed_metrics(s);
    if (metrics != NULL)
        qr_metrics_take_stats(metrics, &s->results.stats);
    return &s->results.stats;
}

static void write_stats(quire_sched *s)
{
    quire_outputs *result = &s->results.result;
    result->outputs = s->results.outputs;
    result->num_cache_creation_tokens = s->results.num_created;
    result->num_finished = s->ended.num_client_finished;
    result->finished = s->ended.client_finished;
    result->finished_clients = s->ended.client_of_finished;
    s->ended.num_client_finished = 0;
    if (!s->settings.counts_stats)
        return;
    result->stats = s->settings.log_stats ? &s->results.stats : NULL;
    fill_stats(s);
}

int qr_sched_update(quire_sched *s, uint64_t step, const quire_model_output *output,
                    const quire_outputs **outputs)
{
    uint32_t place = qr_flight_find(s, step);
    if (place == QR_NIL || !qr_flight_is_in_order(s, place))
        return QUIRE_E_ARGUMENT;
    const qr_batch *batch = qr_flight_batch(s, place);
    int err = check_output(s, batch, output);
    if (err != QUIRE_OK)
        return err;
    uint64_t began_ns = qr_sched_begins(s);
    if (s->fences.is_on && batch->num_reqs > 0)
        qr_fence_processed(s);
    s->results.result = (quire_outputs){0};
    clear_stats(s);
    for (; s->results.result.num_outputs < s->results.num_outgrown; s->results.result.num_outputs++)
        s->results.outputs[s->results.result.num_outputs] =
            s->results.outgrown[s->results.result.num_outputs];
    uint32_t num_outgrown = s->results.num_outgrown;
    s->results.num_outgrown = 0;
    qr_failed_reqs failed = {0};
    if (output->num_invalid_blocks + output->num_failed_recving > 0)
        failed = qr_sched_fail_blocks(s, batch, output);
    if (s->partners.has_connector)
        qr_sched_confirm_loads(s, batch);
    take_batch(s, batch, output, failed.has_failed);
    if (s->deadlock.is_active && s->results.result.num_outputs > 0)
        qr_deadlock_end(s);
    if (s->results.num_stopped > 0)
        compact_running(s);
    end_by_errors(s, &failed);
    if (s->partners.has_connector && s->partners.connector.update_output != NULL)
        s->partners.connector.update_output(s->partners.connector.user);
    qr_sched_note_transfers(s, output);
    write_stats(s);
    qr_flight_end(s, place);
    if (QR_UNLIKELY(s->fences.is_on))
        qr_fence_settle(s);
    *outputs = &s->results.result;
    qr_sched_tell_update(s, began_ns, num_outgrown);
    qr_assert_expensive(qr_sched_is_valid(s));
    return QUIRE_OK;
}

int qr_sched_update_drafts(quire_sched *s, const quire_req *reqs, uint32_t n,
                           const quire_token *drafts, uint32_t stride, const uint32_t *num_drafts)
{
    for (uint32_t i = 0; i < n; i++)
        if (num_drafts[i] > s->settings.num_spec_tokens || num_drafts[i] > stride)
            return QUIRE_E_RANGE;
    const quire_grammar *g = &s->partners.grammar;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = qr_sched_index_of(s, reqs[i]);
        if (index == QR_NIL || qr_request_is_finished(&s->table.requests[index]))
            continue;
        qr_request *r = &s->table.requests[index];
        r->num_drafts = 0;
        bool takes_any = (s->settings.quirks & QR_QUIRK(ANY_OUTPUT)) != 0;
        if (r->is_prefill_chunk || (r->status != QUIRE_REQ_RUNNING && !takes_any))
            continue;
        const quire_token *from = drafts + (size_t)i * stride;
        uint32_t count = num_drafts[i];
        bool decides = s->settings.rules.grammar_decides;
        if (r->use_grammar && g->validate_tokens != NULL &&
            (decides || (g->should_advance != NULL && g->should_advance(g->user, reqs[i])))) {
            uint32_t valid = g->validate_tokens(g->user, reqs[i], from, count);
            count = valid < count ? valid : count;
        }
        memcpy(qr_sched_drafts_of(s, index), from, count * sizeof *from);
        r->num_drafts = count;
    }
    return QUIRE_OK;
}
