/* cmd_replay.c - `quire replay`: a trace through the scheduler, and what came of it. */
#include "commands.h"
#include "interrupt.h"
#include "output.h"
#include "replay_options.h"
#include "report.h"
#include "snapshots.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    replay_options replay;
    const char *json;
    const char *html;
    const char *csv;
    const char *why;
    const char *trace;
    const char *perfetto;
    bool quiet;
    bool deterministic;
} o = {.replay = REPLAY_OPTIONS_INIT};

static const option table[] = {
    {"json", OPTION_TEXT, &o.json, "FILE", "the report with stable keys; -: standard output",
     .section = "Output", .is_output = true},
    {"html", OPTION_TEXT, &o.html, "FILE", "a page that shows the whole run", .is_output = true},
    {"csv", OPTION_TEXT, &o.csv, "FILE", "a row for each request", .is_output = true},
    {"trace", OPTION_TEXT, &o.trace, "FILE", "a line for each step, for quire view",
     .is_output = true},
    {"why", OPTION_TEXT, &o.why, "FILE", "a line for each decision, and its reason",
     .is_output = true},
    {"perfetto", OPTION_TEXT, &o.perfetto, "FILE", "a trace for ui.perfetto.dev",
     .is_output = true},
    {"quiet", OPTION_SWITCH, &o.quiet, NULL, "no report, no progress", .def = "off"},
    {"deterministic", OPTION_SWITCH, &o.deterministic, NULL,
     "leave out what differs from run to run: the time that the replay itself took", .def = "off"},
    REPLAY_OPTIONS(o.replay),
    {0}};

static const char *arguments[1];

static command cmd = {
    .name = "replay",
    .usage = "replay [OPTION]... TRACE",
    .summary = "runs a trace through the real scheduler and cache, with the GPU's time predicted",
    .examples =
        "  quire replay trace.jsonl.zst\n"
        "      llama-3.1-8b on an H200; prints hit rates, latencies, occupancy\n"
        "  quire replay --model llama-3.1-70b --gpu H100 --tp 4 --html out.html trace.jsonl\n"
        "      another model on four GPUs, and a page that shows the run\n"
        "  quire replay --num-gpu-blocks 4000 --why why.jsonl trace.jsonl\n"
        "      a small pool; which evictions and preemptions cost most\n"
        "  quire replay --cpu-blocks 240000 --file-tier 2T --html out.html trace.jsonl\n"
        "      host memory and a file behind the GPU's; what they bring\n"
        "  quire generate agent | quire replay -\n"
        "      a made-up workload\n",
    .options = table,
    .arguments = arguments,
    .max_arguments = 1,
    .reads_arguments = true,
};

const command *cmd_replay_command(void)
{
    return &cmd;
}

/* ---- progress ---------------------------------------------------------------- */

typedef struct progress_state {
    double start;
    bool is_shown;
} progress_state;

static double progress_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

enum { BAR_CELLS = 30 };

static void show_progress(void *user, double simulated_s, uint64_t num_requests, double share)
{
    progress_state *state = user;
    double wall = progress_clock() - state->start;
    int cells = (int)(share * BAR_CELLS);
    state->is_shown = true;
    fprintf(stderr, "\r[%.*s%*s] %s requests, %.0f s simulated, %.0f times as fast", cells,
            "##############################", BAR_CELLS - cells, "", report_number(num_requests),
            simulated_s, wall > 0 ? simulated_s / wall : 0);
    if (share > 0.01 && share < 1)
        fprintf(stderr, ", %.0f s left", wall / share * (1 - share));
    fprintf(stderr, "   ");
}

static void end_progress(const progress_state *state)
{
    if (state->is_shown)
        fprintf(stderr, "\r%100s\r", "");
}

/* ---- files ------------------------------------------------------------------- */

/* NULL where a file is not asked for. */
typedef struct replay_outputs {
    FILE *json;
    FILE *html;
    FILE *csv;
    FILE *trace;
    FILE *why;
    FILE *perfetto;
} replay_outputs;

/* 0, or 1 after a sentence. */
static int open_output(const char *name, const char *path, FILE **out)
{
    char message[OUTPUT_MESSAGE_BYTES];
    *out = path != NULL ? output_open(path, message) : NULL;
    if (path == NULL || *out != NULL)
        return 0;
    command_error(&cmd, "--%s: %s", name, message);
    return 1;
}

static int open_outputs(replay_outputs *out, replay_settings *settings)
{
    if (open_output("json", o.json, &out->json) || open_output("html", o.html, &out->html) ||
        open_output("csv", o.csv, &out->csv) || open_output("trace", o.trace, &out->trace) ||
        open_output("why", o.why, &out->why) || open_output("perfetto", o.perfetto, &out->perfetto))
        return 1;
    settings->requests_csv = out->csv;
    settings->snapshots = out->trace;
    settings->why = out->why;
    settings->perfetto = out->perfetto;
    return 0;
}

static int commit_outputs(void)
{
    char message[OUTPUT_MESSAGE_BYTES];
    if (outputs_commit(message) == 0)
        return 0;
    command_error(&cmd, "%s", message);
    return 1;
}

/* ---- the command --------------------------------------------------------------- */

enum { MAX_SHOWN = 16 }; /* options */

/* What the page says of a run, and the memory for it. */
typedef struct description {
    page_meta meta;
    page_option options[MAX_SHOWN];
    char texts[MAX_SHOWN][32];
    page_tier tiers[PAGE_MAX_TIERS];
} description;

