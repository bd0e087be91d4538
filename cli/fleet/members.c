#include "members.h"

#include "crash.h"
#include "fleet_state.h"
#include "output/failure.h"
#include "output/grown.h"

#include <math.h>

/* TTFT is back when its mean is at most so many times the one before the crash. */
static const double BACK = 1.25;

static bool has_failures(const fleet *f)
{
    return f->settings->failures != NULL;
}

/* ---- states -------------------------------------------------------------------- */

static uint32_t gpus_of(const fleet *f, uint32_t w)
{
    const fleet_settings *s = f->settings;
    return s->pools != NULL ? s->pools[f->pool_of[w]].gpus_per_worker : s->gpus_per_worker;
}

void members_set_state(fleet *f, uint32_t w, member_state state, double time_s)
{
    members *m = &f->members;
    m->count[m->of[w].state]--;
    m->count[state]++;
    m->paid_gpus -= m->of[w].state != MEMBER_OFF ? gpus_of(f, w) : 0;
    m->paid_gpus += state != MEMBER_OFF ? gpus_of(f, w) : 0;
    m->of[w].state = state;
    scaling_pay(&m->scaling, time_s, m->paid_gpus);
    if (m->count[MEMBER_READY] > f->result->members.most_ready)
        f->result->members.most_ready = m->count[MEMBER_READY];
    series_workers(&f->result->members.series, time_s, m->count[MEMBER_READY],
                   m->count[MEMBER_STARTING], m->count[MEMBER_DRAINING]);
}

void members_look_at(fleet *f, uint32_t w)
{
    f->next_s[w] = worker_next_s(&f->workers[w]);
    f->quiet_s[w] = worker_quiet_s(&f->workers[w]);
    fleet_hear(f, w);
}

static void make_ready(fleet *f, uint32_t w, double time_s)
{
    member *m = &f->members.of[w];
    router_worker_info info = fleet_worker_info(f, w);
    members_set_state(f, w, MEMBER_READY, time_s);
    m->crash_s = has_failures(f) ? failures_draw_s(f->settings->failures, w, m->num_crashes, time_s)
                                 : HUGE_VAL;
    members_look_at(f, w);
    router_join(f->routers, fleet_router_time(f, time_s), w, &info);
}

/* Those that have started by now. */
static void make_started_ready(fleet *f)
{
    for (uint32_t w = 0; w < f->settings->num_workers; w++)
        if (f->members.of[w].state == MEMBER_STARTING && f->members.of[w].ready_s <= f->now_s)
            make_ready(f, w, f->now_s);
}

/* ---- requests go back to the router -------------------------------------------- */

static int route_back(fleet *f)
{
    for (arrival *it; (it = arrival_queue_pop(&f->members.back)) != NULL;)
        if (fleet_route_again(f, it) != 0)
            return -1;
    return 0;
}

static int crash_due(fleet *f)
{
    const failures *plan = f->settings->failures;
    members *m = &f->members;
    for (; m->next_event < plan->num_events; m->next_event++) {
        const failure_event *e = &plan->events[m->next_event];
        if (e->from_s > f->now_s)
            break;
        if (e->kind == FAILURE_CRASH && members_crash(f, e->worker, e->to_s) != 0)
            return -1;
    }
    for (uint32_t w = 0; w < f->settings->num_workers; w++) {
        if (m->of[w].crash_s > f->now_s)
            continue;
        m->of[w].num_crashes++;
        if (members_crash(f, w, f->now_s + plan->mtbf_restart_s) != 0)
            return -1;
    }
    return 0;
}

/* What is slow, not heard or down from now on. */
static int apply_failures(fleet *f)
{
    failure_tier tier = failures_tier_now(f->settings->failures, f->now_s);
    if (f->shared != NULL && !shared_moves_set_down(f->shared, f->now_s, tier.is_down, tier.loses))
        return fail_with("not enough memory for the transfers of the shared tier");
    for (uint32_t w = 0; w < f->settings->num_workers; w++) {
        member *m = &f->members.of[w];
        m->failing = failures_now(f->settings->failures, w, f->now_s);
        f->workers[w].engine.slowness = m->failing.slowness;
        fleet_hear(f, w);
    }
    fleet_look_at_changed(f);
    return 0;
}

/* ---- the autoscaler ------------------------------------------------------------ */

static int compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value that `share` of all are at or below; NAN: there are none. */
static double percentile(double *values, uint32_t n, double share)
{
    if (n == 0)
        return NAN;
    qsort(values, n, sizeof *values, compare_reals);
    double rank = ceil(share * n);
    return values[rank < 1 ? 0 : (uint32_t)rank - 1];
}

static int note_latency(double **values, uint32_t *n, uint32_t *capacity, double latency_s)
{
    if (!grow(values, *n, capacity, UINT32_MAX, sizeof **values))
        return -1;
    (*values)[(*n)++] = latency_s;
    return 0;
}

