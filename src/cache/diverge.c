/* cache/diverge.c - hits that differ from group to group, for a connector that loads what lags.
 *
 *      full     [ a ][ b ][ c ][ d ]         64 tokens: told to the connector
 *      Mamba    [ - ][ s ]                   32 tokens: the state at 64 comes with the load
 *
 * Models with full and Mamba groups lose blocks of one kind before blocks of the other. A connector
 * brings the state of a load's end anyway, so the hit of the full groups counts. Without a load
 * there is no state at its end, and the hit must be looked up again, for all groups together.
 */
#include "cache/cache.h"

static bool can_diverge(const quire_cache *cache)
{
    bool has_mamba = false;
    for (uint32_t g = 0; g < cache->num_groups; g++)
        has_mamba = has_mamba || cache->groups[g].ops == &qr_mamba_ops;
    return has_mamba && cache->enable_caching && cache->num_sets > 0 && cache->sets[0].is_full;
}

/* The longest hit of one set alone, in tokens. */
static uint32_t find_alone(const quire_cache *cache, const qr_group_set *set,
                           const qr_lookup *lookup, uint32_t max_tokens, quire_block_span *blocks)
{
    const qr_group *group = &cache->groups[set->ids[0]];
    bool is_eagle = set->is_eagle;
    if (is_eagle && group->ops != &qr_mamba_ops) { /* one block more, since the last is dropped */
        uint64_t most = (uint64_t)lookup->num_hashes * cache->hash_block_size;
        uint64_t longer = (uint64_t)max_tokens +
                          (group->takes_parts ? cache->hash_block_size : group->block_size);
        max_tokens = (uint32_t)(longer < most ? longer : most);
    }
    uint32_t tokens;
    if (group->takes_parts)
        tokens = group->ops->find_parts(set, lookup, max_tokens, is_eagle);
    else
        tokens = group->block_size *
                 group->ops->find(set, lookup, max_tokens, is_eagle, cache->lookup_alignment);
    uint32_t n = qr_ceil_div(tokens, group->block_size);
    for (uint32_t i = 0; i < set->num_ids; i++)
        blocks[set->ids[i]] = (quire_block_span){lookup->out[set->ids[i]], n};
    return tokens;
}

int qr_cache_get_diverged_blocks(quire_cache *cache, const quire_cache_request *request,
                                 quire_block_span *blocks, uint32_t *num_tokens, bool *has_diverged)
{
    *has_diverged = false;
    if (!can_diverge(cache) || request->skip_reading_prefix != 0 || request->num_tokens == 0 ||
        request->num_tokens > cache->max_model_len)
        return qr_cache_get_computed_blocks(cache, request, blocks, num_tokens);
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        blocks[g] = (quire_block_span){cache->hits[g], 0};
        *has_diverged = *has_diverged || !cache->groups[g].enable_caching; /* it has no hit, ever */
    }
    qr_lookup lookup = {.hashes = request->hashes,
                        .num_hashes = request->num_hashes,
                        .groups = cache->groups,
                        .out = cache->hits};
    cache->shared_prefix = 0;
    for (uint32_t i = 0; i < cache->num_sets; i++) {
        uint32_t tokens =
            find_alone(cache, &cache->sets[i], &lookup, request->num_tokens - 1, blocks);
        if (i == 0)
            *num_tokens = tokens;
        *has_diverged = *has_diverged || tokens < *num_tokens;
        if (tokens > *num_tokens) { /* full blocks of this hit are gone: what all groups have */
            *has_diverged = false;
            return qr_cache_get_computed_blocks(cache, request, blocks, num_tokens);
        }
    }
    *has_diverged = *has_diverged && *num_tokens > 0;
    return QUIRE_OK;
}
