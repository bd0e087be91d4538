#include "promote_world.h"

#include <time.h>

/* ---- making it ------------------------------------------------------------- */

static uint64_t world_now(void *user)
{
    world *w = user;
    return w->now_ns;
}

/* So that a seed gives the same run again. */
static int world_random_bytes(void *user, void *out, size_t bytes)
{
    world *w = user;
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)out)[i] = (unsigned char)unit_random(&w->random);
    return 0;
}

static quire_hooks world_hooks(world *w)
{
    quire_hooks hooks = QUIRE_HOOKS_INIT;
    if (w->config.has_threads)
        return hooks;
    hooks.user = w;
    hooks.now_ns = world_now;
    hooks.random_bytes = world_random_bytes;
    return hooks;
}

static quire_group_config full_group(void)
{
    return (quire_group_config){.spec = {.kind = QUIRE_LAYER_FULL,
                                         .block_size = WORLD_TOKENS,
                                         .num_kv_heads = 1,
                                         .head_size = 8,
                                         .dtype = QUIRE_DTYPE_FLOAT16}};
}

static quire_group_config window_group(void)
{
    quire_group_config group = full_group();
    group.spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    group.spec.block_size = 2 * WORLD_TOKENS;
    group.spec.sliding_window = 70; /* three blocks of 32 */
    return group;
}

static quire_group_config chunked_group(void)
{
    quire_group_config group = full_group();
    group.spec.kind = QUIRE_LAYER_CHUNKED_LOCAL;
    group.spec.block_size = 2 * WORLD_TOKENS;
    group.spec.attention_chunk_size = 4 * WORLD_TOKENS;
    return group;
}

static quire_group_config mamba_group(void)
{
    return (quire_group_config){
        .spec = {.kind = QUIRE_LAYER_MAMBA,
                 .block_size = 2 * WORLD_TOKENS,
                 .states = {{.num_dims = 1, .dims = {64}, .dtype = QUIRE_DTYPE_FLOAT32}},
                 .mamba_mode = QUIRE_MAMBA_MODE_ALL}};
}

static void choose_groups(world *w)
{
    world_groups g = w->config.groups;
    if (g != WORLD_WINDOW_ALONE)
        w->groups[w->num_groups++] = full_group();
    if (g == WORLD_WINDOW || g == WORLD_ALL || g == WORLD_WINDOW_ALONE)
        w->groups[w->num_groups++] = window_group();
    if (g == WORLD_MAMBA || g == WORLD_ALL)
        w->groups[w->num_groups++] = mamba_group();
    if (g == WORLD_CHUNKED)
        w->groups[w->num_groups++] = chunked_group();
    if (g == WORLD_WINDOW_ALONE) /* one group alone joins nothing */
        w->groups[0].spec.block_size = WORLD_TOKENS;
}

static void open_tier(world *w, uint32_t t)
{
    faulty_config faults = {.max_keys = w->config.max_keys > 0 ? w->config.max_keys : 100000,
                            .max_bytes = WORLD_BYTES,
                            .seed = w->config.seed + t,
                            .is_shared = (w->config.shared_tiers >> t & 1) != 0};
    w->parts[t] = faulty_create(&faults);
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    config.ops = w->config.ops != NULL ? w->config.ops : faulty_ops();
    config.self = w->parts[t];
    config.max_bytes_in_flight = w->config.max_bytes_in_flight;
    config.max_jobs = w->config.max_jobs;
    config.run_inline = w->config.has_threads ? QUIRE_OFF : QUIRE_ON;
    config.breaker_ns = w->config.breaker_ns > 0 ? w->config.breaker_ns : 30000000;
    config.hooks = world_hooks(w);
    assert_int_equal(quire_tier_open(&config, NULL, &w->tiers[t]), QUIRE_OK);
}

