/* block/test_pool_errors.c - every call that does not return QUIRE_OK leaves the pool as it was,
 * byte for byte, and tells no event.
 *
 * All start from the same pool, "NAAACCEE": 1 and 2 have the keys a and b, 1 has two users; 4 and 5
 * have the keys d and e and no user. The queue is 6 7 5 4. */
#include "block/pool.h"
#include "block/pool_kit.h"

static void open_standard(pool_kit *kit)
{
    kit_open(kit, 8);
    quire_block b[5];
    kit_take(kit, 5, b);
    kit_touch(kit, 1);
    kit_cache(kit, b, 0, 2, "ab", 0);
    kit_cache(kit, b, 3, 5, "abcde", 0);
    kit_free(kit, (quire_block[]){5, 4}, 2);
    kit_assert_draw(kit, "NAAACCEE");
    kit_assert_queue(kit, "6 7 5 4");
    kit_remember(kit);
}

/* ---- get_new_blocks -------------------------------------------------------- */

static void too_many_now_is_no_space(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    quire_block out[8] = {77, 77, 77, 77, 77, 77, 77, 77};
    for (uint32_t n = 5; n <= 7; n++)
        assert_int_equal(quire_pool_get_new_blocks(kit.pool, n, out), QUIRE_NO_SPACE);
    kit_assert_unchanged(&kit);
    for (size_t i = 0; i < COUNT(out); i++)
        assert_int_equal(out[i], 77);
}

static void too_many_ever_is_out_of_range(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    quire_block out[8];
    assert_int_equal(quire_pool_get_new_blocks(kit.pool, 8, out), QUIRE_E_RANGE);
    assert_int_equal(quire_pool_get_new_blocks(kit.pool, UINT32_MAX, out), QUIRE_E_RANGE);
    kit_assert_unchanged(&kit);
}

/* ---- lists of blocks ------------------------------------------------------- */

typedef int list_call(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks);

/* A good block, then the bad one, then a good one: the first must not have changed either. */
static void assert_list_refused(list_call *call, quire_block bad, int status)
{
    pool_kit kit;
    open_standard(&kit);
    assert_int_equal(call(kit.pool, (quire_block[]){bad}, 1), status);
    kit_assert_unchanged(&kit);
    assert_int_equal(call(kit.pool, (quire_block[]){1, 2, bad, 3}, 4), status);
    kit_assert_unchanged(&kit);
    assert_int_equal(call(kit.pool, (quire_block[]){1, 1, bad}, 3), status);
    kit_assert_unchanged(&kit);
}

static void unknown_block_is_refused(void **state)
{
    (void)state;
    static const quire_block UNKNOWN[] = {8, 9, 1000, UINT32_MAX};
    for (size_t i = 0; i < COUNT(UNKNOWN); i++) {
        assert_list_refused(quire_pool_touch, UNKNOWN[i], QUIRE_E_UNKNOWN_BLOCK);
        assert_list_refused(quire_pool_free_blocks, UNKNOWN[i], QUIRE_E_UNKNOWN_BLOCK);
        assert_list_refused(quire_pool_evict_blocks, UNKNOWN[i], QUIRE_E_UNKNOWN_BLOCK);
    }
}

static void null_block_is_refused(void **state)
{
    (void)state;
    assert_list_refused(quire_pool_touch, QUIRE_NULL_BLOCK, QUIRE_E_NULL_BLOCK);
    assert_list_refused(quire_pool_free_blocks, QUIRE_NULL_BLOCK, QUIRE_E_NULL_BLOCK);
    assert_list_refused(quire_pool_evict_blocks, QUIRE_NULL_BLOCK, QUIRE_E_NULL_BLOCK);
}

static void free_without_a_user_is_refused(void **state)
{
    (void)state;
    assert_list_refused(quire_pool_free_blocks, 4, QUIRE_E_DOUBLE_FREE);
    assert_list_refused(quire_pool_free_blocks, 6, QUIRE_E_DOUBLE_FREE);
}

static void free_more_often_than_used_is_refused(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    static const quire_block THRICE[] = {1, 3, 1, 1};
    assert_int_equal(quire_pool_free_blocks(kit.pool, THRICE, 4), QUIRE_E_DOUBLE_FREE);
    kit_assert_unchanged(&kit);
    assert_int_equal(quire_pool_free_blocks(kit.pool, THRICE, 3), QUIRE_OK);
    kit_assert_draw(&kit, "NCAECCEE");
}

