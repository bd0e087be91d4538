/* cache/test_cache_api.c - making a cache, and what its calls refuse.
 *
 * What the calls answer when all is well is in test_cache_answers.c and test_cache_reports.c. */
#include "base/inner.h"
#include "cache/cache_kit.h"

enum { ROOM = 1 << 16, NUM_BLOCKS = 12 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];

static quire_cache *make(const quire_cache_config *config)
{
    quire_cache *cache = NULL;
    assert_int_equal(quire_cache_create(config, NULL, &cache), QUIRE_OK);
    assert_int_equal(quire_cache_check(cache), QUIRE_OK);
    return cache;
}

static void assert_refused(const quire_cache_config *config)
{
    quire_cache *cache = NULL;
    assert_int_equal(quire_cache_bytes(config), 0);
    assert_int_equal(quire_cache_create(config, NULL, &cache), QUIRE_E_CONFIG);
    assert_int_equal(
        quire_cache_create(config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &cache),
        QUIRE_E_CONFIG);
    assert_null(cache);
}

static void assert_accepted(const quire_cache_config *config)
{
    assert_true(quire_cache_bytes(config) > 0);
    quire_cache_destroy(make(config));
}

/* ---- making ---------------------------------------------------------------- */

static void making_refuses_null(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, NUM_BLOCKS);
    quire_cache *cache = NULL;
    assert_int_equal(quire_cache_bytes(NULL), 0);
    assert_int_equal(quire_cache_create(NULL, NULL, &cache), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_create(&config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_cache_create(&config, &(quire_allocator){.memory = NULL, .bytes = ROOM}, &cache),
        QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_cache_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, NULL),
        QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_cache_create(NULL, &(quire_allocator){.memory = memory, .bytes = ROOM}, &cache),
        QUIRE_E_ARGUMENT);
    assert_null(cache);
    quire_cache_destroy(NULL);
}

static void making_refuses_bad_memory(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, NUM_BLOCKS);
    config.max_requests = 2;
    quire_cache *cache = NULL;
    size_t needed = quire_cache_bytes(&config);
    assert_true(needed > 0 && needed < ROOM);
    assert_int_equal(quire_cache_create(&config,
                                        &(quire_allocator){.memory = memory, .bytes = needed - 1},
                                        &cache),
                     QUIRE_E_TOO_SMALL);
    assert_int_equal(
        quire_cache_create(&config, &(quire_allocator){.memory = memory, .bytes = 0}, &cache),
        QUIRE_E_TOO_SMALL);
    assert_int_equal(quire_cache_create(&config,
                                        &(quire_allocator){.memory = memory + 8, .bytes = ROOM - 8},
                                        &cache),
                     QUIRE_E_ALIGNMENT);
    assert_null(cache);
    assert_int_equal(
        quire_cache_create(&config, &(quire_allocator){.memory = memory, .bytes = needed}, &cache),
        QUIRE_OK);
    assert_int_equal(quire_cache_check(cache), QUIRE_OK);
    quire_cache_destroy(cache);
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    const quire_cache_config good = kit_config(&full, 1, NUM_BLOCKS);
    quire_cache_config c;
    assert_accepted(&good);
    c = good, c.size = 3, assert_refused(&c);
    c = good, c.num_blocks = 0, assert_refused(&c);
    c = good, c.num_blocks = QUIRE_MAX_BLOCKS + 1, assert_refused(&c);
    c = good, c.groups = NULL, assert_refused(&c);
    c = good, c.max_model_len = 0, assert_refused(&c);
    c = good, c.enable_caching = (quire_switch)3, assert_refused(&c);
    c = good, c.use_eagle = (quire_switch)9, assert_refused(&c);
    c = good, c.log_stats = (quire_switch)7, assert_refused(&c);
    c = good, c.track_new_blocks = (quire_switch)3, assert_refused(&c);
    c = good, c.profile = (quire_profile)3, assert_refused(&c);
    c = good, c.digest_bytes = 17, assert_refused(&c);
    c = good, c.watermark = -0.1, assert_refused(&c);
    c = good, c.watermark = 1.1, assert_refused(&c);
    c = good, c.admit_below = 0.9, c.preempt_above = 0.8, assert_refused(&c);
    c = good, c.admit_below = -1, assert_refused(&c);
    c = good, c.preempt_above = 1.5, assert_refused(&c);
    c = good, c.watermark = 1, assert_accepted(&c);
}

