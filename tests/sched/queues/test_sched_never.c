/* sched/queues/test_sched_never.c - requests that could never run are refused, with a reason; all
 * others
 * end. Each test is one way to wait for ever. */
#include "sched/sched_kit.h"

enum { MOST_STEPS = 400 };

static void open_kit(sched_kit *kit, const quire_sched_config *config)
{
    kit_open(kit, config);
    assert_string_equal(quire_refusal(), "");
}

/* Runs until no request is left; returns the steps. */
static uint32_t run_to_the_end(sched_kit *kit)
{
    uint32_t steps = 0;
    for (; quire_sched_get_num_unfinished(kit->sched) > 0 && steps < MOST_STEPS; steps++)
        kit_run(kit, 7);
    assert_true(steps < MOST_STEPS);
    return steps;
}

/* Runs so many steps, or until no request is left; returns the tokens that were generated. */
static uint32_t run_some(sched_kit *kit, uint32_t most)
{
    uint32_t num_tokens = 0;
    for (uint32_t i = 0; i < most && quire_sched_get_num_unfinished(kit->sched) > 0; i++) {
        kit_run(kit, 7);
        for (uint32_t k = 0; k < kit->outputs->num_outputs; k++)
            num_tokens += kit->outputs->outputs[k].num_new_tokens;
    }
    return num_tokens;
}

static void assert_refused(sched_kit *kit, int err, const char *why)
{
    assert_int_equal(err, QUIRE_E_TOO_LONG);
    assert_string_equal(quire_refusal(), why);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}

static quire_mm_input image(const char *name, uint64_t offset, uint64_t length)
{
    return (quire_mm_input){
        .feature = {.identifier = {name, strlen(name)}, .offset = offset, .length = length}};
}

static int add_images(sched_kit *kit, const char *id, uint32_t n, const quire_mm_input *images,
                      uint32_t num_images)
{
    quire_req req;
    kit->params.mm_inputs = images;
    kit->params.num_mm_inputs = num_images;
    int err = quire_sched_add(kit->sched, kit_params(kit, id, n), &req);
    kit->params.mm_inputs = NULL;
    kit->params.num_mm_inputs = 0;
    return err;
}

/* ---- the config -------------------------------------------------------------- */

static char logged[256];

static void keep_line(void *user, quire_log_level level, const char *line)
{
    (void)user;
    if (level == QUIRE_LOG_ERROR)
        snprintf(logged, sizeof logged, "%s", line);
}

/* A step that is shorter than max_model_len, and prompts that may not be computed in parts: a
 * prompt that is longer than the step would wait for ever, and so would a short one that was
 * preempted after it had grown. */
static void whole_prompts_need_long_steps(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    config.enable_chunked_prefill = QUIRE_OFF;
    config.max_num_batched_tokens = KIT_LEN - 1;
    config.hooks.log = keep_line;
    logged[0] = '\0';
    assert_int_equal(quire_sched_create(&config, NULL, &kit.sched), QUIRE_E_CONFIG);
    assert_non_null(strstr(logged, "max_num_batched_tokens"));
    config.max_num_batched_tokens = KIT_LEN;
    config.max_num_scheduled_tokens = KIT_LEN - 1;
    assert_int_equal(quire_sched_create(&config, NULL, &kit.sched), QUIRE_E_CONFIG);
    config.max_num_scheduled_tokens = 0;
    open_kit(&kit, &config);
    kit_add(&kit, "a", KIT_LEN - 1);
    run_to_the_end(&kit);
    kit_close(&kit);
}

/* vLLM's engine refuses that config, its scheduler does not: in its profile the prompt waits. */
static void a_whole_prompt_waits_in_the_vllm_profile(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    config.enable_chunked_prefill = QUIRE_OFF;
    config.max_num_batched_tokens = KIT_LEN - 2;
    open_kit(&kit, &config);
    kit_add(&kit, "a", KIT_LEN - 2);
    kit_add(&kit, "b", KIT_LEN - 1);
    assert_int_equal(run_some(&kit, 5), 2); /* of a */
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 1);
    kit_close(&kit);
}

