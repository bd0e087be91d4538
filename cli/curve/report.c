#include "report.h"
#include "output/plot.h"
#include "output/progress.h"
#include "replay/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const curve_policy_names[CURVE_POLICIES + 1] = {"lru", "arc", "s3fifo", "lookahead",
                                                            NULL};

#define GIB ((double)(UINT64_C(1) << 30))

static double by_block(const curve_totals *t, double hits)
{
    return t->query_blocks > 0 ? hits / (double)t->query_blocks : 0;
}

static double by_token(const curve_report *report, const curve_totals *t, double hits)
{
    return t->prompt_tokens > 0 ? hits * report->block_size / (double)t->prompt_tokens : 0;
}

/* ---- points of the curve --------------------------------------------------- */

/* Sizes from the smallest pool on to the one that finds all: evenly by their logarithm. */
typedef struct point_walk {
    uint64_t size;
    uint64_t first;
    uint64_t last;
    uint32_t number;
} point_walk;

static point_walk begin_points(const curve_report *report, const curve_totals *t)
{
    uint64_t first = t->min_blocks > 0 ? t->min_blocks : 1;
    uint64_t last = curve_last_size(report->curve);
    return (point_walk){.first = first, .last = last > first ? last : first};
}

static bool next_change(const curve_report *report, point_walk *walk)
{
    double hits = curve_hits(report->curve, walk->size).value;
    while (walk->size < walk->last)
        if (curve_hits(report->curve, ++walk->size).value != hits)
            return true;
    return false;
}

/* False: the last was the last one. */
static bool next_point(const curve_report *report, point_walk *walk)
{
    if (walk->size == 0) {
        walk->size = walk->first;
        return true;
    }
    if (walk->size == walk->last)
        return false;
    if (report->num_points == 0)
        return next_change(report, walk);
    uint64_t before = walk->size;
    double ratio = (double)walk->last / (double)walk->first;
    while (walk->size <= before && ++walk->number < report->num_points) {
        double share = (double)walk->number / (report->num_points - 1);
        walk->size = (uint64_t)llrint((double)walk->first * pow(ratio, share));
    }
    if (walk->size <= before || walk->size > walk->last)
        walk->size = walk->last;
    return true;
}

/* ---- table ----------------------------------------------------------------- */

static void print_head(FILE *out, const curve_report *report, const curve_totals *t)
{
    uint64_t last = curve_last_size(report->curve);
    double ideal = curve_hits(report->curve, last).value;
    fprintf(out, "%s: %s requests, %s prompt tokens, one request at a time\n", report->trace,
            report_number(t->requests), report_number(t->prompt_tokens));
    if (report->stopped != NULL)
        fprintf(out, "  %s: this is the curve of the requests that were read before\n",
                strcmp(report->stopped, "terminated") == 0 ? "terminated" : "interrupted");
    fprintf(out,
            "  blocks of %u tokens: %s in prompts; %s distinct blocks, generated ones included\n",
            report->block_size, report_number(t->query_blocks),
            report_number((uint64_t)t->distinct_blocks));
    fprintf(out, "  smallest pool: %s blocks (the largest request)\n",
            report_number(t->min_blocks));
    fprintf(out, "  unlimited pool: %s blocks found, %.2f %%; reached at %s blocks\n",
            report_number((uint64_t)llrint(ideal)), 100 * by_block(t, ideal), report_number(last));
    fprintf(out,
            "  (whole blocks, and the last token of a prompt is computed: what quire replay calls "
            "reachable)\n");
    if (report->sample < 1)
        fprintf(out, "  sampled: %.4g %% of blocks; ± is a 95 %% interval\n", 100 * report->sample);
}

static void print_row(FILE *out, const curve_report *report, const curve_totals *t,
                      const curve_row *row)
{
    double share = t->distinct_blocks > 0 ? (double)row->num_blocks / t->distinct_blocks : 0;
    fprintf(out, "%12s %6.1f%%", report_number(row->num_blocks), 100 * share);
    if (report->block_bytes > 0)
        fprintf(out, " %9.2f", (double)row->num_blocks * (double)report->block_bytes / GIB);
    if (!row->is_too_small) {
        fprintf(out, " %12s %8.2f%%", report_number((uint64_t)llrint(row->hits.value)),
                100 * by_block(t, row->hits.value));
        if (report->sample < 1)
            fprintf(out, " %6.2f%%", 100 * by_block(t, row->hits.error));
        fprintf(out, " %8.2f%%", 100 * by_token(report, t, row->hits.value));
        if (report->has_belady)
            fprintf(out, " %8.2f%%", 100 * by_block(t, row->belady.value));
    }
    fprintf(out, "%s%s\n", row->note != NULL ? "  " : "", row->note != NULL ? row->note : "");
}

