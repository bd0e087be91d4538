/* engine/step.c - one step: schedule, compute, compare, update. */
#include "engine/engine.h"

#include "engine/forks.h"

#include <quire/image.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- comparing ------------------------------------------------------------- */

void engine_compare(engine *e, const float *expected, const float *got, const char *what,
                    uint32_t id, uint32_t position)
{
    uint32_t vocabulary = e->model->config.vocabulary;
    if (expected == NULL)
        return;
    e->counts->tokens_compared++;
    if (memcmp(expected, got, vocabulary * sizeof *got) == 0)
        return;
    if (e->counts->tokens_differ++ < 3 && e->is_verbose) {
        uint32_t at = 0;
        while (memcmp(&expected[at], &got[at], sizeof *got) == 0)
            at++;
        printf("  %s %u, position %u: logit %u is %.9g, not %.9g (step %llu)\n", what, id, position,
               at, (double)got[at], (double)expected[at], (unsigned long long)e->counts->steps);
    }
}

/* ---- before the forward pass ----------------------------------------------- */

static int write_rows(engine *e, const quire_step *step, uint32_t i, uint32_t row)
{
    uint32_t num_groups = e->setup->model.num_groups;
    const quire_block_span *blocks = step->blocks + (size_t)i * num_groups;
    bool is_whole = step->kinds[i] != QUIRE_STEP_RUNNING;
    for (uint32_t g = 0; g < num_groups; g++)
        if (is_whole ? engine_batch_set_row(e, row, g, blocks[g]) != 0
                     : engine_batch_extend_row(e, row, g, blocks[g]) != 0)
            return 1;
    return 0;
}

/* Copies on write change blocks that a request has had for long. */
static int change_rows(engine *e, const quire_step *step)
{
    for (uint32_t i = 0; i < step->num_copies; i++) {
        const quire_step_copy *copy = &step->copies[i];
        if (copy->place == UINT32_MAX)
            continue;
        uint32_t row = quire_req_index(step->reqs[copy->place]);
        if (engine_batch_change_row(e, row, copy->group, copy->index, copy->to) != 0)
            return 1;
    }
    return 0;
}

/* In async scheduling the drafts are ours: some of them right. */
static void choose_drafts(engine *e, const engine_request *r, uint32_t known, uint32_t n,
                          quire_token *drafts)
{
    for (uint32_t i = 0; i < n; i++) {
        bool is_right = known + i < r->num_expected && engine_chance(&e->random, 70);
        drafts[i] = is_right ? r->expected[known + i]
                             : (quire_token)engine_draw(&e->random, e->model->config.vocabulary);
    }
}

/* What the scheduler has of the request counts when it comes back: tokens of steps that were in
 * flight when it was preempted may be gone. */
static int recall_tokens(engine *e, engine_request *r)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    int status = quire_sched_get_req_info(e->sched, r->req, &info);
    if (status == QUIRE_OK)
        status = quire_sched_get_tokens(e->sched, r->req, 0, info.num_tokens, r->tokens);
    if (status != QUIRE_OK)
        return engine_fail(e, "tokens of a request", status);
    r->num_known = info.num_tokens;
    return 0;
}

static int make_part(engine *e, const quire_step *step, uint32_t i, engine_part *part)
{
    engine_request *r = quire_sched_get_user(e->sched, step->reqs[i]);
    bool is_running = step->kinds[i] == QUIRE_STEP_RUNNING;
    if (!is_running && recall_tokens(e, r) != 0)
        return 1;
    *part = (engine_part){.request = r, .req = step->reqs[i]};
    part->row = quire_req_index(step->reqs[i]);
    part->num_drafts = step->draft_start[i + 1] - step->draft_start[i];
    part->num_tokens = step->num_tokens[i];
    part->first_position = step->num_computed_tokens[i] - (is_running ? r->num_rejected : 0);
    part->history = r->tokens;
    part->num_history = r->num_known;
    uint32_t end = part->first_position + part->num_tokens;
    uint32_t known = end - part->num_drafts;
    part->is_sampling = known == r->num_known;
    if (known > r->num_known || (part->num_drafts > 0 && !part->is_sampling)) {
        e->counts->confused++;
        (void)snprintf(e->message, sizeof e->message,
                       "request %u has %u tokens, and is to compute %u at %u with %u drafts", r->id,
                       r->num_known, part->num_tokens, part->first_position, part->num_drafts);
        return 1;
    }
    e->counts->chunked_prefills += !part->is_sampling;
    if (e->setup->is_async)
        choose_drafts(e, r, known, part->num_drafts, part->drafts);
    else
        memcpy(part->drafts, step->drafts + step->draft_start[i],
               part->num_drafts * sizeof *part->drafts);
    uint32_t first = part->first_position > r->first_logit ? part->first_position : r->first_logit;
    part->num_logits = first < end ? end - first : 0;
    if (e->setup->broken == ENGINE_BREAK_POSITION && part->first_position > 0 &&
        engine_chance(&e->random, 1))
        part->first_position--;
    return write_rows(e, step, i, part->row);
}