static void aligned_steps_must_fit(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    quire_group_config groups[2] = {
        kit.group,
        {.spec = {.kind = QUIRE_LAYER_MAMBA,
                  .block_size = 8,
                  .states = {{.num_dims = 1, .dims = {8}, .dtype = QUIRE_DTYPE_FLOAT16}},
                  .mamba_mode = QUIRE_MAMBA_MODE_ALIGN}}};
    config.cache->groups = groups;
    config.cache->num_groups = 2;
    config.max_num_batched_tokens = 7;
    assert_int_equal(quire_sched_create(&config, NULL, &kit.sched), QUIRE_E_CONFIG);
    config.max_num_batched_tokens = 8;
    config.long_prefill_token_threshold = 7;
    assert_int_equal(quire_sched_create(&config, NULL, &kit.sched), QUIRE_E_CONFIG);
    config.long_prefill_token_threshold = 8;
    open_kit(&kit, &config);
    kit.params.max_tokens = 2;
    kit_add(&kit, "a", 40);
    run_to_the_end(&kit);
    kit_close(&kit);
}

/* ---- sessions ---------------------------------------------------------------- */

/* Of 5 blocks a session has 3 and a half. Its next input needs more than the others. */
static void an_input_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    for (uint32_t waits = 0; waits < 2; waits++) {
        sched_kit kit;
        quire_sched_config config = kit_config(&kit);
        config.cache->num_blocks = 6;
        open_kit(&kit, &config);
        kit.params.is_resumable = 1;
        kit.params.max_tokens = 2;
        quire_req a = kit_add(&kit, "a", 13);
        for (uint32_t i = 0; i < 3 * waits; i++)
            kit_run(&kit, 7);
        const quire_request_params *more = kit_params(&kit, "a", 20 - 13 - waits);
        assert_refused(&kit, quire_sched_continue(kit.sched, a, more),
                       "blocks of the request: 6 (an empty pool: 5)");
        kit_params(&kit, "a", 20 - 13 - waits - 1);
        assert_int_equal(quire_sched_continue(kit.sched, a, more), QUIRE_OK);
        assert_int_equal(quire_sched_continue(kit.sched, a, NULL), QUIRE_OK);
        kit.params.is_resumable = 0;
        kit_add(&kit, "b", 4);
        run_to_the_end(&kit);
        kit_close(&kit);
    }
}

/* An input that fits when it is given, and no longer when its turn comes: the session ends. */
static void an_input_that_no_longer_fits_ends_the_session(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    config.cache->num_blocks = 6;
    open_kit(&kit, &config);
    kit.params.is_resumable = 1;
    kit.params.max_tokens = 6;
    quire_req a = kit_add(&kit, "a", 9);
    const quire_request_params *more = kit_params(&kit, "a", 10);
    assert_int_equal(quire_sched_continue(kit.sched, a, more), QUIRE_OK);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_waiting, 1);
    assert_int_equal(run_some(&kit, 6), 6); /* and then there is no room */
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    kit_close(&kit);
}

/* Two sessions wait for their users and have blocks. A load may begin all the same, though no more
 * than one request may load. */
static int eight_tokens(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                        uint32_t *is_async)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    const sched_kit *kit = user;
    assert_int_equal(quire_sched_get_req_info(kit->sched, req, &info), QUIRE_OK);
    *num_external = info.id.len > 1 && num_local < 8 ? 8 - num_local : 0;
    *is_async = 1;
    return QUIRE_OK;
}

static void idle_sessions_do_not_hold_up_loads(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    quire_connector connector = {
        .size = sizeof(quire_connector), .user = &kit, .get_num_new_matched_tokens = eight_tokens};
    config.connector = &connector;
    config.max_loading = 1;
    open_kit(&kit, &config);
    kit.params.is_resumable = 1;
    kit.params.max_tokens = 1;
    quire_req sessions[2] = {kit_add(&kit, "a", 5), kit_add(&kit, "b", 5)};
    kit_run(&kit, 7);
    kit_run(&kit, 7);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kit_info(&kit, sessions[i]).status, QUIRE_REQ_WAITING_FOR_STREAMING);
    kit.params.is_resumable = 0;
    quire_req loading = kit_add(&kit, "load", 12);
    kit_run(&kit, 7);
    assert_int_equal(kit_info(&kit, loading).status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
    kit_step(&kit);
    const quire_model_output output = {.size = sizeof(quire_model_output),
                                       .finished_recving = &loading,
                                       .num_finished_recving = 1};
    assert_int_equal(quire_sched_update(kit.sched, kit.step->step, &output, &kit.outputs),
                     QUIRE_OK);
    kit_run(&kit, 7);
    assert_int_equal(kit.outputs->num_outputs, 1);
    kit_close(&kit);
}

/* ---- encoder-decoder ----------------------------------------------------------- */

