/* cmd_fleet.c - `quire fleet`: a trace through many engines with a router in front of them. */
#include "commands.h"
#include "fleet/page.h"
#include "fleet/pools.h"
#include "fleet/report.h"
#include "options/fleet_options.h"
#include "output/failure.h"
#include "output/interrupt.h"
#include "output/output.h"
#include "output/progress.h"

#include <stdlib.h>
#include <unistd.h>

/* Options that need pools for prefill and decode. */
enum { MODE, PART, LATENCY, LEASE, FAILURES, NODE, PAIR, FABRIC, NUM_TRANSFER_OPTIONS };

static const char *pool_texts[FLEET_MAX_POOLS];
static const char *const transfer_modes[] = {"pull", "push", "layers", NULL}; /* transfer_mode */
static const char *const transfer_parts[] = {"missing", "all", NULL};         /* transfer_part */

enum { MAX_FAILURES = 256 };
static const char *fail_texts[MAX_FAILURES];

static struct {
    replay_options replay;
    fleet_options fleet;
    option_list pools;
    int transfer;
    int transfer_part;
    double transfer_latency_us;
    double transfer_lease_s;
    double transfer_failures;
    double node_gbps;
    double pair_gbps;
    double fabric_gbps;
    bool has_transfer[NUM_TRANSFER_OPTIONS];
    uint32_t num_threads;
    option_list fail;
    double mtbf_s;
    double mtbf_restart_s;
    const char *scale;
    const char *shared_tier;
    const char *peer_memory;
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
       .fleet = FLEET_OPTIONS_INIT,
       .pools = {.texts = pool_texts, .max = FLEET_MAX_POOLS},
       .transfer_latency_us = 100,
       .transfer_lease_s = 480,
       .node_gbps = 50,
       .fail = {.texts = fail_texts, .max = MAX_FAILURES},
       .mtbf_restart_s = 60};

