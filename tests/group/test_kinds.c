/* group/test_kinds.c - the kinds of layers that vLLM 0.32 has and 0.20 has not: circular buffers,
 * R-SWA, hidden states. The recordings (tests/parity) have them beside all others. */
#include "base/inner.h"
#include "cache/cache_kit.h"
#include "group/spec.h"

#include <quire/plan.h>

#include <string.h>

static quire_group_config ring_of(uint32_t block_size)
{
    quire_group_config group = kit_full(block_size);
    group.spec.kind = QUIRE_LAYER_CIRCULAR_BUFFER;
    return group;
}

static quire_group_config rswa_of(uint32_t block_size, uint32_t window)
{
    quire_group_config group = kit_full(block_size);
    group.spec.kind = QUIRE_LAYER_RSWA;
    group.spec.rswa_window = window;
    return group;
}

static quire_group_config hidden_of(uint32_t block_size)
{
    quire_group_config group = kit_full(block_size);
    group.spec.kind = QUIRE_LAYER_HIDDEN_STATE;
    return group;
}

static quire_cache_config config_of(const quire_group_config *groups, uint32_t num_groups,
                                    uint32_t num_blocks)
{
    quire_cache_config config = kit_config(groups, num_groups, num_blocks);
    config.profile = QUIRE_PROFILE_VLLM_0_32;
    return config;
}

static quire_allocate_params params_of(uint32_t num_new, uint32_t num_prompt)
{
    quire_allocate_params p = QUIRE_ALLOCATE_PARAMS_INIT;
    p.num_new_tokens = num_new;
    p.num_prompt_tokens = num_prompt;
    return p;
}

static const char *letters(uint32_t num_tokens)
{
    static char text[KIT_MAX_TOKENS + 1];
    for (uint32_t i = 0; i < num_tokens; i++)
        text[i] = (char)('a' + i / 4 % 26);
    text[num_tokens] = '\0';
    return text;
}

static uint32_t num_keys(const cache_kit *kit)
{
    return quire_pool_get_counts(kit->pool).num_keys;
}

/* ---- circular buffers --------------------------------------------------------- */

static void a_ring_has_one_block(void **state)
{
    (void)state;
    quire_group_config groups[2] = {ring_of(4), kit_full(4)};
    quire_cache_config config = config_of(groups, 2, 12);
    cache_kit kit;
    kit_request q;
    quire_token_place place;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, letters(40));
    assert_int_equal(kit_extend(&kit, &q, 3), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 | 2");
    assert_int_equal(kit_extend(&kit, &q, 30), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 | 2 3 4 5 6 7 8 9 10");
    assert_int_equal(num_keys(&kit), 8); /* of the full group */
    assert_int_equal(quire_cache_find_token(kit.cache, q.r.seq, 0, 0, &place), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_find_token(kit.cache, q.r.seq, 1, 0, &place), QUIRE_OK);
    kit_free(&kit, &q);
    assert_int_equal(kit_num_free(&kit), 11);
    kit_close(&kit);
}

/* The block is needed once, and a hit does without it. */
static void a_ring_needs_its_block_once(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(4), ring_of(8)};
    quire_cache_config config = config_of(groups, 2, 5); /* 4 free */
    cache_kit kit;
    kit_request q;
    kit_request other;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, letters(20));
    quire_allocate_params p = params_of(16, 0);
    assert_int_equal(quire_cache_can_allocate(kit.cache, &q.r, &p), QUIRE_NO_SPACE);
    p.num_new_tokens = 8;
    p.full_sequence_must_fit = 1; /* 5 blocks, and the ring's */
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_NO_SPACE);
    assert_int_equal(kit_extend(&kit, &q, 8), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 | 3");
    assert_int_equal(kit_extend(&kit, &q, 4), QUIRE_OK);
    assert_int_equal(kit_num_free(&kit), 0);
    kit_free(&kit, &q);
    kit_request_init(&kit, &other, letters(9));
    assert_int_equal(kit_prefill(&kit, &other), 8);
    assert_string_equal(kit_blocks(&kit, other.r.seq), "1 2 3 | 4");
    kit_free(&kit, &other);
    kit_close(&kit);
}