static void numbers_that_are_none_are_refused(void **state)
{
    (void)state;
    const double zero = strtod("0", NULL);
    quire_group_config full = kit_full(4);
    const quire_cache_config good = kit_config(&full, 1, NUM_BLOCKS);
    quire_cache_config c;
    c = good, c.watermark = zero / zero, assert_refused(&c);
    c = good, c.admit_below = zero / zero, assert_refused(&c);
    c = good, c.preempt_above = zero / zero, assert_refused(&c);
}

static void hash_block_size_must_divide(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_group_config two[] = {kit_full(8), kit_window(4, 9)};
    quire_cache_config one = kit_config(&full, 1, NUM_BLOCKS);
    quire_cache_config both = kit_config(two, 2, NUM_BLOCKS);
    quire_cache *cache = make(&both);
    assert_int_equal(quire_cache_get_counts(cache).hash_block_size, 4);
    quire_cache_destroy(cache);
    cache = make(&one);
    assert_int_equal(quire_cache_get_counts(cache).hash_block_size, 4);
    quire_cache_destroy(cache);
    one.hash_block_size = 3;
    assert_refused(&one);
    one.hash_block_size = 8;
    assert_refused(&one);
    both.hash_block_size = 8;
    assert_refused(&both);
    both.hash_block_size = 2;
    assert_accepted(&both);
}

static void groups_that_vllm_refuses(void **state)
{
    (void)state;
    quire_group_config alike[] = {kit_full(4), kit_full(4)};
    quire_cache_config c = kit_config(alike, 2, NUM_BLOCKS);
    assert_refused(&c);
    c.enable_caching = QUIRE_OFF;
    assert_accepted(&c);

    quire_group_config cross[] = {kit_full(4), kit_cross(4)};
    c = kit_config(cross, 2, NUM_BLOCKS);
    c.max_encoder_tokens = 20;
    assert_refused(&c);
    c.enable_caching = QUIRE_OFF;
    assert_accepted(&c);
    c.max_encoder_tokens = 0;
    assert_refused(&c);

    quire_group_config chunked[] = {kit_full(4), kit_chunked(4, 8)};
    c = kit_config(chunked, 2, NUM_BLOCKS);
    assert_accepted(&c);
    c.use_eagle = QUIRE_ON;
    assert_refused(&c);
    c.use_eagle = QUIRE_DEFAULT;
    chunked[0].spec.block_size = 8;
    assert_refused(&c);
    quire_group_config behind[] = {kit_chunked(4, 8), kit_full(4)};
    c = kit_config(behind, 2, NUM_BLOCKS);
    assert_accepted(&c);
    behind[1].spec.block_size = 8;
    assert_refused(&c);

    quire_group_config encoder = kit_full(4);
    encoder.spec.kind = QUIRE_LAYER_ENCODER_ONLY;
    c = kit_config(&encoder, 1, NUM_BLOCKS);
    assert_refused(&c);
}

static void model_without_groups_cannot_cache(void **state)
{
    (void)state;
    quire_cache_config c = kit_config(NULL, 0, NUM_BLOCKS);
    assert_accepted(&c);
    c.enable_caching = QUIRE_OFF;
    assert_accepted(&c);
    c.enable_caching = QUIRE_ON;
    assert_refused(&c);
    c.hash_block_size = 4;
    assert_refused(&c);
}

static void sinks_and_context_parallelism(void **state)
{
    (void)state;
    quire_group_config sink = kit_sink(4, 8);
    quire_cache_config c = kit_config(&sink, 1, 3);
    assert_accepted(&c);
    c.num_blocks = 2;
    assert_refused(&c);

    quire_group_config window = kit_window(4, 9);
    c = kit_config(&window, 1, NUM_BLOCKS);
    c.dcp_world_size = 2;
    assert_refused(&c);
    quire_group_config full[] = {kit_full(4), kit_window(4, 9)};
    c = kit_config(full, 2, NUM_BLOCKS);
    c.pcp_world_size = 2;
    assert_refused(&c);
    c.num_groups = 1;
    c.dcp_world_size = 3;
    quire_cache *cache = make(&c);
    assert_int_equal(quire_cache_get_counts(cache).hash_block_size, 24);
    quire_cache_destroy(cache);
}

static void groups_are_copied(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, NUM_BLOCKS);
    cache_kit kit;
    kit_open(&kit, &config);
    memset(&full, 0xee, sizeof full);
    memset(&config, 0xee, sizeof config);
    kit_request q;
    kit_request_init(&kit, &q, "aaaabbbbc");
    kit_prefill(&kit, &q);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 3");
    kit_close(&kit);
}

/* ---- no cache -------------------------------------------------------------- */

static void visit_nothing(void *user, const quire_event *event)
{
    (void)user;
    (void)event;
    fail();
}

