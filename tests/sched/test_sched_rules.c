/* sched/test_sched_rules.c - rules of vLLM 0.32 that the default profile has too
 * (docs/decisions/017): in both they hold, in the profile of 0.20 they do not. */
#include "sched/sched_kit.h"

static const quire_profile PROFILES[] = {QUIRE_PROFILE_DEFAULT, QUIRE_PROFILE_VLLM_0_32,
                                         QUIRE_PROFILE_VLLM_0_20};
static sched_kit kit;

static bool has_rules(quire_profile profile)
{
    return profile != QUIRE_PROFILE_VLLM_0_20;
}

/* The threshold keeps a long prompt from delaying others. */
static void the_threshold_is_for_several_requests(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT(PROFILES); i++) {
        quire_sched_config config = kit_config(&kit);
        config.profile = PROFILES[i];
        config.long_prefill_token_threshold = 4;
        kit_open(&kit, &config);
        kit_add(&kit, "a", 12);
        kit_run(&kit, 7);
        assert_string_equal(kit_shown_step(&kit), has_rules(PROFILES[i]) ? "a:12" : "a:4");
        kit_add(&kit, "b", 12);
        kit_run(&kit, 7);
        assert_string_equal(kit_shown_step(&kit), has_rules(PROFILES[i]) ? "a:1 b:4" : "a:4 b:4");
        kit_close(&kit);
    }
}

static quire_sched_config config_with_drafts(quire_profile profile)
{
    quire_sched_config config = kit_config(&kit);
    config.profile = profile;
    config.num_spec_tokens = config.num_lookahead_tokens = 3;
    return config;
}

/* A drafter writes in the step that ends the prompt. */
static void drafts_have_blocks_from_admission_on(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT(PROFILES); i++) {
        quire_sched_config config = config_with_drafts(PROFILES[i]);
        quire_block_span blocks;
        kit_open(&kit, &config);
        quire_req a = kit_add(&kit, "a", 4);
        kit_step(&kit);
        assert_int_equal(quire_sched_get_blocks(kit.sched, a, &blocks), QUIRE_OK);
        assert_int_equal(blocks.count, has_rules(PROFILES[i]) ? 2 : 1);
        kit_answer(&kit, 1, 7);
        kit_close(&kit);
    }
}

static uint32_t num_sent;

static int note_blocks(void *user, quire_req req, const quire_block_span *blocks)
{
    (void)user;
    (void)req;
    num_sent = blocks[0].count;
    return 0;
}

/* 4 of 5 tokens are computed, and the second block is for drafts. */
static void blocks_without_tokens_are_not_sent(void **state)
{
    (void)state;
    static const quire_connector connector = {.size = sizeof(quire_connector),
                                              .request_finished = note_blocks};
    for (uint32_t i = 0; i < COUNT(PROFILES); i++) {
        quire_sched_config config = config_with_drafts(PROFILES[i]);
        config.connector = &connector;
        quire_block_span blocks;
        kit_open(&kit, &config);
        quire_req a = kit_add(&kit, "a", 3);
        kit_run(&kit, 7);
        kit_run(&kit, 7);
        assert_int_equal(quire_sched_get_blocks(kit.sched, a, &blocks), QUIRE_OK);
        assert_int_equal(blocks.count, 2);
        assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                         QUIRE_OK);
        assert_int_equal(num_sent, has_rules(PROFILES[i]) ? 1 : 2);
        kit_close(&kit);
    }
}

/* Two ranks have 4 tokens of a block each: 5 computed tokens have one block, the second one is for
 * drafts. vLLM 0.32 counts with the tokens of one rank, and sends it. */
