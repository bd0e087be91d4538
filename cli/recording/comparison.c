#include "comparison.h"

#include "output/failure.h"

#include <math.h>
#include <stdlib.h>

/* ---- curves ------------------------------------------------------------------------ */

static void curve_add(const comparison *c, comparison_curve *curve, double time_s, double value)
{
    double place = time_s / c->bin_s;
    uint32_t bin = place < 0 ? 0 : place >= COMPARISON_BINS ? COMPARISON_BINS - 1 : (uint32_t)place;
    curve->sum[bin] += value;
    curve->weight[bin] += 1;
}

static void add_step(comparison *c, comparison_side *side, double start_s, double ms,
                     uint64_t running, uint64_t waiting)
{
    distribution_add(&side->ms[COMPARISON_STEP], ms);
    side->steps++;
    side->sum_running += (double)running;
    side->sum_waiting += (double)waiting;
    side->max_running = running > side->max_running ? running : side->max_running;
    side->max_waiting = waiting > side->max_waiting ? waiting : side->max_waiting;
    curve_add(c, &side->curves[COMPARISON_CURVE_RUNNING], start_s, (double)running);
    curve_add(c, &side->curves[COMPARISON_CURVE_WAITING], start_s, (double)waiting);
    curve_add(c, &side->curves[COMPARISON_CURVE_STEP], start_s, ms);
}

/* ---- what was predicted --------------------------------------------------------------- */

/* Milliseconds of a request; tpot negative: it has one token. */
typedef struct latencies {
    double ms[COMPARISON_LATENCIES];
} latencies;

static latencies latencies_of(double arrival_s, double first_s, double last_s, uint32_t tokens)
{
    return (latencies){{(first_s - arrival_s) * 1e3,
                        tokens > 1 ? (last_s - first_s) * 1e3 / (tokens - 1) : -1,
                        (last_s - arrival_s) * 1e3}};
}

static void add_latencies(const comparison *c, comparison_side *side, const latencies *l,
                          double arrival_s)
{
    for (int i = 0; i < COMPARISON_LATENCIES; i++)
        if (l->ms[i] >= 0)
            distribution_add(&side->ms[i], l->ms[i]);
    curve_add(c, &side->curves[COMPARISON_CURVE_TTFT], arrival_s, l->ms[COMPARISON_TTFT]);
}

static void add_error(comparison *c, int metric, double predicted, double measured)
{
    comparison_errors *e = &c->errors[metric];
    if (measured <= 0 || predicted < 0)
        return;
    double error = predicted / measured - 1;
    double place = (error + 1) / 2 * COMPARISON_ERROR_BINS;
    uint32_t bin = place >= COMPARISON_ERROR_BINS ? COMPARISON_ERROR_BINS - 1 : (uint32_t)place;
    e->bins[bin]++;
    c->relative[metric][e->count++] = error;
}

static void see_request(void *user, const replay_request_seen *seen)
{
    comparison *c = user;
    if (seen->number >= c->recording->num_requests)
        return;
    const recorded_request *q = &c->recording->requests[seen->number];
    c->predicted.output_tokens += seen->num_generated;
    c->predicted.hit_tokens += seen->hit_tokens;
    c->predicted.preemptions += seen->num_preempted;
    if (!q->is_whole || q->first_s < 0)
        return;
    latencies predicted =
        latencies_of(seen->arrival_s, seen->first_s, seen->end_s, seen->num_generated);
    latencies measured = latencies_of(q->arrival_s, q->first_s, q->last_s, q->output);
    add_latencies(c, &c->predicted, &predicted, seen->arrival_s);
    add_latencies(c, &c->measured, &measured, q->arrival_s - c->start_s);
    for (int i = 0; i < COMPARISON_LATENCIES; i++)
        add_error(c, i, predicted.ms[i], measured.ms[i]);
    c->num_compared++;
}

static void see_step(void *user, const replay_step_seen *seen)
{
    comparison *c = user;
    c->predicted.step_tokens += seen->num_tokens;
    add_step(c, &c->predicted, seen->start_s, (seen->end_s - seen->start_s) * 1e3, seen->running,
             seen->waiting);
}

/* ---- what was measured ------------------------------------------------------------------ */

static void add_measured(comparison *c)
{
    const recorded *m = c->recording;
    for (uint32_t i = 0; i < m->num_steps; i++) {
        const recorded_step *step = &m->steps[i];
        if (step->ms < 0)
            continue;
        c->measured.step_tokens += step->work.num_tokens;
        add_step(c, &c->measured, step->start_s - c->start_s, step->ms, step->running,
                 step->waiting);
    }
    for (uint32_t i = 0; i < m->num_requests; i++) {
        c->measured.output_tokens += m->requests[i].output;
        c->measured.hit_tokens += m->requests[i].hit;
    }
    c->measured.preemptions = m->num_preemptions;
}

int comparison_open(comparison *c, const recorded *recording)
{
    *c = (comparison){.recording = recording,
                      .probe = {.request = see_request, .step = see_step, .user = c}};
    if (recording->num_requests == 0)
        return fail_with("the recording has no requests");
    c->start_s = recording->requests[0].arrival_s;
    c->bin_s = fmax((recording->end_s - c->start_s) / COMPARISON_BINS, 1e-9);
    for (int i = 0; i < COMPARISON_LATENCIES; i++) {
        c->relative[i] = malloc(recording->num_requests * sizeof(double));
        if (c->relative[i] == NULL)
            return fail_with("not enough memory for %u requests", recording->num_requests);
    }
    add_measured(c);
    return 0;
}

static double middle(const double *sorted, uint64_t count, double share)
{
    return count > 0 ? sorted[(uint64_t)(share * (double)(count - 1) + 0.5)] : 0;
}

void comparison_finish(comparison *c)
{
    for (int i = 0; i < COMPARISON_LATENCIES; i++) {
        comparison_errors *e = &c->errors[i];
        double *all = c->relative[i];
        qsort(all, e->count, sizeof *all, compare_doubles);
        e->signed_median = middle(all, e->count, 0.5);
        for (uint64_t k = 0; k < e->count; k++)
            all[k] = fabs(all[k]);
        qsort(all, e->count, sizeof *all, compare_doubles);
        e->median = middle(all, e->count, 0.5);
        e->p90 = middle(all, e->count, 0.9);
    }
    c->num_excluded = c->recording->num_requests - c->num_compared;
}

void comparison_close(comparison *c)
{
    for (int i = 0; i < COMPARISON_LATENCIES; i++)
        free(c->relative[i]);
    for (int i = 0; i < COMPARISON_METRICS; i++) {
        distribution_free(&c->measured.ms[i]);
        distribution_free(&c->predicted.ms[i]);
    }
}
