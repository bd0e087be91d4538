/* parity/sched_text.c - steps, outputs and requests in the words of sched_case.py. */
#include "parity/sched_model.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void sched_add_spans(text *t, const sched_model *m, const quire_block_span *spans)
{
    for (uint32_t g = 0; g < m->config.cache->num_groups; g++) {
        text_add(t, "%s", g == 0 ? "" : ";");
        text_add_ids(t, spans[g].ids, spans[g].count);
    }
}

/* Requests by number, in rising order. */
static void add_sorted(sched_model *m, const quire_req *reqs, uint32_t count)
{
    uint32_t numbers[SCHED_MAX_REQUESTS];
    recording_expect(&m->r, count <= SCHED_MAX_REQUESTS, "requests fit");
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = sched_number(m, reqs[i]);
    qsort(numbers, count, sizeof numbers[0], compare_u32);
    text_add_ids(&m->r.answer, numbers, count);
}

/* Tokens [first, first + count) as their number and a sum that depends on all of them. */
static void add_summed(sched_model *m, quire_req req, uint32_t first, uint32_t count)
{
    quire_token tokens[SCHED_MAX_TOKENS];
    uint32_t sum = 0;
    recording_expect(&m->r, count <= SCHED_MAX_TOKENS, "tokens fit");
    if (count > 0)
        sched_expect_ok(m, "status of get_tokens",
                        quire_sched_get_tokens(m->sched, req, first, count, tokens));
    for (uint32_t i = 0; i < count; i++)
        sum = sum * 31 + (uint32_t)tokens[i] + 2;
    text_add(&m->r.answer, "%" PRIu32 ".%" PRIx32, count, sum);
}

static quire_req_info info_of(sched_model *m, quire_req req)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    sched_expect_ok(m, "status of req_info", quire_sched_get_req_info(m->sched, req, &info));
    return info;
}

/* ---- a step ---------------------------------------------------------------- */

static void add_new(sched_model *m, const quire_step *step)
{
    uint32_t num_groups = m->config.cache->num_groups;
    bool is_first = true;
    text_add(&m->r.answer, "|new=");
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        if (step->kinds[i] != QUIRE_STEP_NEW)
            continue;
        text_add(&m->r.answer, "%s%" PRIu32 ":%" PRIu32 ":", is_first ? "" : " ",
                 sched_number(m, step->reqs[i]), step->num_computed_tokens[i]);
        sched_add_spans(&m->r.answer, m, &step->blocks[i * num_groups]);
        text_add(&m->r.answer, ":");
        add_summed(m, step->reqs[i], 0, info_of(m, step->reqs[i]).num_prompt_tokens);
        is_first = false;
        sched_tally_add(&m->tally, SCHED_new, 1);
        sched_tally_add(&m->tally, SCHED_hit, step->num_computed_tokens[i] > 0);
    }
}

/* What pipeline stages need: the tokens that are computed now, drafts excluded. */
static void add_step_tokens(sched_model *m, const quire_step *step, uint32_t i)
{
    uint32_t num_tokens = info_of(m, step->reqs[i]).num_tokens;
    uint32_t first = step->num_computed_tokens[i];
    uint32_t count = step->num_tokens[i] - (step->draft_start[i + 1] - step->draft_start[i]);
    if (first + count > num_tokens)
        count = first < num_tokens ? num_tokens - first : 0;
    text_add(&m->r.answer, ":");
    add_summed(m, step->reqs[i], first, count);
}

static void add_cached(sched_model *m, const quire_step *step, uint8_t kind, bool *is_first)
{
    uint32_t num_groups = m->config.cache->num_groups;
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        if (step->kinds[i] != kind)
            continue;
        text_add(&m->r.answer, "%s%" PRIu32 "%s:%" PRIu32 ":%" PRIu32 ":", *is_first ? "" : " ",
                 sched_number(m, step->reqs[i]), kind == QUIRE_STEP_RESUMED ? "R" : "",
                 step->num_computed_tokens[i], step->num_output_tokens[i]);
        sched_add_spans(&m->r.answer, m, &step->blocks[i * num_groups]);
        text_add(&m->r.answer, ":");
        if (step->was_in_last_step[i] != 0)
            text_add(&m->r.answer, "-");
        else
            add_summed(m, step->reqs[i], 0, info_of(m, step->reqs[i]).num_tokens);
        if (m->is_pipeline)
            add_step_tokens(m, step, i);
        *is_first = false;
        sched_tally_add(&m->tally, SCHED_resumed, kind == QUIRE_STEP_RESUMED);
    }
}

