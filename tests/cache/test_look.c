/* cache/test_look.c - calls that ask and change nothing: would it fit, where is a token, which
 * block is that, what do all requests have; and the eviction of so many cached blocks. */
#include "base/quirks_kit.h"
#include "cache/cache_kit.h"

#include <quire/table.h>

static cache_kit open_kit(const quire_group_config *groups, uint32_t num_groups,
                          uint32_t num_blocks, double watermark)
{
    quire_cache_config config = kit_config(groups, num_groups, num_blocks);
    config.max_requests = 3;
    config.watermark = watermark;
    config.num_host_blocks = 16;
    config.max_copies = 2;
    cache_kit kit;
    kit_open(&kit, &config);
    return kit;
}

static cache_kit open_full(uint32_t num_blocks, double watermark)
{
    quire_group_config full = kit_full(4);
    return open_kit(&full, 1, num_blocks, watermark);
}

/* ---- would it fit ----------------------------------------------------------- */

static int foretold(const cache_kit *kit, const kit_request *q, uint32_t num_new)
{
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = num_new};
    return quire_cache_can_allocate(kit->cache, &q->r, &params);
}

/* Asked before each call, in all states that the answers have: it is the call's answer, and the
 * cache stays as it was. */
static void says_what_allocate_slots_says(void **state)
{
    (void)state;
    static char before[1 << 14];
    static char after[1 << 14];
    uint64_t random = 1;
    uint32_t seen[2] = {0, 0};
    for (uint32_t round = 0; round < 400; round++) {
        cache_kit kit = open_full(6 + unit_random_below(&random, 6), 0.2);
        kit_request q[4];
        const kit_request *all[4];
        for (uint32_t i = 0; i < 4; i++) {
            all[i] = &q[i];
            kit_request_init(&kit, &q[i], "aaaabbbbccccddddeeee");
        }
        for (uint32_t step = 0; step < 12; step++) {
            kit_request *one = &q[unit_random_below(&random, 4)];
            uint32_t num_new = unit_random_below(&random, 7);
            if (one->r.num_computed_tokens + num_new > one->r.num_tokens)
                continue;
            quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                            .num_new_tokens = num_new};
            kit_snapshot(&kit, all, 4, before, sizeof before);
            int told = foretold(&kit, one, num_new);
            kit_snapshot(&kit, all, 4, after, sizeof after);
            assert_string_equal(before, after);
            int status = quire_cache_allocate_slots(kit.cache, &one->r, &params, NULL);
            assert_int_equal(told, status);
            one->r.num_computed_tokens += status == QUIRE_OK ? num_new : 0;
            seen[0] += status == QUIRE_NO_SPACE;
            seen[1] += status == QUIRE_FULL;
            kit_check(&kit);
        }
        kit_close(&kit);
    }
    assert_true(seen[0] > 0 && seen[1] > 0);
}

/* A token for which there is room in the last block needs no free block, the next one does. */
static void one_more_token(void **state)
{
    (void)state;
    cache_kit kit = open_full(3, 0); /* 2 blocks */
    kit_request q;
    kit_request_init(&kit, &q, "aaaabbbbcccc");
    assert_int_equal(foretold(&kit, &q, 8), QUIRE_OK);
    assert_int_equal(foretold(&kit, &q, 9), QUIRE_NO_SPACE);
    assert_int_equal(kit_extend(&kit, &q, 7), QUIRE_OK);
    assert_int_equal(foretold(&kit, &q, 1), QUIRE_OK);
    assert_int_equal(kit_extend(&kit, &q, 1), QUIRE_OK);
    assert_int_equal(foretold(&kit, &q, 1), QUIRE_NO_SPACE);
    assert_int_equal(foretold(&kit, &q, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_cache_can_allocate(NULL, &q.r, &(quire_allocate_params)QUIRE_ALLOCATE_PARAMS_INIT),
        QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_can_allocate(kit.cache, NULL,
                                              &(quire_allocate_params)QUIRE_ALLOCATE_PARAMS_INIT),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_can_allocate(kit.cache, &q.r, NULL), QUIRE_E_ARGUMENT);
    q.r.seq = 77;
    assert_int_equal(foretold(&kit, &q, 1), QUIRE_E_UNKNOWN_SEQ);
    kit_close(&kit);
}

/* With this quirk allocate_slots gives blocks back even when it fails; to ask gives back none. */
static void asking_trims_nothing(void **state)
{
    (void)state;
    quire_group_config window = kit_window(4, 4);
    quire_cache_config config = kit_config(&window, 1, 5);
    cache_kit kit;
    quirks_change(QR_QUIRK(TRIM_ON_FAILURE), 0);
    kit_open(&kit, &config);
    quirks_change(0, 0);
    kit_request q;
    kit_request_init(&kit, &q, "aaaabbbbccccddddeeeeffffgggg");
    assert_int_equal(kit_extend(&kit, &q, 16), QUIRE_OK);
    quire_allocate_params more = {
        .size = sizeof(quire_allocate_params), .num_new_tokens = 16, .delay_cache_blocks = 1};
    q.r.num_tokens = 16;
    assert_int_equal(quire_cache_can_allocate(kit.cache, &q.r, &more), QUIRE_NO_SPACE);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 3 4");
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &more, NULL), QUIRE_NO_SPACE);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "0 0 0 4");
    kit_close(&kit);
}

