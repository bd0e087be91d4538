#include "replay.h"
#include "engine.h"
#include "output/failure.h"
#include "output/progress.h"

#include <quire/error.h>

#include <math.h>

/* One engine, and the trace that it gets. */
typedef struct replay {
    const replay_settings *settings;
    replay_result *result;
    trace_reader *reader;
    arrivals *arrivals;
    ideal_cache ideal;
    engine engine;
    engine_prompt prompt;
    double held_until_s; /* the next request is with the front end until then; negative: none is */
} replay;

/* ---- making it -------------------------------------------------------------- */

trace_reader *replay_open_trace(const replay_settings *s)
{
    return s->paths != NULL ? trace_open_all(s->paths, s->num_paths, &s->trace)
                            : trace_open(s->path, &s->trace);
}

/* The trace, beginning now. */
static int open_trace(replay *r)
{
    const replay_settings *s = r->settings;
    r->reader = replay_open_trace(s);
    if (r->reader == NULL)
        return -1;
    r->arrivals = arrivals_open(r->reader, s->clock, s->speed > 0 ? s->speed : 1, r->engine.now_s);
    if (r->arrivals == NULL)
        return fail_with("not enough memory");
    return 0;
}

static void close_trace(replay *r)
{
    arrivals_close(r->arrivals);
    r->arrivals = NULL;
    trace_close(r->reader);
    r->reader = NULL;
}

static int make_all(replay *r)
{
    engine *e = &r->engine;
    if (open_trace(r) != 0)
        return -1;
    engine_place place = {.format = trace_reader_format(r->reader)};
    if (engine_open(e, r->settings, &place, r->result) != 0)
        return -1;
    r->result->rounds++;
    if (!engine_prompt_open(&r->prompt, e->max_model_len))
        return fail_with("not enough memory");
    e->prompt = &r->prompt;
    return 0;
}

static void unmake(replay *r)
{
    engine_close(&r->engine);
    engine_prompt_close(&r->prompt);
    ideal_free(&r->ideal);
    close_trace(r);
}

/* ---- what happens to requests ------------------------------------------------- */

static void take_event(replay *r, const engine_event *event)
{
    arrival *it = event->from;
    const trace_request *q = &it->request;
    switch (event->kind) {
    case ENGINE_ADDED:
        ideal_arrived(&r->ideal, q, &it->ideal);
        tally_id_block_size(r->result, q, r->result->requests == 0 && r->engine.num_added == 1);
        return;
    case ENGINE_ADMITTED:
        ideal_admitted(
            &r->ideal, q,
            &(ideal_hit){.tokens = event->num_tokens, .block_size = r->settings->block_size},
            &it->ideal);
        return;
    case ENGINE_FIRST_TOKEN:
        tally_ideal(r->result, it);
        ideal_computed(&r->ideal, q, 0);
        return;
    case ENGINE_TOKENS:    /* of asks alone, */
    case ENGINE_COMPUTING: /* and of connectors */
    case ENGINE_LOADING:
        return;
    case ENGINE_LEFT_OUT:
        arrivals_note_left_out(r->arrivals, q, r->engine.now_s);
        break;
    case ENGINE_ENDED:
        arrivals_note_end(r->arrivals, q, r->engine.now_s);
        break;
    }
    arrival_free(it);
}

static void take_events(replay *r)
{
    engine *e = &r->engine;
    for (uint32_t i = 0; i < e->num_events; i++)
        take_event(r, &e->events[i]);
    e->num_events = 0;
}

/* When the engine can have it: the front end takes requests one after the other. */
static double ready_s(const replay *r, const arrival *it)
{
    const time_model *time = r->settings->time;
    uint32_t num_tokens = it->request.num_prompt_tokens;
    return it->time_s + (time->arrival_ms + time->arrival_token_ms * num_tokens) * 1e-3;
}

