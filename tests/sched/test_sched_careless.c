/* sched/test_sched_careless.c - callers that say things twice, lose steps, or never update: lists
 * and counts of profile VLLM_0_32 that they could fill up or leave behind. */
#include "sched/sched.h"
#include "sched/sched_kit.h"

static sched_kit kit;
static quire_sched_config config;

static void open_0_32(void)
{
    config = kit_config(&kit);
    config.profile = QUIRE_PROFILE_VLLM_0_32;
}

static uint32_t num_free_blocks(void)
{
    return kit.sched->cache->pool->queue.num_free;
}

static void finish(quire_req req)
{
    assert_int_equal(quire_sched_finish(kit.sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
}

/* ---- loads ------------------------------------------------------------------- */

static int load_later(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                      uint32_t *is_async)
{
    (void)user;
    (void)req;
    *num_external = num_local == 0 ? 4 : 0;
    *is_async = 1;
    return QUIRE_OK;
}

/* Named again and again, and through one of its blocks too: one error. */
static void a_load_that_fails_often_fails_once(void **state)
{
    (void)state;
    static const quire_connector connector = {.size = sizeof(quire_connector),
                                              .get_num_new_matched_tokens = load_later};
    open_0_32();
    config.connector = &connector;
    config.fail_on_load_error = QUIRE_ON;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 6);
    quire_block_span blocks;
    static quire_req often[1 << 18]; /* far more than the scheduler has memory for */
    for (size_t i = 0; i < COUNT(often); i++)
        often[i] = a;
    kit_step(&kit);
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
    assert_int_equal(quire_sched_get_blocks(kit.sched, a, &blocks), QUIRE_OK);
    quire_block lost = blocks.ids[0];
    const quire_model_output output = {.size = sizeof(quire_model_output),
                                       .failed_recving = often,
                                       .num_failed_recving = COUNT(often),
                                       .invalid_blocks = &lost,
                                       .num_invalid_blocks = 1};
    assert_int_equal(quire_sched_update(kit.sched, kit.step->step, &output, &kit.outputs),
                     QUIRE_OK);
    assert_int_equal(kit.outputs->num_outputs, 1);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_ERROR);
    kit_close(&kit);
}

/* ---- errors of requests -------------------------------------------------------- */

static int cannot_compile(void *user, quire_req req)
{
    (void)user;
    (void)req;
    return -1;
}

/* Without an update nothing takes them off the list of those that will end. */
static void doomed_requests_come_and_go(void **state)
{
    (void)state;
    static const quire_grammar grammar = {.size = sizeof(quire_grammar),
                                          .is_ready = cannot_compile};
    static const char ids[] = "abcdefgh";
    open_0_32();
    config.grammar = &grammar;
    kit_open(&kit, &config);
    for (uint32_t round = 0; round < 64; round++) {
        quire_req reqs[KIT_REQUESTS];
        kit.params.use_grammar = 1;
        for (uint32_t i = 0; i < KIT_REQUESTS; i++)
            reqs[i] = kit_add(&kit, (char[]){ids[i], 0}, 5);
        kit_step(&kit);
        assert_true(kit.sched->results.bad_grammars.num <= kit.sched->settings.max_finished);
        assert_int_equal(quire_sched_forget_step(kit.sched, kit.step->step), QUIRE_OK);
        for (uint32_t i = 0; i < KIT_REQUESTS; i++)
            finish(reqs[i]);
    }
    kit_add(&kit, "z", 5);
    kit_run(&kit, 7);
    assert_int_equal(kit.outputs->num_outputs, 1);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_ERROR);
    kit_close(&kit);
}

/* ---- steps that are forgotten ----------------------------------------------------- */