/* With --workers 1 the files are those of `quire replay`. */
static const option table[] = {
    {"json", OPTION_TEXT, &o.json.path, "FILE", "the report with stable keys; -: standard output",
     .section = "Output", .role = OPTION_OUTPUT},
    {"csv", OPTION_TEXT, &o.csv.path, "FILE",
     "a row for each request; FILE.meta.json says what made it", .role = OPTION_OUTPUT},
    {"html", OPTION_TEXT, &o.html.path, "FILE", "a page that shows the whole run",
     .role = OPTION_OUTPUT},
    {"trace", OPTION_TEXT, &o.trace.path, "FILE", "a line for each step (--workers 1)",
     .role = OPTION_OUTPUT},
    {"why", OPTION_TEXT, &o.why.path, "FILE",
     "a line for each routing decision, and its reason; --workers 1: of the scheduler",
     .role = OPTION_ADDITION},
    {"perfetto", OPTION_TEXT, &o.perfetto.path, "FILE",
     "a trace for ui.perfetto.dev; each worker is a process", .role = OPTION_OUTPUT},
    {"quiet", OPTION_SWITCH, &o.quiet, NULL, "no report, no progress", .def = "off",
     .role = OPTION_OUTPUT},
    {"deterministic", OPTION_SWITCH, &o.deterministic, NULL,
     "omit values that differ from run to run (the wall-clock time)", .def = "off"},
    FLEET_WORKERS_OPTION(o.fleet),
    {"pool", OPTION_LIST, &o.pools, "ROLE:N[:OPTION=VALUE,...]",
     "N engines that serve, prefill or decode, with separate options; several times", .def = "none",
     .has_commas = true},
    {"transfer", OPTION_CHOICE, &o.transfer, "KIND",
     "KV goes to a decode engine after the prompt (pull), into blocks taken at the start (push), "
     "or layer by layer (layers)",
     .def = "pull", .choices = transfer_modes, .is_given = &o.has_transfer[MODE]},
    {"transfer-part", OPTION_CHOICE, &o.transfer_part, "KIND",
     "blocks that the decode engine's cache has not, or all", .def = "missing",
     .choices = transfer_parts, .is_given = &o.has_transfer[PART]},
    {"transfer-latency", OPTION_REAL, &o.transfer_latency_us, "US",
     "latency of each transfer of KV, from its start to its first byte", .def = "100", .min = 1,
     .max = 1e9, .is_given = &o.has_transfer[LATENCY]},
    {"transfer-lease", OPTION_REAL, &o.transfer_lease_s, "S",
     "a prefill engine keeps the blocks of a prompt so long, if no transfer begins", .def = "480",
     .min = 1e-3, .max = 1e9, .is_given = &o.has_transfer[LEASE]},
    {"transfer-failures", OPTION_REAL, &o.transfer_failures, "SHARE",
     "this share of the transfers fails; the decode engine computes the prompt then", .def = "0",
     .max = 1, .is_given = &o.has_transfer[FAILURES]},
    {"node-bandwidth", OPTION_REAL, &o.node_gbps, "GB/S",
     "bandwidth of each engine's network, each way", .def = "50", .min = 1e-6, .max = 1e9,
     .is_given = &o.has_transfer[NODE]},
    {"pair-bandwidth", OPTION_REAL, &o.pair_gbps, "GB/S", "bandwidth between any two engines",
     .def = "no limit", .min = 1e-6, .max = 1e9, .is_given = &o.has_transfer[PAIR]},
    {"fabric-bandwidth", OPTION_REAL, &o.fabric_gbps, "GB/S",
     "bandwidth between all engines together", .def = "no limit", .min = 1e-6, .max = 1e9,
     .is_given = &o.has_transfer[FABRIC]},
    {"threads", OPTION_U32, &o.num_threads, "N", "threads; the result does not depend on them",
     .def = "number of processors", .min = 1, .max = CREW_MAX_THREADS, .role = OPTION_OUTPUT},
    FLEET_ROUTER_OPTIONS(o.fleet),
    {"fail", OPTION_LIST, &o.fail, "KIND:FIELD=VALUE,...",
     "a failure: crash:worker=3,at=120,restart=60, slow:worker=3,from=60,to=90,factor=4, "
     "partition:worker=3,from=60,to=90, gap:worker=3,from=60,to=90 or tier:from=60,to=90 (of "
     "--shared-tier); several times",
     .def = "none", .has_commas = true},
    {"mtbf", OPTION_REAL, &o.mtbf_s, "S",
     "each worker crashes at random, after so many seconds on average; 0: never", .def = "0",
     .max = 1e9},
    {"mtbf-restart", OPTION_REAL, &o.mtbf_restart_s, "S",
     "time from such a crash until the worker is ready again", .def = "60", .max = 1e9},
    {"shared-tier", OPTION_TEXT, &o.shared_tier, "FIELD=VALUE,...",
     "storage of all engines behind their GPUs: blocks=N or bytes=N, bandwidth=GB/S in all, "
     "client-bandwidth=GB/S of each engine, latency=US",
     .def = "none", .has_commas = true},
    {"peer-memory", OPTION_TEXT, &o.peer_memory, "FIELD=VALUE,...",
     "host memory of each engine, which the others load from too: blocks=N or bytes=N of each, "
     "bandwidth=GB/S of its network, host-bandwidth=GB/S, latency=US",
     .def = "none", .has_commas = true},
    {"scale", OPTION_TEXT, &o.scale, "POLICY:FIELD=VALUE,...",
     "add and remove workers: queue:requests=16,max=8, slo:ttft=2,max=8, hpa:target=16,max=8 or "
     "schedule:0=2,3600=8,max=8; --workers is their number at first",
     .def = "none", .has_commas = true},
    {"gpu-cost", OPTION_REAL, &o.gpu_cost, "PRICE",
     "price of one GPU for an hour: the report has costs", .def = "0", .max = 1e9},
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

/* ---- pools ----------------------------------------------------------------------- */

static pool_list pools;

/* 0, or an exit status. */
static int check_pools(void)
{
    static const char *const names[NUM_TRANSFER_OPTIONS] = {[MODE] = "transfer",
                                                            [PART] = "transfer-part",
                                                            [LATENCY] = "transfer-latency",
                                                            [LEASE] = "transfer-lease",
                                                            [FAILURES] = "transfer-failures",
                                                            [NODE] = "node-bandwidth",
                                                            [PAIR] = "pair-bandwidth",
                                                            [FABRIC] = "fabric-bandwidth"};
    if (o.pools.count > 0 && o.fleet.has_workers)
        return command_error(&cmd_fleet,
                             "--workers %u cannot be used with --pool: each pool has "
                             "its number of engines",
                             o.fleet.num_workers);
    for (int i = 0; i < NUM_TRANSFER_OPTIONS && !pools_is_apart(&pools); i++)
        if (o.has_transfer[i])
            return command_error(&cmd_fleet, "--%s needs --pool prefill:N and --pool decode:N",
                                 names[i]);
    return 0;
}

/* The engines of a pool: its options are set where the command line has its own, and then those are
 * as they were. 0, or an exit status. */
static int prepare_pool(pool_spec *spec, replay_setup *setup, fleet_pool *pool)
{
    replay_options kept = o.replay;
    double kept_gbps = o.node_gbps;
    bool had_gbps = o.has_transfer[NODE];
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < spec->num_options; i++)
        status = option_set(&cmd_fleet, option_find(&cmd_fleet, spec->options[i].name),
                            spec->options[i].value);
    if (status == 0)
        status = replay_prepare(&cmd_fleet, &o.replay, setup);
    *pool = (fleet_pool){.role = spec->role,
                         .num_workers = spec->num_workers,
                         .replay = &setup->settings,
                         .options = spec->text,
                         .gpu = setup->engine.place,
                         .node_bytes_per_s = o.node_gbps * 1e9,
                         .block_bytes = (double)setup->plan_result.block_bytes * setup->engine.tp,
                         .num_layers = setup->engine.shape.num_layers,
                         .gpus_per_worker = setup->engine.tp};
    o.replay = kept;
    o.node_gbps = kept_gbps;
    o.has_transfer[NODE] = had_gbps;
    return status;
}

