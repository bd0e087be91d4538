/* One promise of tier/promote/promote.h after the other, over tiers in memory and a clock that
 * the test
 * moves.
 */
#include "promote_world.h"

/* ---- what a request gets ----------------------------------------------------- */

static void test_what_was_stored_comes_back(void **state)
{
    (void)state;
    world *w = world_make((world_config){0});
    world_request prompt = world_draw(w, 40);
    world_put_below(w, &prompt);
    world_request *r = world_add(w, &prompt);
    assert_int_equal(world_match(w, r), 0);
    assert_true(world_wait(w, r) > 0);
    assert_int_equal(world_match(w, r), 40 * WORLD_TOKENS);
    world_admit(w, r, 0);
    quire_offload_stats stats = world_stats(w);
    assert_int_equal(stats.tiers[0].stored_blocks, 40);
    assert_int_equal(stats.tiers[0].promoted_blocks, 40);
    assert_int_equal(stats.tiers[0].hit_tokens, 40 * WORLD_TOKENS);
    assert_int_equal(stats.tiers[0].failed_blocks, 0);
    r = world_add(w, &prompt); /* now it is a hit of the CPU pool */
    assert_false(world_ask(w, r));
    world_admit(w, r, 0);
    assert_int_equal(world_stats(w).tiers[0].hit_tokens, 40 * WORLD_TOKENS);
    world_close(w);
}

static void test_what_is_in_flight_is_counted(void **state)
{
    (void)state;
    world *w = world_make((world_config){0});
    world_request prompt = world_draw(w, 40);
    world_put_below(w, &prompt);
    assert_int_equal(world_stats(w).tiers[0].in_flight, 0);
    faulty_hold(w->parts[0], true);
    world_request *r = world_add(w, &prompt);
    assert_true(world_ask(w, r));
    assert_int_equal(world_stats(w).tiers[0].in_flight, 40);
    faulty_hold(w->parts[0], false);
    world_drain(w);
    assert_int_equal(world_stats(w).tiers[0].in_flight, 0);
    world_close(w);
}

/* Half of the CPU pool may be on its way. What the pool has already does not count: 32 blocks of
 * the full group are there, and the one state that is missing is fetched. */
static void test_what_is_there_is_not_counted(void **state)
{
    (void)state;
    world *w = world_make((world_config){.groups = WORLD_MAMBA, .num_cpu_blocks = 60});
    world_request prompt = world_draw(w, 32);
    world_put_below(w, &prompt);
    world_admit(w, world_add(w, &prompt), 0);
    world_drain(w);
    world_request *r = world_add(w, &prompt);
    assert_int_equal(world_match(w, r), 0);
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), 32 * WORLD_TOKENS);
    world_close(w);
}

static bool is_somewhere(world *w, const world_request *r, uint32_t group, uint32_t block)
{
    quire_block cached;
    uint32_t joined = world_block_size(w, group) / WORLD_TOKENS;
    quire_bytes hash = {r->hashes[block * joined], 32u * joined};
    for (uint32_t t = 0; t < w->config.num_tiers; t++)
        if (world_tier_has(w, t, r, group, block))
            return true;
    return quire_pool_get_cached_block(w->pool, hash, &group, 1, &cached) == QUIRE_OK;
}

/* Whether a hit of so many tokens has all it needs, said as plainly as possible. */
static bool is_hit(world *w, const world_request *r, uint32_t tokens)
{
    for (uint32_t g = 0; g < w->num_groups; g++) {
        const quire_layer_spec *spec = &w->groups[g].spec;
        for (uint32_t at = r->num_local; at < tokens; at += spec->block_size) {
            uint32_t behind = tokens - at; /* tokens from its start to the end of the hit */
            bool is_needed = spec->kind == QUIRE_LAYER_FULL ||
                             (spec->kind == QUIRE_LAYER_MAMBA && behind == spec->block_size) ||
                             (spec->kind == QUIRE_LAYER_CHUNKED_LOCAL &&
                              at >= tokens - tokens % spec->attention_chunk_size) ||
                             (spec->kind == QUIRE_LAYER_SLIDING_WINDOW &&
                              behind - spec->block_size < spec->sliding_window - 1);
            if (is_needed && !is_somewhere(w, r, g, at / spec->block_size))
                return false;
        }
    }
    return true;
}

