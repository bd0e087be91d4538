/* block/test_pool.c - the life of blocks, drawn:
 *
 *      NEEEE  take 2  NAAEE  cache 1  NAAEE  free both  NCEEE  take 4  NAAAA
 */
#include "base/inner.h"
#include "block/pool_kit.h"

/* ---- beginning ------------------------------------------------------------- */

static void new_pool_is_empty(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    kit_assert_draw(&kit, "NEEEE");
    kit_assert_queue(&kit, "1 2 3 4");
    kit_assert_numbers(&kit, 4, 0, 0);
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 0);
    kit_assert_events(&kit, "");
}

static void ids_run_from_1_to_n_minus_1(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 9);
    quire_block blocks[8];
    kit_take(&kit, 8, blocks);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(blocks[i], i + 1);
    kit_assert_draw(&kit, "NAAAAAAAA");
    kit_assert_numbers(&kit, 0, 0, 8);
}

/* The library's own memory is new and not written before; another allocator's is not. */
static void *take_used_memory(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    return memory == NULL ? NULL : memset(memory, 0xa5, bytes);
}

static void return_used_memory(void *user, void *memory, size_t bytes, size_t alignment)
{
    (void)user, (void)bytes, (void)alignment;
    free(memory);
}

static void large_pools_begin_in_order(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    static const quire_allocator used = {.alloc = take_used_memory, .free = return_used_memory};
    quire_block *blocks = malloc(MANY * sizeof *blocks);
    for (int way = 0; way < 2; way++) {
        quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
        quire_pool *pool;
        config.num_blocks = MANY;
        assert_int_equal(quire_pool_create(&config, way == 0 ? NULL : &used, &pool), QUIRE_OK);
        assert_int_equal(quire_pool_check(pool), QUIRE_OK);
        assert_int_equal(quire_pool_get_new_blocks(pool, MANY - 1, blocks), QUIRE_OK);
        for (uint32_t i = 0; i + 1 < MANY; i++)
            assert_int_equal(blocks[i], i + 1);
        assert_int_equal(quire_pool_free_blocks(pool, blocks, MANY - 1), QUIRE_OK);
        assert_int_equal(quire_pool_check(pool), QUIRE_OK);
        quire_pool_destroy(pool);
    }
    free(blocks);
}

static void pool_of_the_null_block_alone(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 1);
    quire_block block = 77;
    kit_assert_draw(&kit, "N");
    kit_assert_queue(&kit, "");
    kit_assert_numbers(&kit, 0, 0, 0);
    assert_int_equal(quire_pool_get_new_blocks(kit.pool, 1, &block), QUIRE_E_RANGE);
    assert_int_equal(quire_pool_get_new_blocks(kit.pool, 0, NULL), QUIRE_OK);
    assert_int_equal(quire_pool_reset_prefix_cache(kit.pool), QUIRE_OK);
    assert_int_equal(block, 77);
    assert_int_equal(quire_pool_check(kit.pool), QUIRE_OK);
}

static void pool_of_two_blocks(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 2);
    quire_block block;
    for (char letter = 'a'; letter < 'e'; letter++) {
        kit_take(&kit, 1, &block);
        assert_int_equal(block, 1);
        kit_cache(&kit, &block, 0, 1, (char[]){letter, '\0'}, 0);
        kit_assert_draw(&kit, "NA");
        kit_free(&kit, &block, 1);
        kit_assert_draw(&kit, "NC");
        assert_int_equal(kit_find(&kit, letter), 1);
        assert_int_equal(kit_find(&kit, (char)(letter - 1)), 0); /* the one before is evicted */
    }
}

/* ---- life ------------------------------------------------------------------ */

