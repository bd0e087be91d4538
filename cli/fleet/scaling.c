#include "scaling.h"

#include "output/failure.h"

#include <math.h>
#include <stddef.h>

/* ---- policies ---------------------------------------------------------------------- */

static uint32_t workers_of(const scaling_now *now)
{
    return now->ready + now->starting;
}

/* Rounded up, but for the last digits of a quotient. */
static uint32_t round_up(double workers)
{
    double up = ceil(workers - 1e-9 * fabs(workers));
    return up <= 0 ? 0 : up >= UINT32_MAX ? UINT32_MAX : (uint32_t)up;
}

uint32_t scaling_by_queue(const void *queue_, const scaling_now *now)
{
    const scaling_queue *queue = queue_;
    return round_up((double)(now->queued + now->running) / queue->requests);
}

/* How far above its limit; NAN: not known. */
static double excess(double latency_s, double limit_s)
{
    return limit_s > 0 ? latency_s / limit_s : NAN;
}

uint32_t scaling_by_slo(const void *slo_, const scaling_now *now)
{
    const scaling_slo *slo = slo_;
    uint32_t workers = workers_of(now);
    double worst = fmax(excess(now->ttft_s, slo->ttft_s), excess(now->tpot_s, slo->tpot_s));
    if (worst > 1)
        return round_up(workers * fmin(worst, 2));
    bool is_idle = isnan(worst) && now->running == 0;
    if ((worst < slo->low || is_idle) && now->queued == 0 && now->starting == 0 && workers > 0)
        return workers - 1;
    return workers;
}

uint32_t scaling_by_hpa(const void *hpa_, const scaling_now *now)
{
    const scaling_hpa *hpa = hpa_;
    uint32_t workers = workers_of(now);
    if (isnan(now->metric) || now->ready == 0)
        return workers;
    double ratio = now->metric / now->ready / hpa->target;
    if (ratio > 1)
        ratio = fmax(now->metric / workers / hpa->target, 1);
    if (fabs(ratio - 1) <= hpa->tolerance + 1e-9)
        return workers;
    uint32_t wanted = round_up(now->metric / hpa->target);
    return ratio < 1 && wanted > workers ? workers : wanted;
}

uint32_t scaling_by_schedule(const void *schedule_, const scaling_now *now)
{
    const scaling_schedule *schedule = schedule_;
    bool repeats = schedule->period_s > 0;
    double at_s = repeats ? fmod(now->now_s, schedule->period_s) : now->now_s;
    uint32_t workers = workers_of(now);
    if (repeats && schedule->num_rows > 0)
        workers = schedule->rows[schedule->num_rows - 1].workers;
    for (uint32_t i = 0; i < schedule->num_rows && schedule->rows[i].at_s <= at_s; i++)
        workers = schedule->rows[i].workers;
    return workers;
}

/* ---- the decision ------------------------------------------------------------------ */

static bool is_time(double seconds)
{
    return seconds >= 0 && isfinite(seconds);
}

/* The first field that is wrong: its name and value; NULL: none. */
static const char *wrong_time(const scaling_config *c, double *value)
{
    const struct {
        const char *name;
        double value;
    } times[] = {
        {"up_window_s", c->up_window_s},     {"down_window_s", c->down_window_s},
        {"up_cooldown_s", c->up_cooldown_s}, {"down_cooldown_s", c->down_cooldown_s},
        {"startup_s", c->startup_s},         {"price_per_gpu_hour", c->price_per_gpu_hour}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        *value = times[i].value;
        if (!is_time(times[i].value))
            return times[i].name;
    }
    return NULL;
}

