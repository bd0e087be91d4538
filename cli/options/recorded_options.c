#include "recorded_options.h"

#include <string.h>

/* An option that the header has too. */
typedef struct twin {
    const char *name;
    uint32_t *value;
    uint32_t def; /* it was not given */
    uint32_t recorded;
} twin;

typedef struct switch_twin {
    const char *name;
    bool *value;
    bool def;
    bool recorded;
} switch_twin;

static int refuse(const command *cmd, const char *name)
{
    return command_error(cmd,
                         "--%s cannot be used with --compare-with: the replay has the "
                         "configuration of the recording",
                         name);
}

static int apply_numbers(const command *cmd, replay_options *o, const recorded_header *h)
{
    plan_settings *plan = &o->engine.plan;
    const twin twins[] = {
        {"num-gpu-blocks", &plan->num_gpu_blocks, 0, h->num_blocks},
        {"block-size", &plan->block_size, 16, h->block_size},
        {"max-model-len", &plan->max_model_len, 0, h->max_model_len},
        {"max-num-seqs", &plan->max_num_seqs, 256, h->max_num_seqs},
        {"max-num-batched-tokens", &plan->max_num_batched_tokens, 8192, h->max_num_batched_tokens},
        {"long-prefill-token-threshold", &o->settings.sched.long_prefill_token_threshold, 0,
         h->long_prefill_token_threshold}};
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        const twin *t = &twins[i];
        if (*t->value != t->def && *t->value != t->recorded)
            return command_error(cmd, "--%s %u differs from the recording, which has %u", t->name,
                                 *t->value, t->recorded);
        *t->value = t->recorded;
    }
    return 0;
}

static int apply_switches(const command *cmd, replay_options *o, const recorded_header *h)
{
    replay_settings *s = &o->settings;
    const switch_twin twins[] = {
        {"enable-prefix-caching", &s->enable_prefix_caching, true, h->enable_caching},
        {"enable-chunked-prefill", &s->enable_chunked_prefill, true, h->enable_chunked_prefill},
        {"reserve-full-sequence", &s->reserve_full_sequence, true, h->reserve_full_sequence},
        {"async-scheduling", &s->async_scheduling, false, h->async_scheduling}};
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        const switch_twin *t = &twins[i];
        if (*t->value != t->def && *t->value != t->recorded)
            return command_error(cmd, "--%s%s differs from the recording", *t->value ? "" : "no-",
                                 t->name);
        *t->value = t->recorded;
    }
    return 0;
}

/* The place of a name in a list that ends with NULL; -1: it is not there. */
static int place_of(const char *const *names, const char *name)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static int apply_names(const command *cmd, replay_options *o, const recorded_header *h)
{
    int profile = place_of(engine_profiles, h->profile);
    int policy = place_of(replay_policies, h->policy[0] != '\0' ? h->policy : "fcfs");
    quire_sched_config *sched = &o->settings.sched;
    if (profile < 0 || policy < 0)
        return command_error(cmd,
                             "--compare-with: the recording has the profile \"%s\" and the policy "
                             "\"%s\" (expected default, vllm-0.20 or vllm-0.32, and fcfs or "
                             "priority)",
                             h->profile, h->policy);
    if ((int)sched->profile != QUIRE_PROFILE_DEFAULT && (int)sched->profile != profile)
        return command_error(cmd, "--profile %s differs from the recording, which has %s",
                             engine_profiles[sched->profile], h->profile);
    if ((int)sched->policy != 0 && (int)sched->policy != policy)
        return command_error(cmd, "--scheduling-policy %s differs from the recording, which has %s",
                             replay_policies[sched->policy], h->policy);
    sched->profile = (quire_profile)profile;
    sched->policy = (quire_policy)policy;
    return 0;
}

/* What an engine that was recorded does not have. */
static int check_others(const command *cmd, const replay_options *o)
{
    const replay_settings *s = &o->settings;
    const struct {
        const char *name;
        bool is_given;
    } others[] = {{"clock", s->clock != REPLAY_CLOCK_TRACE},
                  {"speed", s->speed < 1 || s->speed > 1},
                  {"lookahead", s->sched.lookahead > 0},
                  {"prefix-window", s->sched.prefix_window > 0},
                  {"pin-ttl", s->pin_ttl_s > 0},
                  {"preempt-above", s->pressure.preempt_above > 0},
                  {"victim", s->sched.victim > 0},
                  {"swap-blocks", o->swap.blocks > 0},
                  {"swap-memory", o->swap.memory > 0},
                  {"cpu-memory", o->tiers.cpu_memory > 0},
                  {"cpu-blocks", o->tiers.cpu_blocks > 0},
                  {"max-requests", s->trace.max_requests > 0},
                  {"skip-bad", s->trace.skip_bad}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].is_given)
            return refuse(cmd, others[i].name);
    return 0;
}

static int check_engine(const command *cmd, const recorded_header *h)
{
    if (h->num_spec_tokens > 0)
        return command_error(cmd, "--compare-with: the recorded engine has a draft model, which a "
                                  "replay does not have");
    if (h->is_pooling_model)
        return command_error(cmd, "--compare-with: the recorded engine has a pooling model, whose "
                                  "requests generate no tokens");
    if (h->num_blocks == 0 || h->block_size == 0 || h->max_num_seqs == 0)
        return command_error(cmd, "--compare-with: the recording's header has no num_blocks, "
                                  "block_size or max_num_seqs");
    return 0;
}

int recorded_options_apply(const command *cmd, replay_options *o, const recorded_header *h)
{
    int status = check_others(cmd, o);
    if (status == 0)
        status = check_engine(cmd, h);
    if (status == 0)
        status = apply_numbers(cmd, o, h);
    if (status == 0)
        status = apply_switches(cmd, o, h);
    if (status == 0)
        status = apply_names(cmd, o, h);
    o->settings.pressure.watermark = h->watermark;
    return status;
}

int recorded_options_check(const command *cmd, const replay_setup *setup,
                           const recorded_header *header)
{
    const char *fitted = setup->engine.gpu.constants.model;
    if (fitted[0] != '\0' && strcmp(fitted, header->model) != 0)
        return command_error(cmd,
                             "--time-constants: the constants were fitted to the model %s, and the "
                             "recording has %s",
                             fitted, header->model);
    if (setup->plan_result.num_groups != header->num_groups && header->num_groups > 0)
        return command_error(cmd,
                             "--model %s has %u groups of layers, and the recorded model %s has "
                             "%u: give the recorded model's config.json",
                             setup->engine.shape.name, setup->plan_result.num_groups, header->model,
                             header->num_groups);
    return 0;
}
