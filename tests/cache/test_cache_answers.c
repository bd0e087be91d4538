/* cache/test_cache_answers.c - what the calls of quire/cache.h answer: limits, hits that are none,
 * spans, and caches at the edge of being none.
 *
 * What they refuse as not valid at all is in test_cache_api.c, what a cache tells about itself in
 * test_cache_reports.c. */
#include "base/inner.h"
#include "cache/cache_kit.h"

static cache_kit open_full(uint32_t num_blocks)
{
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, num_blocks);
    config.max_model_len = 40;
    config.max_requests = 2;
    cache_kit kit;
    kit_open(&kit, &config);
    return kit;
}

static int allocate(cache_kit *kit, kit_request *q, quire_allocate_params params)
{
    int status = quire_cache_allocate_slots(kit->cache, &q->r, &params, NULL);
    kit_check(kit);
    return status;
}

/* ---- limits ----------------------------------------------------------------- */

static void too_many_requests(void **state)
{
    (void)state;
    cache_kit kit = open_full(20);
    kit_request q[3];
    for (int i = 0; i < 3; i++)
        kit_request_init(&kit, &q[i], "aaaabbbbc");
    kit_prefill(&kit, &q[0]);
    kit_prefill(&kit, &q[1]);
    assert_int_equal(quire_cache_get_counts(kit.cache).num_seqs, 2);
    assert_int_equal(kit_try_prefill(&kit, &q[2]), QUIRE_FULL);
    assert_true(q[2].r.seq == 0);
    kit_free(&kit, &q[0]);
    assert_int_equal(kit_try_prefill(&kit, &q[2]), QUIRE_OK);
    kit_close(&kit);
}

static void more_tokens_than_the_model_takes(void **state)
{
    (void)state;
    cache_kit kit = open_full(20);
    char text[KIT_MAX_TOKENS] = "aaaabbbbccccddddeeeeffffgggghhhhiiiijjjj"; /* 40 */
    kit_request q;
    kit_request_init(&kit, &q, text);
    assert_int_equal(allocate(&kit, &q,
                              (quire_allocate_params){.size = sizeof(quire_allocate_params),
                                                      .num_new_tokens = 41}),
                     QUIRE_E_RANGE);
    assert_int_equal(allocate(&kit, &q,
                              (quire_allocate_params){.size = sizeof(quire_allocate_params),
                                                      .num_new_tokens = UINT32_MAX}),
                     QUIRE_E_RANGE);
    quire_allocate_params all_of_it = {.size = sizeof(quire_allocate_params),
                                       .num_new_tokens = UINT32_MAX,
                                       .num_new_computed_tokens = UINT32_MAX,
                                       .num_lookahead_tokens = UINT32_MAX,
                                       .num_external_computed_tokens = UINT32_MAX};
    assert_int_equal(allocate(&kit, &q, all_of_it), QUIRE_E_RANGE);
    /* Lookahead past the end is cut, for a request that ends at the limit still has drafts. */
    quire_allocate_params ahead = {.size = sizeof(quire_allocate_params),
                                   .num_new_tokens = 39,
                                   .num_lookahead_tokens = UINT32_MAX};
    assert_int_equal(allocate(&kit, &q, ahead), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 3 4 5 6 7 8 9 10");
    assert_int_equal(inner_remove_skipped(kit.cache, q.r.seq, 41), QUIRE_E_RANGE);
    assert_int_equal(quire_cache_copy_on_write(kit.cache, q.r.seq, 40, 1), QUIRE_E_RANGE);
    assert_int_equal(quire_cache_copy_on_write(kit.cache, q.r.seq, UINT32_MAX, 2), QUIRE_E_RANGE);
    assert_int_equal(quire_cache_copy_on_write(kit.cache, q.r.seq, 1, UINT32_MAX), QUIRE_E_RANGE);
    q.r.num_computed_tokens = UINT32_MAX;
    assert_int_equal(allocate(&kit, &q,
                              (quire_allocate_params){.size = sizeof(quire_allocate_params),
                                                      .num_new_tokens = 1}),
                     QUIRE_E_RANGE);
    kit_close(&kit);
}

static void fewer_hashes_than_full_blocks(void **state)
{
    (void)state;
    cache_kit kit = open_full(20);
    kit_request q;
    kit_request_init(&kit, &q, "aaaabbbbcccc");
    q.r.num_hashes = 2;
    assert_int_equal(allocate(&kit, &q,
                              (quire_allocate_params){.size = sizeof(quire_allocate_params),
                                                      .num_new_tokens = 12}),
                     QUIRE_E_RANGE);
    assert_true(q.r.seq == 0);
    quire_allocate_params later = {
        .size = sizeof(quire_allocate_params), .num_new_tokens = 12, .delay_cache_blocks = 1};
    assert_int_equal(allocate(&kit, &q, later), QUIRE_OK);
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &q.r, 12), QUIRE_E_RANGE);
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &q.r, 11), QUIRE_OK);
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 2);
    q.r.num_hashes = 3;
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &q.r, 12), QUIRE_OK);
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 3);
    q.r.num_hashes = 9;
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &q.r, 16), QUIRE_E_RANGE); /* no block */
    kit_close(&kit);
}

