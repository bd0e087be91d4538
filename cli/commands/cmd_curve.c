/* cmd_curve.c - `quire curve`: the hit rate at every pool size, from one reading of a trace. */
#include "commands.h"
#include "curve/policies.h"
#include "curve/report.h"
#include "options/engine.h"
#include "options/value_list.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "output/made_by.h"
#include "output/output.h"
#include "output/progress.h"
#include "replay/report.h"

#include <math.h>
#include <string.h>

enum { DEFAULT_BLOCK_SIZE = 16, MAX_SIZES = 1000, MAX_ROWS = MAX_SIZES + 24 };

static struct {
    engine_options engine;
    const char *format;
    trace_options trace;
    const char *sizes;
    uint64_t given[MAX_SIZES]; /* what it says */
    uint32_t num_given;
    const char *policies; /* report.has_policy is what it says */
    bool has_model;
    bool has_gpu;
    output_file json;
    output_file csv;
    curve_report report; /* made_by: of the command as it was given, before block_size is known */
} o = {.engine = ENGINE_OPTIONS_INIT,
       .report = {
           .sample = 1, .backlog = 256, .has_belady = true, .has_plot = true, .num_points = 1000}};

static const option table[] = {
    {"block-size", OPTION_U32, &o.report.block_size, "TOKENS", "tokens per block",
     .def = "that of the trace's own ids, else 16", .min = 1, .max = 1 << 20},
    {"sizes", OPTION_TEXT, &o.sizes, "LIST",
     "pool sizes for the table, in blocks (without the null block): 1000,5k,10k..80k", .def = NULL},
    {"sample", OPTION_REAL, &o.report.sample, "SHARE",
     "share of blocks that are looked at, for huge traces: estimates with error bars",
     .def = "1, exact", .min = 1e-6, .max = 1},
    {"belady", OPTION_SWITCH, &o.report.has_belady, NULL,
     "also Belady's bound: the hits of a pool that knows the future", .def = "on"},
    {"policy", OPTION_TEXT, &o.policies, "LIST",
     "also the hits of eviction policies: lru, arc, s3fifo, lookahead, or all", .def = "none"},
    {"backlog", OPTION_U32, &o.report.backlog, "N",
     "number of waiting requests whose blocks lookahead keeps", .def = "256", .max = 1 << 24},
    {"json", OPTION_TEXT, &o.json.path, "FILE", "table and curve; -: standard output",
     .section = "Output", .role = OPTION_OUTPUT},
    {"csv", OPTION_TEXT, &o.csv.path, "FILE",
     "the curve; -: standard output; FILE.meta.json says what made it", .role = OPTION_OUTPUT},
    {"points", OPTION_U32, &o.report.num_points, "N",
     "points of the curve in files; 0: every size at which something changes", .def = "1000",
     .max = 1 << 24},
    {"plot", OPTION_SWITCH, &o.report.has_plot, NULL, "draw the curve", .def = "on",
     .role = OPTION_OUTPUT},
    TRACE_OPTIONS(o.trace, o.format, "skip invalid records, and count them"),
    {"model", OPTION_TEXT, &o.engine.model, "NAME|FILE", "sizes are shown in GiB too",
     .section = "Model and GPU", .is_given = &o.has_model, .preset = shape_preset_name},
    {"gpu", OPTION_TEXT, &o.engine.gpu, "NAME", "also a row for the pool that fits on it",
     .is_given = &o.has_gpu, .preset = gpu_preset_name},
    {"tp", OPTION_U32, &o.engine.plan.tp, "N", "GPUs that share each layer; GiB are of one",
     .def = "1", .min = 1, .max = 1024},
    {"kv-cache-dtype", OPTION_CHOICE, &o.engine.plan.cache_dtype, "KIND",
     "how keys and values are stored", .def = "auto", .choices = engine_cache_dtypes},
    {"gpu-memory-utilization", OPTION_REAL, &o.engine.plan.gpu_memory_utilization, "SHARE",
     "share of the GPU's memory that the engine may take", .def = "0.9", .min = 0.01, .max = 1},
    {0}};

/* ---- progress -------------------------------------------------------------- */

/* The work of a curve: a unit is what reading the trace takes. A policy at one size takes about as
 * long; Belady's bound at one size takes a hundredth. */
static struct {
    progress line;
    double shown_s;
    double units;  /* of rows that are done */
    double rows_s; /* when the first row began */
} work;

#define BELADY_UNITS 0.01
enum { SHOW_MS = 100, USUAL_ROWS = 10 };

