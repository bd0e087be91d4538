/* cache/test_quirks.c - each quirk of the cache: the bug of vLLM 0.20.0 shows with its bit, and not
 * without. docs/quirks.md tells the stories; the block ids and answers "with" are those that vLLM
 * gives for the same calls.
 *
 *                     default profile   + the bit   vLLM profile   - the bit
 *      bug shows             no            yes           yes           no
 */
#include "base/inner.h"
#include "base/quirks_kit.h"
#include "cache/cache_kit.h"

typedef struct variant {
    quire_profile profile;
    uint64_t quirks_on;
    uint64_t quirks_off;
    bool has_bug;
} variant;

enum { NUM_VARIANTS = 4 };

static variant variant_of(uint64_t quirk, uint32_t i)
{
    const variant all[NUM_VARIANTS] = {
        {QUIRE_PROFILE_DEFAULT, 0, 0, false},
        {QUIRE_PROFILE_DEFAULT, quirk, 0, true},
        {QUIRE_PROFILE_VLLM_0_20, 0, 0, true},
        {QUIRE_PROFILE_VLLM_0_20, 0, quirk, false},
    };
    return all[i];
}

/* `off` is taken away too: what belongs to another test. */
static void open_variant_without(cache_kit *kit, quire_cache_config config, uint64_t quirk,
                                 const variant *v, uint64_t off)
{
    config.profile = v->profile;
    if (v->profile == QUIRE_PROFILE_DEFAULT) /* as in 0.20 */
        config.prefix_cache_retention_interval = QUIRE_RETAIN_ALL;
    quirks_change(v->quirks_on, v->quirks_off | off);
    kit_open(kit, &config);
    quirks_change(0, 0);
    assert_int_equal((kit->cache->quirks & quirk) != 0, v->has_bug);
}

static void open_variant(cache_kit *kit, quire_cache_config config, uint64_t quirk,
                         const variant *v)
{
    open_variant_without(kit, config, quirk, v, 0);
}

static const char *letters(uint32_t n)
{
    static char text[KIT_MAX_TOKENS + 1];
    for (uint32_t i = 0; i < n; i++)
        text[i] = (char)('a' + i % 23);
    text[n] = '\0';
    return text;
}

static int allocate(cache_kit *kit, kit_request *q, quire_allocate_params params)
{
    int status = quire_cache_allocate_slots(kit->cache, &q->r, &params, NULL);
    kit_check(kit);
    return status;
}

/* ---- ADMISSION_CAP_PER_STEP ---------------------------------------------- */

/* Window 8, blocks of 4, steps of 12 tokens: the cap is cdiv(8 - 1 + 12, 4) + 1 = 6 blocks. After
 * two steps the row is 6 long, a null block included, so the capped prediction for the third is 0,
 * and 4 blocks are taken. Three come from the window's trim; the pool has no other. */
static void admission_cap_per_step(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(ADMISSION_CAP_PER_STEP);
    quire_group_config window = kit_window(4, 8);
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        quire_cache_config config = kit_config(&window, 1, 20);
        config.max_num_batched_tokens = 12;
        cache_kit kit;
        kit_request q;
        quire_block taken[KIT_MAX_BLOCKS];
        open_variant_without(&kit, config, quirk, &v, QR_QUIRK(TRIM_ON_FAILURE));
        kit_request_init(&kit, &q, letters(60));
        assert_int_equal(kit_extend(&kit, &q, 12), QUIRE_OK);
        assert_int_equal(kit_extend(&kit, &q, 12), QUIRE_OK);
        assert_string_equal(kit_blocks(&kit, q.r.seq), "0 2 3 4 5 6");
        uint32_t num_taken = kit_fill(&kit, 0, taken);
        const quire_allocate_params third = {
            .size = sizeof(quire_allocate_params), .num_new_tokens = 12, .num_lookahead_tokens = 4};
        assert_int_equal(allocate(&kit, &q, third),
                         v.has_bug ? QUIRE_E_PREDICTION : QUIRE_NO_SPACE);
        assert_string_equal(kit_blocks(&kit, q.r.seq), "0 2 3 4 5 6");
        kit_unfill(&kit, taken, 1);
        assert_int_equal(allocate(&kit, &q, third), QUIRE_OK);
        assert_string_equal(kit_blocks(&kit, q.r.seq), "0 0 0 0 5 6 7 4 3 2");
        kit_unfill(&kit, taken + 1, num_taken - 1);
        kit_close(&kit);
    }
}

