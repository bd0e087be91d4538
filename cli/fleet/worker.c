#include "worker.h"

#include "output/failure.h"
#include "output/grown.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of alert_step and inbox_steps: there is no such request. */
#define NO_STEP UINT64_MAX

/* ---- making it -------------------------------------------------------------- */

/* ---- what its cache has ------------------------------------------------------- */

/* The blocks of one step and kind are one batch. */
static worker_kv *batch_of(worker *w, router_kv_kind kind)
{
    double now_s = w->engine.now_s;
    worker_kv *last = w->num_kv > 0 ? &w->kv[w->num_kv - 1] : NULL;
    if (last != NULL && last->kind == kind && last->time_s == now_s)
        return last;
    if (!grow(&w->kv, w->num_kv, &w->kv_capacity, UINT32_MAX, sizeof *w->kv))
        return NULL;
    w->kv[w->num_kv] = (worker_kv){.time_s = now_s, .kind = kind, .first = w->num_names};
    return &w->kv[w->num_kv++];
}

/* The name of the event's block i. */
static uint64_t name_of(const worker *w, const quire_event *event, uint32_t i)
{
    const unsigned char *hash = event->hashes;
    uint64_t name;
    memcpy(&name, hash + (i + 1) * (size_t)event->hash_bytes - w->digest_bytes, sizeof name);
    return name;
}

static void note_known(const worker *w, const quire_event *event)
{
    if (event->kind != QUIRE_EVENT_STORED)
        hits_note_removed(w->known);
    for (uint32_t i = 0; event->kind == QUIRE_EVENT_STORED && i < event->num_blocks; i++)
        hits_note_stored(w->known, name_of(w, event, i));
}

static void note_kv(void *user, const quire_event *event)
{
    worker *w = user;
    bool is_gone = event->kind == QUIRE_EVENT_REMOVED && !event->still_cached;
    bool is_known =
        event->kind == QUIRE_EVENT_STORED || is_gone || event->kind == QUIRE_EVENT_CLEARED;
    if (!is_known || event->group_id != 0)
        return;
    if (w->known != NULL)
        note_known(w, event);
    for (uint32_t i = 0;
         w->shared.places.count > 0 && event->kind == QUIRE_EVENT_STORED && i < event->num_blocks;
         i++)
        shared_kv_cached(&w->shared, name_of(w, event, i));
    if (!w->has_kv)
        return;
    router_kv_kind kind = event->kind == QUIRE_EVENT_STORED    ? ROUTER_KV_STORED
                          : event->kind == QUIRE_EVENT_REMOVED ? ROUTER_KV_REMOVED
                                                               : ROUTER_KV_CLEARED;
    worker_kv *batch = batch_of(w, kind);
    uint32_t n = kind == ROUTER_KV_CLEARED ? 0 : event->num_blocks;
    for (uint32_t i = 0; i < n && batch != NULL; i++) {
        if (!grow(&w->names, w->num_names, &w->names_capacity, UINT32_MAX, sizeof *w->names)) {
            batch = NULL;
            break;
        }
        w->names[w->num_names++] = name_of(w, event, i);
        batch->count++;
    }
    w->no_memory |= batch == NULL;
}

int worker_open(worker *w, const replay_settings *settings, const worker_config *config)
{
    *w = (worker){.next_job_s = HUGE_VAL,
                  .alert_step = NO_STEP,
                  .inbox_steps = NO_STEP,
                  .digest_bytes = (uint32_t)quire_hash_digest_bytes(settings->hash_algo)};
    step_work work = {0};
    step_work_add(settings->time, &work, 1, 0);
    w->least_step_s = time_model_step_ms(settings->time, &work) * 1e-3 * (1 - 1e-9);
    bool has_events = config->has_kv || config->known != NULL || config->places.count > 0;
    engine_place place = {
        .format = config->format, .on_kv = has_events ? note_kv : NULL, .user = w};
    quire_connector connector;
    w->has_kv = config->has_kv;
    w->known = config->known;
    w->is_remote = config->role != ROUTER_SERVE || config->places.count > 0;
    w->is_lean = config->is_lean && !w->is_remote;
    w->least_latency_s = config->least_latency_s;
    if (config->places.count > 0)
        shared_kv_open(&w->shared, &config->places, &w->engine, &w->remote, &connector);
    if (w->is_remote) {
        bool is_layered = config->is_layered && config->role == ROUTER_PREFILL;
        if (config->places.count == 0)
            remote_kv_open(&w->remote, &w->engine, is_layered, &connector);
        place.connector = &connector;
        place.answer = remote_kv_answer;
        place.connector_user = &w->remote;
    }
    int status = engine_open(&w->engine, settings, &place, &w->result);
    if (status == 0)
        w->pool = quire_cache_get_pool(quire_sched_get_cache(w->engine.sched));
    return status;
}

