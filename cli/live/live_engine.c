#include "live_engine.h"
#include "output/progress.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- asks come ------------------------------------------------------------------ */

/* NULL: no memory. */
static arrival *make_arrival(live_engine *e, ask *a)
{
    arrival *it = calloc(1, sizeof *it);
    if (it == NULL)
        return NULL;
    /* It came while the last step was computed, or while there was none. */
    double time_s = pace_simulated_s(&e->pace, a->created_s);
    it->time_s = fmax(fmin(time_s, e->engine.now_s), 0);
    it->number = e->num_asks++;
    it->ask = &a->engine;
    it->note = a;
    it->request = (trace_request){.num_prompt_tokens = a->request.num_tokens,
                                  .num_output_tokens = a->request.max_tokens,
                                  .priority = a->request.priority,
                                  .pin_s = -1,
                                  .number = it->number};
    return it;
}

static void end_ask(live_engine *e, ask *a, ask_end end)
{
    a->mine.end = end;
    inbox_tell(&e->inbox, a, &a->mine);
}

static int take_new(live_engine *e)
{
    ask *a;
    while ((a = inbox_take(&e->inbox)) != NULL) {
        a->arrival = make_arrival(e, a);
        if (a->arrival == NULL || !arrival_queue_push(&e->waiting, a->arrival)) {
            arrival_free(a->arrival);
            end_ask(e, a, ASK_ABORT);
            return fail_with("not enough memory for the requests that wait");
        }
        a->is_waiting = true;
    }
    return 0;
}

static int take_cancelled(live_engine *e)
{
    ask *a;
    int status = 0;
    while (status == 0 && (a = inbox_take_cancelled(&e->inbox)) != NULL) {
        arrival *it = a->arrival;
        e->num_aborted++;
        if (a->is_waiting) {
            it->note = NULL; /* dropped when its turn comes */
        } else {
            status = engine_abort(&e->engine, it);
            arrival_free(it);
        }
        end_ask(e, a, ASK_ABORT);
    }
    return status;
}

/* As many as the scheduler takes, in the order in which they came. */
static int feed(live_engine *e)
{
    while (e->waiting.count > 0) {
        arrival *it = arrival_queue_pop(&e->waiting);
        ask *a = it->note;
        if (a == NULL) {
            arrival_free(it);
            continue;
        }
        int status = engine_add(&e->engine, it, NULL);
        a->is_waiting = status == 0;
        if (status == 0 && !arrival_queue_push(&e->waiting, it))
            return fail_with("not enough memory for the requests that wait");
        if (status <= 0)
            return status;
    }
    return 0;
}

/* ---- what happens to them ---------------------------------------------------------- */

static void take_event(live_engine *e, const engine_event *event)
{
    arrival *it = event->from;
    ask *a = it->note;
    switch (event->kind) {
    case ENGINE_ADDED:
    case ENGINE_FIRST_TOKEN:
    case ENGINE_COMPUTING:
    case ENGINE_LOADING:
        return;
    case ENGINE_ADMITTED:
        a->mine.cached_tokens = event->num_tokens;
        return;
    case ENGINE_TOKENS:
        a->mine.num_generated = event->num_tokens;
        inbox_tell(&e->inbox, a, &a->mine);
        return;
    case ENGINE_LEFT_OUT:
        arrival_free(it);
        end_ask(e, a, ASK_REFUSED);
        return;
    case ENGINE_ENDED:
        arrival_free(it);
        a->mine.num_generated = event->num_tokens;
        end_ask(e, a, event->finish == QUIRE_FINISH_STOP ? ASK_STOP : ASK_LENGTH);
        return;
    }
}

static void take_events(live_engine *e)
{
    for (uint32_t i = 0; i < e->engine.num_events; i++)
        take_event(e, &e->engine.events[i]);
    e->engine.num_events = 0;
}

/* ---- the loop ------------------------------------------------------------------------ */

static int begin_step(live_engine *e)
{
    int status = take_new(e);
    if (status == 0)
        status = take_cancelled(e);
    if (status == 0)
        status = feed(e);
    e->engine.num_outside = e->waiting.count;
    if (status == 0)
        status = engine_begin(&e->engine);
    take_events(e);
    return status;
}

static int end_step(live_engine *e)
{
    double until_s = engine_next_s(&e->engine);
    double left;
    while ((left = pace_left_s(&e->pace, until_s, progress_clock())) > 0 &&
           !inbox_is_closed(&e->inbox))
        inbox_pause(&e->inbox, left);
    int status = engine_end(&e->engine);
    take_events(e);
    return status;
}