static void life_of_a_request(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 8);
    quire_block b[4];
    kit_take(&kit, 3, b);
    kit_assert_draw(&kit, "NAAAEEEE");
    kit_assert_numbers(&kit, 4, 0, 3);
    kit_cache(&kit, b, 0, 2, "ab", 0);
    kit_assert_draw(&kit, "NAAAEEEE"); /* in use, whether it has a key or not */
    kit_assert_numbers(&kit, 4, 0, 3);
    kit_free(&kit, (quire_block[]){b[2], b[1], b[0]}, 3);
    kit_assert_draw(&kit, "NCCEEEEE");
    kit_assert_numbers(&kit, 5, 2, 0);
    kit_assert_queue(&kit, "3 4 5 6 7 2 1"); /* 3 has no key */
    kit_touch(&kit, kit_find(&kit, 'a'));
    kit_assert_draw(&kit, "NACEEEEE");
    kit_assert_numbers(&kit, 5, 1, 1);
    kit_evict(&kit, 1);
    kit_assert_draw(&kit, "NACEEEEE");
    kit_free(&kit, (quire_block[]){1}, 1);
    kit_assert_draw(&kit, "NECEEEEE");
    kit_assert_numbers(&kit, 6, 1, 0);
    assert_int_equal(quire_pool_reset_prefix_cache(kit.pool), QUIRE_OK);
    kit_assert_draw(&kit, "NEEEEEEE");
    kit_assert_queue(&kit, "1 3 4 5 6 7 2"); /* the order stays */
}

static void block_info_says_it_all(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 4);
    quire_block b[2];
    kit_take(&kit, 2, b);
    kit_touch(&kit, 1);
    kit_cache(&kit, b, 0, 1, "a", 7);
    quire_block_info info;
    assert_int_equal(quire_pool_get_block(kit.pool, 0, &info), QUIRE_OK);
    assert_true(info.state == 'N' && info.ref_cnt == 0 && info.hash.data == NULL);
    assert_int_equal(quire_pool_get_block(kit.pool, 1, &info), QUIRE_OK);
    assert_true(info.state == 'A' && info.ref_cnt == 2 && info.group_id == 7);
    assert_int_equal(info.hash.len, 16);
    assert_memory_equal(info.hash.data, "aaaaaaaaaaaaaaaa", 16);
    assert_int_equal(quire_pool_get_block(kit.pool, 2, &info), QUIRE_OK);
    assert_true(info.state == 'A' && info.ref_cnt == 1 && info.hash.data == NULL);
    assert_int_equal(quire_pool_get_block(kit.pool, 3, &info), QUIRE_OK);
    assert_true(info.state == 'E' && info.ref_cnt == 0);
    assert_int_equal(quire_pool_get_block(kit.pool, 4, &info), QUIRE_E_UNKNOWN_BLOCK);
}

static void keys_of_many_blocks_come_together(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 4);
    quire_block b[2];
    quire_block_info keys[4];
    kit_take(&kit, 2, b);
    kit_cache(&kit, b, 0, 1, "a", 7);
    static const quire_block ALL[] = {3, 1, 2, 0};
    assert_int_equal(quire_pool_get_blocks(kit.pool, ALL, 4, keys), QUIRE_OK);
    assert_true(keys[0].hash.data == NULL && keys[2].hash.data == NULL &&
                keys[3].hash.data == NULL);
    assert_true(keys[1].hash.len == 16 && keys[1].group_id == 7);
    assert_true(keys[1].ref_cnt == 1 && keys[1].num_holds == 0 && keys[1].state == 'A');
    assert_int_equal(quire_pool_hold(kit.pool, b, 1), QUIRE_OK);
    assert_int_equal(quire_pool_get_blocks(kit.pool, ALL, 4, keys), QUIRE_OK);
    assert_true(keys[1].ref_cnt == 2 && keys[1].num_holds == 1 && keys[2].num_holds == 0);
    assert_memory_equal(keys[1].hash.data, "aaaaaaaaaaaaaaaa", 16);
    assert_int_equal(quire_pool_get_blocks(kit.pool, NULL, 0, NULL), QUIRE_OK);
    assert_int_equal(quire_pool_get_blocks(kit.pool, (quire_block[]){1, 4}, 2, keys),
                     QUIRE_E_UNKNOWN_BLOCK);
    assert_int_equal(quire_pool_get_blocks(kit.pool, ALL, 4, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_blocks(kit.pool, NULL, 4, keys), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_blocks(NULL, ALL, 4, keys), QUIRE_E_ARGUMENT);
}

