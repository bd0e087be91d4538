#include "replay_options.h"
#include "output/failure.h"

#include <stdlib.h>
#include <string.h>

const char *const replay_clocks[] = {"trace", "burst", "serial", NULL};
const char *const replay_policies[] = {"fcfs", "priority", NULL};
const char *const replay_victims[] = {"default", "lifo", "priority", "lru",
                                      NULL}; /* quire_victim */
const char *const replay_hash_algos[] = {"quire128", "sha256",      "sha256_cbor",
                                         "xxhash",   "xxhash_cbor", NULL};

static const quire_hash_algo ALGOS[] = {QUIRE_HASH_QUIRE128, QUIRE_HASH_SHA256,
                                        QUIRE_HASH_SHA256_CBOR, QUIRE_HASH_XXHASH,
                                        QUIRE_HASH_XXHASH_CBOR};

/* The releases of vLLM have none of the program's own features. */
static bool is_vllm(const replay_options *o)
{
    return o->settings.sched.profile != QUIRE_PROFILE_DEFAULT;
}

/* "vllm-0.20", and "vLLM 0.20". */
static const char *profile_name(const replay_options *o)
{
    return engine_profiles[o->settings.sched.profile];
}

static const char *release_name(const replay_options *o)
{
    return o->settings.sched.profile == QUIRE_PROFILE_VLLM_0_20 ? "vLLM 0.20" : "vLLM 0.32";
}

static int refuse_in_vllm(const command *cmd, const replay_options *o, const char *name)
{
    return command_error(cmd, "--%s cannot be used with --profile %s: %s does not have it", name,
                         profile_name(o), release_name(o));
}

/* Tiers, and what they cannot be together with. */
static int prepare_tiers(const command *cmd, const replay_options *o, const replay_setup *setup,
                         tiers_settings *tiers)
{
    int status = tiers_resolve(cmd, &o->tiers, setup->plan_result.block_bytes, tiers);
    if (status != 0 || tiers->cpu_blocks == 0)
        return status;
    if (!o->settings.enable_prefix_caching)
        return command_error(cmd,
                             "--cpu-%s cannot be used with --no-enable-prefix-caching: only cached "
                             "blocks are stored",
                             o->tiers.cpu_memory > 0 ? "memory" : "blocks");
    if (o->settings.sched.profile == QUIRE_PROFILE_VLLM_0_20 && tiers->num_lower > 0)
        return command_error(cmd, "--profile vllm-0.20 cannot be used with --file-tier, --redis or "
                                  "--peer: vLLM 0.20 has no tiers behind host memory");
    return 0;
}

/* What vLLM does not have, and what needs prefix caching. */
static int check_beyond_vllm(const command *cmd, const replay_options *o)
{
    const char *name = o->settings.sched.lookahead > 0       ? "lookahead"
                       : o->settings.sched.prefix_window > 0 ? "prefix-window"
                       : o->settings.pin_ttl_s > 0           ? "pin-ttl"
                                                             : NULL;
    const char *rule = o->settings.pressure.preempt_above > 0 ? "preempt-above"
                       : o->settings.sched.victim > 0         ? "victim"
                       : o->swap.blocks > 0                   ? "swap-blocks"
                       : o->swap.memory > 0                   ? "swap-memory"
                                                              : NULL;
    int status = pressure_check(cmd, &o->settings.pressure);
    if (status != 0)
        return status;
    if (rule != NULL && is_vllm(o))
        return refuse_in_vllm(cmd, o, rule);
    if (o->settings.sched.prefix_patience > 0 && o->settings.sched.prefix_window == 0)
        return command_error(cmd, "--prefix-patience %u needs --prefix-window",
                             o->settings.sched.prefix_patience);
    if (name == NULL || (!is_vllm(o) && o->settings.enable_prefix_caching))
        return 0;
    if (is_vllm(o))
        return refuse_in_vllm(cmd, o, name);
    return command_error(cmd, "--%s cannot be used with --no-enable-prefix-caching", name);
}

