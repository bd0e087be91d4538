#include "front.h"
#include "options/nearest.h"
#include "output/plot.h"
#include "output/progress.h"
#include "replay/verdict.h"

#include <stdlib.h>
#include <string.h>

#define GIB ((double)(UINT64_C(1) << 30))

#define PERCENTILES(key, head)                                                                     \
    {key ".p50", head " p50", 1, 1}, {key ".p95", head " p95", 1, 1},                              \
    {                                                                                              \
        key ".p99", head " p99", 1, 1                                                              \
    }

/* Of every sweep. */
static const sweep_column columns[] = {
    {"blocks.total", "blocks", 1, 0},   {"hit_rate", "hit %", 100, 2},
    PERCENTILES("ttft_ms", "TTFT"),     PERCENTILES("tpot_ms", "TPOT"),
    {"e2e_ms.p50", "end p50", 1, 0},    {"output_tokens_per_s", "tokens/s", 1, 0},
    {"preemptions", "preempted", 1, 0}, {NULL, NULL, 0, 0}};
enum { GROUP_AXES = 6, GROUP_COLUMNS = 6, MAX_COLUMNS = 48 };

/* Of a sweep over fleets, before them. */
static const sweep_column fleet_columns[] = {{"gpus", "GPUs", 1, 0}, {NULL, NULL, 0, 0}};

/* Of a sweep that has one of these axes. */
typedef struct column_group {
    const char *axes[GROUP_AXES];
    sweep_column columns[GROUP_COLUMNS];
} column_group;

static const column_group groups[] = {
    {{"slo"}, {{"goodput.share", "good %", 100, 2}, {"goodput.requests_per_s", "good/s", 1, 2}}},
    {{"cpu-blocks", "cpu-memory"},
     {{"tier_hit_rate.gpu", "GPU %", 100, 2},
      {"tier_hit_rate.cpu", "CPU %", 100, 2},
      {"tier_hit_rate.file", "file %", 100, 2},
      {"tier_hit_rate.redis", "Redis %", 100, 2},
      {"tier_time.saved_s", "saved s", 1, 0}}},
    {{"preempt-above"},
     {{"pressure.preemptions", "by mark", 1, 0}, {"pressure.held_up", "held", 1, 0}}},
    {{"swap-blocks", "swap-memory"},
     {{"swap.swaps", "swapped", 1, 0},
      {"swap.out_blocks", "swap out", 1, 0},
      {"swap.in_blocks", "swap in", 1, 0},
      {"swap.kept_tokens", "kept", 1, 0}}},
    {{"watermark", "preempt-above", "victim", "swap-blocks", "swap-memory"},
     {{"recomputed_tokens", "again", 1, 0}}},
    {{"pin-ttl"}, {{"pins.mean_blocks", "pinned", 1, 0}}},
    {{"prefix-window"}, {{"overtaking", "overtook", 1, 0}}},
};

static bool has_group(const sweep *s, const column_group *group)
{
    for (uint32_t i = 0; i < GROUP_AXES && group->axes[i] != NULL; i++)
        for (uint32_t a = 0; a < s->num_axes; a++)
            if (strcmp(s->axes[a].option->name, group->axes[i]) == 0)
                return true;
    return false;
}

static uint32_t add_columns(sweep_column *list, uint32_t num, const sweep_column *more,
                            uint32_t num_more)
{
    for (uint32_t i = 0; i < num_more && more[i].path != NULL && num + 1 < MAX_COLUMNS; i++)
        list[num++] = more[i];
    list[num] = (sweep_column){0};
    return num;
}