static int keep_zeroed(engine *e, quire_block_span blocks)
{
    engine_batch *b = &e->batch;
    if (b->num_zeroed + blocks.count > 2 * e->setup->num_blocks)
        return engine_fail(e, "blocks to zero", QUIRE_E_RANGE);
    if (blocks.count > 0)
        memcpy(b->zeroed + b->num_zeroed, blocks.ids, blocks.count * sizeof *b->zeroed);
    b->num_zeroed += blocks.count;
    return 0;
}

/* Without slots of the engine, what a preempted request has in host memory is the offload's. */
static void count_preempted(engine *e, const quire_step *step)
{
    e->counts->preemptions += step->num_preempted;
    for (uint32_t i = 0; e->setup->num_swap_blocks == 0 && i < step->num_preempted; i++) {
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        e->counts->saved +=
            quire_sched_get_req_info(e->sched, step->preempted[i], &info) == QUIRE_OK &&
            info.location == QUIRE_LOCATION_HOST;
    }
}

static int begin_flight(engine *e, engine_flight *flight, const quire_step *step)
{
    flight->step = step->step;
    flight->num_reqs = step->num_reqs;
    engine_batch_begin(e);
    if (keep_zeroed(e, step->blocks_to_zero) != 0)
        return 1;
    for (uint32_t i = 0; i < step->num_reqs; i++)
        if (make_part(e, step, i, &flight->parts[i]) != 0)
            return 1;
    if (change_rows(e, step) != 0)
        return 1;
    count_preempted(e, step);
    e->counts->async_steps += e->setup->is_async;
    e->counts->steps++;
    flight->is_there = true;
    return engine_batch_submit(e, flight, step);
}

/* ---- after it -------------------------------------------------------------- */

static void take_logits(engine *e, engine_part *part, const float *logits)
{
    engine_request *r = part->request;
    uint32_t vocabulary = e->model->config.vocabulary;
    uint32_t position = part->first_position + part->num_tokens - part->num_logits;
    const float *at = logits + (size_t)part->first_logit * vocabulary;
    part->num_sampled = 0;
    for (uint32_t i = 0; i < part->num_logits; i++, position++, at += vocabulary) {
        const float *expected = engine_request_logits(r, vocabulary, position);
        engine_compare(e, expected, at, "request", r->id, position);
        e->counts->prompt_logits += expected != NULL && position + 1 < r->num_prompt;
        if (position + 1 < part->num_history)
            continue;
        quire_token token = engine_sample(at, vocabulary, r->temperature, r->seed, position + 1);
        part->sampled[part->num_sampled++] = token;
        uint32_t draft = position + 1 - part->num_history;
        if (draft >= part->num_drafts || part->drafts[draft] != token)
            break;
    }
    if (!part->is_sampling)
        return;
    if (r->is_beam && r->state == ENGINE_LIVE)
        engine_forks_note_logits(
            e, r, logits + (size_t)(part->first_logit + part->num_logits - 1) * vocabulary);
    if (part->num_sampled == 0) { /* it was computed one position off, on purpose */
        part->sampled[part->num_sampled++] = 0;
    }
    memcpy(r->tokens + part->num_history, part->sampled, part->num_sampled * sizeof *r->tokens);
    r->num_known = part->num_history + part->num_sampled;
    r->num_rejected = part->num_drafts + 1 - part->num_sampled;
    e->counts->drafts_accepted += part->num_sampled - 1;
    e->counts->drafts_rejected += r->num_rejected;
}

static int finish_flight(engine *e, engine_flight *flight)
{
    const float *logits;
    int status = e->ops->wait(e->backend, flight->ticket, &logits);
    if (status != QUIRE_OK)
        return engine_fail(e, "wait", status);
    for (uint32_t i = 0; i < flight->num_reqs; i++)
        take_logits(e, &flight->parts[i], logits);
    return 0;
}