static void blocks_of_all_ranks_are_sent(void **state)
{
    (void)state;
    static const quire_connector connector = {.size = sizeof(quire_connector),
                                              .request_finished = note_blocks};
    for (uint32_t i = 0; i < COUNT(PROFILES); i++) {
        quire_sched_config config = config_with_drafts(PROFILES[i]);
        quire_hasher_config hasher = QUIRE_HASHER_CONFIG_INIT;
        hasher.block_size = 2 * KIT_BLOCK;
        hasher.seed = (quire_bytes){"0", 1};
        quire_hasher_destroy(kit.hasher);
        assert_int_equal(quire_hasher_create(&hasher, NULL, &kit.hasher), QUIRE_OK);
        config.hasher = kit.hasher;
        config.cache->dcp_world_size = 2;
        config.connector = &connector;
        quire_block_span blocks;
        kit_open(&kit, &config);
        quire_req a = kit_add(&kit, "a", 5);
        kit_run(&kit, 7);
        kit_run(&kit, 7);
        assert_int_equal(quire_sched_get_blocks(kit.sched, a, &blocks), QUIRE_OK);
        assert_int_equal(blocks.count, 2);
        assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                         QUIRE_OK);
        assert_int_equal(num_sent, PROFILES[i] == QUIRE_PROFILE_DEFAULT ? 1 : 2);
        kit_close(&kit);
    }
}

/* ---- blocks and keys -------------------------------------------------------- */

enum { MANY_BLOCKS = 300 };

static quire_group_config hybrid[2]; /* full, and a window of 8 tokens */

static quire_sched_config config_with_window(quire_profile profile)
{
    quire_sched_config config = kit_config(&kit);
    config.profile = profile;
    hybrid[0] = hybrid[1] = kit.group;
    hybrid[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    hybrid[1].spec.sliding_window = 8;
    config.cache->groups = hybrid;
    config.cache->num_groups = 2;
    config.cache->num_blocks = MANY_BLOCKS;
    return config;
}

/* The tokens of requests whose ids begin with a are 'a' * 100, and so on: outputs go on so. */
static void run_on(uint32_t num_tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        kit_run(&kit, (quire_token)('a' * 100 + num_tokens + i));
}

static uint32_t num_keys(void)
{
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(kit.sched));
    return quire_pool_get_counts(pool).num_keys;
}

/* Of a window's blocks those of the prompt's end get keys. In the default profile a request goes on
 * where it was preempted, and another one where it ended. */
static void windows_keep_what_is_found(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT(PROFILES); i++) {
        quire_sched_config config = config_with_window(PROFILES[i]);
        bool is_lost = PROFILES[i] == QUIRE_PROFILE_VLLM_0_32;
        kit_open(&kit, &config);
        quire_req a = kit_add(&kit, "a", 16);
        run_on(16, 9);
        assert_int_equal(num_keys(), has_rules(PROFILES[i]) ? 6 + 2 : 6 + 6);
        assert_int_equal(quire_sched_preempt(kit.sched, a, QUIRE_PREEMPT_RECOMPUTE), QUIRE_OK);
        kit_step(&kit);
        assert_int_equal(kit.step->num_computed_tokens[0], is_lost ? 12 : 24);
        kit_answer(&kit, kit.step->step, 'a' * 100 + 25);
        run_on(26, 4); /* 29 are computed */
        assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                         QUIRE_OK);
        kit_add(&kit, "another", 40);
        kit_step(&kit);
        assert_int_equal(kit.step->num_computed_tokens[0], is_lost ? 24 : 28);
        kit_close(&kit);
    }
}

/* A page that a state had can hold what reads as NaN, whichever layer gets it next. */
static void blocks_of_windows_are_zeroed(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT(PROFILES); i++) {
        quire_sched_config config = config_with_window(PROFILES[i]);
        config.cache->track_new_blocks = QUIRE_ON;
        kit_open(&kit, &config);
        kit_add(&kit, "a", 12);
        kit_step(&kit);
        assert_int_equal(kit.step->blocks_to_zero.count, has_rules(PROFILES[i]) ? 6 : 3);
        kit_close(&kit);
    }
}