int scaling_begin(scaling *s, const scaling_config *c, double now_s)
{
    double value;
    const char *name = wrong_time(c, &value);
    double window_s = fmax(c->up_window_s, c->down_window_s);
    if (name != NULL)
        return fail_with("%s is %g (expected 0 or more, finite)", name, value);
    if (c->policy == NULL)
        return fail_with("policy is NULL (expected a function)");
    if (c->max_workers == 0 || c->min_workers > c->max_workers)
        return fail_with("min_workers is %u and max_workers is %u (expected max_workers of at "
                         "least 1 and of at least min_workers)",
                         c->min_workers, c->max_workers);
    if (!(c->interval_s > 0) || !isfinite(c->interval_s))
        return fail_with("interval_s is %g (expected above 0, finite)", c->interval_s);
    if (window_s / c->interval_s > SCALING_MAX_WINDOW - 1)
        return fail_with("the longest window is %g s (expected at most %d times interval_s: %g s)",
                         window_s, SCALING_MAX_WINDOW - 1,
                         (SCALING_MAX_WINDOW - 1) * c->interval_s);
    *s = (scaling){.config = *c, .paid_s = now_s};
    return 0;
}

static void remember(scaling *s, double now_s, uint32_t recommended)
{
    double longest_s = fmax(s->config.up_window_s, s->config.down_window_s);
    while (s->num_past > 0 && s->past[s->first].at_s < now_s - longest_s) {
        s->first = (s->first + 1) % SCALING_MAX_WINDOW;
        s->num_past--;
    }
    if (s->num_past == SCALING_MAX_WINDOW) { /* called more often than every interval_s */
        s->first = (s->first + 1) % SCALING_MAX_WINDOW;
        s->num_past--;
    }
    s->past[(s->first + s->num_past++) % SCALING_MAX_WINDOW] = (scaling_past){now_s, recommended};
}

/* The number now, moved only as far as all recommendations of the windows want. */
static uint32_t stabilise(const scaling *s, const scaling_now *now)
{
    uint32_t workers = workers_of(now);
    uint32_t least = UINT32_MAX;
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->num_past; i++) {
        const scaling_past *p = &s->past[(s->first + i) % SCALING_MAX_WINDOW];
        if (p->at_s >= now->now_s - s->config.up_window_s && p->recommended < least)
            least = p->recommended;
        if (p->at_s >= now->now_s - s->config.down_window_s && p->recommended > most)
            most = p->recommended;
    }
    if (workers < least)
        workers = least;
    return workers > most ? most : workers;
}

static bool is_cooling(const scaling *s, double now_s, double cooldown_s)
{
    return s->has_changed && now_s < s->changed_s + cooldown_s;
}

uint32_t scaling_decide(scaling *s, const scaling_now *now)
{
    const scaling_config *c = &s->config;
    uint32_t workers = workers_of(now);
    remember(s, now->now_s, c->policy(c->parameters, now));
    uint32_t wanted = stabilise(s, now);
    if (wanted > workers && is_cooling(s, now->now_s, c->up_cooldown_s))
        wanted = workers;
    if (wanted < workers && is_cooling(s, now->now_s, c->down_cooldown_s))
        wanted = workers;
    wanted = wanted < c->min_workers ? c->min_workers : wanted;
    wanted = wanted > c->max_workers ? c->max_workers : wanted;
    if (wanted != workers) {
        s->has_changed = true;
        s->changed_s = now->now_s;
    }
    return wanted;
}

double scaling_ready_s(const scaling *s, double now_s)
{
    return now_s + s->config.startup_s;
}

/* ---- the bill ---------------------------------------------------------------------- */

static double seconds_until(const scaling *s, double now_s)
{
    return s->worker_seconds + s->paid * fmax(now_s - s->paid_s, 0);
}

void scaling_pay(scaling *s, double now_s, uint32_t workers)
{
    s->worker_seconds = seconds_until(s, now_s);
    s->paid_s = fmax(now_s, s->paid_s);
    s->paid = workers;
}

double scaling_gpu_hours(const scaling *s, double now_s)
{
    return seconds_until(s, now_s) * s->config.gpus_per_worker / 3600;
}

double scaling_cost(const scaling *s, double now_s)
{
    return scaling_gpu_hours(s, now_s) * s->config.price_per_gpu_hour;
}
