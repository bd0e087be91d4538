/* sched/requests/test_sched_fork.c - children of requests: what they have, where they begin, and
 * what
 * steps
 * tell of them. Contents of blocks are followed by the simulation (sched/sim/sim.h) and by the
 * engine
 * (tests/engine).
 */
#include "sched/requests/fork_kit.h"

/* ---- a parent that runs ------------------------------------------------------ */

static void a_child_runs_behind_its_parent(void **state)
{
    (void)state;
    sched_kit kit;
    const quire_sched_config config = fork_config(&kit);
    quire_req a = open_parent(&kit, &config);
    quire_req b = kit_add(&kit, "b", TOKENS);
    kit_run(&kit, 8);
    quire_req child = fork_of(&kit, a, "c");
    quire_req_info of_parent = kit_info(&kit, a);
    quire_req_info info = kit_info(&kit, child);
    assert_string_equal(kit_shown_queue(&kit, 0), "a c b");
    assert_int_equal(info.status, QUIRE_REQ_RUNNING);
    assert_int_equal(info.num_tokens, of_parent.num_tokens);
    assert_int_equal(info.num_prompt_tokens, TOKENS);
    assert_int_equal(info.num_computed_tokens, of_parent.num_computed_tokens);
    quire_token tokens[2][KIT_LEN];
    assert_int_equal(quire_sched_get_tokens(kit.sched, a, 0, info.num_tokens, tokens[0]), QUIRE_OK);
    assert_int_equal(quire_sched_get_tokens(kit.sched, child, 0, info.num_tokens, tokens[1]),
                     QUIRE_OK);
    assert_memory_equal(tokens[0], tokens[1], info.num_tokens * sizeof(quire_token));
    quire_block_span rows[2];
    assert_int_equal(quire_sched_get_blocks(kit.sched, a, &rows[0]), QUIRE_OK);
    assert_int_equal(quire_sched_get_blocks(kit.sched, child, &rows[1]), QUIRE_OK);
    assert_int_equal(rows[1].count, 2);
    assert_memory_equal(rows[0].ids, rows[1].ids, 2 * sizeof(quire_block));
    assert_true(b != child);
    close_empty(&kit);
}

static void the_step_lists_the_child_and_the_copy(void **state)
{
    (void)state;
    sched_kit kit;
    const quire_sched_config config = fork_config(&kit);
    quire_req a = open_parent(&kit, &config);
    quire_block_span before;
    assert_int_equal(quire_sched_get_blocks(kit.sched, a, &before), QUIRE_OK);
    quire_block shared = before.ids[1];
    quire_req child = fork_of(&kit, a, "c");
    kit_step(&kit);
    const quire_step *step = kit.step;
    assert_string_equal(kit_shown_step(&kit), "a:1 c:1");
    assert_int_equal(step->kinds[0], QUIRE_STEP_RUNNING);
    assert_int_equal(step->kinds[1], QUIRE_STEP_NEW);
    assert_int_equal(step->was_in_last_step[1], 0);
    assert_int_equal(step->num_computed_tokens[1], TOKENS);
    assert_int_equal(step->num_output_tokens[1], 1);
    assert_int_equal(step->blocks[0].count, 0);
    assert_int_equal(step->blocks[1].count, 2);
    assert_int_equal(step->num_copies, 1); /* the parent writes first; the child is alone then */
    assert_int_equal(step->copies[0].from, shared);
    assert_int_equal(step->copies[0].group, 0);
    assert_int_equal(step->copies[0].place, 0);
    assert_int_equal(step->copies[0].index, 1);
    assert_int_equal(step->blocks[1].ids[1], shared);
    quire_block_span now;
    assert_int_equal(quire_sched_get_blocks(kit.sched, a, &now), QUIRE_OK);
    assert_int_equal(now.ids[1], step->copies[0].to);
    const quire_block_copy *pending;
    uint32_t num_pending = 9;
    assert_int_equal(
        quire_cache_take_copies(quire_sched_get_cache(kit.sched), &pending, &num_pending),
        QUIRE_OK);
    assert_int_equal(num_pending, 0);
    answer_apart(&kit, 20);
    quire_token last;
    assert_int_equal(quire_sched_get_tokens(kit.sched, child, TOKENS + 1, 1, &last), QUIRE_OK);
    assert_int_equal(last, 21);
    assert_int_equal(kit.outputs->num_outputs, 2);
    assert_int_equal(kit.outputs->outputs[1].has_prefill_stats, 1);
    assert_int_equal(kit.outputs->outputs[1].num_local_cached, TOKENS);
    kit_step(&kit);
    assert_int_equal(kit.step->num_copies, 0);
    assert_int_equal(kit.step->kinds[1], QUIRE_STEP_RUNNING);
    kit_answer(&kit, kit.step->step, 3);
    close_empty(&kit);
}

