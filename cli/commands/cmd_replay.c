/* cmd_replay.c - `quire replay`: a trace through the scheduler, and what came of it. */
#include "commands.h"
#include "options/recorded_options.h"
#include "options/replay_options.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "output/output.h"
#include "output/progress.h"
#include "recording/comparison.h"
#include "replay/report.h"

#include <stdlib.h>
#include <string.h>

static struct {
    replay_options replay;
    const char *compare_with;
    output_file json;
    output_file html;
    output_file csv;
    output_file why;
    output_file trace;
    output_file perfetto;
    bool quiet;
    bool deterministic;
} o = {.replay = REPLAY_OPTIONS_INIT};

static const option table[] = {
    {"json", OPTION_TEXT, &o.json.path, "FILE", "the report with stable keys; -: standard output",
     .section = "Output", .role = OPTION_OUTPUT},
    {"html", OPTION_TEXT, &o.html.path, "FILE", "a page that shows the whole run",
     .role = OPTION_OUTPUT},
    {"csv", OPTION_TEXT, &o.csv.path, "FILE",
     "a row for each request; FILE.meta.json says what made it", .role = OPTION_OUTPUT},
    {"trace", OPTION_TEXT, &o.trace.path, "FILE", "a line for each step, for quire view",
     .role = OPTION_OUTPUT},
    {"why", OPTION_TEXT, &o.why.path, "FILE",
     "a line for each decision, and its reason; FILE.meta.json says what made it",
     .role = OPTION_ADDITION},
    {"perfetto", OPTION_TEXT, &o.perfetto.path, "FILE", "a trace for ui.perfetto.dev",
     .role = OPTION_OUTPUT},
    {"quiet", OPTION_SWITCH, &o.quiet, NULL, "no report, no progress", .def = "off",
     .role = OPTION_OUTPUT},
    {"deterministic", OPTION_SWITCH, &o.deterministic, NULL,
     "omit values that differ from run to run (the wall-clock time of the replay)", .def = "off"},
    {"compare-with", OPTION_TEXT, &o.compare_with, "FILE",
     "a recording of a running engine: replays its requests with its configuration, and prints "
     "what was predicted beside what was measured",
     .def = NULL, .section = "Comparison", .is_rare = true},
    REPLAY_OPTIONS(o.replay),
    {0}};

/* ---- progress ---------------------------------------------------------------- */

static void show_progress(void *user, const replay_progress *now)
{
    char what[160];
    char of[32] = "";
    progress *p = user;
    if (now->total_requests > 0)
        snprintf(of, sizeof of, " of %s", report_number(now->total_requests));
    snprintf(what, sizeof what, "%s%s requests, %s s simulated", report_number(now->num_requests),
             of, report_number((uint64_t)now->simulated_s));
    progress_show(p, now->share, -1, what);
}

/* ---- the command --------------------------------------------------------------- */

/* What the files say of the run, and the memory for it. */
typedef struct description {
    json_t *made_by;
    char *made_by_text;
    page_meta meta;
    json_t *options;
    page_tier tiers[PAGE_MAX_TIERS];
} description;

static void describe(const replay_setup *setup, description *d)
{
    d->made_by = replay_made_by(&cmd_replay, setup, NULL);
    d->made_by_text = json_dumps(d->made_by, JSON_COMPACT | JSON_REAL_PRECISION(12));
    d->options = made_by_pairs(d->made_by);
    uint32_t num_tiers =
        tiers_describe(&setup->settings.tiers, setup->plan_result.block_bytes, d->tiers);
    if (setup->settings.swap.num_blocks > 0)
        d->tiers[num_tiers++] =
            (page_tier){.name = "Swap", .total = setup->settings.swap.num_blocks};
    d->meta = (page_meta){.trace = setup->settings.path,
                          .model = setup->engine.shape.name,
                          .gpu = setup->engine.place,
                          .block_size = setup->plan_result.block_size,
                          .bytes_per_block = setup->plan_result.block_bytes,
                          .options = d->options,
                          .made_by = d->made_by_text,
                          .tiers = d->tiers,
                          .num_tiers = num_tiers};
}

