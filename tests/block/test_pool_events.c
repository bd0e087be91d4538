/* block/test_pool_events.c - what the prefix cache tells, word for word and in order. */
#include "block/pool_kit.h"

#include "base/bits.h"

static void taking_and_freeing_tell_nothing(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    quire_block b[3];
    kit_take(&kit, 3, b);
    kit_touch(&kit, 1);
    kit_free(&kit, b, 3);
    kit_assert_events(&kit, "");
}

static void first_blocks_have_no_parent(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    quire_block b[3];
    kit_take(&kit, 3, b);
    kit_cache(&kit, b, 0, 2, "abc", 0);
    kit_assert_events(&kit, "stored 1 2 at 0 ab in 0; ");
}

static void later_blocks_name_their_parent(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 6);
    quire_block b[4];
    kit_take(&kit, 4, b);
    kit_cache(&kit, b, 0, 1, "abcd", 3);
    kit_cache(&kit, b, 1, 4, "abcd", 3);
    kit_assert_events(&kit, "stored 1 at 0 a in 3; stored 2 3 4 at 1 bcd after a in 3; ");
}

static void null_blocks_are_listed_but_not_cached(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    quire_block b[2];
    kit_take(&kit, 2, b);
    static const quire_block REQUEST[] = {0, 0, 1, 2};
    kit_cache(&kit, REQUEST, 0, 4, "abcd", 0);
    kit_assert_events(&kit, "stored 0 0 1 2 at 0 abcd in 0; ");
    assert_int_equal(kit_find(&kit, 'a'), 0);
    assert_int_equal(kit_find(&kit, 'c'), 1);
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 2);
    kit_assert_draw(&kit, "NAAEE");
}

static void nothing_new_tells_nothing(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    quire_block b[2];
    kit_take(&kit, 2, b);
    kit_cache(&kit, b, 0, 0, "ab", 0);
    kit_cache(&kit, b, 2, 2, "ab", 0);
    kit_assert_events(&kit, "");
}

static void eviction_tells_each_block_in_order(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    quire_block b[4];
    kit_take(&kit, 4, b);
    kit_cache(&kit, b, 0, 3, "abc", 0);
    kit_free(&kit, (quire_block[]){3, 4, 2, 1}, 4);
    kit_assert_events(&kit, "stored 1 2 3 at 0 abc in 0; ");
    kit_take(&kit, 4, b);
    kit_assert_events(&kit, "removed 3 c; removed 2 b; removed 1 a; ");
}

static void removal_says_when_another_has_the_key(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    quire_block b[3];
    kit_take(&kit, 3, b);
    for (int i = 0; i < 3; i++)
        kit_cache(&kit, &b[i], 0, 1, "a", 0);
    kit_assert_events(&kit, "stored 1 at 0 a in 0; stored 2 at 0 a in 0; stored 3 at 0 a in 0; ");
    kit_evict(&kit, 2);
    kit_evict(&kit, 1);
    kit_evict(&kit, 3);
    kit_assert_events(&kit, "removed 2 a still; removed 1 a still; removed 3 a; ");
}

static void other_group_does_not_count_as_another(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    quire_block b[2];
    kit_take(&kit, 2, b);
    kit_cache(&kit, &b[0], 0, 1, "a", 0);
    kit_cache(&kit, &b[1], 0, 1, "a", 1);
    kit_evict(&kit, 1);
    kit_assert_events(&kit, "stored 1 at 0 a in 0; stored 2 at 0 a in 1; removed 1 a; ");
}

static void evicting_without_a_key_tells_nothing(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    quire_block b[2];
    kit_take(&kit, 2, b);
    kit_evict(&kit, 1);
    kit_evict(&kit, 4);
    kit_assert_events(&kit, "");
}

static void reset_tells_once(void **state)
{
    (void)state;
    pool_kit kit;
    kit_open(&kit, 5);
    quire_block b[3];
    kit_take(&kit, 3, b);
    kit_cache(&kit, b, 0, 3, "abc", 0);
    kit_free(&kit, b, 3);
    kit_assert_events(&kit, "stored 1 2 3 at 0 abc in 0; ");
    assert_int_equal(quire_pool_reset_prefix_cache(kit.pool), QUIRE_OK);
    kit_assert_events(&kit, "cleared; ");
    kit_take(&kit, 4, (quire_block[4]){0});
    kit_assert_events(&kit, "");
}

/* ---- fields that are not in the text --------------------------------------- */

static void keep_event(void *user, const quire_event *event)
{
    *(quire_event *)user = *event;
}

