/* sched/sim/sim_update.c - a step in flight comes back: what the scheduler must answer is known
 * before.
 *
 *      expected     for each request of the step that is still there and whose output counts: its
 *                   tokens up to the one that ends it, and the reason
 */
#include "sched/sim/sim.h"

typedef struct sim_expected {
    sim_request *r;
    uint32_t num_tokens;
    quire_finish_reason reason;
    bool has_stop_token;
} sim_expected;

/* What the engine gives back. */
typedef struct sim_result {
    quire_token sampled[SIM_SEQS * (SIM_SPEC + 1)];
    uint32_t num_sampled[SIM_SEQS];
    uint8_t has_pooled[SIM_SEQS];
    quire_req received[SIM_SLOTS];
    quire_req sent[SIM_SLOTS];
    quire_model_output output;
} sim_result;

/* ---- transfers ------------------------------------------------------------- */

static void check_sent(sim *s, const sim_request *r)
{
    uint32_t size = s->mix.page;
    const sim_transfer *sending = &r->sending;
    for (uint32_t g = 0; g < s->mix.num_groups; g++)
        for (uint32_t i = 0; i < sending->rows[g].count; i++) {
            const uint64_t *then = sending->tags + ((size_t)g * SIM_ROW + i) * size;
            quire_block block = sending->rows[g].ids[i];
            bool same = block == QUIRE_NULL_BLOCK ||
                        memcmp(then, s->pages + (size_t)block * size, size * sizeof *then) == 0;
            SIM_CHECK(s, same, "a block that is being sent was written to", r->number, block);
        }
}

static void move_transfers(sim *s, sim_batch *batch, sim_result *result)
{
    quire_model_output *out = &result->output;
    for (uint32_t i = 0; i < s->mix.max_requests; i++) {
        sim_request *r = &s->requests[i];
        if (!r->is_there)
            continue;
        if (r->load.is_on && r->load.step <= batch->step && --r->load.steps_left == 0) {
            sim_load(s, r, batch);
            result->received[out->num_finished_recving++] = r->req;
        }
        if (r->sending.is_on && --r->sending.steps_left == 0) {
            check_sent(s, r);
            free(r->sending.tags);
            r->sending = (sim_transfer){0};
            result->sent[out->num_finished_sending++] = r->req;
        }
    }
    out->finished_recving = result->received;
    out->finished_sending = result->sent;
    out->invalid_blocks = batch->lost;
    out->num_invalid_blocks = batch->num_lost;
}

/* ---- what must come out ---------------------------------------------------- */

/* Whether the output ends with the same few tokens, some times over. */
static bool is_repeating(const sim_request *r, uint32_t num_tokens)
{
    uint32_t pattern = r->min_pattern > 1 ? r->min_pattern : 1;
    for (; r->min_count > 1 && pattern <= r->max_pattern; pattern++) {
        uint32_t length = pattern * r->min_count;
        bool is_same = num_tokens - r->num_prompt >= length;
        for (uint32_t k = 1; is_same && k + pattern <= length; k++)
            is_same = r->tokens[num_tokens - k] == r->tokens[num_tokens - k - pattern];
        if (is_same)
            return true;
    }
    return false;
}

static quire_finish_reason reason_at(const sim *s, const sim_request *r, uint32_t num_tokens,
                                     bool *has_stop_token)
{
    uint32_t num_outputs = num_tokens - r->num_prompt;
    quire_token last = r->tokens[num_tokens - 1];
    bool is_long = num_tokens >= s->mix.len || num_outputs >= r->max_tokens;
    if (num_outputs < r->min_tokens)
        return is_long ? QUIRE_FINISH_LENGTH : QUIRE_FINISH_NONE;
    if (r->has_eos && last == SIM_EOS)
        return QUIRE_FINISH_STOP;
    for (uint32_t i = 0; i < r->num_stops; i++)
        if (r->stops[i] == last) {
            *has_stop_token = true;
            return QUIRE_FINISH_STOP;
        }
    if (is_long)
        return QUIRE_FINISH_LENGTH;
    return is_repeating(r, num_tokens) ? QUIRE_FINISH_REPETITION : QUIRE_FINISH_NONE;
}

