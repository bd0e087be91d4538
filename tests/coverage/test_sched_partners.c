/* Connector and grammar: functions that are not there, answers that cannot be, loads that end in
 * every way. */
#include "base/quirks_kit.h"
#include "coverage/sched_kit.h"

#include "sched/sched.h"

static void finish(sched_kit *kit, quire_req req)
{
    uint32_t n = 0;
    assert_int_equal(quire_sched_finish(kit->sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, &n),
                     QUIRE_OK);
    assert_int_equal(n, 1);
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}

/* ---- connector ------------------------------------------------------------- */

static void connector_without_functions(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    kit.connector = (quire_connector)QUIRE_CONNECTOR_INIT;
    kit.config.connector = &kit.connector;
    kit.config.log_stats = QUIRE_ON;
    sched_kit_open(&kit);
    quire_req a = sched_kit_add(&kit, "a", "aaaaaa", 8);
    sched_kit_step(&kit);
    assert_int_equal(sched_kit_status(&kit, a), QUIRE_REQ_RUNNING);
    assert_null(kit.step->connector_meta);
    assert_int_equal(kit.outputs->stats->connector_prefix.queries, 0);
    finish(&kit, a);
    assert_int_equal(quire_sched_find(kit.sched, (quire_bytes){"a", 1}), 0);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 0, 1), QUIRE_OK);
    sched_kit_step(&kit);
    assert_int_equal(kit.outputs->stats->connector_prefix.was_reset, 1);
    sched_kit_close(&kit);
}

static void reset_that_the_connector_refuses(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_connect(&kit);
    sched_kit_open(&kit);
    kit.reset_answer = 1;
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 0, 1), QUIRE_BUSY);
    kit.reset_answer = 0;
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 0, 1), QUIRE_OK);
    sched_kit_close(&kit);
    sched_kit_init(&kit, 16); /* and one that is not there */
    sched_kit_open(&kit);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 0, 1), QUIRE_E_ARGUMENT);
    sched_kit_close(&kit);
}

/* What it says, and how many tokens of six come from it. */
static void answers_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        int answer;
        uint32_t num_external;
        uint32_t is_async;
        uint32_t num_computed;
    } cases[] = {
        {QUIRE_OK, 4, 0, 4}, {QUIRE_OK, 6, 0, 5}, /* one token must be computed */
        {QUIRE_OK, 7, 0, 0}, {QUIRE_OK, 0, 1, 0}, {QUIRE_E_ARGUMENT, 4, 0, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        sched_kit kit;
        sched_kit_init(&kit, 16);
        sched_kit_connect(&kit);
        kit.config.log_stats = QUIRE_ON;
        sched_kit_open(&kit);
        kit.matched_answer = cases[i].answer;
        kit.num_external = cases[i].num_external;
        kit.is_async = cases[i].is_async;
        sched_kit_add(&kit, "a", "aaaaaa", 8);
        sched_kit_step(&kit);
        assert_int_equal(kit.step->num_reqs, 1);
        assert_int_equal(kit.step->num_computed_tokens[0], cases[i].num_computed);
        assert_ptr_equal(kit.step->connector_meta, &kit);
        assert_int_equal(kit.outputs->stats->connector_prefix.queries, 6);
        assert_int_equal(kit.outputs->stats->connector_prefix.hits, cases[i].num_computed);
        assert_int_equal(kit.num_told, 1);
        sched_kit_close(&kit);
    }
}

/* Loads of requests that are gone, that run, and that ended while they loaded. */
static void transfers_of_anybody(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_connect(&kit);
    sched_kit_open(&kit);
    quire_req gone = sched_kit_add(&kit, "g", "gggg", 8);
    finish(&kit, gone);
    quire_req runs = sched_kit_add(&kit, "r", "rrrr", 8);
    sched_kit_step(&kit);
    kit.num_external = 4;
    kit.is_async = 1;
    quire_req loads = sched_kit_add(&kit, "l", "llllll", 8);
    sched_kit_step(&kit);
    assert_int_equal(sched_kit_status(&kit, loads), QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
    finish(&kit, loads);
    quire_usage usage = quire_sched_get_usage(kit.sched);
    assert_int_equal(usage.active, 2 + 1); /* its blocks stay until the load is over */
    quire_req all[] = {gone, runs, loads};
    sched_kit_schedule(&kit);
    sched_kit_update(&kit, kit.step->step,
                     &(quire_model_output){.size = sizeof(quire_model_output),
                                           .finished_sending = all,
                                           .num_finished_sending = 2});
    assert_int_equal(sched_kit_status(&kit, runs), QUIRE_REQ_RUNNING);
    sched_kit_schedule(&kit);
    sched_kit_update(&kit, kit.step->step,
                     &(quire_model_output){.size = sizeof(quire_model_output),
                                           .finished_recving = all,
                                           .num_finished_recving = 3});
    assert_int_equal(sched_kit_status(&kit, runs), QUIRE_REQ_RUNNING);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 2);
    sched_kit_close(&kit);
}