static void print_rows(FILE *out, const curve_report *report, const curve_totals *t)
{
    bool is_sampled = report->sample < 1;
    fprintf(out, "\n%12s %7s", "pool", "of all");
    if (report->block_bytes > 0)
        fprintf(out, " %9s", "GiB");
    fprintf(out, " %12s %9s%s %9s", "found", "by block", is_sampled ? "    ±   " : "", "by token");
    fprintf(out, "%s\n", report->has_belady ? "    Belady" : "");
    for (uint32_t i = 0; i < report->num_rows; i++)
        print_row(out, report, t, &report->rows[i]);
}

/* ---- policies -------------------------------------------------------------- */

static bool has_policies(const curve_report *report)
{
    for (uint32_t i = 0; i < CURVE_POLICIES; i++)
        if (report->has_policy[i])
            return true;
    return false;
}

static void print_policies(FILE *out, const curve_report *report, const curve_totals *t)
{
    fprintf(out, "\n  by token, with each policy; lookahead knows the next %s requests\n%12s %7s",
            report_number(report->backlog), "pool", "of all");
    for (uint32_t i = 0; i < CURVE_POLICIES; i++)
        if (report->has_policy[i])
            fprintf(out, " %9s", curve_policy_names[i]);
    fprintf(out, "%s\n", report->has_belady ? "    Belady" : "");
    for (uint32_t at = 0; at < report->num_rows; at++) {
        const curve_row *row = &report->rows[at];
        double share = t->distinct_blocks > 0 ? (double)row->num_blocks / t->distinct_blocks : 0;
        fprintf(out, "%12s %6.1f%%", report_number(row->num_blocks), 100 * share);
        for (uint32_t i = 0; i < CURVE_POLICIES; i++)
            if (report->has_policy[i])
                fprintf(out, " %8.2f%%", 100 * by_token(report, t, (double)row->policies[i]));
        if (report->has_belady && !row->is_too_small)
            fprintf(out, " %8.2f%%", 100 * by_token(report, t, row->belady.value));
        fprintf(out, "%s%s\n", row->note != NULL ? "  " : "", row->note != NULL ? row->note : "");
    }
}

/* ---- plot ------------------------------------------------------------------ */

enum { PLOT_POINTS = 400 };

static void draw(FILE *out, const curve_report *report, const curve_totals *t)
{
    static double x[PLOT_POINTS + 1];
    static double y[PLOT_POINTS + 1];
    double *bound = calloc(2 * (size_t)report->num_rows + 1, sizeof *bound);
    if (bound == NULL)
        return;
    curve_report points = *report;
    points.num_points = PLOT_POINTS;
    point_walk walk = begin_points(report, t);
    plot_series series[2] = {{.name = "LRU, as the pool", .x = x, .y = y},
                             {.name = "Belady's bound", .x = bound, .y = bound + report->num_rows}};
    while (series[0].num_points <= PLOT_POINTS && next_point(&points, &walk)) {
        x[series[0].num_points] = (double)walk.size;
        y[series[0].num_points++] = 100 * by_block(t, curve_hits(report->curve, walk.size).value);
    }
    for (uint32_t i = 0; i < report->num_rows; i++) {
        const curve_row *row = &report->rows[i];
        if (row->is_too_small)
            continue;
        bound[series[1].num_points] = (double)row->num_blocks;
        bound[report->num_rows + series[1].num_points++] = 100 * by_block(t, row->belady.value);
    }
    fprintf(out, "\n");
    plot_draw(out, &(plot){.x_name = "blocks",
                           .y_unit = " %",
                           .series = series,
                           .num_series = report->has_belady ? 2 : 1,
                           .is_log_x = true,
                           .has_colors = terminal_has_colors(out)});
    free(bound);
}

void curve_report_print(FILE *out, const curve_report *report)
{
    curve_totals t = curve_get_totals(report->curve);
    print_head(out, report, &t);
    if (!report->has_contents) {
        fprintf(out, "No curve: the trace does not say which prompts share content, so each prompt "
                     "counts as unique\n");
        return;
    }
    print_rows(out, report, &t);
    if (has_policies(report))
        print_policies(out, report, &t);
    if (report->has_plot && t.lookups > 0)
        draw(out, report, &t);
}

/* ---- files ----------------------------------------------------------------- */

/* Exact counts are whole numbers. */
static json_t *json_count(const curve_report *report, double value)
{
    return report->sample < 1 ? json_real(value) : json_integer((json_int_t)llrint(value));
}

static void add_policies(json_t *row_object, const curve_report *report, const curve_totals *t,
                         const curve_row *row)
{
    json_t *all = json_object();
    for (uint32_t i = 0; i < CURVE_POLICIES; i++)
        if (report->has_policy[i])
            json_object_set_new(all, curve_policy_names[i],
                                json_pack("{s:I, s:f}", "hit_blocks", (json_int_t)row->policies[i],
                                          "hit_rate",
                                          by_token(report, t, (double)row->policies[i])));
    json_object_set_new(row_object, "policies", all);
}