static void encoder_input_must_fit(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    quire_group_config groups[2] = {kit.group, kit.group};
    groups[1].spec.kind = QUIRE_LAYER_CROSS;
    config.cache->groups = groups;
    config.cache->num_groups = 2;
    config.cache->num_blocks = 11;
    config.cache->enable_caching = QUIRE_OFF;
    config.cache->max_encoder_tokens = 40;
    config.is_encoder_decoder = QUIRE_ON;
    config.encoder_compute_budget = 60;
    config.encoder_cache_size = 50;
    open_kit(&kit, &config);
    kit.params.max_tokens = 3;
    quire_mm_input sounds[2] = {image("x", 0, 61), image("y", 0, 30)};
    assert_refused(&kit, add_images(&kit, "a", 4, sounds, 1),
                   "embeddings of mm_inputs that one step needs together: 61 "
                   "(encoder_compute_budget: 60)");
    sounds[0].feature.length = 51;
    assert_refused(&kit, add_images(&kit, "a", 4, sounds, 1),
                   "embeddings of mm_inputs that one step needs together: 51 "
                   "(encoder_cache_size: 50)");
    sounds[0].feature.length = 41;
    assert_refused(&kit, add_images(&kit, "a", 4, sounds, 1),
                   "embeddings of mm_inputs: 41 (cache.max_encoder_tokens: 40)");
    sounds[0].feature.length = 10; /* with the other 40 */
    assert_refused(&kit, add_images(&kit, "a", 4, sounds, 2),
                   "blocks of the request: 12 (an empty pool: 10)");
    sounds[0].feature.length = 32;
    assert_refused(&kit, add_images(&kit, "a", 8, sounds, 1),
                   "blocks of the request: 11 (an empty pool: 10)");
    assert_int_equal(add_images(&kit, "a", 7, sounds, 1), QUIRE_OK);
    assert_int_equal(add_images(&kit, "b", 4, sounds + 1, 1), QUIRE_OK);
    run_to_the_end(&kit);
    kit_close(&kit);
}

/* ---- images -------------------------------------------------------------------- */

static quire_sched_config image_config(sched_kit *kit)
{
    quire_sched_config config = kit_config(kit);
    config.max_num_batched_tokens = 10;
    config.encoder_compute_budget = 10;
    config.encoder_cache_size = 8;
    return config;
}

/* EAGLE looks one token ahead: of two images side by side the second is needed before the first is
 * behind. With one token between them it is not. */
static void neighbours_must_fit_together_with_eagle(void **state)
{
    (void)state;
    for (int eagle = 0; eagle < 2; eagle++) {
        sched_kit kit;
        quire_sched_config config = image_config(&kit);
        config.cache->use_eagle = eagle ? QUIRE_ON : QUIRE_OFF;
        open_kit(&kit, &config);
        kit.params.max_tokens = 1;
        quire_mm_input images[2] = {image("x", 2, 5), image("y", 7, 4)};
        int err = add_images(&kit, "a", 12, images, 2);
        if (eagle)
            assert_refused(&kit, err,
                           "embeddings of mm_inputs that one step needs together: 9 "
                           "(encoder_cache_size: 8)");
        else
            assert_int_equal(err, QUIRE_OK);
        images[1].feature.offset = 8;
        assert_int_equal(add_images(&kit, "b", 13, images, 2), QUIRE_OK);
        images[1] = image("x", 7, 5); /* the same image twice */
        assert_int_equal(add_images(&kit, "c", 13, images, 2), QUIRE_OK);
        run_to_the_end(&kit);
        kit_close(&kit);
    }
}

/* The same where an image may not be split: EAGLE must see its first token one step earlier. */
static void whole_images_must_fit_a_step_with_eagle(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = image_config(&kit);
    config.cache->use_eagle = QUIRE_ON;
    config.disable_chunked_mm_input = QUIRE_ON;
    config.long_prefill_token_threshold = 6;
    open_kit(&kit, &config);
    kit.params.max_tokens = 1;
    quire_mm_input x = image("x", 3, 6);
    assert_refused(&kit, add_images(&kit, "a", 12, &x, 1),
                   "tokens of an mm_input in one step, with disable_chunked_mm_input: 7 "
                   "(the largest step: 6)");
    x.feature.length = 5;
    kit.params.mm_inputs = &x;
    kit.params.num_mm_inputs = 1;
    quire_req req = kit_add(&kit, "b", 12);
    kit.params.num_mm_inputs = 0;
    assert_int_equal(quire_sched_cut_prompt(kit.sched, req, 7, 0), QUIRE_E_RANGE); /* through it */
    assert_int_equal(quire_sched_cut_prompt(kit.sched, req, 8, 0), QUIRE_OK);
    run_to_the_end(&kit);
    kit_close(&kit);
}