static sim_expected expect_of(const sim *s, const sim_entry *entry)
{
    sim_request *r = entry->r;
    sim_expected e = {.r = r};
    if (entry->is_pooled) {
        e.reason = QUIRE_FINISH_STOP;
        return e;
    }
    while (e.num_tokens < entry->num_sampled && e.reason == QUIRE_FINISH_NONE) {
        e.num_tokens++;
        e.reason = reason_at(s, r, r->num_told + e.num_tokens, &e.has_stop_token);
    }
    if (sim_grammar_refuses(r, r->num_told + e.num_tokens))
        e.reason = QUIRE_FINISH_ERROR;
    return e;
}

static void check_output(sim *s, const sim_expected *e, const quire_output *out)
{
    const sim_request *r = e->r;
    SIM_CHECK(s, out->req == r->req && out->user == r, "an output of another request", r->number,
              out->req);
    SIM_CHECK(s, out->num_new_tokens == e->num_tokens, "another number of tokens",
              out->num_new_tokens, e->num_tokens);
    SIM_CHECK(s, out->finish_reason == e->reason, "another reason to end", out->finish_reason,
              e->reason);
    SIM_CHECK(s, e->reason != QUIRE_FINISH_REPETITION || out->has_repeated, "has_repeated", 0, 0);
    s->tally.repeated += e->reason == QUIRE_FINISH_REPETITION;
    s->tally.pooled += r->is_pooling && e->reason == QUIRE_FINISH_STOP;
    for (uint32_t i = 0; i < e->num_tokens && i < out->num_new_tokens; i++)
        SIM_CHECK(s, out->new_tokens[i] == r->tokens[r->num_told + i], "another token", r->number,
                  i);
    if (e->has_stop_token && e->reason == QUIRE_FINISH_STOP)
        SIM_CHECK(s, out->stop_reason == r->tokens[r->num_told + e->num_tokens - 1],
                  "another stop token", r->number, 0);
}

/* ---- and what follows from it ---------------------------------------------- */

void sim_forget(sim *s, sim_request *r)
{
    if (r->load.is_on || r->sending.is_on)
        return; /* its blocks are still in use */
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    SIM_CHECK(s, quire_sched_get_req_info(s->sched, r->req, &info) == QUIRE_E_UNKNOWN_REQ,
              "a request that ended is still there", r->number, 0);
    s->by_index[quire_req_index(r->req)] = NULL;
    r->is_there = false;
}

void sim_void_in_flight(sim *s, sim_request *r)
{
    for (uint32_t b = 0; b < s->num_batches; b++) {
        sim_batch *batch = &s->batches[(s->first_batch + b) % SIM_BATCHES];
        for (uint32_t i = 0; i < batch->num_entries; i++)
            if (batch->entries[i].req == r->req)
                batch->entries[i].is_void = true;
    }
    r->num_tokens = r->num_told;
}

/* A session ends where its next input does not fit: the model's length, the pool, or the encoder
 * with images of both. */
static bool has_room_for_input(sim *s, const sim_request *r)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    int err = quire_sched_get_req_info(s->sched, r->req, &info);
    bool is_there = err == QUIRE_OK && info.status < QUIRE_REQ_FINISHED_STOPPED;
    uint32_t num_tokens = r->num_told - 1 + r->input_lens[0];
    uint32_t num_encoder = sim_num_encoder_tokens(s, r);
    bool is_short = num_tokens + 1 < s->mix.len &&
                    sim_blocks_alone(s, num_tokens + 2, num_encoder) <= s->mix.most_blocks;
    bool may_end = !is_short || (r->num_images > 0 && r->num_input_images[0] > 0);
    SIM_CHECK(s, is_there || may_end, "a session ended, though its input fits", r->number,
              num_tokens);
    s->tally.refused += !is_there;
    return is_there;
}

static void end_or_go_on(sim *s, sim_request *r, quire_finish_reason reason)
{
    bool goes_on = r->is_session && reason != QUIRE_FINISH_ERROR;
    if (goes_on && r->num_inputs > 0 && !has_room_for_input(s, r)) {
        sim_note_end(s, r);
    } else if (goes_on && r->num_inputs > 0) {
        sim_take_in_input(s, r);
    } else if (!goes_on || r->ends_session) {
        sim_note_end(s, r);
    } else {
        sim_void_in_flight(s, r);
    }
}

