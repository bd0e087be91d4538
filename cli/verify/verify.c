#include "verify.h"

#include "output/failure.h"
#include "output/grown.h"
#include "trace/content.h"
#include "trace/reader.h"
#include "verify/recorded_ends.h"
#include "verify/recorded_engine.h"
#include "verify/recording.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FLIGHT = 64, END_TOKEN = -7, ID_BYTES = 16, MAX_REQS = 1 << 28 };

/* A request that has not ended. */
typedef struct live {
    quire_req req; /* 0: none, or it has ended */
    uint32_t num_prompt_tokens;
    uint32_t num_hashes; /* of the prompt */
    uint64_t *hashes;
} live;

typedef struct flight {
    uint64_t recorded; /* the step's number in the recording; 0: none */
    uint64_t step;
    uint32_t num_reqs;
    uint32_t room;
    uint64_t *reqs; /* numbers in the recording */
} flight;

typedef struct verifier {
    recording *rec;
    recorded_ends ends;
    recorded_engine engine;
    verify_result *result;
    live *lives; /* by number */
    uint64_t num_lives;
    uint64_t lives_room;
    flight flights[MAX_FLIGHT];
    recording_list reqs;  /* of the schedule line before */
    recording_list ended; /* requests of the repetition whose end lines must follow */
    quire_token *tokens;
    uint64_t tokens_room;
    uint32_t *counts;
    uint64_t counts_room;
    bool is_opened;
} verifier;

/* ---- what is said -------------------------------------------------------------- */