static void open_lower(world *w, const quire_cache_config *cache)
{
    quire_sched_config sched = QUIRE_SCHED_CONFIG_INIT;
    quire_cache_config own = *cache;
    sched.cache = &own;
    sched.max_requests = WORLD_MAX_REQUESTS;
    quire_offload_tier tiers[WORLD_MAX_TIERS];
    memset(tiers, 0, sizeof tiers);
    for (uint32_t t = 0; t < w->config.num_tiers; t++)
        tiers[t] = (quire_offload_tier){.tier = w->tiers[t],
                                        .admit = w->config.admit,
                                        .deadline_ns = w->config.deadline_ns,
                                        .bytes_per_s = w->config.bytes_per_s,
                                        .latency_ns = w->config.latency_ns};
    quire_offload_config config = QUIRE_OFFLOAD_CONFIG_INIT;
    config.rank = WORLD_RANK;
    config.sched = &sched;
    config.num_cpu_blocks = w->config.num_cpu_blocks;
    config.memory = w->memory;
    config.block_bytes = WORLD_BYTES;
    config.tiers = tiers;
    config.num_tiers = w->config.num_tiers;
    config.recompute_token_ns = w->config.recompute_token_ns;
    config.hooks = world_hooks(w);
    size_t bytes = qr_promote_bytes(&config);
    assert_true(bytes > 0 && bytes < SIZE_MAX);
    w->lower_memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    w->promote = qr_promote_create_in(w->lower_memory, &config, w->cache);
    assert_non_null(w->promote);
}

void world_open(world *w, const world_config *config)
{
    memset(w, 0, sizeof *w);
    w->config = *config;
    w->random = config->seed;
    w->now_ns = 1000000000;
    if (w->config.deadline_ns == 0)
        w->config.deadline_ns = 20000000;
    choose_groups(w);
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    cache.num_blocks = config->num_cpu_blocks;
    cache.groups = w->groups;
    cache.num_groups = w->num_groups;
    cache.max_model_len = WORLD_MAX_HASHES * WORLD_TOKENS + 1;
    cache.hash_block_size = WORLD_TOKENS;
    cache.digest_bytes = 32;
    assert_int_equal(quire_cache_create(&cache, NULL, &w->cache), QUIRE_OK);
    w->pool = quire_cache_get_pool(w->cache);
    w->memory = calloc(config->num_cpu_blocks, WORLD_BYTES);
    w->refs = calloc(config->num_cpu_blocks, sizeof *w->refs);
    for (uint32_t t = 0; t < config->num_tiers; t++)
        open_tier(w, t);
    if (config->num_tiers > 0)
        open_lower(w, &cache);
}

void world_close(world *w)
{
    for (uint32_t i = 0; i < WORLD_MAX_REQUESTS; i++)
        if (w->requests[i].req != 0)
            world_abort(w, &w->requests[i]);
    for (uint32_t t = 0; t < w->config.num_tiers; t++) {
        faulty_set_all(w->parts[t], 0);
        faulty_set(w->parts[t], FAULTY_HOLD, 0);
        faulty_hold(w->parts[t], false);
        faulty_release(w->parts[t]);
    }
    world_drain(w);
    world_check(w);
    quire_usage usage = quire_pool_get_usage(w->pool);
    assert_int_equal(usage.active, 0);
    for (uint32_t t = 0; t < w->config.num_tiers; t++)
        assert_int_equal(quire_tier_close(w->tiers[t]), QUIRE_OK);
    free(w->lower_memory);
    quire_cache_destroy(w->cache);
    free(w->memory);
    free(w->refs);
}

/* ---- requests -------------------------------------------------------------- */

void world_draw_prompt(world *w, world_request *r, uint32_t num_hashes)
{
    memset(r, 0, sizeof *r);
    uint64_t state = 0;
    for (uint32_t i = 0; i < num_hashes; i++) {
        uint32_t way = unit_random_below(&w->random, 8);
        state = state * 31 + (way < 5 ? 1 : way);
        uint64_t bytes = state;
        for (uint32_t k = 0; k < 32; k += 8) {
            uint64_t word = unit_random(&bytes);
            memcpy(&r->hashes[i][k], &word, 8);
        }
    }
    r->num_hashes = num_hashes;
    r->num_tokens = num_hashes * WORLD_TOKENS + 1 + unit_random_below(&w->random, WORLD_TOKENS);
}

world_request *world_add(world *w, const world_request *prompt)
{
    for (uint32_t i = 0; i < WORLD_MAX_REQUESTS; i++) {
        if (w->requests[i].req != 0)
            continue;
        w->requests[i] = *prompt;
        w->requests[i].req = ++w->next_generation << 32 | (i + 1);
        w->requests[i].asked_ns = 0;
        return &w->requests[i];
    }
    return NULL;
}

uint32_t world_block_size(const world *w, uint32_t group)
{
    return w->groups[group].spec.block_size;
}

static quire_bytes block_hash(const world *w, const world_request *r, uint32_t group,
                              uint32_t block)
{
    uint32_t joined = world_block_size(w, group) / WORLD_TOKENS;
    return (quire_bytes){r->hashes[block * joined], 32u * joined};
}

