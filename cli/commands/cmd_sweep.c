/* cmd_sweep.c - `quire sweep`: a replay for each combination of options. */
#include "commands.h"
#include "options/replay_options.h"
#include "output/failure.h"
#include "output/file_uses.h"
#include "output/interrupt.h"
#include "output/made_by.h"
#include "output/output.h"
#include "output/progress.h"
#include "replay/report.h"
#include "sweep/sweep.h"
#include "trace/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    replay_options replay;
    uint32_t num_jobs;
    output_file json;
    output_file csv;
    output_file html;
    bool plot;
    bool deterministic;
} o = {.replay = REPLAY_OPTIONS_INIT, .plot = true};

/* The first are the command's own; those of replay take lists. */
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
    REPLAY_OPTIONS(o.replay),
    {0}};

/* ---- axes ------------------------------------------------------------------ */

static sweep grid;

/* Values of an option; given again, they replace those before. */
static int set_axis(const option *opt, const char *text)
{
    sweep *s = &grid;
    uint32_t at = 0;
    while (at < s->num_axes && s->axes[at].option != opt)
        at++;
    if (at == SWEEP_MAX_AXES)
        return command_error(&cmd_sweep, "more than %d options of replay", SWEEP_MAX_AXES);
    if (at == s->num_axes)
        s->num_axes++;
    else
        value_list_free(&s->axes[at].list);
    s->axes[at].option = opt;
    return value_list_read(&cmd_sweep, opt, text, &s->axes[at].list);
}

/* ---- one point ------------------------------------------------------------- */

static bool has_progress; /* of the whole sweep: points say how far they are */

static void tell_sweep(void *user, const replay_progress *now)
{
    (void)user;
    sweep_tell(now->share > 0 ? now->share : 0);
}

/* Sets the options as a command line of that point would. */
static int parse_point(const sweep *s, uint32_t point)
{
    int status = 0;
    o.replay = (replay_options)REPLAY_OPTIONS_INIT;
    for (uint32_t i = 0; i < s->num_axes && status == 0; i++)
        status = option_set(&cmd_sweep, s->axes[i].option, sweep_value(s, point, i));
    return status;
}

/* The record of the sweep: an option that was given has a list of values. */
static json_t *sweep_made_by(const sweep *s)
{
    o.replay = (replay_options)REPLAY_OPTIONS_INIT;
    json_t *record = made_by(&cmd_sweep);
    json_t *options = json_object_get(record, "options");
    json_object_set(record, "trace", s->trace_record);
    for (uint32_t i = 0; i < s->num_axes; i++) {
        const value_list *list = &s->axes[i].list;
        json_t *values = json_array();
        for (uint32_t v = 0; v < list->num_values; v++)
            json_array_append_new(values, json_string(list->values[v]));
        json_object_del(options, s->axes[i].option->name); /* axes last, in their order */
        json_object_set_new(options, s->axes[i].option->name, values);
    }
    return record;
}

static int write_report(const sweep *s, const replay_setup *setup, replay_result *result, FILE *out)
{
    const command replay = {.name = "replay", .options = table}; /* that the point stands for */
    json_t *record = replay_made_by(&replay, setup, json_incref(s->trace_record));
    report_subject subject = replay_subject(setup, record);
    subject.is_deterministic = o.deterministic;
    char *text = report_json(&subject, result);
    json_decref(record);
    if (text == NULL)
        return command_error(&cmd_sweep, "not enough memory");
    int status = fputs(text, out) < 0;
    free(text);
    return status;
}

static int run_point(const sweep *s, uint32_t point, FILE *out)
{
    replay_setup setup;
    replay_result result;
    int status = parse_point(s, point);
    if (status != 0)
        return status;
    status = replay_prepare(&cmd_sweep, &o.replay, &setup);
    setup.settings.progress = has_progress ? tell_sweep : NULL;
    if (status == 0) {
        if (replay_run(&setup.settings, &result) != 0)
            status = command_error(&cmd_sweep, "%s", failure());
        else
            status = write_report(s, &setup, &result, out);
        replay_result_free(&result);
    }
    replay_unprepare(&setup);
    return status;
}

/* ---- the command ----------------------------------------------------------- */

static void show_progress(void *user, const sweep_progress *now)
{
    char what[64];
    snprintf(what, sizeof what, "%u of %u replays", now->num_done, now->num_points);
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

/* A value that no replay takes is found before the first one starts. */
static int check_points(const sweep *s)
{
    uint64_t num_points = 1;
    for (uint32_t i = 0; i < s->num_axes; i++) {
        num_points *= s->axes[i].list.num_values;
        if (num_points > SWEEP_MAX_POINTS)
            return command_error(&cmd_sweep, "too many combinations of options (at most %d)",
                                 SWEEP_MAX_POINTS);
    }
    for (uint32_t i = 0; i < num_points; i++) {
        int status = parse_point(s, i);
        if (status != 0)
            return status;
    }
    return 0;
}

/* The files that points read are not among the options that command_parse sees. */
static int check_files(const sweep *s)
{
    file_uses all = {.cmd = &cmd_sweep};
    file_uses_add_command(&all);
    for (uint32_t i = 0; i < s->num_axes; i++) {
        const sweep_axis *axis = &s->axes[i];
        for (uint32_t k = 0; option_is_file(axis->option) && k < axis->list.num_values; k++)
            file_uses_add(&all, axis->option->name, axis->list.values[k], false);
    }
    int status = file_uses_check(&all);
    file_uses_free(&all);
    return status;
}

static int run(sweep *s)
{
    static char names[TRACE_NAMES_BYTES];
    uint32_t num_traces = (uint32_t)cmd_sweep.num_arguments;
    s->trace = trace_names(names, cmd_sweep.arguments, num_traces);
    for (uint32_t i = 0; i < num_traces; i++) {
        const char *path = cmd_sweep.arguments[i];
        if (strcmp(path, "-") == 0)
            return command_error(&cmd_sweep,
                                 "TRACE cannot be standard input: a sweep reads it several times");
        if (access(path, R_OK) != 0)
            return command_failed(&cmd_sweep, "%s: %s", path, strerror(errno));
    }
    int status = check_files(s);
    if (status == 0)
        status = check_points(s);
    if (status != 0)
        return status;
    s->trace_record = made_by_traces(cmd_sweep.arguments, num_traces);
    s->made_by = sweep_made_by(s);
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t num_jobs = o.num_jobs > 0 ? o.num_jobs : processors > 0 ? (uint32_t)processors : 1;
    progress p;
    progress_begin(&p, true);
    has_progress = p.is_on;
    sweep_settings settings = {.num_jobs = num_jobs,
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
        "      what prefix caching brings, by block size\n\n"
        "  The options of replay take lists. Numbers also take ranges: 1k..16k doubles, "
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
