/* comparison_report.c - the comparison as a table, and as JSON. */
#include "comparison.h"
#include "replay/report.h"

#include <math.h>

static const char *const metric_names[COMPARISON_METRICS] = {
    "time to first token", "time per output token", "end to end", "time of a step"};
static const char *const metric_keys[COMPARISON_METRICS] = {"ttft_ms", "tpot_ms", "e2e_ms",
                                                            "step_ms"};
static const char *const curve_keys[COMPARISON_CURVES] = {"ttft_ms", "running", "waiting",
                                                          "step_ms"};

/* The mean, and three percentiles. */
enum { FIGURES = 4 };
static const char *const figure_names[FIGURES] = {"mean", "p50", "p90", "p99"};

static double figure_of(distribution *d, int figure)
{
    static const double shares[FIGURES] = {0, 0.5, 0.9, 0.99};
    return figure == 0 ? distribution_mean(d) : distribution_percentile(d, shares[figure]);
}

/* ---- text ------------------------------------------------------------------------ */

static const char *signed_share(char text[24], double predicted, double measured)
{
    if (measured > 0)
        snprintf(text, 24, "%+.1f %%", 100 * (predicted / measured - 1));
    else
        snprintf(text, 24, "%s", predicted > 0 ? "-" : "0.0 %");
    return text;
}

static void print_metric(FILE *out, comparison *c, int metric)
{
    char text[24];
    for (int i = 0; i < FIGURES; i++) {
        double measured = figure_of(&c->measured.ms[metric], i);
        double predicted = figure_of(&c->predicted.ms[metric], i);
        fprintf(out, "  %-24s %-5s %11.2f ms %11.2f ms  %9s\n", i == 0 ? metric_names[metric] : "",
                figure_names[i], measured, predicted, signed_share(text, predicted, measured));
    }
}

static void print_count(FILE *out, const char *name, double measured, double predicted)
{
    char text[24];
    fprintf(out, "  %-30s %14.*f %14.*f  %9s\n", name, measured == floor(measured) ? 0 : 2,
            measured, predicted == floor(predicted) ? 0 : 2, predicted,
            signed_share(text, predicted, measured));
}

static double mean_of(double sum, uint64_t count)
{
    return count > 0 ? sum / (double)count : 0;
}

static void print_counts(FILE *out, const comparison *c)
{
    const comparison_side *m = &c->measured;
    const comparison_side *p = &c->predicted;
    print_count(out, "steps", (double)m->steps, (double)p->steps);
    print_count(out, "tokens of all steps", (double)m->step_tokens, (double)p->step_tokens);
    print_count(out, "output tokens", (double)m->output_tokens, (double)p->output_tokens);
    print_count(out, "hit tokens", (double)m->hit_tokens, (double)p->hit_tokens);
    print_count(out, "preemptions", (double)m->preemptions, (double)p->preemptions);
    print_count(out, "running requests, mean", mean_of(m->sum_running, m->steps),
                mean_of(p->sum_running, p->steps));
    print_count(out, "waiting requests, mean", mean_of(m->sum_waiting, m->steps),
                mean_of(p->sum_waiting, p->steps));
    print_count(out, "waiting requests, most", (double)m->max_waiting, (double)p->max_waiting);
}

void comparison_print(FILE *out, comparison *c)
{
    const recorded_header *h = &c->recording->header;
    fprintf(out, "\nCompared with %s %s, %s: %s requests", h->engine, h->engine_version, h->model,
            report_number(c->num_compared));
    if (c->num_excluded > 0)
        fprintf(out, " (%s excluded: they did not end by themselves)",
                report_number(c->num_excluded));
    fprintf(out, "\n  %-30s %14s %14s  %9s\n", "", "measured", "predicted", "");
    for (int i = 0; i < COMPARISON_METRICS; i++)
        print_metric(out, c, i);
    print_counts(out, c);
    fprintf(out,
            "\nError of each request        median of |error|        p90   median with sign\n");
    for (int i = 0; i < COMPARISON_LATENCIES; i++)
        fprintf(out, "  %-30s %10.1f %%  %8.1f %%         %+8.1f %%\n", metric_names[i],
                100 * c->errors[i].median, 100 * c->errors[i].p90,
                100 * c->errors[i].signed_median);
}

