/* sched/test_sched_api.c - every answer that quire/sched.h documents, and that an answer other than
 * QUIRE_OK has changed nothing. */
#include "sched/sched_kit.h"

static sched_kit kit;

static void open_default(void)
{
    quire_sched_config config = kit_config(&kit);
    kit_open(&kit, &config);
}

/* ---- NULL and strangers ----------------------------------------------------- */

static void no_scheduler_is_an_argument_error(void **state)
{
    (void)state;
    quire_req req = 0;
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    const quire_step *step;
    const quire_outputs *outputs;
    const quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    const quire_request_params params = QUIRE_REQUEST_PARAMS_INIT;
    assert_int_equal(quire_sched_add(NULL, &params, &req), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_continue(NULL, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_finish(NULL, NULL, 0, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_req_info(NULL, 1, &info), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_tokens(NULL, 1, 0, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_blocks(NULL, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_schedule(NULL, &step), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_update(NULL, 1, &output, &outputs), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_forget_step(NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_update_drafts(NULL, NULL, 0, NULL, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_set_pause(NULL, QUIRE_UNPAUSED), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_reset_prefix_cache(NULL, 0, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_reset_encoder_cache(NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_check(NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_counts(NULL).pause, QUIRE_UNPAUSED);
    assert_int_equal(quire_sched_get_counts(NULL).num_running, 0);
    assert_int_equal(quire_sched_get_counts(NULL).num_waiting, 0);
    assert_int_equal(quire_sched_get_num_unfinished(NULL), 0);
    assert_int_equal(quire_sched_get_counts(NULL).has_finished, 0);
    assert_int_equal(quire_sched_get_queue(NULL, 0, &req, 1), 0);
    assert_int_equal(quire_sched_find(NULL, (quire_bytes){"a", 1}), 0);
    assert_int_equal(quire_sched_get_usage(NULL).total, 0);
    assert_null(quire_sched_get_user(NULL, 1));
    assert_null(quire_sched_get_cache(NULL));
    quire_sched_destroy(NULL);
}

static void null_where_something_must_be(void **state)
{
    (void)state;
    open_default();
    quire_req req = kit_add(&kit, "a", 5);
    const quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    const quire_outputs *outputs;
    quire_model_output missing[3] = {{.size = sizeof missing[0], .num_finished_sending = 1},
                                     {.size = sizeof missing[0], .num_finished_recving = 1},
                                     {.size = sizeof missing[0], .num_invalid_blocks = 1}};
    assert_int_equal(quire_sched_add(kit.sched, NULL, &req), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_add(kit.sched, kit_params(&kit, "b", 3), NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_req_info(kit.sched, req, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_tokens(kit.sched, req, 0, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_tokens(kit.sched, req, 0, 0, NULL), QUIRE_OK);
    assert_int_equal(quire_sched_schedule(kit.sched, NULL), QUIRE_E_ARGUMENT);
    kit_step(&kit);
    assert_int_equal(quire_sched_update(kit.sched, 1, NULL, &outputs), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_update(kit.sched, 1, &output, NULL), QUIRE_E_ARGUMENT);
    for (size_t i = 0; i < COUNT(missing); i++)
        assert_int_equal(quire_sched_update(kit.sched, 1, &missing[i], &outputs), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_update_drafts(kit.sched, NULL, 1, NULL, 0, NULL),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_set_pause(kit.sched, (quire_pause)3), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_get_queue(kit.sched, 3, &req, 1), 0);
    assert_int_equal(quire_sched_get_queue(kit.sched, 0, NULL, 1), 0);
    assert_int_equal(quire_sched_get_queue(kit.sched, 0, NULL, 0), 1);
    kit_close(&kit);
}

static void requests_that_are_not_there(void **state)
{
    (void)state;
    open_default();
    quire_req first = kit_add(&kit, "a", 5);
    assert_int_equal(quire_sched_finish(kit.sched, &first, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    quire_req second = kit_add(&kit, "b", 5);
    assert_int_equal(quire_req_index(first), quire_req_index(second));
    assert_true(first != second);
    const quire_req strangers[] = {0, first, second + 1, UINT64_MAX, second ^ (UINT64_C(1) << 40)};
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    quire_token token;
    quire_block_span span;
    uint32_t count = 9;
    for (size_t i = 0; i < COUNT(strangers); i++) {
        quire_req req = strangers[i];
        assert_int_equal(quire_sched_get_req_info(kit.sched, req, &info), QUIRE_E_UNKNOWN_REQ);
        assert_int_equal(quire_sched_get_tokens(kit.sched, req, 0, 1, &token), QUIRE_E_UNKNOWN_REQ);
        assert_int_equal(quire_sched_get_blocks(kit.sched, req, &span), QUIRE_E_UNKNOWN_REQ);
        assert_int_equal(quire_sched_continue(kit.sched, req, NULL), QUIRE_E_UNKNOWN_REQ);
        assert_null(quire_sched_get_user(kit.sched, req));
    }
    assert_int_equal(quire_sched_finish(kit.sched, strangers, (uint32_t)COUNT(strangers),
                                        QUIRE_REQ_FINISHED_ABORTED, &count),
                     QUIRE_OK);
    assert_int_equal(count, 0);
    const uint32_t one = 0;
    assert_int_equal(quire_sched_update_drafts(kit.sched, strangers, 1, &token, 1, &one), QUIRE_OK);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_waiting, 1);
    kit_close(&kit);
}

/* ---- adding ----------------------------------------------------------------- */

static int try_add(const quire_request_params *params)
{
    quire_req req = 77;
    uint32_t before = quire_sched_get_counts(kit.sched).num_waiting;
    int status = quire_sched_add(kit.sched, params, &req);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_waiting, before + (status == QUIRE_OK));
    assert_true(status == QUIRE_OK || req == 77);
    return status;
}

static void params_that_are_refused(void **state)
{
    (void)state;
    static const char long_id[257] = "x";
    static const unsigned char salt[4096] = {1};
    open_default();
    quire_request_params p = *kit_params(&kit, "a", 5);
    quire_request_params q = p;
    q.id = (quire_bytes){NULL, 0};
    assert_int_equal(try_add(&q), QUIRE_E_ARGUMENT);
    q.id = (quire_bytes){long_id, sizeof long_id};
    assert_int_equal(try_add(&q), QUIRE_E_RANGE);
    q = p;
    q.prompt = NULL;
    assert_int_equal(try_add(&q), QUIRE_E_ARGUMENT);
    q = p;
    q.num_prompt_tokens = 0;
    assert_int_equal(try_add(&q), QUIRE_E_RANGE);
    q.num_prompt_tokens = KIT_LEN;
    assert_int_equal(try_add(&q), QUIRE_E_RANGE);
    q = p;
    q.num_stop_token_ids = 1;
    assert_int_equal(try_add(&q), QUIRE_E_ARGUMENT);
    q = p;
    q.num_mm_inputs = 1;
    assert_int_equal(try_add(&q), QUIRE_E_ARGUMENT);
    q = p;
    q.cache_salt = (quire_bytes){salt, sizeof salt};
    assert_int_equal(try_add(&q), QUIRE_E_RANGE);
    q = p;
    q.id = (quire_bytes){long_id, 256};
    q.num_prompt_tokens = KIT_LEN - 1;
    assert_int_equal(try_add(&q), QUIRE_OK);
    assert_int_equal(try_add(&p), QUIRE_OK);
    assert_int_equal(try_add(&p), QUIRE_E_DUPLICATE);
    assert_int_equal(quire_sched_find(kit.sched, (quire_bytes){"b", 1}), 0);
    assert_true(quire_sched_find(kit.sched, p.id) != 0);
    kit_close(&kit);
}

static void as_many_as_the_limits_say(void **state)
{
    (void)state;
    open_default();
    char ids[] = "abcdefgh";
    for (uint32_t i = 0; i < KIT_REQUESTS; i++) {
        char id[2] = {ids[i], '\0'};
        kit_add(&kit, id, 3);
    }
    assert_int_equal(try_add(kit_params(&kit, "i", 3)), QUIRE_FULL);
    assert_int_equal(quire_sched_find(kit.sched, (quire_bytes){"i", 1}), 0);
    uint32_t count = 0;
    assert_int_equal(quire_sched_finish_all(kit.sched, QUIRE_REQ_FINISHED_ABORTED, &count),
                     QUIRE_OK);
    assert_int_equal(count, KIT_REQUESTS);
    assert_int_equal(quire_sched_get_counts(kit.sched).has_finished, 1);
    for (uint32_t i = 0; i < KIT_REQUESTS; i++) {
        char id[2] = {ids[i], '\0'};
        kit_add(&kit, id, 3);
    }
    quire_sched_finish_all(kit.sched, QUIRE_REQ_FINISHED_ABORTED, NULL);
    assert_int_equal(try_add(kit_params(&kit, "i", 3)), QUIRE_FULL); /* 16 ends are not told yet */
    kit_step(&kit);
    assert_int_equal(kit.step->num_finished, 2 * KIT_REQUESTS);
    assert_int_equal(quire_sched_get_counts(kit.sched).has_finished, 0);
    assert_int_equal(try_add(kit_params(&kit, "i", 3)), QUIRE_OK);
    kit_close(&kit);
}

static void as_much_text_as_the_limits_say(void **state)
{
    (void)state;
    static quire_token prompt[4000];
    char ids[] = "abcdefgh";
    quire_sched_config config = kit_config(&kit);
    config.cache->max_model_len = 4096;
    config.cache->num_blocks = 1100;
    config.max_text_tokens = 5000;
    kit_open(&kit, &config);
    int status = QUIRE_OK;
    uint32_t taken = 0;
    for (; taken < KIT_REQUESTS; taken += status == QUIRE_OK) {
        quire_request_params p = *kit_params(&kit, "a", 1);
        p.id.data = &ids[taken];
        p.prompt = prompt;
        p.num_prompt_tokens = (uint32_t)COUNT(prompt);
        status = try_add(&p);
        if (status != QUIRE_OK)
            break;
    }
    assert_int_equal(status, QUIRE_FULL);
    assert_true(taken > 0);
    quire_sched_finish_all(kit.sched, QUIRE_REQ_FINISHED_ABORTED, NULL);
    kit_add(&kit, "i", 5);
    kit_close(&kit);
}

static void what_does_not_fit_an_empty_pool(void **state)
{
    (void)state;
    for (int profile = 0; profile < 2; profile++) {
        quire_sched_config config = kit_config(&kit);
        config.cache->num_blocks = 6; /* 20 tokens */
        config.profile = (quire_profile)profile;
        kit_open(&kit, &config);
        assert_int_equal(try_add(kit_params(&kit, "a", 19)), QUIRE_OK);
        assert_int_equal(try_add(kit_params(&kit, "b", 21)),
                         profile == 0 ? QUIRE_E_TOO_LONG : QUIRE_OK);
        kit_close(&kit);
    }
}

/* ---- steps ------------------------------------------------------------------ */

static void one_step_after_the_other(void **state)
{
    (void)state;
    const quire_outputs *outputs;
    const quire_model_output nothing = QUIRE_MODEL_OUTPUT_INIT;
    const quire_step *step;
    open_default();
    assert_int_equal(quire_sched_update(kit.sched, 0, &nothing, &outputs), QUIRE_E_ARGUMENT);
    quire_req req = kit_add(&kit, "a", 5);
    kit_step(&kit);
    assert_int_equal(kit.step->step, 1);
    assert_string_equal(kit_shown_step(&kit), "a:5");
    kit_step(&kit);
    assert_int_equal(kit.step->num_reqs, 0);
    assert_int_equal(quire_sched_schedule(kit.sched, &step), QUIRE_FULL); /* 2 in flight */
    const uint64_t wrong[] = {0, 3, UINT64_MAX};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(quire_sched_update(kit.sched, wrong[i], &nothing, &outputs),
                         QUIRE_E_ARGUMENT);
        assert_int_equal(quire_sched_forget_step(kit.sched, wrong[i]), QUIRE_E_ARGUMENT);
    }
    assert_int_equal(kit_info(&kit, req).num_computed_tokens, 5);
    kit_answer(&kit, 1, 7);
    assert_int_equal(kit.outputs->num_outputs, 1);
    assert_int_equal(kit.outputs->outputs[0].req, req);
    assert_int_equal(kit.outputs->outputs[0].new_tokens[0], 7);
    assert_int_equal(kit.outputs->outputs[0].has_prefill_stats, 1);
    assert_int_equal(quire_sched_update(kit.sched, 1, &nothing, &outputs), QUIRE_E_ARGUMENT);
    kit_answer(&kit, 2, 7);
    assert_int_equal(kit.outputs->num_outputs, 0);
    kit_close(&kit);
}

static void outputs_that_cannot_be(void **state)
{
    (void)state;
    quire_sched_config config = kit_config(&kit);
    config.num_spec_tokens = 2;
    config.max_num_batched_tokens = 4;
    kit_open(&kit, &config);
    quire_req req = kit_add(&kit, "a", 6);
    const quire_token sampled[3] = {1, 2, 3};
    const quire_block blocks[2] = {1, 17};
    const uint32_t counts[] = {1, 2, 3};
    const quire_outputs *outputs;
    quire_model_output out = {.size = sizeof(quire_model_output),
                              .sampled = sampled,
                              .stride = 3,
                              .num_sampled = &counts[0]};
    kit_step(&kit); /* 4 of 6 tokens: nothing is sampled */
    assert_int_equal(quire_sched_update(kit.sched, 1, &out, &outputs), QUIRE_E_RANGE);
    out.num_sampled = NULL;
    assert_int_equal(quire_sched_update(kit.sched, 1, &out, &outputs), QUIRE_OK);
    kit_step(&kit);
    out.num_sampled = &counts[1]; /* two, though there were no drafts */
    assert_int_equal(quire_sched_update(kit.sched, 2, &out, &outputs), QUIRE_E_RANGE);
    out.num_sampled = &counts[0];
    out.invalid_blocks = blocks;
    out.num_invalid_blocks = 2;
    assert_int_equal(quire_sched_update(kit.sched, 2, &out, &outputs), QUIRE_E_UNKNOWN_BLOCK);
    assert_int_equal(kit_info(&kit, req).num_tokens, 6);
    out.num_invalid_blocks = 0;
    assert_int_equal(quire_sched_update(kit.sched, 2, &out, &outputs), QUIRE_OK);
    assert_int_equal(kit_info(&kit, req).num_tokens, 7);
    assert_int_equal(quire_sched_update_drafts(kit.sched, &req, 1, sampled, 3, &counts[2]),
                     QUIRE_E_RANGE); /* more than num_spec_tokens */
    assert_int_equal(quire_sched_update_drafts(kit.sched, &req, 1, sampled, 1, &counts[1]),
                     QUIRE_E_RANGE); /* more than the stride */
    assert_int_equal(kit_info(&kit, req).num_spec_tokens, 0);
    assert_int_equal(quire_sched_update_drafts(kit.sched, &req, 1, sampled, 3, &counts[1]),
                     QUIRE_OK);
    assert_int_equal(kit_info(&kit, req).num_spec_tokens, 2);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:3");
    assert_int_equal(kit.step->draft_start[1], 2);
    assert_int_equal(kit.step->drafts[1], 2);
    kit_close(&kit);
}

/* ---- looking ---------------------------------------------------------------- */

static void what_a_request_says_of_itself(void **state)
{
    (void)state;
    int mine;
    quire_token tokens[6];
    quire_block_span span;
    open_default();
    kit.params.user = &mine;
    kit.params.priority = -3;
    kit.params.arrival_time = 1.5;
    kit.params.client_index = 4;
    kit.params.lora_id = 9;
    quire_req req = kit_add(&kit, "a", 5);
    quire_req_info info = kit_info(&kit, req);
    assert_int_equal(info.status, QUIRE_REQ_WAITING);
    assert_int_equal(info.num_tokens, 5);
    assert_int_equal(info.priority, -3);
    assert_true(info.arrival_time > 1.4 && info.arrival_time < 1.6);
    assert_int_equal(info.client_index, 4);
    assert_int_equal(info.lora_id, 9);
    assert_int_equal(info.seq, 0);
    assert_memory_equal(info.id.data, "a", 1);
    assert_ptr_equal(quire_sched_get_user(kit.sched, req), &mine);
    assert_int_equal(quire_sched_get_blocks(kit.sched, req, &span), QUIRE_OK);
    assert_int_equal(span.count, 0);
    kit_run(&kit, 3);
    assert_int_equal(quire_sched_get_tokens(kit.sched, req, 0, 6, tokens), QUIRE_OK);
    assert_int_equal(tokens[0], 'a' * 100);
    assert_int_equal(tokens[5], 3);
    assert_int_equal(quire_sched_get_tokens(kit.sched, req, 1, 6, tokens), QUIRE_E_RANGE);
    assert_int_equal(quire_sched_get_tokens(kit.sched, req, UINT32_MAX, 2, tokens), QUIRE_E_RANGE);
    assert_int_equal(quire_sched_get_tokens(kit.sched, req, 6, 0, tokens), QUIRE_OK);
    assert_int_equal(quire_sched_get_blocks(kit.sched, req, &span), QUIRE_OK);
    assert_int_equal(span.count, 2);
    assert_true(kit_info(&kit, req).seq != 0);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 2);
    kit_close(&kit);
}

static void queues_in_the_order_of_service(void **state)
{
    (void)state;
    for (int policy = 0; policy < 2; policy++) {
        quire_sched_config config = kit_config(&kit);
        config.policy = (quire_policy)policy;
        config.max_num_seqs = 1;
        config.max_loras = 1;
        kit_open(&kit, &config);
        kit.params.priority = 5;
        kit_add(&kit, "a", 3);
        kit.params.arrival_time = 2;
        kit_add(&kit, "b", 3);
        kit.params.arrival_time = 1;
        kit_add(&kit, "d", 3);
        kit_add(&kit, "c", 3);
        kit.params.priority = 1;
        kit_add(&kit, "e", 3);
        assert_string_equal(kit_shown_queue(&kit, 1), policy == 0 ? "a b d c e" : "e a c d b");
        kit_run(&kit, 3);
        assert_string_equal(kit_shown_queue(&kit, 0), policy == 0 ? "a" : "e");
        assert_string_equal(kit_shown_queue(&kit, 1), policy == 0 ? "b d c e" : "a c d b");
        quire_req two[2] = {0, 0};
        assert_int_equal(quire_sched_get_queue(kit.sched, 1, two, 1), 4);
        assert_true(two[0] != 0 && two[1] == 0);
        kit_close(&kit);
    }
}

/* ---- pause, reset, end ------------------------------------------------------ */

static void pauses(void **state)
{
    (void)state;
    open_default();
    quire_req req = kit_add(&kit, "a", 3);
    kit_run(&kit, 1);
    kit_add(&kit, "b", 3);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 2);
    assert_int_equal(quire_sched_set_pause(kit.sched, QUIRE_PAUSED_NEW), QUIRE_OK);
    assert_int_equal(quire_sched_get_counts(kit.sched).pause, QUIRE_PAUSED_NEW);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 1);
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    assert_int_equal(quire_sched_set_pause(kit.sched, QUIRE_PAUSED_ALL), QUIRE_OK);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    kit_run(&kit, 1);
    assert_int_equal(kit.step->num_reqs, 0);
    assert_int_equal(kit_info(&kit, req).num_tokens, 5);
    assert_int_equal(quire_sched_set_pause(kit.sched, QUIRE_UNPAUSED), QUIRE_OK);
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "a:1 b:3");
    kit_close(&kit);
}

static void resets(void **state)
{
    (void)state;
    open_default();
    quire_req req = kit_add(&kit, "a", 9);
    kit_run(&kit, 1);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 0, 0), QUIRE_BUSY);
    assert_int_equal(kit_info(&kit, req).status, QUIRE_REQ_RUNNING);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 0), QUIRE_OK);
    assert_int_equal(kit_info(&kit, req).status, QUIRE_REQ_PREEMPTED);
    assert_int_equal(kit_info(&kit, req).num_preemptions, 1);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 0);
    assert_int_equal(quire_sched_get_usage(kit.sched).cached, 0);
    kit_run(&kit, 1);
    assert_int_equal(kit.step->kinds[0], QUIRE_STEP_RESUMED);
    assert_string_equal(kit_shown_step(&kit), "a:10");
    quire_sched_finish(kit.sched, &req, 1, QUIRE_REQ_FINISHED_STOPPED, NULL);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 0, 0), QUIRE_OK);
    assert_int_equal(quire_sched_reset_encoder_cache(kit.sched), QUIRE_OK);
    kit_close(&kit);
}

