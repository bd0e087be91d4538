/* cmd_trace_anonymise.c - `quire trace anonymise`: a trace to give away.
 *
 *      contents, sessions, names ─► cipher ─► other numbers        the key is forgotten
 *      lengths, sharing, order, think times                        as they were
 *      arrival and think times ─► jitter ─► rounding               if it is asked for
 */
#include "commands.h"
#include "options/engine.h"
#include "workload/rewrite.h"

#include <math.h>

static struct {
    trace_options trace;
    const char *format;
    const char *out;
    uint64_t seed;
    bool has_seed;
    double round_ms;
    double jitter_ms;
    cipher cipher;
    uint64_t num_times; /* that were moved */
    double last_s;
} o = {.out = "-"};

static const option table[] = {
    {"round-times", OPTION_REAL, &o.round_ms, "MS",
     "arrival and think times become multiples of MS milliseconds", .def = "not rounded",
     .min = 1e-3, .max = 1e9, .section = "What changes"},
    {"jitter", OPTION_REAL, &o.jitter_ms, "MS",
     "arrival and think times move by up to MS milliseconds, either way; the order stays",
     .def = "0", .max = 1e9},
    {"seed", OPTION_U64, &o.seed, "N",
     "the same seed gives the same file; a reader who guesses the seed can test guesses of "
     "contents",
     .def = "a random secret, not kept", .is_given = &o.has_seed},
    REWRITE_OPTIONS(o.trace, o.format, o.out),
    {0}};

enum { KIND_JITTER = 16 };

static double move_time(double time_s)
{
    if (o.jitter_ms > 0) {
        uint64_t random = cipher_of(&o.cipher, KIND_JITTER, o.num_times++);
        double at = (double)(random >> 11) * 0x1p-52 - 1; /* -1 to 1 */
        time_s += at * o.jitter_ms / 1000;
    }
    if (o.round_ms > 0)
        time_s = rint(time_s * 1000 / o.round_ms) * o.round_ms / 1000;
    return fmax(time_s, 0);
}

static rewrite_answer change(void *user, trace_request *request, root *it, bool is_new)
{
    (void)user;
    (void)it;
    (void)is_new;
    if (request_waits(request)) {
        request->think_s = move_time(request->think_s);
        return REWRITE_KEEP;
    }
    request->time_s = fmax(move_time(request->time_s), o.last_s);
    o.last_s = request->time_s;
    return REWRITE_KEEP;
}

static int run_anonymise(void)
{
    int status = engine_resolve_format(&cmd_trace_anonymise, o.format, &o.trace.format);
    if (status != 0)
        return status;
    if (o.has_seed)
        cipher_begin_from_seed(&o.cipher, o.seed);
    else if (!cipher_begin(&o.cipher))
        return command_failed(&cmd_trace_anonymise, "the system gives no random bytes");
    rewrite job = {.cmd = &cmd_trace_anonymise,
                   .paths = cmd_trace_anonymise.arguments,
                   .num_paths = (uint32_t)cmd_trace_anonymise.num_arguments,
                   .trace = &o.trace,
                   .out = o.out,
                   .writer = {.cipher = &o.cipher},
                   .is_anonymous = true,
                   .change = change};
    return rewrite_run(&job);
}

command cmd_trace_anonymise = {
    .name = "trace anonymise",
    .usage = "trace anonymise [OPTION]... TRACE...",
    .summary = "replaces contents, names and sessions; lengths and sharing stay equal",
    .examples = "  quire trace anonymise --out shared.jsonl.zst day.jsonl.zst\n"
                "      a replay of it gives the same result\n"
                "  quire trace anonymise --jitter 500 --round-times 100 day.jsonl.zst\n"
                "      times that do not lead back to a log either\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file, a folder, or - for standard input",
    .run = run_anonymise,
};
