/* sched/test_sched_flight.c - steps in flight end in any order, or never; and outputs that are not
 * what the step was to give. What is shown with the vLLM profile was seen in vLLM 0.20.0. */
#include "base/quirks_kit.h"
#include "sched/sched_kit.h"

static sched_kit kit;

static quire_sched_config flight_config(quire_profile profile, quire_switch is_async)
{
    quire_sched_config config = kit_config(&kit);
    config.profile = profile;
    config.async_scheduling = is_async;
    config.max_batches = 3;
    return config;
}

static void open_flight(quire_profile profile, quire_switch is_async)
{
    quire_sched_config config = flight_config(profile, is_async);
    kit_open(&kit, &config);
}

static void forget(uint64_t step)
{
    assert_int_equal(quire_sched_forget_step(kit.sched, step), QUIRE_OK);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
}

static quire_token token_at(quire_req req, uint32_t i)
{
    quire_token token = -1;
    assert_int_equal(quire_sched_get_tokens(kit.sched, req, i, 1, &token), QUIRE_OK);
    return token;
}

/* So many tokens for each of at most two requests. */
static int answer_with(uint64_t step, uint32_t count)
{
    static const quire_token sampled[] = {7, 8, 9, 10, 11, 7, 8, 9, 10, 11};
    const uint32_t counts[2] = {count, count};
    const quire_model_output output = {.size = sizeof(quire_model_output),
                                       .sampled = sampled,
                                       .stride = (uint32_t)COUNT(sampled) / 2,
                                       .num_sampled = counts};
    int err = quire_sched_update(kit.sched, step, &output, &kit.outputs);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    return err;
}

/* ---- order ------------------------------------------------------------------ */

/* vLLM: all orders of three steps, twice around the ring: tokens come as the updates do. */
static void steps_end_in_any_order(void **state)
{
    (void)state;
    static const uint32_t ORDERS[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    quire_sched_config config = flight_config(QUIRE_PROFILE_VLLM_0_20, QUIRE_ON);
    config.cache->num_blocks = 40;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 5);
    quire_req b = kit_add(&kit, "b", 6);
    uint32_t num_tokens = 0;
    for (size_t k = 0; k < 2 * COUNT(ORDERS); k++) {
        uint64_t first = 0;
        for (uint32_t i = 0; i < 3; i++) {
            kit_step(&kit);
            first = i == 0 ? kit.step->step : first;
        }
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t which = ORDERS[k % COUNT(ORDERS)][i];
            quire_token token = (quire_token)(10 * k + which);
            kit_answer(&kit, first + which, token);
            assert_int_equal(kit.outputs->num_outputs, 2);
            assert_int_equal(token_at(a, 5 + num_tokens), token);
            assert_int_equal(token_at(b, 6 + num_tokens), token);
            num_tokens++;
        }
        assert_int_equal(kit.step->reqs[0], a); /* the last step's arrays are as they were */
        assert_int_equal(kit.step->reqs[1], b);
        assert_int_equal(kit.step->num_tokens[1], 1);
        assert_int_equal(kit_info(&kit, a).num_output_placeholders, 0);
    }
    kit_close(&kit);
}

/* The default: a request's steps in their order, those of different requests in any. */
static void one_request_keeps_its_order(void **state)
{
    (void)state;
    const quire_model_output nothing = QUIRE_MODEL_OUTPUT_INIT;
    open_flight(QUIRE_PROFILE_DEFAULT, QUIRE_ON);
    quire_req a = kit_add(&kit, "a", 5);
    kit_step(&kit);
    kit_step(&kit);
    assert_int_equal(quire_sched_update(kit.sched, 2, &nothing, &kit.outputs), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 0), QUIRE_OK);
    kit_step(&kit);
    kit_answer(&kit, 3, 30); /* the older two are void now */
    assert_int_equal(token_at(a, 5), 30);
    kit_answer(&kit, 2, 20);
    assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    kit_answer(&kit, 1, 10);
    kit_close(&kit);
    open_flight(QUIRE_PROFILE_DEFAULT, QUIRE_OFF);
    a = kit_add(&kit, "a", 5);
    kit_step(&kit);
    quire_req b = kit_add(&kit, "b", 6);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "b:6");
    kit_answer(&kit, 2, 20);
    kit_answer(&kit, 1, 10);
    assert_int_equal(token_at(a, 5), 10);
    assert_int_equal(token_at(b, 6), 20);
    kit_close(&kit);
}

