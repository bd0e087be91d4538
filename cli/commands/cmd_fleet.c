/* cmd_fleet.c - `quire fleet`: a trace through many engines with a router in front of them. */
#include "commands.h"
#include "fleet/crew.h"
#include "fleet/report.h"
#include "fleet/routers/router_table.h"
#include "options/replay_options.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "output/output.h"
#include "output/progress.h"

#include <stdlib.h>
#include <unistd.h>

enum { MAX_FAILURES = 256 };
static const char *fail_texts[MAX_FAILURES];

static struct {
    replay_options replay;
    uint32_t num_workers;
    uint32_t num_threads;
    const char *router;
    uint32_t num_routers;
    uint64_t seed;
    double kv_lag_ms;
    double kv_loss;
    double kv_resync_s;
    double metrics_ms;
    bool has_metrics;
    option_list fail;
    double mtbf_s;
    double mtbf_restart_s;
    const char *scale;
    double gpu_cost;
    output_file json;
    output_file html;
    output_file csv;
    output_file why;
    output_file trace;
    output_file perfetto;
    bool quiet;
    bool deterministic;
} o = {.replay = REPLAY_OPTIONS_INIT,
       .num_workers = 4,
       .router = "round-robin",
       .num_routers = 1,
       .fail = {.texts = fail_texts, .max = MAX_FAILURES},
       .mtbf_restart_s = 60,
       .seed = 1};

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
    {"workers", OPTION_U32, &o.num_workers, "N", "engines", .def = "4", .min = 1,
     .max = FLEET_MAX_WORKERS, .section = "Fleet"},
    {"threads", OPTION_U32, &o.num_threads, "N", "threads; the result does not depend on them",
     .def = "number of processors", .min = 1, .max = CREW_MAX_THREADS, .role = OPTION_OUTPUT},
    {"router", OPTION_TEXT, &o.router, "NAME[:OPTION=VALUE,...]",
     "which worker serves a request; or the path of a shared object", .def = "round-robin",
     .has_commas = true, .preset = router_name},
    {"routers", OPTION_U32, &o.num_routers, "N",
     "routers, each with its own view; requests go to them in turn", .def = "1", .min = 1,
     .max = ROUTER_MAX_WORKERS},
    {"seed", OPTION_U64, &o.seed, "N",
     "seed of all that is random in routers; equal scores are such a case", .def = "1"},
    {"kv-lag", OPTION_REAL, &o.kv_lag_ms, "MS", "KV events reach the router so much later",
     .def = "0", .max = 1e9},
    {"kv-loss", OPTION_REAL, &o.kv_loss, "SHARE", "this share of batches of KV events is lost",
     .def = "0", .max = 1},
    {"kv-resync", OPTION_REAL, &o.kv_resync_s, "S",
     "after a gap in KV events the router reads the worker's cache again, so much later; 0: never",
     .def = "0", .max = 1e9},
    {"metrics-interval", OPTION_REAL, &o.metrics_ms, "MS",
     "workers report their load so often; 0: the router always knows it", .def = "the router's",
     .max = 1e9, .is_given = &o.has_metrics},
    {"fail", OPTION_LIST, &o.fail, "KIND:FIELD=VALUE,...",
     "a failure: crash:worker=3,at=120,restart=60, slow:worker=3,from=60,to=90,factor=4, "
     "partition:worker=3,from=60,to=90 or gap:worker=3,from=60,to=90; several times",
     .def = "none", .has_commas = true},
    {"mtbf", OPTION_REAL, &o.mtbf_s, "S",
     "each worker crashes at random, after so many seconds on average; 0: never", .def = "0",
     .max = 1e9},
    {"mtbf-restart", OPTION_REAL, &o.mtbf_restart_s, "S",
     "from such a crash until the worker is ready again", .def = "60", .max = 1e9},
    {"scale", OPTION_TEXT, &o.scale, "POLICY:FIELD=VALUE,...",
     "add and remove workers: queue:requests=16,max=8, slo:ttft=2,max=8, hpa:target=16,max=8 or "
     "schedule:0=2,3600=8,max=8; --workers is their number at first",
     .def = "none", .has_commas = true},
    {"gpu-cost", OPTION_REAL, &o.gpu_cost, "PRICE", "of one GPU for an hour: the report has costs",
     .def = "0", .max = 1e9},
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

/* What a change of workers needs. */
static int check_members(const replay_setup *setup)
{
    bool has_fail = o.fail.count > 0 || o.mtbf_s > 0;
    const char *name = o.scale != NULL ? "scale" : o.fail.count > 0 ? "fail" : "mtbf";
    if (!has_fail && o.scale == NULL)
        return 0;
    if (o.num_workers == 1 && o.scale == NULL)
        return command_error(&cmd_fleet, "--%s needs --workers 2 or more", name);
    if (setup->settings.tiers.cpu_blocks > 0)
        return command_error(&cmd_fleet, "--%s cannot be used with tiers (--cpu-blocks)", name);
    return 0;
}

