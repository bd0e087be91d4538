/* cmd_trace_convert.c - `quire trace convert`: a trace in another format. */
#include "commands.h"
#include "options/engine.h"
#include "output/made_by.h"
#include "replay/report.h"
#include "workload/rewrite.h"

static const char *const forms[] = {"quire", "mooncake", NULL};

static struct {
    trace_options trace;
    const char *format;
    const char *out;
    int form;
    uint32_t block_size;
    bool has_block_size;
} o = {.out = "-", .block_size = 512};

static const option table[] = {
    {"to", OPTION_CHOICE, &o.form, "FORMAT", "format that is written", .def = "quire",
     .choices = forms, .section = "What to do"},
    {"block-size", OPTION_U32, &o.block_size, "TOKENS",
     "mooncake: tokens of one id; readers that expect 512 must be told of others", .def = "512",
     .min = 1, .max = 1 << 20, .is_given = &o.has_block_size},
    REWRITE_OPTIONS(o.trace, o.format, o.out),
    {0}};

static double per_cent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100 * (double)part / (double)whole : 0;
}

/* What the new file does not say. */
static void say_losses(const workload_losses *l)
{
    if (l->open_sessions > 0)
        fprintf(stderr,
                "quire trace convert: the sessions of %s requests are not written: in mooncake "
                "lines a later turn waits for the turn before\n",
                report_number(l->open_sessions));
    if (l->shared_tokens > l->written_tokens)
        fprintf(stderr,
                "quire trace convert: prompts share %.2f %% of their tokens in the trace, and "
                "%.2f %% in blocks of %u tokens\n",
                per_cent(l->shared_tokens, l->prompt_tokens),
                per_cent(l->written_tokens, l->prompt_tokens), o.block_size);
    if (o.block_size != 512)
        fprintf(stderr,
                "quire trace convert: commands that read the file need --id-block-size %u\n",
                o.block_size);
}

static int run_convert(void)
{
    if (o.has_block_size && o.form != WORKLOAD_MOONCAKE)
        return command_error(&cmd_trace_convert, "--block-size needs --to mooncake");
    int status = engine_resolve_format(&cmd_trace_convert, o.format, &o.trace.format);
    if (status != 0)
        return status;
    rewrite job = {.cmd = &cmd_trace_convert,
                   .paths = cmd_trace_convert.arguments,
                   .num_paths = (uint32_t)cmd_trace_convert.num_arguments,
                   .trace = &o.trace,
                   .out = o.out,
                   .writer = {.form = (workload_form)o.form, .block_size = o.block_size}};
    status = rewrite_begin(&job);
    if (status == 0)
        status = rewrite_read(&job);
    workload_losses losses = job.to != NULL ? workload_get_losses(job.to) : (workload_losses){0};
    status = rewrite_close(&job, status);
    if (status == 0 && o.form == WORKLOAD_MOONCAKE)
        say_losses(&losses);
    return status;
}

command cmd_trace_convert = {
    .name = "trace convert",
    .usage = "trace convert [OPTION]... TRACE...",
    .summary = "writes a trace in the program's own format, or as Mooncake JSON lines",
    .examples = "  quire trace convert --out day.jsonl.zst azure.csv.gz\n"
                "      a workload file; a replay of it gives the same result\n"
                "  quire trace convert --to mooncake --out day.jsonl chats.json\n"
                "      ids of 512 tokens, for other programs; says what is lost\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file, a folder, or - for standard input",
    .run = run_convert,
};
