/* cmd_fleet.c - `quire fleet`: a trace through many engines with a router in front of them. */
#include "commands.h"
#include "fleet/report.h"
#include "options/fleet_options.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "output/output.h"
#include "output/progress.h"

#include <stdlib.h>
#include <unistd.h>

static struct {
    replay_options replay;
    fleet_options fleet;
    uint32_t num_threads;
    output_file json;
    output_file html;
    output_file csv;
    output_file why;
    output_file trace;
    output_file perfetto;
    bool quiet;
    bool deterministic;
} o = {.replay = REPLAY_OPTIONS_INIT, .fleet = FLEET_OPTIONS_INIT};

/* Files of one engine: with --workers 1 alone. */
static const option table[] = {
    {"json", OPTION_TEXT, &o.json.path, "FILE", "the report with stable keys; -: standard output",
     .section = "Output", .role = OPTION_OUTPUT},
    {"csv", OPTION_TEXT, &o.csv.path, "FILE",
     "a row for each request; FILE.meta.json says what made it", .role = OPTION_OUTPUT},
    {"html", OPTION_TEXT, &o.html.path, "FILE", "a page that shows the whole run (--workers 1)",
     .role = OPTION_OUTPUT},
    {"trace", OPTION_TEXT, &o.trace.path, "FILE", "a line for each step (--workers 1)",
     .role = OPTION_OUTPUT},
    {"why", OPTION_TEXT, &o.why.path, "FILE",
     "a line for each decision of the scheduler, and its reason (--workers 1)",
     .role = OPTION_ADDITION},
    {"perfetto", OPTION_TEXT, &o.perfetto.path, "FILE", "a trace for ui.perfetto.dev (--workers 1)",
     .role = OPTION_OUTPUT},
    {"quiet", OPTION_SWITCH, &o.quiet, NULL, "no report, no progress", .def = "off",
     .role = OPTION_OUTPUT},
    {"deterministic", OPTION_SWITCH, &o.deterministic, NULL,
     "omit values that differ from run to run (the wall-clock time)", .def = "off"},
    FLEET_WORKERS_OPTION(o.fleet),
    {"threads", OPTION_U32, &o.num_threads, "N", "threads; the result does not depend on them",
     .def = "number of processors", .min = 1, .max = CREW_MAX_THREADS, .role = OPTION_OUTPUT},
    FLEET_ROUTER_OPTIONS(o.fleet),
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

/* Files of one engine say nothing about several. */
static int check_files(void)
{
    const struct {
        const char *name;
        const output_file *file;
    } files[] = {
        {"html", &o.html}, {"trace", &o.trace}, {"why", &o.why}, {"perfetto", &o.perfetto}};
    for (size_t i = 0; o.fleet.num_workers > 1 && i < sizeof files / sizeof *files; i++)
        if (files[i].file->path != NULL)
            return command_error(&cmd_fleet, "--%s needs --workers 1: it is about one engine",
                                 files[i].name);
    return 0;
}

static int write_results(const replay_setup *setup, json_t *record, fleet_result *result)
{
    report_subject subject = replay_subject(setup, record);
    subject.is_deterministic = o.deterministic;
    subject.has_why = o.why.path != NULL;
    subject.could_have_why = o.fleet.num_workers == 1;
    char *text = fleet_report_json(&subject, o.fleet.router, result);
    bool is_whole = text != NULL;
    if (!o.quiet)
        fleet_report_print(o.json.file == stdout ? stderr : stdout, &subject, o.fleet.router,
                           result);
    if (is_whole && o.json.file != NULL)
        fprintf(o.json.file, "%s\n", text);
    if (is_whole && o.html.file != NULL)
        is_whole = page_write(setup->settings.page, o.html.file, text);
    free(text);
    if (!is_whole)
        return command_failed(&cmd_fleet, "not enough memory for the results");
    made_by_write_beside(&cmd_fleet, record, o.csv.path);
    made_by_write_beside(&cmd_fleet, record, o.why.path);
    return outputs_commit_for(&cmd_fleet);
}

/* What the files of one engine say of the run, and the memory for it. */
typedef struct description {
    json_t *made_by;
    char *made_by_text;
    page_meta meta;
    json_t *options;
    page_tier tiers[PAGE_MAX_TIERS];
} description;

static void describe(const replay_setup *setup, description *d)
{
    const replay_settings *s = &setup->settings;
    d->made_by = replay_made_by(&cmd_fleet, setup, NULL);
    d->made_by_text = json_dumps(d->made_by, JSON_COMPACT | JSON_REAL_PRECISION(12));
    d->options = made_by_pairs(d->made_by);
    uint32_t num_tiers = tiers_describe(&s->tiers, setup->plan_result.block_bytes, d->tiers);
    if (s->swap.num_blocks > 0)
        d->tiers[num_tiers++] = (page_tier){.name = "Swap", .total = s->swap.num_blocks};
    d->meta = (page_meta){.trace = s->path,
                          .model = setup->engine.shape.name,
                          .gpu = setup->engine.place,
                          .block_size = setup->plan_result.block_size,
                          .bytes_per_block = setup->plan_result.block_bytes,
                          .options = d->options,
                          .made_by = d->made_by_text,
                          .tiers = d->tiers,
                          .num_tiers = num_tiers};
}

static int run(replay_setup *setup, fleet_settings *fleet)
{
    replay_settings *s = &setup->settings;
    description d;
    fleet_result result;
    progress p;
    describe(setup, &d);
    s->meta = &d.meta;
    s->made_by = d.made_by_text;
    s->page = o.html.path != NULL ? page_open(&d.meta) : NULL;
    progress_begin(&p, !o.quiet);
    s->progress = p.is_on ? show_progress : NULL;
    s->progress_user = &p;
    interrupt_catch();
    s->stop = interrupt_name;
    fleet->num_threads = o.num_threads;
    int status = outputs_open_for(&cmd_fleet);
    s->requests_csv = o.csv.file;
    s->snapshots = o.trace.file;
    s->why = o.why.file;
    s->perfetto = o.perfetto.file;
    fleet->requests_csv = o.csv.file;
    if (status == 0) {
        status = fleet_run(fleet, &result) != 0;
        progress_end(&p);
        if (status != 0)
            command_failed(&cmd_fleet, "%s", failure());
        else
            status = write_results(setup, d.made_by, &result);
        fleet_result_free(&result);
    }
    page_close(s->page);
    json_decref(d.made_by);
    free(d.made_by_text);
    json_decref(d.options);
    return interrupt_status(status);
}

static uint32_t num_processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > CREW_MAX_THREADS ? CREW_MAX_THREADS : (uint32_t)n;
}

