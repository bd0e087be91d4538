/* See naive_cache.h. */
#include "cache/naive_cache.h"

#include <string.h>

static uint32_t ceil_div(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t size_of_block(const naive_cache *cache, uint32_t g)
{
    return cache->groups[g].spec.block_size;
}

void naive_cache_init(naive_cache *cache, const quire_cache_config *config,
                      uint32_t hash_block_size, event_log *log)
{
    memset(cache, 0, sizeof *cache);
    uint32_t longest = 1;
    cache->log = log;
    cache->num_groups = config->num_groups;
    for (uint32_t g = 0; g < config->num_groups; g++) {
        cache->groups[g] = config->groups[g];
        longest = larger(longest, config->groups[g].spec.block_size / hash_block_size);
    }
    cache->max_model_len = config->max_model_len;
    cache->max_num_batched_tokens = config->max_num_batched_tokens != 0
                                        ? config->max_num_batched_tokens
                                        : config->max_model_len;
    cache->max_requests = config->max_requests;
    cache->hash_block_size = hash_block_size;
    cache->watermark = (uint32_t)(config->watermark * (double)config->num_blocks);
    cache->enable_caching = config->enable_caching != QUIRE_OFF;
    cache->use_eagle = config->use_eagle == QUIRE_ON;
    quire_pool_config pool = QUIRE_POOL_CONFIG_INIT;
    pool.num_blocks = config->num_blocks;
    pool.enable_caching = config->enable_caching;
    pool.hash_bytes = longest * NAIVE_DIGEST;
    naive_pool_init(&cache->pool, &pool, log);
}

/* ---- what each kind of layer looks at ----------------------------------- */

/* Tokens that no token after the first n looks at. */
static uint32_t skipped_tokens(const quire_layer_spec *spec, uint32_t n)
{
    switch (spec->kind) {
    case QUIRE_LAYER_SLIDING_WINDOW:
        return n + 1 > spec->sliding_window ? n + 1 - spec->sliding_window : 0;
    case QUIRE_LAYER_CHUNKED_LOCAL:
        return n / spec->attention_chunk_size * spec->attention_chunk_size;
    case QUIRE_LAYER_MAMBA:
        return n > 0 ? n - 1 : 0;
    default:
        return 0;
    }
}

/* The first of the blocks that must be there so that the first `blocks` blocks count as computed;
 * all from it on are needed. */
static uint32_t first_needed(const naive_cache *cache, const quire_layer_spec *spec,
                             uint32_t blocks)
{
    if (blocks == 0)
        return 0;
    uint32_t window;
    switch (spec->kind) {
    case QUIRE_LAYER_SLIDING_WINDOW:
        /* A window of one token needs nothing, but a hit must show its last block (with EAGLE that
         * is the one which is not used). */
        window = ceil_div(spec->sliding_window - 1, spec->block_size);
        if (window == 0 && !cache->use_eagle)
            window = 1;
        return blocks > window ? blocks - window : 0;
    case QUIRE_LAYER_CHUNKED_LOCAL:
        return smaller(blocks, skipped_tokens(spec, blocks * spec->block_size) / spec->block_size);
    case QUIRE_LAYER_MAMBA:
        return blocks - 1;
    default:
        return 0;
    }
}

static quire_block find_cached(const naive_cache *cache, const quire_cache_request *request,
                               uint32_t g, uint32_t index)
{
    uint32_t joined = size_of_block(cache, g) / cache->hash_block_size;
    const unsigned char *hashes = request->hashes;
    quire_bytes key = {hashes + (size_t)index * joined * NAIVE_DIGEST,
                       (size_t)joined * NAIVE_DIGEST};
    quire_block block = QUIRE_NULL_BLOCK;
    if (naive_pool_get_cached_block(&cache->pool, key, &g, 1, &block) != QUIRE_OK)
        return QUIRE_NULL_BLOCK;
    return block;
}

/* Whether the group has what it needs of the first num_tokens tokens; its blocks go to hit. With
 * EAGLE one more block must be there, which is not used. */
static bool group_serves(const naive_cache *cache, const quire_cache_request *request, uint32_t g,
                         uint32_t num_tokens, naive_answer *hit)
{
    const quire_layer_spec *spec = &cache->groups[g].spec;
    uint32_t blocks = num_tokens / spec->block_size;
    uint32_t looked_at = blocks;
    if (cache->use_eagle && spec->kind != QUIRE_LAYER_MAMBA && blocks > 0)
        looked_at++;
    if (looked_at * spec->block_size > request->num_tokens - 1)
        return false;
    hit->count[g] = blocks;
    for (uint32_t i = 0; i < blocks; i++)
        hit->ids[g][i] = QUIRE_NULL_BLOCK;
    for (uint32_t i = first_needed(cache, spec, blocks); i < looked_at; i++) {
        quire_block found = find_cached(cache, request, g, i);
        if (found == QUIRE_NULL_BLOCK)
            return false;
        if (i < blocks)
            hit->ids[g][i] = found;
    }
    return true;
}

static bool all_groups_serve(const naive_cache *cache, const quire_cache_request *request,
                             uint32_t num_tokens, naive_answer *hit)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        if (num_tokens % size_of_block(cache, g) != 0)
            return false;
        if (!group_serves(cache, request, g, num_tokens, hit))
            return false;
    }
    return true;
}