static scaling_now measure(fleet *f)
{
    members *m = &f->members;
    double share = f->settings->scale->percentile;
    scaling_now now = {.now_s = f->now_s,
                       .ready = m->count[MEMBER_READY],
                       .starting = m->count[MEMBER_STARTING],
                       .queued = f->num_waiting + m->back.count,
                       .ttft_s = percentile(m->ttft_s, m->num_ttft, share),
                       .tpot_s = percentile(m->tpot_s, m->num_tpot, share)};
    for (uint32_t w = 0; w < f->settings->num_workers; w++) {
        router_load load = worker_load(&f->workers[w]);
        now.queued += load.waiting;
        now.running += load.running;
    }
    now.metric = (double)(now.queued + now.running);
    m->num_ttft = m->num_tpot = 0;
    return now;
}

static void add_worker(fleet *f)
{
    members *m = &f->members;
    uint32_t w = 0;
    while (w < f->settings->num_workers && m->of[w].state != MEMBER_OFF)
        w++;
    if (w == f->settings->num_workers)
        return; /* the others are draining */
    members_set_state(f, w, MEMBER_STARTING, f->now_s);
    m->of[w].ready_s = scaling_ready_s(&m->scaling, f->now_s);
    f->result->members.num_added++;
}

static uint64_t requests_of(const fleet *f, uint32_t w)
{
    router_load load = worker_load(&f->workers[w]);
    return (uint64_t)load.waiting + load.running;
}

/* One that starts, else the ready one with the fewest requests; of equals the last. */
static uint32_t worker_to_remove(const fleet *f)
{
    const members *m = &f->members;
    member_state state = m->count[MEMBER_STARTING] > 0 ? MEMBER_STARTING : MEMBER_READY;
    uint32_t best = f->settings->num_workers;
    for (uint32_t w = 0; w < f->settings->num_workers; w++)
        if (m->of[w].state == state &&
            (best == f->settings->num_workers || requests_of(f, w) <= requests_of(f, best)))
            best = w;
    return best;
}

static int remove_worker(fleet *f)
{
    uint32_t w = worker_to_remove(f);
    f->result->members.num_removed++;
    if (f->members.of[w].state == MEMBER_STARTING) {
        members_set_state(f, w, MEMBER_OFF, f->now_s);
        return 0;
    }
    router_drain(f->routers, fleet_router_time(f, f->now_s), w);
    members_set_state(f, w, MEMBER_DRAINING, f->now_s);
    f->workers[w].last_end_s = fmax(f->workers[w].last_end_s, f->now_s);
    if (!f->settings->scale->hands_over)
        return 0;
    arrival_queue left = {0};
    int status = worker_hand_over(&f->workers[w], &left);
    f->result->members.num_handed_over += left.count;
    if (status == 0)
        status = crash_take_back(f, &left, NULL);
    arrival_queue_free(&left);
    members_look_at(f, w);
    return status;
}

static int decide(fleet *f)
{
    members *m = &f->members;
    scaling_now now = measure(f);
    uint32_t wanted = scaling_decide(&m->scaling, &now);
    for (uint32_t n = now.ready + now.starting; n < wanted; n++)
        add_worker(f);
    for (uint32_t n = now.ready + now.starting; n > wanted; n--)
        if (remove_worker(f) != 0)
            return -1;
    m->decide_s = f->now_s + m->scaling.config.interval_s;
    return 0;
}

/* Draining workers that are empty, in the order in which they became so. */
static int turn_off_drained(fleet *f)
{
    members *m = &f->members;
    while (m->count[MEMBER_DRAINING] > 0) {
        uint32_t first = f->settings->num_workers;
        for (uint32_t w = 0; w < f->settings->num_workers; w++)
            if (m->of[w].state == MEMBER_DRAINING && worker_is_empty(&f->workers[w]) &&
                (first == f->settings->num_workers ||
                 f->workers[w].last_end_s < f->workers[first].last_end_s))
                first = w;
        if (first == f->settings->num_workers)
            return 0;
        arrival_queue none = {0};
        double off_s = f->workers[first].last_end_s;
        if (worker_crash(&f->workers[first], off_s, &none) != 0)
            return -1;
        if (f->history != NULL)
            history_cleared(f->history, first, off_s);
        router_leave(f->routers, fleet_router_time(f, off_s), first);
        members_set_state(f, first, MEMBER_OFF, off_s);
        m->of[first].crash_s = HUGE_VAL;
        members_look_at(f, first);
    }
    return 0;
}

/* ---- time ---------------------------------------------------------------------- */

double members_next_s(const fleet *f)
{
    const members *m = &f->members;
    double next_s = m->decide_s;
    if (has_failures(f))
        next_s = fmin(next_s, failures_next_s(f->settings->failures, m->told_s));
    bool may_change = has_failures(f) || f->settings->scale != NULL;
    for (uint32_t w = 0; may_change && w < f->settings->num_workers; w++) {
        if (m->of[w].state == MEMBER_STARTING)
            next_s = fmin(next_s, m->of[w].ready_s);
        next_s = fmin(next_s, m->of[w].crash_s);
    }
    return next_s;
}