static void forgotten_steps_open_their_fences(void **state)
{
    (void)state;
    static const quire_connector connector = {.size = sizeof(quire_connector), .is_kv_consumer = 1};
    open_0_32();
    config.connector = &connector;
    config.max_batches = 3;
    kit_open(&kit, &config);
    uint32_t all = num_free_blocks();
    quire_req a = kit_add(&kit, "a", 6);
    quire_req b = kit_add(&kit, "b", 6);
    kit_step(&kit);
    uint64_t first = kit.step->step;
    quire_req c = kit_add(&kit, "c", 6);
    kit_step(&kit);
    finish(a);
    finish(b);
    finish(c);
    assert_true(num_free_blocks() < all); /* the steps may still write */
    assert_int_equal(quire_sched_forget_step(kit.sched, kit.step->step), QUIRE_OK);
    assert_true(num_free_blocks() < all); /* the first one still may */
    kit_answer(&kit, first, 7);
    assert_int_equal(num_free_blocks(), all);
    kit_close(&kit);
}

/* A session between two inputs may have steps in flight that still write its blocks. */
static void blocks_of_a_session_have_fences(void **state)
{
    (void)state;
    static const quire_connector connector = {.size = sizeof(quire_connector), .is_kv_consumer = 1};
    open_0_32();
    config.connector = &connector;
    config.async_scheduling = QUIRE_ON;
    config.max_batches = 2;
    kit_open(&kit, &config);
    uint32_t all = num_free_blocks();
    kit.params.is_resumable = 1;
    kit.params.has_eos = 1;
    kit.params.eos_token_id = 7;
    quire_req a = kit_add(&kit, "a", 6);
    kit_step(&kit);
    uint64_t first = kit.step->step;
    kit_step(&kit);
    uint64_t second = kit.step->step;
    kit_answer(&kit, first, 7);
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_WAITING_FOR_STREAMING);
    assert_int_equal(quire_sched_preempt(kit.sched, a, QUIRE_PREEMPT_RECOMPUTE), QUIRE_OK);
    assert_true(num_free_blocks() < all); /* the second step may still write */
    kit_answer(&kit, second, 8);
    assert_int_equal(num_free_blocks(), all);
    kit_close(&kit);
}

static void forgotten_steps_are_not_in_flight(void **state)
{
    (void)state;
    open_0_32();
    config.async_scheduling = QUIRE_ON;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 6);
    kit_step(&kit);
    assert_int_equal(kit_info(&kit, a).num_in_flight_tokens, 6);
    assert_int_equal(quire_sched_forget_step(kit.sched, kit.step->step), QUIRE_OK);
    assert_int_equal(kit_info(&kit, a).num_in_flight_tokens, 0);
    /* Begun again, it does not wait for outputs that will not come. */
    assert_int_equal(quire_sched_preempt(kit.sched, a, QUIRE_PREEMPT_RECOMPUTE), QUIRE_OK);
    assert_int_equal(kit_info(&kit, a).num_stale_tokens, 0);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:2"); /* its first block is a hit */
    kit_close(&kit);
}

/* ---- images and configs ------------------------------------------------------------ */

/* No token is sampled, so none is expected: in the default profile too. */
static void images_of_pooling_models(void **state)
{
    (void)state;
    static const quire_profile profiles[] = {QUIRE_PROFILE_DEFAULT, QUIRE_PROFILE_VLLM_0_32};
    for (uint32_t i = 0; i < COUNT(profiles); i++) {
        config = kit_config(&kit);
        config.profile = profiles[i];
        config.is_pooling_model = QUIRE_ON;
        config.async_scheduling = QUIRE_ON;
        kit_open(&kit, &config);
        kit.params.is_pooling = 1;
        kit_add(&kit, "a", 6);
        kit_step(&kit);
        kit_state image = kit_save(kit.sched);
        quire_sched *made = NULL;
        assert_int_equal(quire_sched_restore(&config, NULL, image.image, image.bytes, &made),
                         QUIRE_OK);
        kit_same(made, image);
        quire_sched_destroy(made);
        kit_close(&kit);
    }
}

static void refuse(const char *words)
{
    quire_sched *made = NULL;
    assert_int_equal(quire_sched_create(&config, NULL, &made), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), words));
}