static void a_request_with_blocks_gets_no_hit(void **state)
{
    (void)state;
    cache_kit kit = open_full(20);
    kit_request q;
    kit_request other;
    quire_block_span hit;
    uint32_t num_hit = 0;
    kit_request_init(&kit, &q, "aaaabbbbc");
    kit_request_init(&kit, &other, "aaaabbbbd");
    kit_prefill(&kit, &q);
    kit_prefill(&kit, &other);
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, &hit, &num_hit), QUIRE_OK);
    quire_allocate_params params = {
        .size = sizeof(quire_allocate_params), .num_new_tokens = 1, .new_computed_blocks = &hit};
    assert_int_equal(allocate(&kit, &q, params), QUIRE_E_ARGUMENT);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 3");
    kit_close(&kit);
}

static void hits_that_are_none(void **state)
{
    (void)state;
    cache_kit kit = open_full(20);
    kit_request q;
    kit_request again;
    quire_block ids[64] = {1, 2};
    quire_block_span hit = {ids, 2};
    kit_request_init(&kit, &q, "aaaabbbbc");
    kit_request_init(&kit, &again, "aaaabbbbd");
    kit_prefill(&kit, &q);
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = 1,
                                    .num_new_computed_tokens = 8,
                                    .new_computed_blocks = &hit};
    assert_int_equal(inner_evict(kit.cache, &ids[1], 1), QUIRE_OK);
    assert_int_equal(allocate(&kit, &again, params), QUIRE_E_STALE_HIT);
    ids[1] = 99;
    assert_true(allocate(&kit, &again, params) < 0);
    hit = (quire_block_span){NULL, 2};
    assert_int_equal(allocate(&kit, &again, params), QUIRE_E_ARGUMENT);
    hit = (quire_block_span){ids, 11};
    assert_true(allocate(&kit, &again, params) < 0);
    assert_true(again.r.seq == 0);
    assert_int_equal(quire_cache_get_counts(kit.cache).num_seqs, 1);
    kit_close(&kit);
}

/* With two groups: the hit of one is not a hit of the other. */
static void hits_of_another_group(void **state)
{
    (void)state;
    const quire_group_config groups[] = {kit_full(4), kit_window(4, 20)};
    quire_cache_config config = kit_config(groups, 2, 20);
    cache_kit kit;
    kit_request q;
    kit_request again;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, "aaaabbbbc");
    kit_request_init(&kit, &again, "aaaabbbbd");
    kit_prefill(&kit, &q);
    quire_block_span hit[2];
    uint32_t num_hit = 0;
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &again.r, hit, &num_hit), QUIRE_OK);
    const quire_block_span swapped[2] = {hit[1], hit[0]};
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = 1,
                                    .num_new_computed_tokens = 8,
                                    .new_computed_blocks = swapped};
    assert_int_equal(allocate(&kit, &again, params), QUIRE_E_STALE_HIT);
    kit_close(&kit);
}