/* ---- sessions --------------------------------------------------------------- */

static void sessions_go_on(void **state)
{
    (void)state;
    open_default();
    quire_req plain = kit_add(&kit, "p", 3);
    assert_int_equal(quire_sched_continue(kit.sched, plain, kit_params(&kit, "p", 3)),
                     QUIRE_E_ARGUMENT);
    quire_sched_finish(kit.sched, &plain, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
    kit.params.is_resumable = 1;
    kit.params.max_tokens = 1;
    quire_req req = kit_add(&kit, "s", 5);
    kit_run(&kit, 1);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_LENGTH);
    assert_int_equal(kit_info(&kit, req).status, QUIRE_REQ_WAITING_FOR_STREAMING);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    assert_int_equal(quire_sched_get_counts(kit.sched).num_waiting, 1);
    quire_request_params p = *kit_params(&kit, "s", 4);
    p.num_prompt_tokens = 0;
    assert_int_equal(quire_sched_continue(kit.sched, req, &p), QUIRE_E_RANGE);
    p.num_prompt_tokens = KIT_LEN;
    assert_int_equal(quire_sched_continue(kit.sched, req, &p), QUIRE_E_RANGE);
    p = *kit_params(&kit, "s", 4);
    p.prompt = NULL;
    assert_int_equal(quire_sched_continue(kit.sched, req, &p), QUIRE_E_ARGUMENT);
    p.num_prompt_tokens = 1;
    assert_int_equal(quire_sched_continue(kit.sched, req, &p), QUIRE_E_ARGUMENT);
    p.num_prompt_tokens = 4;
    p.prompt = kit.prompt;
    p.num_stop_token_ids = 1;
    assert_int_equal(quire_sched_continue(kit.sched, req, &p), QUIRE_E_ARGUMENT);
    p.num_stop_token_ids = 0;
    assert_int_equal(kit_info(&kit, req).num_tokens, 6);
    assert_int_equal(quire_sched_continue(kit.sched, req, &p), QUIRE_OK);
    assert_int_equal(kit_info(&kit, req).num_prompt_tokens, 5 + 4); /* the sampled one is dropped */
    kit_run(&kit, 1);
    assert_string_equal(kit_shown_step(&kit), "s:4");
    assert_int_equal(quire_sched_continue(kit.sched, req, NULL), QUIRE_OK);
    assert_int_equal(quire_sched_find(kit.sched, (quire_bytes){"s", 1}), 0);
    kit_close(&kit);
}

