/* cli/page/write.c - the part of page.h that writes: the page's head, the data as one JSON text,
 * the page's tail. docs/page-data.md says what each key is.
 */
#include "output/json_print.h"
#include "pack.h"
#include "store.h"
#include "viewer_page.h"

#include <inttypes.h>
#include <quire/version.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct page_output {
    FILE *file;
    pack column; /* the one that is being made */
    bool is_first;
} page_output;

static void key(page_output *out, const char *name)
{
    fprintf(out->file, "%s\"%s\":", out->is_first ? "" : ",\n", name);
    out->is_first = false;
}

static void begin(page_output *out, const char *name)
{
    if (name != NULL)
        key(out, name);
    putc('{', out->file);
    out->is_first = true;
}

static void end(page_output *out)
{
    putc('}', out->file);
    out->is_first = false;
}

static void text(page_output *out, const char *name, const char *value)
{
    if (value == NULL)
        return;
    key(out, name);
    json_print_text(out->file, value);
}

static void number(page_output *out, const char *name, uint64_t value)
{
    key(out, name);
    fprintf(out->file, "%" PRIu64, value);
}

static void column(page_output *out, const char *name)
{
    key(out, name);
    pack_print(&out->column, out->file);
}

/* ---- meta ------------------------------------------------------------------ */

static void write_options(const page *p, page_output *out)
{
    char *options = json_dumps(p->options, JSON_COMPACT);
    key(out, "options");
    pack_print_json(options != NULL ? options : "[]", out->file);
    out->column.is_failed |= options == NULL && p->options != NULL;
    free(options);
}

static void write_tiers(const page *p, page_output *out)
{
    key(out, "tiers");
    putc('[', out->file);
    for (uint32_t i = 0; i < p->num_tiers; i++) {
        fputs(i > 0 ? "," : "", out->file);
        begin(out, NULL);
        text(out, "name", p->tiers[i].name != NULL ? p->tiers[i].name : "tier");
        number(out, "total", p->tiers[i].total);
        end(out);
    }
    putc(']', out->file);
}

static void write_meta(const page *p, page_output *out)
{
    begin(out, "meta");
    text(out, "title", p->title);
    text(out, "trace", p->trace);
    text(out, "model", p->model);
    text(out, "gpu", p->gpu);
    text(out, "version", quire_version_string());
    number(out, "total_blocks", p->total_blocks);
    number(out, "block_size", p->block_size);
    number(out, "bytes_per_block", p->bytes_per_block);
    number(out, "num_steps", p->num_steps);
    number(out, "num_requests", p->preempted.seen + p->others.seen);
    number(out, "num_preemptions", p->num_preemptions);
    number(out, "end_us", page_us(p->end_s));
    write_options(p, out);
    write_tiers(p, out);
    end(out);
}

/* ---- columns --------------------------------------------------------------- */

typedef enum field_kind { FIELD_U64, FIELD_U32, FIELD_TIME, FIELD_AFTER_ARRIVAL } field_kind;

/* A column: what of each element it has. */
typedef struct field {
    const char *name;
    size_t offset;
    field_kind kind;
} field;

#define NUM_OF(list) (sizeof(list) / sizeof(list)[0])

/* 0: never; else 1 + what came after `from`. */
static uint64_t after(double from_s, double s)
{
    uint64_t from = page_us(from_s);
    uint64_t at = page_us(s);
    return s < 0 ? 0 : at > from ? at - from + 1 : 1;
}

static uint64_t value_of(const field *f, const char *element)
{
    const void *at = element + f->offset;
    switch (f->kind) {
    case FIELD_U64:
        return *(const uint64_t *)at;
    case FIELD_U32:
        return *(const uint32_t *)at;
    case FIELD_TIME:
        return page_us(*(const double *)at);
    default:
        return after(((const page_request *)(const void *)element)->arrival_s, *(const double *)at);
    }
}

/* Elements lie `bytes` apart. */
static void write_columns(page_output *out, const field *fields, size_t num_fields,
                          const void *elements, size_t bytes, uint32_t num)
{
    for (size_t f = 0; f < num_fields; f++) {
        for (uint32_t i = 0; i < num; i++)
            pack_next(&out->column, value_of(&fields[f], (const char *)elements + i * bytes));
        column(out, fields[f].name);
    }
}

/* ---- rows and marks -------------------------------------------------------- */

