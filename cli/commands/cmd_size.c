/* cmd_size.c - `quire size`: the fewest GPUs that keep an SLO on a trace. */
#include "commands.h"
#include "options/fleet_options.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "output/output.h"
#include "output/progress.h"
#include "size/prices.h"
#include "size/size.h"
#include "sweep/axes.h"

#include <stdlib.h>
#include <string.h>

static struct {
    replay_options replay;
    fleet_options fleet;
    const char *slo;
    uint32_t max_gpus;
    const char *prices;
    uint32_t num_jobs;
    output_file json;
    bool deterministic;
} o = {.replay = REPLAY_OPTIONS_INIT, .fleet = FLEET_OPTIONS_INIT, .max_gpus = 64};

/* The first are the command's own; those of engines and routers take lists. */
enum { NUM_OWN = 5 };
static const option table[] = {
    {"max-gpus", OPTION_U32, &o.max_gpus, "N", "never more GPUs than these", .def = "64", .min = 1,
     .max = FLEET_MAX_WORKERS},
    {"gpu-cost", OPTION_TEXT, &o.prices, "PRICE|GPU=PRICE,...",
     "price of a GPU for an hour, in any currency", .def = "none", .has_commas = true},
    {"jobs", OPTION_U32, &o.num_jobs, "N", "number of fleets that run at the same time",
     .def = "number of processors", .max = 4096, .role = OPTION_OUTPUT},
    {"json", OPTION_TEXT, &o.json.path, "FILE", "all that was tried; -: standard output",
     .role = OPTION_OUTPUT},
    {"deterministic", OPTION_SWITCH, &o.deterministic, NULL,
     "omit values that differ from run to run (the wall-clock time)", .def = "off"},
    FLEET_ROUTER_OPTIONS(o.fleet),
    REPLAY_OPTIONS_WITH(
        o.replay, "speed",
        "what all requests (ttft=2s) or a percentile of them (ttft_p99=2s) keep; also tpot, e2e",
        "none: it must be given"),
    {0}};

static sweep grid;
static size sizing;

/* The SLO is one for all combinations. */
static int set_axis(const option *opt, const char *text)
{
    if (opt->value == &o.replay.slo) {
        o.slo = text;
        return 0;
    }
    return axes_take(&cmd_size, &grid, opt, text);
}

static void reset(void)
{
    o.replay = (replay_options)REPLAY_OPTIONS_INIT;
    o.replay.slo = o.slo; /* for the record */
    o.fleet = (fleet_options)FLEET_OPTIONS_INIT;
}

/* ---- a try ----------------------------------------------------------------------- */

static bool has_progress;

static void tell_sweep(void *user, const replay_progress *now)
{
    (void)user;
    sweep_tell(now->share > 0 ? now->share : 0);
}

static int write_run(fleet_result *result, uint32_t num_gpus, FILE *out)
{
    replay_result *total = &result->total;
    distribution *const metrics[] = {&total->ttft_ms, &total->tpot_ms, &total->e2e_ms};
    const slo_targets *targets = &sizing.settings.slo;
    size_run run = {.refused = result->refused,
                    .gpu_hours = num_gpus * total->simulated_s / 3600,
                    .hit_rate = report_share(total->hit_tokens, total->prompt_tokens)};
    if (total->requests == 0)
        return command_error(&cmd_size, "no request of the trace was served");
    for (uint32_t i = 0; i < targets->num; i++)
        run.values_ms[i] =
            distribution_percentile(metrics[targets->list[i].metric], targets->list[i].share);
    return size_print_run(out, targets, &run);
}

static int run_fleet(const replay_setup *setup, uint32_t num_threads, FILE *out)
{
    fleet_setup fleet;
    fleet_result result;
    int status = fleet_prepare(&cmd_size, &o.fleet, setup, &fleet);
    if (status != 0)
        return status;
    fleet.settings.num_threads = num_threads < CREW_MAX_THREADS ? num_threads : CREW_MAX_THREADS;
    if (fleet_run(&fleet.settings, &result) != 0)
        status = command_error(&cmd_size, "%s", failure());
    else
        status = write_run(&result, o.fleet.num_workers * o.replay.engine.plan.tp, out);
    fleet_result_free(&result);
    fleet_unprepare(&fleet);
    return status;
}

static int run_try(uint32_t combination, uint32_t workers, uint32_t num_threads, FILE *out)
{
    replay_setup setup;
    int status = axes_set(&cmd_size, &grid, combination, reset);
    if (status != 0)
        return status;
    o.replay.slo = NULL;
    o.fleet.num_workers = workers;
    status = replay_prepare(&cmd_size, &o.replay, &setup);
    setup.settings.progress = has_progress ? tell_sweep : NULL;
    if (status == 0)
        status = run_fleet(&setup, num_threads, out);
    replay_unprepare(&setup);
    return status;
}