static int prepare_pools(replay_setup *setups, fleet_pool *all)
{
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < pools.num_specs; i++)
        status = prepare_pool(&pools.specs[i], &setups[i], &all[i]);
    for (uint32_t i = 0; status == 0 && i < pools.num_specs; i++)
        if (all[i].replay->block_size != all[0].replay->block_size)
            status = command_error(&cmd_fleet,
                                   "--pool %s: blocks of %u tokens, and of %u in --pool %s; they "
                                   "must be the same",
                                   all[i].options, all[i].replay->block_size,
                                   all[0].replay->block_size, all[0].options);
    return status;
}

/* ---- the command --------------------------------------------------------------- */

/* With a shorter one the time of the next crash is the time of this one. */
static const double MIN_MTBF_S = 0.001;

/* What a change of workers needs. */
static int check_members(const replay_setup *setup)
{
    bool has_fail = o.fail.count > 0 || o.mtbf_s > 0;
    const char *name = o.scale != NULL ? "scale" : o.fail.count > 0 ? "fail" : "mtbf";
    if (!has_fail && o.scale == NULL)
        return 0;
    if (o.mtbf_s > 0 && o.mtbf_s < MIN_MTBF_S)
        return command_error(&cmd_fleet,
                             "invalid value \"%g\" for --mtbf (expected 0, or "
                             "%g..1000000000)",
                             o.mtbf_s, MIN_MTBF_S);
    if (o.scale != NULL && pools.num_specs > 0)
        return command_error(&cmd_fleet, "--scale cannot be used with --pool: it adds and removes "
                                         "engines of one kind");
    if (o.fleet.num_workers == 1 && o.scale == NULL)
        return command_error(&cmd_fleet, "--%s needs --workers 2 or more", name);
    if (setup->settings.tiers.cpu_blocks > 0)
        return command_error(&cmd_fleet, "--%s cannot be used with tiers (--cpu-blocks)", name);
    return 0;
}

/* The option for storage that engines share; NULL: there is none. */
static const char *shared_option(void)
{
    return o.shared_tier != NULL ? "shared-tier" : o.peer_memory != NULL ? "peer-memory" : NULL;
}

/* What that needs, and cannot be used with. */
static int check_shared(const replay_setup *setup)
{
    const char *name = shared_option();
    if (name == NULL)
        return 0;
    if (o.shared_tier != NULL && o.peer_memory != NULL)
        return command_error(&cmd_fleet, "--shared-tier cannot be used with --peer-memory");
    if (pools_is_apart(&pools))
        return command_error(&cmd_fleet,
                             "--%s cannot be used with --pool prefill and --pool decode: their "
                             "engines have another connector",
                             name);
    if (setup->settings.tiers.cpu_blocks > 0)
        return command_error(&cmd_fleet,
                             "--%s cannot be used with --cpu-%s: an engine has one connector", name,
                             o.replay.tiers.cpu_memory > 0 ? "memory" : "blocks");
    if (setup->settings.swap.num_blocks > 0)
        return command_error(&cmd_fleet,
                             "--%s cannot be used with swapped requests (--swap-blocks, "
                             "--swap-memory)",
                             name);
    if (!setup->settings.enable_prefix_caching)
        return command_error(&cmd_fleet, "--%s needs prefix caching", name);
    if (setup->plan_result.num_groups != 1)
        return command_error(&cmd_fleet, "--%s needs a model with one kind of KV cache", name);
    if (o.scale != NULL)
        return command_error(&cmd_fleet,
                             "--scale cannot be used with --%s: its engines cannot be added or "
                             "removed",
                             name);
    return 0;
}