/* ---- outputs that never come -------------------------------------------------- */

/* vLLM: the next step goes on as if the tokens had been computed. */
static void a_forgotten_chunk_counts_as_computed(void **state)
{
    (void)state;
    quire_sched_config config = flight_config(QUIRE_PROFILE_VLLM_0_20, QUIRE_OFF);
    config.max_num_batched_tokens = 4;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 6);
    kit_step(&kit);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:2");
    kit_answer(&kit, 2, 70);
    assert_int_equal(token_at(a, 6), 70);
    forget(1);
    assert_int_equal(quire_sched_forget_step(kit.sched, 1), QUIRE_E_ARGUMENT);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    forget(3); /* its token never comes: nothing is left to compute */
    kit_step(&kit);
    assert_int_equal(kit.step->num_reqs, 0);
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_RUNNING);
    assert_int_equal(kit_info(&kit, a).num_computed_tokens, 7);
    assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    kit_close(&kit);
}

/* vLLM, async: the placeholder of the lost token stays. */
static void a_forgotten_placeholder_stays(void **state)
{
    (void)state;
    open_flight(QUIRE_PROFILE_VLLM_0_20, QUIRE_ON);
    quire_req a = kit_add(&kit, "a", 5);
    for (uint32_t i = 1; i <= 8; i++) {
        kit_step(&kit);
        assert_int_equal(kit.step->num_reqs, 1);
        assert_int_equal(kit_info(&kit, a).num_output_placeholders, i);
        assert_int_equal(kit_info(&kit, a).num_computed_tokens, 4 + i);
        forget(i);
    }
    kit_step(&kit);
    kit_answer(&kit, 9, 90);
    assert_int_equal(token_at(a, 5), 90);
    assert_int_equal(kit_info(&kit, a).num_output_placeholders, 8);
    kit_close(&kit);
}

/* The default: whoever waited for it begins again, and ends with all its tokens. */
static void a_forgotten_step_is_computed_again(void **state)
{
    (void)state;
    open_flight(QUIRE_PROFILE_DEFAULT, QUIRE_ON);
    kit.params.max_tokens = 3;
    quire_req a = kit_add(&kit, "a", 5);
    kit_run(&kit, 10);
    quire_req b = kit_add(&kit, "b", 6);
    kit_step(&kit); /* a and b */
    kit_step(&kit);
    forget(2);
    assert_string_equal(kit_shown_queue(&kit, 1), "a b");
    assert_int_equal(kit_info(&kit, a).num_output_placeholders, 0);
    kit_answer(&kit, 3, 30);
    assert_int_equal(kit.outputs->num_outputs, 0); /* it went on from what is lost */
    kit_run(&kit, 11);
    assert_int_equal(kit.step->kinds[0], QUIRE_STEP_RESUMED);
    assert_int_equal(token_at(a, 6), 11);
    assert_int_equal(token_at(b, 6), 11);
    kit_run(&kit, 12);
    assert_int_equal(kit.outputs->num_outputs, 2);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_LENGTH);
    kit_run(&kit, 13);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_LENGTH);
    assert_int_equal(quire_sched_get_num_unfinished(kit.sched), 0);
    kit_close(&kit);
}

/* Requests that the step has lost already, in one way or another, are left alone. */
static void others_are_left_alone(void **state)
{
    (void)state;
    open_flight(QUIRE_PROFILE_DEFAULT, QUIRE_ON);
    quire_req a = kit_add(&kit, "a", 5);
    quire_req b = kit_add(&kit, "b", 5);
    kit_step(&kit);
    quire_req c = kit_add(&kit, "c", 5);
    assert_int_equal(quire_sched_finish(kit.sched, &b, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 0), QUIRE_OK);
    kit_step(&kit); /* a begins anew, c for the first time */
    assert_string_equal(kit_shown_step(&kit), "a:5 c:5");
    forget(1);
    assert_string_equal(kit_shown_queue(&kit, 0), "a c");
    kit_answer(&kit, 2, 20);
    assert_int_equal(token_at(a, 5), 20);
    assert_int_equal(token_at(c, 5), 20);
    kit_close(&kit);
}