static void four_beams_share_their_prompt(void **state)
{
    (void)state;
    sched_kit kit;
    const quire_sched_config config = fork_config(&kit);
    quire_req beams[4] = {open_parent(&kit, &config)};
    for (uint32_t i = 1; i < 4; i++)
        beams[i] = fork_of(&kit, beams[0], (const char *[]){"", "x", "y", "z"}[i]);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 2);
    kit_step(&kit);
    assert_int_equal(kit.step->num_copies, 3);
    answer_apart(&kit, 30);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 5);
    end(&kit, beams[1]); /* the middle first, then the parent */
    end(&kit, beams[2]);
    end(&kit, beams[0]);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 2);
    kit_run(&kit, 5);
    assert_int_equal(kit.step->num_copies, 0);
    quire_req next = fork_of(&kit, beams[3], "next");
    end(&kit, beams[3]);
    assert_int_equal(kit_info(&kit, next).status, QUIRE_REQ_RUNNING);
    kit_run(&kit, 6);
    assert_int_equal(kit.step->num_copies, 0);
    close_empty(&kit);
}

static void blocks_of_lookahead_are_not_shared(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.num_spec_tokens = 3;
    config.num_lookahead_tokens = 6;
    quire_req a = open_parent(&kit, &config);
    kit_run(&kit, 9);
    const uint32_t three = 3;
    const quire_token drafts[3] = {1, 2, 3};
    assert_int_equal(quire_sched_update_drafts(kit.sched, &a, 1, drafts, 3, &three), QUIRE_OK);
    quire_req child = fork_of(&kit, a, "c");
    quire_block_span rows[2];
    assert_int_equal(quire_sched_get_blocks(kit.sched, a, &rows[0]), QUIRE_OK);
    assert_int_equal(quire_sched_get_blocks(kit.sched, child, &rows[1]), QUIRE_OK);
    assert_true(rows[0].count > rows[1].count);
    assert_int_equal(rows[1].count, 2);
    assert_int_equal(kit_info(&kit, child).num_spec_tokens, 0);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:4 c:1");
    kit_answer(&kit, kit.step->step, 4);
    close_empty(&kit);
}

/* The last token, which is not computed yet, may be another; a token that is computed may be too,
 * but then the blocks are not the child's. */
