/* api/test_pool_damage.c - quire_pool_check sees a pool that was written to behind its back.
 *
 * Each damage starts from a sound pool, "NAACCCE" with the keys a b c c a on blocks 1 to 5 (3 and 4
 * share one, 1 and 5 another), and changes one thing. */
#include "block/pool.h"

#include "base/unit.h"

enum { ROOM = 8192, NUM_BLOCKS = 7 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];

static quire_pool *sound_pool(void)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = NUM_BLOCKS;
    quire_pool *pool = NULL;
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &pool),
        QUIRE_OK);
    quire_block blocks[5];
    assert_int_equal(quire_pool_get_new_blocks(pool, 5, blocks), QUIRE_OK);
    unsigned char hashes[5][32];
    for (int i = 0; i < 5; i++)
        memset(hashes[i], "abcca"[i], 32);
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = blocks,
                                      .num_full_blocks = 5,
                                      .hashes = hashes,
                                      .hash_len = 32,
                                      .num_hashes = 5};
    assert_int_equal(quire_pool_cache_full_blocks(pool, &params), QUIRE_OK);
    assert_int_equal(quire_pool_free_blocks(pool, blocks + 2, 3), QUIRE_OK);
    char drawn[NUM_BLOCKS + 1];
    assert_int_equal(quire_pool_draw(pool, 0, NUM_BLOCKS, drawn), QUIRE_OK);
    assert_string_equal(drawn, "NAACCCE");
    assert_int_equal(quire_pool_check(pool), QUIRE_OK);
    return pool;
}

/* ---- the damages ----------------------------------------------------------- */

static uint32_t *slot_of(const quire_pool *pool, uint32_t block)
{
    const qr_buckets *index = &pool->map.index;
    return qr_buckets_at(index, qr_buckets_find_id(index, pool->queue.blocks[block].tag, block));
}

static void user_of_a_free_block(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[3].ref_cnt = 1;
}

static void no_user_of_an_active_block(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[1].ref_cnt = 0;
}

static void hold_that_nobody_counted(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->holds[1] = 1;
}

static void hold_of_a_free_block(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->holds[3] = QR_HOLDS_ALONE | 1;
    pool->num_held = 1;
}

static void hold_that_is_alone_beside_a_request(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->holds[1] = QR_HOLDS_ALONE | 1;
    pool->num_held = 1;
}

static void hold_of_the_null_block(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->holds[0] = 1;
    pool->num_held = 1;
}

static void key_longer_than_its_place(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[3].key_units = 255;
}

static void unknown_block_in_the_index(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    *slot_of(pool, 3) = 1000000;
}

static void bucket_without_an_empty_place(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    for (uint32_t place = 0; place < QR_BUCKET_PLACES; place++)
        *qr_buckets_at(&pool->map.index, place) = 3;
}

static void note_for_nobody(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->queue.recent[1] = 1000000;
}

static void scout_sent_nowhere(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->scouted[0] = 1000000;
}

static void user_of_the_null_block(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[0].ref_cnt = 1;
}

static void key_of_the_null_block(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[0].key_units = 2;
}

static void mark_left_behind(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[6].mark = true;
}

static void link_to_nowhere(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    qr_queue_set_next(blocks, 4, 1000);
}

static void link_in_a_circle(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    qr_queue_set_next(blocks, 4, 3);
}

static void link_that_skips_a_block(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    qr_queue_set_next(blocks, 3, 5);
}

static void link_back_to_the_wrong_block(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    qr_queue_set_prev(blocks, 4, 6);
}

static void wrong_number_of_free_blocks(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->queue.num_free--;
}

static void wrong_number_of_cached_blocks(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->num_cached++;
}

static void wrong_numbers_for_other_threads(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    atomic_fetch_add(&pool->counts, 1);
}

#ifndef QUIRE_HOSTILE /* only a tag shows these, and one of 4 bits often does not */
static void other_end_of_the_hash(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    qr_map_hash_of(&pool->map, 2)[31] ^= 1;
}

static void shorter_hash(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[2].key_units = 1;
}

static void other_group(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[2].group_id = 1;
}
#endif

static void other_hash_of_a_duplicate(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    qr_map_hash_of(&pool->map, 4)[5] ^= 1;
}

static void no_key_any_more(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[2].key_units = 0;
}

static void duplicate_without_a_key(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[4].key_units = 0;
}

static void key_from_nowhere(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[6].key_units = 2;
}

static void other_tag(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[2].tag ^= UINT32_C(1) << 31;
}

static void first_that_is_not_first(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[1].is_first = false;
}

static void second_that_is_first(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[5].is_first = true;
}

static void ring_to_nowhere(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[1].dup_next = NUM_BLOCKS;
}

static void ring_into_another(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[1].dup_next = 4;
}

