/* obs/test_residency_pool.c - the lives of blocks of a pool without a scheduler. */
#include "base/unit.h"

#include <quire.h>

enum { BLOCKS = 5, MAX_LIVES = 8, HASH = 32 };

static uint64_t clock_ns;

static uint64_t read_clock(void *user)
{
    (void)user;
    return clock_ns;
}

typedef struct notes {
    quire_block_life lives[MAX_LIVES];
    uint32_t count;
} notes;

static void note_life(void *user, const quire_block_life *life)
{
    notes *n = user;
    assert_true(n->count < MAX_LIVES);
    n->lives[n->count++] = *life;
}

static quire_residency_config config_of(notes *n)
{
    quire_residency_config config = QUIRE_RESIDENCY_CONFIG_INIT;
    config.sample_rate = 1;
    config.on_end = note_life;
    config.user = n;
    config.hooks.now_ns = read_clock;
    return config;
}

static quire_pool *make_pool(quire_switch caching)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    quire_pool *pool;
    config.num_blocks = BLOCKS;
    config.enable_caching = caching;
    assert_int_equal(quire_pool_create(&config, NULL, &pool), QUIRE_OK);
    clock_ns = 1000;
    return pool;
}

static quire_residency *follow(quire_pool *pool, notes *n)
{
    quire_residency_config config = config_of(n);
    quire_residency *residency = NULL;
    memset(n, 0, sizeof *n);
    assert_int_equal(quire_residency_create(&config, pool, NULL, &residency), QUIRE_OK);
    return residency;
}

/* One block, handed out at 1000, with a key. */
static quire_block take_cached(quire_pool *pool)
{
    quire_block block;
    unsigned char hash[HASH] = {7};
    assert_int_equal(quire_pool_get_new_blocks(pool, 1, &block), QUIRE_OK);
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = &block,
                                      .num_full_blocks = 1,
                                      .hashes = hash,
                                      .hash_len = HASH,
                                      .num_hashes = 1};
    assert_int_equal(quire_pool_cache_full_blocks(pool, &params), QUIRE_OK);
    return block;
}

static void touch_at(quire_pool *pool, quire_block block, uint64_t now)
{
    clock_ns = now;
    assert_int_equal(quire_pool_touch(pool, &block, 1), QUIRE_OK);
    assert_int_equal(quire_pool_free_blocks(pool, &block, 1), QUIRE_OK);
}

static void a_life_from_birth_to_eviction(void **state)
{
    (void)state;
    notes n;
    quire_pool *pool = make_pool(QUIRE_ON);
    quire_residency *residency = follow(pool, &n);
    quire_block block = take_cached(pool);
    assert_int_equal(quire_pool_free_blocks(pool, &block, 1), QUIRE_OK);
    for (uint64_t hit = 1; hit <= 6; hit++) /* at 2000, 4000, 7000, 11000, ...: gaps grow */
        touch_at(pool, block, 1000 + hit * (hit + 1) * 500);
    assert_int_equal(n.count, 0);
    clock_ns = 30000;
    assert_int_equal(quire_pool_evict_blocks(pool, &block, 1), QUIRE_OK);
    assert_int_equal(n.count, 1);
    assert_true(n.lives[0].block == block && n.lives[0].lifetime_ns == 29000);
    assert_true(n.lives[0].idle_ns == 8000 && n.lives[0].num_gaps == 3);
    assert_true(n.lives[0].gaps_ns[0] == 4000 && n.lives[0].gaps_ns[1] == 5000);
    assert_int_equal(n.lives[0].gaps_ns[2], 6000);
    quire_residency_destroy(residency);
    (void)take_cached(pool); /* nobody listens */
    assert_int_equal(n.count, 1);
    quire_pool_destroy(pool);
}

static void handed_out_again(void **state)
{
    (void)state;
    notes n;
    quire_pool *pool = make_pool(QUIRE_ON);
    quire_residency *residency = follow(pool, &n);
    quire_block blocks[BLOCKS - 1];
    quire_block block = take_cached(pool);
    assert_int_equal(quire_pool_free_blocks(pool, &block, 1), QUIRE_OK);
    clock_ns = 1500;
    assert_int_equal(quire_pool_get_new_blocks(pool, BLOCKS - 1, blocks), QUIRE_OK);
    assert_int_equal(n.count, 1);
    assert_true(n.lives[0].lifetime_ns == 500 && n.lives[0].idle_ns == 500);
    assert_int_equal(n.lives[0].num_gaps, 0);
    assert_int_equal(quire_pool_free_blocks(pool, blocks, BLOCKS - 1), QUIRE_OK);
    assert_int_equal(quire_pool_reset_prefix_cache(pool), QUIRE_OK); /* forgets, tells nothing */
    assert_int_equal(quire_pool_get_new_blocks(pool, 1, blocks), QUIRE_OK);
    assert_int_equal(n.count, 1);
    quire_residency_destroy(residency);
    quire_pool_destroy(pool);
}

static void without_caching_no_life_ends(void **state)
{
    (void)state;
    notes n;
    quire_pool *pool = make_pool(QUIRE_OFF);
    quire_residency *residency = follow(pool, &n);
    quire_block block;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(quire_pool_get_new_blocks(pool, 1, &block), QUIRE_OK);
        assert_int_equal(quire_pool_free_blocks(pool, &block, 1), QUIRE_OK);
    }
    assert_int_equal(n.count, 0);
    quire_residency_destroy(residency);
    quire_pool_destroy(pool);
}

