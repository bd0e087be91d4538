/* cmd_trace_info.c - `quire trace info`: the figures of a trace. */
#include "commands.h"
#include "options/engine.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "output/made_by.h"
#include "output/output.h"
#include "output/progress.h"
#include "replay/report.h"
#include "trace/files.h"
#include "workload/info.h"

static struct {
    trace_options trace;
    const char *format;
    output_file json;
    uint32_t num_prefixes;
} o = {.num_prefixes = 5};

static const option table[] = {
    {"prefixes", OPTION_U32, &o.num_prefixes, "N", "largest prefixes that are listed", .def = "5",
     .max = INFO_MAX_PREFIXES, .section = "Output"},
    {"json", OPTION_TEXT, &o.json.path, "FILE", "the figures with stable keys; -: standard output",
     .role = OPTION_OUTPUT},
    TRACE_OPTIONS(o.trace, o.format, "skip invalid records, and count them"),
    {0}};

enum { SHOW_MS = 100, SHOW_EVERY = 256 };

static void show(progress *p, const trace_reader *reader, uint64_t n)
{
    static double shown_s;
    char what[96];
    double now_s = progress_clock();
    if (!p->is_on || now_s < shown_s + SHOW_MS * 1e-3)
        return;
    shown_s = now_s;
    uint64_t size = trace_size(reader);
    snprintf(what, sizeof what, "%s requests read", report_number(n));
    progress_show(p, size > 0 ? (double)trace_position(reader) / (double)size : -1, -1, what);
}

/* 0, or an exit status after a sentence. */
static int read_trace(trace_reader *reader, trace_info *info)
{
    trace_request request;
    progress p;
    int more = 0;
    bool has_memory = true;
    progress_begin(&p, true);
    while (has_memory && !interrupt_came() && (more = trace_next(reader, &request)) == 1) {
        has_memory = info_add(info, &request, trace_has_contents(reader));
        if (info->num_requests % SHOW_EVERY == 0)
            show(&p, reader, info->num_requests);
    }
    has_memory = has_memory && info_end(info);
    progress_end(&p);
    if (interrupt_came())
        return interrupt_status(COMMAND_FAILED);
    if (!has_memory)
        return command_failed(&cmd_trace_info, "not enough memory after %s requests",
                              report_number(info->num_requests));
    if (more < 0)
        return command_failed(&cmd_trace_info, "%s", trace_error(reader));
    if (info->num_requests == 0)
        return command_failed(&cmd_trace_info, "%s: contains no requests", info->trace);
    info->num_bad = trace_num_bad(reader);
    return 0;
}

static int report(trace_info *info)
{
    if (o.json.file != stdout)
        info_print(stdout, info);
    if (o.json.file != NULL) {
        json_t *root = info_json(info);
        if (root == NULL)
            return command_failed(&cmd_trace_info, "--json: not enough memory");
        json_object_set_new(root, "made_by", made_by(&cmd_trace_info));
        json_dumpf(root, o.json.file, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
        fputc('\n', o.json.file);
        json_decref(root);
    }
    return outputs_commit_for(&cmd_trace_info);
}

static int run_info(void)
{
    char names[TRACE_NAMES_BYTES];
    int status = engine_resolve_format(&cmd_trace_info, o.format, &o.trace.format);
    if (status != 0)
        return status;
    uint32_t num_traces = (uint32_t)cmd_trace_info.num_arguments;
    trace_reader *reader = trace_open_all(cmd_trace_info.arguments, num_traces, &o.trace);
    if (reader == NULL)
        return command_failed(&cmd_trace_info, "%s", failure());
    trace_info info = {.trace = trace_names(names, cmd_trace_info.arguments, num_traces),
                       .format = trace_reader_format(reader),
                       .num_wanted = o.num_prefixes};
    interrupt_catch();
    status = outputs_open_for(&cmd_trace_info);
    if (status == 0)
        status = read_trace(reader, &info);
    if (status == 0)
        status = report(&info);
    info_free(&info);
    trace_close(reader);
    return status;
}

command cmd_trace_info = {
    .name = "trace info",
    .usage = "trace info [OPTION]... TRACE...",
    .summary = "the figures of a trace: requests, times, lengths, sessions, what prompts share",
    .examples = "  quire trace info day.jsonl.zst\n"
                "      a table\n"
                "  quire trace info --prefixes 20 --json info.json day/\n"
                "      all files of a folder, with more of the prefixes that prompts share\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file, a folder, or - for standard input",
    .run = run_info,
};