const sweep_column *sweep_columns(const sweep *s)
{
    static sweep_column list[MAX_COLUMNS];
    uint32_t num = add_columns(list, 0, fleet_columns, sweep_has_fleets(s) ? 1 : 0);
    num = add_columns(list, num, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (has_group(s, &groups[i]))
            num = add_columns(list, num, groups[i].columns, GROUP_COLUMNS);
    return list;
}

/* What the heads of columns stand for that not every sweep has. */
static void print_heads(FILE *out, const sweep *s)
{
    static const struct {
        const char *head;
        const char *text;
    } texts[] = {{"again", "again: tokens that were computed again after a preemption"},
                 {"by mark", "by mark: preemptions by --preempt-above; held: steps in which a "
                             "request was not admitted for it"},
                 {"swapped",
                  "swapped: preemptions after which the KV went to host memory; swap out, "
                  "swap in: blocks; kept: restored tokens"},
                 {"pinned", "pinned: blocks, on average"},
                 {"overtook", "overtook: requests that were admitted before others of the queue"}};
    fprintf(out, "\nTTFT: time to first token; TPOT: time per output token; end: end to end\n");
    for (const sweep_column *c = sweep_columns(s); c->path != NULL; c++)
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            if (strcmp(c->head, texts[i].head) == 0)
                fprintf(out, "%s\n", texts[i].text);
}

/* ---- axes of plots --------------------------------------------------------- */

static bool changes_memory(const option *opt)
{
    static const char *const names[] = {"num-gpu-blocks",
                                        "gpu-memory-utilization",
                                        "gpu-memory",
                                        "reserve-memory",
                                        "gpu",
                                        "tp",
                                        NULL};
    return is_one_of(opt->name, names);
}

static bool is_workers(const option *opt)
{
    return strcmp(opt->name, "workers") == 0;
}

uint32_t sweep_plot_axis(const sweep *s)
{
    for (uint32_t i = 0; i < s->num_axes; i++)
        if (sweep_varies(s, i) && is_workers(s->axes[i].option))
            return i;
    for (uint32_t i = 0; i < s->num_axes; i++)
        if (sweep_varies(s, i) && changes_memory(s->axes[i].option))
            return i;
    for (uint32_t i = 0; i < s->num_axes; i++)
        if (sweep_varies(s, i) && option_is_number(s->axes[i].option))
            return i;
    return s->num_axes;
}

const char *sweep_plot_x_name(const sweep *s, uint32_t axis)
{
    const option *opt = s->axes[axis].option;
    return is_workers(opt) ? "GPUs" : changes_memory(opt) ? "GiB of KV cache" : opt->name;
}

bool sweep_plot_x(const sweep *s, uint32_t axis, uint32_t point, double *x)
{
    double blocks;
    double bytes;
    if (is_workers(s->axes[axis].option))
        return sweep_number(s, point, "gpus", x);
    if (!changes_memory(s->axes[axis].option)) {
        *x = option_number(sweep_value(s, point, axis));
        return s->points[point].report != NULL;
    }
    if (!sweep_number(s, point, "blocks.total", &blocks) ||
        !sweep_number(s, point, "bytes_per_block", &bytes))
        return false;
    *x = blocks * bytes / GIB;
    return true;
}

void sweep_plot_series(const sweep *s, uint32_t axis, uint32_t point, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < s->num_axes; i++) {
        if (i == axis || !sweep_varies(s, i) || used >= bytes)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", used > 0 ? ", " : "",
                                 s->axes[i].option->name, sweep_value(s, point, i));
    }
}

/* ---- plots ----------------------------------------------------------------- */

typedef struct sweep_lines {
    char names[PLOT_MAX_SERIES][96];
    plot_series series[PLOT_MAX_SERIES];
    uint32_t num_series;
    double *numbers; /* x and y of each series */
} sweep_lines;

/* The line of that name, a new one where there is none; NULL: too many. */
static plot_series *find_line(sweep_lines *lines, const char *name, uint32_t num_points)
{
    for (uint32_t i = 0; i < lines->num_series; i++)
        if (strcmp(lines->names[i], name) == 0)
            return &lines->series[i];
    if (lines->num_series == PLOT_MAX_SERIES)
        return NULL;
    uint32_t i = lines->num_series++;
    snprintf(lines->names[i], sizeof lines->names[i], "%s", name);
    double *x = lines->numbers + (size_t)2 * i * num_points;
    lines->series[i] = (plot_series){.name = lines->names[i], .x = x, .y = x + num_points};
    return &lines->series[i];
}

/* In order of x. */
static void insert(plot_series *line, double *x, double *y, double new_x, double new_y)
{
    uint32_t at = line->num_points++;
    for (; at > 0 && x[at - 1] > new_x; at--) {
        x[at] = x[at - 1];
        y[at] = y[at - 1];
    }
    x[at] = new_x;
    y[at] = new_y;
}

static bool collect(const sweep *s, uint32_t axis, const char *path, double factor,
                    sweep_lines *lines)
{
    lines->num_series = 0;
    lines->numbers = calloc((size_t)2 * PLOT_MAX_SERIES * s->num_points, sizeof *lines->numbers);
    if (lines->numbers == NULL)
        return false;
    for (uint32_t i = 0; i < s->num_points; i++) {
        char name[96];
        double x;
        double y;
        if (!sweep_plot_x(s, axis, i, &x) || !sweep_number(s, i, path, &y))
            continue;
        sweep_plot_series(s, axis, i, name, sizeof name);
        plot_series *line = find_line(lines, name, s->num_points);
        if (line == NULL)
            continue;
        double *at = lines->numbers + (size_t)2 * (size_t)(line - lines->series) * s->num_points;
        insert(line, at, at + s->num_points, x, y * factor);
    }
    return true;
}