static void metrics_of_the_pool_alone(void **state)
{
    (void)state;
    static char text[1 << 16];
    static char other[1 << 16];
    notes n;
    size_t written = 0;
    quire_pool *pool = make_pool(QUIRE_ON);
    quire_residency *residency = follow(pool, &n);
    quire_block block = take_cached(pool);
    quire_block second;
    assert_int_equal(quire_pool_get_new_blocks(pool, 1, &second), QUIRE_OK);
    clock_ns += 1500000; /* 1.5 ms */
    assert_int_equal(quire_pool_evict_blocks(pool, &block, 1), QUIRE_OK);
    assert_int_equal(quire_residency_write_metrics(residency, NULL, text, sizeof text, &written),
                     QUIRE_OK);
    assert_int_equal(written, strlen(text));
    static const char *const lines[] = {
        "quire_blocks{model_name=\"\",engine=\"0\",tier=\"gpu\",medium=\"GPU\",state=\"active\"} 2",
        "quire_blocks{model_name=\"\",engine=\"0\",tier=\"gpu\",medium=\"GPU\",state=\"empty\"} 2",
        "quire_kv_cache_usage_ratio{model_name=\"\",engine=\"0\"} 0.5",
        "quire_blocks_allocated_total{model_name=\"\",engine=\"0\"} 2",
        "quire_residency_sampled_blocks_total{model_name=\"\",engine=\"0\"} 2",
        "quire_kv_block_lifetime_seconds_bucket{model_name=\"\",engine=\"0\",le=\"0.001\"} 0",
        "quire_kv_block_lifetime_seconds_bucket{model_name=\"\",engine=\"0\",le=\"0.002\"} 1",
        "vllm:kv_block_lifetime_seconds_count{model_name=\"\",engine=\"0\"} 1",
        "vllm:kv_block_idle_before_evict_seconds_sum{model_name=\"\",engine=\"0\"} 0.0015",
        "vllm:kv_block_reuse_gap_seconds_count{model_name=\"\",engine=\"0\"} 0"};
    for (size_t i = 0; i < COUNT(lines); i++)
        if (strstr(text, lines[i]) == NULL)
            fail_msg("\"%s\" is missing in\n%s", lines[i], text);
    assert_null(strstr(text, "quire_requests"));
    assert_null(strstr(text, "quire_steps"));
    assert_null(strstr(text, "config_info"));
    assert_int_equal(quire_residency_write_metrics(residency, NULL, NULL, 0, &written),
                     QUIRE_E_TOO_SMALL);
    assert_int_equal(quire_residency_write_metrics(residency, NULL, other, written, &written),
                     QUIRE_OK);
    assert_string_equal(text, other);
    assert_int_equal(quire_residency_write_metrics(NULL, NULL, text, sizeof text, &written),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_residency_write_metrics(residency, NULL, text, sizeof text, NULL),
                     QUIRE_E_ARGUMENT);
    quire_residency_destroy(residency);
    quire_pool_destroy(pool);
}

static void refusals(void **state)
{
    (void)state;
    notes n;
    quire_pool *pool = make_pool(QUIRE_ON);
    quire_residency_config config = config_of(&n);
    quire_residency *residency = follow(pool, &n);
    quire_residency *second = NULL;
    assert_int_equal(quire_residency_create(&config, pool, NULL, &second), QUIRE_BUSY);
    assert_null(second);
    quire_residency_destroy(residency);
    size_t bytes = quire_residency_bytes(&config, pool);
    void *memory = aligned_alloc(QUIRE_ALIGNMENT, (bytes + 63) / 64 * 64);
    assert_true(bytes > 0 && memory != NULL);
    assert_int_equal(
        quire_residency_create(&config, pool,
                               &(quire_allocator){.memory = memory, .bytes = bytes - 1}, &second),
        QUIRE_E_TOO_SMALL);
    assert_int_equal(quire_residency_create(&config, pool,
                                            &(quire_allocator){.memory = memory, .bytes = bytes},
                                            &second),
                     QUIRE_OK);
    quire_residency_destroy(second);
    free(memory);
    config.sample_rate = 1.5;
    assert_int_equal(quire_residency_bytes(&config, pool), 0);
    assert_int_equal(quire_residency_create(&config, pool, NULL, &second), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "invalid sample_rate 1.5 (expected 0..1)"));
    config.sample_rate = 0;
    config.size = 3;
    assert_int_equal(quire_residency_create(&config, pool, NULL, &second), QUIRE_E_CONFIG);
    config.size = sizeof config;
    assert_int_equal(quire_residency_create(&config, NULL, NULL, &second), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_residency_create(NULL, pool, NULL, &second), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_residency_create(&config, pool, NULL, NULL), QUIRE_E_ARGUMENT);
    quire_residency_destroy(NULL);
    quire_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_life_from_birth_to_eviction),
        cmocka_unit_test(handed_out_again),
        cmocka_unit_test(without_caching_no_life_ends),
        cmocka_unit_test(metrics_of_the_pool_alone),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("obs_residency_pool", tests, NULL, NULL);
}