void fleet_request_free(arrival *it)
{
    fleet_request *request = it != NULL ? it->note : NULL;
    if (request != NULL)
        free(request->hashes);
    free(request);
    arrival_free(it);
}

void worker_close(worker *w)
{
    engine *e = &w->engine;
    for (uint32_t i = engine_next_live(e, 0); i < e->num_lives; i = engine_next_live(e, i + 1)) {
        fleet_request_free(e->lives[i].from);
        e->lives[i].from = NULL;
    }
    for (arrival *it; (it = arrival_queue_pop(&w->inbox)) != NULL;)
        fleet_request_free(it);
    for (uint32_t i = 0; i < e->num_events; i++)
        if (e->events[i].kind == ENGINE_ENDED) /* and nobody took it */
            fleet_request_free(e->events[i].from);
    arrival_queue_free(&w->inbox);
    fleet_request_free(w->back);
    engine_close(e);
    replay_result_free(&w->result);
    remote_kv_close(&w->remote);
    shared_kv_close(&w->shared);
    free(w->kv);
    free(w->names);
}

/* ---- requests ------------------------------------------------------------------ */

/* Steps that a request needs at least. */
static uint64_t least_steps(const engine *e, uint32_t num_prompt_tokens, uint32_t num_output_tokens)
{
    if (num_prompt_tokens >= e->max_model_len || num_output_tokens == 0)
        return 1;
    uint32_t most = e->max_model_len - num_prompt_tokens; /* it ends there */
    return num_output_tokens < most ? num_output_tokens : most;
}

bool worker_give(worker *w, arrival *it, double now_s)
{
    w->given_s = now_s;
    remote_kv_given(&w->remote, it);
    const trace_request *q = &it->request;
    if (((const fleet_request *)it->note)->has_follower) {
        uint64_t least = least_steps(&w->engine, q->num_prompt_tokens, q->num_output_tokens);
        w->inbox_steps = least < w->inbox_steps ? least : w->inbox_steps;
    }
    w->outside_tokens += it->request.num_prompt_tokens;
    return arrival_queue_push(&w->inbox, it);
}

/* An idle worker goes on now. */
static bool note_news(worker *w, bool has_memory, double now_s)
{
    if (now_s < w->next_job_s)
        w->next_job_s = now_s;
    return has_memory;
}

bool worker_received(worker *w, quire_req req, bool has_failed, double now_s)
{
    if (w->shared.places.count > 0)
        return note_news(w, shared_kv_received(&w->shared, req, has_failed), now_s);
    return note_news(w, remote_kv_received(&w->remote, req, has_failed), now_s);
}

bool worker_sent(worker *w, quire_req req, double now_s)
{
    return note_news(w, remote_kv_sent(&w->remote, req), now_s);
}

/* The next request that has come by now. */
static arrival *take_request(worker *w)
{
    arrival *it = w->back;
    const arrival *first = arrival_queue_first(&w->inbox);
    w->back = NULL;
    if (it == NULL && first != NULL && first->time_s <= w->engine.now_s)
        it = arrival_queue_pop(&w->inbox);
    return it;
}

static void note_alert(worker *w, uint64_t step)
{
    w->alert_step = step < w->alert_step ? step : w->alert_step;
}

/* Tokens that the step which admits the request computes of it, at least. Its worker finds no more
 * than the infinite cache, which has seen all requests that were there before; of contents without
 * block ids it may. */
static uint64_t least_tokens(const worker *w, const arrival *it)
{
    const quire_sched_config *c = &w->engine.settings->sched;
    const fleet_request *request = it->note;
    uint64_t prompt = it->request.num_prompt_tokens;
    uint64_t most = c->long_prefill_token_threshold > 0 ? c->long_prefill_token_threshold : prompt;
    if (!request->has_ideal || it->ideal.tokens >= prompt)
        return 1;
    uint64_t least = prompt - it->ideal.tokens;
    return least < most ? least : most;
}