static void draw(FILE *out, const sweep *s, uint32_t axis, const char *title, const char *path,
                 double factor, const char *unit)
{
    sweep_lines lines;
    if (collect(s, axis, path, factor, &lines)) {
        fprintf(out, "\n");
        plot_draw(out, &(plot){.title = title,
                               .x_name = sweep_plot_x_name(s, axis),
                               .y_unit = unit,
                               .is_time = unit == NULL,
                               .series = lines.series,
                               .num_series = lines.num_series,
                               .height = 11,
                               .has_colors = terminal_has_colors(out)});
    }
    free(lines.numbers);
}

/* ---- table ----------------------------------------------------------------- */

static int axis_width(const sweep *s, uint32_t axis)
{
    size_t width = strlen(s->axes[axis].option->name);
    for (uint32_t i = 0; i < s->axes[axis].list.num_values; i++) {
        size_t length = strlen(s->axes[axis].list.values[i]);
        width = length > width ? length : width;
    }
    return (int)width;
}

static void print_row(FILE *out, const sweep *s, uint32_t point)
{
    for (uint32_t a = 0; a < s->num_axes; a++)
        if (sweep_varies(s, a))
            fprintf(out, "%*s ", axis_width(s, a), sweep_value(s, point, a));
    if (s->points[point].report == NULL) {
        fprintf(out, " %s\n", s->points[point].error != NULL ? s->points[point].error : "failed");
        return;
    }
    for (const sweep_column *c = sweep_columns(s); c->path != NULL; c++) {
        double number;
        if (sweep_number(s, point, c->path, &number) && sweep_is_time(c))
            fprintf(out, " %9s", verdict_time(number * c->factor));
        else if (sweep_number(s, point, c->path, &number))
            fprintf(out, " %9.*f", c->decimals, number * c->factor);
        else
            fprintf(out, " %9s", "-");
    }
    fputc('\n', out);
}

/* Model and GPUs, where all replays have the same. */
static void print_place(FILE *out, const sweep *s)
{
    static const char *const names[] = {"model", "gpu", "tp", NULL};
    const json_t *report = NULL;
    for (uint32_t i = 0; i < s->num_axes; i++)
        if (sweep_varies(s, i) && is_one_of(s->axes[i].option->name, names))
            return;
    for (uint32_t i = 0; i < s->num_points && report == NULL; i++)
        report = s->points[i].report;
    const char *model = json_string_value(json_object_get(report, "model"));
    const char *place = json_string_value(json_object_get(report, "gpu"));
    if (model != NULL && place != NULL)
        fprintf(out, ", %s on %s", model, place);
}

/* The points that are worth their GPUs. */
static void print_front(FILE *out, const sweep *s)
{
    uint32_t num = 0;
    uint32_t *points = calloc(s->num_points, sizeof *points);
    if (points != NULL && sweep_front(s, "ttft_ms.p99", points, &num) && num > 0)
        fprintf(out, "\nPareto front (no other has fewer GPUs and a shorter TTFT p99):\n");
    for (uint32_t i = 0; i < num; i++) {
        double gpus = 0;
        double ms = 0;
        char options[256];
        sweep_number(s, points[i], "gpus", &gpus);
        sweep_number(s, points[i], "ttft_ms.p99", &ms);
        sweep_plot_series(s, s->num_axes, points[i], options, sizeof options);
        fprintf(out, "  %3.0f %s  %9s  %s\n", gpus, gpus == 1 ? "GPU " : "GPUs", verdict_time(ms),
                options);
    }
    free(points);
}

static uint32_t count_overloaded(const sweep *s)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->num_points; i++) {
        const json_t *found = json_object_get(s->points[i].report, "verdict");
        const char *state = json_string_value(json_object_get(found, "state"));
        count += state != NULL && strcmp(state, verdict_name(VERDICT_OVERLOADED)) == 0;
    }
    return count;
}

