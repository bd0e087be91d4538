/* cmd_trace_mix.c - `quire trace mix`: several traces at the same time, as one. */
#include "commands.h"
#include "options/engine.h"
#include "trace/content.h"
#include "workload/rewrite.h"

#include <stdlib.h>
#include <string.h>

static struct {
    trace_options trace;
    const char *format;
    const char *out;
    const char *speed;
    const char *share;
    uint64_t seed;
    double speeds[COMMAND_MAX_WORDS];
    double shares[COMMAND_MAX_WORDS];
} o = {.out = "-", .seed = 1};

static const option table[] = {
    {"speed", OPTION_TEXT, &o.speed, "FACTOR,...",
     "for each trace: its times and think times are divided by it; one factor is for all",
     .def = "1", .section = "What is mixed"},
    {"share", OPTION_TEXT, &o.share, "SHARE,...",
     "for each trace: the share of its sessions that is kept, 0.5; one share is for all",
     .def = "1"},
    {"seed", OPTION_U64, &o.seed, "N", "another seed keeps other sessions", .def = "1"},
    REWRITE_OPTIONS(o.trace, o.format, o.out),
    {0}};

/* "1,0.5": a number for each trace. */
static int take_numbers(const char *name, const char *text, double most, double *numbers)
{
    int n = 0;
    int num_traces = cmd_trace_mix.num_arguments;
    for (const char *at = text; at != NULL && *at != '\0'; n++) {
        char *end;
        double number = strtod(at, &end);
        if (end == at || (*end != ',' && *end != '\0') || !(number >= 1e-6 && number <= most))
            return command_error(&cmd_trace_mix,
                                 "invalid value \"%.*s\" for --%s (expected numbers from 1e-06 to "
                                 "%g, with commas between them)",
                                 (int)strcspn(at, ","), at, name, most);
        if (n < num_traces)
            numbers[n] = number;
        at = *end == ',' ? end + 1 : end;
    }
    if (text != NULL && n != 1 && n != num_traces)
        return command_error(&cmd_trace_mix,
                             "--%s %s: %d numbers for %d traces (expected one for each, or one for "
                             "all)",
                             name, text, n, num_traces);
    for (int i = n == 1 || text == NULL ? 0 : num_traces; i < num_traces; i++)
        numbers[i] = text == NULL ? 1 : numbers[0];
    return 0;
}

static rewrite_answer choose(void *user, trace_request *request, root *it, bool is_new)
{
    (void)user;
    double at = (double)(content_of(o.seed, it->key, 0) >> 11) * 0x1p-53;
    bool is_kept = is_new ? at < o.shares[request->part] : it->is_kept;
    return is_kept ? REWRITE_KEEP : REWRITE_DROP;
}

static int run_mix(void)
{
    int status = take_numbers("speed", o.speed, 1e9, o.speeds);
    if (status == 0)
        status = take_numbers("share", o.share, 1, o.shares);
    if (status == 0)
        status = engine_resolve_format(&cmd_trace_mix, o.format, &o.trace.format);
    if (status != 0)
        return status;
    o.trace.speeds = o.speeds;
    rewrite job = {.cmd = &cmd_trace_mix,
                   .paths = cmd_trace_mix.arguments,
                   .num_paths = (uint32_t)cmd_trace_mix.num_arguments,
                   .trace = &o.trace,
                   .out = o.out,
                   .change = choose};
    return rewrite_run(&job);
}

command cmd_trace_mix = {
    .name = "trace mix",
    .usage = "trace mix [OPTION]... TRACE...",
    .summary = "merges traces by time, each with its own speed and share",
    .examples = "  quire trace mix --out both.jsonl.zst chats.jsonl agents.jsonl\n"
                "      both begin at time 0\n"
                "  quire trace mix --speed 1,2 --share 1,0.25 chats.jsonl agents.jsonl\n"
                "      a quarter of the agents' sessions, twice as fast\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file, a folder, or - for standard input",
    .run = run_mix,
};