/* In the order of arrival, a step admits at most as many requests as may run, less those that run,
 * and none behind requests that need all of its tokens: others need no memory in the scheduler yet.
 */
static bool has_enough(const worker *w)
{
    const quire_sched_config *c = &w->engine.settings->sched;
    bool is_in_order = c->policy == QUIRE_POLICY_FCFS && c->lookahead == 0 &&
                       c->prefix_window == 0 && w->engine.tiers == NULL;
    return w->is_lean && is_in_order &&
           (w->waiting_tokens >= c->max_num_batched_tokens ||
            quire_sched_get_num_unfinished(w->engine.sched) >= c->max_num_seqs);
}

/* All that have come by now, as long as the scheduler takes them. */
static int take_requests(worker *w)
{
    engine *e = &w->engine;
    for (;;) {
        arrival *it = has_enough(w) ? NULL : take_request(w);
        if (it == NULL)
            break;
        fleet_request *request = it->note;
        engine_names names = {.hashes = request->hashes, .count = request->num_hashes};
        int status = engine_add(e, it, request->hashes != NULL ? &names : NULL);
        bool is_left_out = status > 0 && e->events[e->num_events - 1].kind == ENGINE_LEFT_OUT;
        if (status <= 0)
            w->back = it;
        if (status < 0)
            return -1;
        if (status == 0)
            break;
        free(request->hashes);
        request->hashes = NULL;
        w->outside_tokens -= it->request.num_prompt_tokens;
        w->waiting_tokens += is_left_out ? 0 : least_tokens(w, it);
        w->stops |= is_left_out && request->has_follower;
        if (is_left_out)
            remote_kv_left_out(&w->remote, it);
        if (request->has_follower && !is_left_out)
            note_alert(w, e->result->steps + least_steps(e, it->request.num_prompt_tokens,
                                                         it->request.num_output_tokens));
    }
    e->num_outside = w->inbox.count + (w->back != NULL);
    if (e->num_outside == 0)
        w->inbox_steps = NO_STEP;
    return 0;
}

/* ---- time ------------------------------------------------------------------------ */

double worker_next_s(const worker *w)
{
    if (w->engine.phase != ENGINE_IDLE)
        return engine_next_s(&w->engine);
    const arrival *first = w->back != NULL ? w->back : arrival_queue_first(&w->inbox);
    double next_s = first != NULL ? fmax(first->time_s, w->given_s) : HUGE_VAL;
    if (w->back != NULL && remote_kv_waits(&w->remote)) /* until then there is no room for it */
        next_s = HUGE_VAL;
    next_s = w->next_job_s < next_s ? w->next_job_s : next_s;
    return next_s > w->engine.now_s ? next_s : w->engine.now_s;
}

/* Steps begin then, at the earliest. */
static double next_step_s(const worker *w)
{
    const engine *e = &w->engine;
    double next_s = e->free_s > e->now_s ? e->free_s : e->now_s;
    double first_s = e->phase == ENGINE_IDLE ? worker_next_s(w) : next_s;
    return first_s > next_s ? first_s : next_s;
}

static double ends_s(const worker *w)
{
    const engine *e = &w->engine;
    uint64_t steps = e->result->steps;
    uint64_t least = w->inbox_steps; /* that begin from now on */
    if (w->alert_step <= steps)
        return e->num_flights > 0 ? e->flights[e->first_flight].end_s : worker_next_s(w);
    least = w->alert_step - steps < least ? w->alert_step - steps : least;
    return least >= NO_STEP - steps ? HUGE_VAL : next_step_s(w) + (double)least * w->least_step_s;
}

double worker_quiet_s(const worker *w)
{
    double quiet_s = ends_s(w);
    bool may_begin = remote_kv_may_begin(&w->remote) || w->shared.places.count > 0;
    double begin_s = may_begin ? worker_next_s(w) : HUGE_VAL;
    return begin_s + w->least_latency_s < quiet_s ? begin_s + w->least_latency_s : quiet_s;
}

