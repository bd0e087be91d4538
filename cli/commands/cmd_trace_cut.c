/* cmd_trace_cut.c - `quire trace cut`: a part of a trace. */
#include "commands.h"
#include "options/engine.h"
#include "trace/content.h"
#include "workload/rewrite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    trace_options trace;
    const char *format;
    const char *out;
    double from_s;
    double to_s;
    uint64_t first;
    const char *sessions;
    uint64_t seed;
    double share; /* what --sessions says */
    uint64_t num_kept;
} o = {.out = "-", .to_s = HUGE_VAL, .seed = 1, .share = 1};

static const option table[] = {
    {"from", OPTION_REAL, &o.from_s, "S", "requests that come S seconds after the first, and later",
     .def = "0", .max = 1e15, .section = "What is kept"},
    {"to", OPTION_REAL, &o.to_s, "S", "requests that come less than S seconds after the first",
     .def = "the end", .min = 1e-9, .max = 1e15},
    {"first", OPTION_U64, &o.first, "N", "the first N of these requests, as they are read",
     .def = "all", .min = 1, .max = 1e15},
    {"sessions", OPTION_TEXT, &o.sessions, "SHARE",
     "this share of the sessions, and of the requests without one: 10% or 0.1", .def = "all"},
    {"seed", OPTION_U64, &o.seed, "N", "another seed keeps other sessions", .def = "1"},
    REWRITE_OPTIONS(o.trace, o.format, o.out),
    {0}};

static rewrite_answer choose(void *user, trace_request *request, root *it, bool is_new)
{
    (void)user;
    (void)request;
    bool is_kept = it->is_kept;
    if (is_new) {
        double at = (double)(content_of(o.seed, it->key, 0) >> 11) * 0x1p-53;
        is_kept = it->time_s >= o.from_s && it->time_s < o.to_s && at < o.share;
    }
    if (!is_kept)
        return REWRITE_DROP;
    if (o.first > 0 && o.num_kept == o.first)
        return REWRITE_END;
    o.num_kept++;
    return REWRITE_KEEP;
}

/* "10%" or "0.1" */
static int take_share(void)
{
    char *end;
    if (o.sessions == NULL)
        return 0;
    double share = strtod(o.sessions, &end);
    if (strcmp(end, "%") == 0)
        share /= 100;
    else if (*end != '\0')
        share = -1;
    if (end == o.sessions || !(share > 0 && share <= 1))
        return command_error(&cmd_trace_cut,
                             "invalid value \"%s\" for --sessions (expected more than 0 %% and at "
                             "most 100%%, or a number up to 1)",
                             o.sessions);
    o.share = share;
    return 0;
}

static int run_cut(void)
{
    int status = take_share();
    if (status == 0 && o.from_s >= o.to_s)
        status =
            command_error(&cmd_trace_cut, "--from %g is not less than --to %g", o.from_s, o.to_s);
    if (status == 0)
        status = engine_resolve_format(&cmd_trace_cut, o.format, &o.trace.format);
    if (status != 0)
        return status;
    rewrite job = {.cmd = &cmd_trace_cut,
                   .paths = cmd_trace_cut.arguments,
                   .num_paths = (uint32_t)cmd_trace_cut.num_arguments,
                   .trace = &o.trace,
                   .out = o.out,
                   .change = choose};
    return rewrite_run(&job);
}

command cmd_trace_cut = {
    .name = "trace cut",
    .usage = "trace cut [OPTION]... TRACE...",
    .summary = "keeps a part of a trace: by time, by number, by sessions",
    .examples = "  quire trace cut --from 3600 --to 7200 --out hour.jsonl.zst day.jsonl.zst\n"
                "      the second hour\n"
                "  quire trace cut --sessions 10% --out tenth.jsonl day.jsonl.zst\n"
                "      a tenth of the sessions, each with all its turns\n"
                "  quire trace cut --first 1000 day.jsonl.zst | quire replay -\n"
                "      a replay of the first thousand requests\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file, a folder, or - for standard input",
    .run = run_cut,
};
