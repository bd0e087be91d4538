/* cache/lookup.c - the longest hit of a request.
 *
 * One group: its kind finds it. Several groups: a length must suit them all. Each set of groups in
 * turn takes the candidate or makes it shorter, and when one made it shorter, all are asked again:
 *
 *      candidate   full   window   Mamba
 *         79   ->   64  ->  48  ->  48         window made it shorter
 *         48   ->   48  ->  48  ->  48         all agree: 48 tokens
 *
 * It ends since the candidate only gets shorter. Full kinds are looked up once: what is a hit stays
 * one when the candidate is cut.
 */
#include "cache/cache.h"

/* A candidate length, in tokens, as it goes from set to set. */
typedef struct qr_candidate {
    quire_cache *cache;
    qr_lookup lookup;
    quire_block_span *blocks; /* what each group has found so far */
    uint32_t max_tokens;
    uint32_t tokens;
    uint32_t longest; /* that a set has answered */
    bool is_first_round;
} qr_candidate;

static void set_hits(qr_candidate *c, const qr_group_set *set, uint32_t num_blocks)
{
    for (uint32_t s = 0; s < set->num_ids; s++)
        c->blocks[set->ids[s]] = (quire_block_span){c->lookup.out[set->ids[s]], num_blocks};
}

static void forget_eagle_drops(quire_cache *cache)
{
    for (uint32_t i = 0; i < cache->num_sets; i++)
        cache->sets[i].eagle_done = false;
}

/* Asks one set; the candidate may get shorter. */
static void ask_set(qr_candidate *c, qr_group_set *set)
{
    const qr_group *group = &c->cache->groups[set->ids[0]];
    uint32_t block_size = group->block_size;
    if (set->is_full && !c->is_first_round) {
        if (!c->cache->takes_parts) /* else any length up to its own hit suits it */
            c->tokens = c->tokens / block_size * block_size;
        return;
    }
    /* A Mamba group drops nothing; in 0.32 it is taken for one that did. */
    const qr_rules *rules = &c->cache->rules;
    bool can_drop = group->spec.kind != QUIRE_LAYER_MAMBA ||
                    (c->cache->quirks & QR_QUIRK(MAMBA_EAGLE_GROWS)) != 0;
    bool eagle = set->is_eagle && !set->eagle_done && (can_drop || rules->aligns_to_stops);
    uint32_t max_tokens = c->tokens;
    if (eagle && can_drop) { /* one block more, since the last is dropped */
        uint64_t most = c->max_tokens;
        if (rules->probes_last_block)
            most = (uint64_t)c->lookup.num_hashes * c->cache->hash_block_size;
        uint32_t dropped = group->takes_parts ? c->cache->hash_block_size : block_size;
        max_tokens = most < (uint64_t)c->tokens + dropped ? (uint32_t)most : c->tokens + dropped;
    }
    uint32_t num_blocks;
    uint32_t tokens;
    if (QR_UNLIKELY(group->takes_parts)) {
        tokens = group->ops->find_parts(set, &c->lookup, max_tokens, eagle);
        num_blocks = qr_ceil_div(tokens, block_size);
    } else {
        num_blocks =
            group->ops->find(set, &c->lookup, max_tokens, eagle, c->cache->lookup_alignment);
        tokens = num_blocks * block_size;
    }
    if (eagle)
        set->eagle_done = true;
    else if (tokens < c->tokens) /* each drop is made once for a candidate */
        forget_eagle_drops(c->cache);
    c->tokens = tokens;
    c->longest = tokens > c->longest ? tokens : c->longest;
    set_hits(c, set, num_blocks);
}

static uint32_t find_fixed_point(qr_candidate *c)
{
    quire_cache *cache = c->cache;
    bool is_simple = cache->num_sets == 2 && cache->sets[0].is_full;
    uint32_t agreed = c->max_tokens;
    forget_eagle_drops(cache);
    for (c->is_first_round = true;; c->is_first_round = false) {
        c->tokens = agreed;
        for (uint32_t i = 0; i < cache->num_sets; i++)
            ask_set(c, &cache->sets[i]);
        if (c->tokens >= agreed)
            break;
        agreed = c->tokens;
        if (is_simple) /* the cut suits the full kinds, and nobody else is there to ask */
            break;
    }
    bool cuts_all = (cache->quirks & QR_QUIRK(HYBRID_SECOND_FULL)) == 0;
    for (uint32_t i = 0; i < cache->num_sets && cache->sets[i].is_full; i++) {
        uint32_t block_size = cache->groups[cache->sets[i].ids[0]].block_size;
        uint32_t num_blocks =
            cache->takes_parts ? qr_ceil_div(agreed, block_size) : agreed / block_size;
        if ((i == 0 || cuts_all) && num_blocks < c->blocks[cache->sets[i].ids[0]].count)
            set_hits(c, &cache->sets[i], num_blocks);
    }
    return agreed;
}

void qr_prefix_stats_count(quire_prefix_stats *stats, bool was_preempted, uint64_t num_queries,
                           uint64_t num_hits)
{
    *(was_preempted ? &stats->preempted_requests : &stats->requests) += 1;
    *(was_preempted ? &stats->preempted_queries : &stats->queries) += num_queries;
    *(was_preempted ? &stats->preempted_hits : &stats->hits) += num_hits;
}

void qr_cache_count_lookup(quire_cache *cache, const quire_cache_request *request,
                           uint32_t num_hits)
{
    qr_prefix_stats_count(&cache->stats, request->was_preempted != 0, request->num_tokens,
                          num_hits);
}

int qr_cache_get_computed_blocks(quire_cache *cache, const quire_cache_request *request,
                                 quire_block_span *blocks, uint32_t *num_tokens)
{
    if (request->num_tokens == 0 || request->first_hash > 0)
        return QUIRE_E_ARGUMENT;
    if (request->num_tokens > cache->max_model_len)
        return QUIRE_E_RANGE;
    for (uint32_t g = 0; g < cache->num_groups; g++)
        blocks[g] = (quire_block_span){cache->hits[g], 0};
    *num_tokens = 0;
    cache->shared_prefix = 0;
    if (!cache->enable_caching || request->skip_reading_prefix != 0 || cache->num_sets == 0)
        return QUIRE_OK;
    qr_candidate c = {.cache = cache,
                      .lookup = {.hashes = request->hashes,
                                 .num_hashes = request->num_hashes,
                                 .groups = cache->groups,
                                 .out = cache->hits},
                      .blocks = blocks,
                      .max_tokens = request->num_tokens - 1,
                      .tokens = request->num_tokens - 1,
                      .is_first_round = true};
    if (cache->num_groups == 1) {
        forget_eagle_drops(cache);
        const qr_group_set *set = &cache->sets[0];
        const qr_group *group = &cache->groups[0];
        uint32_t num_blocks =
            group->ops->find(set, &c.lookup, c.max_tokens, set->is_eagle, cache->lookup_alignment);
        set_hits(&c, set, num_blocks);
        *num_tokens = num_blocks * group->block_size;
    } else {
        *num_tokens = find_fixed_point(&c);
        if (cache->rules.retains_boundaries && c.longest > *num_tokens)
            cache->shared_prefix = c.longest;
    }
    if (cache->log_stats && (cache->quirks & QR_QUIRK(STATS_EVERY_LOOKUP)) != 0)
        qr_cache_count_lookup(cache, request, *num_tokens);
    if (QR_UNLIKELY(cache->reports_hits) && *num_tokens > 0)
        qr_cache_report_hits(cache, request, blocks);
    return QUIRE_OK;
}