/* The first step that may end a request with a follower, from the requests that it has. */
static void find_alert(worker *w)
{
    const engine *e = &w->engine;
    uint64_t steps = e->result->steps;
    uint64_t in_flight = e->num_flights < steps ? e->num_flights : steps;
    uint64_t soonest = steps - in_flight + 1;
    w->alert_step = NO_STEP;
    for (uint32_t i = engine_next_live(e, 0); i < e->num_lives && w->alert_step > soonest;
         i = engine_next_live(e, i + 1)) {
        const live *l = &e->lives[i];
        const fleet_request *request = l->from->note;
        if (request == NULL || !request->has_follower)
            continue;
        uint64_t most = least_steps(e, l->prompt_tokens, l->output_tokens);
        uint64_t left = most > l->num_generated ? most - l->num_generated : 1;
        note_alert(w, steps - in_flight + left);
    }
}

static int begin(worker *w)
{
    engine *e = &w->engine;
    if (take_requests(w) != 0)
        return -1;
    if (w->stops)
        return 0;
    w->num_behind = e->num_outside;
    uint32_t from = e->num_events;
    shared_kv_begin(&w->shared);
    int status = engine_begin(e);
    shared_kv_began(&w->shared);
    for (uint32_t i = from; i < e->num_events; i++)
        if (e->events[i].kind == ENGINE_ADMITTED)
            w->waiting_tokens -= least_tokens(w, e->events[i].from);
    remote_kv_began(&w->remote);
    return status;
}

static int end(worker *w)
{
    engine *e = &w->engine;
    uint32_t from = e->num_events;
    uint32_t ended = e->first_flight;
    bool has_news = remote_kv_has_news(&w->remote);
    if (engine_end(e) != 0)
        return -1;
    if (w->shared.places.count > 0)
        shared_kv_ended(&w->shared, ended);
    w->report = worker_load(w);
    w->report.waiting = quire_sched_get_counts(e->sched).num_waiting + w->num_behind;
    for (uint32_t i = from; i < e->num_events; i++)
        if (e->events[i].kind == ENGINE_ENDED)
            w->stops |= ((const fleet_request *)e->events[i].from->note)->has_follower;
    if (w->stops || w->alert_step <= e->result->steps)
        find_alert(w);
    if (e->phase != ENGINE_IDLE)
        return 0;
    w->next_job_s = has_news ? e->now_s : engine_next_job_s(e); /* blocks are free, or filled */
    uint32_t unfinished = quire_sched_get_num_unfinished(e->sched);
    if (unfinished > 0 && w->next_job_s == HUGE_VAL && !remote_kv_waits(&w->remote))
        return fail_with("the scheduler cannot continue with %u requests", unfinished);
    return 0;
}

/* What comes next, if it may. 1: it may not. */
static int go(worker *w, double until_s)
{
    engine *e = &w->engine;
    double next_s = worker_next_s(w);
    switch (e->phase) {
    case ENGINE_BEGIN:
        return next_s < until_s ? begin(w) : 1;
    case ENGINE_END:
        return next_s <= until_s ? end(w) : 1;
    default:
        if (next_s >= until_s)
            return 1;
        engine_wake(e, next_s);
        return 0;
    }
}

void worker_advance(worker *w, double until_s, engine_prompt *prompt)
{
    w->engine.prompt = prompt;
    w->status = 0;
    while (w->status == 0 && !w->stops && !w->no_memory)
        w->status = go(w, until_s);
    if (w->status >= 0)
        w->status = w->no_memory || w->shared.no_memory ? fail_with("not enough memory") : 0;
    if (w->status < 0)
        snprintf(w->why, sizeof w->why, "%s", failure());
}

router_load worker_load(const worker *w)
{
    const engine *e = &w->engine;
    quire_sched_counts counts = quire_sched_get_counts(e->sched);
    uint64_t used = e->snapshot.blocks.active;
    return (router_load){.waiting = counts.num_waiting + w->inbox.count + (w->back != NULL ? 1 : 0),
                         .running = counts.num_running,
                         .prefill_tokens = e->prefill_left + w->outside_tokens,
                         .context_tokens = e->context_tokens,
                         .used_blocks = (uint32_t)used,
                         .kv_usage = (double)used / (double)(e->num_blocks - 1)};
}