static void compare_outputs(sim *s, const sim_expected *expected, uint32_t n,
                            const quire_outputs *outputs, const sim_batch *batch)
{
    uint32_t before = s->num_outgrown; /* which ended in schedule */
    SIM_CHECK(s, outputs->num_outputs >= before + n, "too few outputs", outputs->num_outputs,
              before + n);
    for (uint32_t i = 0; i < before && !s->has_failed; i++) {
        const quire_output *out = &outputs->outputs[i];
        uint32_t at = 0;
        while (at < before && s->outgrown[at] != out->req)
            at++;
        SIM_CHECK(s, at < before && out->finish_reason == QUIRE_FINISH_LENGTH,
                  "an end in schedule that was not told", out->req, out->finish_reason);
        if (at < before)
            s->outgrown[at] = 0;
    }
    s->num_outgrown = 0;
    if (s->has_failed)
        return;
    for (uint32_t i = 0; i < n && !s->has_failed; i++) {
        sim_request *r = expected[i].r;
        check_output(s, &expected[i], &outputs->outputs[before + i]);
        r->num_told += expected[i].num_tokens;
        if (expected[i].reason != QUIRE_FINISH_NONE && !s->has_failed)
            end_or_go_on(s, r, expected[i].reason);
    }
    for (uint32_t i = before + n; i < outputs->num_outputs && !s->has_failed; i++) {
        const quire_output *out = &outputs->outputs[i];
        sim_request *r = out->user;
        bool is_failed_load = batch->num_lost > 0 && out->finish_reason == QUIRE_FINISH_ERROR &&
                              out->num_new_tokens == 0 && r->is_there && !r->has_ended;
        SIM_CHECK(s, is_failed_load, "an output that nobody expects", r->number,
                  out->finish_reason);
        sim_note_end(s, r);
    }
}

/* Who lost blocks is preempted in the update: it begins again, and its steps in flight are void.
 * Called before the update to remember, and after it to compare. */
static void note_preempted(sim *s, bool compares)
{
    for (uint32_t i = 0; i < s->mix.max_requests; i++) {
        sim_request *r = &s->requests[i];
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        if (!r->is_there || r->has_ended ||
            quire_sched_get_req_info(s->sched, r->req, &info) != QUIRE_OK)
            continue;
        if (compares && info.num_preemptions > r->num_preemptions)
            sim_void_in_flight(s, r);
        r->num_preemptions = info.num_preemptions;
    }
}

/* Guesses for the next step, good ones and bad ones. */
static void propose_drafts(sim *s, const sim_batch *batch)
{
    quire_req reqs[SIM_SEQS];
    quire_token drafts[SIM_SEQS * SIM_SPEC];
    uint32_t counts[SIM_SEQS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->num_entries; i++) {
        const sim_entry *entry = &batch->entries[i];
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        if (entry->num_sampled == 0 || entry->is_void ||
            quire_sched_get_req_info(s->sched, entry->req, &info) != QUIRE_OK ||
            info.status != QUIRE_REQ_RUNNING)
            continue;
        counts[n] = sim_below(s, s->mix.num_spec + 1);
        for (uint32_t k = 0; k < SIM_SPEC; k++)
            drafts[n * SIM_SPEC + k] = (quire_token)sim_below(s, 4);
        if (counts[n] > 0 && sim_chance(s, 60))
            drafts[n * SIM_SPEC] = sim_next_token(entry->r, entry->r->num_tokens);
        reqs[n++] = entry->req;
    }
    int err = SIM_CALL(s, quire_sched_update_drafts(s->sched, reqs, n, drafts, SIM_SPEC, counts));
    SIM_CHECK(s, err == QUIRE_OK, "update_drafts", err, n);
}

static bool still_counts(const sim_entry *entry)
{
    const sim_request *r = entry->r;
    return r->is_there && !r->has_ended && r->req == entry->req && !entry->is_void;
}

