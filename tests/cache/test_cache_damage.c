/* cache/test_cache_damage.c - quire_cache_check sees a cache that was written to behind its back.
 *
 *      row 0   [ 1 ][ 2 ][ 3 ]   | [ 4 ][ 5 ][ 6 ]     a request, full and window group
 *      row 1   [ 1 ][ 2 ][ 7 ]   | [ 4 ][ 5 ][ 8 ]     its fork, after one token
 *      copies  3 -> 7, 6 -> 8                          still pending
 *
 * Each damage starts from this sound cache and changes one thing. */
#include "cache/cache_kit.h"

#include "cache/cache.h"

enum { ROOM = 1 << 18, NUM_BLOCKS = 16, MAX_REQUESTS = 4 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];
static kit_request parent;
static kit_request child;

static quire_cache *sound_cache(void)
{
    const quire_group_config groups[] = {kit_full(4), kit_window(4, 12)};
    quire_cache_config config = kit_config(groups, 2, NUM_BLOCKS);
    config.max_model_len = 40;
    config.max_requests = MAX_REQUESTS;
    config.max_copies = 4;
    cache_kit kit = {.num_groups = 2, .hash_block_size = 4};
    assert_int_equal(quire_cache_create(
                         &config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &kit.cache),
                     QUIRE_OK);
    kit.pool = quire_cache_get_pool(kit.cache);
    char text[KIT_MAX_TOKENS] = "aaaabbbbc";
    kit_request_init(&kit, &parent, text);
    kit_prefill(&kit, &parent);
    kit_request_init(&kit, &child, text);
    assert_int_equal(quire_cache_fork(kit.cache, &parent.r, &child.r), QUIRE_OK);
    child.r.num_computed_tokens = 9;
    kit_append(&kit, &child, text, 'd');
    assert_int_equal(kit_extend(&kit, &child, 1), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, parent.r.seq), "1 2 3 | 4 5 6");
    assert_string_equal(kit_blocks(&kit, child.r.seq), "1 2 7 | 4 5 8");
    return kit.cache;
}

/* ---- the damages ------------------------------------------------------------- */

static qr_block *records_of(quire_cache *cache)
{
    return cache->pool->queue.blocks;
}

static void free_block_in_a_row(quire_cache *cache)
{
    qr_group_row_blocks(&cache->groups[0], 0)[2] = 9;
}

static void unknown_block_in_a_row(quire_cache *cache)
{
    qr_group_row_blocks(&cache->groups[1], 1)[0] = 1000000;
}

static void block_of_another_in_a_row(quire_cache *cache)
{
    qr_group_row_blocks(&cache->groups[0], 0)[2] = 7;
}

static void block_of_another_group_in_a_row(quire_cache *cache)
{
    qr_group_row_blocks(&cache->groups[0], 0)[0] = 4;
}

static void null_block_for_a_real_one(quire_cache *cache)
{
    qr_group_row_blocks(&cache->groups[0], 1)[1] = QUIRE_NULL_BLOCK;
}

static void row_longer_than_its_place(quire_cache *cache)
{
    cache->groups[0].rows[0].num_blocks = 1000000;
}

static void row_that_lost_a_block(quire_cache *cache)
{
    cache->groups[0].rows[0].num_blocks--;
}

static void more_keys_than_blocks(quire_cache *cache)
{
    cache->groups[0].rows[0].num_cached = 4;
}

static void state_outside_the_row(quire_cache *cache)
{
    cache->groups[0].rows[0].last_state = 3;
}

static void blocks_of_nobody(quire_cache *cache)
{
    cache->groups[1].rows[3].num_blocks = 1;
}

static void nobody_is_settled(quire_cache *cache)
{
    cache->groups[0].rows[2].is_settled = true;
}

static void too_many_sequences(quire_cache *cache)
{
    cache->num_seqs = 1000000;
}

static void one_sequence_less(quire_cache *cache)
{
    cache->num_seqs--;
}

static void free_row_named_twice(quire_cache *cache)
{
    cache->free_rows[0] = cache->free_rows[1];
}

static void unknown_free_row(quire_cache *cache)
{
    cache->free_rows[0] = 1000000;
}

static void row_ended_in_secret(quire_cache *cache)
{
    cache->row_states[1].generation++;
}

static void reference_moved_to_another_block(quire_cache *cache)
{
    records_of(cache)[1].ref_cnt--;
    records_of(cache)[2].ref_cnt++;
}

static void reference_that_was_lost(quire_cache *cache)
{
    records_of(cache)[4].ref_cnt--;
}

static void too_many_copies(quire_cache *cache)
{
    cache->num_copies = 1000000;
}

static void copy_from_nowhere(quire_cache *cache)
{
    cache->copies[0].from = 0x7fffffff;
}

static void copy_to_nowhere(quire_cache *cache)
{
    cache->copies[1].to = 0x7fffffff;
}

static void copy_to_the_null_block(quire_cache *cache)
{
    cache->copies[1].to = QUIRE_NULL_BLOCK;
}