static int run_fleet(void)
{
    replay_setup setup;
    fleet_setup fleet = {0};
    if (o.num_threads == 0)
        o.num_threads = num_processors();
    int status = replay_prepare(&cmd_fleet, &o.replay, &setup);
    if (status == 0)
        status = fleet_prepare(&cmd_fleet, &o.fleet, &setup, &fleet);
    if (status == 0)
        status = check_files();
    if (status == 0)
        status = run(&setup, &fleet.settings);
    fleet_unprepare(&fleet);
    replay_unprepare(&setup);
    return status;
}

command cmd_fleet = {
    .name = "fleet",
    .usage = "fleet [OPTION]... TRACE",
    .summary = "runs a trace through many engines with a router in front of them",
    .examples =
        "  quire fleet --workers 16 --speed 16 trace.jsonl.zst\n"
        "      16 engines, requests go to them in turn\n"
        "  quire fleet --workers 16 --speed 16 --router dynamo-kv --json out.json trace.jsonl.zst\n"
        "      a router that knows the caches of the engines\n"
        "  quire fleet --workers 8 --router dynamo-kv --kv-lag 50 --routers 4 trace.jsonl.zst\n"
        "      four routers, which hear of the caches 50 ms later\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file, a folder, or - for standard input",
    .run = run_fleet,
};