/* Requests and holds come and go in any order: the last to go frees the block. */
static void hold_outlives_a_request_and_the_other_way_round(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 4);
    quire_block b[2];
    kit_take(&kit, 2, b);
    static const quire_block BOTH[] = {1, 2};
    assert_int_equal(quire_pool_count_unheld(kit.pool, BOTH, 2), 2);
    assert_int_equal(quire_pool_hold(kit.pool, BOTH, 2), QUIRE_OK);
    assert_int_equal(quire_pool_count_unheld(kit.pool, BOTH, 2), 0);
    kit_free(&kit, (quire_block[]){1}, 1); /* 1: the request goes first */
    kit_assert_draw(&kit, "NAAE");
    assert_int_equal(quire_pool_free_blocks(kit.pool, BOTH, 1), QUIRE_E_DOUBLE_FREE);
    kit_touch(&kit, 1); /* another finds it */
    assert_int_equal(quire_pool_let_go(kit.pool, BOTH, 2, 0), QUIRE_OK);
    assert_int_equal(quire_pool_count_unheld(kit.pool, BOTH, 2), 2);
    kit_assert_draw(&kit, "NAAE");
    assert_int_equal(quire_pool_let_go(kit.pool, BOTH, 2, 0), QUIRE_E_DOUBLE_FREE);
    kit_free(&kit, (quire_block[]){1, 2}, 2);
    kit_assert_queue(&kit, "1 2 3");
    assert_int_equal(quire_pool_hold(kit.pool, BOTH, 2), QUIRE_OK); /* blocks that nobody uses */
    kit_assert_queue(&kit, "3");
    assert_int_equal(quire_pool_let_go(kit.pool, BOTH, 2, 1), QUIRE_OK);
    kit_assert_queue(&kit, "1 2 3");
    assert_int_equal(quire_pool_count_unheld(kit.pool, (quire_block[]){1, 4}, 2), 1); /* no block */
    assert_int_equal(quire_pool_count_unheld(kit.pool, NULL, 2), 0);
    assert_int_equal(quire_pool_count_unheld(NULL, BOTH, 2), 0);
}

static void shared_block_counts_once(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 4);
    quire_block b;
    kit_take(&kit, 1, &b);
    for (int i = 0; i < 5; i++)
        kit_touch(&kit, b);
    kit_assert_numbers(&kit, 2, 0, 1);
    for (int i = 0; i < 5; i++)
        kit_free(&kit, &b, 1);
    kit_assert_draw(&kit, "NAEE");
    kit_free(&kit, &b, 1);
    kit_assert_draw(&kit, "NEEE");
    kit_assert_queue(&kit, "1 2 3");
}

static void block_freed_twice_in_one_call_joins_once(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 4);
    quire_block b[2];
    kit_take(&kit, 2, b);
    kit_touch(&kit, 1);
    kit_free(&kit, (quire_block[]){1, 2, 1}, 3);
    kit_assert_queue(&kit, "2 1 3");
}

static void touch_twice_in_one_call_counts_twice(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 4);
    static const quire_block TWICE[] = {2, 2};
    assert_int_equal(quire_pool_touch(kit.pool, TWICE, 2), QUIRE_OK);
    kit_assert_draw(&kit, "NEAE");
    kit_assert_queue(&kit, "1 3");
    quire_block_info info;
    assert_int_equal(quire_pool_get_block(kit.pool, 2, &info), QUIRE_OK);
    assert_int_equal(info.ref_cnt, 2);
}

/* ---- eviction -------------------------------------------------------------- */

static void tail_of_a_request_goes_before_its_head(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 4);
    quire_block b[3];
    kit_take(&kit, 3, b);
    kit_cache(&kit, b, 0, 3, "abc", 0);
    kit_free(&kit, (quire_block[]){3, 2, 1}, 3);
    static const char *const DRAWN[] = {"NCCA", "NCAA", "NAAA"};
    for (uint32_t i = 0; i < 3; i++) {
        quire_block got;
        kit_take(&kit, 1, &got);
        assert_int_equal(got, 3 - i);
        kit_assert_draw(&kit, DRAWN[i]);
        assert_int_equal(kit_find(&kit, (char)('c' - i)), 0);
    }
}

static void least_recently_freed_goes_first(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 4);
    quire_block b[3];
    kit_take(&kit, 3, b);
    kit_cache(&kit, b, 0, 3, "abc", 0);
    kit_free(&kit, (quire_block[]){2}, 1);
    kit_free(&kit, (quire_block[]){1}, 1);
    kit_free(&kit, (quire_block[]){3}, 1);
    kit_assert_queue(&kit, "2 1 3");
    kit_touch(&kit, 2); /* a hit, and freed again: now the youngest */
    kit_free(&kit, (quire_block[]){2}, 1);
    kit_assert_queue(&kit, "1 3 2");
    quire_block got[2];
    kit_take(&kit, 2, got);
    assert_int_equal(got[0] * 10 + got[1], 13);
    assert_int_equal(kit_find(&kit, 'b'), 2);
}