/* Requests that end in schedule are told by an update. While none comes, only so many end. */
static void ends_wait_to_be_told(void **state)
{
    (void)state;
    quire_sched_config config = flight_config(QUIRE_PROFILE_DEFAULT, QUIRE_OFF);
    config.cache->num_blocks = 3; /* two of them are for requests: 8 tokens */
    config.long_prefill_token_threshold = 4;
    config.reserve_full_sequence = QUIRE_OFF;
    config.max_batches = 1;
    quirks_change(QR_QUIRK(ANY_OUTPUT) | QR_QUIRK(FAILED_BLOCKS_STAY), 0);
    kit_open(&kit, &config);
    quirks_change(0, 0);
    quire_req a = kit_add(&kit, "a", 7);
    quire_req b = kit_add(&kit, "b", 7);
    kit_step(&kit);
    assert_int_equal(answer_with(1, 2), QUIRE_OK); /* 9 tokens each: too many for the pool */
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:4");
    forget(2);
    kit_step(&kit); /* a ends */
    assert_string_equal(kit_shown_step(&kit), "b:4");
    forget(3);
    kit_step(&kit);
    forget(4);
    kit_step(&kit); /* b would end, too */
    assert_int_equal(kit.step->num_preempted, 1);
    kit_answer(&kit, 5, 0);
    assert_int_equal(kit.outputs->num_outputs, 1);
    assert_int_equal(kit.outputs->outputs[0].req, a);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_LENGTH);
    assert_int_equal(kit_info(&kit, b).status, QUIRE_REQ_PREEMPTED);
    kit_close(&kit);
}

/* ---- outputs that the step was not to give ------------------------------------ */

static void vllm_takes_any_number_of_tokens(void **state)
{
    (void)state;
    quire_sched_config config = flight_config(QUIRE_PROFILE_VLLM_0_20, QUIRE_OFF);
    config.max_num_batched_tokens = 4;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 6);
    kit_step(&kit);                                     /* 4 of 6 tokens */
    assert_int_equal(answer_with(1, 5), QUIRE_E_RANGE); /* more than outputs have room for */
    assert_int_equal(answer_with(1, 1), QUIRE_OK);
    assert_int_equal(token_at(a, 6), 7);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:3");
    assert_int_equal(answer_with(2, 4), QUIRE_OK);
    assert_int_equal(kit.outputs->outputs[0].num_new_tokens, 4);
    assert_int_equal(kit.outputs->outputs[0].new_tokens[3], 10);
    assert_int_equal(kit_info(&kit, a).num_tokens, 11);
    kit_close(&kit);
}

/* One draft, and three tokens came: one counts as computed that was never scheduled. */
static void vllm_takes_more_than_the_drafts(void **state)
{
    (void)state;
    const quire_token draft = 7;
    const uint32_t one = 1;
    quire_sched_config config = flight_config(QUIRE_PROFILE_VLLM_0_20, QUIRE_OFF);
    config.num_spec_tokens = 2;
    config.log_stats = QUIRE_ON;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 5);
    kit_run(&kit, 10);
    assert_int_equal(quire_sched_update_drafts(kit.sched, &a, 1, &draft, 1, &one), QUIRE_OK);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:2");
    assert_int_equal(answer_with(2, 4), QUIRE_E_RANGE);
    assert_int_equal(answer_with(2, 3), QUIRE_OK);
    assert_int_equal(kit.outputs->stats->spec.num_accepted_tokens, 2);
    assert_int_equal(kit_info(&kit, a).num_tokens, 9);
    assert_int_equal(kit_info(&kit, a).num_computed_tokens, 8);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    kit_close(&kit);
}