static void write_series(const page *p, page_output *out, const char *name, uint32_t series)
{
    size_t at = offsetof(page_row, stats) + series * sizeof(page_stat);
    const field fields[] = {{"min", at + offsetof(page_stat, min), FIELD_U32},
                            {"max", at + offsetof(page_stat, max), FIELD_U32},
                            {"sum", at + offsetof(page_stat, sum), FIELD_U64}};
    bool has_range = p->points_per_row > 1; /* else all three are the same */
    begin(out, name);
    write_columns(out, fields, has_range ? 3 : 1, p->rows, p->row_bytes, p->num_rows);
    end(out);
}

/* A row mostly begins where the one before ends: what is said is how far from there. */
static void write_row_times(const page *p, page_output *out)
{
    uint64_t expected = 0;
    for (uint32_t i = 0; i < p->num_rows; i++) {
        const page_row *row = page_row_at(p, i);
        pack_from(&out->column, row->time_us, expected);
        expected = row->time_us + row->stats[SERIES_DURATION_US].sum;
    }
    column(out, "gap_us");
}

static void write_tier_series(const page *p, page_output *out)
{
    static const char *const NAMES[TIER_SERIES] = {"empty", "cached", "active",
                                                   "in",    "out",    "hits"};
    for (uint32_t i = 0; i < TIER_SERIES * p->num_tiers; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.%" PRIu32, NAMES[i % TIER_SERIES], i / TIER_SERIES);
        write_series(p, out, name, NUM_SERIES + i);
    }
}

static void write_rows(const page *p, page_output *out)
{
    static const field FIELDS[] = {
        {"step", offsetof(page_row, step), FIELD_U64},
        {"points", offsetof(page_row, num_points), FIELD_U64},
        {"steps", offsetof(page_row, num_steps), FIELD_U64},
        {"hit_tokens", offsetof(page_row, hit_tokens), FIELD_U64},
        {"external_tokens", offsetof(page_row, external_tokens), FIELD_U64},
        {"query_tokens", offsetof(page_row, query_tokens), FIELD_U64}};
    static const char *const NAMES[NUM_SERIES] = {"empty",   "cached",  "active",
                                                  "running", "waiting", "tokens",
                                                  "prefill", "decode",  "duration_us"};
    begin(out, "rows");
    number(out, "count", p->num_rows);
    number(out, "points_per_row", p->points_per_row);
    write_columns(out, FIELDS, NUM_OF(FIELDS), p->rows, p->row_bytes, p->num_rows);
    write_row_times(p, out);
    for (uint32_t s = 0; s < NUM_SERIES; s++)
        write_series(p, out, NAMES[s], s);
    write_tier_series(p, out);
    end(out);
}

static void write_marks(const page *p, page_output *out)
{
    static const field FIELDS[] = {{"step", offsetof(page_mark, step), FIELD_U64},
                                   {"time_us", offsetof(page_mark, time_us), FIELD_U64},
                                   {"num", offsetof(page_mark, num), FIELD_U64}};
    begin(out, "marks");
    number(out, "count", p->num_marks);
    number(out, "steps_per_mark", p->steps_per_mark);
    write_columns(out, FIELDS, NUM_OF(FIELDS), p->marks, sizeof *p->marks, p->num_marks);
    end(out);
}

/* ---- frames ---------------------------------------------------------------- */

static void write_frames(const page_frames *f, const char *name, page_output *out)
{
    static const field STEP = {"step", offsetof(page_frame, step), FIELD_U64};
    uint32_t cells = f->num_frames == 0 ? 0 : (f->num_blocks - 1) / f->cell_blocks + 1;
    begin(out, name);
    number(out, "count", f->num_frames);
    number(out, "num_blocks", f->num_blocks);
    number(out, "cell_blocks", f->cell_blocks);
    number(out, "cells", cells);
    write_columns(out, &STEP, 1, f->frames, sizeof *f->frames, f->num_frames);
    for (uint32_t i = 0; i < f->num_frames; i++)
        pack_runs(&out->column, f->frames[i].cells, cells);
    column(out, "data");
    if (f->has_owners) {
        for (uint32_t i = 0; i < f->num_frames; i++)
            for (uint32_t block = 0; block < f->num_blocks; block++)
                pack_next(&out->column, f->frames[i].owners[block]);
        column(out, "owners");
    }
    end(out);
}

/* ---- requests -------------------------------------------------------------- */