/* A cut forgets the image behind it: else the tokens that are generated would run into it. With
 * EAGLE and images that may not be split, the request would stop before it for ever. */
static void a_cut_forgets_images(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = image_config(&kit);
    config.cache->use_eagle = QUIRE_ON;
    config.disable_chunked_mm_input = QUIRE_ON;
    open_kit(&kit, &config);
    kit.params.max_tokens = 12;
    quire_mm_input x = image("x", 6, 7);
    assert_int_equal(add_images(&kit, "a", 12, &x, 1), QUIRE_E_RANGE); /* it ends at 13 */
    kit.params.mm_inputs = &x;
    kit.params.num_mm_inputs = 1;
    quire_req req = kit_add(&kit, "a", 14);
    assert_int_equal(quire_sched_cut_prompt(kit.sched, req, 6, 0), QUIRE_OK);
    assert_int_equal(run_some(&kit, MOST_STEPS), 12);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    kit_close(&kit);
}

/* ---- blocks -------------------------------------------------------------------- */

/* b grows past what the watermark leaves to new requests, and is preempted. When a has ended, no
 * request has blocks, and b has the pool for itself. */
static void a_preempted_request_passes_the_watermark(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    config.cache->watermark = 0.5; /* 8 blocks of 17 */
    config.enable_chunked_prefill = QUIRE_OFF;
    open_kit(&kit, &config);
    kit.params.max_tokens = 28;
    quire_req a = kit_add(&kit, "a", 16);
    kit.params.max_tokens = 32;
    quire_req b = kit_add(&kit, "b", 16);
    uint32_t num_tokens = run_some(&kit, 30);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    assert_int_equal(quire_sched_get_req_info(kit.sched, a, &info), QUIRE_E_UNKNOWN_REQ);
    assert_true(kit_info(&kit, b).num_preemptions > 0);
    num_tokens += run_some(&kit, MOST_STEPS);
    assert_int_equal(num_tokens, 28 + 32);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    kit_close(&kit);
}

/* A window of 8 tokens holds 3 blocks, but 44 tokens that are computed at once need 11. A request
 * that has grown so long is preempted, and then computed again in smaller parts. */
static void a_window_is_computed_again_in_parts(void **state)
{
    (void)state;
    for (int reserves = 0; reserves < 2; reserves++) {
        sched_kit kit;
        quire_sched_config config = kit_config(&kit);
        kit.group.spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
        kit.group.spec.sliding_window = 8;
        config.cache->num_blocks = 8;
        config.reserve_full_sequence = reserves ? QUIRE_ON : QUIRE_OFF;
        open_kit(&kit, &config);
        kit_add(&kit, "a", 16);
        uint32_t num_tokens = run_some(&kit, 28);
        assert_int_equal(num_tokens, 28);
        assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 0), QUIRE_OK);
        num_tokens += run_some(&kit, MOST_STEPS);
        assert_int_equal(num_tokens, KIT_LEN - 16);
        kit_close(&kit);
    }
}

/* The same where the whole must be computed at once: the request ends, and the next one runs. */
static void a_request_that_outgrew_the_pool_ends_while_it_waits(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    kit.group.spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    kit.group.spec.sliding_window = 8;
    config.cache->num_blocks = 8;
    config.enable_chunked_prefill = QUIRE_OFF;
    open_kit(&kit, &config);
    quire_req a = kit_add(&kit, "a", 16);
    assert_int_equal(run_some(&kit, 28), 28);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 0), QUIRE_OK);
    kit.params.max_tokens = 5;
    kit_add(&kit, "b", 16);
    assert_int_equal(run_some(&kit, 5), 5); /* b goes past */
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 1);
    kit_run(&kit, 7);
    assert_int_equal(kit.outputs->num_outputs, 1);
    assert_int_equal(kit.outputs->outputs[0].req, a);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_LENGTH);
    assert_int_equal(kit.outputs->outputs[0].num_new_tokens, 0);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    kit_close(&kit);
}

/* A window of 5 in two blocks: while two tokens are in flight the first block may not be given
 * back, and the next token finds no room. It does when they have come. */
