/* sched/test_sched_connectors.c - images that another engine has encoded: what is asked and told,
 * in which order, and what it costs. The order is that of vLLM 0.20.0's Scheduler. And what else a
 * connector may do in its callbacks. */
#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { IMAGE = 4 }; /* tokens and embeddings of each */

static sched_kit kit;
static const char *there; /* identifiers that the connector has, a letter each */
static char told[256];

static void tell(const char *what, quire_req req, uint32_t input)
{
    size_t used = strlen(told);
    quire_req_info info = kit_info(&kit, req);
    snprintf(told + used, sizeof told - used, "%s%s %.*s%u", used == 0 ? "" : ", ", what,
             (int)info.id.len, (const char *)info.id.data, input);
}

static int has_item(void *user, quire_req req, uint32_t input)
{
    const char *names = quire_sched_get_user(kit.sched, req);
    assert_ptr_equal(user, &kit);
    tell("has", req, input);
    return strchr(there, names[input]) != NULL;
}

static void note_alloc(void *user, quire_req req, uint32_t input)
{
    assert_ptr_equal(user, &kit);
    tell("alloc", req, input);
}

static void *build_meta(void *user, const quire_step *step)
{
    assert_ptr_equal(user, &kit);
    assert_ptr_equal(step, kit.step == NULL ? step : kit.step); /* always the same place */
    assert_null(step->encoder_connector_meta); /* nobody is shown that of the step before */
    return told;
}

static quire_sched_config connected(void)
{
    static quire_encoder_connector connector = QUIRE_ENCODER_CONNECTOR_INIT;
    quire_sched_config config = kit_config(&kit);
    connector = (quire_encoder_connector){
        .size = sizeof(quire_encoder_connector), &kit, has_item, note_alloc, build_meta};
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    config.encoder_connector = &connector;
    config.encoder_compute_budget = IMAGE;
    config.encoder_cache_size = 4 * IMAGE;
    return config;
}

/* A request of images, one letter each, with a token between them. */
static quire_req add_images(const char *id, const char *names, uint32_t priority)
{
    quire_mm_input images[4];
    uint32_t n = (uint32_t)strlen(names);
    for (uint32_t i = 0; i < n; i++)
        images[i] = (quire_mm_input){.feature = {.identifier = {&names[i], 1},
                                                 .offset = 1 + i * (IMAGE + 1),
                                                 .length = IMAGE}};
    kit.params = (quire_request_params){.size = sizeof(quire_request_params),
                                        .mm_inputs = images,
                                        .num_mm_inputs = n,
                                        .user = (void *)(uintptr_t)names,
                                        .priority = (int32_t)priority};
    return kit_add(&kit, id, 1 + n * (IMAGE + 1));
}

static void step_and_expect(const char *step, const char *calls)
{
    told[0] = '\0';
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), step);
    assert_string_equal(told, calls);
    assert_ptr_equal(kit.step->encoder_connector_meta, told);
}

/* x is encoded and y loaded: the loaded one takes nothing of the budget, and is told last. */
static void those_that_are_there_are_not_encoded(void **state)
{
    (void)state;
    quire_sched_config config = connected();
    kit_open(&kit, &config);
    there = "y";
    add_images("a", "yxy", 0);
    step_and_expect("a:16", "has a0, has a1, alloc a1, alloc a0");
    assert_int_equal(kit.step->encoder_start[1], 1);
    assert_int_equal(kit.step->encoder_inputs[0], 1);
    kit_answer(&kit, 1, 7);
    add_images("b", "yx", 0); /* both are in the encoder cache now */
    step_and_expect("a:1 b:11", "");
    kit_answer(&kit, 2, 7);
    kit_close(&kit);
}

/* Only loads: the step has nothing to encode, and the budget is as it was for the next request. */
static void loads_leave_the_budget(void **state)
{
    (void)state;
    quire_sched_config config = connected();
    kit_open(&kit, &config);
    there = "xy";
    add_images("a", "xy", 0);
    add_images("b", "z", 0);
    step_and_expect("a:11 b:6", "has a0, has a1, alloc a0, alloc a1, has b0, alloc b0");
    assert_int_equal(kit.step->encoder_start[1], 0);
    assert_int_equal(kit.step->encoder_start[2], 1);
    kit_answer(&kit, 1, 7);
    kit_close(&kit);
}