static void evicted_blocks_keep_users_and_place(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    quire_block b[3];
    kit_take(&kit, 3, b);
    kit_cache(&kit, b, 0, 3, "abc", 0);
    kit_free(&kit, (quire_block[]){1, 2}, 2);
    static const quire_block ALL[] = {3, 1, 4, 1};
    assert_int_equal(quire_pool_evict_blocks(kit.pool, ALL, 4), QUIRE_OK);
    kit_assert_draw(&kit, "NECAE");
    kit_assert_queue(&kit, "4 1 2");
    assert_int_equal(kit_find(&kit, 'c'), 0);
    assert_int_equal(kit_find(&kit, 'b'), 2);
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 1);
}

static void duplicate_takes_over_when_the_first_is_evicted(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 4);
    quire_block b[3];
    kit_take(&kit, 3, b);
    kit_cache(&kit, &b[0], 0, 1, "a", 0);
    kit_cache(&kit, &b[1], 0, 1, "a", 0);
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 1);
    assert_int_equal(kit_find(&kit, 'a'), 1);
    kit_evict(&kit, 1);
    assert_int_equal(kit_find(&kit, 'a'), 2);
    kit_evict(&kit, 2);
    assert_int_equal(kit_find(&kit, 'a'), 0);
}

/* ---- finding --------------------------------------------------------------- */

/* Blocks 1 2 3 in group 4 and 5 6 in group 9 have hashes a b c and a b. */
static void open_two_groups(pool_kit *kit)
{
    kit_open(kit, 8);
    quire_block b[6];
    kit_take(kit, 6, b);
    kit_cache(kit, b, 0, 3, "abc", 4);
    kit_cache(kit, b + 4, 0, 2, "ab", 9);
}

static void block_of_every_group_or_none(void **state)
{
    (void)state;
    pool_kit kit;
    open_two_groups(&kit);
    static const uint32_t GROUPS[] = {4, 9};
    unsigned char hashes[3 * 16];
    kit_hashes(&kit, "abc", hashes);
    quire_bytes b = {hashes + 16, 16};
    quire_bytes c = {hashes + 32, 16};
    quire_block found[2] = {77, 77};
    assert_int_equal(quire_pool_get_cached_block(kit.pool, b, GROUPS, 2, found), QUIRE_OK);
    assert_int_equal(found[0] * 10 + found[1], 26);
    found[0] = found[1] = 77;
    assert_int_equal(quire_pool_get_cached_block(kit.pool, c, GROUPS, 2, found), QUIRE_MISS);
    assert_int_equal(found[0] * 100 + found[1], 7777); /* untouched, though the first has it */
    assert_int_equal(quire_pool_get_cached_block(kit.pool, c, GROUPS, 1, found), QUIRE_OK);
    assert_int_equal(found[0], 3);
}

static void prefix_is_as_long_as_the_shortest_group(void **state)
{
    (void)state;
    pool_kit kit;
    open_two_groups(&kit);
    static const uint32_t GROUPS[] = {4, 9};
    unsigned char hashes[4 * 16];
    kit_hashes(&kit, "abcd", hashes);
    quire_block found[8];
    uint32_t hit = 77;
    assert_int_equal(quire_pool_get_cached_prefix(kit.pool, hashes, 16, 4, GROUPS, 2, found, &hit),
                     QUIRE_OK);
    assert_int_equal(hit, 2);
    static const quire_block WANTED[] = {1, 5, 2, 6};
    assert_memory_equal(found, WANTED, sizeof WANTED);
    assert_int_equal(quire_pool_get_cached_prefix(kit.pool, hashes, 16, 4, GROUPS, 1, found, &hit),
                     QUIRE_OK);
    assert_int_equal(hit, 3);
    assert_int_equal(found[0] * 100 + found[1] * 10 + found[2], 123);
}