static uint32_t longest_hit(world *w, const world_request *r)
{
    uint32_t step = w->num_groups > 1 ? 2 * WORLD_TOKENS : WORLD_TOKENS;
    uint32_t most = r->num_hashes * WORLD_TOKENS;
    for (uint32_t tokens = most / step * step; tokens > r->num_local; tokens -= step)
        if (tokens < r->num_tokens && is_hit(w, r, tokens))
            return tokens;
    return r->num_local;
}

/* Without faults a request gets exactly what a plain search would find. */
static void test_the_longest_hit_is_fetched(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 24; i++) {
        world *w = world_make((world_config){.groups = i % WORLD_NUM_GROUPS,
                                             .num_tiers = 1 + i % 3,
                                             .shared_tiers = i % 8,
                                             .num_cpu_blocks = 2000,
                                             .seed = i});
        for (uint32_t k = 0; k < 60; k++) {
            world_request prompt = world_draw(w, 1 + unit_random_below(&w->random, 50));
            uint32_t units = prompt.num_hashes / 4;
            prompt.num_local = 4 * WORLD_TOKENS * unit_random_below(&w->random, units / 2 + 1);
            world_request *r = world_add(w, &prompt);
            uint32_t wanted = longest_hit(w, r);
            (void)world_wait(w, r);
            uint32_t got = r->num_local + world_match(w, r);
            if (got != wanted)
                fail_msg("groups %u, prompt %u: hit of %u tokens, not %u", w->config.groups, k, got,
                         wanted);
            world_admit(w, r, 500);
            world_drain(w);
            if (unit_random_below(&w->random, 3) == 0)
                assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
        }
        world_close(w);
    }
}

static void test_one_fetch_serves_all(void **state)
{
    (void)state;
    world *w = world_make((world_config){.num_tiers = 2});
    world_request prompt = world_draw(w, 30);
    world_put_below(w, &prompt);
    faulty_set_delay(w->parts[0], 4);
    world_request *all[3];
    for (uint32_t i = 0; i < 3; i++)
        all[i] = world_add(w, &prompt);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(world_ask(w, all[i]));
    world_abort(w, all[0]); /* its jobs still serve the others */
    for (uint32_t i = 1; i < 3; i++) {
        (void)world_wait(w, all[i]);
        assert_int_equal(world_match(w, all[i]), 30 * WORLD_TOKENS);
    }
    assert_int_equal(world_tier_keys(w, 0, QUIRE_TIER_LOAD, QUIRE_TIER_DONE), 30);
    assert_int_equal(world_tier_keys(w, 1, QUIRE_TIER_LOAD, QUIRE_TIER_DONE),
                     0); /* the first has it */
    world_close(w);
}

static void test_only_the_tier_knows(void **state)
{
    (void)state;
    world *w = world_make((world_config){.shared_tiers = 1});
    world_request prompt = world_draw(w, 20);
    world_put_below(w, &prompt);
    uint64_t asked = world_tier_keys(w, 0, QUIRE_TIER_FIND, QUIRE_TIER_MISSING);
    world_request longer = world_draw(w, 40); /* another end */
    memcpy(longer.hashes, prompt.hashes, sizeof prompt.hashes[0] * 20);
    world_request *r = world_add(w, &longer);
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), 20 * WORLD_TOKENS);
    assert_true(world_tier_keys(w, 0, QUIRE_TIER_FIND, QUIRE_TIER_MISSING) > asked);
    assert_int_equal(world_tier_keys(w, 0, QUIRE_TIER_FIND, QUIRE_TIER_DONE), 20);
    uint64_t jobs = world_tier_jobs(w, 0);
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    for (uint32_t i = 0; i < 10; i++) { /* it has its answer */
        assert_false(world_ask(w, r));
        world_step(w);
    }
    assert_int_equal(world_tier_jobs(w, 0), jobs);
    world_close(w);
}

static void test_prefetched_is_there(void **state)
{
    (void)state;
    world *w = world_make((world_config){.shared_tiers = 1});
    world_request prompt = world_draw(w, 25);
    world_put_below(w, &prompt);
    world_request *r = world_add(w, &prompt);
    world_prefetch(w, r);
    world_drain(w);
    assert_false(world_ask(w, r));
    assert_int_equal(world_match(w, r), 25 * WORLD_TOKENS);
    world_abort(w, r);
    /* Evicted again before its turn: it is fetched once more. */
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    r = world_add(w, &prompt);
    world_prefetch(w, r);
    world_drain(w);
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    assert_true(world_ask(w, r));
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), 25 * WORLD_TOKENS);
    world_close(w);
}