uint32_t naive_cache_lookup(const naive_cache *cache, const quire_cache_request *request,
                            naive_answer *hit)
{
    memset(hit, 0, sizeof *hit);
    if (!cache->enable_caching || request->skip_reading_prefix || cache->num_groups == 0)
        return 0;
    for (uint32_t length = request->num_tokens - 1; length > 0; length--)
        if (all_groups_serve(cache, request, length, hit))
            return length;
    memset(hit, 0, sizeof *hit);
    return 0;
}

/* ---- taking and giving -------------------------------------------------- */

/* Takes n blocks for a group of a request, as far as there are any. */
static void take(naive_cache *cache, naive_seq *s, uint32_t g, uint32_t n)
{
    uint32_t have = smaller(n, naive_pool_get_num_free_blocks(&cache->pool));
    naive_pool_get_new_blocks(&cache->pool, have, s->blocks[g] + s->num_blocks[g]);
    s->num_blocks[g] += have;
    cache->short_by += n - have;
}

/* Gives back blocks [first, end) of a group in one call, the last first; null blocks are passed
 * over. */
static void give(naive_cache *cache, const naive_seq *s, uint32_t g, uint32_t first, uint32_t end)
{
    quire_block given[NAIVE_TOKENS];
    uint32_t n = 0;
    for (uint32_t i = end; i > first; i--)
        if (s->blocks[g][i - 1] != QUIRE_NULL_BLOCK)
            given[n++] = s->blocks[g][i - 1];
    naive_pool_free_blocks(&cache->pool, given, n);
}

static void remove_skipped(naive_cache *cache, naive_seq *s, uint32_t num_tokens)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint32_t skipped = skipped_tokens(&cache->groups[g].spec, num_tokens);
        uint32_t end = smaller(skipped / size_of_block(cache, g), s->num_blocks[g]);
        uint32_t first = end;
        while (first > 0 && s->blocks[g][first - 1] != QUIRE_NULL_BLOCK)
            first--;
        give(cache, s, g, first, end);
        while (end > first)
            s->blocks[g][--end] = QUIRE_NULL_BLOCK;
    }
}

static uint32_t num_skipped_blocks(const naive_cache *cache, uint32_t g, uint32_t num_tokens)
{
    return skipped_tokens(&cache->groups[g].spec, num_tokens) / size_of_block(cache, g);
}

/* The hit's blocks of all groups are kept before any group takes a new one. */
static void keep_hit(naive_cache *cache, naive_seq *s, const quire_allocate_params *params,
                     uint32_t computed)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint32_t skipped = num_skipped_blocks(cache, g, computed);
        for (uint32_t i = 0; i < skipped; i++)
            s->blocks[g][s->num_blocks[g]++] = QUIRE_NULL_BLOCK;
        for (uint32_t i = skipped;
             params->new_computed_blocks != NULL && i < params->new_computed_blocks[g].count; i++) {
            quire_block block = params->new_computed_blocks[g].ids[i];
            if (block != QUIRE_NULL_BLOCK)
                naive_pool_touch(&cache->pool, &block, 1);
            s->blocks[g][s->num_blocks[g]++] = block;
        }
        s->num_cached[g] = s->num_blocks[g];
    }
}

