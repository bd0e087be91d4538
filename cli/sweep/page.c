/* page.c - the page of a sweep: viewer/sweep.html around what is shown, as JSON.
 *
 *      sweep ─► {columns, rows: axes, x, series, numbers} ─► </script> never occurs in it ─► page
 */
#include "front.h"
#include "page/pack.h"
#include "page/viewer_page.h"

#include <stdlib.h>
#include <string.h>

static json_t *columns_object(const sweep *s)
{
    json_t *columns = json_array();
    for (const sweep_column *c = sweep_columns(s); c->path != NULL; c++)
        json_array_append_new(columns, json_pack("{s:s, s:s, s:i, s:s}", "path", c->path, "head",
                                                 c->head, "decimals", c->decimals, "unit",
                                                 sweep_is_time(c) ? "ms" : "number"));
    return columns;
}

static json_t *row_object(const sweep *s, uint32_t axis, uint32_t point)
{
    json_t *axes = json_array();
    for (uint32_t a = 0; a < s->num_axes; a++)
        if (sweep_varies(s, a))
            json_array_append_new(axes, json_string(sweep_value(s, point, a)));
    json_t *numbers = json_array();
    for (const sweep_column *c = sweep_columns(s); c->path != NULL; c++) {
        double number;
        bool has = sweep_number(s, point, c->path, &number);
        json_array_append_new(numbers, has ? json_real(number * c->factor) : json_null());
    }
    char series[256] = "";
    double x;
    bool has_x = axis < s->num_axes && sweep_plot_x(s, axis, point, &x);
    if (axis < s->num_axes || sweep_has_fleets(s))
        sweep_plot_series(s, axis, point, series, sizeof series);
    json_t *row = json_pack("{s:o, s:o, s:s, s:o}", "axes", axes, "v", numbers, "series", series,
                            "x", has_x ? json_real(x) : json_null());
    if (s->points[point].error != NULL)
        json_object_set_new(row, "error", json_string(s->points[point].error));
    return row;
}

/* The place of a column; -1: there is none. */
static int find_column(const sweep *s, const char *path, int *decimals)
{
    const sweep_column *columns = sweep_columns(s);
    for (int i = 0; columns[i].path != NULL; i++) {
        *decimals = columns[i].decimals;
        if (strcmp(columns[i].path, path) == 0)
            return i;
    }
    return -1;
}

/* A number against GPUs, with the line of its Pareto front. */
static void add_front(json_t *plots, const sweep *s, const char *title, const char *path)
{
    int decimals = 0;
    json_t *rows = json_array();
    uint32_t num = 0;
    uint32_t *points = calloc(s->num_points, sizeof *points);
    if (points != NULL)
        sweep_front(s, path, points, &num);
    for (uint32_t i = 0; i < num; i++)
        json_array_append_new(rows, json_integer(points[i]));
    free(points);
    int y = find_column(s, path, &decimals);
    int x = find_column(s, "gpus", &(int){0});
    json_array_append_new(plots, json_pack("{s:s, s:s, s:i, s:i, s:i, s:s, s:o}", "title", title,
                                           "unit", "ms", "i", y, "d", decimals, "x", x, "x_name",
                                           "GPUs", "front", rows));
}

/* Which columns are drawn; "i" is the place of the column. */
static json_t *plots_object(const sweep *s)
{
    static const struct {
        const char *path;
        const char *title;
        const char *unit;
    } PLOTS[] = {{"hit_rate", "Hit rate", "percent"},
                 {"ttft_ms.p99", "Time to first token, p99", "ms"},
                 {"tpot_ms.p50", "Time per output token, p50", "ms"},
                 {"output_tokens_per_s", "Output tokens per second", "number"}};
    json_t *plots = json_array();
    if (sweep_has_fleets(s)) {
        add_front(plots, s, "Worth their GPUs: TTFT, p99", "ttft_ms.p99");
        add_front(plots, s, "Worth their GPUs: TPOT, p99", "tpot_ms.p99");
    }
    for (size_t k = 0; k < sizeof PLOTS / sizeof *PLOTS; k++) {
        int decimals = 0;
        int i = find_column(s, PLOTS[k].path, &decimals);
        if (i >= 0)
            json_array_append_new(plots, json_pack("{s:s, s:s, s:i, s:i}", "title", PLOTS[k].title,
                                                   "unit", PLOTS[k].unit, "i", i, "d", decimals));
    }
    return plots;
}

static json_t *page_object(const sweep *s)
{
    char fixed[1024] = "";
    size_t used = 0;
    uint32_t axis = sweep_plot_axis(s);
    json_t *names = json_array();
    json_t *rows = json_array();
    for (uint32_t i = 0; i < s->num_axes; i++) {
        if (sweep_varies(s, i))
            json_array_append_new(names, json_string(s->axes[i].option->name));
        else if (used < sizeof fixed)
            used +=
                (size_t)snprintf(fixed + used, sizeof fixed - used, "%s%s %s", used > 0 ? ", " : "",
                                 s->axes[i].option->name, s->axes[i].list.values[0]);
    }
    for (uint32_t i = 0; i < s->num_points; i++)
        json_array_append_new(rows, row_object(s, axis, i));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "trace", s->trace, "fixed", fixed,
                     "x_name", axis < s->num_axes ? sweep_plot_x_name(s, axis) : "", "axes", names,
                     "columns", columns_object(s), "plots", plots_object(s), "rows", rows);
}

bool sweep_page_write(FILE *out, const sweep *s)
{
    json_t *object = page_object(s);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    if (text == NULL)
        return false;
    fwrite(sweep_viewer_head, 1, sweep_viewer_head_bytes, out);
    pack_print_json(text, out);
    fwrite(sweep_viewer_tail, 1, sweep_viewer_tail_bytes, out);
    free(text);
    return ferror(out) == 0;
}