/* Options that vLLM 0.20 does not have. *retention: as quire_cache_config has it. */
static int check_newer(const command *cmd, const replay_options *o, uint32_t *retention)
{
    const char *name = o->settings.sched.max_num_active_seqs > 0 ? "max-num-active-seqs"
                       : o->is_adaptive ? "long-prefill-token-threshold-adaptive"
                                        : NULL;
    *retention = 0;
    if (name != NULL && o->settings.sched.profile == QUIRE_PROFILE_VLLM_0_20)
        return refuse_in_vllm(cmd, o, name);
    if (name != NULL && !is_vllm(o))
        return command_error(cmd, "--%s needs --profile vllm-0.32", name);
    if (o->retention == NULL)
        return 0;
    if (o->settings.sched.profile == QUIRE_PROFILE_VLLM_0_20)
        return refuse_in_vllm(cmd, o, "prefix-cache-retention-interval");
    char *end = NULL;
    unsigned long long tokens = strtoull(o->retention, &end, 10);
    bool is_all = strcmp(o->retention, "all") == 0;
    bool is_number = o->retention[0] >= '0' && o->retention[0] <= '9' && *end == '\0' &&
                     tokens <= ENGINE_MAX_TOKENS;
    *retention = is_all ? QUIRE_RETAIN_ALL : (uint32_t)tokens;
    if (is_all || is_number)
        return 0;
    return command_error(cmd,
                         "invalid value \"%s\" for --prefix-cache-retention-interval (expected "
                         "0..%d or all)",
                         o->retention, ENGINE_MAX_TOKENS);
}

/* The plan of the scheduler's profile. */
static engine_options planned_engine(const replay_options *o)
{
    engine_options engine = o->engine;
    uint32_t flights = o->settings.async_scheduling ? 2 : 1;
    engine.plan.profile = o->settings.sched.profile;
    if (engine.plan.profile == QUIRE_PROFILE_VLLM_0_32)
        engine.plan.max_in_flight_tokens = flights * engine.plan.max_num_batched_tokens;
    return engine;
}

int replay_prepare(const command *cmd, const replay_options *o, replay_setup *setup)
{
    *setup = (replay_setup){0};
    trace_format format;
    int status = engine_resolve_format(cmd, o->format, &format);
    if (status != 0)
        return status;
    slo limits;
    if (slo_read(o->slo, &limits) != 0)
        return command_error(cmd, "%s", failure());
    uint32_t retention;
    const engine_options engine = planned_engine(o);
    status = check_beyond_vllm(cmd, o);
    if (status == 0)
        status = check_newer(cmd, o, &retention);
    if (status == 0)
        status = engine_resolve(cmd, &engine, &setup->engine);
    if (status == 0)
        status = engine_check_time(cmd, &setup->engine);
    if (status == 0)
        status = engine_plan(cmd, &engine, &setup->engine, &setup->plan_result, &setup->plan);
    tiers_settings tiers = {0};
    if (status == 0)
        status = prepare_tiers(cmd, o, setup, &tiers);
    swap_settings swap = {0};
    if (status == 0)
        status = swap_resolve(cmd, &o->swap, &o->tiers.link, &setup->engine.time,
                              setup->plan_result.block_bytes, &swap);
    if (status != 0)
        return status;
    replay_settings *s = &setup->settings;
    *s = o->settings;
    s->path = cmd->num_arguments > 0
                  ? trace_names(setup->trace_names, cmd->arguments, (uint32_t)cmd->num_arguments)
                  : NULL;
    s->paths = cmd->arguments;
    s->num_paths = (uint32_t)cmd->num_arguments;
    s->trace.format = format;
    s->time = &setup->engine.time;
    s->plan = setup->plan;
    s->block_size = setup->plan_result.block_size;
    s->hash_block_size = setup->plan_result.hash_block_size;
    s->retention_interval = retention;
    s->sched.long_prefill_token_threshold_adaptive = o->is_adaptive ? QUIRE_ON : QUIRE_DEFAULT;
    s->sched.max_num_seqs = o->engine.plan.max_num_seqs;
    s->sched.max_num_batched_tokens = o->engine.plan.max_num_batched_tokens;
    s->sched.use_pressure = s->pressure.preempt_above > 0 ? QUIRE_ON : QUIRE_OFF;
    s->sched.num_swap_blocks = swap.num_blocks;
    s->sched.swap_setup_ns = swap.setup_ns;
    s->sched.swap_block_ns = swap.block_ns;
    s->sched.recompute_token_ns = swap.token_ns;
    s->hash_algo = ALGOS[o->hash_algo];
    s->swap = swap;
    s->slo = limits;
    s->limit = o->engine.plan.max_model_len > 0 ? REPLAY_LIMIT_GIVEN
               : setup->plan_result.max_model_len < setup->engine.shape.max_model_len
                   ? REPLAY_LIMIT_POOL
                   : REPLAY_LIMIT_MODEL;
    s->tiers = tiers;
    s->block_bytes = setup->plan_result.block_bytes;
    s->model = setup->engine.shape.name;
    s->hash_name = replay_hash_algos[o->hash_algo];
    return 0;
}