static void a_beam_goes_on_with_another_token(void **state)
{
    (void)state;
    sched_kit kit;
    const quire_sched_config config = fork_config(&kit);
    quire_req a = open_parent(&kit, &config);
    kit_run(&kit, 8); /* 6 tokens, 7, 8 */
    const quire_token others[2] = {40, 41};
    quire_request_params p = child_params("c");
    p.prompt = others;
    p.num_prompt_tokens = 1;
    quire_req child;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_OK);
    assert_int_equal(kit_info(&kit, child).status, QUIRE_REQ_RUNNING);
    quire_token last[2];
    assert_int_equal(quire_sched_get_tokens(kit.sched, child, TOKENS, 2, last), QUIRE_OK);
    assert_int_equal(last[0], 7);
    assert_int_equal(last[1], 40);
    const void *hashes[2];
    uint32_t num_hashes[2];
    unsigned char of_parent[2 * QUIRE_MAX_DIGEST_BYTES];
    assert_int_equal(quire_sched_get_hashes(kit.sched, a, UINT32_MAX, &hashes[0], &num_hashes[0]),
                     QUIRE_OK);
    memcpy(of_parent, hashes[0], 64);
    assert_int_equal(
        quire_sched_get_hashes(kit.sched, child, UINT32_MAX, &hashes[1], &num_hashes[1]), QUIRE_OK);
    assert_int_equal(num_hashes[0], 2);
    assert_int_equal(num_hashes[1], 2);
    assert_memory_equal(of_parent, hashes[1], 32);
    assert_memory_not_equal(of_parent + 32, (const unsigned char *)hashes[1] + 32, 32);
    p.id = (quire_bytes){"d", 1};
    p.num_prompt_tokens = 2;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_OK);
    assert_int_equal(kit_info(&kit, child).status, QUIRE_REQ_WAITING);
    p.id = (quire_bytes){"e", 1};
    p.num_prompt_tokens = 3;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_E_RANGE);
    p.num_prompt_tokens = 1;
    p.prompt = NULL;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_E_ARGUMENT);
    kit_run(&kit, 9);
    close_empty(&kit);
}

/* ---- other states: the child waits --------------------------------------------- */

static void assert_waits(sched_kit *kit, quire_req parent, quire_req child)
{
    quire_req_info info = kit_info(kit, child);
    assert_int_equal(info.status, QUIRE_REQ_WAITING);
    assert_int_equal(info.num_tokens, kit_info(kit, parent).num_tokens);
    assert_int_equal(info.num_computed_tokens, 0);
    assert_true(info.seq == 0);
}

static void children_of_others_wait(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.max_num_seqs = 2;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 9);
    assert_waits(&kit, a, fork_of(&kit, a, "waiting"));
    kit_step(&kit); /* a runs, with the first child, which found no blocks in the same step */
    assert_waits(&kit, a, fork_of(&kit, a, "in flight"));
    kit_answer(&kit, kit.step->step, 3);
    assert_waits(&kit, a, fork_of(&kit, a, "no place to run"));
    assert_string_equal(kit_shown_queue(&kit, 0), "a waiting");
    end(&kit, quire_sched_find(kit.sched, (quire_bytes){"waiting", 7}));
    assert_int_equal(quire_sched_set_pause(kit.sched, QUIRE_PAUSED_NEW), QUIRE_OK);
    assert_waits(&kit, a, fork_of(&kit, a, "paused"));
    assert_int_equal(quire_sched_set_pause(kit.sched, QUIRE_UNPAUSED), QUIRE_OK);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 0), QUIRE_OK);
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_PREEMPTED);
    assert_waits(&kit, a, fork_of(&kit, a, "preempted"));
    close_empty(&kit);
}

/* A part of the parent's prompt is in flight: its blocks are not filled yet. */
static void children_wait_for_a_part_in_flight(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.max_num_batched_tokens = 8;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 13);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:8");
    assert_waits(&kit, a, fork_of(&kit, a, "early"));
    kit_answer(&kit, kit.step->step, 3);
    quire_req late = fork_of(&kit, a, "late");
    assert_int_equal(kit_info(&kit, late).status, QUIRE_REQ_RUNNING);
    close_empty(&kit);
}

/* Six blocks: a and its child c share two and take one each, w has two and finds no third. The
 * parent, which is in the step already, gives its own; then the child is the first of the step, and
 * still a new one. */
