#include "calibration.h"

#include "output/distribution.h"
#include "output/failure.h"

#include <math.h>
#include <stdlib.h>

enum { HELD_OUT = 5, WINDOWS = 25 };
enum { STEP_TERMS = 5, ROOFLINE = STEP_TERMS, GAP_TERMS = 3, ARRIVAL_TERMS = 2 };

/* The GPU's own time must make the median error smaller by this factor. */
static const double roofline_gain = 0.95;

/* Rows to fit to, and rows that are held out. */
typedef struct split {
    fit_row *fitted;
    fit_row *held_out;
    uint32_t num_fitted;
    uint32_t num_held_out;
} split;

static bool split_open(split *s, uint32_t most)
{
    *s = (split){0};
    s->fitted = malloc(((size_t)most + 1) * sizeof *s->fitted);
    s->held_out = malloc(((size_t)most + 1) * sizeof *s->held_out);
    return s->fitted != NULL && s->held_out != NULL;
}

static void split_close(split *s)
{
    free(s->fitted);
    free(s->held_out);
}

static void split_add(split *s, const fit_row *row, double time_s, double window_s)
{
    bool is_held_out = (uint64_t)fmax(time_s / window_s, 0) % HELD_OUT == HELD_OUT - 1;
    if (is_held_out)
        s->held_out[s->num_held_out++] = *row;
    else
        s->fitted[s->num_fitted++] = *row;
}

/* ---- steps ------------------------------------------------------------------------ */

static fit_row step_row(const time_model *roofline, const recorded_step *step)
{
    const step_work *w = &step->work;
    return (fit_row){.x = {1, (double)w->num_requests, (double)w->num_tokens, (double)w->kv_tokens,
                           (double)w->prefill_pairs, time_model_step_ms(roofline, w)},
                     .y = step->ms};
}

/* The GPU's own time alone. */
static time_model bare(const time_model *model, const gpu_constants *c)
{
    time_model t = *model;
    double layers_ms = model->fixed_ms - c->step_ms;
    t.fixed_ms = c->roofline > 0 ? layers_ms / c->roofline : layers_ms;
    t.roofline = 1;
    t.request_ms = t.token_ms = t.context_ms = t.pair_ms = 0;
    return t;
}

static void set_steps(gpu_constants *c, const double found[FIT_MAX_TERMS], uint32_t num_terms)
{
    c->step_ms = found[0];
    c->request_us = found[1] * 1e3;
    c->token_us = found[2] * 1e3;
    c->context_ns = found[3] * 1e6;
    c->pair_ns = found[4] * 1e6;
    c->roofline = num_terms > ROOFLINE ? found[ROOFLINE] : 0;
}

static int fit_steps(const recorded *m, const time_model *model, gpu_constants *c, calibration *out)
{
    split s;
    double with[FIT_MAX_TERMS];
    double without[FIT_MAX_TERMS];
    const time_model roofline = bare(model, c);
    if (!split_open(&s, m->num_steps)) {
        split_close(&s);
        return fail_with("not enough memory for %u steps", m->num_steps);
    }
    for (uint32_t i = 0; i < m->num_steps; i++) {
        fit_row row = step_row(&roofline, &m->steps[i]);
        if (row.y > 0)
            split_add(&s, &row, m->steps[i].start_s, out->window_s);
    }
    bool is_enough = s.num_fitted >= CALIBRATION_MIN_STEPS;
    bool ok = is_enough && fit_level(s.fitted, s.num_fitted, STEP_TERMS + 1, with) &&
              fit_level(s.fitted, s.num_fitted, STEP_TERMS, without);
    if (ok) {
        fit_errors a = fit_compare(s.fitted, s.num_fitted, STEP_TERMS + 1, with);
        fit_errors b = fit_compare(s.fitted, s.num_fitted, STEP_TERMS, without);
        bool is_with = a.median < roofline_gain * b.median && b.median > 1e-6;
        uint32_t terms = STEP_TERMS + is_with;
        const double *found = is_with ? with : without;
        out->steps = is_with ? a : b;
        out->steps_held_out = fit_compare(s.held_out, s.num_held_out, terms, found);
        set_steps(c, found, terms);
    }
    uint32_t num = s.num_fitted;
    split_close(&s);
    if (!is_enough)
        return fail_with("%u steps to fit to are too few (expected %d or more)", num,
                         CALIBRATION_MIN_STEPS);
    return ok ? 0 : fail_with("not enough memory for %u steps", m->num_steps);
}

