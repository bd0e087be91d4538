#include "page.h"

#include "page/pack.h"
#include "page/viewer_page.h"
#include "replay/report.h"

#include <math.h>
#include <string.h>

/* Short numbers: a page of 1,024 workers has 400,000 of them. */
static json_t *rounded(double value, double scale)
{
    double n = round(value * scale);
    return n == 0 ? json_integer(0) : json_real(n / scale);
}

static json_t *counts(const history *h, size_t place)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < history_used_bins(h); i++) {
        uint64_t value;
        memcpy(&value, (const char *)&h->bins[i] + place, sizeof value);
        json_array_append_new(list, report_integer(value));
    }
    return list;
}

/* Blocks at the end of each bin, from their changes. */
static json_t *levels(const history *h, size_t place)
{
    int64_t level = 0;
    json_t *list = json_array();
    for (uint32_t i = 0; i < history_used_bins(h); i++) {
        int64_t change;
        memcpy(&change, (const char *)&h->bins[i] + place, sizeof change);
        level += change;
        json_array_append_new(list, json_integer(level));
    }
    return list;
}

#define LOSS(name) (offsetof(history_bin, losses) + offsetof(ideal_losses, name))

static json_t *bins_json(const history *h)
{
    static const struct {
        const char *name;
        size_t place;
    } losses[] = {
        {"partial_tokens", LOSS(partial)},     {"last_token_tokens", LOSS(last_token)},
        {"not_ready_tokens", LOSS(not_ready)}, {"evicted_tokens", LOSS(evicted)},
        {"beyond_ideal_tokens", LOSS(beyond)}, {"wrong_worker_tokens", LOSS(wrong_worker)},
        {"stale_view_tokens", LOSS(stale)}};
    static const struct {
        const char *name;
        size_t place;
    } sums[] = {{"arrived", offsetof(history_bin, arrived)},
                {"ended", offsetof(history_bin, ended)},
                {"prompt_tokens", offsetof(history_bin, prompt_tokens)},
                {"output_tokens", offsetof(history_bin, output_tokens)},
                {"hit_tokens", offsetof(history_bin, hit_tokens)},
                {"believed_tokens", offsetof(history_bin, believed_tokens)},
                {"ideal_tokens", offsetof(history_bin, ideal_tokens)}};
    json_t *o = json_object();
    json_t *lost = json_object();
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        json_object_set_new(o, sums[i].name, counts(h, sums[i].place));
    if (slo_is_set(&h->limits))
        json_object_set_new(o, "good", counts(h, offsetof(history_bin, good)));
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        json_object_set_new(lost, losses[i].name, counts(h, losses[i].place));
    json_object_set_new(o, "losses", lost);
    json_object_set_new(o, "copies", levels(h, offsetof(history_bin, new_copies)));
    json_object_set_new(o, "blocks", levels(h, offsetof(history_bin, new_blocks)));
    return o;
}

/* ---- rows ----------------------------------------------------------------------- */

/* The last bin ends with the run. */
static double length_of(const history *h, uint32_t bin)
{
    double from_s = bin * h->width_s;
    double left_s = h->end_s - from_s;
    return left_s < h->width_s ? left_s : h->width_s;
}

typedef enum row_value { ROW_WAITING, ROW_RUNNING, ROW_HIT_RATE } row_value;

/* Of a row of several workers: of one of them, on average. */
static json_t *cell_json(const history *h, const history_cell *c, uint32_t bin, double workers,
                         row_value which)
{
    double time = workers * length_of(h, bin);
    if (which == ROW_HIT_RATE)
        return c->prompt_tokens == 0
                   ? json_null()
                   : rounded((double)c->hit_tokens / (double)c->prompt_tokens, 1e3);
    if (time <= 0)
        return json_integer(0);
    return rounded((which == ROW_WAITING ? c->waiting_s : c->running_s) / time, 1e2);
}

static json_t *rows_json(const history *h, row_value which)
{
    json_t *rows = json_array();
    for (uint32_t row = 0; row < h->num_rows; row++) {
        json_t *list = json_array();
        uint32_t left = h->num_workers - row * h->workers_per_row;
        double workers = left < h->workers_per_row ? left : h->workers_per_row;
        for (uint32_t bin = 0; bin < history_used_bins(h); bin++)
            json_array_append_new(list, cell_json(h, &h->cells[(size_t)row * h->num_bins + bin],
                                                  bin, workers, which));
        json_array_append_new(rows, list);
    }
    return rows;
}

/* ---- the rest -------------------------------------------------------------------- */