static void ring_back_to_the_wrong_block(quire_pool *pool, qr_block *blocks)
{
    (void)pool;
    blocks[5].dup_prev = 2;
}

static void slot_of_a_block_that_is_not_first(quire_pool *pool, qr_block *blocks)
{
    *slot_of(pool, 3) = qr_buckets_entry(&pool->map.index, blocks[3].tag, 4);
}

static void slot_that_was_lost(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    qr_buckets_remove(&pool->map.index, pool->queue.blocks[2].tag, 2);
}

static void other_mark(quire_pool *pool, qr_block *blocks)
{
    uint32_t home = qr_buckets_home(&pool->map.index, blocks[2].tag);
    for (uint32_t place = 0; place < QR_BUCKET_PLACES; place++)
        if ((pool->map.index.all[home].entries[place] & pool->map.index.id_mask) == 2)
            pool->map.index.all[home].marks[place] ^= 0x80;
}

static void other_rest_of_the_tag(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    *slot_of(pool, 2) ^= UINT32_C(1) << 31;
}

static void which_has_gone_past_and_none(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->map.index.all[0].passed |= 1;
}

static void nobody_has_gone_past(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->map.index.all[0].passed += QR_ONE_PASSED | 1;
}

static void wrong_number_of_keys(quire_pool *pool, qr_block *blocks)
{
    (void)blocks;
    pool->map.index.used++;
}

typedef void damage_function(quire_pool *pool, qr_block *blocks);

static const struct {
    const char *name;
    damage_function *apply;
} DAMAGES[] = {
#define DAMAGE(function)                                                                           \
    {                                                                                              \
#function, function                                                                        \
    }
    DAMAGE(user_of_a_free_block),
    DAMAGE(no_user_of_an_active_block),
    DAMAGE(hold_that_nobody_counted),
    DAMAGE(hold_of_a_free_block),
    DAMAGE(hold_that_is_alone_beside_a_request),
    DAMAGE(hold_of_the_null_block),
    DAMAGE(key_longer_than_its_place),
    DAMAGE(unknown_block_in_the_index),
    DAMAGE(bucket_without_an_empty_place),
    DAMAGE(note_for_nobody),
    DAMAGE(scout_sent_nowhere),
    DAMAGE(user_of_the_null_block),
    DAMAGE(key_of_the_null_block),
    DAMAGE(mark_left_behind),
    DAMAGE(link_to_nowhere),
    DAMAGE(link_in_a_circle),
    DAMAGE(link_that_skips_a_block),
    DAMAGE(link_back_to_the_wrong_block),
    DAMAGE(wrong_number_of_free_blocks),
    DAMAGE(wrong_number_of_cached_blocks),
    DAMAGE(wrong_numbers_for_other_threads),
    DAMAGE(other_hash_of_a_duplicate),
    DAMAGE(no_key_any_more),
    DAMAGE(duplicate_without_a_key),
    DAMAGE(key_from_nowhere),
    DAMAGE(other_tag),
    DAMAGE(first_that_is_not_first),
    DAMAGE(second_that_is_first),
    DAMAGE(ring_to_nowhere),
    DAMAGE(ring_into_another),
    DAMAGE(ring_back_to_the_wrong_block),
    DAMAGE(slot_of_a_block_that_is_not_first),
    DAMAGE(slot_that_was_lost),
    DAMAGE(other_mark),
    DAMAGE(other_rest_of_the_tag),
    DAMAGE(which_has_gone_past_and_none),
    DAMAGE(nobody_has_gone_past),
    DAMAGE(wrong_number_of_keys),
#ifndef QUIRE_HOSTILE
    DAMAGE(other_end_of_the_hash),
    DAMAGE(shorter_hash),
    DAMAGE(other_group),
#endif
#undef DAMAGE
};

static void every_damage_is_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(DAMAGES); i++) {
        quire_pool *pool = sound_pool();
        DAMAGES[i].apply(pool, pool->queue.blocks);
        int status = quire_pool_check(pool);
        if (status != QUIRE_E_CORRUPT)
            printf("not seen: %s\n", DAMAGES[i].name);
        assert_int_equal(status, QUIRE_E_CORRUPT);
    }
}

static void pool_without_caching_has_no_keys(void **state)
{
    (void)state;
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.num_blocks = NUM_BLOCKS;
    config.enable_caching = QUIRE_OFF;
    quire_pool *pool = NULL;
    assert_int_equal(
        quire_pool_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &pool),
        QUIRE_OK);
    assert_int_equal(quire_pool_check(pool), QUIRE_OK);
    pool->queue.blocks[3].key_units = 1;
    assert_int_equal(quire_pool_check(pool), QUIRE_E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_damage_is_seen),
        cmocka_unit_test(pool_without_caching_has_no_keys),
    };
    return cmocka_run_group_tests_name("api_pool_damage", tests, NULL, NULL);
}