/* Units of a row of the table. */
static double row_units(void)
{
    double units = o.report.has_belady ? BELADY_UNITS : 0;
    for (uint32_t i = 0; i < CURVE_POLICIES; i++)
        units += o.report.has_policy[i];
    return units;
}

static bool is_time_to_show(void)
{
    double now_s = work.line.is_on ? progress_clock() : 0;
    if (!work.line.is_on || now_s < work.shown_s + SHOW_MS * 1e-3)
        return false;
    work.shown_s = now_s;
    return true;
}

static void show_reading(const trace_reader *reader, uint64_t num_requests)
{
    char what[96];
    uint64_t size = trace_size(reader);
    if (!is_time_to_show())
        return;
    double total = 1 + row_units() * (USUAL_ROWS + o.num_given);
    double part = size > 0 ? (double)trace_position(reader) / (double)size : 0;
    if (o.trace.max_requests > 0)
        part = fmax(part, (double)num_requests / (double)o.trace.max_requests);
    snprintf(what, sizeof what, "%s requests read", report_number(num_requests));
    progress_show(&work.line, part > 0 ? part / total : -1, -1, what);
}

/* From the first row on, its own time says how long the others take. */
static void show_rows(double units, uint32_t num_rows_done, uint32_t num_rows)
{
    char what[96];
    work.units += units;
    double rest = row_units() * num_rows - work.units;
    if (!is_time_to_show())
        return;
    snprintf(what, sizeof what, "%u of %u pool sizes", num_rows_done, num_rows);
    progress_show(&work.line, (1 + work.units) / (1 + work.units + rest),
                  rest * (progress_clock() - work.rows_s) / work.units, what);
}

/* ---- sizes ----------------------------------------------------------------- */

typedef struct row_list {
    curve_row rows[MAX_ROWS];
    uint32_t num_rows;
} row_list;

/* By size, each once; a note stays. */
static void add_row(row_list *list, uint64_t num_blocks, const char *note)
{
    uint32_t at = 0;
    while (at < list->num_rows && list->rows[at].num_blocks < num_blocks)
        at++;
    if (at < list->num_rows && list->rows[at].num_blocks == num_blocks) {
        if (note != NULL)
            list->rows[at].note = note;
        return;
    }
    if (list->num_rows == MAX_ROWS)
        return;
    memmove(list->rows + at + 1, list->rows + at, (list->num_rows - at) * sizeof *list->rows);
    list->rows[at] = (curve_row){.num_blocks = num_blocks, .note = note};
    list->num_rows++;
}

/* What --sizes takes one of. */
static uint64_t one_size;
static const option size_option = {"sizes", OPTION_U64, &one_size,       "BLOCKS",
                                   "",      .min = 1,   .max = INT32_MAX};

static int take_sizes(void)
{
    value_list texts = {0};
    int status = o.sizes != NULL ? value_list_read(&cmd_curve, &size_option, o.sizes, &texts) : 0;
    if (status == 0 && texts.num_values > MAX_SIZES)
        status = command_error(&cmd_curve, "too many values for --sizes (at most %d)", MAX_SIZES);
    for (uint32_t i = 0; i < texts.num_values && status == 0; i++) {
        status = option_set(&cmd_curve, &size_option, texts.values[i]);
        o.given[i] = one_size;
    }
    o.num_given = texts.num_values;
    value_list_free(&texts);
    return status;
}

/* ---- policies -------------------------------------------------------------- */

static int take_policy(const char *name)
{
    bool is_known = false;
    for (uint32_t i = 0; i < CURVE_POLICIES; i++) {
        bool is_this = strcmp(name, "all") == 0 || strcmp(name, curve_policy_names[i]) == 0;
        o.report.has_policy[i] = o.report.has_policy[i] || is_this;
        is_known = is_known || is_this;
    }
    if (is_known)
        return 0;
    return command_error(
        &cmd_curve,
        "invalid value \"%s\" for --policy (expected lru, arc, s3fifo, lookahead or all)", name);
}

static int take_policies(void)
{
    static const option policy_option = {.name = "policy", .kind = OPTION_TEXT};
    value_list names = {0};
    int status = 0;
    memset(o.report.has_policy, 0, sizeof o.report.has_policy);
    if (o.policies == NULL)
        return 0;
    if (o.report.sample < 1)
        return command_error(&cmd_curve,
                             "--policy cannot be used with --sample: policies need all blocks");
    status = value_list_read(&cmd_curve, &policy_option, o.policies, &names);
    for (uint32_t i = 0; i < names.num_values && status == 0; i++)
        status = take_policy(names.values[i]);
    value_list_free(&names);
    return status;
}