void worker_taken(worker *w)
{
    w->engine.num_events = 0;
    w->num_kv = 0;
    w->num_names = 0;
    shared_kv_taken(&w->shared);
    w->stops = false;
}

/* ---- requests leave ------------------------------------------------------------------ */

static bool give_back(arrival_queue *back, arrival *it)
{
    fleet_request *request = it->note;
    free(request->hashes);
    request->hashes = NULL;
    if (arrival_queue_push(back, it))
        return true;
    fleet_request_free(it);
    return false;
}

static bool give_back_inbox(worker *w, arrival_queue *back)
{
    bool ok = w->back == NULL || give_back(back, w->back);
    w->back = NULL;
    for (arrival *it; ok && (it = arrival_queue_pop(&w->inbox)) != NULL;)
        ok = give_back(back, it);
    w->engine.num_outside = 0;
    w->outside_tokens = 0;
    w->inbox_steps = NO_STEP;
    return ok;
}

/* What it generated does not count: it is generated again. */
static int abort_live(worker *w, const live *l)
{
    arrival *it = l->from;
    w->waiting_tokens -= l->scheduled_s < 0 ? least_tokens(w, it) : 0;
    w->result.output_tokens -= l->num_generated;
    return engine_abort(&w->engine, it);
}

static int give_back_live(worker *w, const live *l, arrival_queue *back)
{
    arrival *it = l->from;
    fleet_request *request = it->note;
    request->lost_tokens = l->scheduled_s >= 0 ? l->num_computed : 0;
    if (abort_live(w, l) != 0)
        return -1;
    return give_back(back, it) ? 0 : fail_with("not enough memory");
}

static int give_back_lives(worker *w, bool has_all, arrival_queue *back)
{
    for (uint32_t i = 0; i < w->engine.num_lives; i++) {
        live *l = &w->engine.lives[i];
        if (l->from != NULL && (has_all || l->scheduled_s < 0) && give_back_live(w, l, back) != 0)
            return -1;
    }
    return 0;
}

int worker_crash(worker *w, double time_s, arrival_queue *back)
{
    if (!give_back_inbox(w, back))
        return fail_with("not enough memory");
    remote_kv_crash(&w->remote);
    if (give_back_lives(w, true, back) != 0 || engine_crash(&w->engine, time_s) != 0)
        return -1;
    remote_kv_crashed(&w->remote);
    shared_kv_crashed(&w->shared);
    if (w->known != NULL)
        hits_note_removed(w->known);
    w->alert_step = NO_STEP;
    w->next_job_s = HUGE_VAL;
    w->report = (router_load){0};
    worker_taken(w);
    return 0;
}

int worker_hand_over(worker *w, arrival_queue *back)
{
    if (!give_back_inbox(w, back))
        return fail_with("not enough memory");
    return give_back_lives(w, false, back);
}

/* Of a request that it has not added. False: it has. */
static bool take_outside(worker *w, arrival *it)
{
    if (w->back != it && !arrival_queue_remove(&w->inbox, it))
        return false;
    w->back = w->back == it ? NULL : w->back;
    w->outside_tokens -= it->request.num_prompt_tokens;
    w->engine.num_outside = w->inbox.count + (w->back != NULL);
    return true;
}

static int take_live(worker *w, const arrival *it)
{
    int status = -1;
    w->remote.is_leaving = true;
    for (uint32_t i = 0; i < w->engine.num_lives; i++)
        if (w->engine.lives[i].from == it)
            status = abort_live(w, &w->engine.lives[i]);
    w->remote.is_leaving = false;
    return status;
}

int worker_take(worker *w, arrival *it, double now_s)
{
    fleet_request *request = it->note;
    if (!take_outside(w, it) && take_live(w, it) != 0)
        return -1;
    remote_kv_left_out(&w->remote, it);
    free(request->hashes);
    request->hashes = NULL;
    (void)note_news(w, true, now_s); /* there may be room for others */
    return 0;
}

bool worker_is_empty(const worker *w)
{
    return w->inbox.count == 0 && w->back == NULL && w->engine.num_flights == 0 &&
           quire_sched_get_num_unfinished(w->engine.sched) == 0;
}

void worker_finish(worker *w, double end_s)
{
    engine *e = &w->engine;
    e->num_outside = w->inbox.count + (w->back != NULL);
    engine_finish(e, end_s);
}