static quire_tier_key block_key(const world *w, const world_request *r, uint32_t group,
                                uint32_t block)
{
    quire_tier_key key;
    quire_tier_key_of(block_hash(w, r, group, block), group, WORLD_RANK, &key);
    return key;
}

bool world_tier_has(world *w, uint32_t tier, const world_request *r, uint32_t group, uint32_t block)
{
    quire_tier_key key = block_key(w, r, group, block);
    return faulty_has(w->parts[tier], &key);
}

static unsigned char *bytes_of(world *w, quire_block block)
{
    return w->memory + (size_t)block * WORLD_BYTES;
}

/* What the engine would read: the bytes must be those of the very block that it asked for. */
static void look_at_hit(world *w, const world_request *r, const quire_block_span *spans)
{
    for (uint32_t g = 0; g < w->num_groups; g++) {
        uint32_t first = r->num_local / world_block_size(w, g);
        for (uint32_t i = 0; i < spans[g].count; i++) {
            quire_block block = spans[g].ids[i];
            if (block == QUIRE_NULL_BLOCK)
                continue;
            quire_tier_key key = block_key(w, r, g, first + i);
            if (!faulty_is_pattern(&key, bytes_of(w, block), WORLD_BYTES))
                fail_msg("block %u of group %u has wrong bytes", first + i, g);
            w->num_looked_at++;
        }
    }
}

static uint32_t match(world *w, const world_request *r, quire_block_span *spans)
{
    uint32_t skipped = r->num_local / WORLD_TOKENS;
    uint32_t num_hit = 0;
    for (uint32_t g = 0; g < w->num_groups; g++)
        spans[g].count = 0;
    if (r->num_tokens <= r->num_local + 1)
        return 0;
    quire_cache_request rest = {.num_tokens = r->num_tokens - r->num_local,
                                .hashes = r->hashes[skipped],
                                .num_hashes = r->num_hashes - skipped};
    assert_int_equal(quire_cache_get_computed_blocks(w->cache, &rest, spans, &num_hit), QUIRE_OK);
    look_at_hit(w, r, spans);
    return num_hit;
}

uint32_t world_match(world *w, const world_request *r)
{
    quire_block_span spans[3];
    return match(w, r, spans);
}

static qr_promote_request seen_from_below(world *w, const world_request *r)
{
    return (qr_promote_request){.req = r->req,
                                .hashes = r->hashes[0],
                                .num_hashes = r->num_hashes,
                                .num_tokens = r->num_tokens,
                                .num_local = r->num_local,
                                .num_found = r->num_local + world_match(w, r)};
}

bool world_ask(world *w, world_request *r)
{
    if (w->promote == NULL)
        return false;
    qr_promote_request request = seen_from_below(w, r);
    bool must_wait = qr_promote_ask(w->promote, &request);
    if (!must_wait)
        assert_int_equal(r->num_local + world_match(w, r), request.num_found);
    if (must_wait && r->asked_ns == 0)
        r->asked_ns = w->now_ns;
    if (must_wait && !w->config.has_threads)
        assert_true(w->now_ns - r->asked_ns <= w->config.deadline_ns + 2000000);
    return must_wait;
}

void world_prefetch(world *w, world_request *r)
{
    if (w->promote == NULL)
        return;
    qr_promote_request request = seen_from_below(w, r);
    qr_promote_prefetch(w->promote, &request);
}

/* Blocks of one group, from first on, that the engine computed. */
static void store_computed(world *w, const world_request *r, uint32_t group, uint32_t first,
                           uint32_t keep_per_mille)
{
    uint32_t end = r->num_hashes * WORLD_TOKENS / world_block_size(w, group);
    for (uint32_t i = first; i < end; i++) {
        quire_block block;
        quire_bytes hash = block_hash(w, r, group, i);
        bool is_full = w->groups[group].spec.kind == QUIRE_LAYER_FULL;
        if ((!is_full && unit_random_below(&w->random, 1000) >= keep_per_mille) ||
            quire_pool_get_cached_block(w->pool, hash, &group, 1, &block) == QUIRE_OK)
            continue;
        if (quire_pool_get_new_blocks(w->pool, 1, &block) != QUIRE_OK)
            return;
        quire_tier_key key = block_key(w, r, group, i);
        faulty_pattern(&key, bytes_of(w, block), WORLD_BYTES);
        quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                          .blocks = &block,
                                          .num_full_blocks = 1,
                                          .hashes = hash.data,
                                          .hash_len = hash.len,
                                          .num_hashes = 1,
                                          .group_id = group,
                                          .block_size = world_block_size(w, group)};
        assert_int_equal(quire_pool_cache_full_blocks(w->pool, &params), QUIRE_OK);
        assert_int_equal(quire_pool_free_blocks(w->pool, &block, 1), QUIRE_OK);
        uint32_t crc = quire_crc32c(0, bytes_of(w, block), WORLD_BYTES);
        if (w->promote != NULL)
            qr_promote_stored(w->promote, &block, i % 2 == 0 ? &crc : NULL, 1);
    }
}