static uint32_t fill_result(sim *s, const sim_batch *batch, sim_result *result,
                            sim_expected *expected)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->num_entries; i++) {
        const sim_entry *entry = &batch->entries[i];
        memcpy(result->sampled + i * (SIM_SPEC + 1), entry->sampled, sizeof entry->sampled);
        result->num_sampled[i] = entry->num_sampled;
        result->has_pooled[i] = entry->is_pooled;
        if (still_counts(entry) && (entry->num_sampled > 0 || entry->is_pooled))
            expected[n++] = expect_of(s, entry);
    }
    result->output.sampled = result->sampled;
    result->output.stride = SIM_SPEC + 1;
    result->output.num_sampled = result->num_sampled;
    result->output.has_pooled = result->has_pooled;
    return n;
}

static const sim_batch *batch_at(const sim *s, uint32_t place)
{
    return &s->batches[(s->first_batch + place) % SIM_BATCHES];
}

static void drop_batch(sim *s, uint32_t place)
{
    for (s->num_batches--; place < s->num_batches; place++)
        s->batches[(s->first_batch + place) % SIM_BATCHES] = *batch_at(s, place + 1);
}

void sim_lose_step(sim *s)
{
    uint32_t place = sim_below(s, s->num_batches);
    uint64_t step = batch_at(s, place)->step;
    note_preempted(s, false);
    int err = SIM_CALL(s, quire_sched_forget_step(s->sched, step));
    SIM_CHECK(s, err == QUIRE_OK, "forget_step", err, step);
    drop_batch(s, place);
    note_preempted(s, true);
    s->tally.forgotten++;
}

/* Whether no request of the step waits for an older one. */
static bool is_in_order(const sim *s, uint32_t place)
{
    const sim_batch *batch = batch_at(s, place);
    for (uint32_t older = 0; older < place; older++)
        for (uint32_t k = 0; k < batch_at(s, older)->num_entries; k++) {
            const sim_entry *entry = &batch_at(s, older)->entries[k];
            for (uint32_t i = 0; i < batch->num_entries && still_counts(entry); i++)
                if (batch->entries[i].req == entry->req && still_counts(&batch->entries[i]))
                    return false;
        }
    return true;
}

/* Mostly the oldest step; another one is refused where a request needs an older one first. */
static uint32_t choose_batch(sim *s)
{
    uint32_t place = sim_chance(s, 20) ? sim_below(s, s->num_batches) : 0;
    const sim_batch *batch = batch_at(s, place);
    for (uint32_t i = 0; i < batch->num_entries && place > 0; i++)
        if (batch->entries[i].r->is_tainted) /* only the engine knows yet that it gives junk */
            return 0;
    if (is_in_order(s, place))
        return place;
    const quire_outputs *outputs;
    const quire_model_output nothing = QUIRE_MODEL_OUTPUT_INIT;
    int err = SIM_CALL(s, quire_sched_update(s->sched, batch->step, &nothing, &outputs));
    SIM_CHECK(s, err == QUIRE_E_ARGUMENT, "a step in the wrong order", err, place);
    return 0;
}

void sim_update(sim *s)
{
    static sim_result result;
    static sim_expected expected[SIM_SEQS];
    uint32_t place = choose_batch(s);
    sim_batch batch = *batch_at(s, place);
    result.output = (quire_model_output)QUIRE_MODEL_OUTPUT_INIT;
    move_transfers(s, &batch, &result);
    uint32_t n = fill_result(s, &batch, &result, expected);
    note_preempted(s, false);
    const quire_outputs *outputs;
    int err = SIM_CALL(s, quire_sched_update(s->sched, batch.step, &result.output, &outputs));
    SIM_CHECK(s, err == QUIRE_OK, "update", err, 0);
    if (s->has_failed)
        return;
    drop_batch(s, place);
    compare_outputs(s, expected, n, outputs, &batch);
    note_preempted(s, true);
    for (uint32_t i = 0; i < s->mix.max_requests && !s->has_failed; i++)
        if (s->requests[i].is_there && s->requests[i].has_ended)
            sim_forget(s, &s->requests[i]);
    if (s->mix.num_spec > 0 && !s->mix.is_async && !s->has_failed)
        propose_drafts(s, &batch);
}