/* Admission itself is capped either way: 60 tokens fit into 6 free blocks, and not into 5. */
static void admission_is_capped_either_way(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(ADMISSION_CAP_PER_STEP);
    quire_group_config window = kit_window(4, 8);
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        quire_cache_config config = kit_config(&window, 1, 20);
        config.max_num_batched_tokens = 12;
        const quire_allocate_params none = QUIRE_ALLOCATE_PARAMS_INIT;
        cache_kit kit;
        kit_request q;
        quire_block taken[KIT_MAX_BLOCKS];
        open_variant(&kit, config, quirk, &v);
        kit_request_init(&kit, &q, letters(60));
        kit_fill(&kit, 6, taken);
        assert_int_equal(quire_cache_can_fit_full_sequence(kit.cache, &q.r, &none), QUIRE_OK);
        kit_fill(&kit, 5, taken);
        assert_int_equal(quire_cache_can_fit_full_sequence(kit.cache, &q.r, &none), QUIRE_NO_SPACE);
        kit_close(&kit);
    }
}

/* ---- STATS_EVERY_LOOKUP --------------------------------------------------- */

static void stats_every_lookup(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(STATS_EVERY_LOOKUP);
    quire_group_config full = kit_full(4);
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        quire_cache_config config = kit_config(&full, 1, 20);
        config.log_stats = QUIRE_ON;
        cache_kit kit;
        kit_request first;
        kit_request q;
        quire_block_span hit;
        uint32_t num_hit = 0;
        quire_prefix_stats stats;
        open_variant(&kit, config, quirk, &v);
        kit_request_init(&kit, &first, letters(10));
        kit_request_init(&kit, &q, letters(10));
        assert_int_equal(kit_extend(&kit, &first, 10), QUIRE_OK);
        assert_int_equal(quire_cache_take_prefix_stats(kit.cache, &stats), QUIRE_OK);
        /* The head of the queue is looked up in every step until there is room for it. */
        for (int step = 0; step < 3; step++)
            assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, &hit, &num_hit),
                             QUIRE_OK);
        assert_int_equal(num_hit, 8);
        quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                        .num_new_tokens = 2,
                                        .num_new_computed_tokens = num_hit,
                                        .new_computed_blocks = &hit};
        assert_int_equal(allocate(&kit, &q, params), QUIRE_OK);
        q.r.num_computed_tokens = 10;
        assert_int_equal(kit_extend(&kit, &q, 1), QUIRE_OK);
        assert_int_equal(quire_cache_take_prefix_stats(kit.cache, &stats), QUIRE_OK);
        assert_int_equal(stats.requests, v.has_bug ? 3 : 1);
        assert_int_equal(stats.queries, v.has_bug ? 30 : 10);
        assert_int_equal(stats.hits, v.has_bug ? 24 : 8);
        kit_close(&kit);
    }
}

/* ---- HYBRID_SECOND_FULL --------------------------------------------------- */

/* The window's blocks past token 8 are gone, so the hit is 8 tokens: two blocks in each group. */
static void hybrid_second_full(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(HYBRID_SECOND_FULL);
    quire_group_config groups[] = {kit_full(4), kit_full(4), kit_window(4, 5)};
    groups[1].spec.head_size = 16;
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        cache_kit kit;
        kit_request q;
        kit_request again;
        quire_block_span hit[3];
        uint32_t num_hit = 0;
        open_variant(&kit, kit_config(groups, 3, 40), quirk, &v);
        kit_request_init(&kit, &q, letters(21));
        kit_request_init(&kit, &again, letters(21));
        kit_prefill(&kit, &q);
        assert_string_equal(kit_blocks(&kit, q.r.seq),
                            "1 2 3 4 5 6 | 7 8 9 10 11 12 | 13 14 15 16 17 18");
        kit_free(&kit, &q);
        const quire_block gone[] = {15, 16, 17, 18};
        assert_int_equal(inner_evict(kit.cache, gone, COUNT(gone)), QUIRE_OK);
        assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &again.r, hit, &num_hit),
                         QUIRE_OK);
        assert_int_equal(num_hit, 8);
        assert_string_equal(kit_spans(&kit, hit),
                            v.has_bug ? "1 2 | 7 8 9 10 11 | 0 14" : "1 2 | 7 8 | 0 14");
        kit_close(&kit);
    }
}

/* ---- MAMBA_EAGLE_GROWS ----------------------------------------------------- */

/* Five blocks are cached. EAGLE drops the last of the full group: 16 tokens. The Mamba group is
 * asked for a block more, of which it drops none: then the hit has 20 tokens. */