static void encoder_tokens(void **state)
{
    (void)state;
    const quire_group_config groups[] = {kit_full(4), kit_cross(4)};
    quire_cache_config config = kit_config(groups, 2, 20);
    config.enable_caching = QUIRE_OFF;
    config.max_encoder_tokens = 10;
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, "aaaab");
    quire_allocate_params params = {
        .size = sizeof(quire_allocate_params), .num_new_tokens = 5, .num_encoder_tokens = 11};
    assert_int_equal(allocate(&kit, &q, params), QUIRE_E_RANGE);
    params.num_encoder_tokens = 10;
    assert_int_equal(allocate(&kit, &q, params), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 | 3 4 5");
    q.r.num_computed_tokens = 5;
    assert_int_equal(kit_extend(&kit, &q, 5), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 6 | 3 4 5");
    kit_free(&kit, &q);
    assert_int_equal(quire_cache_get_usage(kit.cache).active, 0);
    kit_close(&kit);
}

/* ---- spans ------------------------------------------------------------------- */

static void spans_of_new_blocks(void **state)
{
    (void)state;
    const quire_group_config groups[] = {kit_full(4), kit_window(4, 5)};
    quire_cache_config config = kit_config(groups, 2, 20);
    cache_kit kit;
    kit_request q;
    quire_block_span got[2] = {{NULL, 99}, {NULL, 99}};
    char text[KIT_MAX_TOKENS] = "aaaabbbbccccd";
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, text);
    quire_allocate_params params = {
        .size = sizeof(quire_allocate_params), .num_new_tokens = 6, .num_lookahead_tokens = 3};
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &params, got), QUIRE_OK);
    assert_string_equal(kit_spans(&kit, got), "1 2 3 | 4 5 6");
    q.r.num_computed_tokens = 6;
    params = (quire_allocate_params){.size = sizeof(quire_allocate_params), .num_new_tokens = 6};
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &params, got), QUIRE_OK);
    assert_string_equal(kit_spans(&kit, got), " |"); /* the lookahead's blocks are used */
    q.r.num_computed_tokens = 12;
    params = (quire_allocate_params){.size = sizeof(quire_allocate_params), .num_new_tokens = 1};
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &params, got), QUIRE_OK);
    assert_string_equal(kit_spans(&kit, got), "5 | 4"); /* which the window gave back */
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 3 5 | 0 0 6 4");
    kit_close(&kit);
}

static void skipping_the_prefix_and_caching_off_find_nothing(void **state)
{
    (void)state;
    cache_kit kit = open_full(20);
    kit_request q;
    quire_block_span hit = {NULL, 7};
    uint32_t num_hit = 7;
    kit_request_init(&kit, &q, "aaaabbbbc");
    kit_prefill(&kit, &q);
    kit_request_init(&kit, &q, "aaaabbbbc");
    q.r.skip_reading_prefix = 1;
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, &hit, &num_hit), QUIRE_OK);
    assert_true(num_hit == 0 && hit.count == 0);
    q.r.skip_reading_prefix = 0;
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, &hit, &num_hit), QUIRE_OK);
    assert_true(num_hit == 8 && hit.count == 2);
    kit_request_init(&kit, &q, "aaaabbbb"); /* one token must be left to compute */
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, &hit, &num_hit), QUIRE_OK);
    assert_true(num_hit == 4 && hit.count == 1);
    q.r.num_tokens = 0;
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, &hit, &num_hit),
                     QUIRE_E_ARGUMENT);
    q.r.num_tokens = 41;
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, &hit, &num_hit),
                     QUIRE_E_RANGE);
    kit_close(&kit);
}

/* ---- hardly a cache ----------------------------------------------------------------- */

static void model_without_kv_cache(void **state)
{
    (void)state;
    quire_cache_config config = kit_config(NULL, 0, 1);
    cache_kit kit;
    quire_cache_request r = {.num_tokens = 5};
    quire_allocate_params params = {.size = sizeof(quire_allocate_params), .num_new_tokens = 5};
    uint32_t num_hit = 9;
    kit_open(&kit, &config);
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &r, NULL, &num_hit), QUIRE_OK);
    assert_int_equal(num_hit, 0);
    assert_int_equal(quire_cache_can_fit_full_sequence(kit.cache, &r, &params), QUIRE_OK);
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &r, &params, NULL), QUIRE_OK);
    assert_true(r.seq != 0);
    assert_int_equal(quire_cache_get_blocks(kit.cache, r.seq, NULL), QUIRE_OK);
    assert_int_equal(quire_cache_get_num_common_prefix_blocks(kit.cache, r.seq, NULL), QUIRE_OK);
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &r, 5), QUIRE_OK);
    assert_int_equal(quire_cache_new_step_starts(kit.cache), QUIRE_OK);
    assert_int_equal(quire_cache_free(kit.cache, &r), QUIRE_OK);
    assert_int_equal(quire_cache_reset_prefix_cache(kit.cache), QUIRE_OK);
    kit_close(&kit);
}