/* A prompt may be as long as the model: no token follows. */
static void pooling_prompts_of_the_longest_length(void **state)
{
    (void)state;
    open_0_32();
    uint32_t most = config.cache->max_model_len;
    config.is_pooling_model = QUIRE_ON;
    config.max_num_batched_tokens = most - 1; /* in two chunks */
    kit_open(&kit, &config);
    quire_req req = 0;
    assert_int_equal(quire_sched_add(kit.sched, kit_params(&kit, "a", most), &req), QUIRE_E_RANGE);
    kit.params.is_pooling = 1;
    quire_req a = kit_add(&kit, "a", most);
    kit_step(&kit);
    assert_int_equal(kit.step->num_tokens[0], most - 1);
    kit_answer(&kit, kit.step->step, 7);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    assert_int_equal(kit_info(&kit, a).num_computed_tokens, most);
    assert_int_equal(quire_sched_add(kit.sched, kit_params(&kit, "b", most + 1), &req),
                     QUIRE_E_RANGE);
    kit_close(&kit);
}

/* Its prompt comes in two chunks; the second one ends it, without a token. */
static void encoders_alone_end_with_the_prompt(void **state)
{
    (void)state;
    open_0_32();
    config.is_encoder_only = QUIRE_ON;
    config.enable_chunked_prefill = QUIRE_OFF;
    config.max_num_batched_tokens = 4;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 6);
    uint32_t none = 0;
    const quire_model_output output = {.size = sizeof output, .num_sampled = &none};
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        kit_step(&kit);
        assert_int_equal(quire_sched_update(kit.sched, kit.step->step, &output, &kit.outputs),
                         QUIRE_OK);
        assert_int_equal(kit.outputs->num_outputs, chunk);
    }
    assert_int_equal(kit.outputs->outputs[0].req, a);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_STOP);
    assert_int_equal(kit.outputs->outputs[0].num_new_tokens, 0);
    kit_close(&kit);
}

static void configs_that_could_not_run(void **state)
{
    (void)state;
    config = kit_config(&kit);
    config.is_encoder_only = QUIRE_ON;
    refuse("is_encoder_only is 1");
    config.is_encoder_only = QUIRE_OFF;
    config.num_prefill_lookahead_tokens = 2;
    refuse("num_prefill_lookahead_tokens is 2");
    config.num_prefill_lookahead_tokens = 1;
    config.num_draft_slots = 64;
    refuse("num_draft_slots is 64, but max_num_batched_tokens is 64");
    config.num_draft_slots = 63;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 6);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    kit_close(&kit);
}

/* Tokens of all steps in flight: more than 32 bits count. */
static void many_tokens_in_flight(void **state)
{
    (void)state;
    open_0_32();
    kit.group.spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    kit.group.spec.sliding_window = 8;
    config.cache->max_model_len = 4096;
    config.max_batches = 64;
    config.max_num_batched_tokens = (1u << 26) + 1; /* 64 times this is 64 more than 1 << 32 */
    kit_open(&kit, &config);
    assert_true(kit.sched->cache->groups[0].admission_cap >= 4096 / KIT_BLOCK);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_load_that_fails_often_fails_once),
        cmocka_unit_test(doomed_requests_come_and_go),
        cmocka_unit_test(forgotten_steps_open_their_fences),
        cmocka_unit_test(blocks_of_a_session_have_fences),
        cmocka_unit_test(forgotten_steps_are_not_in_flight),
        cmocka_unit_test(images_of_pooling_models),
        cmocka_unit_test(pooling_prompts_of_the_longest_length),
        cmocka_unit_test(encoders_alone_end_with_the_prompt),
        cmocka_unit_test(configs_that_could_not_run),
        cmocka_unit_test(many_tokens_in_flight),
    };
    return cmocka_run_group_tests_name("sched_careless", tests, NULL, NULL);
}