static void mamba_eagle_grows(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(MAMBA_EAGLE_GROWS);
    quire_group_config groups[] = {kit_full(4), kit_mamba(4, QUIRE_MAMBA_MODE_ALL, 0)};
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        cache_kit kit;
        kit_request q;
        kit_request again;
        quire_block_span hit[2];
        uint32_t num_hit = 0;
        quire_cache_config config = kit_config(groups, 2, 40);
        config.use_eagle = QUIRE_ON;
        open_variant(&kit, config, quirk, &v);
        kit_request_init(&kit, &q, letters(21));
        kit_request_init(&kit, &again, letters(21));
        kit_prefill(&kit, &q);
        quire_cache_new_step_starts(kit.cache);
        assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &again.r, hit, &num_hit),
                         QUIRE_OK);
        assert_int_equal(num_hit, v.has_bug ? 20 : 16);
        assert_int_equal(hit[0].count, 4);
        kit_close(&kit);
    }
}

/* ---- MAMBA_ALIGN_ESTIMATE -------------------------------------------------- */

/* 4 tokens from a connector and 6 new ones: one block for the connector's state, one for the
 * newest. One is predicted; one is free. */
static void mamba_align_estimate(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(MAMBA_ALIGN_ESTIMATE);
    quire_group_config mamba = kit_mamba(4, QUIRE_MAMBA_MODE_ALIGN, 0);
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        cache_kit kit;
        kit_request q;
        quire_block taken[KIT_MAX_BLOCKS];
        open_variant(&kit, kit_config(&mamba, 1, 20), quirk, &v);
        kit_request_init(&kit, &q, letters(10));
        uint32_t num_taken = kit_fill(&kit, 1, taken);
        const quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                              .num_new_tokens = 6,
                                              .num_external_computed_tokens = 4};
        assert_int_equal(allocate(&kit, &q, params),
                         v.has_bug ? QUIRE_E_PREDICTION : QUIRE_NO_SPACE);
        assert_true(q.r.seq == 0);
        assert_int_equal(kit_num_free(&kit), 1);
        kit_unfill(&kit, taken, num_taken);
        assert_int_equal(allocate(&kit, &q, params), QUIRE_OK);
        bool is_default = v.profile == QUIRE_PROFILE_DEFAULT; /* what was freed last comes first */
        assert_string_equal(kit_blocks(&kit, q.r.seq), is_default ? "1 0 2" : "19 0 1");
        kit_close(&kit);
    }
}

/* ---- MAMBA_ALIGN_SHRINK ---------------------------------------------------- */

/* Two drafts cross the border of a block; both are rejected, and the next step ends before it. */
static void mamba_align_shrink(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(MAMBA_ALIGN_SHRINK);
    quire_group_config mamba = kit_mamba(4, QUIRE_MAMBA_MODE_ALIGN, 0);
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        cache_kit kit;
        kit_request q;
        open_variant(&kit, kit_config(&mamba, 1, 20), quirk, &v);
        char text[KIT_MAX_TOKENS + 1] = "abc";
        kit_request_init(&kit, &q, text);
        assert_int_equal(kit_extend(&kit, &q, 2), QUIRE_OK);
        assert_string_equal(kit_blocks(&kit, q.r.seq), "1");
        assert_int_equal(allocate(&kit, &q,
                                  (quire_allocate_params){.size = sizeof(quire_allocate_params),
                                                          .num_new_tokens = 3}),
                         QUIRE_OK);
        assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2");
        q.r.num_computed_tokens = 3;
        kit_append(&kit, &q, text, 'd');
        assert_int_equal(allocate(&kit, &q,
                                  (quire_allocate_params){.size = sizeof(quire_allocate_params),
                                                          .num_new_tokens = 1}),
                         v.has_bug ? QUIRE_E_PREDICTION : QUIRE_OK);
        assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2");
        kit_free(&kit, &q);
        kit_close(&kit);
    }
}

/* ---- TRIM_ON_FAILURE ------------------------------------------------------- */