static void stored_event_carries_what_the_caller_said(void **state)
{
    (void)state;
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    quire_event event = {.size = sizeof(quire_event), .kind = QUIRE_EVENT_CLEARED};
    config.num_blocks = 4;
    config.on_event = keep_event;
    config.event_user = &event;
    quire_pool *pool = NULL;
    assert_int_equal(quire_pool_create(&config, NULL, &pool), QUIRE_OK);
    quire_block b[2];
    assert_int_equal(quire_pool_get_new_blocks(pool, 2, b), QUIRE_OK);
    unsigned char hashes[2 * 32] = {0};
    int request = 0;
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = b,
                                      .num_cached_blocks = 1,
                                      .num_full_blocks = 2,
                                      .hashes = hashes,
                                      .hash_len = 32,
                                      .num_hashes = 2,
                                      .group_id = 5,
                                      .block_size = 48,
                                      .request = &request};
    assert_int_equal(quire_pool_cache_full_blocks(pool, &params), QUIRE_OK);
    assert_int_equal(event.kind, QUIRE_EVENT_STORED);
    assert_int_equal(event.group_id, 5);
    assert_int_equal(event.num_blocks, 1);
    assert_int_equal(event.hash_bytes, 32);
    assert_true(event.parent.data == hashes && event.parent.len == 32);
    assert_int_equal(event.block_size, 48);
    assert_true(event.request == &request);
    assert_int_equal(quire_pool_evict_blocks(pool, &b[1], 1), QUIRE_OK);
    assert_int_equal(event.kind, QUIRE_EVENT_REMOVED);
    assert_int_equal(event.group_id, 5);
    assert_int_equal(event.hash_bytes, 32);
    assert_null(event.request);
    assert_null(event.parent.data);
    quire_pool_destroy(pool);
}

typedef struct onlooker {
    quire_pool *pool;
    uint32_t events;
} onlooker;

/* A hook may look: the pool is sound whenever it is told. */
static void look_around(void *user, const quire_event *event)
{
    onlooker *who = user;
    quire_block free_blocks[4];
    who->events++;
    assert_int_equal(quire_pool_check(who->pool), QUIRE_OK);
    assert_true(quire_pool_get_all_free_blocks(who->pool, free_blocks, 4) <= 3);
    quire_usage usage = quire_pool_get_usage(who->pool);
    assert_int_equal(usage.empty + usage.cached + usage.active + usage.null_blocks, 4);
    enum { PORTION = QR_AT_A_TIME(128, 2) }; /* blocks that one call takes before it tells */
    if (event->kind == QUIRE_EVENT_REMOVED)
        assert_true(usage.cached <= (PORTION < 3 ? 3 - PORTION : 0));
}

static void hook_may_look_at_the_pool(void **state)
{
    (void)state;
    onlooker who = {NULL, 0};
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = 4;
    config.on_event = look_around;
    config.event_user = &who;
    assert_int_equal(quire_pool_create(&config, NULL, &who.pool), QUIRE_OK);
    quire_block b[3];
    unsigned char hashes[3][32] = {{1}, {2}, {3}};
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = b,
                                      .num_full_blocks = 3,
                                      .hashes = hashes,
                                      .hash_len = 32,
                                      .num_hashes = 3};
    assert_int_equal(quire_pool_get_new_blocks(who.pool, 3, b), QUIRE_OK);
    assert_int_equal(quire_pool_cache_full_blocks(who.pool, &params), QUIRE_OK);
    assert_int_equal(quire_pool_free_blocks(who.pool, b, 3), QUIRE_OK);
    assert_int_equal(quire_pool_get_new_blocks(who.pool, 3, b), QUIRE_OK); /* evicts all */
    assert_int_equal(who.events, 4);
    assert_int_equal(quire_pool_free_blocks(who.pool, b, 3), QUIRE_OK);
    assert_int_equal(quire_pool_reset_prefix_cache(who.pool), QUIRE_OK);
    assert_int_equal(who.events, 5);
    quire_pool_destroy(who.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taking_and_freeing_tell_nothing),
        cmocka_unit_test(first_blocks_have_no_parent),
        cmocka_unit_test(later_blocks_name_their_parent),
        cmocka_unit_test(null_blocks_are_listed_but_not_cached),
        cmocka_unit_test(nothing_new_tells_nothing),
        cmocka_unit_test(eviction_tells_each_block_in_order),
        cmocka_unit_test(removal_says_when_another_has_the_key),
        cmocka_unit_test(other_group_does_not_count_as_another),
        cmocka_unit_test(evicting_without_a_key_tells_nothing),
        cmocka_unit_test(reset_tells_once),
        cmocka_unit_test(stored_event_carries_what_the_caller_said),
        cmocka_unit_test(hook_may_look_at_the_pool),
    };
    return cmocka_run_group_tests_name("block_pool_events", tests, NULL, NULL);
}