int members_change(fleet *f)
{
    members *m = &f->members;
    if (turn_off_drained(f) != 0)
        return -1;
    if (members_next_s(f) > f->now_s || fleet_is_done(f))
        return 0;
    m->told_s = f->now_s;
    if (has_failures(f)) {
        if (crash_due(f) != 0 || apply_failures(f) != 0)
            return -1;
    }
    make_started_ready(f);
    if (m->decide_s <= f->now_s && decide(f) != 0)
        return -1;
    make_started_ready(f); /* workers that decide() added, if they start in no time */
    return route_back(f);
}

bool members_may_serve(const fleet *f)
{
    return f->members.count[MEMBER_STARTING] > 0;
}

bool members_are_off(const fleet *f)
{
    for (uint32_t w = 0; w < f->settings->num_workers; w++)
        if (f->pools[f->pool_of[w]].role != ROUTER_PREFILL && f->members.of[w].state != MEMBER_OFF)
            return false;
    return true;
}

/* ---- what happens to requests -------------------------------------------------- */

void members_admitted(fleet *f, const arrival *it, uint32_t num_cached)
{
    fleet_request *request = it->note;
    if (request->lost_tokens > num_cached)
        f->result->members.recomputed_tokens += request->lost_tokens - num_cached;
    request->lost_tokens = 0;
}

void members_refused(fleet *f, const arrival *it, double time_s)
{
    fleet_request *request = it->note;
    members_result *r = &f->result->members;
    if (request->crash == 0)
        return;
    member_crash *c = &r->crashes[request->crash - 1];
    request->crash = 0;
    if (--c->num_open == 0)
        c->resumed_s = time_s;
}

void members_first_token(fleet *f, const arrival *it, double time_s, bool is_again)
{
    members *m = &f->members;
    members_refused(f, it, time_s);
    if (is_again)
        return;
    series_first_token(&f->result->members.series, time_s, time_s - it->time_s);
    if (f->settings->scale != NULL)
        (void)note_latency(&m->ttft_s, &m->num_ttft, &m->ttft_capacity, time_s - it->time_s);
}

void members_end(fleet *f, const arrival *it, double time_s, uint32_t num_tokens)
{
    members *m = &f->members;
    const fleet_request *request = it->note;
    f->workers[request->worker].last_end_s = time_s;
    series_end(&f->result->members.series, time_s, num_tokens);
    if (f->settings->scale != NULL && num_tokens > 1)
        (void)note_latency(&m->tpot_s, &m->num_tpot, &m->tpot_capacity,
                           (time_s - request->first_token_s) / (num_tokens - 1));
}

/* ---- made and unmade ----------------------------------------------------------- */

int members_open(fleet *f)
{
    members *m = &f->members;
    const scale_spec *scale = f->settings->scale;
    static const scaling_schedule stays = {0};
    uint32_t n = f->settings->num_workers;
    uint32_t num_first = f->settings->num_first > 0 ? f->settings->num_first : n;
    scaling_config config = {.policy = scaling_by_schedule,
                             .parameters = &stays,
                             .min_workers = n,
                             .max_workers = n,
                             .interval_s = 1};
    if (scale != NULL)
        config = scale->config;
    config.gpus_per_worker = 1; /* the bill counts GPUs: workers may differ */
    config.price_per_gpu_hour = f->settings->price_per_gpu_hour;
    m->told_s = -1;
    m->decide_s = scale != NULL ? config.interval_s : HUGE_VAL;
    m->of = calloc(n, sizeof *m->of);
    if (m->of == NULL)
        return fail_with("not enough memory for %u workers", n);
    if (scaling_begin(&m->scaling, &config, 0) != 0)
        return -1;
    m->count[MEMBER_OFF] = n;
    for (uint32_t w = 0; w < n; w++) {
        m->of[w] = (member){.crash_s = HUGE_VAL, .failing.slowness = 1};
        members_look_at(f, w);
        if (w < num_first)
            make_ready(f, w, 0);
    }
    return 0;
}

void members_close(fleet *f)
{
    members *m = &f->members;
    for (arrival *it; (it = arrival_queue_pop(&m->back)) != NULL;)
        fleet_request_free(it);
    arrival_queue_free(&m->back);
    free(m->of);
    free(m->ttft_s);
    free(m->tpot_s);
}

void members_finish(fleet *f)
{
    members_result *r = &f->result->members;
    const scaling *s = &f->members.scaling;
    for (uint32_t i = 0; i < r->num_crashes; i++) {
        member_crash *c = &r->crashes[i];
        c->before_s = series_ttft_before(&r->series, c->at_s);
        if (c->resumed_s < HUGE_VAL)
            c->back_s = series_ttft_back_s(&r->series, c->resumed_s, BACK * c->before_s);
    }
    r->has_failures = has_failures(f);
    r->has_scaling = f->settings->scale != NULL;
    r->num_ready = f->members.count[MEMBER_READY];
    r->gpu_hours = scaling_gpu_hours(s, f->now_s);
    r->cost = scaling_cost(s, f->now_s);
}

void members_result_free(members_result *r)
{
    free(r->crashes);
    series_free(&r->series);
}