/* What others will need makes way for what somebody waits for. */
static void test_who_waits_goes_first(void **state)
{
    (void)state;
    world *w =
        world_make((world_config){.num_cpu_blocks = 800, .max_bytes_in_flight = 4 * WORLD_BYTES});
    world_request prompts[4];
    for (uint32_t i = 0; i < 4; i++) {
        prompts[i] = world_draw(w, 60);
        world_put_below(w, &prompts[i]);
    }
    faulty_set_delay(w->parts[0], 1);
    world_request *ahead[3];
    for (uint32_t i = 0; i < 3; i++) {
        ahead[i] = world_add(w, &prompts[i]);
        world_prefetch(w, ahead[i]);
    }
    world_request *now = world_add(w, &prompts[3]);
    assert_true(world_wait(w, now) > 0);
    assert_int_equal(world_match(w, now), 60 * WORLD_TOKENS);
    assert_true(qr_promote_has_pending(w->promote)); /* others are still on their way */
    assert_true(world_wait(w, ahead[2]) > 0);
    assert_int_equal(world_match(w, ahead[2]), 60 * WORLD_TOKENS);
    world_close(w);
}

static uint64_t g_expected_request;
static uint32_t g_expected_keys;
static uint32_t g_expected_calls;
static quire_tier_key g_expected_first;

static void note_expected(void *self, uint64_t request, uint64_t order, const quire_tier_key *keys,
                          uint32_t n)
{
    (void)self;
    (void)order;
    g_expected_request = request;
    g_expected_keys = n;
    g_expected_calls++;
    if (n > 0)
        g_expected_first = keys[0];
}

/* A tier's policy learns once what a request that waits will need, and when it needs it no more. */
static void test_tiers_know_who_waits(void **state)
{
    (void)state;
    quire_tier_ops ops = *faulty_ops();
    ops.expect = note_expected;
    world *w = world_make((world_config){.ops = &ops});
    world_request prompt = world_draw(w, 20);
    prompt.num_local = 4 * WORLD_TOKENS;
    world_request *r = world_add(w, &prompt);
    g_expected_calls = 0;
    world_prefetch(w, r);
    quire_tier_key key;
    quire_tier_key_of((quire_bytes){prompt.hashes[4], 32}, 0, WORLD_RANK, &key);
    assert_int_equal(g_expected_request, r->req);
    assert_int_equal(g_expected_keys, 16);
    assert_memory_equal(&g_expected_first, &key, sizeof key);
    (void)world_wait(w, r);
    assert_int_equal(g_expected_calls, 1);
    world_admit(w, r, 0);
    assert_int_equal(g_expected_calls, 2);
    assert_int_equal(g_expected_keys, 0);
    prompt.num_local = 20 * WORLD_TOKENS; /* the engine has it: nothing is needed */
    assert_false(world_ask(w, world_add(w, &prompt)));
    assert_int_equal(g_expected_calls, 2);
    world_close(w);
}

/* ---- stores ------------------------------------------------------------------- */

static void test_nothing_is_stored_twice(void **state)
{
    (void)state;
    world *w = world_make((world_config){.num_tiers = 2});
    world_request prompt = world_draw(w, 12);
    faulty_set_delay(w->parts[0], 5);
    faulty_set_delay(w->parts[1], 5);
    world_request *r = world_add(w, &prompt);
    assert_false(world_ask(w, r));
    world_admit(w, r, 0);
    for (uint32_t i = 0; i < 3; i++) { /* stored, a hit, stored again elsewhere: all the same key */
        r = world_add(w, &prompt);
        world_admit(w, r, 0);
        world_step(w);
    }
    world_drain(w);
    assert_int_equal(world_tier_keys(w, 0, QUIRE_TIER_STORE, QUIRE_TIER_DONE), 12);
    assert_int_equal(world_tier_keys(w, 1, QUIRE_TIER_STORE, QUIRE_TIER_DONE), 12);
    world_close(w);
}

static uint32_t g_touched_keys;

static void note_touched(void *self, const quire_tier_key *keys, uint32_t n)
{
    (void)self;
    (void)keys;
    g_touched_keys += n;
}