/* 16 tokens of 4 full blocks: the last one is found and dropped, so 12 need not be computed. */
static void the_last_block_may_be_dropped(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT(PROFILES); i++) {
        quire_sched_config config = config_with_window(PROFILES[i]);
        config.cache->use_eagle = QUIRE_ON;
        config.num_spec_tokens = 1;
        kit_open(&kit, &config);
        kit.params.max_tokens = 9;
        kit_add(&kit, "a", 16);
        run_on(16, 12);
        kit_add(&kit, "again", 16);
        kit_step(&kit);
        assert_int_equal(kit.step->num_computed_tokens[0], has_rules(PROFILES[i]) ? 12 : 8);
        kit_close(&kit);
    }
}

/* ---- connectors ------------------------------------------------------------- */

static uint32_t num_matched; /* tokens that the next request can load, which takes a while */

static int match_later(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                       uint32_t *is_async)
{
    (void)user;
    (void)req;
    (void)num_local;
    *num_external = num_matched;
    *is_async = num_matched > 0;
    return QUIRE_OK;
}

static const quire_connector LOADER = {.size = sizeof(quire_connector),
                                       .get_num_new_matched_tokens = match_later};

static bool is_loading(quire_req req)
{
    return kit_info(&kit, req).status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS;
}

/* 16 blocks; a has 6 of the 10 that its prompt needs, so 6 of the others may be loaded into. */
static void loads_leave_what_prompts_need(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT(PROFILES); i++) {
        for (uint32_t num_blocks = 6; num_blocks <= 7; num_blocks++) {
            quire_sched_config config = kit_config(&kit);
            config.profile = PROFILES[i];
            config.connector = &LOADER;
            config.max_num_batched_tokens = 16;
            config.long_prefill_token_threshold = 8;
            kit_open(&kit, &config);
            num_matched = 0;
            kit_add(&kit, "a", 40);
            kit_run(&kit, 7);
            num_matched = 4 * num_blocks;
            quire_req b = kit_add(&kit, "b", num_matched);
            kit_step(&kit);
            assert_string_equal(kit_shown_step(&kit), "a:8");
            assert_int_equal(is_loading(b), !has_rules(PROFILES[i]) || num_blocks == 6);
            kit_close(&kit);
        }
    }
}

/* 9 blocks, a prompt of 8, drafts: the request could wait for nobody. vLLM 0.32 never loads it. */
static void the_only_load_may_take_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT(PROFILES); i++) {
        quire_sched_config config = config_with_drafts(PROFILES[i]);
        config.connector = &LOADER;
        config.cache->num_blocks = 10;
        kit_open(&kit, &config);
        num_matched = 32;
        kit.params.max_tokens = 1;
        quire_req a = kit_add(&kit, "a", 32);
        kit_step(&kit);
        assert_int_equal(is_loading(a), PROFILES[i] != QUIRE_PROFILE_VLLM_0_32);
        kit_close(&kit);
    }
}

/* Who wants its prompt computed is not loaded either. */
static void a_prompt_that_is_to_be_computed_is_not_loaded(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < COUNT(PROFILES); i++) {
        quire_sched_config config = kit_config(&kit);
        config.profile = PROFILES[i];
        config.connector = &LOADER;
        kit_open(&kit, &config);
        num_matched = 8;
        kit.params.skip_reading_prefix = 1;
        quire_req a = kit_add(&kit, "a", 12);
        kit_step(&kit);
        assert_int_equal(is_loading(a), !has_rules(PROFILES[i]));
        assert_string_equal(kit_shown_step(&kit), has_rules(PROFILES[i]) ? "a:12" : "");
        kit_close(&kit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_threshold_is_for_several_requests),
        cmocka_unit_test(drafts_have_blocks_from_admission_on),
        cmocka_unit_test(blocks_without_tokens_are_not_sent),
        cmocka_unit_test(blocks_of_all_ranks_are_sent),
        cmocka_unit_test(windows_keep_what_is_found),
        cmocka_unit_test(blocks_of_windows_are_zeroed),
        cmocka_unit_test(the_last_block_may_be_dropped),
        cmocka_unit_test(loads_leave_what_prompts_need),
        cmocka_unit_test(the_only_load_may_take_all),
        cmocka_unit_test(a_prompt_that_is_to_be_computed_is_not_loaded),
    };
    return cmocka_run_group_tests_name("sched_rules", tests, NULL, NULL);
}