/* The options of tiers, where there are any, behind the others. */
static uint32_t describe_tiers(const tiers_options *t, description *d, uint32_t n)
{
    char(*texts)[32] = &d->texts[n];
    const char *file = t->file != NULL ? t->file : "none";
    const char *redis = t->redis != NULL ? t->redis : "none";
    snprintf(texts[0], 32, "%u", t->cpu_blocks);
    snprintf(texts[1], 32, "%g GB/s", t->cpu_gbps);
    const page_option list[] = {{"cpu-blocks", texts[0]},
                                {"offload", tiers_modes[t->mode]},
                                {"cpu-policy", tiers_cpu_policies[t->cpu_policy]},
                                {"cpu-bandwidth", texts[1]},
                                {"file-tier", file},
                                {"redis", redis},
                                {"tier-policy", tiers_policies[t->tier_policy]},
                                {"admit", tiers_admissions[t->admit]}};
    if (t->cpu_blocks == 0)
        return n;
    memcpy(&d->options[n], list, sizeof list);
    return n + sizeof list / sizeof *list;
}

static void describe(const replay_setup *setup, description *d)
{
    const engine_options *e = &o.replay.engine;
    char(*texts)[32] = d->texts;
    snprintf(texts[0], 32, "%u", setup->plan_result.num_blocks);
    snprintf(texts[1], 32, "%u", e->max_num_seqs);
    snprintf(texts[2], 32, "%u", e->max_num_batched_tokens);
    snprintf(texts[3], 32, "%u", setup->plan_result.max_model_len);
    snprintf(texts[4], 32, "%u", e->tp);
    const page_option list[] = {{"num-gpu-blocks", texts[0]},
                                {"max-num-seqs", texts[1]},
                                {"max-num-batched-tokens", texts[2]},
                                {"max-model-len", texts[3]},
                                {"tp", texts[4]},
                                {"scheduling-policy", replay_policies[o.replay.policy]},
                                {"clock", replay_clocks[o.replay.clock]},
                                {"profile", replay_profiles[o.replay.profile]}};
    memcpy(d->options, list, sizeof list);
    uint32_t n = describe_tiers(&o.replay.tiers, d, sizeof list / sizeof *list);
    uint32_t num_tiers =
        tiers_describe(&setup->settings.tiers, setup->plan_result.block_bytes, d->tiers);
    d->meta = (page_meta){.trace = setup->settings.path,
                          .model = setup->engine.shape.name,
                          .gpu = setup->engine.gpu.name,
                          .block_size = setup->plan_result.block_size,
                          .bytes_per_block = setup->plan_result.block_bytes,
                          .options = d->options,
                          .num_options = n,
                          .tiers = d->tiers,
                          .num_tiers = num_tiers};
}

static int write_results(const replay_setup *setup, replay_result *result,
                         const replay_outputs *out)
{
    report_subject subject = {.trace = setup->settings.path,
                              .model = setup->engine.shape.name,
                              .gpu = setup->engine.gpu.name,
                              .bytes_per_block = setup->plan_result.block_bytes,
                              .is_deterministic = o.deterministic,
                              .has_why = o.why != NULL,
                              .could_have_why = true};
    char *text = report_json(&subject, result);
    bool is_whole = text != NULL;
    if (!o.quiet)
        report_print(out->json == stdout ? stderr : stdout, &subject, result);
    if (is_whole && out->json != NULL)
        fprintf(out->json, "%s\n", text);
    if (is_whole && out->html != NULL)
        is_whole = page_write(setup->settings.page, out->html, text);
    free(text);
    if (!is_whole)
        command_error(&cmd, "not enough memory for the results");
    int status = is_whole ? commit_outputs() : 1;
    if (status == 0 && o.html != NULL && !o.quiet && out->html != stdout)
        printf("\nThe page: %s\n", o.html);
    if (status == 0 && result->tiers.wrong_blocks > 0) {
        fprintf(stderr, "quire replay: %llu blocks came back from a tier with other bytes\n",
                (unsigned long long)result->tiers.wrong_blocks);
        status = 1;
    }
    return status;
}

static int run(replay_setup *setup)
{
    replay_settings *settings = &setup->settings;
    description d;
    replay_outputs out = {0};
    replay_result result;
    char message[REPLAY_MESSAGE_BYTES];
    progress_state state = {.start = progress_clock()};
    describe(setup, &d);
    settings->meta = &d.meta;
    settings->page = o.html != NULL ? page_open(&d.meta) : NULL;
    if (!o.quiet && isatty(STDERR_FILENO)) {
        settings->progress = show_progress;
        settings->progress_user = &state;
    }
    interrupt_catch();
    settings->stop = interrupt_name;
    int status = open_outputs(&out, settings);
    if (status == 0) {
        status = replay_run(settings, &result, message) != 0;
        end_progress(&state);
        if (status != 0)
            fprintf(stderr, "quire replay: %s\n", message);
        else
            status = write_results(setup, &result, &out);
        replay_result_free(&result);
    }
    page_close(settings->page);
    return interrupt_status(status);
}

int cmd_replay(int argc, char **argv)
{
    int leave = command_parse(&cmd, argc, argv);
    if (leave != 0)
        return leave - 1;
    if (cmd.num_arguments != 1)
        return command_error(&cmd, "it takes one trace, or - for standard input");
    replay_setup setup;
    int status = replay_prepare(&cmd, &o.replay, arguments[0], &setup);
    if (status == 0)
        status = run(&setup);
    replay_unprepare(&setup);
    return status;
}