static void each_is_found_wherever_it_stands(void **state)
{
    (void)state;
    pool_kit kit;
    open_two_groups(&kit);
    unsigned char hashes[6 * 16];
    kit_hashes(&kit, "zbdacb", hashes);
    quire_block found[6] = {77, 77, 77, 77, 77, 77};
    assert_int_equal(quire_pool_get_cached_each(kit.pool, hashes, 16, 6, 4, found), QUIRE_OK);
    static const quire_block IN_4[] = {0, 2, 0, 1, 3, 2};
    assert_memory_equal(found, IN_4, sizeof IN_4);
    assert_int_equal(quire_pool_get_cached_each(kit.pool, hashes, 16, 6, 9, found), QUIRE_OK);
    static const quire_block IN_9[] = {0, 6, 0, 5, 0, 6};
    assert_memory_equal(found, IN_9, sizeof IN_9);
    assert_int_equal(quire_pool_get_cached_each(kit.pool, hashes, 16, 6, 5, found), QUIRE_OK);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(found[i], QUIRE_NULL_BLOCK);
    assert_int_equal(quire_pool_get_cached_each(kit.pool, hashes, 15, 1, 4, found), QUIRE_E_RANGE);
    assert_int_equal(quire_pool_get_cached_each(NULL, hashes, 16, 1, 4, found), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_get_cached_each(kit.pool, hashes, 16, 1, 4, NULL),
                     QUIRE_E_ARGUMENT);
}

static void prefix_of_nothing(void **state)
{
    (void)state;
    pool_kit kit;
    open_two_groups(&kit);
    static const uint32_t OTHER[] = {5};
    unsigned char hashes[16];
    kit_hashes(&kit, "a", hashes);
    quire_block found[1] = {77};
    uint32_t hit = 77;
    assert_int_equal(quire_pool_get_cached_prefix(kit.pool, NULL, 16, 0, NULL, 1, NULL, &hit),
                     QUIRE_OK);
    assert_int_equal(hit, 0);
    assert_int_equal(quire_pool_get_cached_prefix(kit.pool, hashes, 16, 1, OTHER, 1, found, &hit),
                     QUIRE_OK);
    assert_int_equal(hit, 0);
}

static void shorter_hashes_than_the_pools_are_fine(void **state)
{
    (void)state;
    pool_kit kit;
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = 4;
    config.hash_bytes = 48;
    kit_open_with(&kit, config);
    quire_block b[2];
    kit_take(&kit, 2, b);
    unsigned char hashes[2 * 16];
    memset(hashes, 'a', 16);
    memset(hashes + 16, 'b', 16);
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = b,
                                      .num_full_blocks = 2,
                                      .hashes = hashes,
                                      .hash_len = 16,
                                      .num_hashes = 2};
    assert_int_equal(quire_pool_cache_full_blocks(kit.pool, &params), QUIRE_OK);
    uint32_t group = 0;
    quire_block found = 0;
    assert_int_equal(
        quire_pool_get_cached_block(kit.pool, (quire_bytes){hashes + 16, 16}, &group, 1, &found),
        QUIRE_OK);
    assert_int_equal(found, 2);
    assert_int_equal(
        quire_pool_get_cached_block(kit.pool, (quire_bytes){hashes, 32}, &group, 1, &found),
        QUIRE_MISS);
}

/* ---- caching off ----------------------------------------------------------- */

static void without_caching_everything_is_a_miss(void **state)
{
    (void)state;
    pool_kit kit;
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = 4;
    config.enable_caching = QUIRE_OFF;
    kit_open_with(&kit, config);
    assert_int_equal(kit_find(&kit, 'a'), 0);
    unsigned char hashes[32] = {0};
    uint32_t group = 0;
    uint32_t hit = 77;
    quire_block b[3];
    assert_int_equal(quire_pool_get_cached_prefix(kit.pool, hashes, 32, 1, &group, 1, b, &hit),
                     QUIRE_OK);
    assert_int_equal(hit, 0);
    kit_take(&kit, 3, b);
    quire_block_info keys[3];
    assert_int_equal(quire_pool_get_blocks(kit.pool, b, 3, keys), QUIRE_OK);
    assert_true(keys[0].hash.data == NULL && keys[1].hash.data == NULL &&
                keys[2].hash.data == NULL);
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = b,
                                      .num_full_blocks = 1,
                                      .hashes = hashes,
                                      .hash_len = 16,
                                      .num_hashes = 1};
    assert_int_equal(quire_pool_cache_full_blocks(kit.pool, &params), QUIRE_E_DISABLED);
    kit_evict(&kit, 1);
    kit_free(&kit, b, 3);
    kit_assert_draw(&kit, "NEEE");
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 0);
    assert_int_equal(quire_pool_reset_prefix_cache(kit.pool), QUIRE_OK);
}