static void steps_in_flight_are_waited_for(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    kit.group.spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    kit.group.spec.sliding_window = 5;
    config.cache->num_blocks = 3;
    config.async_scheduling = QUIRE_ON;
    config.max_batches = 3;
    open_kit(&kit, &config);
    kit.params.max_tokens = 20;
    kit_add(&kit, "a", 4);
    uint64_t oldest = 1;
    uint32_t num_tokens = 0;
    for (uint32_t i = 0; i < 60; i++) {
        kit_step(&kit);
        for (; oldest + 2 <= kit.step->step; oldest++) {
            kit_answer(&kit, oldest, 7);
            for (uint32_t k = 0; k < kit.outputs->num_outputs; k++)
                num_tokens += kit.outputs->outputs[k].num_new_tokens;
        }
    }
    assert_int_equal(num_tokens, 20);
    kit_close(&kit);
}

/* What an encoder-decoder model cannot have: loads, and encoder input behind the first token. */
static void encoder_input_comes_first(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    quire_group_config groups[2] = {kit.group, kit.group};
    const quire_connector connector = QUIRE_CONNECTOR_INIT;
    groups[1].spec.kind = QUIRE_LAYER_CROSS;
    config.cache->groups = groups;
    config.cache->num_groups = 2;
    config.cache->enable_caching = QUIRE_OFF;
    config.is_encoder_decoder = QUIRE_ON;
    config.encoder_compute_budget = 8;
    config.encoder_cache_size = 8;
    config.connector = &connector;
    assert_int_equal(quire_sched_create(&config, NULL, &kit.sched), QUIRE_E_CONFIG);
    config.connector = NULL;
    open_kit(&kit, &config);
    quire_mm_input sound = image("x", 0, 5);
    kit.params.is_resumable = 1;
    kit.params.max_tokens = 1;
    quire_req a = kit_add(&kit, "a", 5);
    quire_request_params more = *kit_params(&kit, "a", 3);
    more.mm_inputs = &sound;
    more.num_mm_inputs = 1;
    assert_int_equal(quire_sched_continue(kit.sched, a, &more), QUIRE_E_ARGUMENT);
    more.num_mm_inputs = 0;
    assert_int_equal(quire_sched_continue(kit.sched, a, &more), QUIRE_OK);
    kit_close(&kit);
}

static int match_eight(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                       uint32_t *is_async)
{
    (void)user;
    (void)req;
    *num_external = num_local == 0 ? 8 : 0;
    *is_async = 0;
    return QUIRE_OK;
}

/* A window of 4 in three blocks: until the load of the first step is known no block is given back,
 * and the request waits for that. */
static void a_window_waits_for_its_load(void **state)
{
    (void)state;
    sched_kit kit = {0};
    quire_connector connector = {.size = sizeof(quire_connector),
                                 .get_num_new_matched_tokens = match_eight};
    quire_sched_config config = kit_config(&kit);
    kit.group.spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    kit.group.spec.sliding_window = 4;
    config.cache->num_blocks = 4;
    config.max_num_batched_tokens = 4;
    config.max_batches = 3;
    config.connector = &connector;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 20);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:4");
    kit_step(&kit);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "");
    kit_answer(&kit, 1, 7);
    kit_answer(&kit, 2, 7);
    kit_answer(&kit, 3, 7);
    kit_step(&kit);
    assert_int_equal(kit.step->num_reqs, 1);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_prompts_need_long_steps),
        cmocka_unit_test(a_whole_prompt_waits_in_the_vllm_profile),
        cmocka_unit_test(aligned_steps_must_fit),
        cmocka_unit_test(an_input_that_does_not_fit_is_refused),
        cmocka_unit_test(an_input_that_no_longer_fits_ends_the_session),
        cmocka_unit_test(idle_sessions_do_not_hold_up_loads),
        cmocka_unit_test(encoder_input_must_fit),
        cmocka_unit_test(neighbours_must_fit_together_with_eagle),
        cmocka_unit_test(whole_images_must_fit_a_step_with_eagle),
        cmocka_unit_test(a_cut_forgets_images),
        cmocka_unit_test(steps_in_flight_are_waited_for),
        cmocka_unit_test(encoder_input_comes_first),
        cmocka_unit_test(a_preempted_request_passes_the_watermark),
        cmocka_unit_test(a_window_is_computed_again_in_parts),
        cmocka_unit_test(a_window_waits_for_its_load),
        cmocka_unit_test(a_request_that_outgrew_the_pool_ends_while_it_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
