/* cmd_sweep.c - `quire sweep`: a replay for each combination of options. */
#include "commands.h"
#include "fleet/report.h"
#include "options/fleet_options.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "output/made_by.h"
#include "output/output.h"
#include "output/progress.h"
#include "replay/report.h"
#include "sweep/axes.h"
#include "sweep/front.h"

#include <stdlib.h>
#include <string.h>

static struct {
    replay_options replay;
    fleet_options fleet;
    uint32_t num_jobs;
    output_file json;
    output_file csv;
    output_file html;
    bool plot;
    bool deterministic;
} o = {.replay = REPLAY_OPTIONS_INIT, .fleet = FLEET_OPTIONS_INIT, .plot = true};

/* The first are the command's own; those of replay and fleet take lists. */
enum { NUM_OWN = 6 };
static const option table[] = {
    {"jobs", OPTION_U32, &o.num_jobs, "N", "number of replays that run at the same time",
     .def = "number of processors", .max = 4096, .role = OPTION_OUTPUT},
    {"json", OPTION_TEXT, &o.json.path, "FILE", "all reports; -: standard output",
     .role = OPTION_OUTPUT},
    {"csv", OPTION_TEXT, &o.csv.path, "FILE",
     "a row for each replay; -: standard output; FILE.meta.json says what made it",
     .role = OPTION_OUTPUT},
    {"html", OPTION_TEXT, &o.html.path, "FILE", "a page with plots and table",
     .role = OPTION_OUTPUT},
    {"plot", OPTION_SWITCH, &o.plot, NULL, "draw hit rate and latency", .def = "on",
     .role = OPTION_OUTPUT},
    {"deterministic", OPTION_SWITCH, &o.deterministic, NULL,
     "omit values that differ from run to run (the wall-clock time of the replays)", .def = "off"},
    FLEET_WORKERS_OPTION(o.fleet),
    FLEET_ROUTER_OPTIONS(o.fleet),
    REPLAY_OPTIONS(o.replay),
    {0}};
enum { NUM_FLEET = 8 }; /* rows of workers and routers, behind the command's own */

/* ---- axes ------------------------------------------------------------------ */

static sweep grid;

static int set_axis(const option *opt, const char *text)
{
    return axes_take(&cmd_sweep, &grid, opt, text);
}

static void reset(void)
{
    o.replay = (replay_options)REPLAY_OPTIONS_INIT;
    o.fleet = (fleet_options)FLEET_OPTIONS_INIT;
}

/* ---- one point ------------------------------------------------------------- */

static bool has_progress; /* of the whole sweep: points say how far they are */

static void tell_sweep(void *user, const replay_progress *now)
{
    (void)user;
    sweep_tell(now->share > 0 ? now->share : 0);
}

/* Prints a report, and frees it. */
static int write_report(char *text, FILE *out)
{
    if (text == NULL)
        return command_error(&cmd_sweep, "not enough memory");
    int status = fputs(text, out) < 0;
    free(text);
    return status;
}

/* The record of the command that the point stands for: `replay` has no options of fleets, and
 * `fleet` has more than a sweep takes. */
static json_t *record_of(const sweep *s, const replay_setup *setup, bool is_fleet)
{
    const command alone = {.name = is_fleet ? "fleet" : "replay", .options = table};
    json_t *record = replay_made_by(&alone, setup, json_incref(s->trace_record));
    for (uint32_t i = 0; i < NUM_FLEET && !is_fleet; i++)
        json_object_del(json_object_get(record, "options"), table[NUM_OWN + i].name);
    json_t *whole = is_fleet ? made_by(&cmd_fleet) : NULL;
    json_object_update_missing(json_object_get(record, "options"),
                               json_object_get(whole, "options"));
    json_decref(whole);
    return record;
}

static report_subject subject_of(const replay_setup *setup, json_t *record)
{
    report_subject subject = replay_subject(setup, record);
    subject.is_deterministic = o.deterministic;
    return subject;
}

static int run_replay(const sweep *s, const replay_setup *setup, FILE *out)
{
    replay_result result;
    json_t *record = record_of(s, setup, false);
    report_subject subject = subject_of(setup, record);
    int status = replay_run(&setup->settings, &result);
    if (status != 0)
        status = command_error(&cmd_sweep, "%s", failure());
    else
        status = write_report(report_json(&subject, &result), out);
    json_decref(record);
    replay_result_free(&result);
    return status;
}

static int run_fleet(const sweep *s, const replay_setup *setup, FILE *out)
{
    fleet_setup fleet;
    fleet_result result;
    int status = fleet_prepare(&cmd_sweep, &o.fleet, setup, &fleet);
    if (status != 0)
        return status;
    json_t *record = record_of(s, setup, true);
    report_subject subject = subject_of(setup, record);
    fleet.settings.num_threads = sweep_threads(s, o.num_jobs, CREW_MAX_THREADS);
    if (fleet_run(&fleet.settings, &result) != 0)
        status = command_error(&cmd_sweep, "%s", failure());
    else
        status = write_report(fleet_report_json(&subject, o.fleet.router, &result), out);
    json_decref(record);
    fleet_result_free(&result);
    fleet_unprepare(&fleet);
    return status;
}