/* A publisher tells the whole cache with the steps of the scheduler: an idle engine makes some for
 * it. */
static bool owes_steps(const live_engine *e)
{
    quire_publisher_stats stats = QUIRE_PUBLISHER_STATS_INIT;
    return e->publisher != NULL && quire_publisher_get_stats(e->publisher, &stats) == QUIRE_OK &&
           stats.is_whole == 0;
}

/* Until an ask comes or goes, or a job of the tiers ends. */
static void idle(live_engine *e)
{
    enum { STEP_MS = 3 };
    double job_s = engine_next_job_s(&e->engine);
    double left = HUGE_VAL;
    if (job_s < HUGE_VAL)
        left = fmax(pace_left_s(&e->pace, job_s, progress_clock()), 0);
    if (owes_steps(e))
        left = fmin(left, STEP_MS * 1e-3);
    if (left > 0)
        inbox_wait(&e->inbox, left);
    double first_s = inbox_first_s(&e->inbox); /* that this thread woke late is not its fault */
    double real_s = first_s >= 0 ? first_s : progress_clock();
    double now_s = fmin(pace_simulated_s(&e->pace, real_s), job_s);
    engine_wake(&e->engine, fmax(now_s, e->engine.now_s));
}

static int run_all(live_engine *e)
{
    int status = 0;
    (void)pace_left_s(&e->pace, 0, progress_clock());
    while (status == 0 && !inbox_is_closed(&e->inbox)) {
        switch (e->engine.phase) {
        case ENGINE_BEGIN:
            status = begin_step(e);
            break;
        case ENGINE_END:
            status = end_step(e);
            break;
        case ENGINE_IDLE:
            idle(e);
            break;
        }
    }
    return status;
}

/* All asks that are not done. */
static void abort_all(live_engine *e)
{
    ask *a;
    inbox_close(&e->inbox);
    while (inbox_take_cancelled(&e->inbox) != NULL) {
    }
    for (uint32_t i = 0; i < e->engine.num_lives; i++) {
        arrival *it = e->engine.lives[i].from;
        e->engine.lives[i].from = NULL;
        if (it != NULL)
            end_ask(e, it->note, ASK_ABORT);
        arrival_free(it);
    }
    while (e->waiting.count > 0) {
        arrival *it = arrival_queue_pop(&e->waiting);
        if (it->note != NULL)
            end_ask(e, it->note, ASK_ABORT);
        arrival_free(it);
    }
    while ((a = inbox_take(&e->inbox)) != NULL)
        end_ask(e, a, ASK_ABORT);
}

static void *run(void *user)
{
    live_engine *e = user;
    double start = progress_clock();
    if (run_all(e) != 0) {
        snprintf(e->failure, sizeof e->failure, "%s", failure());
        atomic_store(&e->has_failed, true);
    }
    abort_all(e);
    engine_finish(&e->engine, e->engine.now_s);
    e->result.wall_s = progress_clock() - start;
    return NULL;
}

/* ---- opening and closing ---------------------------------------------------------------- */

int live_engine_open(live_engine *e, const replay_settings *settings, double speed,
                     void (*sleep)(void *), void (*wake)(void *))
{
    engine_place place = {.format = TRACE_DETECT};
    *e = (live_engine){.pace = {.speed = speed}};
    e->has_engine = true;
    if (engine_open(&e->engine, settings, &place, &e->result) != 0)
        return -1;
    e->has_inbox = inbox_open(&e->inbox, e->engine.max_requests, sleep, wake);
    return e->has_inbox ? 0 : fail_with("not enough memory");
}

void live_engine_close(live_engine *e)
{
    if (e->has_engine)
        engine_close(&e->engine);
    if (e->has_inbox)
        inbox_free(&e->inbox);
    arrival_queue_free(&e->waiting);
    replay_result_free(&e->result);
    *e = (live_engine){0};
}

quire_monitor *live_engine_monitor(const live_engine *e)
{
    return quire_sched_get_monitor(e->engine.sched);
}

int live_engine_start(live_engine *e)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the main thread */
    e->has_thread = pthread_create(&e->thread, NULL, run, e) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e->has_thread ? 0 : fail_with("cannot start a thread for an engine");
}

void live_engine_stop(live_engine *e)
{
    if (!e->has_inbox)
        return;
    inbox_close(&e->inbox);
    if (e->has_thread)
        pthread_join(e->thread, NULL);
    else
        abort_all(e);
    e->has_thread = false;
}