static void touch_past_the_last_reference_is_refused(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    kit.pool->queue.blocks[1].ref_cnt = UINT32_MAX;
    kit_remember(&kit);
    static const quire_block LIST[] = {2, 1};
    assert_int_equal(quire_pool_touch(kit.pool, LIST, 2), QUIRE_E_OVERFLOW);
    kit_assert_unchanged(&kit);
    kit.pool->queue.blocks[1].ref_cnt = UINT32_MAX - 1;
    kit_remember(&kit);
    static const quire_block TWICE[] = {1, 1};
    assert_int_equal(quire_pool_touch(kit.pool, TWICE, 2), QUIRE_E_OVERFLOW);
    kit_assert_unchanged(&kit);
    kit_touch(&kit, 1);
}

static void empty_lists_do_nothing(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    assert_int_equal(quire_pool_touch(kit.pool, NULL, 0), QUIRE_OK);
    assert_int_equal(quire_pool_free_blocks(kit.pool, NULL, 0), QUIRE_OK);
    assert_int_equal(quire_pool_evict_blocks(kit.pool, NULL, 0), QUIRE_OK);
    assert_int_equal(quire_pool_get_new_blocks(kit.pool, 0, NULL), QUIRE_OK);
    kit_assert_unchanged(&kit);
}

/* ---- cache_full_blocks ----------------------------------------------------- */

/* Blocks 3 6 7 without keys, as a good request; each test spoils one thing. */
typedef struct request {
    quire_block blocks[4];
    unsigned char hashes[4 * 16];
    quire_cache_full_params params;
} request;

static void good_request(const pool_kit *kit, request *r)
{
    *r = (request){.blocks = {3, 6, 7, 0}};
    kit_hashes(kit, "wxyz", r->hashes);
    r->params = (quire_cache_full_params){.size = sizeof(quire_cache_full_params),
                                          .blocks = r->blocks,
                                          .num_full_blocks = 3,
                                          .hashes = r->hashes,
                                          .hash_len = 16,
                                          .num_hashes = 4};
}

static void assert_cache_refused(pool_kit *kit, const request *r, int status)
{
    kit_remember(kit);
    assert_int_equal(quire_pool_cache_full_blocks(kit->pool, &r->params), status);
    kit_assert_unchanged(kit);
    assert_int_equal(quire_pool_check(kit->pool), QUIRE_OK);
}

static void cache_refuses_unknown_blocks(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    request r;
    for (uint32_t place = 0; place < 3; place++) {
        good_request(&kit, &r);
        r.blocks[place] = 8;
        assert_cache_refused(&kit, &r, QUIRE_E_UNKNOWN_BLOCK);
    }
}

static void cache_refuses_blocks_with_keys(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    request r;
    for (uint32_t place = 0; place < 3; place++) {
        good_request(&kit, &r);
        r.blocks[place] = 4;
        assert_cache_refused(&kit, &r, QUIRE_E_ALREADY_CACHED);
    }
}

static void cache_refuses_a_block_listed_twice(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    request r;
    good_request(&kit, &r);
    r.blocks[2] = r.blocks[0];
    assert_cache_refused(&kit, &r, QUIRE_E_ALREADY_CACHED);
}

static void cache_refuses_too_few_hashes(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    request r;
    good_request(&kit, &r);
    r.params.num_hashes = 2;
    assert_cache_refused(&kit, &r, QUIRE_E_RANGE);
}

static void cache_refuses_group_ids_that_do_not_fit(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    request r;
    good_request(&kit, &r);
    r.params.group_id = 65536;
    assert_cache_refused(&kit, &r, QUIRE_E_RANGE);
    r.params.group_id = 65535;
    assert_int_equal(quire_pool_cache_full_blocks(kit.pool, &r.params), QUIRE_OK);
}

static void cache_refuses_hash_lengths_that_do_not_fit(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    request r;
    good_request(&kit, &r);
    static const size_t LENGTHS[] = {1, 15, 17, 32, SIZE_MAX, SIZE_MAX - 15};
    for (size_t i = 0; i < COUNT(LENGTHS); i++) {
        r.params.hash_len = LENGTHS[i];
        assert_cache_refused(&kit, &r, QUIRE_E_RANGE);
    }
}