/* ---- where is a token ------------------------------------------------------- */

static void place_and_address_of_a_token(void **state)
{
    (void)state;
    quire_group_config groups[] = {kit_full(4), kit_window(4, 5)};
    cache_kit kit = open_kit(groups, 2, 20, 0);
    kit_request q;
    kit_request_init(&kit, &q, "aaaabbbbccccd");
    assert_int_equal(kit_extend(&kit, &q, 12), QUIRE_OK);
    assert_int_equal(kit_extend(&kit, &q, 1), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 3 5 | 0 0 6 4");
    quire_token_place place;
    quire_cache *cache = kit.cache;
    assert_int_equal(quire_cache_find_token(cache, q.r.seq, 0, 0, &place), QUIRE_OK);
    assert_true(place.block == 1 && place.index == 0 && place.offset == 0);
    assert_int_equal(quire_cache_find_token(cache, q.r.seq, 1, 11, &place), QUIRE_OK);
    assert_true(place.block == 6 && place.index == 2 && place.offset == 3);
    assert_int_equal(quire_cache_find_token(cache, q.r.seq, 1, 7, &place), QUIRE_MISS);
    assert_int_equal(quire_cache_find_token(cache, q.r.seq, 0, 15, &place), QUIRE_OK);
    assert_true(place.block == 5 && place.offset == 3);
    assert_int_equal(quire_cache_find_token(cache, q.r.seq, 0, 16, &place), QUIRE_E_RANGE);
    assert_int_equal(quire_cache_find_token(cache, q.r.seq, 0, UINT32_MAX, &place), QUIRE_E_RANGE);
    assert_int_equal(quire_cache_find_token(cache, q.r.seq, 2, 0, &place), QUIRE_E_RANGE);
    assert_int_equal(quire_cache_find_token(cache, 0, 0, 0, &place), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_find_token(cache, q.r.seq, 0, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_find_token(NULL, q.r.seq, 0, 0, &place), QUIRE_E_ARGUMENT);

    quire_layout layout; /* 2 layers, 20 blocks of 4 tokens, 64 bytes a token */
    uint64_t address = 0;
    assert_int_equal(quire_layout_layer_outer(1 << 20, 2, 20, 256, &layout), QUIRE_OK);
    assert_int_equal(quire_layout_token_address(&layout, 1, 6, 3, 4, &address), QUIRE_OK);
    assert_true(address == (1 << 20) + 20 * 256 + 6 * 256 + 3 * 64);
    assert_int_equal(quire_layout_token_address(&layout, 1, 6, 4, 4, &address), QUIRE_E_RANGE);
    assert_int_equal(quire_layout_token_address(&layout, 2, 6, 3, 4, &address), QUIRE_E_RANGE);
    assert_int_equal(quire_layout_token_address(&layout, 1, 6, 0, 3, &address), QUIRE_E_RANGE);
    assert_int_equal(quire_layout_token_address(&layout, 1, 6, 0, 0, &address), QUIRE_E_RANGE);
    assert_int_equal(quire_layout_token_address(&layout, 1, 20, 3, 4, &address),
                     QUIRE_E_UNKNOWN_BLOCK);
    assert_int_equal(quire_layout_token_address(NULL, 1, 6, 3, 4, &address), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_layout_token_address(&layout, 1, 6, 3, 4, NULL), QUIRE_E_ARGUMENT);
    kit_close(&kit);
}

static void a_state_is_not_one_tokens(void **state)
{
    (void)state;
    quire_group_config mamba = kit_mamba(4, QUIRE_MAMBA_MODE_NONE, 0);
    quire_cache_config config = kit_config(&mamba, 1, 20);
    config.enable_caching = QUIRE_OFF;
    cache_kit kit;
    kit_open(&kit, &config);
    kit_request q;
    quire_token_place place;
    kit_request_init(&kit, &q, "aaaa");
    assert_int_equal(kit_extend(&kit, &q, 4), QUIRE_OK);
    assert_int_equal(quire_cache_find_token(kit.cache, q.r.seq, 0, 0, &place), QUIRE_E_ARGUMENT);
    kit_close(&kit);
}

/* ---- which block is that ---------------------------------------------------- */

static quire_cache_block block_at(const cache_kit *kit, const kit_request *q, uint32_t group,
                                  uint32_t index)
{
    quire_cache_block block;
    assert_int_equal(quire_cache_get_block(kit->cache, &q->r, group, index, &block), QUIRE_OK);
    return block;
}

static void fields_of_a_block(void **state)
{
    (void)state;
    quire_group_config groups[] = {kit_full(4), kit_window(4, 5)};
    cache_kit kit = open_kit(groups, 2, 20, 0);
    kit_request q;
    kit_request_init(&kit, &q, "aaaabbbbccccd");
    assert_int_equal(kit_extend(&kit, &q, 12), QUIRE_OK);
    assert_int_equal(kit_extend(&kit, &q, 1), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 3 5 | 0 0 6 4");
    kit_request child = {.r = {.num_tokens = 13}};
    assert_int_equal(quire_cache_fork(kit.cache, &q.r, &child.r), QUIRE_OK);
    quire_block held = 2;
    assert_int_equal(quire_pool_hold(kit.pool, &held, 1), QUIRE_OK);
    quire_cache_block b = block_at(&kit, &q, 0, 1);
    assert_int_equal(b.location, QUIRE_LOCATION_DEVICE);
    assert_true(b.block == 2 && b.prev == 1 && b.ref_cnt == 2 && b.num_holds == 1);
    assert_true(b.has_key == 1 && b.num_tokens == 4 && b.block_size == 4);
    assert_int_equal(quire_pool_let_go(kit.pool, &held, 1, 0), QUIRE_OK);
    b = block_at(&kit, &q, 0, 0);
    assert_true(b.block == 1 && b.prev == UINT32_MAX && b.num_holds == 0);
    b = block_at(&kit, &q, 0, 3);
    assert_true(b.block == 5 && b.prev == 3 && b.has_key == 0 && b.num_tokens == 1);
    b = block_at(&kit, &q, 1, 1); /* outside the window */
    assert_int_equal(b.location, QUIRE_LOCATION_NONE);
    assert_true(b.block == UINT32_MAX && b.ref_cnt == 0 && b.num_tokens == 0);
    b = block_at(&kit, &q, 1, 2);
    assert_true(b.block == 6 && b.prev == UINT32_MAX);

    kit_free(&kit, &child);
    const quire_block_move *moves;
    uint32_t num_moves;
    assert_int_equal(quire_cache_move_out(kit.cache, &q.r, &moves, &num_moves), QUIRE_OK);
    assert_int_equal(num_moves, 6);
    assert_true(moves[5].block == 4 && moves[5].slot == 5 && moves[5].group == 1);
    b = block_at(&kit, &q, 0, 3);
    assert_int_equal(b.location, QUIRE_LOCATION_HOST);
    assert_true(b.block == 3 && b.prev == 2 && b.ref_cnt == 1 && b.num_tokens == 1);
    assert_true(b.has_key == 0 && b.num_holds == 0);
    b = block_at(&kit, &q, 1, 2);
    assert_true(b.block == 4 && b.prev == UINT32_MAX && b.num_tokens == 4);
    b = block_at(&kit, &q, 1, 1);
    assert_true(b.location == QUIRE_LOCATION_NONE && b.block == UINT32_MAX && b.num_tokens == 0);
    assert_int_equal(quire_cache_get_block(kit.cache, &q.r, 0, 4, &b), QUIRE_E_RANGE);
    assert_int_equal(quire_cache_get_block(kit.cache, &q.r, 2, 0, &b), QUIRE_E_RANGE);
    assert_int_equal(quire_cache_get_block(kit.cache, &child.r, 0, 0, &b), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_get_block(kit.cache, NULL, 0, 0, &b), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_block(kit.cache, &q.r, 0, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_block(NULL, &q.r, 0, 0, &b), QUIRE_E_ARGUMENT);
    kit_close(&kit);
}

/* ---- all requests together -------------------------------------------------- */

static void totals_of_all_requests(void **state)
{
    (void)state;
    cache_kit kit = open_full(100, 0.05);
    kit_request q[2];
    kit_request_init(&kit, &q[0], "aaaabbbbc");
    kit_request_init(&kit, &q[1], "aaaabbbbdd");
    kit_prefill(&kit, &q[0]);
    assert_int_equal(kit_prefill(&kit, &q[1]), 8);
    quire_cache_totals t = QUIRE_CACHE_TOTALS_INIT;
    assert_int_equal(quire_cache_get_totals(kit.cache, &t), QUIRE_OK);
    assert_true(t.num_seqs == 2 && t.num_table_blocks == 6 && t.watermark_blocks == 5);
    assert_int_equal(quire_cache_get_usage(kit.cache).active, 4);
    assert_true(t.num_moved_out == 0 && t.num_host_blocks == 0 && t.num_free_host_blocks == 16);
    assert_int_equal(t.num_copies, 0);
    assert_int_equal(quire_cache_get_totals(kit.cache, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_totals(NULL, &t), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_location(NULL, q[0].r.seq), QUIRE_LOCATION_NONE);
    assert_int_equal(quire_cache_get_location(kit.cache, 0), QUIRE_LOCATION_NONE);
    assert_int_equal(quire_cache_get_location(kit.cache, UINT64_MAX), QUIRE_LOCATION_NONE);
    kit_close(&kit);
}

/* ---- eviction of so many ---------------------------------------------------- */

static void least_recently_freed_first(void **state)
{
    (void)state;
    cache_kit kit = open_full(10, 0);
    kit_request q[2];
    kit_request_init(&kit, &q[0], "aaaabbbb");
    kit_request_init(&kit, &q[1], "ccccdddd");
    kit_prefill(&kit, &q[0]);
    kit_prefill(&kit, &q[1]);
    uint32_t n = 7;
    assert_int_equal(quire_pool_evict_cached(kit.pool, 5, &n), QUIRE_OK);
    assert_int_equal(n, 0); /* all are in use */
    kit_free(&kit, &q[0]);
    kit_free(&kit, &q[1]);
    char drawn[11];
    quire_block queue[2][9];
    quire_pool_get_all_free_blocks(kit.pool, queue[0], 9);
    assert_int_equal(quire_pool_evict_cached(kit.pool, 0, &n), QUIRE_OK);
    assert_int_equal(n, 0);
    assert_int_equal(quire_pool_evict_cached(kit.pool, 3, &n), QUIRE_OK);
    assert_int_equal(n, 3);
    assert_int_equal(quire_pool_draw(kit.pool, 0, 10, drawn), QUIRE_OK);
    assert_string_equal(drawn, "NEECEEEEEE"); /* freed: 2, 1, 4, 3 */
    quire_pool_get_all_free_blocks(kit.pool, queue[1], 9);
    assert_memory_equal(queue[0], queue[1], sizeof queue[0]);
    assert_int_equal(quire_pool_evict_cached(kit.pool, 3, &n), QUIRE_OK);
    assert_int_equal(n, 1);
    assert_int_equal(quire_pool_evict_cached(kit.pool, 3, NULL), QUIRE_OK);
    assert_int_equal(quire_pool_evict_cached(NULL, 3, &n), QUIRE_E_ARGUMENT);
    kit_check(&kit);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_allocate_slots_says),
        cmocka_unit_test(one_more_token),
        cmocka_unit_test(asking_trims_nothing),
        cmocka_unit_test(place_and_address_of_a_token),
        cmocka_unit_test(a_state_is_not_one_tokens),
        cmocka_unit_test(fields_of_a_block),
        cmocka_unit_test(totals_of_all_requests),
        cmocka_unit_test(least_recently_freed_first),
    };
    return cmocka_run_group_tests_name("cache_look", tests, NULL, NULL);
}