/* ---- the command ----------------------------------------------------------------- */

static void show_progress(void *user, uint32_t num_done, const sweep_progress *round)
{
    char what[128];
    snprintf(what, sizeof what, "%u of %u combinations sized; %u of %u fleets of this round",
             num_done, sizing.num_combinations, round->num_done, round->num_points);
    progress_show(user, round->share, round->left_s, what);
}

/* What each combination has: GPUs of a worker, a router, a price. */
static int describe(const prices *p)
{
    char why[ROUTER_WHY_BYTES] = "";
    for (uint32_t i = 0; i < sizing.num_combinations; i++) {
        size_combination *c = &sizing.combinations[i];
        router_spec spec = {0};
        int status = axes_set(&cmd_size, &grid, i, reset);
        if (status != 0)
            return status;
        c->tp = o.replay.engine.plan.tp;
        if (!router_spec_read(o.fleet.router, &spec, why))
            return command_error(&cmd_size, "--router: %s", why);
        router_spec_free(&spec);
        if (prices_find(p, o.replay.engine.gpu, &c->price) != 0)
            return command_error(&cmd_size, "%s", failure());
    }
    return 0;
}

static int prepare(void)
{
    prices p;
    size_settings settings = {.num_jobs = o.num_jobs > 0 ? o.num_jobs : sweep_default_jobs(),
                              .traces = cmd_size.arguments,
                              .num_traces = (uint32_t)cmd_size.num_arguments,
                              .max_gpus = o.max_gpus,
                              .has_prices = o.prices != NULL,
                              .run = run_try,
                              .stop = interrupt_name};
    if (o.slo == NULL)
        return command_error(&cmd_size, "expected --slo, as in --slo ttft_p99=2s,tpot_p99=50ms");
    if (slo_targets_read(o.slo, &settings.slo) != 0 || prices_read(o.prices, &p) != 0)
        return command_error(&cmd_size, "%s", failure());
    int status = axes_check(&cmd_size, &grid, reset);
    if (status != 0)
        return status;
    if (!size_open(&sizing, &grid, &settings))
        return command_failed(&cmd_size, "not enough memory");
    return describe(&p);
}

static int write_results(void)
{
    bool is_whole = true;
    uint32_t *order = calloc(sizing.num_combinations, sizeof *order);
    bool has_answer = order != NULL && size_order(&sizing, order) > 0;
    free(order);
    if (o.json.file != NULL)
        is_whole = size_report_json(o.json.file, &sizing, o.deterministic) || ferror(o.json.file);
    if (o.json.file != stdout)
        size_report_print(stdout, &sizing, o.deterministic);
    if (!is_whole)
        return command_failed(&cmd_size, "not enough memory for the results");
    int status = outputs_commit_for(&cmd_size);
    if (status == 0 && sizing.stopped != NULL)
        return command_error(&cmd_size, "interrupted after %u fleets", sizing.num_runs);
    if (status == 0 && !has_answer)
        return command_failed(&cmd_size, "no combination keeps the SLO with %u GPUs (--max-gpus)",
                              o.max_gpus);
    return status;
}

static int run(void)
{
    progress p;
    int status = prepare();
    if (status != 0)
        return status;
    progress_begin(&p, true);
    has_progress = p.is_on;
    sizing.settings.progress = p.is_on ? show_progress : NULL;
    sizing.settings.progress_user = &p;
    interrupt_catch();
    status = outputs_open_for(&cmd_size);
    if (status != 0)
        return status;
    status = size_search(&sizing);
    progress_end(&p);
    if (status != 0)
        return command_failed(&cmd_size, "not enough memory or processes");
    return interrupt_status(write_results());
}

static int run_size(void)
{
    int status = run();
    size_close(&sizing);
    sweep_free(&grid);
    return status;
}

command cmd_size = {
    .name = "size",
    .usage = "size [OPTION]... --slo LIMITS TRACE...",
    .summary = "finds the fewest GPUs that keep an SLO on a trace",
    .examples =
        "  quire size --slo ttft_p99=2s,tpot_p99=50ms day.jsonl.zst\n"
        "      how many H200, with requests to them in turn\n"
        "  quire size --slo ttft_p99=2s --gpu H100,H200 --tp 1,2 --gpu-cost H100=2.5,H200=3.8 "
        "day.jsonl\n"
        "      which GPU, how many for each engine, and what they cost\n"
        "  quire size --slo e2e_p95=10s --router 'round-robin;dynamo-kv' --cpu-memory 0,200G "
        "day.jsonl\n"
        "      what a better router or host memory saves\n\n"
        "  The options of replay and of routers take lists, and every combination is sized. "
        "Numbers\n"
        "  also take ranges: 1..8 doubles. Values that may have commas are separated by "
        "semicolons.\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file or a folder",
    .run = run_size,
    .lists = table + NUM_OWN,
    .take_list = set_axis,
};