static void a_child_is_new_where_its_parent_left_the_step(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.policy = QUIRE_POLICY_PRIORITY;
    config.cache->num_blocks = 7;
    kit_open(&kit, &config);
    kit.params.priority = 9;
    quire_req a = kit_add(&kit, "a", 7);
    kit_run(&kit, 7);
    kit.params.priority = 1;
    kit_add(&kit, "w", 8);
    kit_run(&kit, 7);
    fork_of(&kit, a, "c");
    assert_string_equal(kit_shown_queue(&kit, 0), "a c w");
    kit_step(&kit);
    assert_int_equal(kit.step->num_preempted, 1);
    assert_true(kit.step->preempted[0] == a);
    assert_string_equal(kit_shown_step(&kit), "c:1 w:1");
    assert_int_equal(kit.step->kinds[0], QUIRE_STEP_NEW);
    assert_int_equal(kit.step->kinds[1], QUIRE_STEP_RUNNING);
    assert_int_equal(kit.step->blocks[0].count, 3);
    assert_int_equal(kit.step->blocks[1].count, 1);
    kit_answer(&kit, kit.step->step, 4);
    close_empty(&kit);
}

static void a_child_that_waits_finds_its_prefix(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.max_num_seqs = 1;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 9);
    kit_run(&kit, 3);
    kit_run(&kit, 4);
    quire_req child = fork_of(&kit, a, "c");
    assert_waits(&kit, a, child);
    end(&kit, a);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "c:3");
    assert_int_equal(kit.step->kinds[0], QUIRE_STEP_NEW);
    assert_int_equal(kit.step->num_computed_tokens[0], 8);
    assert_int_equal(kit.step->num_output_tokens[0], 2);
    kit_answer(&kit, kit.step->step, 5);
    assert_int_equal(kit.outputs->outputs[0].num_local_cached, 8);
    close_empty(&kit);
}

static void async_children_wait_for_steps_in_flight(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.async_scheduling = QUIRE_ON;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", TOKENS);
    kit_step(&kit);
    uint64_t first = kit.step->step;
    kit_step(&kit);
    uint64_t second = kit.step->step;
    kit_answer(&kit, first, 3);
    assert_waits(&kit, a, fork_of(&kit, a, "early"));
    kit_answer(&kit, second, 4);
    quire_req late = fork_of(&kit, a, "late");
    assert_int_equal(kit_info(&kit, late).status, QUIRE_REQ_RUNNING);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1 late:1 early:3");
    assert_int_equal(kit.step->num_copies, 1);
    kit_step(&kit);
    kit_answer(&kit, kit.step->step - 1, 5);
    kit_answer(&kit, kit.step->step, 6);
    close_empty(&kit);
}

static void a_grammar_is_asked_first(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    const quire_grammar grammar = QUIRE_GRAMMAR_INIT;
    config.grammar = &grammar;
    quire_req a = open_parent(&kit, &config);
    quire_request_params p = child_params("c");
    p.use_grammar = 1;
    quire_req child;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_OK);
    assert_int_equal(kit_info(&kit, child).status, QUIRE_REQ_WAITING_FOR_GRAMMAR);
    kit_run(&kit, 3);
    assert_int_equal(kit_info(&kit, child).status, QUIRE_REQ_RUNNING);
    close_empty(&kit);
}

/* ---- what a child has ------------------------------------------------------------ */