static void add_tokens(sched_model *m, const quire_step *step)
{
    text_add(&m->r.answer, "|tokens=");
    for (uint32_t i = 0; i < step->num_reqs; i++)
        text_add(&m->r.answer, "%s%" PRIu32 ".%" PRIu32, i == 0 ? "" : " ",
                 sched_number(m, step->reqs[i]), step->num_tokens[i]);
    text_add(&m->r.answer, "|total=%" PRIu32, step->total_tokens);
}

static void add_drafts(sched_model *m, const quire_step *step)
{
    bool is_first = true;
    text_add(&m->r.answer, "|drafts=");
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        uint32_t start = step->draft_start[i];
        uint32_t end = step->draft_start[i + 1];
        if (start == end)
            continue;
        text_add(&m->r.answer, "%s%" PRIu32, is_first ? "" : " ", sched_number(m, step->reqs[i]));
        for (uint32_t k = start; k < end; k++)
            text_add(&m->r.answer, "%s%" PRId32, k == start ? ":" : ".", step->drafts[k]);
        is_first = false;
        sched_tally_add(&m->tally, SCHED_drafts, end - start);
    }
}

static void add_encoder(sched_model *m, const quire_step *step)
{
    bool is_first = true;
    text_add(&m->r.answer, "|encoder=");
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        uint32_t start = step->encoder_start[i];
        uint32_t end = step->encoder_start[i + 1];
        if (start == end)
            continue;
        text_add(&m->r.answer, "%s%" PRIu32, is_first ? "" : " ", sched_number(m, step->reqs[i]));
        for (uint32_t k = start; k < end; k++)
            text_add(&m->r.answer, "%s%" PRIu32, k == start ? ":" : ".", step->encoder_inputs[k]);
        is_first = false;
        sched_tally_add(&m->tally, SCHED_encoder, end - start);
    }
}

static void add_ends(sched_model *m, const quire_step *step)
{
    text_add(&m->r.answer, "|common=");
    bool has_cascade = m->r.profile == QUIRE_PROFILE_VLLM_0_20;
    text_add_ids(&m->r.answer, step->num_common_prefix_blocks,
                 has_cascade ? m->config.cache->num_groups : 0);
    text_add(&m->r.answer, "|finished=");
    add_sorted(m, step->finished, step->num_finished);
    text_add(&m->r.answer, "|preempted=");
    add_sorted(m, step->preempted, step->num_preempted);
    text_add(&m->r.answer, "|freed=");
    for (uint32_t i = 0; i < step->num_freed_encoder; i++)
        text_add(&m->r.answer, "%s%.*s", i == 0 ? "" : " ", (int)step->freed_encoder[i].len,
                 (const char *)step->freed_encoder[i].data);
    text_add(&m->r.answer, "|zero=");
    text_add_ids(&m->r.answer, step->blocks_to_zero.ids, step->blocks_to_zero.count);
    text_add(&m->r.answer, "|grammar=%d%d", step->has_grammar_reqs != 0,
             step->has_pending_grammar_tokens != 0);
}

static void count_step(sched_model *m, const quire_step *step)
{
    sched_tally_add(&m->tally, SCHED_steps, 1);
    sched_tally_add(&m->tally, SCHED_empty, step->num_reqs == 0);
    sched_tally_add(&m->tally, SCHED_inflight, m->num_flight > 0);
    sched_tally_add(&m->tally, SCHED_reqs, step->num_reqs);
    sched_tally_add(&m->tally, SCHED_preempt, step->num_preempted);
    sched_tally_add(&m->tally, SCHED_evicted, step->num_freed_encoder);
    sched_tally_add(&m->tally, SCHED_zeroed, step->blocks_to_zero.count);
    sched_tally_add(&m->tally, SCHED_common, step->num_common_prefix_blocks[0] > 0);
    sched_tally_add(&m->tally, SCHED_grammar, step->has_grammar_reqs);
    sched_tally_add(&m->tally, SCHED_pending, step->has_pending_grammar_tokens);
}

void sched_add_step(sched_model *m, const quire_step *step)
{
    bool is_first = true;
    add_new(m, step);
    text_add(&m->r.answer, "|cached=");
    add_cached(m, step, QUIRE_STEP_RUNNING, &is_first);
    add_cached(m, step, QUIRE_STEP_RESUMED, &is_first);
    add_tokens(m, step);
    add_drafts(m, step);
    add_encoder(m, step);
    add_ends(m, step);
    count_step(m, step);
}