static void end_request(engine *e, engine_request *r, quire_finish_reason reason)
{
    bool is_stop = r->expected[r->num_expected - 1] == r->eos;
    bool is_right = r->num_told == r->num_expected &&
                    reason == (is_stop ? QUIRE_FINISH_STOP : QUIRE_FINISH_LENGTH) &&
                    memcmp(r->tokens, r->expected, r->num_expected * sizeof *r->tokens) == 0;
    r->state = ENGINE_ENDED;
    e->counts->requests++;
    if (is_right)
        return;
    if (e->counts->outputs_differ++ < 3 && e->is_verbose)
        printf("  request %u ends with %u of %u tokens, reason %d\n", r->id, r->num_told,
               r->num_expected, (int)reason);
}

static void take_output(engine *e, const quire_output *out)
{
    engine_request *r = out->user;
    memcpy(r->tokens + r->num_told, out->new_tokens, out->num_new_tokens * sizeof *r->tokens);
    r->num_told += out->num_new_tokens;
    if (out->has_prefill_stats) {
        e->counts->prefix_hits += out->num_local_cached > 0;
        e->counts->prefix_tokens += out->num_local_cached;
    }
    if (out->finish_reason != QUIRE_FINISH_NONE && r->state == ENGINE_LIVE)
        end_request(e, r, out->finish_reason);
}

static int give_drafts(engine *e, const engine_flight *flight)
{
    quire_req reqs[ENGINE_MAX_REQUESTS];
    quire_token drafts[ENGINE_MAX_REQUESTS * ENGINE_MAX_SPEC];
    uint32_t counts[ENGINE_MAX_REQUESTS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < flight->num_reqs; i++) {
        const engine_part *part = &flight->parts[i];
        if (!part->is_sampling || part->request->state != ENGINE_LIVE || part->request->is_beam)
            continue;
        reqs[n] = part->req;
        counts[n] = engine_draw(&e->random, e->setup->num_spec_tokens + 1);
        choose_drafts(e, part->request, part->request->num_known, counts[n],
                      drafts + (size_t)n * ENGINE_MAX_SPEC);
        n++;
    }
    int status = quire_sched_update_drafts(e->sched, reqs, n, drafts, ENGINE_MAX_SPEC, counts);
    return status == QUIRE_OK ? 0 : engine_fail(e, "drafts", status);
}

/* Its output never comes: what it was to give is computed again. */
static int forget_flight(engine *e, engine_flight *flight)
{
    int status = quire_sched_forget_step(e->sched, flight->step);
    if (status != QUIRE_OK)
        return engine_fail(e, "forget", status);
    for (uint32_t i = 0; i < flight->num_reqs; i++)
        flight->parts[i].request->num_rejected = 0;
    flight->is_there = false;
    e->counts->forgotten++;
    return 0;
}

static int update_flight(engine *e, engine_flight *flight)
{
    if (e->setup->is_forgetting && flight->num_reqs > 0 && engine_draw(&e->random, 20) == 0)
        return forget_flight(e, flight);
    enum { STRIDE = 1 + ENGINE_MAX_SPEC };
    quire_token sampled[ENGINE_MAX_REQUESTS * STRIDE];
    uint32_t num_sampled[ENGINE_MAX_REQUESTS];
    quire_model_output output = {.size = sizeof(quire_model_output),
                                 .sampled = sampled,
                                 .stride = STRIDE,
                                 .num_sampled = num_sampled};
    const quire_outputs *outputs;
    if (e->forks != NULL)
        engine_forks_choose(e, flight);
    for (uint32_t i = 0; i < flight->num_reqs; i++) {
        const engine_part *part = &flight->parts[i];
        num_sampled[i] = part->num_sampled;
        memcpy(sampled + (size_t)i * STRIDE, part->sampled, sizeof part->sampled);
        part->request->num_rejected = 0;
    }
    int status = QUIRE_OK;
    if (e->offload != NULL)
        status = engine_worker_poll(&e->worker);
    if (e->offload != NULL && status == QUIRE_OK)
        status = quire_offload_poll(e->offload, flight->step, &output);
    if (status == QUIRE_OK)
        status = quire_sched_update(e->sched, flight->step, &output, &outputs);
    if (status != QUIRE_OK)
        return engine_fail(e, "update", status);
    for (uint32_t i = 0; i < outputs->num_outputs; i++)
        take_output(e, &outputs->outputs[i]);
    flight->is_there = false;
    if (e->setup->num_spec_tokens > 0 && !e->setup->is_async && give_drafts(e, flight) != 0)
        return 1;
    return e->forks != NULL ? engine_forks_advance(e) : 0;
}

/* ---- requests come and go -------------------------------------------------- */