static void caching_off_takes_less_memory(void **state)
{
    (void)state;
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = 1000;
    size_t on = quire_pool_bytes(&config);
    config.enable_caching = QUIRE_OFF;
    size_t off = quire_pool_bytes(&config);
    assert_true(off >= 1000 * 64 && off < 1000 * 65 + 1024);
    assert_true(on >= off + 1000 / 6 * 64 && on < off + 1000 / 6 * 64 + 1024); /* six in a bucket */
    config.enable_caching = QUIRE_ON;
    config.hash_bytes = 48; /* longer than a record has room for */
    size_t long_hashes = quire_pool_bytes(&config);
    assert_true(long_hashes >= on + 1000 * 48 && long_hashes < on + 1000 * 48 + 1024);
}

/* ---- two pools ------------------------------------------------------------- */

static void keys_of_another_pool(void **state)
{
    (void)state;
    static pool_kit near;
    static pool_kit far;
    quire_block blocks[4];
    quire_block copies[4];
    quire_block found[5];
    kit_open(&near, 8);
    kit_open(&far, 6);
    kit_take(&near, 4, blocks);
    kit_cache(&near, blocks, 0, 3, "abc", 0); /* the fourth has no key */
    kit_take(&far, 4, copies);
    assert_int_equal(inner_cache_same(far.pool, copies + 2, near.pool, blocks, 1), QUIRE_OK);
    kit_assert_events(&far, "stored 3 at 0 a in 0; ");
    assert_int_equal(quire_pool_find_same(far.pool, near.pool, blocks, 4, found), QUIRE_OK);
    const quire_block wanted[] = {3, 0, 0, UINT32_MAX};
    assert_memory_equal(found, wanted, sizeof wanted);
    assert_int_equal(inner_cache_same(far.pool, copies, near.pool, blocks + 2, 2), QUIRE_OK);
    assert_int_equal(kit_find(&far, 'c'), copies[0]);
    assert_int_equal(quire_pool_check(far.pool), QUIRE_OK);

    kit_remember(&far);
    quire_block wrong = 8;
    assert_int_equal(quire_pool_find_same(far.pool, near.pool, &wrong, 1, found),
                     QUIRE_E_UNKNOWN_BLOCK);
    assert_int_equal(quire_pool_find_same(far.pool, NULL, &wrong, 1, found), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_pool_find_same(far.pool, near.pool, NULL, 1, found), QUIRE_E_ARGUMENT);
    kit_assert_unchanged(&far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_pool_is_empty),
        cmocka_unit_test(ids_run_from_1_to_n_minus_1),
        cmocka_unit_test(large_pools_begin_in_order),
        cmocka_unit_test(pool_of_the_null_block_alone),
        cmocka_unit_test(pool_of_two_blocks),
        cmocka_unit_test(life_of_a_request),
        cmocka_unit_test(block_info_says_it_all),
        cmocka_unit_test(keys_of_many_blocks_come_together),
        cmocka_unit_test(hold_outlives_a_request_and_the_other_way_round),
        cmocka_unit_test(shared_block_counts_once),
        cmocka_unit_test(block_freed_twice_in_one_call_joins_once),
        cmocka_unit_test(touch_twice_in_one_call_counts_twice),
        cmocka_unit_test(tail_of_a_request_goes_before_its_head),
        cmocka_unit_test(least_recently_freed_goes_first),
        cmocka_unit_test(evicted_blocks_keep_users_and_place),
        cmocka_unit_test(duplicate_takes_over_when_the_first_is_evicted),
        cmocka_unit_test(block_of_every_group_or_none),
        cmocka_unit_test(prefix_is_as_long_as_the_shortest_group),
        cmocka_unit_test(each_is_found_wherever_it_stands),
        cmocka_unit_test(prefix_of_nothing),
        cmocka_unit_test(shorter_hashes_than_the_pools_are_fine),
        cmocka_unit_test(without_caching_everything_is_a_miss),
        cmocka_unit_test(caching_off_takes_less_memory),
        cmocka_unit_test(keys_of_another_pool),
    };
    return cmocka_run_group_tests_name("block_pool", tests, NULL, NULL);
}