static int differ(verifier *v, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* 0: the comparison ends here. */
static int differ(verifier *v, const char *format, ...)
{
    char what[VERIFY_SENTENCE_BYTES / 2];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(what, sizeof what, format, values);
    va_end(values);
    uint64_t num_open = v->ends.num_requests - v->ends.num_ended;
    if (!v->result->differs) {
        int len = snprintf(v->result->sentence, sizeof v->result->sentence, "%.300s: %s",
                           recording_place(v->rec), what);
        if (v->ends.num_ended < v->ends.num_requests && len > 0 &&
            (size_t)len < sizeof v->result->sentence)
            (void)snprintf(
                v->result->sentence + len, sizeof v->result->sentence - (size_t)len,
                "\n%llu requests do not end in the recording: if later prompts contain what "
                "these generated, the difference may come from that",
                (unsigned long long)num_open);
    }
    v->result->differs = true;
    return 0;
}

static int give_up(verifier *v, const char *why)
{
    return fail_with("%s: %s: the decisions cannot be repeated from here on",
                     recording_place(v->rec), why);
}

static int out_of_memory(verifier *v)
{
    return fail_with("%s: not enough memory", recording_place(v->rec));
}

/* ---- tokens ---------------------------------------------------------------------- */

static live *live_of(verifier *v, uint64_t req)
{
    return req != 0 && req < v->num_lives && v->lives[req].req != 0 ? &v->lives[req] : NULL;
}

/* What stands in a place of a request: a token of its block, or of the request alone. */
static quire_token token_at(const verifier *v, uint64_t number, uint32_t place)
{
    const live *l = &v->lives[number];
    recorded_end end = recorded_ends_of(&v->ends, number);
    uint32_t block_size = v->engine.hash_block_size;
    uint32_t block = place / block_size;
    uint64_t content = content_of(TRACE_CONTENT_UNIQUE, number, 0);
    quire_token token;
    if (block < l->num_hashes) {
        content = content_of(TRACE_CONTENT_HASH, l->hashes[block], 0);
        place %= block_size;
    } else {
        uint32_t behind = block - l->num_prompt_tokens / block_size;
        if (block >= l->num_prompt_tokens / block_size && behind < end.num_hashes) {
            content = content_of(TRACE_CONTENT_HASH, v->ends.hashes[end.first_hash + behind], 0);
            place %= block_size;
        }
    }
    content_tokens(content, place, 1, &token);
    return token;
}

static quire_token output_token(const verifier *v, uint64_t number, uint32_t index)
{
    recorded_end end = recorded_ends_of(&v->ends, number);
    bool is_stop = end.reason == RECORDING_STOP || end.reason == RECORDING_REPETITION;
    if (is_stop && index + 1 == end.num_output_tokens)
        return END_TOKEN;
    return token_at(v, number, v->lives[number].num_prompt_tokens + index);
}

/* ---- requests --------------------------------------------------------------------- */

static const char *why_inexact(const recording_line *line)
{
    return line->grammar     ? "a request has structured output"
           : line->pooling   ? "a request is a pooling request"
           : line->resumable ? "a request is a session with several inputs"
           : line->mm.count  ? "a request has images, sounds or videos"
                             : NULL;
}

static bool keep(verifier *v, const recording_line *line)
{
    uint64_t before = v->lives_room;
    if (!reserve(&v->lives, line->req + 1, &v->lives_room, sizeof *v->lives) ||
        !reserve(&v->tokens, line->prompt + 1, &v->tokens_room, sizeof *v->tokens))
        return false;
    if (v->lives_room > before)
        memset(v->lives + before, 0, (v->lives_room - before) * sizeof *v->lives);
    if (line->req >= v->num_lives)
        v->num_lives = line->req + 1;
    live *l = &v->lives[line->req];
    free(l->hashes);
    *l = (live){.num_prompt_tokens = (uint32_t)line->prompt};
    size_t bytes = line->hashes.count * sizeof *l->hashes;
    l->hashes = malloc(bytes + 1);
    if (l->hashes == NULL)
        return false;
    if (bytes != 0)
        memcpy(l->hashes, line->hashes.items, bytes);
    l->num_hashes = line->hashes.count;
    return true;
}

static int add(verifier *v, const recording_line *line)
{
    quire_request_params p = QUIRE_REQUEST_PARAMS_INIT;
    char id[ID_BYTES];
    char lora[ID_BYTES];
    if (why_inexact(line) != NULL)
        return give_up(v, why_inexact(line));
    if (line->req == 0 || line->req > MAX_REQS || line->prompt > TRACE_MAX_TOKENS)
        return fail_with("%s: field \"req\" or \"prompt\" is too large", recording_place(v->rec));
    if (!keep(v, line))
        return out_of_memory(v);
    for (uint32_t i = 0; i < line->prompt; i++)
        v->tokens[i] = token_at(v, line->req, i);
    (void)snprintf(id, sizeof id, "%012llu",
                   (unsigned long long)line->req); /* breaks ties in order */
    p.id = (quire_bytes){id, strlen(id)};
    p.prompt = v->tokens;
    p.num_prompt_tokens = (uint32_t)line->prompt;
    p.max_tokens = (uint32_t)line->max_tokens;
    p.min_tokens = (uint32_t)line->min_tokens;
    p.has_eos = 1;
    p.eos_token_id = END_TOKEN;
    p.priority = (int32_t)line->priority;
    p.arrival_time = line->arrival;
    p.client_index = (uint32_t)line->client;
    p.skip_reading_prefix = line->skip_prefix;
    if (line->adapter != 0) {
        (void)snprintf(lora, sizeof lora, "%08x", (uint32_t)(line->adapter >> 32));
        p.lora_name = (quire_bytes){lora, strlen(lora)};
        p.lora_id = (uint32_t)line->adapter | 1;
    }
    int status = quire_sched_add(v->engine.sched, &p, &v->lives[line->req].req);
    v->result->num_requests++;
    if (status != QUIRE_OK)
        return differ(v, "request %llu was added in the recording; repeated: %s",
                      (unsigned long long)line->req, quire_strerror(status));
    return 1;
}

static quire_req_status status_of(recording_reason reason)
{
    return reason == RECORDING_STOP      ? QUIRE_REQ_FINISHED_STOPPED
           : reason == RECORDING_LENGTH  ? QUIRE_REQ_FINISHED_LENGTH
           : reason == RECORDING_IGNORED ? QUIRE_REQ_FINISHED_IGNORED
           : reason == RECORDING_ERROR   ? QUIRE_REQ_FINISHED_ERROR
                                         : QUIRE_REQ_FINISHED_ABORTED;
}

static bool push(recording_list *list, uint64_t item)
{
    if (!grow(&list->items, list->count, &list->room, UINT32_MAX, sizeof item))
        return false;
    list->items[list->count++] = item;
    return true;
}

static int finish(verifier *v, const recording_line *line)
{
    for (uint32_t i = 0; i < line->reqs.count; i++) {
        live *l = live_of(v, line->reqs.items[i]);
        if (l == NULL)
            return differ(v, "request %llu ends in the recording; repeated, it had ended before",
                          (unsigned long long)line->reqs.items[i]);
        int status = quire_sched_finish(v->engine.sched, &l->req, 1, status_of(line->reason), NULL);
        if (status != QUIRE_OK)
            return differ(v, "request %llu: %s", (unsigned long long)line->reqs.items[i],
                          quire_strerror(status));
        if (!push(&v->ended, line->reqs.items[i]))
            return out_of_memory(v);
        l->req = 0;
    }
    return 1;
}

static int end(verifier *v, const recording_line *line)
{
    for (uint32_t i = 0; i < v->ended.count; i++)
        if (v->ended.items[i] == line->req) {
            v->ended.items[i] = v->ended.items[--v->ended.count];
            v->result->num_ended++;
            free(v->lives[line->req].hashes);
            v->lives[line->req] = (live){0};
            return 1;
        }
    return differ(v, "request %llu ends in the recording; repeated, it continues",
                  (unsigned long long)line->req);
}

/* ---- steps ------------------------------------------------------------------------ */

static uint64_t number_of(const verifier *v, quire_req req)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (quire_sched_get_req_info(v->engine.sched, req, &info) != QUIRE_OK)
        return 0;
    return strtoull((const char *)info.id.data, NULL, 10);
}