/* A hit of the CPU pool is a use of the tier's copy, too: the tier keeps it longer. */
static void test_tiers_know_what_was_used(void **state)
{
    (void)state;
    quire_tier_ops ops = *faulty_ops();
    ops.touch = note_touched;
    world *w = world_make((world_config){.ops = &ops});
    world_request prompt = world_draw(w, 12);
    g_touched_keys = 0;
    world_admit(w, world_add(w, &prompt), 0);
    world_drain(w);
    assert_int_equal(g_touched_keys, 0);
    world_admit(w, world_add(w, &prompt), 0);
    assert_int_equal(g_touched_keys, 12);
    world_close(w);
}

static void test_only_what_is_used_again(void **state)
{
    (void)state;
    world *w = world_make((world_config){.admit = QUIRE_ADMIT_REUSED});
    world_request prompt = world_draw(w, 12);
    world_request *r = world_add(w, &prompt);
    world_admit(w, r, 0);
    world_drain(w);
    assert_int_equal(world_tier_jobs(w, 0), 0);
    assert_int_equal(world_stats(w).tiers[0].not_admitted, 12);
    for (uint32_t i = 0; i < 3; i++) {
        r = world_add(w, &prompt);
        world_admit(w, r, 0);
        world_drain(w);
    }
    assert_int_equal(world_tier_keys(w, 0, QUIRE_TIER_STORE, QUIRE_TIER_DONE), 12);
    world_close(w);
}

static void test_only_long_prefixes(void **state)
{
    (void)state;
    world *w = world_make(
        (world_config){.admit = QUIRE_ADMIT_LONG, .recompute_token_ns = 1000, .bytes_per_s = 1e9});
    for (uint32_t i = 0; i < 40; i++) { /* 100 us and nothing: from 100 tokens on */
        qr_promote_learn(w->promote, 1000 + i, 1000000 + 1000 * i);
    }
    world_request prompt = world_draw(w, 4);
    world_request *r = world_add(w, &prompt);
    world_admit(w, r, 0);
    world_drain(w);
    assert_int_equal(world_tier_keys(w, 0, QUIRE_TIER_STORE, QUIRE_TIER_DONE),
                     4); /* it has no latency */
    world_close(w);

    w = world_make(
        (world_config){.admit = QUIRE_ADMIT_LONG, .recompute_token_ns = 10, .bytes_per_s = 1e5});
    r = world_add(w, &prompt);
    world_admit(w, r, 0);
    world_drain(w);
    assert_int_equal(world_tier_jobs(w, 0), 0); /* never worth it */
    assert_int_equal(world_stats(w).tiers[0].not_admitted, 4);
    world_close(w);
}

/* A block that loses its place before its turn is not stored, under any name. */
static void test_evicted_before_its_turn(void **state)
{
    (void)state;
    world *w =
        world_make((world_config){.num_cpu_blocks = 31, .max_bytes_in_flight = 2 * WORLD_BYTES});
    faulty_set_delay(w->parts[0], 6);
    for (uint32_t i = 0; i < 30; i++) {
        world_request prompt = world_draw(w, 20);
        world_request *r = world_add(w, &prompt);
        (void)world_wait(w, r);
        world_admit(w, r, 0);
        world_step(w);
        world_check(w);
    }
    assert_true(world_stats(w).tiers[0].dropped_blocks > 0);
    assert_true(world_stats(w).tiers[0].stored_blocks > 0);
    world_close(w);
}

/* A block gets the same key a second time, with bytes of its own, while its store waits: what is
 * stored has the sum of those. */