/* A pool too small for the largest request has no hits to tell, slots have. */
static json_t *json_small_row(const curve_report *report, const curve_totals *t,
                              const curve_row *row)
{
    json_t *object =
        json_pack("{s:I, s:b}", "num_blocks", (json_int_t)row->num_blocks, "is_too_small", 1);
    if (object != NULL)
        add_policies(object, report, t, row);
    return object;
}

static json_t *json_row(const curve_report *report, const curve_totals *t, const curve_row *row)
{
    json_t *object =
        json_pack("{s:I, s:o, s:f, s:f}", "num_blocks", (json_int_t)row->num_blocks, "hit_blocks",
                  json_count(report, row->hits.value), "hit_rate_blocks",
                  by_block(t, row->hits.value), "hit_rate", by_token(report, t, row->hits.value));
    if (object == NULL)
        return NULL;
    if (report->sample < 1)
        json_object_set_new(object, "hit_blocks_error", json_real(row->hits.error));
    if (report->has_belady) {
        json_object_set_new(object, "belady_hit_blocks", json_count(report, row->belady.value));
        json_object_set_new(object, "belady_hit_rate",
                            json_real(by_token(report, t, row->belady.value)));
    }
    if (report->has_belady && report->sample < 1)
        json_object_set_new(object, "belady_hit_blocks_error", json_real(row->belady.error));
    if (has_policies(report))
        add_policies(object, report, t, row);
    if (report->block_bytes > 0)
        json_object_set_new(object, "bytes",
                            json_integer((json_int_t)(row->num_blocks * report->block_bytes)));
    return object;
}

static json_t *json_points(const curve_report *report, const curve_totals *t)
{
    json_t *array = json_array();
    point_walk walk = begin_points(report, t);
    while (array != NULL && next_point(report, &walk)) {
        curve_value hits = curve_hits(report->curve, walk.size);
        json_t *point = json_array();
        if (point == NULL || json_array_append_new(array, point) != 0)
            break;
        json_array_append_new(point, json_integer((json_int_t)walk.size));
        json_array_append_new(point, json_count(report, hits.value));
        if (report->sample < 1)
            json_array_append_new(point, json_real(hits.error));
    }
    return array;
}

bool curve_report_json(FILE *out, const curve_report *report)
{
    curve_totals t = curve_get_totals(report->curve);
    json_t *root = json_pack(
        "{s:s, s:i, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "trace", report->trace, "block_size",
        (int)report->block_size, "sample", report->sample, "requests", (json_int_t)t.requests,
        "prompt_tokens", (json_int_t)t.prompt_tokens, "query_blocks", (json_int_t)t.query_blocks,
        "lookups", (json_int_t)t.lookups, "distinct_blocks", (json_int_t)t.distinct_blocks,
        "min_blocks", (json_int_t)t.min_blocks, "ideal_hit_blocks",
        json_count(report, curve_hits(report->curve, curve_last_size(report->curve)).value));
    json_t *rows = json_array();
    if (root == NULL || rows == NULL) {
        json_decref(root);
        json_decref(rows);
        return false;
    }
    for (uint32_t i = 0; i < report->num_rows; i++) {
        const curve_row *row = &report->rows[i];
        if (!row->is_too_small)
            json_array_append_new(rows, json_row(report, &t, row));
        else if (has_policies(report))
            json_array_append_new(rows, json_small_row(report, &t, row));
    }
    if (has_policies(report))
        json_object_set_new(root, "backlog", json_integer(report->backlog));
    json_object_set_new(root, "ended_by",
                        json_string(report->stopped != NULL ? report->stopped : "trace"));
    json_object_set_new(root, "sizes", rows);
    json_object_set_new(root, "has_contents", json_boolean(report->has_contents));
    json_object_set_new(root, "points", json_points(report, &t));
    if (report->made_by != NULL)
        json_object_set(root, "made_by", report->made_by);
    bool ok = json_dumpf(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0;
    fputc('\n', out);
    json_decref(root);
    return ok;
}

bool curve_report_csv(FILE *out, const curve_report *report)
{
    curve_totals t = curve_get_totals(report->curve);
    bool is_sampled = report->sample < 1;
    point_walk walk = begin_points(report, &t);
    fprintf(out, "num_blocks,hit_blocks,hit_rate_blocks,hit_rate%s\n",
            is_sampled ? ",hit_blocks_error" : "");
    while (next_point(report, &walk)) {
        curve_value hits = curve_hits(report->curve, walk.size);
        fprintf(out, "%" PRIu64 ",%.*f,%.9f,%.9f", walk.size, is_sampled ? 1 : 0, hits.value,
                by_block(&t, hits.value), by_token(report, &t, hits.value));
        if (is_sampled)
            fprintf(out, ",%.1f", hits.error);
        fputc('\n', out);
    }
    return ferror(out) == 0;
}