/* A load may write the ring: its block comes with those of the load, before new ones. */
static void a_ring_takes_its_block_with_a_load(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(4), ring_of(4)};
    quire_cache_config config = config_of(groups, 2, 12);
    quire_block_span new_blocks[2];
    cache_kit kit;
    kit_request q;
    config.track_new_blocks = QUIRE_ON;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, letters(20));
    quire_allocate_params p = params_of(8, 0);
    p.num_external_computed_tokens = 8;
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, new_blocks), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 4 5 | 3");
    assert_int_equal(new_blocks[1].count, 0);
    assert_int_equal(quire_cache_take_new_block_ids(kit.cache, new_blocks), QUIRE_OK);
    assert_int_equal(new_blocks[0].count, 4); /* a ring's page is not zeroed */
    kit_free(&kit, &q);
    kit_close(&kit);
}

/* Alone it is a cache without hits; hashes are not asked for. */
static void a_ring_alone_finds_nothing(void **state)
{
    (void)state;
    quire_group_config ring = ring_of(4);
    quire_cache_config config = config_of(&ring, 1, 12);
    cache_kit kit;
    kit_request q;
    quire_block_span span;
    uint32_t num_tokens = 9;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, letters(20));
    assert_int_equal(kit_prefill(&kit, &q), 0);
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &q.r, 20), QUIRE_OK);
    assert_int_equal(num_keys(&kit), 0);
    kit_free(&kit, &q);
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &q.r, &span, &num_tokens),
                     QUIRE_OK);
    assert_true(num_tokens == 0 && span.count == 0);
    kit_close(&kit);
}

/* Hits end where the blocks of all groups do, the ring's too; hashes are of the others' blocks. */
static void a_ring_aligns_hits_but_not_hashes(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(4), ring_of(6)};
    quire_cache_config config = config_of(groups, 2, 40);
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    assert_int_equal(quire_cache_get_counts(kit.cache).hash_block_size, 4);
    kit_request_init(&kit, &q, letters(35));
    kit_prefill(&kit, &q);
    assert_int_equal(num_keys(&kit), 6); /* of 24 tokens */
    kit_free(&kit, &q);
    assert_int_equal(kit_prefill(&kit, &q), 24);
    kit_free(&kit, &q);
    kit_close(&kit);
}

static void a_ring_cannot_be_shared(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(4), ring_of(4)};
    quire_cache_config config = config_of(groups, 2, 12);
    cache_kit kit;
    kit_request parent;
    kit_request child;
    config.max_copies = 4;
    kit_open(&kit, &config);
    kit_request_init(&kit, &parent, letters(8));
    kit_request_init(&kit, &child, letters(8));
    kit_prefill(&kit, &parent);
    assert_int_equal(quire_cache_fork(kit.cache, &parent.r, &child.r), QUIRE_E_ARGUMENT);
    kit_free(&kit, &parent);
    kit_close(&kit);
}

/* ---- R-SWA ------------------------------------------------------------------- */

/* As the picture of rswa.c: prompt 5, window 4, blocks of 2. */
static void the_gap_is_given_back(void **state)
{
    (void)state;
    for (uint32_t caching = 0; caching < 2; caching++) {
        quire_group_config group = rswa_of(2, 4);
        quire_cache_config config = config_of(&group, 1, 20);
        cache_kit kit;
        kit_request q;
        config.enable_caching = caching ? QUIRE_ON : QUIRE_OFF;
        kit_open(&kit, &config);
        kit_request_init(&kit, &q, letters(20));
        quire_allocate_params p = params_of(11, 5);
        assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
        q.r.num_computed_tokens = 11;
        assert_int_equal(kit_extend(&kit, &q, 1), QUIRE_OK); /* the window begins at token 7 */
        assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 3 4 5 6");
        assert_int_equal(kit_extend(&kit, &q, 1),
                         QUIRE_OK); /* at 8; without a key 4 is taken first */
        assert_string_equal(kit_blocks(&kit, q.r.seq), caching ? "1 2 3 0 5 6 7" : "1 2 3 0 5 6 4");
        assert_int_equal(kit_extend(&kit, &q, 7), QUIRE_OK);
        assert_int_equal(inner_remove_skipped(kit.cache, q.r.seq, 20), QUIRE_OK);
        assert_string_equal(kit_blocks(&kit, q.r.seq),
                            caching ? "1 2 3 0 0 0 0 0 9 10" : "1 2 3 0 0 0 0 0 8 9");
        kit_check(&kit);
        kit_free(&kit, &q);
        assert_int_equal(kit_num_free(&kit), 19);
        kit_close(&kit);
    }
}