/* Two of the three blocks are outside the window of 5; five are wanted, and the pool has none. */
static void trim_on_failure(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(TRIM_ON_FAILURE);
    quire_group_config window = kit_window(4, 5);
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        cache_kit kit;
        kit_request q;
        quire_block taken[KIT_MAX_BLOCKS];
        quire_block queue[KIT_MAX_BLOCKS];
        open_variant(&kit, kit_config(&window, 1, 20), quirk, &v);
        kit_request_init(&kit, &q, letters(40));
        assert_int_equal(kit_extend(&kit, &q, 12), QUIRE_OK);
        uint32_t num_taken = kit_fill(&kit, 0, taken);
        assert_int_equal(allocate(&kit, &q,
                                  (quire_allocate_params){.size = sizeof(quire_allocate_params),
                                                          .num_new_tokens = 20}),
                         QUIRE_NO_SPACE);
        assert_string_equal(kit_blocks(&kit, q.r.seq), v.has_bug ? "0 0 3" : "1 2 3");
        assert_int_equal(quire_pool_get_all_free_blocks(kit.pool, queue, KIT_MAX_BLOCKS),
                         v.has_bug ? 2 : 0);
        if (v.has_bug)
            assert_true(queue[0] == 2 && queue[1] == 1);
        kit_unfill(&kit, taken, num_taken);
        kit_close(&kit);
    }
}

/* Blocks that the trim would free count as free: a step that fits after it succeeds. */
static void trim_is_counted_before_it_is_done(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(TRIM_ON_FAILURE);
    quire_group_config window = kit_window(4, 5);
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        cache_kit kit;
        kit_request q;
        quire_block taken[KIT_MAX_BLOCKS];
        open_variant(&kit, kit_config(&window, 1, 20), quirk, &v);
        kit_request_init(&kit, &q, letters(40));
        assert_int_equal(kit_extend(&kit, &q, 12), QUIRE_OK);
        kit_fill(&kit, 0, taken);
        assert_int_equal(kit_extend(&kit, &q, 8), QUIRE_OK);
        assert_string_equal(kit_blocks(&kit, q.r.seq), "0 0 3 2 1");
        kit_close(&kit);
    }
}

/* ---- SINK_BLOCKS_BUSY ------------------------------------------------------ */

static void sink_blocks_busy(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(SINK_BLOCKS_BUSY);
    quire_group_config sink = kit_sink(4, 8);
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        cache_kit kit;
        kit_request q;
        quire_block_span sinks;
        open_variant(&kit, kit_config(&sink, 1, 10), quirk, &v);
        sinks = inner_sinks(kit.cache, 0);
        assert_string_equal(kit_spans(&kit, &sinks), "1 2");
        kit_request_init(&kit, &q, letters(9));
        kit_prefill(&kit, &q);
        assert_string_equal(kit_blocks(&kit, q.r.seq), "3 4 5");
        assert_int_equal(quire_cache_reset_prefix_cache(kit.cache), QUIRE_BUSY);
        kit_free(&kit, &q);
        assert_int_equal(quire_cache_reset_prefix_cache(kit.cache),
                         v.has_bug ? QUIRE_BUSY : QUIRE_OK);
        assert_int_equal(quire_cache_get_usage(kit.cache).active, 2);
        kit_request_init(&kit, &q, letters(9));
        assert_int_equal(kit_prefill(&kit, &q), v.has_bug ? 8 : 0);
        kit_close(&kit);
    }
}

/* ---- CHUNK_INSIDE_BLOCK ----------------------------------------------------- */

/* Chunks of 6 tokens, blocks of 4: of 11 tokens the last chunk begins inside the second block. That
 * is not cached, so the hit would end at token 4, inside the first chunk, whose block is not cached
 * either: vLLM finds 4 tokens in a cache that is empty. */
static void chunk_inside_block(void **state)
{
    (void)state;
    const uint64_t quirk = QR_QUIRK(CHUNK_INSIDE_BLOCK);
    quire_group_config chunked = kit_chunked(4, 6);
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(quirk, i);
        cache_kit kit;
        kit_request q;
        quire_block_span hit;
        uint32_t num_hit = 9;
        open_variant(&kit, kit_config(&chunked, 1, 20), quirk, &v);
        kit_request_init(&kit, &q, letters(12));
        assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, &hit, &num_hit),
                         QUIRE_OK);
        assert_int_equal(num_hit, v.has_bug ? 4 : 0);
        assert_string_equal(kit_spans(&kit, &hit), v.has_bug ? "0" : "");
        kit_request_init(&kit, &q, letters(14)); /* 13 tokens: a chunk begins at 12, as a block */
        assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, &hit, &num_hit),
                         QUIRE_OK);
        assert_string_equal(kit_spans(&kit, &hit), "0 0 0");
        kit_close(&kit);
    }
}

/* ---- what is never reproduced ---------------------------------------------- */