static void add_shares(row_list *list, const curve_totals *t)
{
    static const int per_cent[] = {1, 2, 5, 10, 25, 50, 75, 90, 100};
    if (t->min_blocks > 0)
        add_row(list, t->min_blocks, "the largest request");
    for (size_t i = 0; i < sizeof per_cent / sizeof *per_cent; i++) {
        uint64_t size = (uint64_t)(t->distinct_blocks * per_cent[i] / 100);
        if (size > t->min_blocks)
            add_row(list, size, NULL);
    }
}

static int fill_policy(const curve *c, curve_row *row, uint32_t policy)
{
    uint64_t most = row->num_blocks < QUIRE_SLOTS_MAX ? row->num_blocks : QUIRE_SLOTS_MAX;
    int status = policy_hits(curve_get_log(c), (quire_slots_policy)policy, (uint32_t)most,
                             o.report.backlog, &row->policies[policy]);
    if (status != QUIRE_OK)
        return command_failed(&cmd_curve, "--policy %s: %s", curve_policy_names[policy],
                              quire_strerror(status));
    return 0;
}

/* After a signal the row may be incomplete. */
static int fill_row(const curve *c, row_list *list, uint32_t at)
{
    curve_row *row = &list->rows[at];
    int status = 0;
    row->is_too_small = row->num_blocks < curve_get_totals(c).min_blocks;
    row->hits = curve_hits(c, row->num_blocks);
    if (o.report.has_belady && !curve_belady(c, row->num_blocks, &row->belady))
        return command_failed(&cmd_curve, "not enough memory");
    if (o.report.has_belady)
        show_rows(BELADY_UNITS, at, list->num_rows);
    for (uint32_t i = 0; i < CURVE_POLICIES && status == 0 && !interrupt_came(); i++)
        if (o.report.has_policy[i]) {
            status = fill_policy(c, row, i);
            show_rows(1, at, list->num_rows);
        }
    return status;
}

/* If a signal comes when some rows are complete, only these rows are shown. Belady's bound and the
 * policies take long: a curve that was stopped before has only LRU's hits. */
static int fill_rows(const curve *c, row_list *list)
{
    int status = 0;
    uint32_t i = 0;
    work.rows_s = progress_clock();
    for (; i < list->num_rows && status == 0 && !interrupt_came(); i++)
        status = fill_row(c, list, i);
    if (status != 0 || !interrupt_came())
        return status;
    if (i > 1) {
        list->num_rows = i - 1;
        return 0;
    }
    o.report.has_belady = false;
    memset(o.report.has_policy, 0, sizeof o.report.has_policy);
    for (i = 0; i < list->num_rows && status == 0; i++)
        status = fill_row(c, list, i);
    return status;
}

/* ---- reading --------------------------------------------------------------- */

/* 0, or an exit status after a sentence. */
static int read_trace(trace_reader *reader, curve **made)
{
    trace_request request;
    curve *c = NULL;
    uint64_t n = 0;
    int more = trace_next(reader, &request);
    if (more == 1) {
        if (o.report.block_size == 0)
            o.report.block_size =
                request.id_block_size > 0 ? request.id_block_size : DEFAULT_BLOCK_SIZE;
        c = curve_open(&(curve_options){.block_size = o.report.block_size,
                                        .sample = o.report.sample,
                                        .has_belady = o.report.has_belady,
                                        .has_policies = o.policies != NULL});
    }
    bool has_memory = c != NULL || more != 1;
    for (; more == 1 && has_memory; more = has_memory ? trace_next(reader, &request) : 0) {
        has_memory = curve_add(c, &request);
        if (interrupt_came())
            break;
        if (++n % 64 == 0)
            show_reading(reader, n);
    }
    if (!has_memory || more < 0)
        progress_end(&work.line);
    *made = c;
    if (!has_memory)
        return command_error(&cmd_curve,
                             "out of memory after %llu requests; --sample 0.01 needs a hundredth "
                             "of the memory",
                             (unsigned long long)n) -
               1;
    if (more < 0 && !(interrupt_came() && c != NULL)) /* a read that was interrupted is no error */
        return command_failed(&cmd_curve, "%s", trace_error(reader));
    return c != NULL
               ? 0
               : command_failed(&cmd_curve, "%s: contains no requests", cmd_curve.arguments[0]);
}

/* ---- files ----------------------------------------------------------------- */