static void assert_nothing_to_see(quire_cache *cache)
{
    quire_usage usage = quire_cache_get_usage(cache);
    assert_int_equal(usage.total, 0);
    assert_true(quire_usage_level(quire_cache_get_usage(cache)) == 0);
    assert_int_equal(quire_cache_get_counts(cache).num_groups, 0);
    assert_int_equal(quire_cache_get_counts(cache).num_seqs, 0);
    assert_int_equal(quire_cache_get_counts(cache).hash_block_size, 0);
    assert_null(quire_cache_get_pool(cache));
    assert_int_equal(quire_cache_check(cache), QUIRE_E_ARGUMENT);
}

static void assert_no_cache(quire_cache *cache)
{
    quire_cache_request r = {.num_tokens = 4};
    quire_cache_request child = {0};
    quire_allocate_params params = {.size = sizeof(quire_allocate_params), .num_new_tokens = 1};
    quire_block_span spans[KIT_MAX_GROUPS] = {{NULL, 7}};
    quire_prefix_stats stats;
    quire_pressure pressure;
    const quire_block_copy *copies = NULL;
    uint32_t n = 77;
    assert_int_equal(quire_cache_get_computed_blocks(cache, &r, spans, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_allocate_slots(cache, &r, &params, spans), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_can_fit_full_sequence(cache, &r, &params), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_cache_blocks(cache, &r, 4), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_free(cache, &r), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_reset_prefix_cache(cache), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_new_step_starts(cache), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_blocks(cache, 0, spans), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_num_common_prefix_blocks(cache, 1, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_take_new_block_ids(cache, spans), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_take_prefix_stats(cache, &stats), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_take_events(cache, visit_nothing, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_fork(cache, &r, &child), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_copy_on_write(cache, 1, 0, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_take_copies(cache, &copies, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_pressure(cache, &pressure), QUIRE_E_ARGUMENT);
    assert_true(n == 77 && spans[0].count == 7 && r.seq == 0 && child.seq == 0);
    assert_nothing_to_see(cache);
}

static void no_cache_is_an_argument_error(void **state)
{
    (void)state;
    assert_no_cache(NULL);
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, NUM_BLOCKS);
    quire_cache *cache = NULL;
    assert_int_equal(
        quire_cache_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &cache),
        QUIRE_OK);
    quire_cache_destroy(cache);
    assert_no_cache(cache); /* its memory is still ours */
    quire_cache_destroy(cache);
}

/* ---- NULL where something must be ------------------------------------------- */

static cache_kit open_full(void)
{
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, NUM_BLOCKS);
    config.max_requests = 2;
    config.max_copies = 4;
    config.log_stats = QUIRE_ON;
    config.event_log_bytes = 4096;
    cache_kit kit;
    kit_open(&kit, &config);
    return kit;
}

static void null_arguments_change_nothing(void **state)
{
    (void)state;
    static char before[1 << 14];
    static char after[1 << 14];
    cache_kit kit = open_full();
    kit_request q;
    kit_request_init(&kit, &q, "aaaabbbbc");
    kit_prefill(&kit, &q);
    const kit_request *all[] = {&q};
    quire_cache *cache = kit.cache;
    quire_cache_request headless = {.num_tokens = 9, .num_hashes = 2};
    quire_allocate_params params = {.size = sizeof(quire_allocate_params), .num_new_tokens = 1};
    quire_block_span span;
    const quire_block_copy *copies;
    uint32_t n;
    kit_snapshot(&kit, all, 1, before, sizeof before);
    assert_int_equal(quire_cache_get_computed_blocks(cache, NULL, &span, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_computed_blocks(cache, &q.r, NULL, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_computed_blocks(cache, &q.r, &span, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_computed_blocks(cache, &headless, &span, &n),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_allocate_slots(cache, NULL, &params, &span), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_allocate_slots(cache, &q.r, NULL, &span), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_allocate_slots(cache, &headless, &params, &span),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_can_fit_full_sequence(cache, NULL, &params), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_can_fit_full_sequence(cache, &q.r, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_cache_blocks(cache, NULL, 4), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_free(cache, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_blocks(cache, q.r.seq, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_num_common_prefix_blocks(cache, q.r.seq, NULL),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_take_new_block_ids(cache, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_take_prefix_stats(cache, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_take_events(cache, NULL, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_fork(cache, NULL, &headless), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_fork(cache, &q.r, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_take_copies(cache, NULL, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_take_copies(cache, &copies, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_get_pressure(cache, NULL), QUIRE_E_ARGUMENT);
    kit_snapshot(&kit, all, 1, after, sizeof after);
    assert_string_equal(before, after);
    kit_close(&kit);
}

/* ---- numbers that are no sequence -------------------------------------------- */

static void assert_unknown(const cache_kit *kit, quire_seq seq)
{
    quire_cache_request r = {.seq = seq, .num_tokens = 4, .num_computed_tokens = 4};
    quire_cache_request child = {0};
    quire_allocate_params params = {.size = sizeof(quire_allocate_params), .num_new_tokens = 1};
    quire_block_span span;
    uint32_t n = 0;
    quire_cache *cache = kit->cache;
    assert_int_equal(quire_cache_allocate_slots(cache, &r, &params, NULL), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_can_fit_full_sequence(cache, &r, &params), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_cache_blocks(cache, &r, 4), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_free(cache, &r), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(inner_remove_skipped(cache, seq, 4), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_get_blocks(cache, seq, &span), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_get_num_common_prefix_blocks(cache, seq, &n), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_fork(cache, &r, &child), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_copy_on_write(cache, seq, 0, 1), QUIRE_E_UNKNOWN_SEQ);
    assert_true(r.seq == seq && child.seq == 0);
}

static void freed_and_forged_sequences_are_unknown(void **state)
{
    (void)state;
    static char before[1 << 14];
    static char after[1 << 14];
    cache_kit kit = open_full();
    kit_request q;
    kit_request other;
    kit_request_init(&kit, &q, "aaaabbbbc");
    kit_request_init(&kit, &other, "xxxxyyyy");
    kit_prefill(&kit, &q);
    quire_seq freed = q.r.seq;
    kit_free(&kit, &q);
    kit_prefill(&kit, &other); /* in the same place */
    assert_true(other.r.seq != freed && other.r.seq != 0);
    const kit_request *all[] = {&other};
    kit_snapshot(&kit, all, 1, before, sizeof before);
    assert_unknown(&kit, freed);
    for (unsigned bit = 0; bit < 64; bit++)
        if ((other.r.seq ^ UINT64_C(1) << bit) != 0)
            assert_unknown(&kit, other.r.seq ^ UINT64_C(1) << bit);
    assert_unknown(&kit, UINT64_MAX);
    assert_unknown(&kit, 1);
    kit_snapshot(&kit, all, 1, after, sizeof after);
    assert_string_equal(before, after);
    kit_close(&kit);
}

static void numbers_are_not_used_again(void **state)
{
    (void)state;
    cache_kit kit = open_full();
    quire_seq seen[200];
    for (uint32_t i = 0; i < COUNT(seen); i++) {
        kit_request q;
        kit_request_init(&kit, &q, "aaaab");
        kit_prefill(&kit, &q);
        seen[i] = q.r.seq;
        for (uint32_t k = 0; k < i; k++)
            assert_true(seen[k] != seen[i]);
        kit_free(&kit, &q);
    }
    kit_close(&kit);
}

static void no_sequence_is_no_error_where_it_says_so(void **state)
{
    (void)state;
    cache_kit kit = open_full();
    kit_request q;
    quire_block_span span = {NULL, 9};
    uint32_t n = 0;
    kit_request_init(&kit, &q, "aaaab");
    assert_int_equal(quire_cache_free(kit.cache, &q.r), QUIRE_OK);
    assert_int_equal(quire_cache_get_blocks(kit.cache, 0, &span), QUIRE_OK);
    assert_int_equal(span.count, 0);
    assert_int_equal(inner_remove_skipped(kit.cache, 0, 4), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_get_num_common_prefix_blocks(kit.cache, 0, &n),
                     QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &q.r, 4), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_copy_on_write(kit.cache, 0, 0, 1), QUIRE_E_UNKNOWN_SEQ);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(making_refuses_null),
        cmocka_unit_test(making_refuses_bad_memory),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(numbers_that_are_none_are_refused),
        cmocka_unit_test(hash_block_size_must_divide),
        cmocka_unit_test(groups_that_vllm_refuses),
        cmocka_unit_test(model_without_groups_cannot_cache),
        cmocka_unit_test(sinks_and_context_parallelism),
        cmocka_unit_test(groups_are_copied),
        cmocka_unit_test(no_cache_is_an_argument_error),
        cmocka_unit_test(null_arguments_change_nothing),
        cmocka_unit_test(freed_and_forged_sequences_are_unknown),
        cmocka_unit_test(numbers_are_not_used_again),
        cmocka_unit_test(no_sequence_is_no_error_where_it_says_so),
    };
    return cmocka_run_group_tests_name("cache_api", tests, NULL, NULL);
}