static int compare_count(verifier *v, uint64_t step, const char *what, uint64_t recorded,
                         uint64_t repeated)
{
    if (recorded == repeated)
        return 1;
    return differ(v, "step %llu: %llu %s in the recording, repeated %llu", (unsigned long long)step,
                  (unsigned long long)recorded, what, (unsigned long long)repeated);
}

/* The pair of a request in a list of pairs; NULL: none. */
static const uint64_t *pair_of(const recording_list *list, uint64_t req)
{
    for (uint32_t i = 0; i + 1 < list->count; i += 2)
        if (list->items[i] == req)
            return &list->items[i];
    return NULL;
}

static int compare_admission(verifier *v, const recording_line *line, const quire_step *step,
                             uint32_t i, uint64_t number)
{
    bool is_new = step->kinds[i] == QUIRE_STEP_NEW;
    const uint64_t *pair = pair_of(is_new ? &line->new_reqs : &line->resumed, number);
    if (pair == NULL)
        return differ(v, "step %llu: request %llu is repeated as %s, in the recording it is not",
                      (unsigned long long)line->step, (unsigned long long)number,
                      is_new ? "new" : "resumed");
    v->result->num_admitted++;
    v->result->num_hit_tokens += pair[1];
    if (pair[1] == step->num_computed_tokens[i])
        return 1;
    return differ(v,
                  "step %llu: request %llu has a hit of %llu tokens in the recording, repeated %u",
                  (unsigned long long)line->step, (unsigned long long)number,
                  (unsigned long long)pair[1], step->num_computed_tokens[i]);
}

static int compare_requests(verifier *v, const recording_line *line, const quire_step *step)
{
    uint32_t num_admitted = 0;
    if (line->tokens.is_given && line->tokens.count != v->reqs.count)
        return fail_with("%s: field \"tokens\": %u numbers for %u requests",
                         recording_place(v->rec), line->tokens.count, v->reqs.count);
    if (compare_count(v, line->step, "requests", v->reqs.count, step->num_reqs) != 1)
        return 0;
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        uint64_t number = number_of(v, step->reqs[i]);
        uint64_t tokens = line->tokens.is_given ? line->tokens.items[i] : 1;
        if (number != v->reqs.items[i])
            return differ(v, "step %llu: request %llu in place %u in the recording, repeated %llu",
                          (unsigned long long)line->step, (unsigned long long)v->reqs.items[i],
                          i + 1, (unsigned long long)number);
        if (tokens != step->num_tokens[i])
            return differ(v,
                          "step %llu: request %llu has %llu tokens in the recording, repeated %u",
                          (unsigned long long)line->step, (unsigned long long)number,
                          (unsigned long long)tokens, step->num_tokens[i]);
        v->result->num_tokens += tokens;
        if (step->kinds[i] == QUIRE_STEP_RUNNING)
            continue;
        num_admitted++;
        if (compare_admission(v, line, step, i, number) != 1)
            return 0;
    }
    uint64_t recorded = (line->new_reqs.count + line->resumed.count) / 2;
    return compare_count(v, line->step, "admitted requests", recorded, num_admitted);
}

static int compare_preempted(verifier *v, const recording_line *line, const quire_step *step)
{
    if (compare_count(v, line->step, "preempted requests", line->preempted.count,
                      step->num_preempted) != 1)
        return 0;
    v->result->num_preempted += step->num_preempted;
    for (uint32_t i = 0; i < step->num_preempted; i++) {
        uint64_t number = number_of(v, step->preempted[i]);
        bool is_known = false;
        for (uint32_t k = 0; k < line->preempted.count; k++)
            is_known |= line->preempted.items[k] == number;
        if (!is_known)
            return differ(v, "step %llu: request %llu is preempted only in the repetition",
                          (unsigned long long)line->step, (unsigned long long)number);
    }
    return 1;
}