static void params_of_the_child_count(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.max_loras = 1;
    config.policy = QUIRE_POLICY_PRIORITY;
    kit.params = (quire_request_params)QUIRE_REQUEST_PARAMS_INIT;
    kit_open(&kit, &config);
    kit.params.lora_id = 5;
    kit.params.lora_name = (quire_bytes){"five", 4};
    kit.params.lora_path = (quire_bytes){"/a/five", 7};
    kit.params.max_tokens = 9;
    quire_req a = kit_add(&kit, "a", TOKENS);
    kit_run(&kit, 7);
    int mark;
    const quire_token stop = 77;
    quire_request_params p = child_params("c");
    p.user = &mark;
    p.max_tokens = 3; /* the token that is there is one of them */
    p.stop_token_ids = &stop;
    p.num_stop_token_ids = 1;
    p.priority = -3;
    p.arrival_time = 12;
    p.client_index = 4;
    p.lora_id = 99; /* not read: the blocks are those of adapter 5 */
    p.lora_path = (quire_bytes){NULL, 7};
    quire_req child;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_OK);
    quire_req_info info = kit_info(&kit, child);
    assert_int_equal(info.lora_id, 5);
    quire_request_params own = QUIRE_REQUEST_PARAMS_INIT;
    assert_int_equal(quire_sched_get_params(kit.sched, child, &own), QUIRE_OK);
    assert_int_equal(own.lora_path.len, 7);
    assert_memory_equal(own.lora_path.data, "/a/five", 7);
    assert_int_equal(info.priority, -3);
    assert_true(info.arrival_time == 12);
    assert_int_equal(info.client_index, 4);
    assert_ptr_equal(quire_sched_get_user(kit.sched, child), &mark);
    p.id = (quire_bytes){"d", 1};
    quire_req other;
    assert_int_equal(try_fork(&kit, a, &p, &other), QUIRE_OK);
    kit_step(&kit);
    assert_int_equal(kit.step->num_reqs, 3); /* one adapter, three requests */
    answer_apart(&kit, 75);                  /* a: 75, d: 76, c: 77, its stop token */
    assert_int_equal(kit.outputs->outputs[2].finish_reason, QUIRE_FINISH_STOP);
    assert_int_equal(kit.outputs->outputs[2].stop_reason, 77);
    assert_int_equal(kit.outputs->outputs[1].finish_reason, QUIRE_FINISH_NONE);
    kit_run(&kit, 1);
    assert_int_equal(kit.outputs->outputs[1].finish_reason, QUIRE_FINISH_LENGTH);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_NONE);
    close_empty(&kit);
}

static void a_child_may_be_a_session(void **state)
{
    (void)state;
    sched_kit kit;
    const quire_sched_config config = fork_config(&kit);
    quire_req a = open_parent(&kit, &config);
    quire_request_params p = child_params("c");
    p.is_resumable = 1;
    p.max_tokens = 2;
    quire_req child;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_OK);
    kit_run(&kit, 4);
    assert_int_equal(kit_info(&kit, child).status, QUIRE_REQ_WAITING_FOR_STREAMING);
    quire_request_params idle = child_params("d");
    quire_req none = 0;
    assert_int_equal(try_fork(&kit, child, &idle, &none), QUIRE_E_ARGUMENT);
    assert_string_equal(quire_refusal(), "the parent waits for the next input of its session");
    assert_int_equal(quire_sched_continue(kit.sched, child, kit_params(&kit, "more", 3)), QUIRE_OK);
    kit_run(&kit, 5);
    quire_req of_session =
        fork_of(&kit, child, "e"); /* a request like any other, of the same text */
    assert_int_equal(kit_info(&kit, of_session).status, QUIRE_REQ_RUNNING);
    assert_int_equal(quire_sched_continue(kit.sched, of_session, NULL), QUIRE_E_ARGUMENT);
    close_empty(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_runs_behind_its_parent),
        cmocka_unit_test(the_step_lists_the_child_and_the_copy),
        cmocka_unit_test(four_beams_share_their_prompt),
        cmocka_unit_test(blocks_of_lookahead_are_not_shared),
        cmocka_unit_test(a_beam_goes_on_with_another_token),
        cmocka_unit_test(children_of_others_wait),
        cmocka_unit_test(children_wait_for_a_part_in_flight),
        cmocka_unit_test(a_child_is_new_where_its_parent_left_the_step),
        cmocka_unit_test(a_child_that_waits_finds_its_prefix),
        cmocka_unit_test(async_children_wait_for_steps_in_flight),
        cmocka_unit_test(a_grammar_is_asked_first),
        cmocka_unit_test(params_of_the_child_count),
        cmocka_unit_test(a_child_may_be_a_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