static void blocks_that_are_still_being_sent(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_connect(&kit);
    sched_kit_open(&kit);
    kit.keeps_blocks = 1;
    quire_req a = sched_kit_add(&kit, "a", "aaaa", 1);
    sched_kit_step(&kit);
    assert_int_equal(sched_kit_status(&kit, a), QUIRE_REQ_FINISHED_LENGTH);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 1);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    sched_kit_schedule(&kit);
    sched_kit_update(&kit, kit.step->step,
                     &(quire_model_output){.size = sizeof(quire_model_output),
                                           .finished_sending = &a,
                                           .num_finished_sending = 1});
    assert_int_equal(quire_sched_get_req_info(kit.sched, a, &info), QUIRE_E_UNKNOWN_REQ);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 0);
    sched_kit_close(&kit);
}

/* A request that ends while its blocks are written and read: they stay until both are over. */
static void blocks_that_are_loaded_and_sent(void **state)
{
    (void)state;
    for (uint32_t first = 0; first < 2; first++) {
        sched_kit kit;
        sched_kit_init(&kit, 16);
        sched_kit_connect(&kit);
        sched_kit_open(&kit);
        kit.num_external = 4;
        kit.is_async = 1;
        kit.keeps_blocks = 1;
        quire_req a = sched_kit_add(&kit, "a", "aaaaaa", 8);
        sched_kit_step(&kit);
        finish(&kit, a);
        quire_model_output outputs[2] = {
            {.size = sizeof outputs[0], .finished_recving = &a, .num_finished_recving = 1},
            {.size = sizeof outputs[0], .finished_sending = &a, .num_finished_sending = 1}};
        sched_kit_schedule(&kit);
        sched_kit_update(&kit, kit.step->step, &outputs[first]);
        assert_int_equal(quire_sched_get_usage(kit.sched).active, 1);
        sched_kit_schedule(&kit);
        sched_kit_update(&kit, kit.step->step, &outputs[1 - first]);
        assert_int_equal(quire_sched_get_usage(kit.sched).active, 0);
        assert_int_equal(quire_sched_find(kit.sched, (quire_bytes){"a", 1}), 0);
        sched_kit_close(&kit);
    }
}

/* All tokens come from the connector: the last one is computed again all the same. */
static void load_of_a_whole_prompt(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    kit.groups[0].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    kit.groups[0].spec.sliding_window = 4;
    sched_kit_connect(&kit);
    sched_kit_open(&kit);
    kit.num_external = 12;
    kit.is_async = 1;
    quire_req a = sched_kit_add(&kit, "a", "aaaabbbbcccc", 8);
    sched_kit_schedule(&kit);
    assert_int_equal(kit.step->num_reqs, 0);
    sched_kit_update(&kit, kit.step->step,
                     &(quire_model_output){.size = sizeof(quire_model_output),
                                           .finished_recving = &a,
                                           .num_finished_recving = 1});
    sched_kit_step(&kit);
    assert_int_equal(kit.step->num_tokens[0], 1);
    assert_int_equal(kit.step->num_computed_tokens[0], 11);
    assert_int_not_equal(kit.step->blocks[0].ids[2], QUIRE_NULL_BLOCK);
    assert_int_equal(sched_kit_output(&kit, a)->num_external_cached, 12);
    sched_kit_close(&kit);
}