static int by_arrival(const void *a, const void *b)
{
    const page_request *x = a;
    const page_request *y = b;
    if (x->arrival_s != y->arrival_s)
        return x->arrival_s < y->arrival_s ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Those that were preempted, then others at even distances as far as there is room. */
static page_request *choose_requests(const page *p, uint32_t *num)
{
    uint32_t room = PAGE_MAX_REQUESTS - p->preempted.num;
    uint32_t others = p->others.num < room ? p->others.num : room;
    page_request *chosen = calloc((size_t)p->preempted.num + others + 1, sizeof *chosen);
    *num = 0;
    if (chosen == NULL)
        return NULL;
    for (uint32_t i = 0; i < p->preempted.num; i++)
        chosen[(*num)++] = p->preempted.requests[i];
    for (uint32_t i = 0; i < others; i++)
        chosen[(*num)++] = p->others.requests[(uint64_t)i * p->others.num / others];
    qsort(chosen, *num, sizeof *chosen, by_arrival);
    return chosen;
}

static void write_intervals(page_output *out, const page_request *chosen, uint32_t num)
{
    for (const page_request *r = chosen; r < chosen + num; r++)
        for (uint32_t k = 0; k < r->num_preempted && k < PAGE_MAX_INTERVALS; k++) {
            pack_number(&out->column, after(r->arrival_s, r->preempted[k].from_s));
            pack_number(&out->column, after(r->arrival_s, r->preempted[k].to_s));
        }
    column(out, "intervals");
}

static bool write_requests(const page *p, page_output *out)
{
    _Static_assert(sizeof(page_end) == sizeof(uint32_t), "it is read as one");
    static const field FIELDS[] = {
        {"id", offsetof(page_request, id), FIELD_U64},
        {"session", offsetof(page_request, session), FIELD_U64},
        {"turn", offsetof(page_request, turn), FIELD_U32},
        {"arrival_us", offsetof(page_request, arrival_s), FIELD_TIME},
        {"scheduled", offsetof(page_request, scheduled_s), FIELD_AFTER_ARRIVAL},
        {"first_token", offsetof(page_request, first_token_s), FIELD_AFTER_ARRIVAL},
        {"ended", offsetof(page_request, end_s), FIELD_AFTER_ARRIVAL},
        {"prompt", offsetof(page_request, prompt_tokens), FIELD_U32},
        {"output", offsetof(page_request, output_tokens), FIELD_U32},
        {"hit", offsetof(page_request, hit_tokens), FIELD_U32},
        {"end", offsetof(page_request, end), FIELD_U32},
        {"preempted", offsetof(page_request, num_preempted), FIELD_U32}};
    uint32_t num;
    page_request *chosen = choose_requests(p, &num);
    if (chosen == NULL)
        return false;
    begin(out, "requests");
    number(out, "count", num);
    number(out, "total", p->preempted.seen + p->others.seen);
    number(out, "max_intervals", PAGE_MAX_INTERVALS);
    write_columns(out, FIELDS, NUM_OF(FIELDS), chosen, sizeof *chosen, num);
    write_intervals(out, chosen, num);
    end(out);
    free(chosen);
    return true;
}

static void write_latencies(const page *p, page_output *out)
{
    static const char *const NAMES[NUM_LATENCIES] = {"queue", "ttft", "tpot", "e2e"};
    begin(out, "latency");
    number(out, "bins_per_octave", PAGE_BINS_PER_OCTAVE);
    for (uint32_t which = 0; which < NUM_LATENCIES; which++) {
        const page_histogram *h = &p->latencies[which];
        begin(out, NAMES[which]);
        number(out, "count", h->count);
        for (uint32_t i = 0; i < PAGE_NUM_BINS; i++)
            pack_number(&out->column, h->bins[i]);
        column(out, "bins");
        end(out);
    }
    end(out);
}

/* ---- the file -------------------------------------------------------------- */

static bool write_all(const page *p, page_output *out, const char *report)
{
    fwrite(viewer_head, 1, viewer_head_bytes, out->file);
    begin(out, NULL);
    text(out, "format", "quire-page");
    number(out, "version", 1);
    write_meta(p, out);
    key(out, "report");
    pack_print_json(report, out->file);
    write_rows(p, out);
    write_marks(p, out);
    write_frames(&p->frames[PAGE_GPU], "frames", out);
    write_frames(&p->frames[PAGE_HOST], "host_frames", out);
    bool is_whole = write_requests(p, out);
    write_latencies(p, out);
    end(out);
    fwrite(viewer_tail, 1, viewer_tail_bytes, out->file);
    return is_whole && !out->column.is_failed && !p->is_failed;
}

bool page_write(const page *p, FILE *file, const char *report)
{
    page_output out = {.file = file};
    bool is_whole = write_all(p, &out, report);
    free(out.column.bytes);
    return is_whole;
}