/* A session that waits and is listed twice counts once. */
static void sessions_listed_twice(void **state)
{
    (void)state;
    open_default();
    kit.params.is_resumable = 1;
    kit.params.max_tokens = 1;
    quire_req req = kit_add(&kit, "s", 5);
    kit_run(&kit, 1);
    const quire_req twice[] = {req, req};
    assert_int_equal(quire_sched_finish(kit.sched, twice, 2, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    kit.params.is_resumable = 0;
    kit_add(&kit, "t", 5);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 1);
    kit_close(&kit);
}

/* The session is as long as a model takes when its input's turn comes. */
static void an_input_that_no_longer_fits(void **state)
{
    (void)state;
    open_default();
    kit.params.is_resumable = 1;
    quire_req req = kit_add(&kit, "s", 5);
    kit_step(&kit);
    quire_request_params p = *kit_params(&kit, "s", 40);
    assert_int_equal(quire_sched_continue(kit.sched, req, &p), QUIRE_OK);
    kit_answer(&kit, kit.step->step, 1);
    for (uint32_t i = 0; i < 2 * KIT_LEN && quire_sched_get_counts(kit.sched).num_running > 0; i++)
        kit_run(&kit, 1); /* kit_step walks */
    for (uint32_t i = 0; i < 4; i++)
        kit_run(&kit, 1);
    kit_close(&kit);
}

/* Behind the 8 tokens that the session keeps, an input may make it one shorter than a model takes:
 * a token is to follow. */
static void an_input_that_just_fits(void **state)
{
    (void)state;
    for (uint32_t n = KIT_LEN - 9; n <= KIT_LEN - 8; n++) {
        open_default();
        kit.params.is_resumable = 1;
        kit.params.max_tokens = 4;
        quire_req req = kit_add(&kit, "s", 5);
        assert_int_equal(quire_sched_continue(kit.sched, req, kit_params(&kit, "i", n)), QUIRE_OK);
        for (uint32_t i = 0; i < 4; i++)
            kit_run(&kit, 1);
        bool fits = quire_sched_find(kit.sched, (quire_bytes){"s", 1}) != 0;
        assert_int_equal(fits, n == KIT_LEN - 9);
        if (fits)
            assert_int_equal(kit_info(&kit, req).num_tokens, KIT_LEN - 1);
        kit_close(&kit);
    }
}

/* ---- configs ---------------------------------------------------------------- */

static void configs_that_are_refused(void **state)
{
    (void)state;
    quire_sched *sched = NULL;
    quire_sched_config good = kit_config(&kit);
    quire_hasher *hasher = kit.hasher;
    quire_sched_config bad[10];
    quire_cache_config caches[COUNT(bad)];
    for (size_t i = 0; i < COUNT(bad); i++) {
        caches[i] = *good.cache;
        bad[i] = good;
        bad[i].cache = &caches[i];
    }
    bad[0].size = 4;
    bad[1].hasher = NULL; /* caching is on */
    bad[2].max_num_seqs = KIT_REQUESTS + 1;
    bad[3].policy = (quire_policy)2;
    bad[4].profile = (quire_profile)3;
    bad[5].num_spec_tokens = 2000;
    bad[6].max_batches = 65;
    bad[7].async_scheduling = (quire_switch)3;
    bad[8].cache->num_blocks = 0;
    bad[9].cache->hash_block_size = 2; /* not the hasher's */
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(quire_sched_bytes(&bad[i]), 0);
        assert_int_equal(quire_sched_create(&bad[i], NULL, &sched), QUIRE_E_CONFIG);
        assert_null(sched);
    }
    good.cache->enable_caching = QUIRE_OFF;
    good.hasher = NULL;
    assert_int_equal(quire_sched_create(&good, NULL, &sched), QUIRE_OK);
    quire_sched_destroy(sched);
    quire_hasher_destroy(hasher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_scheduler_is_an_argument_error),
        cmocka_unit_test(null_where_something_must_be),
        cmocka_unit_test(requests_that_are_not_there),
        cmocka_unit_test(params_that_are_refused),
        cmocka_unit_test(as_many_as_the_limits_say),
        cmocka_unit_test(as_much_text_as_the_limits_say),
        cmocka_unit_test(what_does_not_fit_an_empty_pool),
        cmocka_unit_test(one_step_after_the_other),
        cmocka_unit_test(outputs_that_cannot_be),
        cmocka_unit_test(what_a_request_says_of_itself),
        cmocka_unit_test(queues_in_the_order_of_service),
        cmocka_unit_test(pauses),
        cmocka_unit_test(resets),
        cmocka_unit_test(sessions_go_on),
        cmocka_unit_test(sessions_listed_twice),
        cmocka_unit_test(an_input_that_no_longer_fits),
        cmocka_unit_test(an_input_that_just_fits),
        cmocka_unit_test(configs_that_are_refused),
    };
    return cmocka_run_group_tests_name("sched_api", tests, NULL, NULL);
}
