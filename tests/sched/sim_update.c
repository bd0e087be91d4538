/* sched/sim_update.c - the oldest step comes back: what the scheduler must answer is known before.
 *
 *      expected     for each request of the step that is still there and whose output counts: its
 *                   tokens up to the one that ends it, and the reason
 */
#include "sched/sim.h"

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
    quire_req received[SIM_SLOTS];
    quire_req sent[SIM_SLOTS];
    quire_model_output output;
} sim_result;

/* ---- transfers ------------------------------------------------------------- */

static void check_sent(sim *s, const sim_request *r)
{
    uint32_t size = s->mix.block_size;
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
    for (uint32_t i = 0; i < SIM_SLOTS; i++) {
        sim_request *r = &s->requests[i];
        if (!r->is_there)
            continue;
        if (r->load.is_on && --r->load.steps_left == 0) {
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

static quire_finish_reason reason_at(const sim *s, const sim_request *r, uint32_t num_tokens,
                                     bool *has_stop_token)
{
    uint32_t num_outputs = num_tokens - r->num_prompt;
    quire_token last = r->tokens[num_tokens - 1];
    if (num_outputs < r->min_tokens)
        return QUIRE_FINISH_NONE;
    if (r->has_eos && last == SIM_EOS)
        return QUIRE_FINISH_STOP;
    for (uint32_t i = 0; i < r->num_stops; i++)
        if (r->stops[i] == last) {
            *has_stop_token = true;
            return QUIRE_FINISH_STOP;
        }
    bool is_long = num_tokens >= s->mix.len || num_outputs >= r->max_tokens;
    return is_long ? QUIRE_FINISH_LENGTH : QUIRE_FINISH_NONE;
}

static sim_expected expect_of(const sim *s, const sim_entry *entry)
{
    sim_request *r = entry->r;
    sim_expected e = {.r = r};
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
    for (uint32_t i = 0; i < e->num_tokens && i < out->num_new_tokens; i++)
        SIM_CHECK(s, out->new_tokens[i] == r->tokens[r->num_told + i], "another token", r->number,
                  i);
    if (e->has_stop_token && e->reason == QUIRE_FINISH_STOP)
        SIM_CHECK(s, out->has_stop_reason && out->stop_reason == r->tokens[r->num_told + i_last(e)],
                  "another stop token", r->number, 0);
}

/* ---- and what follows from it ---------------------------------------------- */

void sim_forget(sim *s, sim_request *r)
{
    if (r->load.is_on || r->sending.is_on)
        return; /* its blocks are still in use */
    quire_req_info info;
    SIM_CHECK(s, quire_sched_req_info(s->sched, r->req, &info) == QUIRE_E_UNKNOWN_REQ,
              "a request that ended is still there", r->number, 0);
    s->by_index[quire_req_index(r->req)] = NULL;
    r->is_there = false;
}

/* Outputs of its steps in flight count no more. */
static void void_in_flight(sim *s, sim_request *r)
{
    for (uint32_t b = 0; b < s->num_batches; b++) {
        sim_batch *batch = &s->batches[(s->first_batch + b) % SIM_BATCHES];
        for (uint32_t i = 0; i < batch->num_entries; i++)
            if (batch->entries[i].req == r->req)
                batch->entries[i].is_void = true;
    }
    r->num_tokens = r->num_told;
}