/* vLLM #44409. Hits of 8 tokens in both groups lie in the free queue, those of the second at its
 * head once the first has its own. New blocks for 4 tokens of a connector are taken for the first
 * group before the second has kept its hits: vLLM 0.20.0 gives block 4 to both. */
static void hits_of_other_groups_are_not_taken(void **state)
{
    (void)state;
    const quire_group_config groups[] = {kit_full(4), kit_window(4, 16)};
    for (uint32_t i = 0; i < 2; i++) {
        quire_cache_config config = kit_config(groups, 2, 40);
        config.profile = i == 0 ? QUIRE_PROFILE_DEFAULT : QUIRE_PROFILE_VLLM_0_20;
        config.prefix_cache_retention_interval = i == 0 ? QUIRE_RETAIN_ALL : 0;
        cache_kit kit;
        kit_request q;
        kit_request other;
        quire_block_span hit[2];
        uint32_t num_hit = 0;
        quire_block taken[KIT_MAX_BLOCKS];
        kit_open(&kit, &config);
        kit_request_init(&kit, &q, "aaaabbbb");
        kit_prefill(&kit, &q);
        assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 | 3 4");
        kit_fill(&kit, 0, taken);
        kit_free(&kit, &q);
        kit_unfill(&kit, taken, 4); /* the free queue is 2 1 4 3 5 6 7 8 */
        kit_request_init(&kit, &other, "aaaabbbbccccdddd");
        assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &other.r, hit, &num_hit),
                         QUIRE_OK);
        assert_string_equal(kit_spans(&kit, hit), "1 2 | 3 4");
        quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                        .num_new_tokens = 1,
                                        .num_new_computed_tokens = num_hit,
                                        .new_computed_blocks = hit,
                                        .num_external_computed_tokens = 4};
        assert_int_equal(allocate(&kit, &other, params), QUIRE_OK);
        assert_string_equal(kit_blocks(&kit, other.r.seq), "1 2 5 7 | 3 4 6 8");
        assert_int_equal(kit_num_free(&kit), 0);
        kit_close(&kit);
    }
}

/* With two groups, where vLLM would have changed the first before it finds out: two blocks are
 * predicted, and are there, but the window's two were capped away. */
static void too_few_predicted_changes_nothing(void **state)
{
    (void)state;
    static char before[1 << 14];
    static char after[1 << 14];
    const quire_group_config groups[] = {kit_full(4), kit_window(4, 8)};
    quire_cache_config config = kit_config(groups, 2, 30);
    config.max_num_batched_tokens = 4;
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    cache_kit kit;
    kit_request q;
    const kit_request *all[] = {&q};
    quire_block taken[KIT_MAX_BLOCKS];
    quirks_change(0, QR_QUIRK(TRIM_ON_FAILURE));
    kit_open(&kit, &config);
    quirks_change(0, 0);
    kit_request_init(&kit, &q, letters(60));
    for (int step = 0; step < 5; step++)
        assert_int_equal(kit_extend(&kit, &q, 4), QUIRE_OK);
    kit_fill(&kit, 1, taken);
    kit_snapshot(&kit, all, 1, before, sizeof before);
    int status = allocate(&kit, &q,
                          (quire_allocate_params){.size = sizeof(quire_allocate_params),
                                                  .num_new_tokens = 4,
                                                  .num_lookahead_tokens = 1});
    assert_int_equal(status, QUIRE_E_PREDICTION);
    kit_snapshot(&kit, all, 1, after, sizeof after);
    assert_string_equal(before, after);
    status = allocate(
        &kit, &q,
        (quire_allocate_params){.size = sizeof(quire_allocate_params), .num_new_tokens = 4});
    assert_int_equal(status, QUIRE_OK); /* one for each group: the window's own trim pays its */
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admission_cap_per_step),
        cmocka_unit_test(admission_is_capped_either_way),
        cmocka_unit_test(stats_every_lookup),
        cmocka_unit_test(hybrid_second_full),
        cmocka_unit_test(mamba_eagle_grows),
        cmocka_unit_test(mamba_align_estimate),
        cmocka_unit_test(mamba_align_shrink),
        cmocka_unit_test(trim_on_failure),
        cmocka_unit_test(trim_is_counted_before_it_is_done),
        cmocka_unit_test(sink_blocks_busy),
        cmocka_unit_test(chunk_inside_block),
        cmocka_unit_test(hits_of_other_groups_are_not_taken),
        cmocka_unit_test(too_few_predicted_changes_nothing),
    };
    return cmocka_run_group_tests_name("cache_quirks", tests, NULL, NULL);
}