static void copy_of_no_group(quire_cache *cache)
{
    cache->copies[0].group = 2;
}

static void copy_of_a_copy(quire_cache *cache)
{
    cache->copies[1].from = cache->copies[0].to;
}

static void damage_to_the_pool(quire_cache *cache)
{
    cache->pool->queue.num_free--;
}

typedef void damage_function(quire_cache *cache);

static const struct {
    const char *name;
    damage_function *apply;
} DAMAGES[] = {
#define DAMAGE(function)                                                                           \
    {                                                                                              \
#function, function                                                                        \
    }
    DAMAGE(free_block_in_a_row),
    DAMAGE(unknown_block_in_a_row),
    DAMAGE(block_of_another_in_a_row),
    DAMAGE(block_of_another_group_in_a_row),
    DAMAGE(row_longer_than_its_place),
    DAMAGE(more_keys_than_blocks),
    DAMAGE(state_outside_the_row),
    DAMAGE(blocks_of_nobody),
    DAMAGE(nobody_is_settled),
    DAMAGE(too_many_sequences),
    DAMAGE(one_sequence_less),
    DAMAGE(free_row_named_twice),
    DAMAGE(unknown_free_row),
    DAMAGE(row_ended_in_secret),
    DAMAGE(reference_moved_to_another_block),
    DAMAGE(reference_that_was_lost),
    DAMAGE(too_many_copies),
    DAMAGE(copy_from_nowhere),
    DAMAGE(copy_to_nowhere),
    DAMAGE(copy_to_the_null_block),
    DAMAGE(copy_of_no_group),
    DAMAGE(copy_of_a_copy),
    DAMAGE(damage_to_the_pool),
#undef DAMAGE
};

static void every_damage_is_seen(void **state)
{
    (void)state;
    uint32_t num_missed = 0;
    for (size_t i = 0; i < COUNT(DAMAGES); i++) {
        quire_cache *cache = sound_cache();
        DAMAGES[i].apply(cache);
        if (quire_cache_check(cache) == QUIRE_E_CORRUPT)
            continue;
        printf("not seen: %s\n", DAMAGES[i].name);
        num_missed++;
    }
    assert_int_equal(num_missed, 0);
}

/* A row that gives up a block without giving it back leaves a reference that nobody has: as with
 * one touched through the pool, which is allowed. */
static void leaks_look_like_touches(void **state)
{
    (void)state;
    quire_cache *cache = sound_cache();
    row_that_lost_a_block(cache);
    assert_int_equal(quire_cache_check(cache), QUIRE_OK);
    cache = sound_cache();
    null_block_for_a_real_one(cache);
    assert_int_equal(quire_cache_check(cache), QUIRE_OK);
}

/* ---- host slots ------------------------------------------------------------- */

/* Two requests of two slots each in a buffer of six. */
static quire_cache *cache_with_moved(void)
{
    const quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, NUM_BLOCKS);
    config.num_host_blocks = 6;
    cache_kit kit = {.num_groups = 1, .hash_block_size = 4};
    assert_int_equal(quire_cache_create(
                         &config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &kit.cache),
                     QUIRE_OK);
    kit.pool = quire_cache_get_pool(kit.cache);
    kit_request *const both[] = {&parent, &child};
    for (uint32_t i = 0; i < 2; i++) {
        const quire_block_move *moves;
        uint32_t num_moves;
        kit_request_init(&kit, both[i], i == 0 ? "aaaab" : "ccccd");
        kit_prefill(&kit, both[i]);
        assert_int_equal(quire_cache_move_out(kit.cache, &both[i]->r, &moves, &num_moves),
                         QUIRE_OK);
        assert_int_equal(num_moves, 2);
    }
    assert_int_equal(quire_cache_check(kit.cache), QUIRE_OK);
    return kit.cache;
}

static void damage_to_host_slots_is_seen(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 8; kind++) {
        quire_cache *cache = cache_with_moved();
        qr_host *host = &cache->host; /* slots 0, 1 and 2, 3 are in use, 4 and 5 are free */
        if (kind == 0)
            host->slots[0].next = 3; /* of the other request */
        else if (kind == 1)
            host->slots[1].next = 0; /* a ring */
        else if (kind == 2)
            host->slots[1].next = 1000000;
        else if (kind == 3)
            host->slots[0].num_tokens = 50; /* more than its slots hold */
        else if (kind == 4)
            host->slots[2].generation++; /* slots that are no request's, and not free */
        else if (kind == 5)
            host->num_free = 3;
        else if (kind == 6)
            host->first_free = 1;
        else
            host->num_seqs = 1;
        if (quire_cache_check(cache) != QUIRE_E_CORRUPT)
            fail_msg("damage %u to host slots is not seen", (unsigned)kind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_damage_is_seen),
        cmocka_unit_test(leaks_look_like_touches),
        cmocka_unit_test(damage_to_host_slots_is_seen),
    };
    return cmocka_run_group_tests_name("cache_damage", tests, NULL, NULL);
}
