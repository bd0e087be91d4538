#include "cache/retain.h"

#include "base/refuse.h"
#include "group/mask.h"
#include "group/spec.h"

/* ---- the config -------------------------------------------------------------- */

/* Whether only some full blocks of the group get keys, where blocks get keys. */
static bool may_have_mask(const quire_cache_config *c, uint32_t g)
{
    const qr_rules *rules = qr_rules_of(c->profile);
    const quire_layer_spec *spec = &c->groups[g].spec;
    bool is_mamba = spec->kind == QUIRE_LAYER_MAMBA;
    return rules->retains_boundaries &&
           (qr_spec_is_window(spec) || (is_mamba && rules->aligns_to_stops));
}

bool qr_retain_has_mask(const quire_cache_config *c, uint32_t g)
{
    return c->enable_caching == QUIRE_ON && may_have_mask(c, g);
}

int qr_retain_check(const quire_cache_config *c, uint32_t multiple, bool any_eagle)
{
    uint32_t interval = c->prefix_cache_retention_interval;
    uint32_t lookahead = c->num_prefill_lookahead;
    if (interval != 0 && !qr_rules_of(c->profile)->retains_boundaries)
        return qr_refuse("prefix_cache_retention_interval is %u (expected 0 in this profile)",
                         interval);
    if (lookahead != 0 && c->profile != QUIRE_PROFILE_VLLM_0_32)
        return qr_refuse("num_prefill_lookahead is %u (expected 0 in this profile)", lookahead);
    bool is_sparse = false;
    for (uint32_t g = 0; g < c->num_groups; g++)
        is_sparse = is_sparse || may_have_mask(c, g);
    if (interval != 0 && interval != QUIRE_RETAIN_ALL && (!is_sparse || interval % multiple != 0))
        return qr_refuse("invalid prefix_cache_retention_interval %u (expected %s)", interval,
                         is_sparse ? "a multiple of all block sizes"
                                   : "0: no group has blocks that stay without a key");
    if (c->enable_caching == QUIRE_ON && any_eagle && lookahead > multiple)
        return qr_refuse("invalid num_prefill_lookahead %u (expected at most %u, the block size)",
                         lookahead, multiple);
    return QUIRE_OK;
}

/* ---- where a request stops ----------------------------------------------------- */

uint32_t qr_retain_first_hash(const quire_cache *cache, uint32_t row, uint32_t num_tokens)
{
    uint32_t first = QR_NIL;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        qr_saved_range range = qr_group_end_blocks(group, row, num_tokens);
        uint32_t hash = (range.first > 0 ? range.first - 1 : 0) * group->hashes_joined;
        if (range.first < range.end && hash < first)
            first = hash;
    }
    /* In every group a block begins there. */
    uint32_t joined = cache->block_multiple / cache->hash_block_size;
    return first == QR_NIL ? QR_NIL : first / joined * joined;
}

void qr_retain_end(quire_cache *cache, const quire_cache_request *request, uint32_t row,
                   uint32_t num_tokens)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_group *group = &cache->groups[g];
        qr_saved_range range = qr_group_end_blocks(group, row, num_tokens);
        if (range.first < range.end)
            qr_group_cache_end(group, row, request, range);
    }
    qr_assert_expensive(qr_cache_is_valid(cache));
}