/* ---- outputs --------------------------------------------------------------- */

static void add_output(sched_model *m, const quire_output *output)
{
    uint32_t number = sched_number(m, output->req);
    recording_expect(&m->r, output->user == &m->requests[number], "output has its user");
    text_add(&m->r.answer, " %" PRIu32 ":", number);
    for (uint32_t i = 0; i < output->num_new_tokens; i++)
        text_add(&m->r.answer, i == 0 ? "%" PRId32 : ".%" PRId32, output->new_tokens[i]);
    text_add(&m->r.answer, ":%d:", output->finish_reason);
    if (output->has_stop_reason != 0)
        text_add(&m->r.answer, "%" PRId32, output->stop_reason);
    else
        text_add(&m->r.answer, "-");
    if (output->has_prefill_stats != 0)
        text_add(&m->r.answer, ":%" PRIu32 ".%" PRIu32 ".%" PRIu32, output->num_local_cached,
                 output->num_external_cached, output->num_prompt_tokens);
    else
        text_add(&m->r.answer, ":-");
    sched_tally_add(&m->tally, SCHED_stopped, output->finish_reason == QUIRE_FINISH_STOP);
    sched_tally_add(&m->tally, SCHED_length, output->finish_reason == QUIRE_FINISH_LENGTH);
    sched_tally_add(&m->tally, SCHED_error, output->finish_reason == QUIRE_FINISH_ERROR);
    sched_tally_add(&m->tally, SCHED_repeated, output->finish_reason == QUIRE_FINISH_REPETITION);
    sched_tally_add(&m->tally, SCHED_by_token, output->has_stop_reason);
}

/* Prompts of later requests may repeat what this one said. */
static void keep_tokens(sched_model *m, const quire_output *output)
{
    sched_request *request = &m->requests[sched_number(m, output->req)];
    for (uint32_t i = 0; i < output->num_new_tokens; i++) {
        if (request->num_tokens < SCHED_MAX_TOKENS)
            request->tokens[request->num_tokens++] = output->new_tokens[i];
    }
}

static void add_clients(sched_model *m, const quire_outputs *outputs)
{
    const char *space = "";
    text_add(&m->r.answer, "|outputs=");
    for (uint32_t client = 0; client < SCHED_MAX_CLIENTS; client++) {
        bool is_first = true;
        for (uint32_t i = 0; i < outputs->num_outputs; i++) {
            if (outputs->outputs[i].client_index != client)
                continue;
            if (is_first)
                text_add(&m->r.answer, "%sc%" PRIu32, space, client);
            is_first = false;
            space = " ";
            add_output(m, &outputs->outputs[i]);
            keep_tokens(m, &outputs->outputs[i]);
        }
    }
}

static void add_finished(sched_model *m, const quire_outputs *outputs)
{
    const char *space = "";
    text_add(&m->r.answer, "|ended=");
    for (uint32_t client = 0; client < SCHED_MAX_CLIENTS; client++) {
        quire_req reqs[SCHED_MAX_REQUESTS];
        uint32_t count = 0;
        for (uint32_t i = 0; i < outputs->num_finished; i++) {
            if (outputs->finished_clients[i] == client)
                reqs[count++] = outputs->finished[i];
        }
        if (count == 0)
            continue;
        text_add(&m->r.answer, "%sc%" PRIu32 " ", space, client);
        add_sorted(m, reqs, count);
        space = " ";
    }
}

static void add_prefix_stats(sched_model *m, const quire_prefix_stats *stats)
{
    text_add(&m->r.answer,
             " %" PRIu32 ".%" PRIu64 ".%" PRIu64 ".%" PRIu64 ".%" PRIu64 ".%" PRIu64 ".%" PRIu64,
             stats->was_reset, stats->requests, stats->queries, stats->hits,
             stats->preempted_requests, stats->preempted_queries, stats->preempted_hits);
}