static void test_computed_again_before_its_turn(void **state)
{
    (void)state;
    world *w = world_make((world_config){.max_bytes_in_flight = WORLD_BYTES});
    faulty_hold(w->parts[0], true);
    world_request first = world_draw(w, 1);
    world_admit(w, world_add(w, &first), 0);
    world_step(w); /* its store has all the room there is */
    world_request prompt = world_draw(w, 1);
    prompt.hashes[0][0] ^= 1;
    quire_block block;
    quire_tier_key key;
    quire_tier_key_of((quire_bytes){prompt.hashes[0], 32}, 0, WORLD_RANK, &key);
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = &block,
                                      .num_full_blocks = 1,
                                      .hashes = prompt.hashes[0],
                                      .hash_len = 32,
                                      .num_hashes = 1,
                                      .block_size = WORLD_TOKENS};
    assert_int_equal(quire_pool_get_new_blocks(w->pool, 1, &block), QUIRE_OK);
    unsigned char *bytes = w->memory + (size_t)block * WORLD_BYTES;
    for (uint32_t i = 0; i < 2; i++) {
        faulty_pattern(&key, bytes, WORLD_BYTES);
        uint32_t crc = quire_crc32c(0, bytes, WORLD_BYTES) + (i == 0 ? 1 : 0);
        assert_int_equal(quire_pool_evict_blocks(w->pool, &block, 1), QUIRE_OK);
        assert_int_equal(quire_pool_cache_full_blocks(w->pool, &params), QUIRE_OK);
        qr_promote_stored(w->promote, &block, &crc, 1);
        world_step(w);
    }
    assert_int_equal(quire_pool_free_blocks(w->pool, &block, 1), QUIRE_OK);
    faulty_hold(w->parts[0], false);
    world_drain(w);
    assert_int_equal(world_tier_keys(w, 0, QUIRE_TIER_STORE, QUIRE_TIER_DONE), 2);
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    world_request *r = world_add(w, &prompt);
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), WORLD_TOKENS);
    world_close(w);
}

static void give_key(world *w, const world_request *prompt, quire_block block)
{
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = &block,
                                      .num_full_blocks = 1,
                                      .hashes = prompt->hashes[0],
                                      .hash_len = 32,
                                      .num_hashes = 1,
                                      .block_size = WORLD_TOKENS};
    assert_int_equal(quire_pool_cache_full_blocks(w->pool, &params), QUIRE_OK);
}

/* Another copy into the block fails: from the engine (tier/offload/ends.c), or from tier 1. */
static void write_over(world *w, quire_block block, const world_request *below)
{
    quire_block others[64];
    uint32_t num_others = quire_pool_get_num_free_blocks(w->pool) - 1;
    if (below == NULL) {
        assert_int_equal(quire_pool_evict_blocks(w->pool, &block, 1), QUIRE_OK);
        memset(w->memory + (size_t)block * WORLD_BYTES, 0xee, WORLD_BYTES);
        qr_promote_forget_content(w->promote, &block, 1);
        return;
    }
    assert_int_equal(quire_pool_get_new_blocks(w->pool, num_others, others), QUIRE_OK);
    faulty_set(w->parts[1], FAULTY_FAIL, 1000);
    world_request *r = world_add(w, below);
    (void)world_wait(w, r);
    assert_int_equal(world_tier_keys(w, 1, QUIRE_TIER_LOAD, QUIRE_TIER_FAILED), 1);
    world_abort(w, r);
    assert_int_equal(quire_pool_free_blocks(w->pool, others, num_others), QUIRE_OK);
}

/* A block's content is written over by a copy that fails. Then it is to get the same once more, and
 * has its key already, but not the bytes: a store that still waits from the first time is void. */
static void test_written_over_before_its_turn(void **state)
{
    (void)state;
    for (uint32_t is_load = 0; is_load < 2; is_load++) {
        world *w = world_make((world_config){
            .num_cpu_blocks = 31, .num_tiers = 2, .max_bytes_in_flight = WORLD_BYTES});
        world_request below = world_draw(w, 1);
        below.hashes[0][0] ^= 2;
        faulty_set(w->parts[0], FAULTY_FAIL, 1000); /* tier 1 alone has it */
        world_put_below(w, &below);
        faulty_set(w->parts[0], FAULTY_FAIL, 0);
        faulty_hold(w->parts[0], true);
        world_request first = world_draw(w, 1);
        world_admit(w, world_add(w, &first), 0);
        world_step(w); /* its store has all the room there is */
        world_request prompt = first;
        prompt.hashes[0][0] ^= 1;
        world_admit(w, world_add(w, &prompt), 0);
        for (uint32_t i = 0; i < 8; i++) /* tier 1 gets it */
            world_step(w);
        uint32_t group = 0;
        quire_block block;
        quire_block found;
        quire_bytes hash = {prompt.hashes[0], 32};
        assert_int_equal(quire_pool_get_cached_block(w->pool, hash, &group, 1, &block), QUIRE_OK);
        write_over(w, block, is_load != 0 ? &below : NULL);
        assert_int_equal(quire_pool_get_cached_block(w->pool, hash, &group, 1, &found), QUIRE_MISS);
        give_key(w, &prompt, block);
        faulty_hold(w->parts[0], false);
        world_drain(w);
        assert_false(world_tier_has(w, 0, &prompt, 0, 0));
        quire_tier_key key; /* the bytes have come */
        quire_tier_key_of(hash, 0, WORLD_RANK, &key);
        faulty_pattern(&key, w->memory + (size_t)block * WORLD_BYTES, WORLD_BYTES);
        qr_promote_stored(w->promote, &block, NULL, 1);
        world_drain(w);
        assert_true(world_tier_has(w, 0, &prompt, 0, 0));
        world_close(w);
    }
}