int engine_add(engine *e, engine_request *r)
{
    quire_request_params params = {.size = sizeof(quire_request_params),
                                   .id = {&r->id, sizeof r->id},
                                   .prompt = r->expected,
                                   .num_prompt_tokens = r->num_prompt,
                                   .max_tokens = r->max_tokens,
                                   .has_eos = r->eos >= 0,
                                   .eos_token_id = r->eos,
                                   .priority = r->priority,
                                   .arrival_time = r->id,
                                   .user = r};
    if (quire_sched_get_num_unfinished(e->sched) >= e->setup->max_num_seqs + 10)
        return 1;
    int status = quire_sched_add(e->sched, &params, &r->req);
    if (status != QUIRE_OK)
        return 1;
    r->state = ENGINE_LIVE;
    r->num_known = r->num_prompt;
    r->num_told = r->num_prompt;
    r->num_rejected = 0;
    if (e->setup->is_pinning && engine_chance(&e->random, 30)) {
        (void)quire_sched_pin(e->sched, r->req, 1 + engine_draw(&e->random, 3000000));
        e->counts->pins++;
    }
    return 0;
}

/* Another scheduler takes over, with the same blocks; steps may be in flight. */
static int change_schedulers(engine *e)
{
    size_t bytes = quire_sched_image_bytes(e->sched);
    size_t written = 0;
    void *image = malloc(bytes);
    if (image == NULL)
        return engine_fail(e, "image", QUIRE_E_NOMEM);
    int status = quire_sched_save(e->sched, image, bytes, &written);
    if (status == QUIRE_OK) {
        quire_sched_destroy(e->sched);
        e->sched = NULL;
        status = quire_sched_restore(&e->config, NULL, image, written, &e->sched);
        e->counts->images++;
    }
    free(image);
    return status == QUIRE_OK ? 0 : engine_fail(e, "image", status);
}

static int disturb(engine *e)
{
    if (quire_sched_get_num_unfinished(e->sched) == 0)
        return 0; /* what is being copied comes to an end */
    if (e->setup->is_saving && e->offload == NULL && engine_draw(&e->random, 30) == 0 &&
        change_schedulers(e) != 0)
        return 1;
    if (e->setup->is_aborting && engine_draw(&e->random, 40) == 0) {
        quire_req req = engine_any_request(e);
        if (req != 0) {
            engine_request *r = quire_sched_get_user(e->sched, req);
            int status = quire_sched_finish(e->sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
            if (status != QUIRE_OK)
                return engine_fail(e, "abort", status);
            r->state = ENGINE_ABORTED;
            e->counts->aborts++;
        }
    }
    if (e->setup->is_resetting && engine_draw(&e->random, 15) == 0) {
        bool with_running = engine_chance(&e->random, 70);
        bool with_connector = engine_chance(&e->random, 50) && e->offload != NULL;
        int status = quire_sched_reset_prefix_cache(e->sched, with_running, with_connector);
        if (status < 0)
            return engine_fail(e, "reset", status);
        e->counts->resets += status == QUIRE_OK;
    }
    return e->setup->is_moving ? engine_move_requests(e) : 0;
}

int engine_step(engine *e)
{
    const quire_step *step;
    engine_flight *flight = &e->flights[e->which];
    engine_flight *last = &e->flights[1 - e->which];
    if (disturb(e) != 0)
        return 1;
    if (e->forks != NULL && engine_forks_turn(e) != 0)
        return 1;
    int status = quire_sched_schedule(e->sched, &step);
    if (status == QUIRE_OK)
        status = engine_worker_submit(&e->worker);
    if (status != QUIRE_OK)
        return engine_fail(e, "schedule", status);
    if (last->is_there && finish_flight(e, last) != 0)
        return 1;
    if (begin_flight(e, flight, step) != 0)
        return 1;
    bool has_work = flight->num_reqs > 0;
    if (last->is_there && update_flight(e, last) != 0)
        return 1;
    if (e->setup->is_async && has_work)
        e->which = 1 - e->which;
    else if (finish_flight(e, flight) != 0 || update_flight(e, flight) != 0)
        return 1;
    if (!has_work) /* something is being loaded */
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return 0;
}

static bool has_copies(const engine *e)
{
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    if (e->offload == NULL || quire_offload_get_stats(e->offload, &stats) != QUIRE_OK)
        return false;
    uint64_t n = stats.stores_in_flight + stats.loads_in_flight;
    for (uint32_t i = 0; i < QUIRE_OFFLOAD_MAX_TIERS; i++)
        n += stats.tiers[i].in_flight;
    return n > 0 || quire_offload_has_pending(e->offload);
}

bool engine_is_idle(const engine *e)
{
    return quire_sched_get_num_unfinished(e->sched) == 0 && !e->flights[0].is_there &&
           !e->flights[1].is_there && engine_forks_are_done(e) && !has_copies(e);
}