static bool keep_flight(verifier *v, const recording_line *line, const quire_step *step)
{
    flight *f = &v->flights[line->step % MAX_FLIGHT];
    uint64_t room = f->room;
    if (!reserve(&f->reqs, v->reqs.count, &room, sizeof *f->reqs))
        return false;
    f->room = (uint32_t)room;
    f->recorded = line->step;
    f->step = step->step;
    f->num_reqs = v->reqs.count;
    if (v->reqs.count != 0)
        memcpy(f->reqs, v->reqs.items, v->reqs.count * sizeof *f->reqs);
    return true;
}

static int schedule(verifier *v, const recording_line *line)
{
    const quire_step *step;
    if (line->reqs.is_given) {
        v->reqs.count = 0;
        for (uint32_t i = 0; i < line->reqs.count; i++)
            if (!push(&v->reqs, line->reqs.items[i]))
                return out_of_memory(v);
    }
    if (line->throttle && quire_sched_set_throttle(v->engine.sched, 1) != QUIRE_OK)
        return differ(v, "step %llu: prefills cannot be throttled", (unsigned long long)line->step);
    int status = quire_sched_schedule(v->engine.sched, &step);
    if (line->throttle)
        (void)quire_sched_set_throttle(v->engine.sched, 0);
    if (status != QUIRE_OK)
        return differ(v, "step %llu: %s", (unsigned long long)line->step, quire_strerror(status));
    v->result->num_steps++;
    int same = compare_requests(v, line, step);
    if (same == 1)
        same = compare_preempted(v, line, step);
    if (same != 1)
        return same;
    quire_sched_counts counts = quire_sched_get_counts(v->engine.sched);
    quire_usage usage = quire_sched_get_usage(v->engine.sched);
    if (compare_count(v, line->step, "running requests", line->running, counts.num_running) != 1 ||
        compare_count(v, line->step, "waiting requests", line->waiting, counts.num_waiting) != 1 ||
        compare_count(v, line->step, "free blocks", line->free, usage.empty + usage.cached) != 1)
        return 0;
    return keep_flight(v, line, step) ? 1 : out_of_memory(v);
}

/* The step's tokens, for each request from the end of what it has. */
static bool make_tokens(verifier *v, const recording_line *line, const flight *f, uint32_t *stride)
{
    *stride = 1;
    for (uint32_t i = 0; i < f->num_reqs && line->sampled.is_given; i++)
        if (line->sampled.items[i] > *stride)
            *stride = (uint32_t)line->sampled.items[i];
    uint64_t num_tokens = (uint64_t)*stride * (f->num_reqs + 1);
    if (!reserve(&v->tokens, num_tokens, &v->tokens_room, sizeof *v->tokens) ||
        !reserve(&v->counts, f->num_reqs + 1, &v->counts_room, sizeof *v->counts))
        return false;
    for (uint32_t i = 0; i < f->num_reqs; i++) {
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        const live *l = live_of(v, f->reqs[i]);
        v->counts[i] = line->sampled.is_given ? (uint32_t)line->sampled.items[i] : 1;
        if (l == NULL || quire_sched_get_req_info(v->engine.sched, l->req, &info) != QUIRE_OK) {
            memset(v->tokens + (size_t)i * *stride, 0, *stride * sizeof *v->tokens);
            continue; /* it has ended: its tokens are dropped */
        }
        uint32_t first = info.num_tokens - l->num_prompt_tokens;
        for (uint32_t k = 0; k < *stride; k++)
            v->tokens[(size_t)i * *stride + k] = output_token(v, f->reqs[i], first + k);
    }
    return true;
}

static int update(verifier *v, const recording_line *line)
{
    flight *f = &v->flights[line->step % MAX_FLIGHT];
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    const quire_outputs *outputs;
    if (f->recorded != line->step)
        return fail_with("%s: step %llu is not in flight", recording_place(v->rec),
                         (unsigned long long)line->step);
    if (line->sampled.is_given && line->sampled.count != f->num_reqs)
        return fail_with("%s: field \"sampled\": %u numbers for %u requests",
                         recording_place(v->rec), line->sampled.count, f->num_reqs);
    if (!make_tokens(v, line, f, &output.stride))
        return out_of_memory(v);
    f->recorded = 0;
    output.sampled = v->tokens;
    output.num_sampled = v->counts;
    int status = quire_sched_update(v->engine.sched, f->step, &output, &outputs);
    if (status != QUIRE_OK)
        return differ(v, "step %llu: update: %s", (unsigned long long)line->step,
                      quire_strerror(status));
    for (uint32_t i = 0; i < outputs->num_outputs; i++) {
        const quire_output *out = &outputs->outputs[i];
        if (out->finish_reason == QUIRE_FINISH_NONE)
            continue;
        for (uint32_t k = 0; k < f->num_reqs; k++) {
            live *l = live_of(v, f->reqs[k]);
            if (l == NULL || l->req != out->req)
                continue;
            if (!push(&v->ended, f->reqs[k]))
                return out_of_memory(v);
            l->req = 0;
            break;
        }
    }
    return 1;
}