static void take_external(naive_cache *cache, naive_seq *s, const quire_allocate_params *params,
                          uint32_t computed)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint32_t external = params->num_external_computed_tokens;
        if (num_skipped_blocks(cache, g, computed) > 0)
            external =
                smaller(external, computed - skipped_tokens(&cache->groups[g].spec, computed));
        uint32_t wanted = ceil_div(computed, size_of_block(cache, g));
        if (external > 0 && wanted > s->num_blocks[g])
            take(cache, s, g, wanted - s->num_blocks[g]);
    }
}

static void take_new(naive_cache *cache, naive_seq *s, uint32_t num_tokens, naive_answer *answer)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint32_t before = s->num_blocks[g];
        uint32_t wanted = ceil_div(num_tokens, size_of_block(cache, g));
        if (wanted > before)
            take(cache, s, g, wanted - before);
        answer->count[g] = s->num_blocks[g] - before;
        memcpy(answer->ids[g], s->blocks[g] + before, answer->count[g] * sizeof(quire_block));
    }
}

/* ---- keys --------------------------------------------------------------- */

static void remember_step_keys(naive_cache *cache, const naive_seq *s, uint32_t g, uint32_t first,
                               uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const naive_block *block = &cache->pool.blocks[s->blocks[g][i]];
        if (s->blocks[g][i] == QUIRE_NULL_BLOCK || cache->num_step_keys == NAIVE_STEP_KEYS)
            continue;
        naive_key *key = &cache->step_keys[cache->num_step_keys++];
        key->group = g;
        memcpy(key->hash, block->hash, sizeof key->hash);
    }
}

/* Whether num_tokens tokens are whole blocks in every group. */
static bool are_whole(const naive_cache *cache, uint32_t num_tokens)
{
    for (uint32_t g = 0; g < cache->num_groups; g++)
        if (num_tokens % size_of_block(cache, g) != 0)
            return false;
    return true;
}

/* Whether a hit of at most num_tokens tokens, as long as can be, needs block i of the window. */
static bool hit_needs(const naive_cache *cache, uint32_t g, uint32_t num_tokens, uint32_t i)
{
    const quire_layer_spec *spec = &cache->groups[g].spec;
    while (!are_whole(cache, num_tokens))
        num_tokens--;
    uint32_t blocks = num_tokens / spec->block_size;
    uint32_t looked_at = cache->use_eagle ? blocks + 1 : blocks;
    return i >= first_needed(cache, spec, blocks) && i < looked_at;
}

/* The last whole blocks before num_tokens tokens, and with EAGLE those before them, since the last
 * ones that are found are not used. */
static uint32_t resumed_at(const naive_cache *cache, uint32_t num_tokens)
{
    for (uint32_t drops = cache->use_eagle; drops > 0; drops--) {
        while (num_tokens > 0 && !are_whole(cache, num_tokens))
            num_tokens--;
        num_tokens -= num_tokens > 0;
    }
    return num_tokens;
}

static bool is_worth_a_key(const naive_cache *cache, const naive_seq *s, uint32_t g, uint32_t i)
{
    if (cache->groups[g].spec.kind != QUIRE_LAYER_SLIDING_WINDOW)
        return true;
    return hit_needs(cache, g, resumed_at(cache, s->num_prompt - 1), i) ||
           (cache->use_eagle && hit_needs(cache, g, resumed_at(cache, s->num_prompt), i)) ||
           (s->shared > 0 && hit_needs(cache, g, s->shared, i));
}

static void cache_seq(naive_cache *cache, naive_seq *s, const quire_cache_request *request,
                      uint32_t num_tokens)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint32_t joined = size_of_block(cache, g) / cache->hash_block_size;
        uint32_t full = num_tokens / size_of_block(cache, g);
        uint32_t first = s->num_cached[g];
        if (full <= first)
            continue;
        quire_block worth[NAIVE_TOKENS] = {0};
        for (uint32_t i = 0; i < full; i++)
            if (is_worth_a_key(cache, s, g, i))
                worth[i] = s->blocks[g][i];
        quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                          .blocks = worth,
                                          .num_cached_blocks = first,
                                          .num_full_blocks = full,
                                          .hashes = request->hashes,
                                          .hash_len = (size_t)joined * NAIVE_DIGEST,
                                          .num_hashes = request->num_hashes / joined,
                                          .group_id = g,
                                          .block_size = size_of_block(cache, g),
                                          .request = request->user};
        naive_pool_cache_full_blocks(&cache->pool, &params);
        s->num_cached[g] = full;
        if (cache->groups[g].spec.kind == QUIRE_LAYER_MAMBA)
            remember_step_keys(cache, s, g, first, full);
    }
}