/* What a fleet cannot do, or one with several workers. */
static int check(const replay_setup *setup)
{
    const struct {
        const char *name;
        const output_file *file;
    } files[] = {
        {"html", &o.html}, {"trace", &o.trace}, {"why", &o.why}, {"perfetto", &o.perfetto}};
    if (setup->settings.max_steps > 0)
        return command_error(&cmd_fleet, "--max-steps cannot be used: each worker counts its steps "
                                         "(--max-requests ends a fleet early)");
    if (check_members(setup) != 0)
        return COMMAND_WRONG_CALL;
    if (o.num_workers == 1 && o.scale == NULL)
        return 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i].file->path != NULL)
            return command_error(&cmd_fleet, "--%s needs --workers 1: it is about one engine",
                                 files[i].name);
    if (setup->settings.tiers.is_real)
        return command_error(&cmd_fleet, "--real-tiers needs --workers 1");
    return 0;
}

static void describe_routers(const router_spec *spec, routers_settings *s)
{
    routers_defaults(spec->policy, s);
    s->values = spec->values;
    s->num_routers = o.num_routers;
    s->seed = o.seed;
    s->view.kv_lag_s = o.kv_lag_ms * 1e-3;
    s->view.kv_loss = o.kv_loss;
    s->view.resync_s = o.kv_resync_s;
    if (o.has_metrics)
        s->view.knowledge.metrics_every_s = o.metrics_ms * 1e-3;
}

static int write_results(const replay_setup *setup, json_t *record, fleet_result *result)
{
    report_subject subject = replay_subject(setup, record);
    subject.is_deterministic = o.deterministic;
    subject.has_why = o.why.path != NULL;
    subject.could_have_why = o.num_workers == 1;
    char *text = fleet_report_json(&subject, o.router, result);
    bool is_whole = text != NULL;
    if (!o.quiet)
        fleet_report_print(o.json.file == stdout ? stderr : stdout, &subject, o.router, result);
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

/* --fail, --mtbf and --scale. 0, or an exit status after a sentence. */
static int read_members(failures *fail, scale_spec *scale, fleet_settings *fleet)
{
    if (o.scale != NULL) {
        if (scale_spec_read(o.scale, FLEET_MAX_WORKERS, scale) != 0)
            return command_error(&cmd_fleet, "--scale: %s", failure());
        uint32_t least = scale->config.min_workers;
        uint32_t most = scale->config.max_workers;
        if (o.num_workers < least || o.num_workers > most)
            return command_error(&cmd_fleet,
                                 "--workers is %u (expected %u to %u: min and max of --scale)",
                                 o.num_workers, least, most);
        if (most == 1)
            return command_error(&cmd_fleet, "invalid value \"1\" for max of --scale (expected 2 "
                                             "or more)");
        fleet->scale = scale;
        fleet->num_workers = most;
    }
    fail->mtbf_s = o.mtbf_s;
    fail->mtbf_restart_s = o.mtbf_restart_s;
    fail->seed = o.seed;
    for (uint32_t i = 0; i < o.fail.count; i++)
        if (failures_add(fail, o.fail.texts[i], fleet->num_workers) != 0)
            return command_error(&cmd_fleet, "--fail: %s", failure());
    if (o.fail.count > 0 || o.mtbf_s > 0)
        fleet->failures = fail;
    return 0;
}

static int run(replay_setup *setup, const router_spec *spec, fleet_settings fleet)
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
    describe_routers(spec, &fleet.routers);
    int status = outputs_open_for(&cmd_fleet);
    s->requests_csv = o.csv.file;
    s->snapshots = o.trace.file;
    s->why = o.why.file;
    s->perfetto = o.perfetto.file;
    fleet.requests_csv = o.csv.file;
    if (status == 0) {
        status = fleet_run(&fleet, &result) != 0;
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
    router_spec spec = {0};
    failures fail = {0};
    scale_spec scale;
    char why[ROUTER_WHY_BYTES] = "";
    if (o.num_threads == 0)
        o.num_threads = num_processors();
    if (!router_spec_read(o.router, &spec, why))
        return command_error(&cmd_fleet, "--router: %s", why);
    int status = replay_prepare(&cmd_fleet, &o.replay, &setup);
    if (status == 0)
        status = check(&setup);
    fleet_settings fleet = {.replay = &setup.settings,
                            .num_workers = o.num_workers,
                            .num_first = o.num_workers,
                            .num_threads = o.num_threads,
                            .gpus_per_worker = o.replay.engine.plan.tp,
                            .price_per_gpu_hour = o.gpu_cost};
    if (status == 0)
        status = read_members(&fail, &scale, &fleet);
    if (status == 0)
        status = run(&setup, &spec, fleet);
    failures_free(&fail);
    replay_unprepare(&setup);
    router_spec_free(&spec);
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