/* What a fleet cannot do, or one with several workers. */
static int check(const replay_setup *setup)
{
    if (check_shared(setup) != 0)
        return COMMAND_WRONG_CALL;
    if (setup->settings.tiers.cpu_blocks > 0 && pools_is_apart(&pools))
        return command_error(&cmd_fleet,
                             "--cpu-%s cannot be used with pools for prefill and "
                             "decode: their engines have another connector",
                             o.replay.tiers.cpu_memory > 0 ? "memory" : "blocks");
    if (check_members(setup) != 0)
        return COMMAND_WRONG_CALL;
    if (o.fleet.num_workers == 1 && o.scale == NULL)
        return 0;
    if (o.trace.path != NULL)
        return command_error(&cmd_fleet, "--trace needs --workers 1: it is about one engine");
    if (setup->settings.tiers.is_real)
        return command_error(&cmd_fleet, "--real-tiers needs --workers 1");
    return 0;
}

static int write_results(const replay_setup *setup, const fleet_settings *fleet, json_t *record,
                         fleet_result *result)
{
    report_subject subject = replay_subject(setup, record);
    subject.is_deterministic = o.deterministic;
    subject.has_why = o.why.path != NULL && fleet->num_workers == 1;
    subject.could_have_why = fleet->num_workers == 1;
    json_t *past = NULL;
    if (fleet->history != NULL)
        past = fleet_history_json(fleet->history, result);
    bool is_whole = past != NULL || fleet->history == NULL;
    json_t *tree = fleet_report_tree(&subject, o.fleet.router, result, past);
    char *text = json_dumps(tree, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    is_whole = is_whole && text != NULL;
    if (!o.quiet)
        fleet_report_print(o.json.file == stdout ? stderr : stdout, &subject, o.fleet.router,
                           result);
    if (is_whole && o.json.file != NULL)
        fprintf(o.json.file, "%s\n", text);
    if (is_whole && o.html.file != NULL)
        is_whole = fleet->num_workers > 1
                       ? fleet_page_write(o.html.file, setup->settings.meta, tree)
                       : page_write(setup->settings.page, o.html.file, text);
    json_decref(tree);
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
        if (o.fleet.num_workers < least || o.fleet.num_workers > most)
            return command_error(&cmd_fleet,
                                 "--workers is %u (expected %u to %u: min and max of --scale)",
                                 o.fleet.num_workers, least, most);
        if (most == 1)
            return command_error(&cmd_fleet, "invalid value \"1\" for max of --scale (expected 2 "
                                             "or more)");
        fleet->scale = scale;
        fleet->num_workers = most;
    }
    fail->mtbf_s = o.mtbf_s;
    fail->mtbf_restart_s = o.mtbf_restart_s;
    fail->seed = o.fleet.seed;
    for (uint32_t i = 0; i < o.fail.count; i++)
        if (failures_add(fail, o.fail.texts[i], fleet->num_workers) != 0)
            return command_error(&cmd_fleet, "--fail: %s", failure());
    for (uint32_t i = 0; i < fail->num_events; i++) {
        failure_kind kind = fail->events[i].kind;
        if (kind == FAILURE_TIER && o.shared_tier == NULL)
            return command_error(&cmd_fleet, "--fail tier:from=%g needs --shared-tier",
                                 fail->events[i].from_s);
    }
    if (o.fail.count > 0 || o.mtbf_s > 0)
        fleet->failures = fail;
    return 0;
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
    bool has_page = o.html.path != NULL;
    s->page = has_page && fleet->num_workers == 1 ? page_open(&d.meta) : NULL;
    fleet->history =
        has_page && fleet->num_workers > 1 ? history_open(fleet->num_workers, &s->slo) : NULL;
    progress_begin(&p, !o.quiet);
    s->progress = p.is_on ? show_progress : NULL;
    s->progress_user = &p;
    interrupt_catch();
    s->stop = interrupt_name;
    int status = outputs_open_for(&cmd_fleet);
    s->requests_csv = o.csv.file;
    s->snapshots = o.trace.file;
    s->why = o.why.file;
    s->perfetto = o.perfetto.file;
    fleet->requests_csv = o.csv.file;
    fleet->why = o.why.file;
    if (status == 0 && o.perfetto.file != NULL && fleet->num_workers > 1)
        fleet->tracks = tracks_open(o.perfetto.file, fleet->num_workers, d.made_by_text);
    bool has_memory = (fleet->history != NULL || !has_page || fleet->num_workers == 1) &&
                      (fleet->tracks != NULL || o.perfetto.file == NULL || fleet->num_workers == 1);
    if (status == 0 && !has_memory)
        status = command_failed(&cmd_fleet, "not enough memory");
    if (status == 0) {
        status = fleet_run(fleet, &result) != 0;
        progress_end(&p);
        tracks_close(fleet->tracks);
        if (status != 0)
            command_failed(&cmd_fleet, "%s", failure());
        else
            status = write_results(setup, fleet, d.made_by, &result);
        fleet_result_free(&result);
    }
    page_close(s->page);
    history_close(fleet->history);
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

/* What fleet_prepare does not know of: pools and transfers. */
static void add_pools(const fleet_pool *all, fleet_settings *s)
{
    s->num_first = o.fleet.num_workers;
    s->num_threads = o.num_threads;
    s->price_per_gpu_hour = o.gpu_cost;
    if (pools.num_specs == 0)
        return;
    s->pools = all;
    s->num_pools = pools.num_specs;
    s->transfers = (transfer_settings){.mode = (transfer_mode)o.transfer,
                                       .part = (transfer_part)o.transfer_part,
                                       .latency_s = o.transfer_latency_us * 1e-6,
                                       .lease_s = o.transfer_lease_s,
                                       .pair_bytes_per_s = o.pair_gbps * 1e9,
                                       .fabric_bytes_per_s = o.fabric_gbps * 1e9,
                                       .failures = o.transfer_failures,
                                       .seed = o.fleet.seed};
}

/* --shared-tier or --peer-memory. 0, or an exit status after a sentence. */
static int read_shared(const replay_setup *setup, const fleet_pool *all, shared_spec *shared,
                       fleet_settings *fleet)
{
    double block_bytes = (double)setup->plan_result.block_bytes * setup->engine.tp;
    if (shared_option() == NULL)
        return 0;
    int status = o.shared_tier != NULL ? shared_spec_read(o.shared_tier, shared)
                                       : shared_spec_read_peers(o.peer_memory, shared);
    if (status != 0)
        return command_error(&cmd_fleet, "%s", failure());
    if (pools.num_specs > 0)
        block_bytes = all[0].block_bytes;
    for (uint32_t i = 0; i < pools.num_specs; i++)
        if (all[i].block_bytes != block_bytes)
            return command_error(&cmd_fleet,
                                 "--pool %s: a block has %.0f bytes on all GPUs of an engine, and "
                                 "%.0f in --pool %s; with --%s they must be the same",
                                 all[i].options, all[i].block_bytes, block_bytes, all[0].options,
                                 shared_option());
    fleet->shared = shared;
    fleet->shared_block_bytes = (uint64_t)block_bytes;
    return 0;
}

static int run_prepared(replay_setup *setup)
{
    shared_spec shared;
    replay_setup setups[FLEET_MAX_POOLS] = {0};
    fleet_pool all[FLEET_MAX_POOLS];
    fleet_setup fleet = {0};
    failures fail = {0};
    scale_spec scale;
    int status = fleet_prepare(&cmd_fleet, &o.fleet, setup, &fleet);
    if (status == 0)
        status = check(setup);
    if (status == 0)
        status = prepare_pools(setups, all);
    add_pools(all, &fleet.settings);
    if (status == 0)
        status = read_shared(setup, all, &shared, &fleet.settings);
    if (status == 0)
        status = read_members(&fail, &scale, &fleet.settings);
    if (status == 0)
        status = run(setup, &fleet.settings);
    failures_free(&fail);
    for (uint32_t i = 0; i < pools.num_specs; i++)
        replay_unprepare(&setups[i]);
    fleet_unprepare(&fleet);
    return status;
}

static int run_fleet(void)
{
    replay_setup setup;
    if (o.num_threads == 0)
        o.num_threads = num_processors();
    int status = pools_read(&cmd_fleet, &o.pools, &pools);
    if (status == 0)
        status = check_pools();
    if (status == 0 && pools.num_specs > 0)
        o.fleet.num_workers = pools.num_workers;
    if (status == 0) {
        status = replay_prepare(&cmd_fleet, &o.replay, &setup);
        if (status == 0)
            status = run_prepared(&setup);
        replay_unprepare(&setup);
    }
    pools_free(&pools);
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
        "      four routers, which hear of the caches 50 ms later\n"
        "  quire fleet --pool prefill:8 --pool decode:8:gpu=H100,tp=2 --transfer push "
        "trace.jsonl.zst\n"
        "      8 engines compute prompts, 8 others generate; KV goes from the ones to the others\n"
        "  quire fleet --workers 8 --shared-tier blocks=200000,bandwidth=100 trace.jsonl.zst\n"
        "      storage behind all engines: what one has computed is a hit for the others\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file, a folder, or - for standard input",
    .run = run_fleet,
};