/* All that have come by now, as long as the scheduler takes them. */
static int take_arrivals(replay *r)
{
    engine *e = &r->engine;
    r->held_until_s = -1;
    for (;;) {
        arrival *it = arrivals_take(r->arrivals, e->now_s);
        if (it == NULL)
            break;
        if (ready_s(r, it) > e->now_s) {
            r->held_until_s = ready_s(r, it);
            arrivals_put_back(r->arrivals, it);
            return 0;
        }
        int status = engine_add(e, it, NULL);
        if (status <= 0)
            arrivals_put_back(r->arrivals, it);
        if (status == 0)
            return 0;
        take_events(r);
        if (status < 0)
            return -1;
    }
    if (arrivals_no_memory(r->arrivals))
        return fail_with("not enough memory for the requests that wait");
    if (arrivals_next_time(r->arrivals, e->now_s) < 0)
        return fail_with("%s", trace_error(r->reader));
    return 0;
}

/* ---- the loop --------------------------------------------------------------- */

/* The work of a replay, in prompt tokens: a token that is generated costs as much as so many that
 * are hashed and looked up. */
enum { OUTPUT_WEIGHT = 30 };

static double work_of(uint64_t prompt_tokens, uint64_t output_tokens)
{
    return (double)prompt_tokens + OUTPUT_WEIGHT * (double)output_tokens;
}

/* How much of the trace was read, 0 to 1; 0: not known. */
static double share_read(const replay *r, const arrivals_read *read)
{
    uint64_t size = trace_size(r->reader);
    uint64_t limit = r->settings->trace.max_requests;
    double share = size > 0 ? (double)trace_position(r->reader) / (double)size : 0;
    double of_limit = limit > 0 ? (double)read->requests / (double)limit : 0;
    if (read->is_all)
        return 1;
    return fmin(fmax(share, of_limit), 1);
}

static replay_progress progress_of(const replay *r)
{
    const replay_result *result = r->result;
    arrivals_read read = arrivals_get_read(r->arrivals);
    double part = share_read(r, &read);
    replay_progress p = {
        .simulated_s = r->engine.now_s, .num_requests = result->requests, .share = -1};
    double total = work_of(read.prompt_tokens, read.output_tokens);
    if (part > 0 && total > 0) {
        p.total_requests = (uint64_t)((double)read.requests / part + 0.5);
        p.share = part * work_of(result->prompt_tokens, result->output_tokens) / total;
    }
    if (r->settings->max_steps > 0)
        p.share = fmax(p.share, (double)result->steps / (double)r->settings->max_steps);
    return p;
}

static void tell_progress(replay *r, double *told_at)
{
    const replay_settings *s = r->settings;
    double now = progress_clock();
    if (now < *told_at + 0.1)
        return;
    *told_at = now;
    replay_progress p = progress_of(r);
    s->progress(s->progress_user, &p);
}

/* If somebody watches, waits until then. False: the replay ends now. */
static bool reach(replay *r, double time_s)
{
    const replay_settings *s = r->settings;
    if (s->watch != NULL)
        s->watch->wait(s->watch->user, time_s);
    if (s->stop != NULL)
        r->result->stopped = s->stop();
    return r->result->stopped == NULL;
}

/* The same trace again, as if nothing of it had come before. 0: it is not wanted. */
static int repeat(replay *r)
{
    const replay_watch *w = r->settings->watch;
    if (w == NULL || !w->again(w->user))
        return 0;
    int err = engine_reset(&r->engine);
    if (err != QUIRE_OK)
        return fail_with("the prefix cache cannot be emptied: %s", quire_strerror(err));
    r->result->errors += trace_num_bad(r->reader);
    close_trace(r);
    ideal_free(&r->ideal);
    r->prompt.filled = 0;
    if (open_trace(r) != 0)
        return -1;
    r->result->format = trace_reader_format(r->reader);
    r->result->rounds++;
    r->engine.phase = ENGINE_BEGIN;
    return 1;
}