/* A place is needed for them all the same. */
static void loads_need_a_place(void **state)
{
    (void)state;
    quire_sched_config config = connected();
    config.encoder_cache_size = IMAGE;
    kit_open(&kit, &config);
    there = "xy";
    quire_req a = add_images("a", "xy", 0);
    step_and_expect("a:6", "has a0, alloc a0"); /* up to the second one */
    kit_answer(&kit, 1, 7);
    step_and_expect("a:5", "has a1, alloc a1");
    assert_int_equal(kit.step->num_freed_encoder, 1);
    kit_answer(&kit, 2, 7);
    assert_int_equal(kit_info(&kit, a).num_tokens, 12);
    kit_close(&kit);
}

/* The default, with priorities: what another request encodes in this step does not count yet, and
 * what lies behind it is not loaded yet. */
static void loads_wait_behind_what_is_encoded(void **state)
{
    (void)state;
    quire_sched_config config = connected();
    config.profile = QUIRE_PROFILE_DEFAULT;
    config.policy = QUIRE_POLICY_PRIORITY;
    config.encoder_compute_budget = 2 * IMAGE;
    kit_open(&kit, &config);
    there = "y";
    add_images("a", "x", 0);
    quire_req b = add_images("b", "yxy", 1);
    step_and_expect("a:6 b:6", "has a0, alloc a0, has b0, alloc b0");
    kit_answer(&kit, 1, 7);
    quire_req c = add_images("c", "z", 2);
    assert_int_equal(quire_sched_finish(kit.sched, &b, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    quire_req d = add_images("d", "vzw", 3);
    there = "vw";
    step_and_expect("a:1 c:6 d:6", "has c0, alloc c0, has d0, has d2, alloc d0");
    kit_answer(&kit, 2, 7);
    step_and_expect("a:1 c:1 d:10", "has d2, alloc d2");
    kit_answer(&kit, 3, 7);
    assert_true(c != d);
    kit_close(&kit);
}

static void functions_may_be_missing(void **state)
{
    (void)state;
    quire_sched_config config = connected();
    config.encoder_connector = &(const quire_encoder_connector)QUIRE_ENCODER_CONNECTOR_INIT;
    kit_open(&kit, &config);
    add_images("a", "x", 0);
    told[0] = '\0';
    kit_step(&kit);
    assert_string_equal(told, "");
    assert_null(kit.step->encoder_connector_meta);
    assert_int_equal(kit.step->encoder_start[1], 1);
    kit_close(&kit);
}

/* ---- KV connectors ------------------------------------------------------------ */

static uint32_t cut_to; /* 0: not */

static int cut_prompt(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                      uint32_t *is_async)
{
    (void)user;
    (void)num_local;
    *num_external = 0;
    *is_async = 0;
    if (cut_to > 0)
        assert_int_equal(quire_sched_cut_prompt(kit.sched, req, cut_to, 1), QUIRE_OK);
    return QUIRE_OK;
}

static void note_output(void *user)
{
    assert_ptr_equal(user, &kit);
    snprintf(told, sizeof told, "output, %u there", quire_sched_get_num_unfinished(kit.sched));
}

static const quire_connector cutter = {.size = sizeof(quire_connector),
                                       .user = &kit,
                                       .get_num_new_matched_tokens = cut_prompt,
                                       .update_output = note_output};

static void open_cutter(quire_profile profile)
{
    quire_sched_config config = kit_config(&kit);
    config.profile = profile;
    config.connector = &cutter;
    kit_open(&kit, &config);
}

/* The request computes one token less, and has one token to sample. */
static void a_prompt_is_cut_on_its_way_in(void **state)
{
    (void)state;
    for (quire_profile profile = QUIRE_PROFILE_DEFAULT; profile <= QUIRE_PROFILE_VLLM_0_20;
         profile++) {
        open_cutter(profile);
        cut_to = 8;
        kit_add(&kit, "a", 9);
        told[0] = '\0';
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), "a:8");
        kit_answer(&kit, 1, 7);
        assert_string_equal(told, "output, 0 there");
        assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_LENGTH);
        assert_int_equal(kit.outputs->outputs[0].num_prompt_tokens, 8);
        kit_add(&kit, "a", 9); /* 8 tokens are found, and none is left: asked again, for fewer */
        kit_step(&kit);
        assert_int_equal(kit.step->num_reqs, 0);
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), "a:4");
        kit_close(&kit);
    }
}

