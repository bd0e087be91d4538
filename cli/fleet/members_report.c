#include "members_report.h"

#include "replay/report.h"

#include <math.h>

/* The report names so many crashes; the JSON file has all. */
enum { NAMED_CRASHES = 8 };

/* ---- for people ------------------------------------------------------------------ */

static void print_crash(FILE *out, const member_crash *c)
{
    fprintf(out, "  worker %u at %.1f s: %u requests interrupted, %u queued", c->worker, c->at_s,
            c->num_begun, c->num_queued);
    if (c->resumed_s < HUGE_VAL)
        fprintf(out, "; all had a token again after %.1f s", c->resumed_s - c->at_s);
    if (c->back_s < HUGE_VAL)
        fprintf(out, "; TTFT was back after %.1f s", c->back_s - c->at_s);
    fprintf(out, "\n");
}

static void print_failures(FILE *out, const members_result *m)
{
    fprintf(out, "\nFailures: %s crashes\n", report_number(m->num_crashes));
    for (uint32_t i = 0; i < m->num_crashes && i < NAMED_CRASHES; i++)
        print_crash(out, &m->crashes[i]);
    if (m->num_crashes > NAMED_CRASHES)
        fprintf(out, "  and %u more\n", m->num_crashes - NAMED_CRASHES);
    if (m->num_crashes > 0) {
        fprintf(out, "  requests interrupted     %9s\n", report_number(m->num_begun));
        fprintf(out, "  and queued, moved        %9s\n", report_number(m->num_queued));
        fprintf(out, "  tokens lost              %9s\n", report_number(m->lost_tokens));
        fprintf(out, "  of them computed again   %9s\n", report_number(m->recomputed_tokens));
    }
    if (m->lost_batches > 0)
        fprintf(out, "  KV events lost           %9s batches\n", report_number(m->lost_batches));
}

static void print_scaling(FILE *out, const members_result *m)
{
    fprintf(out, "\nAutoscaling: %s workers added", report_number(m->num_added));
    fprintf(out, ", %s removed", report_number(m->num_removed));
    fprintf(out, "; %u ready at most, %u at the end\n", m->most_ready, m->num_ready);
    if (m->num_handed_over > 0)
        fprintf(out, "  %s requests of draining workers went back to the router\n",
                report_number(m->num_handed_over));
}

void members_report_print(FILE *out, const members_result *m)
{
    if (m->has_failures)
        print_failures(out, m);
    if (m->has_scaling)
        print_scaling(out, m);
}

/* ---- for programs ------------------------------------------------------------------ */

/* null: it did not happen, or is not known. */
static json_t *time_json(double seconds)
{
    return isfinite(seconds) ? json_real(seconds) : json_null();
}

static json_t *crash_json(const member_crash *c)
{
    json_t *o = json_object();
    json_object_set_new(o, "worker", report_integer(c->worker));
    json_object_set_new(o, "at_s", json_real(c->at_s));
    json_object_set_new(o, "ready_s", time_json(c->ready_s));
    json_object_set_new(o, "interrupted", report_integer(c->num_begun));
    json_object_set_new(o, "queued", report_integer(c->num_queued));
    json_object_set_new(o, "lost_tokens", report_integer(c->lost_tokens));
    json_object_set_new(o, "resumed_after_s", time_json(c->resumed_s - c->at_s));
    json_object_set_new(o, "ttft_before_ms", time_json(c->before_s * 1e3));
    json_object_set_new(o, "ttft_back_after_s", time_json(c->back_s - c->at_s));
    return o;
}

static json_t *failures_json(const members_result *m)
{
    json_t *o = json_object();
    json_t *crashes = json_array();
    for (uint32_t i = 0; i < m->num_crashes; i++)
        json_array_append_new(crashes, crash_json(&m->crashes[i]));
    json_object_set_new(o, "interrupted", report_integer(m->num_begun));
    json_object_set_new(o, "queued", report_integer(m->num_queued));
    json_object_set_new(o, "lost_tokens", report_integer(m->lost_tokens));
    json_object_set_new(o, "recomputed_tokens", report_integer(m->recomputed_tokens));
    json_object_set_new(o, "lost_batches", report_integer(m->lost_batches));
    json_object_set_new(o, "crashes", crashes);
    return o;
}

static json_t *seconds_json(const series *s)
{
    static const char *const names[] = {"first_tokens", "ttft_ms", "ends",     "output_tokens",
                                        "back",         "ready",   "starting", "draining"};
    enum { NUM_NAMES = sizeof names / sizeof *names };
    json_t *columns[NUM_NAMES];
    json_t *o = json_object();
    series_second level = {.ready = 1};
    for (uint32_t k = 0; k < NUM_NAMES; k++)
        json_object_set_new(o, names[k], columns[k] = json_array());
    for (uint32_t i = 0; i < s->num_seconds; i++) {
        const series_second *second = &s->seconds[i];
        double ttft_s = second->first_tokens > 0 ? second->ttft_s / second->first_tokens : NAN;
        level = second->ready > 0 ? *second : level;
        json_t *values[NUM_NAMES] = {
            report_integer(second->first_tokens), time_json(ttft_s * 1e3),
            report_integer(second->ends),         report_integer(second->output_tokens),
            report_integer(second->back),         report_integer(level.ready - 1),
            report_integer(level.starting),       report_integer(level.draining)};
        for (uint32_t k = 0; k < NUM_NAMES; k++)
            json_array_append_new(columns[k], values[k]);
    }
    return o;
}

void members_report_json(json_t *fleet, const members_result *m)
{
    if (m->has_failures)
        json_object_set_new(fleet, "failures", failures_json(m));
    if (m->has_scaling)
        json_object_set_new(
            fleet, "scaling",
            json_pack("{s:o,s:o,s:o,s:o,s:o}", "added", report_integer(m->num_added), "removed",
                      report_integer(m->num_removed), "handed_over",
                      report_integer(m->num_handed_over), "most_ready",
                      report_integer(m->most_ready), "ready_at_end", report_integer(m->num_ready)));
    if (m->has_failures || m->has_scaling)
        json_object_set_new(fleet, "seconds", seconds_json(&m->series));
}