static int run_point(const sweep *s, uint32_t point, FILE *out)
{
    replay_setup setup;
    int status = axes_set(&cmd_sweep, s, point, reset);
    if (status != 0)
        return status;
    status = replay_prepare(&cmd_sweep, &o.replay, &setup);
    setup.settings.progress = has_progress ? tell_sweep : NULL;
    if (status == 0)
        status = sweep_has_fleets(s) ? run_fleet(s, &setup, out) : run_replay(s, &setup, out);
    replay_unprepare(&setup);
    return status;
}

/* ---- the command ----------------------------------------------------------- */

static void show_progress(void *user, const sweep_progress *now)
{
    char what[64];
    snprintf(what, sizeof what, "%u of %u %s", now->num_done, now->num_points,
             sweep_has_fleets(&grid) ? "fleets" : "replays");
    progress_show(user, now->share, now->left_s, what);
}

static int write_files(const sweep *s)
{
    bool is_whole = o.json.file == NULL || sweep_report_json(o.json.file, s) || ferror(o.json.file);
    if (o.csv.file != NULL)
        sweep_report_csv(o.csv.file, s);
    if (o.html.file != NULL)
        is_whole = (sweep_page_write(o.html.file, s) || ferror(o.html.file)) && is_whole;
    made_by_write_beside(&cmd_sweep, s->made_by, o.csv.path);
    return is_whole ? outputs_commit_for(&cmd_sweep)
                    : command_failed(&cmd_sweep, "not enough memory for the results");
}

static int write_results(const sweep *s)
{
    uint32_t num_failed = 0;
    for (uint32_t i = 0; i < s->num_points; i++)
        num_failed += s->points[i].report == NULL;
    if (o.json.file != stdout && o.csv.file != stdout && o.html.file != stdout)
        sweep_report_print(stdout, s, o.plot);
    int status = write_files(s);
    if (s->stopped != NULL) {
        command_error(&cmd_sweep, "interrupted: %u of %u replays have ended",
                      s->num_points - num_failed, s->num_points);
    } else if (num_failed > 0) {
        status = command_failed(&cmd_sweep, "%u of %u replays failed", num_failed, s->num_points);
    }
    return status;
}

static int run(sweep *s)
{
    int status = axes_check(&cmd_sweep, s, reset);
    if (status != 0)
        return status;
    if (o.num_jobs == 0)
        o.num_jobs = sweep_default_jobs();
    progress p;
    progress_begin(&p, true);
    has_progress = p.is_on;
    sweep_settings settings = {.num_jobs = o.num_jobs,
                               .run = run_point,
                               .stop = interrupt_name,
                               .progress = p.is_on ? show_progress : NULL,
                               .progress_user = &p};
    interrupt_catch();
    status = outputs_open_for(&cmd_sweep);
    if (status != 0)
        return status;
    status = sweep_run(s, &settings);
    progress_end(&p);
    if (status != 0)
        return command_failed(&cmd_sweep, "not enough memory or processes");
    return interrupt_status(write_results(s));
}

static int run_sweep(void)
{
    int status = run(&grid);
    sweep_free(&grid);
    return status;
}

command cmd_sweep = {
    .name = "sweep",
    .usage = "sweep [OPTION]... TRACE...",
    .summary = "replays a trace with every combination of options, on all cores",
    .examples =
        "  quire sweep --num-gpu-blocks 2k..64k trace.jsonl.zst\n"
        "      hit rate and latency against memory\n"
        "  quire sweep --gpu H100,H200 --max-num-seqs 64,256,1024 --html out.html trace.jsonl\n"
        "      two GPUs and three batch limits: six replays, and a page\n"
        "  quire sweep --enable-prefix-caching=on,off --block-size 16,32,64 trace.jsonl\n"
        "      what prefix caching brings, by block size\n"
        "  quire sweep --workers 4..16/+4 --router 'round-robin;dynamo-kv' --html out.html "
        "day.jsonl\n"
        "      eight fleets, and which of them are worth their GPUs\n\n"
        "  The options of replay and of routers take lists; with one of --workers, --router and "
        "their\n"
        "  like each combination is a fleet. Values that may have commas are separated by "
        "semicolons.\n"
        "  Numbers also take ranges: 1k..16k doubles, "
        "1k..16k/x4\n"
        "  multiplies by 4, 0.5..0.9/+0.1 adds. Switches take =on,off.\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file or a folder",
    .run = run_sweep,
    .lists = table + NUM_OWN,
    .take_list = set_axis,
};