/* NULL: no memory. */
static char *results_json(const report_subject *subject, replay_result *result, comparison *c)
{
    json_t *tree = report_tree(subject, result);
    if (c != NULL)
        json_object_set_new(tree, "comparison", comparison_json(c));
    char *text = json_dumps(tree, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(tree);
    return text;
}

static int write_results(const replay_setup *setup, const description *d, replay_result *result,
                         comparison *c)
{
    report_subject subject = replay_subject(setup, d->made_by);
    FILE *out = o.json.file == stdout ? stderr : stdout;
    subject.is_deterministic = o.deterministic;
    subject.has_why = o.why.path != NULL;
    subject.could_have_why = true;
    char *text = results_json(&subject, result, c);
    bool is_whole = text != NULL;
    if (!o.quiet)
        report_print(out, &subject, result);
    if (!o.quiet && c != NULL)
        comparison_print(out, c);
    if (is_whole && o.json.file != NULL)
        fprintf(o.json.file, "%s\n", text);
    if (is_whole && o.html.file != NULL)
        is_whole = page_write(setup->settings.page, o.html.file, text);
    free(text);
    if (is_whole) {
        made_by_write_beside(&cmd_replay, d->made_by, o.csv.path);
        made_by_write_beside(&cmd_replay, d->made_by, o.why.path);
    }
    int status = is_whole ? outputs_commit_for(&cmd_replay)
                          : command_failed(&cmd_replay, "not enough memory for the results");
    if (status == 0 && o.html.file != NULL && !o.quiet && o.html.file != stdout)
        printf("\nThe page: %s\n", o.html.path);
    if (status == 0 && result->tiers.wrong_blocks > 0)
        status = command_failed(&cmd_replay, "%llu blocks were loaded from a tier with wrong bytes",
                                (unsigned long long)result->tiers.wrong_blocks);
    return status;
}

static int run(replay_setup *setup, comparison *c)
{
    replay_settings *settings = &setup->settings;
    description d;
    replay_result result;
    progress p;
    describe(setup, &d);
    settings->meta = &d.meta;
    settings->made_by = d.made_by_text;
    settings->page = o.html.path != NULL ? page_open(&d.meta) : NULL;
    progress_begin(&p, !o.quiet);
    settings->progress = p.is_on ? show_progress : NULL;
    settings->progress_user = &p;
    interrupt_catch();
    settings->stop = interrupt_name;
    int status = outputs_open_for(&cmd_replay);
    settings->requests_csv = o.csv.file;
    settings->snapshots = o.trace.file;
    settings->why = o.why.file;
    settings->perfetto = o.perfetto.file;
    if (status == 0) {
        status = replay_run(settings, &result) != 0;
        progress_end(&p);
        if (c != NULL)
            comparison_finish(c);
        if (status != 0)
            command_failed(&cmd_replay, "%s", failure());
        else
            status = write_results(setup, &d, &result, c);
        replay_result_free(&result);
    }
    page_close(settings->page);
    json_decref(d.made_by);
    free(d.made_by_text);
    json_decref(d.options);
    return interrupt_status(status);
}

/* ---- a replay of a recording --------------------------------------------------- */

/* The recording is the trace: it may be named a second time (quire rerun does), nothing else. */
static int take_trace(void)
{
    for (int i = 0; i < cmd_replay.num_arguments; i++)
        if (strcmp(cmd_replay.arguments[i], o.compare_with) != 0)
            return command_error(&cmd_replay,
                                 "--compare-with cannot be used with the trace %s: the recording "
                                 "is the trace",
                                 cmd_replay.arguments[i]);
    cmd_replay.arguments[0] = o.compare_with;
    cmd_replay.num_arguments = 1;
    return 0;
}

/* The recording once, for its header: the scheduler is its. */
static int take_header(void)
{
    recorded_header header;
    if (recorded_header_read(o.compare_with, &header) != 0)
        return command_failed(&cmd_replay, "--compare-with: %s", failure());
    return recorded_options_apply(&cmd_replay, &o.replay, &header);
}

static int run_compared(replay_setup *setup)
{
    recorded measured;
    comparison c = {0};
    int status = 0;
    if (recorded_read(o.compare_with, &setup->engine.time, &measured) != 0)
        status = command_failed(&cmd_replay, "--compare-with: %s", failure());
    else if (measured.num_lost > 0)
        status = command_failed(&cmd_replay,
                                "--compare-with: %s has lost %llu lines, and with them requests",
                                o.compare_with, (unsigned long long)measured.num_lost);
    else
        status = recorded_options_check(&cmd_replay, setup, &measured.header);
    if (status == 0 && comparison_open(&c, &measured) != 0)
        status = command_failed(&cmd_replay, "--compare-with %s: %s", o.compare_with, failure());
    setup->settings.probe = &c.probe;
    if (status == 0)
        status = run(setup, &c);
    comparison_close(&c);
    recorded_free(&measured);
    return status;
}

static int run_replay(void)
{
    replay_setup setup = {0};
    int status = 0;
    if (o.compare_with == NULL && cmd_replay.num_arguments == 0)
        return command_error(&cmd_replay,
                             "expected a TRACE: a file, a folder, or - for standard input");
    if (o.compare_with != NULL)
        status = take_trace();
    if (status == 0 && o.compare_with != NULL)
        status = take_header();
    if (status == 0)
        status = replay_prepare(&cmd_replay, &o.replay, &setup);
    if (status == 0)
        status = o.compare_with != NULL ? run_compared(&setup) : run(&setup, NULL);
    replay_unprepare(&setup);
    return status;
}

command cmd_replay = {
    .name = "replay",
    .usage = "replay [OPTION]... TRACE...",
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
        "      a made-up workload\n"
        "  quire replay --compare-with rec.0000.jsonl.zst --time-constants mine.txt\n"
        "      what an engine did, and what is predicted of it\n"
        "  quire replay day/ chats.jsonl\n"
        "      all traces of a folder as one, and another trace at the same time\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .reads_arguments = true,
    .run = run_replay,
};
