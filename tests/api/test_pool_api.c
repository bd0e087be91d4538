/* api/test_pool_api.c - quire/pool.h: what every call must refuse, what a pool remembers of its
 * config, and that it keeps no pointer of the caller's. */
#include "base/unit.h"

#include <quire/pool.h>

enum { ROOM = 8192, NUM_BLOCKS = 8 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];

static quire_pool_config small_config(void)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = NUM_BLOCKS;
    return config;
}

static quire_pool *make_in_memory(void)
{
    quire_pool_config config = small_config();
    quire_pool *pool = NULL;
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &pool),
        QUIRE_OK);
    return pool;
}

/* ---- making ---------------------------------------------------------------- */

static void making_refuses_null(void **state)
{
    (void)state;
    quire_pool_config config = small_config();
    quire_pool *pool = NULL;
    assert_int_equal(quire_pool_bytes(NULL), 0);
    assert_int_equal(quire_pool_create(NULL, NULL, &pool), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_create(&config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = NULL, .bytes = ROOM}, &pool),
        QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_pool_create(NULL, &(quire_allocator){.memory = memory, .bytes = ROOM}, &pool),
        QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, NULL),
        QUIRE_E_ARGUMENT);
    assert_null(pool);
    quire_pool_destroy(NULL);
}

static void assert_config_refused(quire_pool_config config)
{
    quire_pool *pool = NULL;
    assert_int_equal(quire_pool_bytes(&config), 0);
    assert_int_equal(quire_pool_create(&config, NULL, &pool), QUIRE_E_CONFIG);
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &pool),
        QUIRE_E_CONFIG);
    assert_null(pool);
}

static void making_refuses_bad_configs(void **state)
{
    (void)state;
    quire_pool_config config = small_config();
    config.size = 0;
    assert_config_refused(config);
    config = small_config();
    config.num_blocks = 0;
    assert_config_refused(config);
    config.num_blocks = QUIRE_MAX_BLOCKS + 1;
    assert_config_refused(config);
    config = small_config();
    config.enable_caching = (quire_switch)3;
    assert_config_refused(config);
    static const uint32_t HASH_BYTES[] = {1, 15, 17, 4081, 4096, UINT32_MAX};
    for (size_t i = 0; i < COUNT(HASH_BYTES); i++) {
        config = small_config();
        config.hash_bytes = HASH_BYTES[i];
        assert_config_refused(config);
    }
    config.hash_bytes = 4080;
    assert_int_not_equal(quire_pool_bytes(&config), 0);
}

static void making_refuses_bad_memory_unwritten(void **state)
{
    (void)state;
    quire_pool_config config = small_config();
    quire_pool *pool = NULL;
    size_t bytes = quire_pool_bytes(&config);
    memset(memory, 0x77, ROOM);
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = memory, .bytes = bytes - 1}, &pool),
        QUIRE_E_TOO_SMALL);
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = memory, .bytes = 0}, &pool),
        QUIRE_E_TOO_SMALL);
    for (size_t off = 1; off < QUIRE_ALIGNMENT; off++)
        assert_int_equal(
            quire_pool_create(&config, &(quire_allocator){.memory = memory + off, .bytes = bytes},
                              &pool),
            QUIRE_E_ALIGNMENT);
    for (size_t i = 0; i < ROOM; i++)
        assert_int_equal(memory[i], 0x77);
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = memory, .bytes = bytes}, &pool),
        QUIRE_OK);
    assert_int_equal(quire_pool_check(pool), QUIRE_OK);
    for (size_t i = bytes; i < ROOM; i++)
        assert_int_equal(memory[i], 0x77);
}

static int broken_dice(void *user, void *out, size_t bytes)
{
    (void)user;
    memset(out, 0, bytes);
    return 1;
}

static void making_needs_random_bytes(void **state)
{
    (void)state;
    quire_pool_config config = small_config();
    quire_pool *pool = NULL;
    config.hooks.random_bytes = broken_dice;
    assert_int_equal(quire_pool_create(&config, NULL, &pool), QUIRE_E_RANDOM);
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &pool),
        QUIRE_E_RANDOM);
    assert_null(pool);
}