static int drafts(verifier *v, const recording_line *line)
{
    for (uint32_t i = 0; i + 1 < line->drafts.count; i += 2) {
        live *l = live_of(v, line->drafts.items[i]);
        uint32_t count = (uint32_t)line->drafts.items[i + 1];
        if (l == NULL)
            continue;
        if (!reserve(&v->tokens, count + 1, &v->tokens_room, sizeof *v->tokens))
            return out_of_memory(v);
        memset(v->tokens, 0, (count + 1) * sizeof *v->tokens);
        int status =
            quire_sched_update_drafts(v->engine.sched, &l->req, 1, v->tokens, count + 1, &count);
        if (status != QUIRE_OK)
            return differ(v, "drafts of request %llu: %s",
                          (unsigned long long)line->drafts.items[i], quire_strerror(status));
    }
    return 1;
}

/* ---- the whole --------------------------------------------------------------------- */

static int reset(verifier *v, const recording_line *line)
{
    uint32_t what = line->is_encoder ? (uint32_t)QUIRE_RESET_ENCODER : 0;
    if (line->is_running && !line->is_encoder)
        what |= (uint32_t)QUIRE_RESET_RUNNING;
    bool done = quire_sched_reset(v->engine.sched, what) == QUIRE_OK;
    if (line->is_encoder || done == line->done)
        return 1;
    return differ(v, "the reset of the cache has %s in the recording, repeated it has %s",
                  line->done ? "succeeded" : "failed", done ? "succeeded" : "failed");
}

static int header(verifier *v, const recording_line *line)
{
    if (v->is_opened)
        return 1;
    if (line->inexact[0] != 0)
        return fail_with("%s: the decisions cannot be repeated: %s", recording_place(v->rec),
                         line->inexact);
    if (line->config == NULL)
        return fail_with("%s: field \"config\" is missing", recording_place(v->rec));
    if (recorded_engine_open(&v->engine, line->config, line->config_bytes) != 0)
        return fail_with("%s: %s", recording_place(v->rec), failure());
    v->is_opened = true;
    return 1;
}

/* 1: it is the same; 0: it differs; -1 and a sentence. */
static int take_line(verifier *v, const recording_line *line)
{
    if (line->type != RECORDING_END && line->type != RECORDING_LOST && v->ended.count != 0)
        return differ(v, "request %llu ends in the repetition; in the recording it continues",
                      (unsigned long long)v->ended.items[0]);
    switch (line->type) {
    case RECORDING_HEADER:
        return header(v, line);
    case RECORDING_REQUEST:
        return add(v, line);
    case RECORDING_SCHEDULE:
        return schedule(v, line);
    case RECORDING_UPDATE:
        return update(v, line);
    case RECORDING_DRAFTS:
        return drafts(v, line);
    case RECORDING_END:
        return end(v, line);
    case RECORDING_FINISH:
        return finish(v, line);
    case RECORDING_RESET:
        return reset(v, line);
    case RECORDING_SET:
        return quire_sched_set_pause(v->engine.sched, (quire_pause)line->pause) == QUIRE_OK
                   ? 1
                   : differ(v, "the pause state %llu cannot be set",
                            (unsigned long long)line->pause);
    case RECORDING_LOST:
        return give_up(v, "lines were lost");
    case RECORDING_CLOSE:
    case RECORDING_OTHER:
        return 1;
    }
    return 1;
}

static void release(verifier *v)
{
    for (uint64_t i = 0; i < v->num_lives; i++)
        free(v->lives[i].hashes);
    for (int i = 0; i < MAX_FLIGHT; i++)
        free(v->flights[i].reqs);
    free(v->lives);
    free(v->tokens);
    free(v->counts);
    free(v->reqs.items);
    free(v->ended.items);
    recorded_engine_close(&v->engine);
    recorded_ends_free(&v->ends);
    recording_close(v->rec);
}

int verify_recording(const char *path, verify_result *result)
{
    const recording_line *line;
    verifier v = {.result = result};
    memset(result, 0, sizeof *result);
    int more = recorded_ends_read(&v.ends, path);
    if (more == 0) {
        v.rec = recording_open(path);
        more = v.rec == NULL ? -1 : 1;
    }
    while (more == 1 && (more = recording_next(v.rec, &line)) == 1)
        more = take_line(&v, line);
    release(&v);
    return more;
}