static int report(const curve *c, const row_list *list, uint64_t block_bytes, bool has_contents)
{
    curve_report *r = &o.report;
    r->curve = c;
    r->trace = cmd_curve.arguments[0];
    r->block_bytes = block_bytes;
    r->rows = list->rows;
    r->num_rows = list->num_rows;
    r->stopped = interrupt_name();
    r->has_contents = has_contents;
    if (o.json.file != stdout && o.csv.file != stdout)
        curve_report_print(stdout, r);
    if (o.json.file != NULL && !curve_report_json(o.json.file, r) && !ferror(o.json.file))
        return command_failed(&cmd_curve, "--json: not enough memory");
    if (o.csv.file != NULL)
        curve_report_csv(o.csv.file, r);
    made_by_write_beside(&cmd_curve, r->made_by, o.csv.path);
    return outputs_commit_for(&cmd_curve);
}

/* ---- the command ----------------------------------------------------------- */

/* Bytes of a block, and what fits on the GPU, where a model or a GPU is named. */
static int plan_engine(row_list *list, uint64_t *block_bytes)
{
    static char note[96];
    engine_setup setup;
    plan_result plan;
    if (!o.has_model && !o.has_gpu)
        return 0;
    o.engine.plan.block_size = o.report.block_size;
    int status = engine_resolve(&cmd_curve, &o.engine, &setup);
    if (status == 0)
        status = engine_plan(&cmd_curve, &o.engine, &setup, &plan, NULL);
    if (status != 0)
        return status;
    *block_bytes = plan.block_bytes;
    snprintf(note, sizeof note, "%s on %u x %s", setup.shape.name, o.engine.plan.tp,
             setup.gpu.name);
    if (o.has_gpu && plan.num_blocks > 1)
        add_row(list, plan.num_blocks - 1, note);
    return 0;
}

static int run(trace_reader *reader)
{
    static row_list list;
    uint64_t block_bytes = 0;
    curve *c = NULL;
    progress_begin(&work.line, true);
    int status = read_trace(reader, &c);
    if (status == 0) {
        curve_finish(c);
        curve_totals totals = curve_get_totals(c);
        list.num_rows = 0;
        add_shares(&list, &totals);
        status = plan_engine(&list, &block_bytes);
        for (uint32_t i = 0; i < o.num_given; i++)
            add_row(&list, o.given[i],
                    o.given[i] < totals.min_blocks ? "too small for the largest request"
                                                   : "as given");
        if (status == 0)
            status = fill_rows(c, &list);
        progress_end(&work.line);
        if (status == 0)
            status = report(c, &list, block_bytes, trace_has_contents(reader));
        if (trace_num_bad(reader) > 0)
            fprintf(stderr, "quire curve: %llu invalid records skipped\n",
                    (unsigned long long)trace_num_bad(reader));
    }
    curve_close(c);
    return status;
}

static int run_curve(void)
{
    int status = take_sizes();
    if (status == 0)
        status = take_policies();
    if (status == 0)
        status = engine_resolve_format(&cmd_curve, o.format, &o.trace.format);
    if (status != 0)
        return status;
    uint32_t num_traces = (uint32_t)cmd_curve.num_arguments;
    trace_reader *reader = trace_open_all(cmd_curve.arguments, num_traces, &o.trace);
    if (reader == NULL)
        return command_failed(&cmd_curve, "%s", failure());
    o.report.made_by = made_by(&cmd_curve);
    json_object_set_new(o.report.made_by, "trace", made_by_traces(cmd_curve.arguments, num_traces));
    interrupt_catch();
    status = outputs_open_for(&cmd_curve);
    if (status == 0)
        status = run(reader);
    trace_close(reader);
    json_decref(o.report.made_by);
    return interrupt_status(status);
}

command cmd_curve = {
    .name = "curve",
    .usage = "curve [OPTION]... TRACE...",
    .summary =
        "finds the hit rate at every pool size in one reading of a trace, and Belady's bound",
    .examples = "  quire curve trace.jsonl.zst\n"
                "      a table, and the curve\n"
                "  quire curve --block-size 16 --model llama-3.1-8b --gpu H100 trace.jsonl.zst\n"
                "      sizes in GiB, and where that GPU stands\n"
                "  quire curve --policy all --backlog 256 trace.jsonl.zst\n"
                "      the same sizes with other ways to evict\n"
                "  quire curve --sample 0.01 --sizes 10k,100k,1M huge.jsonl.zst\n"
                "      a hundredth of the blocks, with error bars\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file, a folder, or - for standard input",
    .run = run_curve,
};