void sweep_report_print(FILE *out, const sweep *s, bool has_plot)
{
    fprintf(out, "%s: %u %s", s->trace, s->num_points, sweep_has_fleets(s) ? "fleets" : "replays");
    print_place(out, s);
    for (uint32_t i = 0; i < s->num_axes; i++)
        if (!sweep_varies(s, i))
            fprintf(out, ", %s %s", s->axes[i].option->name, s->axes[i].list.values[0]);
    fprintf(out, "\n\n");
    for (uint32_t i = 0; i < s->num_axes; i++)
        if (sweep_varies(s, i))
            fprintf(out, "%*s ", axis_width(s, i), s->axes[i].option->name);
    for (const sweep_column *c = sweep_columns(s); c->path != NULL; c++)
        fprintf(out, " %9s", c->head);
    fprintf(out, "\n");
    for (uint32_t i = 0; i < s->num_points; i++)
        print_row(out, s, i);
    print_heads(out, s);
    if (count_overloaded(s) > 0)
        fprintf(out,
                "Overloaded: %u of %u %s (more requests arrive than are served; their latencies "
                "grow with the trace)\n",
                count_overloaded(s), s->num_points, sweep_has_fleets(s) ? "fleets" : "replays");
    if (sweep_has_fleets(s))
        print_front(out, s);
    uint32_t axis = sweep_plot_axis(s);
    if (!has_plot || axis == s->num_axes)
        return;
    draw(out, s, axis, "Hit rate", "hit_rate", 100, " %");
    draw(out, s, axis, "Time to first token, p99", "ttft_ms.p99", 1, NULL);
}

/* ---- files ----------------------------------------------------------------- */

static json_t *axes_object(const sweep *s)
{
    json_t *axes = json_array();
    for (uint32_t i = 0; axes != NULL && i < s->num_axes; i++) {
        json_t *values = json_array();
        for (uint32_t v = 0; v < s->axes[i].list.num_values; v++)
            json_array_append_new(values, json_string(s->axes[i].list.values[v]));
        json_array_append_new(
            axes, json_pack("{s:s, s:o}", "name", s->axes[i].option->name, "values", values));
    }
    return axes;
}

static json_t *run_object(const sweep *s, uint32_t point)
{
    json_t *options = json_object();
    for (uint32_t i = 0; options != NULL && i < s->num_axes; i++)
        json_object_set_new(options, s->axes[i].option->name,
                            json_string(sweep_value(s, point, i)));
    json_t *run = json_pack("{s:o}", "options", options);
    if (s->points[point].report != NULL)
        json_object_set(run, "report", s->points[point].report);
    else
        json_object_set_new(run, "error", json_string(s->points[point].error));
    return run;
}

/* The fronts, as places in "runs". */
static json_t *front_object(const sweep *s)
{
    static const char *const paths[] = {"ttft_ms.p99", "tpot_ms.p99"};
    json_t *fronts = json_object();
    uint32_t *points = calloc(s->num_points, sizeof *points);
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        json_t *places = json_array();
        uint32_t num = 0;
        if (points != NULL)
            sweep_front(s, paths[k], points, &num);
        for (uint32_t i = 0; i < num; i++)
            json_array_append_new(places, json_integer(points[i]));
        json_object_set_new(fronts, paths[k], places);
    }
    free(points);
    return fronts;
}

bool sweep_report_json(FILE *out, const sweep *s)
{
    json_t *runs = json_array();
    for (uint32_t i = 0; runs != NULL && i < s->num_points; i++)
        json_array_append_new(runs, run_object(s, i));
    json_t *object = json_pack("{s:s, s:s, s:o, s:o, s:O?}", "trace", s->trace, "ended_by",
                               s->stopped != NULL ? s->stopped : "trace", "axes", axes_object(s),
                               "runs", runs, "made_by", s->made_by);
    if (object != NULL && sweep_has_fleets(s))
        json_object_set_new(object, "pareto", front_object(s));
    bool ok =
        object != NULL && json_dumpf(object, out, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) == 0;
    fputc('\n', out);
    json_decref(object);
    return ok;
}

/* Quotes, where a text has what CSV would take for its own. */
static void write_text(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++)
        fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', out);
}

bool sweep_report_csv(FILE *out, const sweep *s)
{
    for (uint32_t i = 0; i < s->num_axes; i++)
        fprintf(out, "%s,", s->axes[i].option->name);
    for (const sweep_column *c = sweep_columns(s); c->path != NULL; c++)
        fprintf(out, "%s,", c->path);
    fprintf(out, "error\n");
    for (uint32_t i = 0; i < s->num_points; i++) {
        for (uint32_t a = 0; a < s->num_axes; a++) {
            write_text(out, sweep_value(s, i, a));
            fputc(',', out);
        }
        for (const sweep_column *c = sweep_columns(s); c->path != NULL; c++) {
            double number;
            if (sweep_number(s, i, c->path, &number))
                fprintf(out, "%.12g", number);
            fputc(',', out);
        }
        write_text(out, s->points[i].error != NULL ? s->points[i].error : "");
        fputc('\n', out);
    }
    return ferror(out) == 0;
}