/* A state that another request computes in this very step cannot be read yet. */
static bool must_wait(const naive_cache *cache, const quire_allocate_params *params)
{
    for (uint32_t g = 0; g < cache->num_groups && params->new_computed_blocks != NULL; g++) {
        const quire_block_span *hit = &params->new_computed_blocks[g];
        if (cache->groups[g].spec.kind != QUIRE_LAYER_MAMBA || hit->count == 0)
            continue;
        const naive_block *last = &cache->pool.blocks[hit->ids[hit->count - 1]];
        for (uint32_t k = 0; k < cache->num_step_keys && last->hash_len > 0; k++)
            if (cache->step_keys[k].group == g &&
                memcmp(cache->step_keys[k].hash, last->hash, last->hash_len) == 0)
                return true;
    }
    return false;
}

/* ---- the calls ---------------------------------------------------------- */

static bool has_hit(const naive_cache *cache, const quire_allocate_params *params)
{
    for (uint32_t g = 0; g < cache->num_groups && params->new_computed_blocks != NULL; g++)
        if (params->new_computed_blocks[g].count > 0)
            return true;
    return false;
}

static void count_request(naive_cache *cache, const quire_cache_request *request, uint32_t num_hit)
{
    if (!cache->enable_caching || request->skip_reading_prefix)
        return;
    if (request->was_preempted) {
        cache->stats.preempted_requests++;
        cache->stats.preempted_queries += request->num_tokens;
        cache->stats.preempted_hits += num_hit;
    } else {
        cache->stats.requests++;
        cache->stats.queries += request->num_tokens;
        cache->stats.hits += num_hit;
    }
}

static int put_back(naive_cache *cache, const naive_cache *before, size_t log_len,
                    uint32_t log_events, int status)
{
    uint32_t short_by = cache->short_by;
    *cache = *before;
    cache->short_by = short_by;
    event_log_truncate(cache->log, log_len, log_events);
    return status;
}

int naive_cache_allocate(naive_cache *cache, uint32_t seq, const quire_cache_request *request,
                         const quire_allocate_params *params, naive_answer *new_blocks)
{
    static naive_cache before;
    naive_seq *s = &cache->seqs[seq];
    uint32_t computed = request->num_computed_tokens + params->num_new_computed_tokens +
                        params->num_external_computed_tokens;
    uint32_t certain = computed + params->num_new_tokens;
    uint32_t slots = smaller(certain + params->num_lookahead_tokens, cache->max_model_len);
    bool is_new = !s->used;
    memset(new_blocks, 0, sizeof *new_blocks);
    cache->short_by = 0;
    if (must_wait(cache, params))
        return QUIRE_NO_SPACE;
    before = *cache;
    size_t log_len = cache->log->len;
    uint32_t log_events = cache->log->num_events;
    remove_skipped(cache, s, computed);
    if (is_new && (has_hit(cache, params) || params->num_external_computed_tokens > 0)) {
        keep_hit(cache, s, params, computed);
        take_external(cache, s, params, computed);
    }
    take_new(cache, s, slots, new_blocks);
    uint32_t num_free = naive_pool_get_num_free_blocks(&cache->pool);
    uint32_t left = is_new && naive_cache_num_seqs(cache) > 0 ? cache->watermark : 0;
    if (num_free < left)
        cache->short_by += left - num_free;
    if (cache->short_by > 0)
        return put_back(cache, &before, log_len, log_events, QUIRE_NO_SPACE);
    if (is_new && naive_cache_num_seqs(cache) == cache->max_requests)
        return put_back(cache, &before, log_len, log_events, QUIRE_FULL);
    s->used = true;
    if (is_new)
        s->num_prompt = request->num_tokens;
    if (params->num_prompt_tokens > 0)
        s->num_prompt = params->num_prompt_tokens;
    if (params->shared_prefix_boundary > 0)
        s->shared = params->shared_prefix_boundary;
    if (is_new)
        count_request(cache, request, params->num_new_computed_tokens);
    if (cache->enable_caching && !params->delay_cache_blocks)
        cache_seq(cache, s, request, smaller(certain, request->num_tokens));
    return QUIRE_OK;
}