/* Nothing can be done now: on to the next arrival. 0: there is none. */
static int go_on(replay *r)
{
    engine *e = &r->engine;
    double next = arrivals_next_time(r->arrivals, e->now_s);
    uint32_t unfinished = quire_sched_get_num_unfinished(e->sched);
    if (next < 0)
        return fail_with("%s", trace_error(r->reader));
    next = r->held_until_s >= 0 ? r->held_until_s : next;
    double next_job = engine_next_job_s(e);
    if (unfinished > 0 && next_job == HUGE_VAL)
        return fail_with("the scheduler cannot continue with %u requests", unfinished);
    if (next == HUGE_VAL && unfinished == 0)
        return repeat(r);
    next = next_job < next ? next_job : next;
    if (!reach(r, next))
        return 0;
    engine_wake(e, next);
    return 1;
}

static int begin_step(replay *r)
{
    engine *e = &r->engine;
    engine_pass_gap(e);
    if (take_arrivals(r) != 0)
        return -1;
    e->num_outside = (uint32_t)arrivals_num_due(r->arrivals);
    if (engine_begin(e) != 0)
        return -1;
    take_events(r);
    return 1;
}

/* The oldest step ends. 0: the replay ends before. */
static int end_step(replay *r)
{
    if (!reach(r, engine_next_s(&r->engine)))
        return 0;
    int status = engine_end(&r->engine);
    take_events(r);
    return status == 0 ? 1 : -1;
}

/* What comes next. 1: and there is more; 0: it is over; -1: an error. */
static int go(replay *r)
{
    switch (r->engine.phase) {
    case ENGINE_BEGIN:
        return begin_step(r);
    case ENGINE_END:
        return end_step(r);
    default:
        return go_on(r);
    }
}

static int run_all(replay *r)
{
    const replay_settings *s = r->settings;
    engine *e = &r->engine;
    double told_at = progress_clock();
    int status = 1;
    for (uint64_t n = 0; status > 0; n++) {
        bool is_last = s->max_steps > 0 && r->result->steps >= s->max_steps;
        if (e->phase == ENGINE_BEGIN && is_last)
            break;
        status = go(r);
        if (s->progress != NULL && (n % 128 == 0 || s->watch != NULL))
            tell_progress(r, &told_at);
    }
    if (status <= 0)
        return status;
    while (e->num_flights > 0 && status > 0) {
        e->phase = ENGINE_END;
        status = end_step(r);
    }
    r->result->is_cut_short = quire_sched_get_num_unfinished(e->sched) > 0 ||
                              arrivals_next_time(r->arrivals, e->now_s) != HUGE_VAL;
    return status < 0 ? -1 : 0;
}

static void finish(replay *r)
{
    replay_result *result = r->result;
    r->engine.num_outside = r->arrivals != NULL ? (uint32_t)arrivals_num_due(r->arrivals) : 0;
    engine_finish(&r->engine, r->engine.now_s);
    result->has_ideal = !ideal_gave_up(&r->ideal);
    if (r->reader != NULL) { /* a trace that could not be opened again has none */
        result->errors += trace_num_bad(r->reader);
        result->has_contents = trace_has_contents(r->reader);
    }
}

/* Runs it for the one who watches, who leaves before the scheduler does. */
static int run_watched(replay *r, double start)
{
    const replay_watch *w = r->settings->watch;
    if (w != NULL && w->begin(w->user, r->engine.sched) != 0)
        return -1;
    int status = run_all(r);
    if (status != 0 && !reach(r, r->engine.now_s)) /* a read that was interrupted is no error */
        status = 0;
    finish(r);
    r->result->wall_s = progress_clock() - start;
    if (w != NULL)
        w->end(w->user, status == 0 ? r->result : NULL);
    return status;
}

int replay_run(const replay_settings *settings, replay_result *result)
{
    replay r = {.settings = settings, .result = result};
    double start = progress_clock();
    *result = (replay_result){0};
    int status = make_all(&r);
    if (status == 0) {
        engine_write_heads(&r.engine);
        status = run_watched(&r, start);
        engine_write_tails(&r.engine);
    }
    unmake(&r);
    return status;
}

void replay_result_free(replay_result *result)
{
    distribution_free(&result->ttft_ms);
    distribution_free(&result->tpot_ms);
    distribution_free(&result->e2e_ms);
    distribution_free(&result->queue_ms);
}
