/* sched/requests/test_sched_fork_room.c - children where there is too little room, in images, and
 * those that
 * are refused. */
#include "base/quirks_kit.h"
#include "sched/requests/fork_kit.h"

#include <math.h>

/* ---- too little room --------------------------------------------------------------- */

/* All blocks are taken: the copy needs one, and somebody goes. */
static void a_copy_without_room_preempts(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.cache->num_blocks = 5; /* 4 that can be used */
    config.num_swap_blocks = 8;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 14);
    kit_run(&kit, 3);
    assert_int_equal(quire_sched_get_usage(kit.sched).active, 4);
    quire_req child = fork_of(&kit, a, "c");
    kit_step(&kit);
    assert_int_equal(kit.step->num_preempted, 1);
    assert_true(kit.step->preempted[0] == child);
    assert_int_equal(kit.step->num_copies, 0);
    assert_int_equal(kit.step->num_swap_out, 0); /* nothing of it was its own */
    assert_string_equal(kit_shown_step(&kit), "a:1");
    kit_answer(&kit, kit.step->step, 4);
    end(&kit, a);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "c:3");
    assert_int_equal(kit.step->kinds[0], QUIRE_STEP_NEW); /* no step has listed it before */
    kit_answer(&kit, kit.step->step, 4);
    close_empty(&kit);
}

/* PRIORITY: in the step being made a got its copy; then b, which is more urgent, needs a block. Its
 * victims are c and a. What a keeps in host slots is read where it lies, in the source of the copy,
 * and the copy is not made. */
static void a_victim_with_a_copy_is_swapped_from_the_source(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.policy = QUIRE_POLICY_PRIORITY;
    config.cache->num_blocks = 8; /* 7: a has 2, b has 4, 1 is free */
    config.num_swap_blocks = 8;
    config.recompute_token_ns = 1000;
    kit_open(&kit, &config);
    kit.params.priority = 1;
    quire_req a = kit_add(&kit, "a", 5);
    kit_run(&kit, 3);
    kit.params.priority = 0;
    quire_req b = kit_add(&kit, "b", 16);
    kit_run(&kit, 4);
    quire_block_span row;
    assert_int_equal(quire_sched_get_blocks(kit.sched, a, &row), QUIRE_OK);
    const quire_block blocks[2] = {row.ids[0], row.ids[1]};
    quire_request_params p = child_params("c");
    p.priority = 2;
    quire_req child;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_OK);
    assert_string_equal(kit_shown_queue(&kit, 0), "a c b");
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "b:1");
    assert_int_equal(kit.step->num_preempted, 2);
    assert_true(kit.step->preempted[0] == child && kit.step->preempted[1] == a);
    assert_int_equal(kit.step->num_swap_out, 2);
    assert_memory_equal(kit.step->swap_out_blocks, blocks, sizeof blocks);
    assert_int_equal(kit.step->num_copies, 0);
    kit_answer(&kit, kit.step->step, 5);
    end(&kit, b);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1 c:3");
    assert_int_equal(kit.step->num_computed_tokens[0], 6);
    assert_int_equal(kit.step->num_swap_in, 1); /* the first block is still cached */
    kit_answer(&kit, kit.step->step, 5);
    close_empty(&kit);
}

static void one_copy_in_a_step(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.cache->max_copies = 1;
    quire_req a = open_parent(&kit, &config);
    (void)fork_of(&kit, a, "b");
    (void)fork_of(&kit, a, "c");
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:1");
    assert_int_equal(kit.step->num_copies, 1);
    assert_int_equal(kit.step->num_preempted, 0);
    kit_answer(&kit, kit.step->step, 4);
    kit_run(&kit, 5);
    assert_string_equal(kit_shown_step(&kit),
                        "a:1 c:1 b:1"); /* the newest child is next to its parent */
    assert_int_equal(kit.step->num_copies, 1);
    close_empty(&kit);
}

/* ---- images -------------------------------------------------------------------------- */

static quire_sched *restore(const quire_sched_config *config, const quire_sched *from)
{
    kit_state state = kit_save(from);
    quire_sched *sched = NULL;
    assert_int_equal(quire_sched_restore(config, NULL, state.image, state.bytes, &sched), QUIRE_OK);
    free(state.image);
    assert_int_equal(quire_sched_check(sched), QUIRE_OK);
    return sched;
}