static void what_cannot_be_cut(void **state)
{
    (void)state;
    static const unsigned char rows[5] = {1};
    open_cutter(QUIRE_PROFILE_DEFAULT);
    cut_to = 0;
    quire_req a = kit_add(&kit, "a", 9);
    assert_int_equal(quire_sched_cut_prompt(NULL, a, 1, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_cut_prompt(kit.sched, a + 1, 1, 1), QUIRE_E_UNKNOWN_REQ);
    assert_int_equal(quire_sched_cut_prompt(kit.sched, a, 0, 0), QUIRE_E_RANGE);
    assert_int_equal(quire_sched_cut_prompt(kit.sched, a, 10, 0), QUIRE_E_RANGE);
    assert_int_equal(quire_sched_cut_prompt(kit.sched, a, 7, 0), QUIRE_OK);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:7");
    assert_int_equal(quire_sched_cut_prompt(kit.sched, a, 6, 0), QUIRE_E_ARGUMENT);
    kit.params = (quire_request_params){
        .size = sizeof(quire_request_params), .prompt_embeds = rows, .prompt_embed_bytes = 1};
    quire_req b = kit_add(&kit, "b", 5);
    assert_int_equal(quire_sched_cut_prompt(kit.sched, b, 4, 0), QUIRE_E_ARGUMENT);
    kit_close(&kit);
}

/* A request that found no block keeps the pages that it was promised. A cut of max_tokens below
 * min_tokens must not make it need more of them: it would end without pages. */
static void a_cut_needs_no_more_pages(void **state)
{
    (void)state;
    quire_sched_config config = kit_config(&kit);
    config.cache->max_model_len = 4096;
    config.cache->num_blocks = 1100;
    config.max_num_batched_tokens = 4096;
    kit_open(&kit, &config);
    static quire_token prompt[4000];
    quire_req first;
    quire_request_params p = {.size = sizeof(quire_request_params),
                              .id = {"a", 1},
                              .prompt = prompt,
                              .num_prompt_tokens = 4000};
    assert_int_equal(quire_sched_add(kit.sched, &p, &first), QUIRE_OK);
    kit_step(&kit);
    memset(prompt, 1, sizeof prompt);
    p = (quire_request_params){.size = sizeof(quire_request_params),
                               .id = {"b", 1},
                               .prompt = prompt,
                               .num_prompt_tokens = 3000,
                               .max_tokens = 10,
                               .min_tokens = 5};
    quire_req second;
    assert_int_equal(quire_sched_add(kit.sched, &p, &second), QUIRE_OK);
    kit_answer(&kit, kit.step->step, 7);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1"); /* and no blocks for the second */
    assert_int_equal(quire_sched_cut_prompt(kit.sched, second, 900, 1), QUIRE_OK);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    kit_answer(&kit, kit.step->step, 7);
    assert_int_equal(quire_sched_finish(kit.sched, &first, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    kit_run(&kit, 7);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_LENGTH);
    kit_close(&kit);
}

/* ---- loads, and zeroing ----------------------------------------------------- */

static uint32_t num_matched;
static uint32_t is_async_match;

static int match_some(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                      uint32_t *is_async)
{
    (void)user;
    (void)req;
    *num_external = num_local == 0 ? num_matched : 0;
    *is_async = is_async_match;
    return QUIRE_OK;
}

/* Blocks of a prompt of 12 tokens that its first step wants zeroed. */
static uint32_t num_zeroed(quire_profile profile, uint32_t matched, uint32_t is_async)
{
    static quire_connector connector = QUIRE_CONNECTOR_INIT;
    quire_sched_config config = kit_config(&kit);
    connector = (quire_connector){.size = sizeof(quire_connector),
                                  .get_num_new_matched_tokens = match_some};
    num_matched = matched;
    is_async_match = is_async;
    config.profile = profile;
    config.connector = &connector;
    config.cache->track_new_blocks = QUIRE_ON;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 12);
    kit_step(&kit);
    uint32_t n = kit.step->blocks_to_zero.count;
    kit_close(&kit);
    return n;
}

/* A load may run while the step that lists them does. */
static void what_is_loaded_is_not_zeroed(void **state)
{
    (void)state;
    assert_int_equal(num_zeroed(QUIRE_PROFILE_DEFAULT, 0, 0), 3);
    assert_int_equal(num_zeroed(QUIRE_PROFILE_DEFAULT, 8, 1), 0);
    assert_int_equal(num_zeroed(QUIRE_PROFILE_DEFAULT, 8, 0), 1);
    assert_int_equal(num_zeroed(QUIRE_PROFILE_DEFAULT, 6, 0), 2); /* half of a block is loaded */
    assert_int_equal(num_zeroed(QUIRE_PROFILE_VLLM_0_20, 8, 1), 2);
    assert_int_equal(num_zeroed(QUIRE_PROFILE_VLLM_0_20, 8, 0), 3);
}

/* Blocks that a load was to fill were not zeroed for its sake: those that it left out are zeroed
 * before the request computes them. */
static void what_a_load_left_out_is_zeroed(void **state)
{
    (void)state;
    const quire_connector connector = {.size = sizeof(quire_connector),
                                       .get_num_new_matched_tokens = match_some};
    quire_sched_config config = kit_config(&kit);
    num_matched = 11;
    is_async_match = 1;
    config.profile = QUIRE_PROFILE_VLLM_0_32;
    config.connector = &connector;
    config.cache->track_new_blocks = QUIRE_ON;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 12);
    kit_step(&kit);
    assert_int_equal(kit.step->blocks_to_zero.count, 0);
    quire_block_span span;
    assert_int_equal(quire_sched_get_blocks(kit.sched, a, &span), QUIRE_OK);
    assert_int_equal(span.count, 3);
    quire_block blocks[3];
    memcpy(blocks, span.ids, sizeof blocks);
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    output.invalid_blocks = &blocks[1];
    output.num_invalid_blocks = 1;
    output.finished_recving = &a;
    output.num_finished_recving = 1;
    assert_int_equal(quire_sched_update(kit.sched, kit.step->step, &output, &kit.outputs),
                     QUIRE_OK);
    kit_step(&kit);
    assert_int_equal(kit.step->num_computed_tokens[0], 4);
    assert_int_equal(kit.step->blocks_to_zero.count, 2);
    assert_memory_equal(kit.step->blocks_to_zero.ids, &blocks[1], 2 * sizeof *blocks);
    kit_answer(&kit, kit.step->step, 7);
    kit_close(&kit);
}