static void add_stats(sched_model *m, const quire_outputs *outputs)
{
    const quire_sched_stats *stats = outputs->stats;
    uint64_t bits;
    text_add(&m->r.answer, "|stats=");
    if (stats == NULL) {
        text_add(&m->r.answer, "-");
        return;
    }
    memcpy(&bits, &stats->kv_cache_usage, sizeof bits);
    text_add(&m->r.answer, "%" PRIu32 ".%" PRIu32 ".%" PRIu32 " %016" PRIx64, stats->num_running,
             stats->num_waiting, stats->num_skipped, bits);
    add_prefix_stats(m, &stats->prefix);
    if (m->config.connector != NULL)
        add_prefix_stats(m, &stats->connector_prefix);
    else
        text_add(&m->r.answer, " -");
    text_add(&m->r.answer, " %" PRIu64 ".%" PRIu64 ".%" PRIu64, stats->spec.num_drafts,
             stats->spec.num_draft_tokens, stats->spec.num_accepted_tokens);
    for (uint32_t i = 0; i < m->config.num_spec_tokens; i++)
        text_add(&m->r.answer, ".%" PRIu64, stats->spec.accepted_per_pos[i]);
    sched_tally_add(&m->tally, SCHED_accepted, stats->spec.num_accepted_tokens);
}

void sched_add_outputs(sched_model *m, const quire_outputs *outputs)
{
    add_clients(m, outputs);
    add_finished(m, outputs);
    add_stats(m, outputs);
}

/* ---- state ----------------------------------------------------------------- */

static void add_queue(sched_model *m, const char *name, uint32_t which)
{
    quire_req reqs[SCHED_MAX_REQUESTS];
    uint32_t numbers[SCHED_MAX_REQUESTS];
    uint32_t count = quire_sched_get_queue(m->sched, which, reqs, SCHED_MAX_REQUESTS);
    recording_expect(&m->r, count <= SCHED_MAX_REQUESTS, "queue fits");
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = sched_number(m, reqs[i]);
    text_add(&m->r.answer, "|%s=", name);
    text_add_ids(&m->r.answer, numbers, count);
}

static bool add_request(sched_model *m, const sched_request *request, bool is_first)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    quire_block_span blocks[SCHED_MAX_GROUPS] = {{0}};
    quire_bytes id = {request->id, strlen(request->id)};
    if (quire_sched_get_req_info(m->sched, request->req, &info) != QUIRE_OK) {
        recording_expect(&m->r, quire_sched_find(m->sched, id) == 0, "id ends with its request");
        return false;
    }
    recording_expect(&m->r, quire_sched_find(m->sched, id) == request->req, "id finds its request");
    recording_expect(&m->r, quire_sched_get_user(m->sched, request->req) == request,
                     "user is kept");
    sched_expect_ok(m, "status of get_blocks",
                    quire_sched_get_blocks(m->sched, request->req, blocks));
    text_add(&m->r.answer,
             "%s%td:%d:%" PRIu32 ":%" PRIu32 ":%" PRIu32 ":%" PRIu32 ":%" PRIu32 ":%" PRId32
             ":%.0f:",
             is_first ? "" : " ", request - m->requests, info.status, info.num_computed_tokens,
             info.num_output_placeholders, info.num_prompt_tokens, info.num_spec_tokens,
             info.num_preemptions, info.priority, info.arrival_time * 4);
    add_summed(m, request->req, 0, info.num_tokens);
    text_add(&m->r.answer, ":");
    sched_add_spans(&m->r.answer, m, blocks);
    return true;
}

static void add_requests(sched_model *m)
{
    bool is_first = true;
    text_add(&m->r.answer, "|requests=");
    for (uint32_t i = 0; i < m->num_requests; i++) {
        if (add_request(m, &m->requests[i], is_first))
            is_first = false;
    }
}

static void add_free_blocks(sched_model *m)
{
    quire_block blocks[SCHED_MAX_BLOCKS];
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(m->sched));
    uint32_t count = quire_pool_get_all_free_blocks(pool, blocks, SCHED_MAX_BLOCKS);
    text_add(&m->r.answer, "|free=");
    text_add_ids(&m->r.answer, blocks, count);
}

void sched_add_state(sched_model *m, bool is_last)
{
    enum { STATE_EVERY = 8 }; /* operations between two comparisons of all requests */
    text_add(&m->r.answer, "|calls=%s", m->calls.len == 0 ? "" : m->calls.data);
    text_add(&m->r.answer, "|events=%s", m->events.len == 0 ? "" : m->events.data);
    add_queue(m, "running", 0);
    add_queue(m, "waiting", 1);
    add_queue(m, "skipped", 2);
    text_add(&m->r.answer, "|unfinished=%" PRIu32 ".%d", quire_sched_get_num_unfinished(m->sched),
             quire_sched_get_counts(m->sched).has_finished != 0);
    m->num_operations++;
    if (is_last || m->num_operations % STATE_EVERY == 0)
        add_requests(m);
    if (is_last)
        add_free_blocks(m);
}