/* More tokens than pages were taken for, and than the model takes. */
static void tokens_find_a_page_or_an_end(void **state)
{
    (void)state;
    enum { LEN = 2050 };
    static quire_token prompt[LEN];
    quire_sched_config config = flight_config(QUIRE_PROFILE_VLLM_0_20, QUIRE_OFF);
    config.cache->max_model_len = LEN;
    config.cache->num_blocks = 2 * LEN / KIT_BLOCK;
    config.max_num_batched_tokens = LEN;
    kit_open(&kit, &config);
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t n = round == 0 ? 1023 : LEN - 2;
        quire_request_params p = *kit_params(&kit, round == 0 ? "a" : "b", 1);
        p.prompt = prompt;
        p.num_prompt_tokens = n;
        p.min_tokens = LEN;
        quire_req req;
        assert_int_equal(quire_sched_add(kit.sched, &p, &req), QUIRE_OK);
        kit_step(&kit);
        assert_int_equal(answer_with(kit.step->step, 4), QUIRE_OK);
        assert_int_equal(kit_info(&kit, req).num_tokens, round == 0 ? n + 4 : LEN);
        assert_int_equal(kit.outputs->outputs[0].num_new_tokens, round == 0 ? 4 : 2);
        assert_int_equal(token_at(req, n + 1), 8);
        assert_int_equal(quire_sched_finish(kit.sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                         QUIRE_OK);
    }
    kit_close(&kit);
}

/* ---- what stopped it ----------------------------------------------------------- */

static int grammar_answer; /* of accept_tokens */

static int always(void *user, quire_req req)
{
    (void)user;
    (void)req;
    return 1;
}

static int accept_or_not(void *user, quire_req req, const quire_token *tokens, uint32_t n)
{
    (void)user;
    (void)req;
    (void)tokens;
    (void)n;
    return grammar_answer;
}

/* A rule stops a request, and then its grammar refuses the tokens: what had stopped it is told. */
static void what_stopped_it_is_told_with_an_error(void **state)
{
    (void)state;
    enum { EOS = 1, STOP = 2, AGAIN = 3 };
    static const quire_token stop = STOP;
    static const quire_grammar grammar = {
        .size = sizeof(quire_grammar), .should_advance = always, .accept_tokens = accept_or_not};
    quire_sched_config config = flight_config(QUIRE_PROFILE_VLLM_0_20, QUIRE_OFF);
    config.grammar = &grammar;
    kit_open(&kit, &config);
    for (quire_token token = EOS; token <= AGAIN; token++)
        for (grammar_answer = 0; grammar_answer < 2; grammar_answer++) {
            kit.params = (quire_request_params){.size = sizeof(quire_request_params),
                                                .has_eos = 1,
                                                .eos_token_id = EOS,
                                                .stop_token_ids = &stop,
                                                .num_stop_token_ids = 1,
                                                .repetition_max_pattern = 1,
                                                .repetition_min_count = 2,
                                                .use_grammar = 1};
            kit_add(&kit, "a", 5);
            int answer = grammar_answer;
            grammar_answer = 1;
            kit_run(&kit, AGAIN);
            grammar_answer = answer;
            kit_run(&kit, token);
            assert_int_equal(kit.outputs->num_outputs, 1);
            const quire_output *out = &kit.outputs->outputs[0];
            quire_finish_reason reason =
                token == AGAIN ? QUIRE_FINISH_REPETITION : QUIRE_FINISH_STOP;
            assert_int_equal(out->finish_reason, answer ? reason : QUIRE_FINISH_ERROR);
            assert_int_equal(out->has_stop_reason, token == STOP);
            assert_int_equal(out->stop_reason, token == STOP ? STOP : 0);
            assert_int_equal(out->has_repeated, token == AGAIN);
        }
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_end_in_any_order),
        cmocka_unit_test(one_request_keeps_its_order),
        cmocka_unit_test(a_forgotten_chunk_counts_as_computed),
        cmocka_unit_test(a_forgotten_placeholder_stays),
        cmocka_unit_test(a_forgotten_step_is_computed_again),
        cmocka_unit_test(others_are_left_alone),
        cmocka_unit_test(ends_wait_to_be_told),
        cmocka_unit_test(vllm_takes_any_number_of_tokens),
        cmocka_unit_test(vllm_takes_more_than_the_drafts),
        cmocka_unit_test(tokens_find_a_page_or_an_end),
        cmocka_unit_test(what_stopped_it_is_told_with_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