/* Blocks of the gap count as free if their tokens are certain, and not of the prompt. */
static void the_gap_makes_room(void **state)
{
    (void)state;
    quire_group_config group = rswa_of(2, 2);
    quire_cache_config config = config_of(&group, 1, 7); /* 6 free */
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, letters(20));
    quire_allocate_params p = params_of(12, 2);
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    q.r.num_computed_tokens = 12;
    p = params_of(2, 0);
    p.num_uncertain_tokens = 9; /* of 3 certain tokens, 1 is behind the window: the prompt's */
    assert_int_equal(quire_cache_can_allocate(kit.cache, &q.r, &p), QUIRE_NO_SPACE);
    p.num_uncertain_tokens = 6;
    assert_int_equal(quire_cache_can_allocate(kit.cache, &q.r, &p), QUIRE_OK);
    p = params_of(2, 10); /* the prompt of a session has grown */
    assert_int_equal(quire_cache_can_allocate(kit.cache, &q.r, &p), QUIRE_NO_SPACE);
    p = params_of(2, 0);
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    assert_int_equal(kit_num_free(&kit), 3);
    kit_check(&kit);
    kit_free(&kit, &q);
    kit_close(&kit);
}

/* Also if the allocation that tells of a longer prompt changes nothing else. */
static void the_prompt_of_a_session_stays(void **state)
{
    (void)state;
    quire_group_config group = rswa_of(4, 4);
    quire_cache_config config = config_of(&group, 1, 8);
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, letters(20));
    quire_allocate_params p = params_of(5, 2);
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    q.r.num_computed_tokens = 5;
    p = params_of(1, 6); /* there is room for two more tokens */
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    q.r.num_computed_tokens = 6;
    assert_int_equal(kit_extend(&kit, &q, 7), QUIRE_OK);
    assert_int_equal(kit_extend(&kit, &q, 1), QUIRE_OK); /* the window begins at token 9 */
    assert_string_equal(kit_blocks(&kit, q.r.seq), "1 2 3 4");
    kit_check(&kit);
    kit_free(&kit, &q);
    kit_close(&kit);
}

/* What was given back is found until it is taken. */
static void the_gap_is_found(void **state)
{
    (void)state;
    quire_group_config groups[2] = {rswa_of(2, 4), kit_full(2)};
    quire_cache_config config = config_of(groups, 2, 60);
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, letters(20));
    quire_allocate_params p = params_of(19, 5);
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    q.r.num_computed_tokens = 19;
    assert_int_equal(kit_extend(&kit, &q, 1), QUIRE_OK);
    assert_string_equal(kit_blocks(&kit, q.r.seq),
                        "1 2 3 0 0 0 0 8 9 10 | 11 12 13 14 15 16 17 18 19 20");
    kit_free(&kit, &q);
    q.r.num_computed_tokens = 0;
    assert_int_equal(kit_prefill(&kit, &q), 18);
    kit_free(&kit, &q);
    kit_close(&kit);
}

/* ---- hidden states -------------------------------------------------------------- */

static void hidden_states_are_kept_as_full_attention(void **state)
{
    (void)state;
    quire_group_config groups[3] = {kit_full(4), hidden_of(4), kit_window(4, 4)};
    quire_cache_config config = config_of(groups, 3, 60);
    quire_block_span span = {0};
    cache_kit kit;
    kit_request q;
    config.track_new_blocks = QUIRE_ON;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, letters(22));
    kit_prefill(&kit, &q);
    assert_int_equal(quire_cache_take_new_block_ids(kit.cache, &span), QUIRE_OK);
    assert_int_equal(span.count, 18);
    assert_int_equal(num_keys(&kit), 11); /* 5 and 5, and what the window needs */
    kit_free(&kit, &q);
    q.r.num_computed_tokens = 0;
    assert_int_equal(kit_prefill(&kit, &q), 20);
    kit_free(&kit, &q);
    kit_close(&kit);
}