/* The default recomputes the prompt, without the connector. */
static void failed_loads_end_their_requests_where_asked(void **state)
{
    (void)state;
    const quire_connector connector = {.size = sizeof(quire_connector),
                                       .get_num_new_matched_tokens = match_some};
    num_matched = 8;
    is_async_match = 1;
    for (uint32_t ends = 0; ends < 2; ends++) {
        quire_sched_config config = kit_config(&kit);
        config.connector = &connector;
        config.fail_on_load_error = ends ? QUIRE_ON : QUIRE_DEFAULT;
        kit_open(&kit, &config);
        quire_req a = kit_add(&kit, "a", 12);
        kit_step(&kit);
        quire_block_span blocks;
        quire_req_info info = kit_info(&kit, a);
        assert_int_equal(info.status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
        assert_int_equal(
            quire_cache_get_blocks(quire_sched_get_cache(kit.sched), info.seq, &blocks), QUIRE_OK);
        quire_block failed = blocks.ids[1];
        const quire_model_output output = {.size = sizeof(quire_model_output),
                                           .invalid_blocks = &failed,
                                           .num_invalid_blocks = 1,
                                           .finished_recving = &a,
                                           .num_finished_recving = 1};
        assert_int_equal(quire_sched_update(kit.sched, kit.step->step, &output, &kit.outputs),
                         QUIRE_OK);
        assert_int_equal(kit.outputs->num_outputs, ends);
        if (ends)
            assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_ERROR);
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), ends ? "" : "a:12");
        assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 1 - ends);
        kit_close(&kit);
    }
}

