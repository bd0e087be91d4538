#include "replay_options.h"
#include "output/failure.h"

const char *const replay_clocks[] = {"trace", "burst", "serial", NULL};
const char *const replay_policies[] = {"fcfs", "priority", NULL};
const char *const replay_profiles[] = {"default", "vllm-0.20", NULL};
const char *const replay_victims[] = {"default", "lifo", "priority", "lru",
                                      NULL}; /* quire_victim */
const char *const replay_hash_algos[] = {"quire128", "sha256",      "sha256_cbor",
                                         "xxhash",   "xxhash_cbor", NULL};

static const quire_hash_algo ALGOS[] = {QUIRE_HASH_QUIRE128, QUIRE_HASH_SHA256,
                                        QUIRE_HASH_SHA256_CBOR, QUIRE_HASH_XXHASH,
                                        QUIRE_HASH_XXHASH_CBOR};

static bool is_vllm(const replay_options *o)
{
    return o->settings.sched.profile == QUIRE_PROFILE_VLLM_0_20;
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
    if (is_vllm(o) && tiers->num_lower > 0)
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
        return command_error(
            cmd, "--%s cannot be used with --profile vllm-0.20: vLLM 0.20 does not have it", rule);
    if (o->settings.sched.prefix_patience > 0 && o->settings.sched.prefix_window == 0)
        return command_error(cmd, "--prefix-patience %u needs --prefix-window",
                             o->settings.sched.prefix_patience);
    if (name == NULL || (!is_vllm(o) && o->settings.enable_prefix_caching))
        return 0;
    return command_error(cmd, "--%s cannot be used %s", name,
                         is_vllm(o) ? "with --profile vllm-0.20: vLLM 0.20 does not have it"
                                    : "with --no-enable-prefix-caching");
}

int replay_prepare(const command *cmd, const replay_options *o, const char *path,
                   replay_setup *setup)
{
    *setup = (replay_setup){0};
    trace_format format;
    int status = engine_resolve_format(cmd, o->format, &format);
    if (status != 0)
        return status;
    slo limits;
    if (slo_read(o->slo, &limits) != 0)
        return command_error(cmd, "%s", failure());
    status = check_beyond_vllm(cmd, o);
    if (status == 0)
        status = engine_resolve(cmd, &o->engine, &setup->engine);
    if (status == 0)
        status = engine_check_time(cmd, &setup->engine);
    if (status == 0)
        status = engine_plan(cmd, &o->engine, &setup->engine, &setup->plan_result, &setup->plan);
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
    s->path = path;
    s->trace.format = format;
    s->time = &setup->engine.time;
    s->plan = setup->plan;
    s->block_size = setup->plan_result.block_size;
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
    json_t *record = made_by(cmd, NULL);
    json_object_set_new(record, "trace",
                        trace != NULL ? trace : made_by_trace(setup->settings.path));
    json_object_set_new(record, "resolved", resolved(setup));
    return record;
}
