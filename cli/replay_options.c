#include "replay_options.h"

const char *const replay_clocks[] = {"trace", "burst", "serial", NULL};
const char *const replay_policies[] = {"fcfs", "priority", NULL};
const char *const replay_profiles[] = {"default", "vllm-0.20", NULL};
const char *const replay_hash_algos[] = {"quire128", "sha256",      "sha256_cbor",
                                         "xxhash",   "xxhash_cbor", NULL};

static const quire_hash_algo ALGOS[] = {QUIRE_HASH_QUIRE128, QUIRE_HASH_SHA256,
                                        QUIRE_HASH_SHA256_CBOR, QUIRE_HASH_XXHASH,
                                        QUIRE_HASH_XXHASH_CBOR};

/* Tiers, and what they cannot be together with. */
static int prepare_tiers(const command *cmd, const replay_options *o, const replay_setup *setup,
                         tiers_settings *tiers)
{
    int status = tiers_resolve(cmd, &o->tiers, setup->plan_result.block_bytes, tiers);
    if (status != 0 || tiers->cpu_blocks == 0)
        return status;
    if (!o->enable_prefix_caching)
        return command_error(cmd,
                             "--cpu-blocks %u: what is not cached is not kept; leave out "
                             "--no-enable-prefix-caching",
                             tiers->cpu_blocks);
    if (o->profile == 1 && tiers->num_lower > 0)
        return command_error(cmd, "--profile vllm-0.20: vLLM has nothing behind host memory; leave "
                                  "out --file-tier and --redis");
    return 0;
}

int replay_prepare(const command *cmd, const replay_options *o, const char *path,
                   replay_setup *setup)
{
    *setup = (replay_setup){0};
    trace_format format = o->format == NULL ? TRACE_DETECT : trace_format_of(o->format);
    if (o->format != NULL && format == TRACE_DETECT)
        return command_error(cmd,
                             "--format %s: there is no such format; quire %s --help lists them",
                             o->format, cmd->name);
    if (o->lookahead > 0 && (o->profile == 1 || !o->enable_prefix_caching))
        return command_error(cmd, "--lookahead %u: not %s", o->lookahead,
                             o->profile == 1 ? "with --profile vllm-0.20, since vLLM has none"
                                             : "with --no-enable-prefix-caching");
    int status = engine_resolve(cmd, &o->engine, &setup->engine);
    if (status == 0)
        status = engine_plan(cmd, &o->engine, &setup->engine, &setup->plan_result, &setup->plan);
    tiers_settings tiers = {0};
    if (status == 0)
        status = prepare_tiers(cmd, o, setup, &tiers);
    if (status != 0)
        return status;
    setup->settings = (replay_settings){
        .path = path,
        .trace = {.format = format,
                  .skip_bad = o->skip_bad,
                  .max_requests = o->max_requests,
                  .id_block_size = o->id_block_size},
        .clock = (replay_clock)o->clock,
        .speed = o->speed,
        .max_steps = o->max_steps,
        .time = &setup->engine.time,
        .plan = setup->plan,
        .block_size = setup->plan_result.block_size,
        .max_num_seqs = o->engine.max_num_seqs,
        .max_num_batched_tokens = o->engine.max_num_batched_tokens,
        .long_prefill_token_threshold = o->long_prefill_token_threshold,
        .policy = o->policy == 1 ? QUIRE_POLICY_PRIORITY : QUIRE_POLICY_FCFS,
        .profile = o->profile == 1 ? QUIRE_PROFILE_VLLM_0_20 : QUIRE_PROFILE_DEFAULT,
        .hash_algo = ALGOS[o->hash_algo],
        .enable_prefix_caching = o->enable_prefix_caching,
        .enable_chunked_prefill = o->enable_chunked_prefill,
        .reserve_full_sequence = o->reserve_full_sequence,
        .async_scheduling = o->async_scheduling,
        .lookahead = o->lookahead,
        .tiers = tiers,
        .block_bytes = setup->plan_result.block_bytes,
        .model = setup->engine.shape.name,
        .hash_name = replay_hash_algos[o->hash_algo]};
    return 0;
}

void replay_unprepare(replay_setup *setup)
{
    quire_plan_destroy(setup->plan);
    setup->plan = NULL;
}