/* ---- JSON ------------------------------------------------------------------------ */

static json_t *figures_json(distribution *d)
{
    json_t *o = json_object();
    for (int i = 0; i < FIGURES; i++)
        json_object_set_new(o, figure_names[i], json_real(figure_of(d, i)));
    return o;
}

static json_t *pair_json(json_t *measured, json_t *predicted)
{
    return json_pack("{s:o,s:o}", "measured", measured, "predicted", predicted);
}

static json_t *counts_json(const comparison_side *s)
{
    json_t *o = json_object();
    json_object_set_new(o, "steps", report_integer(s->steps));
    json_object_set_new(o, "step_tokens", report_integer(s->step_tokens));
    json_object_set_new(o, "output_tokens", report_integer(s->output_tokens));
    json_object_set_new(o, "hit_tokens", report_integer(s->hit_tokens));
    json_object_set_new(o, "preemptions", report_integer(s->preemptions));
    json_object_set_new(o, "mean_running", json_real(mean_of(s->sum_running, s->steps)));
    json_object_set_new(o, "mean_waiting", json_real(mean_of(s->sum_waiting, s->steps)));
    json_object_set_new(o, "max_running", report_integer(s->max_running));
    json_object_set_new(o, "max_waiting", report_integer(s->max_waiting));
    return o;
}

static json_t *errors_json(const comparison_errors *e)
{
    json_t *bins = json_array();
    for (int i = 0; i < COMPARISON_ERROR_BINS; i++)
        json_array_append_new(bins, report_integer(e->bins[i]));
    return json_pack("{s:o,s:f,s:f,s:f,s:o}", "requests", report_integer(e->count), "median",
                     e->median, "p90", e->p90, "signed_median", e->signed_median, "bins", bins);
}

static json_t *curve_json(const comparison_curve *curve)
{
    json_t *list = json_array();
    for (int i = 0; i < COMPARISON_BINS; i++)
        json_array_append_new(
            list, curve->weight[i] > 0 ? json_real(curve->sum[i] / curve->weight[i]) : json_null());
    return list;
}

json_t *comparison_json(comparison *c)
{
    const recorded_header *h = &c->recording->header;
    json_t *o = json_object();
    json_object_set_new(o, "engine", json_string(h->engine));
    json_object_set_new(o, "engine_version", json_string(h->engine_version));
    json_object_set_new(o, "model", json_string(h->model));
    json_object_set_new(o, "requests", report_integer(c->num_compared));
    json_object_set_new(o, "excluded", report_integer(c->num_excluded));
    for (int i = 0; i < COMPARISON_METRICS; i++)
        json_object_set_new(
            o, metric_keys[i],
            pair_json(figures_json(&c->measured.ms[i]), figures_json(&c->predicted.ms[i])));
    json_object_set_new(o, "counts",
                        pair_json(counts_json(&c->measured), counts_json(&c->predicted)));
    json_t *errors = json_object();
    for (int i = 0; i < COMPARISON_LATENCIES; i++)
        json_object_set_new(errors, metric_keys[i], errors_json(&c->errors[i]));
    json_object_set_new(o, "errors", errors);
    json_t *curves = json_object();
    json_object_set_new(curves, "bin_s", json_real(c->bin_s));
    for (int i = 0; i < COMPARISON_CURVES; i++)
        json_object_set_new(
            curves, curve_keys[i],
            pair_json(curve_json(&c->measured.curves[i]), curve_json(&c->predicted.curves[i])));
    json_object_set_new(o, "curves", curves);
    return o;
}