static void images_keep_children_and_copies(void **state)
{
    (void)state;
    sched_kit kit;
    const quire_sched_config config = fork_config(&kit);
    quire_req a = open_parent(&kit, &config);
    quire_req child = fork_of(&kit, a, "c");
    /* A copy that is pending between steps: the caller's own doing. */
    assert_int_equal(quire_cache_copy_on_write(quire_sched_get_cache(kit.sched),
                                               kit_info(&kit, child).seq, TOKENS, 1),
                     QUIRE_OK);
    quire_sched *second = restore(&config, kit.sched);
    kit_step(&kit);
    const quire_step *step;
    assert_int_equal(quire_sched_schedule(second, &step), QUIRE_OK);
    assert_int_equal(step->num_copies, 1);
    assert_int_equal(kit.step->num_copies, 1);
    assert_memory_equal(step->copies, kit.step->copies, sizeof *step->copies);
    assert_int_equal(step->copies[0].place, 1);
    assert_int_equal(step->kinds[1], QUIRE_STEP_NEW);
    assert_int_equal(step->blocks[1].ids[1], step->copies[0].to);
    quire_sched *third = restore(&config, kit.sched); /* with the step in flight */
    const quire_token sampled[2] = {5, 6};
    const quire_model_output output = {.size = sizeof(quire_model_output), .sampled = sampled};
    assert_int_equal(quire_sched_update(third, step->step, &output, &kit.outputs), QUIRE_OK);
    assert_int_equal(kit.outputs->num_outputs, 2);
    assert_int_equal(kit.outputs->outputs[1].new_tokens[0], 6);
    quire_sched_destroy(second);
    quire_sched_destroy(third);
    kit_answer(&kit, kit.step->step, 5);
    close_empty(&kit);
}

/* ---- refusals -------------------------------------------------------------------------- */

static void refusals_change_nothing(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.max_requests = 2;
    config.max_num_seqs = 2;
    quire_req a = open_parent(&kit, &config);
    kit_state before = kit_save(kit.sched);
    quire_req child = 0;
    quire_request_params p = child_params("c");
    assert_int_equal(quire_sched_fork(NULL, a, &p, &child), QUIRE_E_ARGUMENT);
    assert_int_equal(try_fork(&kit, a, NULL, &child), QUIRE_E_ARGUMENT);
    assert_int_equal(try_fork(&kit, a, &p, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(try_fork(&kit, a + 1, &p, &child), QUIRE_E_UNKNOWN_REQ);
    quire_request_params wrong[7];
    for (uint32_t i = 0; i < COUNT(wrong); i++)
        wrong[i] = p;
    const quire_token stops[1024] = {0};
    static const int ANSWERS[7] = {QUIRE_E_ARGUMENT, QUIRE_E_DUPLICATE, QUIRE_E_RANGE,
                                   QUIRE_E_RANGE,    QUIRE_E_ARGUMENT,  QUIRE_E_ARGUMENT,
                                   QUIRE_E_RANGE};
    wrong[0].id.len = 0;
    wrong[1].id = (quire_bytes){"a", 1};
    wrong[2].max_tokens = 1; /* it has one token of output */
    wrong[3].arrival_time = (double)INFINITY;
    wrong[4].is_pooling = 1;
    wrong[5].num_stop_token_ids = 2; /* and no array */
    wrong[6].num_stop_token_ids = COUNT(stops);
    wrong[6].stop_token_ids = stops;
    for (uint32_t i = 0; i < COUNT(wrong); i++)
        assert_int_equal(try_fork(&kit, a, &wrong[i], &child), ANSWERS[i]);
    assert_int_equal(child, 0);
    kit_same(kit.sched, before);
    (void)fork_of(&kit, a, "full");
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_FULL);
    close_empty(&kit);
}

static void pooling_parents_are_refused(void **state)
{
    (void)state;
    sched_kit kit;
    const quire_sched_config config = fork_config(&kit);
    kit_open(&kit, &config);
    kit.params.is_pooling = 1;
    quire_req a = kit_add(&kit, "a", TOKENS);
    quire_request_params p = child_params("c");
    quire_req child;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_E_ARGUMENT);
    assert_string_equal(quire_refusal(),
                        "a pooling request has no output that a fork could begin with");
    close_empty(&kit);
}

/* It was accepted with its prompt, and has grown to all that the pool has since. */
static void a_text_that_fills_the_pool_is_too_long(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = fork_config(&kit);
    config.cache->num_blocks = 3;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 7);
    kit_run(&kit, 3);
    quire_request_params p = child_params("c");
    p.max_tokens = 2; /* one more: it need not be computed */
    quire_req child;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_OK);
    end(&kit, child);
    p.max_tokens = 3;
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_E_TOO_LONG);
    assert_string_equal(quire_refusal(), "blocks of the request: 3 (an empty pool: 2)");
    close_empty(&kit);
}

static void off_where_it_is_not_asked_for(void **state)
{
    (void)state;
    sched_kit kit;
    quire_request_params p = child_params("c");
    quire_req child;
    quire_sched_config config = fork_config(&kit);
    config.cache->max_copies = 0;
    quire_req a = open_parent(&kit, &config);
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_E_DISABLED);
    close_empty(&kit);
    config = fork_config(&kit);
    quirks_change(QR_QUIRK(HOPELESS_WAITS), 0);
    a = open_parent(&kit, &config);
    quirks_change(0, 0);
    assert_int_equal(try_fork(&kit, a, &p, &child), QUIRE_E_DISABLED);
    close_empty(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_without_room_preempts),
        cmocka_unit_test(a_victim_with_a_copy_is_swapped_from_the_source),
        cmocka_unit_test(one_copy_in_a_step),
        cmocka_unit_test(images_keep_children_and_copies),
        cmocka_unit_test(refusals_change_nothing),
        cmocka_unit_test(pooling_parents_are_refused),
        cmocka_unit_test(a_text_that_fills_the_pool_is_too_long),
        cmocka_unit_test(off_where_it_is_not_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