/* ---- making it ------------------------------------------------------------------ */

static void test_bad_configs(void **state)
{
    (void)state;
    world *w = world_make((world_config){0});
    enum { TOO_MANY = 65 };
    quire_group_config groups[TOO_MANY];
    for (uint32_t i = 0; i < TOO_MANY; i++)
        groups[i] =
            (quire_group_config){.spec = {.kind = QUIRE_LAYER_FULL, .block_size = WORLD_TOKENS}};
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config sched = QUIRE_SCHED_CONFIG_INIT;
    sched.cache = &cache;
    cache.groups = groups;
    cache.num_groups = 1;
    cache.max_model_len = 1000;
    cache.digest_bytes = 32;
    quire_offload_tier tier = {.tier = w->tiers[0]};
    quire_offload_config good = QUIRE_OFFLOAD_CONFIG_INIT;
    good.sched = &sched;
    good.num_cpu_blocks = 10;
    good.memory = w->memory;
    good.block_bytes = WORLD_BYTES;
    good.tiers = &tier;
    good.num_tiers = 1;
    assert_true(qr_promote_bytes(&good) > 0);
    quire_offload_config bad = good;
    bad.num_cpu_blocks = 1;
    assert_int_equal(qr_promote_bytes(&bad), 0);
    bad = good;
    bad.num_tiers = QUIRE_OFFLOAD_MAX_TIERS + 1;
    assert_int_equal(qr_promote_bytes(&bad), 0);
    bad = good;
    bad.block_bytes = UINT64_C(1) << 32;
    assert_int_equal(qr_promote_bytes(&bad), 0);
    bad.block_bytes = 2 * WORLD_BYTES; /* more than the tier takes */
    assert_int_equal(qr_promote_bytes(&bad), 0);
    bad = good;
    bad.memory = NULL; /* and it is not simulated */
    assert_int_equal(qr_promote_bytes(&bad), 0);
    tier.admit = QUIRE_ADMIT_LONG + 1;
    assert_int_equal(qr_promote_bytes(&good), 0);
    tier.admit = QUIRE_ADMIT_ALL;
    cache.hash_block_size = 7;
    assert_int_equal(qr_promote_bytes(&good), 0);
    cache.hash_block_size = 0;
    cache.num_groups = TOO_MANY;
    assert_int_equal(qr_promote_bytes(&good), 0);
    cache.num_groups = 0;
    assert_int_equal(qr_promote_bytes(&good), 0);
    cache.num_groups = 1;
    cache.groups = NULL;
    assert_int_equal(qr_promote_bytes(&good), 0);
    cache.groups = groups;
    groups[0].spec.block_size = 0;
    assert_int_equal(qr_promote_bytes(&good), 0);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_stored_comes_back),
        cmocka_unit_test(test_what_is_in_flight_is_counted),
        cmocka_unit_test(test_what_is_there_is_not_counted),
        cmocka_unit_test(test_the_longest_hit_is_fetched),
        cmocka_unit_test(test_one_fetch_serves_all),
        cmocka_unit_test(test_only_the_tier_knows),
        cmocka_unit_test(test_prefetched_is_there),
        cmocka_unit_test(test_who_waits_goes_first),
        cmocka_unit_test(test_tiers_know_who_waits),
        cmocka_unit_test(test_nothing_is_stored_twice),
        cmocka_unit_test(test_tiers_know_what_was_used),
        cmocka_unit_test(test_only_what_is_used_again),
        cmocka_unit_test(test_only_long_prefixes),
        cmocka_unit_test(test_evicted_before_its_turn),
        cmocka_unit_test(test_computed_again_before_its_turn),
        cmocka_unit_test(test_written_over_before_its_turn),
        cmocka_unit_test(test_bad_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