uint32_t world_admit(world *w, world_request *r, uint32_t keep_per_mille)
{
    quire_block_span spans[3];
    uint32_t num_hit = match(w, r, spans);
    for (uint32_t g = 0; g < w->num_groups && w->promote != NULL; g++)
        qr_promote_reused(w->promote, spans[g].ids, spans[g].count);
    for (uint32_t g = 0; g < w->num_groups; g++)
        store_computed(w, r, g, (r->num_local + num_hit) / world_block_size(w, g), keep_per_mille);
    w->num_hit_tokens += num_hit;
    world_abort(w, r);
    return num_hit;
}

void world_abort(world *w, world_request *r)
{
    if (w->promote != NULL)
        qr_promote_forget(w->promote, r->req);
    r->req = 0;
}

/* ---- time ------------------------------------------------------------------ */

void world_step(world *w)
{
    if (w->config.has_threads) {
        struct timespec a_little = {.tv_nsec = 50000};
        nanosleep(&a_little, NULL);
    }
    w->now_ns += 100000 + unit_random_below(&w->random, 900000);
    if (w->promote != NULL)
        qr_promote_poll(w->promote);
}

uint32_t world_wait(world *w, world_request *r)
{
    uint32_t steps = 0;
    while (world_ask(w, r)) {
        world_step(w);
        steps++;
        assert_true(steps < 200000);
    }
    return steps;
}

void world_drain(world *w)
{
    uint32_t steps = 0;
    while (w->promote != NULL &&
           (!qr_promote_is_idle(w->promote) || qr_promote_has_pending(w->promote))) {
        world_step(w);
        assert_true(++steps < 200000);
    }
}

void world_check(world *w)
{
    memset(w->refs, 0, w->config.num_cpu_blocks * sizeof *w->refs);
    if (w->promote != NULL) {
        assert_int_equal(qr_promote_check(w->promote), QUIRE_OK);
        qr_promote_count_refs(w->promote, w->refs);
    }
    assert_int_equal(quire_pool_check(w->pool), QUIRE_OK);
    for (quire_block block = 1; block < w->config.num_cpu_blocks; block++) {
        quire_block_info info;
        assert_int_equal(quire_pool_get_block(w->pool, block, &info), QUIRE_OK);
        assert_int_equal(info.ref_cnt, w->refs[block]);
        if (info.hash.data == NULL)
            continue;
        quire_tier_key key;
        quire_tier_key_of(info.hash, info.group_id, WORLD_RANK, &key);
        assert_true(faulty_is_pattern(&key, bytes_of(w, block), WORLD_BYTES));
    }
}

quire_offload_stats world_stats(const world *w)
{
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    memset(&stats, 0, sizeof stats);
    if (w->promote != NULL)
        qr_promote_add_stats(w->promote, &stats);
    return stats;
}

/* ---- in short ------------------------------------------------------------- */

static world g_world;

world *world_make(world_config config)
{
    if (config.num_cpu_blocks == 0)
        config.num_cpu_blocks = 400;
    if (config.num_tiers == 0)
        config.num_tiers = 1;
    config.seed += 7;
    world_open(&g_world, &config);
    return &g_world;
}

world_request world_draw(world *w, uint32_t num_hashes)
{
    world_request prompt;
    world_draw_prompt(w, &prompt, num_hashes);
    return prompt;
}

void world_put_below(world *w, const world_request *prompt)
{
    world_request *r = world_add(w, prompt);
    (void)world_wait(w, r);
    world_admit(w, r, 1000);
    world_drain(w);
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
}

uint64_t world_tier_keys(world *w, uint32_t tier, quire_tier_op op, quire_tier_status status)
{
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    assert_int_equal(quire_tier_get_stats(w->tiers[tier], &stats), QUIRE_OK);
    return stats.keys[op][status];
}

uint64_t world_tier_jobs(world *w, uint32_t tier)
{
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    assert_int_equal(quire_tier_get_stats(w->tiers[tier], &stats), QUIRE_OK);
    return stats.jobs;
}
