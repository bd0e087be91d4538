/* cli/fleet/scaling.h - how many workers a fleet should have now, and what they cost.
 *
 *      policy ─► recommended ─► stabilised ─► cooldowns ─► within min, max ─► wanted
 *      queue, SLO, HPA, schedule             (scaling_decide)
 *
 * policy       a function of plain numbers without memory: the workers it would have.
 * stabilised   a worker is added only if all recommendations of the last `up_window_s` wanted more,
 *              and removed only if all of the last `down_window_s` wanted fewer, as Kubernetes'
 *              horizontal pod autoscaler (HPA) does.
 * cooldown     after a change the number does not grow for up_cooldown_s, and does not shrink for
 *              down_cooldown_s. min and max hold in any case.
 *
 *      workers = ready + starting          draining workers cost money, and do not count
 *
 * A worker that is added at t is ready at t + startup_s. The same calls give the same answers.
 * Times are in seconds and never decrease.
 */
#ifndef QUIRE_CLI_FLEET_SCALING_H
#define QUIRE_CLI_FLEET_SCALING_H

#include <stdbool.h>
#include <stdint.h>

/* What is measured. Latencies are those of the last interval, at the percentile that the limit is
 * for; NAN: no request had one. */
typedef struct scaling_now {
    double now_s;
    uint32_t ready;
    uint32_t starting;
    uint64_t queued;  /* requests that wait in the whole fleet */
    uint64_t running; /* requests that are served */
    double metric;    /* for HPA: the sum over ready workers; NAN: not known */
    double ttft_s;
    double tpot_s;
} scaling_now;

typedef uint32_t scaling_policy(const void *parameters, const scaling_now *now);

/* Workers so that each has `requests` (queued and running) at most. */
typedef struct scaling_queue {
    double requests; /* above 0 */
} scaling_queue;
uint32_t scaling_by_queue(const void *queue, const scaling_now *now);

/* As much larger as the worst latency is above its limit, at most twice as large; one fewer if all
 * latencies are below `low` of their limits and nothing waits. */
typedef struct scaling_slo {
    double ttft_s; /* limits; 0: none */
    double tpot_s;
    double low; /* 0 to 1 */
} scaling_slo;
uint32_t scaling_by_slo(const void *slo, const scaling_now *now);

/* Kubernetes' formula: the metric's sum divided by its target for one worker, rounded up; the same
 * number as now while the mean is within `tolerance` of the target. Workers that start count as
 * idle when the fleet would grow. */
typedef struct scaling_hpa {
    double target;    /* above 0 */
    double tolerance; /* 0.1 in Kubernetes */
} scaling_hpa;
uint32_t scaling_by_hpa(const void *hpa, const scaling_now *now);

/* The workers of the last row whose time has come. */
typedef struct scaling_row {
    double at_s;
    uint32_t workers;
} scaling_row;
typedef struct scaling_schedule {
    const scaling_row *rows; /* by time */
    uint32_t num_rows;
    double
        period_s; /* the rows repeat, before the first row the last one holds; 0: they do not, and
                        before the first row the number stays */
} scaling_schedule;
uint32_t scaling_by_schedule(const void *schedule, const scaling_now *now);

/* ---- the decision ------------------------------------------------------------------ */

typedef struct scaling_config {
    scaling_policy *policy;
    const void *parameters;
    uint32_t min_workers;
    uint32_t max_workers;
    double interval_s; /* between two decisions */
    double up_window_s;
    double down_window_s;
    double up_cooldown_s;
    double down_cooldown_s;
    double startup_s;
    uint32_t gpus_per_worker;
    double price_per_gpu_hour;
} scaling_config;

enum { SCALING_MAX_WINDOW = 1024 }; /* decisions */

typedef struct scaling_past {
    double at_s;
    uint32_t recommended;
} scaling_past;

typedef struct scaling {
    scaling_config config;
    scaling_past past[SCALING_MAX_WINDOW]; /* a ring */
    uint32_t first;
    uint32_t num_past;
    bool has_changed;
    double changed_s; /* when the number changed last */
    /* the bill: */
    uint32_t paid; /* workers that cost money since paid_s */
    double paid_s;
    double worker_seconds;
} scaling;

/* 0; or -1, and a sentence (failure.h) that names the field, its value and its range. */
int scaling_begin(scaling *s, const scaling_config *config, double now_s);
/* How many workers, ready and starting, there should be; to be called every interval_s. */
uint32_t scaling_decide(scaling *s, const scaling_now *now);
/* When a worker that is added now is ready. */
double scaling_ready_s(const scaling *s, double now_s);

/* From now on so many workers cost money: ready, starting and draining. */
void scaling_pay(scaling *s, double now_s, uint32_t workers);
double scaling_gpu_hours(const scaling *s, double now_s);
double scaling_cost(const scaling *s, double now_s);

#endif