/* The first block of a running request was not loaded after all. */
static void fail_first_block(sched_kit *kit, quire_req req)
{
    quire_block_span blocks[2];
    assert_int_equal(quire_sched_get_blocks(kit->sched, req, blocks), QUIRE_OK);
    quire_block lost = blocks[0].ids[0];
    sched_kit_update(kit, kit->step->step,
                     &(quire_model_output){.size = sizeof(quire_model_output),
                                           .invalid_blocks = &lost,
                                           .num_invalid_blocks = 1});
}

static void failed_load_is_computed_again(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_connect(&kit);
    sched_kit_open(&kit);
    kit.num_external = 4;
    quire_req a = sched_kit_add(&kit, "a", "aaaaaa", 8);
    sched_kit_schedule(&kit);
    fail_first_block(&kit, a);
    assert_null(sched_kit_output(&kit, a));
    assert_int_equal(sched_kit_status(&kit, a), QUIRE_REQ_PREEMPTED);
    sched_kit_step(&kit);
    assert_int_equal(kit.step->num_computed_tokens[0], 0); /* the connector was not asked again */
    assert_int_equal(kit.step->num_tokens[0], 6);
    assert_int_equal(sched_kit_output(&kit, a)->num_new_tokens, 1);
    sched_kit_close(&kit);
}

static void failed_load_ends_its_request(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_connect(&kit);
    kit.config.fail_on_load_error = QUIRE_ON;
    sched_kit_open(&kit);
    kit.num_external = 4;
    quire_req a = sched_kit_add(&kit, "a", "aaaaaa", 8);
    quire_req b = sched_kit_add(&kit, "b", "bbbbbb", 8);
    sched_kit_schedule(&kit);
    fail_first_block(&kit, a);
    assert_int_equal(sched_kit_output(&kit, a)->finish_reason, QUIRE_FINISH_ERROR);
    assert_int_equal(sched_kit_output(&kit, b)->finish_reason, QUIRE_FINISH_NONE);
    assert_int_equal(quire_sched_find(kit.sched, (quire_bytes){"a", 1}), 0);
    sched_kit_close(&kit);
}

/* vLLM's rule is for one group: with several, the failed load goes unnoticed. The default begins
 * the request again. */
