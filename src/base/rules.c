/* base/rules.c - the rules of each profile, side by side. */
#include "base/rules.h"

static const qr_rules RULES[] = {
    [QUIRE_PROFILE_DEFAULT] = {0},
    [QUIRE_PROFILE_VLLM_0_20] = {0},
    [QUIRE_PROFILE_VLLM_0_32] = {.reuses_empty_first = true,
                                 .holders_first = true,
                                 .delivers_stale = true,
                                 .counts_in_flight = true,
                                 .threshold_for_many = true,
                                 .stops_below_min = true,
                                 .lookahead_at_admission = true,
                                 .pads_drafts = true,
                                 .input_sets_max_tokens = true,
                                 .skips_connector_too = true,
                                 .lists_reset = true,
                                 .recomputes_last = true,
                                 .counts_inputs = true,
                                 .reserves_for_prefills = true,
                                 .aligns_to_stops = true,
                                 .fences_blocks = true,
                                 .cuts_sent_blocks = true,
                                 .grammar_decides = true,
                                 .tags_extra_keys = true,
                                 .hashes_default_seed = true,
                                 .bisects_features = true,
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
                                 .retires_past_gaps = true,
                                 .zeroes_all_attention = true,
                                 .shards_attention_only = true,
                                 .counts_no_common = true,
                                 .resets_groups_only = true,
                                 .plans_by_layout = true,
                                 .has_no_old_kinds = true,
                                 .has_new_kinds = true},
};

const qr_rules *qr_rules_of(quire_profile profile)
{
    return &RULES[profile];
}
