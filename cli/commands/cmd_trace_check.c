/* cmd_trace_check.c - `quire trace check`: all problems of a trace, not only the first. */
#include "commands.h"
#include "options/engine.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "output/output.h"
#include "output/progress.h"
#include "replay/report.h"

#include <jansson.h>
#include <stdio.h>

static struct {
    trace_options trace;
    const char *format;
    uint64_t max_problems;
    output_file json;
    json_t *problems;
    uint64_t num_problems;
    uint64_t num_requests;
    progress progress;
    double shown_s;
} o = {.max_problems = 100};

static const option table[] = {
    {"max-problems", OPTION_U64, &o.max_problems, "N", "stop after N problems; 0: show all",
     .def = "100", .section = "What to do"},
    {"json", OPTION_TEXT, &o.json.path, "FILE", "the problems with stable keys; -: standard output",
     .role = OPTION_OUTPUT},
    {"format", OPTION_TEXT, &o.format, "NAME", TRACE_FORMATS_HELP, .def = "detected",
     .section = "Trace"},
    {"max-requests", OPTION_U64, &o.trace.max_requests, "N", "stop reading after N requests",
     .def = "all"},
    {"id-block-size", OPTION_U32, &o.trace.id_block_size, "TOKENS",
     "tokens of one block id of the trace", .def = "the format's", .max = 1 << 20},
    {0}};

enum { SHOW_MS = 100, SHOW_EVERY = 256 };

static bool is_enough(void)
{
    return o.max_problems > 0 && o.num_problems >= o.max_problems;
}

static void note_problem(void *user, const char *message)
{
    (void)user;
    if (is_enough())
        return;
    o.num_problems++;
    progress_end(&o.progress);
    if (o.json.file != stdout)
        printf("%s\n", message);
    if (o.problems != NULL)
        json_array_append_new(o.problems, json_string(message));
}

static void show(const trace_reader *reader)
{
    char what[96];
    double now_s = progress_clock();
    if (!o.progress.is_on || now_s < o.shown_s + SHOW_MS * 1e-3)
        return;
    o.shown_s = now_s;
    uint64_t size = trace_size(reader);
    snprintf(what, sizeof what, "%s requests read", report_number(o.num_requests));
    progress_show(&o.progress, size > 0 ? (double)trace_position(reader) / (double)size : -1, -1,
                  what);
}

/* One trace: what cannot be read on is its last problem. */
static void check(const char *path)
{
    trace_request request;
    int more = 0;
    uint64_t n = 0;
    trace_reader *reader = trace_open(path, &o.trace);
    if (reader == NULL) {
        note_problem(NULL, failure());
        return;
    }
    while (!is_enough() && !interrupt_came() && (more = trace_next(reader, &request)) == 1) {
        n++;
        if (++o.num_requests % SHOW_EVERY == 0)
            show(reader);
    }
    progress_end(&o.progress);
    if (more < 0 && !interrupt_came())
        note_problem(NULL, trace_error(reader));
    else if (n == 0 && more == 0 && o.num_problems == 0 && !interrupt_came()) {
        char message[FAILURE_BYTES];
        snprintf(message, sizeof message, "%s: contains no requests", path);
        note_problem(NULL, message);
    }
    trace_close(reader);
}

static int report(void)
{
    bool is_stopped = is_enough();
    if (o.json.file != stdout)
        printf("%s requests, %s%s problems\n", report_number(o.num_requests),
               is_stopped ? "at least " : "", report_number(o.num_problems));
    if (o.json.file != NULL) {
        json_t *root = json_pack("{s:I, s:I, s:b, s:O}", "requests", (json_int_t)o.num_requests,
                                 "num_problems", (json_int_t)o.num_problems, "is_stopped",
                                 is_stopped, "problems", o.problems);
        if (root == NULL)
            return command_failed(&cmd_trace_check, "--json: not enough memory");
        json_dumpf(root, o.json.file, JSON_INDENT(1));
        fputc('\n', o.json.file);
        json_decref(root);
    }
    int status = outputs_commit_for(&cmd_trace_check);
    return status == 0 && o.num_problems > 0 ? COMMAND_FAILED : status;
}

static int run_check(void)
{
    int status = engine_resolve_format(&cmd_trace_check, o.format, &o.trace.format);
    if (status != 0)
        return status;
    interrupt_catch();
    status = outputs_open_for(&cmd_trace_check);
    if (status != 0)
        return status;
    o.trace.skip_bad = true;
    o.trace.on_bad = note_problem;
    o.problems = o.json.file != NULL ? json_array() : NULL;
    progress_begin(&o.progress, true);
    for (int i = 0; i < cmd_trace_check.num_arguments && !is_enough() && !interrupt_came(); i++)
        check(cmd_trace_check.arguments[i]);
    progress_end(&o.progress);
    status = report();
    json_decref(o.problems);
    return interrupt_status(status);
}

command cmd_trace_check = {
    .name = "trace check",
    .usage = "trace check [OPTION]... TRACE...",
    .summary = "reads all of a trace and lists what is wrong with it; exit status 1 if anything is",
    .examples = "  quire trace check day.jsonl.zst\n"
                "      day.jsonl.zst:17: field \"input_length\": -3 is negative\n"
                "  quire trace check --max-problems 0 --json problems.json day/\n"
                "      all problems of all files of a folder\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file, a folder, or - for standard input",
    .run = run_check,
};