/* The most blocks that a request holds at one time, of a group that gives blocks back. */
static uint32_t admission_cap(const naive_cache *cache, const quire_layer_spec *spec)
{
    uint32_t most = cache->max_num_batched_tokens;
    if (spec->kind == QUIRE_LAYER_SLIDING_WINDOW)
        return ceil_div(smaller(spec->sliding_window - 1 + most, cache->max_model_len),
                        spec->block_size) +
               1;
    if (spec->kind == QUIRE_LAYER_CHUNKED_LOCAL)
        return ceil_div(smaller(spec->attention_chunk_size + most, cache->max_model_len),
                        spec->block_size);
    return UINT32_MAX;
}

int naive_cache_can_fit(const naive_cache *cache, uint32_t seq, const quire_cache_request *request,
                        const quire_allocate_params *params)
{
    const naive_seq *s = &cache->seqs[seq];
    uint32_t computed = request->num_computed_tokens + params->num_new_computed_tokens +
                        params->num_external_computed_tokens;
    bool is_first = naive_cache_num_seqs(cache) == 0;
    uint32_t wanted = s->used || is_first ? 0 : cache->watermark;
    if (must_wait(cache, params))
        return QUIRE_NO_SPACE;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint32_t required = smaller(ceil_div(request->num_tokens, size_of_block(cache, g)),
                                    admission_cap(cache, &cache->groups[g].spec));
        uint32_t skipped = s->used ? 0 : num_skipped_blocks(cache, g, computed);
        uint32_t hit =
            params->new_computed_blocks != NULL ? params->new_computed_blocks[g].count : 0;
        uint32_t have = larger(skipped, s->num_blocks[g] + hit);
        wanted += required > have ? required - have : 0;
        for (uint32_t i = skipped; i < hit; i++) {
            quire_block block = params->new_computed_blocks[g].ids[i];
            wanted += block != QUIRE_NULL_BLOCK && cache->pool.blocks[block].ref_cnt == 0;
        }
    }
    return wanted <= naive_pool_get_num_free_blocks(&cache->pool) ? QUIRE_OK : QUIRE_NO_SPACE;
}

void naive_cache_cache_blocks(naive_cache *cache, uint32_t seq, const quire_cache_request *request,
                              uint32_t num_tokens)
{
    if (cache->enable_caching)
        cache_seq(cache, &cache->seqs[seq], request, num_tokens);
}

void naive_cache_free(naive_cache *cache, uint32_t seq)
{
    naive_seq *s = &cache->seqs[seq];
    for (uint32_t g = 0; g < cache->num_groups; g++)
        give(cache, s, g, 0, s->num_blocks[g]);
    memset(s, 0, sizeof *s);
}

void naive_cache_remove_skipped(naive_cache *cache, uint32_t seq, uint32_t num_tokens)
{
    remove_skipped(cache, &cache->seqs[seq], num_tokens);
}

void naive_cache_new_step(naive_cache *cache)
{
    cache->num_step_keys = 0;
}

void naive_cache_common_prefix(const naive_cache *cache, uint32_t seq, uint32_t *num_blocks)
{
    const naive_seq *s = &cache->seqs[seq];
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint32_t n = 0;
        if (cache->enable_caching && cache->groups[g].spec.kind == QUIRE_LAYER_FULL)
            while (n < s->num_blocks[g] &&
                   cache->pool.blocks[s->blocks[g][n]].ref_cnt == naive_cache_num_seqs(cache))
                n++;
        num_blocks[g] = n;
    }
}

uint32_t naive_cache_num_seqs(const naive_cache *cache)
{
    uint32_t n = 0;
    for (uint32_t seq = 0; seq < NAIVE_SEQS; seq++)
        n += cache->seqs[seq].used;
    return n;
}