static void only_the_null_block(void **state)
{
    (void)state;
    cache_kit kit = open_full(1);
    kit_request q;
    quire_pressure p;
    kit_request_init(&kit, &q, "aaaab");
    assert_int_equal(kit_try_prefill(&kit, &q), QUIRE_NO_SPACE);
    assert_int_equal(quire_cache_get_usage(kit.cache).total, 1);
    assert_int_equal(quire_cache_get_pressure(kit.cache, &p), QUIRE_OK);
    assert_true(p.level == 0 && p.should_admit == 1 && p.should_preempt == 0);
    assert_int_equal(quire_cache_reset_prefix_cache(kit.cache), QUIRE_OK);
    const quire_block blocks[] = {0, 0, 1};
    assert_int_equal(inner_evict(kit.cache, blocks, 2), QUIRE_OK);
    assert_int_equal(inner_evict(kit.cache, blocks, 3), QUIRE_E_UNKNOWN_BLOCK);
    kit_close(&kit);
}

/* Align mode. The second request begins with the first one's state in block 1, and then goes on
 * three blocks further in one step: the old state is not needed any more. */
static void state_of_a_hit_is_given_back(void **state)
{
    (void)state;
    const quire_group_config mamba = kit_mamba(4, QUIRE_MAMBA_MODE_ALIGN, 0);
    const quire_cache_config config = kit_config(&mamba, 1, 20);
    char text[KIT_MAX_TOKENS + 1] = "aaaabbbbccccddddeeee";
    cache_kit kit;
    kit_request first;
    kit_request second;
    kit_open(&kit, &config);
    kit_request_init(&kit, &first, "aaaabbbb");
    assert_int_equal(kit_prefill(&kit, &first), 0);
    assert_string_equal(kit_blocks(&kit, first.r.seq), "0 1");
    quire_cache_new_step_starts(kit.cache);
    kit_free(&kit, &first);
    kit_request_init(&kit, &second, text);
    assert_int_equal(kit_prefill(&kit, &second), 8);
    assert_string_equal(kit_blocks(&kit, second.r.seq), "0 1 0 0 2");
    kit_append(&kit, &second, text, 'f');
    assert_int_equal(kit_extend(&kit, &second, 1), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, second.r.seq), "0 0 0 0 2 3");
    kit_free(&kit, &second);
    kit_close(&kit);
}

static void forking_is_off_by_default(void **state)
{
    (void)state;
    const quire_group_config mamba = kit_mamba(4, QUIRE_MAMBA_MODE_ALIGN, 0);
    quire_cache_config config = kit_config(&mamba, 1, 20);
    cache_kit kit = open_full(10);
    kit_request q;
    kit_request child;
    kit_request_init(&kit, &q, "aaaab");
    kit_request_init(&kit, &child, "aaaab");
    kit_prefill(&kit, &q);
    assert_int_equal(quire_cache_fork(kit.cache, &q.r, &child.r), QUIRE_E_DISABLED);
    kit_close(&kit);
    config.max_copies = 4;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, "aaaab");
    kit_prefill(&kit, &q);
    assert_int_equal(quire_cache_fork(kit.cache, &q.r, &child.r), QUIRE_E_ARGUMENT);
    assert_true(child.r.seq == 0);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_many_requests),
        cmocka_unit_test(more_tokens_than_the_model_takes),
        cmocka_unit_test(fewer_hashes_than_full_blocks),
        cmocka_unit_test(a_request_with_blocks_gets_no_hit),
        cmocka_unit_test(hits_that_are_none),
        cmocka_unit_test(hits_of_another_group),
        cmocka_unit_test(encoder_tokens),
        cmocka_unit_test(spans_of_new_blocks),
        cmocka_unit_test(skipping_the_prefix_and_caching_off_find_nothing),
        cmocka_unit_test(model_without_kv_cache),
        cmocka_unit_test(only_the_null_block),
        cmocka_unit_test(state_of_a_hit_is_given_back),
        cmocka_unit_test(forking_is_off_by_default),
    };
    return cmocka_run_group_tests_name("cache_answers", tests, NULL, NULL);
}