/* ---- no pool --------------------------------------------------------------- */

static void assert_nothing_can_be_seen(const quire_pool *pool)
{
    quire_block block = 77;
    quire_block_info info;
    char drawn[NUM_BLOCKS + 1];
    quire_usage usage = quire_pool_get_usage(pool);
    assert_int_equal(usage.total + usage.empty + usage.cached + usage.active + usage.null_blocks,
                     0);
    assert_int_equal(quire_pool_get_num_free_blocks(pool), 0);
    assert_true(quire_usage_level(quire_pool_get_usage(pool)) == 0.0);
    assert_int_equal(quire_pool_get_block(pool, 1, &info), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_all_free_blocks(pool, &block, 1), 0);
    assert_int_equal(quire_pool_get_counts(pool).num_keys, 0);
    assert_int_equal(quire_pool_draw(pool, 0, 1, drawn), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_check(pool), QUIRE_E_ARGUMENT);
}

static void assert_no_pool(quire_pool *pool)
{
    static const unsigned char HASH[32] = {0};
    quire_block block = 77;
    uint32_t group = 0;
    uint32_t hit = 77;
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = &block,
                                      .num_full_blocks = 1,
                                      .hashes = HASH,
                                      .hash_len = 32,
                                      .num_hashes = 1};
    assert_int_equal(quire_pool_get_cached_block(pool, (quire_bytes){HASH, 32}, &group, 1, &block),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_cached_prefix(pool, HASH, 32, 1, &group, 1, &block, &hit),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_new_blocks(pool, 1, &block), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_touch(pool, &block, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_free_blocks(pool, &block, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_cache_full_blocks(pool, &params), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_evict_blocks(pool, &block, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_reset_prefix_cache(pool), QUIRE_E_ARGUMENT);
    assert_nothing_can_be_seen(pool);
    assert_true(block == 77 && hit == 77);
}

static void no_pool_is_an_argument_error(void **state)
{
    (void)state;
    assert_no_pool(NULL);
    quire_pool *pool = make_in_memory();
    quire_pool_destroy(pool);
    assert_no_pool(pool); /* its memory is still ours */
    quire_pool_destroy(pool);
}

/* ---- NULL arrays ----------------------------------------------------------- */

static void null_arrays_are_argument_errors(void **state)
{
    (void)state;
    quire_pool *pool = make_in_memory();
    assert_int_equal(quire_pool_get_new_blocks(pool, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_touch(pool, NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_free_blocks(pool, NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_evict_blocks(pool, NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_block(pool, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_draw(pool, 0, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_all_free_blocks(pool, NULL, 1), 0);
    assert_int_equal(quire_pool_cache_full_blocks(pool, NULL), QUIRE_E_ARGUMENT);
    unsigned char hash[32] = {0};
    quire_block block = 1;
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .num_full_blocks = 1,
                                      .hashes = hash,
                                      .hash_len = 32,
                                      .num_hashes = 1};
    assert_int_equal(quire_pool_cache_full_blocks(pool, &params), QUIRE_E_ARGUMENT);
    params.blocks = &block;
    params.hashes = NULL;
    assert_int_equal(quire_pool_cache_full_blocks(pool, &params), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_num_free_blocks(pool), NUM_BLOCKS - 1);
    assert_int_equal(quire_pool_check(pool), QUIRE_OK);
}

static void null_arrays_of_a_lookup(void **state)
{
    (void)state;
    quire_pool *pool = make_in_memory();
    unsigned char bytes[32] = {0};
    quire_bytes hash = {bytes, 32};
    quire_bytes no_hash = {NULL, 32};
    quire_block out = 77;
    uint32_t group = 0;
    uint32_t hit = 77;
    assert_int_equal(quire_pool_get_cached_block(pool, no_hash, &group, 1, &out), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_cached_block(pool, hash, NULL, 1, &out), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_cached_block(pool, hash, &group, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_cached_prefix(pool, NULL, 32, 1, &group, 1, &out, &hit),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_cached_prefix(pool, bytes, 32, 1, NULL, 1, &out, &hit),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_cached_prefix(pool, bytes, 32, 1, &group, 1, NULL, &hit),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_cached_prefix(pool, bytes, 32, 1, &group, 1, &out, NULL),
                     QUIRE_E_ARGUMENT);
    assert_true(out == 77 && hit == 77);
}

/* ---- nothing of the caller's is kept --------------------------------------- */

static void count_event(void *user, const quire_event *event)
{
    (void)event;
    ++*(unsigned *)user;
}

static void callers_memory_may_change_after_each_call(void **state)
{
    (void)state;
    unsigned events = 0;
    quire_pool_config config = small_config();
    config.on_event = count_event;
    config.event_user = &events;
    quire_pool *pool = NULL;
    assert_int_equal(quire_pool_create(&config, NULL, &pool), QUIRE_OK);
    memset(&config, 0xee, sizeof config);
    quire_block blocks[2];
    assert_int_equal(quire_pool_get_new_blocks(pool, 2, blocks), QUIRE_OK);
    unsigned char hashes[2][32];
    memset(hashes[0], 'a', 32);
    memset(hashes[1], 'b', 32);
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = blocks,
                                      .num_full_blocks = 2,
                                      .hashes = hashes,
                                      .hash_len = 32,
                                      .num_hashes = 2};
    assert_int_equal(quire_pool_cache_full_blocks(pool, &params), QUIRE_OK);
    memset(&params, 0xee, sizeof params);
    memset(hashes, 0xee, sizeof hashes);
    memset(blocks, 0xee, sizeof blocks);
    assert_int_equal(events, 1);
    unsigned char wanted[32];
    uint32_t group = 0;
    quire_block found = 0;
    memset(wanted, 'b', 32);
    assert_int_equal(
        quire_pool_get_cached_block(pool, (quire_bytes){wanted, 32}, &group, 1, &found), QUIRE_OK);
    assert_int_equal(found, 2);
    assert_int_equal(quire_pool_check(pool), QUIRE_OK);
    quire_pool_destroy(pool);
}

/* ---- the log --------------------------------------------------------------- */

static void no_log(void *user, quire_log_level level, const char *message)
{
    (void)user;
    (void)level;
    (void)message;
    fail(); /* nothing of what happens here is worth a message */
}

static void plain_work_and_errors_are_not_logged(void **state)
{
    (void)state;
    quire_pool_config config = small_config();
    config.hooks.log = no_log;
    quire_pool *pool = NULL;
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &pool),
        QUIRE_OK);
    quire_block blocks[NUM_BLOCKS] = {0};
    assert_int_equal(quire_pool_get_new_blocks(pool, 3, blocks), QUIRE_OK);
    assert_int_equal(quire_pool_get_new_blocks(pool, 7, blocks + 3), QUIRE_NO_SPACE);
    assert_int_equal(quire_pool_free_blocks(pool, blocks, 4), QUIRE_E_NULL_BLOCK);
    assert_int_equal(quire_pool_free_blocks(pool, blocks, 3), QUIRE_OK);
    quire_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(making_refuses_null),
        cmocka_unit_test(making_refuses_bad_configs),
        cmocka_unit_test(making_refuses_bad_memory_unwritten),
        cmocka_unit_test(making_needs_random_bytes),
        cmocka_unit_test(no_pool_is_an_argument_error),
        cmocka_unit_test(null_arrays_are_argument_errors),
        cmocka_unit_test(null_arrays_of_a_lookup),
        cmocka_unit_test(callers_memory_may_change_after_each_call),
        cmocka_unit_test(plain_work_and_errors_are_not_logged),
    };
    return cmocka_run_group_tests_name("api_pool", tests, NULL, NULL);
}