static void cache_of_nothing_new_does_nothing(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    request r;
    good_request(&kit, &r);
    r.params.num_cached_blocks = 3;
    assert_cache_refused(&kit, &r, QUIRE_OK);
    r.params.num_cached_blocks = 4;
    assert_cache_refused(&kit, &r, QUIRE_OK);
    r.params = (quire_cache_full_params){.size = sizeof(quire_cache_full_params), .blocks = NULL};
    assert_cache_refused(&kit, &r, QUIRE_OK);
}

/* ---- the rest -------------------------------------------------------------- */

static void reset_while_in_use_is_busy(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    assert_int_equal(quire_pool_reset_prefix_cache(kit.pool), QUIRE_BUSY);
    kit_assert_unchanged(&kit);
}

static void lookups_check_the_hash_length(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    unsigned char hash[64] = {0};
    uint32_t group = 0;
    quire_block block = 77;
    uint32_t hit = 77;
    static const size_t LENGTHS[] = {0, 8, 15, 17, 32, SIZE_MAX - 15};
    for (size_t i = 0; i < COUNT(LENGTHS); i++) {
        quire_bytes bytes = {hash, LENGTHS[i]};
        assert_int_equal(quire_pool_get_cached_block(kit.pool, bytes, &group, 1, &block),
                         QUIRE_E_RANGE);
        assert_int_equal(
            quire_pool_get_cached_prefix(kit.pool, hash, LENGTHS[i], 1, &group, 1, &block, &hit),
            QUIRE_E_RANGE);
    }
    assert_int_equal(block, 77);
    assert_int_equal(hit, 77);
    kit_assert_unchanged(&kit);
}

static void looking_changes_nothing(void **state)
{
    (void)state;
    pool_kit kit;
    open_standard(&kit);
    char drawn[16];
    quire_block blocks[8] = {0};
    quire_block_info info;
    assert_int_equal(kit_find(&kit, 'd'), 4);
    assert_int_equal(quire_pool_draw(kit.pool, 2, 4, drawn), QUIRE_OK);
    assert_string_equal(drawn, "AACC");
    assert_int_equal(quire_pool_draw(kit.pool, 8, 0, drawn), QUIRE_OK);
    assert_string_equal(drawn, "");
    assert_int_equal(quire_pool_draw(kit.pool, 2, 7, drawn), QUIRE_E_RANGE);
    assert_int_equal(quire_pool_draw(kit.pool, UINT32_MAX, 2, drawn), QUIRE_E_RANGE);
    assert_int_equal(quire_pool_draw(kit.pool, 2, UINT32_MAX, drawn), QUIRE_E_RANGE);
    assert_int_equal(quire_pool_get_all_free_blocks(kit.pool, blocks, 2), 4);
    assert_int_equal(blocks[0] * 10 + blocks[1], 67);
    assert_int_equal(quire_pool_get_all_free_blocks(kit.pool, NULL, 0), 4);
    assert_int_equal(quire_pool_get_block(kit.pool, 5, &info), QUIRE_OK);
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 4);
    kit_assert_unchanged(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_many_now_is_no_space),
        cmocka_unit_test(too_many_ever_is_out_of_range),
        cmocka_unit_test(unknown_block_is_refused),
        cmocka_unit_test(null_block_is_refused),
        cmocka_unit_test(free_without_a_user_is_refused),
        cmocka_unit_test(free_more_often_than_used_is_refused),
        cmocka_unit_test(touch_past_the_last_reference_is_refused),
        cmocka_unit_test(empty_lists_do_nothing),
        cmocka_unit_test(cache_refuses_unknown_blocks),
        cmocka_unit_test(cache_refuses_blocks_with_keys),
        cmocka_unit_test(cache_refuses_a_block_listed_twice),
        cmocka_unit_test(cache_refuses_too_few_hashes),
        cmocka_unit_test(cache_refuses_group_ids_that_do_not_fit),
        cmocka_unit_test(cache_refuses_hash_lengths_that_do_not_fit),
        cmocka_unit_test(cache_of_nothing_new_does_nothing),
        cmocka_unit_test(reset_while_in_use_is_busy),
        cmocka_unit_test(lookups_check_the_hash_length),
        cmocka_unit_test(looking_changes_nothing),
    };
    return cmocka_run_group_tests_name("block_pool_errors", tests, NULL, NULL);
}
