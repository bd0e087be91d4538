/* base/rules.c - the rules of each profile, side by side. */
#include "base/rules.h"

static const qr_rules RULES[] = {
    [QUIRE_PROFILE_DEFAULT] = {0},
    [QUIRE_PROFILE_VLLM_0_20] = {0},
    [QUIRE_PROFILE_VLLM_0_32] = {.reuses_empty_first = true,
                                 .keys_by_last_hash = true,
                                 .keys_prompt_tails = true,
                                 .caches_to_alignment = true,
                                 .retains_boundaries = true,
                                 .probes_last_block = true,
                                 .takes_equal_groups = true,
                                 .checks_whole_sequence = true,
                                 .watermark_by_caller = true,
                                 .skips_by_computed = true,
                                 .takes_bare_hits = true,
                                 .frees_states_at_once = true,
                                 .zeroes_all_attention = true,
                                 .shards_attention_only = true,
                                 .counts_no_common = true,
                                 .resets_groups_only = true,
                                 .has_no_old_kinds = true},
};

const qr_rules *qr_rules_of(quire_profile profile)
{
    return &RULES[profile];
}