/* ---- between steps ------------------------------------------------------------------ */

static int fit_gaps(const recorded *m, gpu_constants *c, calibration *out)
{
    split s;
    double found[FIT_MAX_TERMS] = {0};
    bool ok = split_open(&s, m->num_steps);
    for (uint32_t i = 0; ok && i < m->num_steps; i++) {
        const recorded_step *step = &m->steps[i];
        fit_row row = {.x = {1, (double)step->work.num_requests, step->num_added},
                       .y = step->gap_ms};
        if (row.y > 0)
            split_add(&s, &row, step->start_s, out->window_s);
    }
    if (ok && s.num_fitted > 0) {
        ok = fit_level(s.fitted, s.num_fitted, GAP_TERMS, found);
        out->gaps = fit_compare(s.fitted, s.num_fitted, GAP_TERMS, found);
        out->gaps_held_out = fit_compare(s.held_out, s.num_held_out, GAP_TERMS, found);
    }
    split_close(&s);
    c->gap_ms = found[0];
    c->gap_request_us = found[1] * 1e3;
    c->gap_add_us = found[2] * 1e3;
    return ok ? 0 : fail_with("not enough memory for %u steps", m->num_steps);
}

/* ---- before the first step ------------------------------------------------------------ */

/* The fastest tenth: those did not wait for the end of a step. */
static double fastest_ms(const recorded *m)
{
    double *all = malloc(((size_t)m->num_requests + 1) * sizeof *all);
    double found = 0;
    if (all == NULL || m->num_requests == 0) {
        free(all);
        return 0;
    }
    for (uint32_t i = 0; i < m->num_requests; i++)
        all[i] = fmax(m->requests[i].added_s - m->requests[i].arrival_s, 0) * 1e3;
    qsort(all, m->num_requests, sizeof *all, compare_doubles);
    found = all[m->num_requests / 10];
    free(all);
    return found;
}

static int fit_arrivals(const recorded *m, gpu_constants *c, calibration *out)
{
    fit_row *rows = malloc(((size_t)m->num_requests + 1) * sizeof *rows);
    double found[FIT_MAX_TERMS] = {0};
    if (rows == NULL)
        return fail_with("not enough memory for %u requests", m->num_requests);
    for (uint32_t i = 0; i < m->num_requests; i++) {
        const recorded_request *q = &m->requests[i];
        double ms = (q->scheduled_s - q->arrival_s) * 1e3;
        if (q->was_idle && q->scheduled_s >= 0 && ms > 0)
            rows[out->num_arrivals++] = (fit_row){.x = {1, q->num_prompt_tokens}, .y = ms};
    }
    bool ok = true;
    if (out->num_arrivals >= CALIBRATION_MIN_ARRIVALS) {
        ok = fit_nonnegative(rows, out->num_arrivals, ARRIVAL_TERMS, found);
    } else {
        out->num_arrivals = 0;
        found[0] = fastest_ms(m);
    }
    free(rows);
    /* At an idle engine the request was added within that time, and a replay counts it apart. */
    c->arrival_ms = out->num_arrivals > 0 ? fmax(found[0] - c->gap_add_us / 1e3, 0) : found[0];
    c->arrival_token_us = found[1] * 1e3;
    return ok ? 0 : fail_with("not enough memory for %u requests", m->num_requests);
}

int calibration_fit(const recorded *m, const time_model *model, gpu_constants *c, calibration *out)
{
    *out = (calibration){.window_s = fmin(60, fmax(m->end_s / WINDOWS, 1e-3))};
    if (fit_steps(m, model, c, out) != 0 || fit_gaps(m, c, out) != 0)
        return -1;
    return fit_arrivals(m, c, out);
}
