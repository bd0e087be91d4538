/* base/rules.c - the rules of each profile, side by side. */
#include "base/rules.h"

static const qr_rules RULES[] = {
    [QUIRE_PROFILE_DEFAULT] = {0},
    [QUIRE_PROFILE_VLLM_0_20] = {0},
    [QUIRE_PROFILE_VLLM_0_32] = {.reuses_empty_first = true,
                                 .tags_extra_keys = true,
                                 .hashes_default_seed = true,
                                 .bisects_features = true},
};

const qr_rules *qr_rules_of(quire_profile profile)
{
    return &RULES[profile];
}