/* ---- features ---------------------------------------------------------------- */

static quire_mm_input image_at(const char *name, uint32_t offset)
{
    return (quire_mm_input){
        .feature = {.identifier = {name, 1}, .offset = offset, .length = IMAGE}};
}

static void open_encoder(uint32_t cache_size)
{
    quire_sched_config config = kit_config(&kit);
    config.encoder_compute_budget = config.encoder_cache_size = cache_size;
    config.long_prefill_token_threshold = 3;
    kit_open(&kit, &config);
}

/* Each request is inside its first image, and the next token is in the second one too. The encoder
 * cache has no place for that: one of them must give way. */
static void requests_do_not_wait_for_each_others_places(void **state)
{
    (void)state;
    const quire_mm_input of_a[] = {image_at("u", 1), image_at("v", 4)};
    const quire_mm_input of_b[] = {image_at("x", 1), image_at("y", 4)};
    open_encoder(2 * IMAGE);
    kit.params = (quire_request_params){.size = sizeof(quire_request_params),
                                        .mm_inputs = of_a,
                                        .num_mm_inputs = 2,
                                        .max_tokens = 1};
    kit_add(&kit, "a", 9);
    kit.params.mm_inputs = of_b;
    quire_req b = kit_add(&kit, "b", 9);
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "a:3 b:3");
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "a:1 b:1");
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "");
    assert_int_equal(kit_info(&kit, b).status, QUIRE_REQ_PREEMPTED);
    for (uint32_t i = 0; i < 8; i++)
        kit_run(&kit, 7);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    kit_close(&kit);
}

/* The session loses the second of its images, and its input still has its own. */
static void an_input_keeps_its_features_when_the_prompt_is_cut(void **state)
{
    (void)state;
    const quire_mm_input of_prompt[] = {image_at("u", 1), image_at("v", 6)};
    const quire_mm_input of_input[] = {image_at("x", 0), image_at("y", IMAGE)};
    open_encoder(8 * IMAGE);
    kit.params = (quire_request_params){.size = sizeof(quire_request_params),
                                        .mm_inputs = of_prompt,
                                        .num_mm_inputs = 2,
                                        .max_tokens = 1,
                                        .is_resumable = 1};
    quire_req s = kit_add(&kit, "s", 12);
    kit.params.mm_inputs = of_input;
    assert_int_equal(quire_sched_continue(kit.sched, s, kit_params(&kit, "i", 10)), QUIRE_OK);
    assert_int_equal(quire_sched_cut_prompt(kit.sched, s, 5, 0), QUIRE_OK);
    for (uint32_t i = 0; i < 2; i++)
        kit_run(&kit, 7);
    const qr_request *r = &kit.sched->table.requests[quire_req_index(s)];
    static const char NAMES[] = "uxy";
    static const uint32_t OFFSETS[] = {1, 5, 5 + IMAGE};
    assert_int_equal(r->num_features, COUNT(OFFSETS));
    for (uint32_t i = 0; i < COUNT(OFFSETS); i++) {
        assert_int_equal(*(const char *)r->features[i].identifier.data, NAMES[i]);
        assert_int_equal(r->features[i].offset, OFFSETS[i]);
        assert_ptr_equal(r->extra.mm_features[i].identifier.data, r->features[i].identifier.data);
        assert_int_equal(r->extra.mm_features[i].offset, OFFSETS[i]);
    }
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_are_there_are_not_encoded),
        cmocka_unit_test(loads_leave_the_budget),
        cmocka_unit_test(loads_need_a_place),
        cmocka_unit_test(loads_wait_behind_what_is_encoded),
        cmocka_unit_test(functions_may_be_missing),
        cmocka_unit_test(a_prompt_is_cut_on_its_way_in),
        cmocka_unit_test(what_cannot_be_cut),
        cmocka_unit_test(a_cut_needs_no_more_pages),
        cmocka_unit_test(what_is_loaded_is_not_zeroed),
        cmocka_unit_test(what_a_load_left_out_is_zeroed),
        cmocka_unit_test(failed_loads_end_their_requests_where_asked),
        cmocka_unit_test(requests_do_not_wait_for_each_others_places),
        cmocka_unit_test(an_input_keeps_its_features_when_the_prompt_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