report_subject replay_subject(const replay_setup *setup, json_t *made_by)
{
    return (report_subject){.trace = setup->settings.path,
                            .model = setup->engine.shape.name,
                            .gpu = setup->engine.place,
                            .made_by = made_by,
                            .bytes_per_block = setup->plan_result.block_bytes};
}

void replay_unprepare(replay_setup *setup)
{
    quire_plan_destroy(setup->plan);
    setup->plan = NULL;
}

static void set_count(json_t *values, const char *name, uint64_t number)
{
    json_object_set_new(values, name, json_integer((json_int_t)number));
}

/* By the names of the options that leave these to the program. */
static json_t *resolved(const replay_setup *setup)
{
    const plan_result *plan = &setup->plan_result;
    const swap_settings *swap = &setup->settings.swap;
    gpu_constants constants = setup->engine.gpu.constants;
    json_t *values = json_object();
    set_count(values, "num-gpu-blocks", plan->num_blocks);
    set_count(values, "max-model-len", plan->max_model_len);
    set_count(values, "gpu-memory", setup->engine.gpu.memory_bytes);
    set_count(values, "reserve-memory", plan->reserve_bytes);
    set_count(values, "weight-bytes", plan->weight_bytes * setup->engine.tp);
    if (setup->settings.tiers.cpu_blocks > 0)
        set_count(values, "cpu-blocks", setup->settings.tiers.cpu_blocks);
    if (swap->num_blocks > 0) {
        set_count(values, "swap-blocks", swap->num_blocks);
        json_object_set_new(values, "swap-setup-cost", json_real((double)swap->setup_ns * 1e-3));
        json_object_set_new(values, "swap-cost", json_real((double)swap->block_ns * 1e-3));
        json_object_set_new(values, "recompute-cost", json_real((double)swap->token_ns * 1e-3));
    }
    json_object_set_new(values, "gpu-flops", json_real(setup->engine.gpu.bf16_tflops));
    json_object_set_new(values, "gpu-bandwidth", json_real(setup->engine.gpu.bandwidth_tbps));
    for (uint32_t i = 0; gpu_constant_name(i) != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", gpu_constant_name(i));
        for (char *at = name; *at != '\0'; at++)
            *at = (char)(*at == '_' ? '-' : *at);
        json_object_set_new(values, name, json_real(*gpu_constant(&constants, i)));
    }
    return values;
}

json_t *replay_made_by(const command *cmd, const replay_setup *setup, json_t *trace)
{
    json_t *record = made_by(cmd);
    json_object_set_new(
        record, "trace",
        trace != NULL ? trace : made_by_traces(setup->settings.paths, setup->settings.num_paths));
    json_object_set_new(record, "resolved", resolved(setup));
    return record;
}