/* ---- what is refused -------------------------------------------------------------- */

static void expect_refusal(const quire_cache_config *config, const char *words)
{
    quire_cache *cache = NULL;
    assert_int_equal(quire_cache_create(config, NULL, &cache), QUIRE_E_CONFIG);
    if (strstr(quire_refusal(), words) == NULL)
        fail_msg("\"%s\" is not in: %s", words, quire_refusal());
}

static void other_profiles_refuse_the_kinds(void **state)
{
    (void)state;
    const quire_profile profiles[] = {QUIRE_PROFILE_DEFAULT, QUIRE_PROFILE_VLLM_0_20};
    for (uint32_t i = 0; i < COUNT(profiles); i++) {
        quire_group_config groups[2] = {kit_full(4), rswa_of(4, 9)};
        quire_cache_config config = kit_config(groups, 2, 9);
        config.profile = profiles[i];
        expect_refusal(&config, "groups[1]: invalid kind 11");
        groups[1] = ring_of(4);
        expect_refusal(&config, "groups[1]: invalid kind 12");
        groups[1] = hidden_of(4);
        expect_refusal(&config, "groups[1]: invalid kind 13");
    }
}

static void rings_do_not_go_with_everything(void **state)
{
    (void)state;
    quire_group_config groups[2] = {ring_of(4), ring_of(4)};
    quire_cache_config config = config_of(groups, 2, 9);
    expect_refusal(&config, "several circular buffers alone");
    config.enable_caching = QUIRE_OFF;
    quire_cache *cache = NULL;
    assert_int_equal(quire_cache_create(&config, NULL, &cache), QUIRE_OK);
    quire_cache_destroy(cache);
    groups[0] = kit_full(4);
    config = config_of(groups, 2, 9);
    config.dcp_world_size = 2;
    expect_refusal(&config, "groups[1]: dcp_world_size is 2");
    config = config_of(groups, 2, 9);
    config.prefix_cache_retention_interval = 8;
    expect_refusal(&config, "invalid prefix_cache_retention_interval 8");
    groups[0] = kit_chunked(4, 8);
    groups[1] = ring_of(6); /* hits would have to end where the ring's blocks do */
    config = config_of(groups, 2, 9);
    expect_refusal(&config, "chunked attention");
}

static void plans_refuse_the_kinds(void **state)
{
    (void)state;
    const quire_layer_spec layers[2] = {kit_full(4).spec, ring_of(4).spec};
    const quire_plan_worker worker = {.memory_bytes = 1 << 20};
    quire_plan_params params = QUIRE_PLAN_PARAMS_INIT;
    quire_plan *plan = NULL;
    params.layers = layers;
    params.num_layers = 2;
    params.workers = &worker;
    params.num_workers = 1;
    params.max_model_len = 16;
    assert_int_equal(quire_plan_create(&params, NULL, &plan), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "layers[1]: invalid kind 12"));
    params.num_layers = 1;
    assert_int_equal(quire_plan_create(&params, NULL, &plan), QUIRE_OK);
    quire_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_has_one_block),
        cmocka_unit_test(a_ring_needs_its_block_once),
        cmocka_unit_test(a_ring_takes_its_block_with_a_load),
        cmocka_unit_test(a_ring_alone_finds_nothing),
        cmocka_unit_test(a_ring_aligns_hits_but_not_hashes),
        cmocka_unit_test(a_ring_cannot_be_shared),
        cmocka_unit_test(the_gap_is_given_back),
        cmocka_unit_test(the_gap_makes_room),
        cmocka_unit_test(the_prompt_of_a_session_stays),
        cmocka_unit_test(the_gap_is_found),
        cmocka_unit_test(hidden_states_are_kept_as_full_attention),
        cmocka_unit_test(other_profiles_refuse_the_kinds),
        cmocka_unit_test(rings_do_not_go_with_everything),
        cmocka_unit_test(plans_refuse_the_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