static void failed_load_with_two_groups(void **state)
{
    (void)state;
    for (int quirk = 0; quirk < 2; quirk++) {
        sched_kit kit;
        sched_kit_init(&kit, 32);
        kit.groups[1] = kit.groups[0];
        kit.groups[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
        kit.groups[1].spec.sliding_window = 8;
        kit.config.cache->num_groups = 2;
        sched_kit_connect(&kit);
        quirks_change(quirk ? QR_QUIRK(FAILED_BLOCKS_STAY) : 0, 0);
        sched_kit_open(&kit);
        quirks_change(0, 0);
        kit.num_external = 4;
        quire_req a = sched_kit_add(&kit, "a", "aaaaaa", 8);
        sched_kit_schedule(&kit);
        fail_first_block(&kit, a);
        if (quirk) {
            assert_int_equal(sched_kit_output(&kit, a)->num_new_tokens, 1);
        } else {
            assert_null(sched_kit_output(&kit, a));
            assert_int_equal(sched_kit_status(&kit, a), QUIRE_REQ_PREEMPTED);
        }
        sched_kit_close(&kit);
    }
}

/* ---- grammar --------------------------------------------------------------- */

static quire_req add_with_grammar(sched_kit *kit)
{
    quire_request_params p = sched_kit_params(kit, "a", "aaaa");
    p.use_grammar = 1;
    return sched_kit_add_params(kit, &p);
}

static void grammar_without_functions(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    kit.config.num_spec_tokens = 2;
    kit.grammar = (quire_grammar)QUIRE_GRAMMAR_INIT;
    kit.config.grammar = &kit.grammar;
    sched_kit_open(&kit);
    quire_req a = add_with_grammar(&kit);
    sched_kit_step(&kit);
    assert_int_equal(sched_kit_status(&kit, a), QUIRE_REQ_RUNNING);
    assert_int_equal(kit.step->has_grammar_reqs, 1);
    quire_token drafts[2] = {'x', 'y'};
    uint32_t num_drafts = 2;
    assert_int_equal(quire_sched_update_drafts(kit.sched, &a, 1, drafts, 2, &num_drafts), QUIRE_OK);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    assert_int_equal(quire_sched_get_req_info(kit.sched, a, &info), QUIRE_OK);
    assert_int_equal(info.num_spec_tokens, 2);
    sched_kit_close(&kit);
}

static void grammar_without_a_judge(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    kit.config.num_spec_tokens = 2;
    sched_kit_use_grammar(&kit);
    kit.grammar.accept_tokens = NULL;
    kit.grammar.validate_tokens = NULL;
    sched_kit_open(&kit);
    kit.is_ready = kit.advances = 1;
    quire_req a = add_with_grammar(&kit);
    sched_kit_step(&kit);
    quire_token drafts[2] = {'x', 'y'};
    uint32_t num_drafts = 2;
    assert_int_equal(quire_sched_update_drafts(kit.sched, &a, 1, drafts, 2, &num_drafts), QUIRE_OK);
    sched_kit_schedule(&kit);
    assert_int_equal(kit.step->draft_start[1], 2);
    sched_kit_close(&kit);
}

/* It allows one draft of two, says that it allows three, and at last refuses a token. */
static void grammar_that_judges(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    kit.config.num_spec_tokens = 2;
    sched_kit_use_grammar(&kit);
    sched_kit_open(&kit);
    kit.is_ready = kit.advances = 1;
    quire_req a = add_with_grammar(&kit);
    sched_kit_step(&kit);
    quire_token drafts[2] = {'x', 'y'};
    uint32_t num_drafts = 2;
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    for (kit.num_valid = 1; kit.num_valid <= 3; kit.num_valid += 2) {
        assert_int_equal(quire_sched_update_drafts(kit.sched, &a, 1, drafts, 2, &num_drafts),
                         QUIRE_OK);
        assert_int_equal(quire_sched_get_req_info(kit.sched, a, &info), QUIRE_OK);
        assert_int_equal(info.num_spec_tokens, kit.num_valid == 1 ? 1 : 2);
    }
    kit.accepts = 0;
    sched_kit_step(&kit);
    assert_int_equal(sched_kit_output(&kit, a)->finish_reason, QUIRE_FINISH_ERROR);
    sched_kit_close(&kit);
}

static void drafts_for_nobody(void **state)
{
    (void)state;
    sched_kit kit;
    sched_kit_init(&kit, 16);
    sched_kit_connect(&kit);
    kit.config.num_spec_tokens = 2;
    kit.config.max_num_batched_tokens = 6;
    sched_kit_open(&kit);
    kit.keeps_blocks = 1;
    quire_req ended = sched_kit_add(&kit, "e", "e", 1);
    quire_req in_prompt = sched_kit_add(&kit, "p", "pppppppp", 8);
    sched_kit_step(&kit);
    quire_req reqs[] = {99, ended, in_prompt};
    quire_token drafts[6] = {0};
    uint32_t num_drafts[] = {2, 2, 2};
    assert_int_equal(quire_sched_update_drafts(kit.sched, reqs, 3, drafts, 2, num_drafts),
                     QUIRE_OK);
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    assert_int_equal(quire_sched_get_req_info(kit.sched, in_prompt, &info), QUIRE_OK);
    assert_int_equal(info.num_spec_tokens, 0);
    num_drafts[2] = 3;
    assert_int_equal(quire_sched_update_drafts(kit.sched, reqs, 3, drafts, 3, num_drafts),
                     QUIRE_E_RANGE);
    num_drafts[2] = 2;
    assert_int_equal(quire_sched_update_drafts(kit.sched, reqs, 3, drafts, 1, num_drafts),
                     QUIRE_E_RANGE);
    sched_kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connector_without_functions),
        cmocka_unit_test(reset_that_the_connector_refuses),
        cmocka_unit_test(answers_that_cannot_be),
        cmocka_unit_test(transfers_of_anybody),
        cmocka_unit_test(blocks_that_are_still_being_sent),
        cmocka_unit_test(blocks_that_are_loaded_and_sent),
        cmocka_unit_test(load_of_a_whole_prompt),
        cmocka_unit_test(failed_load_is_computed_again),
        cmocka_unit_test(failed_load_ends_its_request),
        cmocka_unit_test(failed_load_with_two_groups),
        cmocka_unit_test(grammar_without_functions),
        cmocka_unit_test(grammar_without_a_judge),
        cmocka_unit_test(grammar_that_judges),
        cmocka_unit_test(drafts_for_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