static json_t *latency_json(const history *h)
{
    static const char *const names[HISTORY_NUM_TIMES] = {"ttft", "tpot", "e2e", "queue"};
    json_t *o = json_pack("{s:i}", "bins_per_octave", HISTORY_OCTAVE);
    for (int k = 0; k < HISTORY_NUM_TIMES; k++) {
        json_t *bins = json_array();
        for (uint32_t i = 0; i < HISTORY_LATENCY_BINS; i++)
            json_array_append_new(bins, report_integer(h->times[k].bins[i]));
        json_object_set_new(
            o, names[k],
            json_pack("{s:o,s:o}", "count", report_integer(h->times[k].count), "bins", bins));
    }
    return o;
}

static json_t *limit_json(int64_t limit)
{
    return limit == INT64_MAX || limit == INT64_MIN ? json_null() : json_integer(limit);
}

static json_t *classes_json(const history *h)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < h->num_classes; i++) {
        const history_class *c = &h->classes[i];
        if (c->ended > 0)
            json_array_append_new(
                list, json_pack("{s:s,s:o,s:o,s:o,s:o}", "group", c->group, "from",
                                limit_json(c->from), "to", limit_json(c->to), "requests",
                                report_integer(c->ended), "good", report_integer(c->good)));
    }
    return list;
}

static json_t *prefixes_json(const history *h, uint32_t block_size)
{
    prefix hot[PREFIXES_HOT];
    json_t *list = json_array();
    uint32_t n = prefixes_hot(&h->prefixes, hot);
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:o,s:o,s:o,s:o}", "tokens",
                                        report_integer((uint64_t)hot[i].blocks * block_size),
                                        "requests", report_integer(hot[i].seen), "first_request",
                                        report_integer(hot[i].request + 1), "copies",
                                        report_integer(copies_of(&h->copies, hot[i].name))));
    return list;
}

static json_t *decisions_json(const history *h)
{
    const decisions *d = &h->decisions;
    json_t *list = json_array();
    for (uint32_t i = 0; i < d->count; i++) {
        const decision *it = &d->list[i];
        bool is_routed = it->worker != ROUTER_NONE;
        json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:s}", "request",
                            report_integer(it->request + 1), "time_s", rounded(it->time_s, 1e6),
                            "router", report_integer(it->router), "worker",
                            is_routed ? report_integer(it->worker) : json_null(), "prompt_tokens",
                            report_integer(it->prompt_tokens), "believed_tokens",
                            report_integer(it->believed_tokens), "hit_tokens",
                            it->has_first_token ? report_integer(it->hit_tokens) : json_null(),
                            "why", it->why));
    }
    return json_pack("{s:o,s:o}", "every", report_integer(d->every > 0 ? d->every : 1), "list",
                     list);
}

json_t *fleet_history_json(const history *h, const fleet_result *result)
{
    uint32_t block_size = result->total.block_size;
    if (!history_is_whole(h))
        return NULL;
    json_t *o = json_pack("{s:f,s:f,s:o}", "bin_s", h->width_s, "end_s", h->end_s,
                          "workers_per_row", report_integer(h->workers_per_row));
    json_object_set_new(o, "bins", bins_json(h));
    json_object_set_new(o, "waiting", rows_json(h, ROW_WAITING));
    json_object_set_new(o, "running", rows_json(h, ROW_RUNNING));
    json_object_set_new(o, "hit_rate", rows_json(h, ROW_HIT_RATE));
    json_object_set_new(o, "latency", latency_json(h));
    if (slo_is_set(&h->limits))
        json_object_set_new(o, "slo_classes", classes_json(h));
    json_object_set_new(o, "prefixes", prefixes_json(h, block_size));
    json_object_set_new(o, "decisions", decisions_json(h));
    return o;
}

static json_t *meta_json(const page_meta *meta)
{
    json_t *o = json_object();
    const struct {
        const char *name;
        const char *text;
    } texts[] = {{"trace", meta->trace}, {"model", meta->model}, {"gpu", meta->gpu}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].text != NULL)
            json_object_set_new(o, texts[i].name, json_string(texts[i].text));
    json_object_set_new(o, "block_size", report_integer(meta->block_size));
    json_object_set_new(o, "bytes_per_block", report_integer(meta->bytes_per_block));
    json_object_set(o, "options", meta->options);
    return o;
}

bool fleet_page_write(FILE *out, const page_meta *meta, json_t *report)
{
    json_t *o = json_pack("{s:s,s:i,s:o,s:O}", "format", "quire-fleet", "version", 1, "meta",
                          meta_json(meta), "report", report);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(o);
    if (text == NULL)
        return false;
    fwrite(fleet_viewer_head, 1, fleet_viewer_head_bytes, out);
    pack_print_json(text, out);
    fwrite(fleet_viewer_tail, 1, fleet_viewer_tail_bytes, out);
    free(text);
    return ferror(out) == 0;
}
