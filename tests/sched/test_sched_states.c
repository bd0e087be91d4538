/* sched/test_sched_states.c - states of Mamba layers that a connector may store: each is told with
 * its block and tokens in the step that gives it a key, unless its request has lost its blocks. */
#include "sched/sched_kit.h"

enum { STATES = 1 }; /* the group */

static sched_kit kit;
static quire_group_config groups[2];
static quire_state_offer ended; /* what states_finished was told last */
static uint32_t num_ended;
static uint32_t keeps;

static int note_end(void *user, quire_req req, const quire_block_span *blocks,
                    const quire_state_offer *states, uint32_t num_states)
{
    (void)user;
    assert_int_equal(states->req, req);
    assert_true(blocks[STATES].count > 0);
    ended = *states;
    num_ended += num_states;
    return (int)keeps;
}

static quire_connector connector_of(int takes_states)
{
    return (quire_connector){
        .size = sizeof(quire_connector), .takes_states = takes_states, .states_finished = note_end};
}

/* Full blocks of 4, states of 8; a hash is 4 tokens, a step at most 8. */
static void open_kit(int takes_states, uint32_t max_batches)
{
    static quire_connector connector;
    quire_sched_config config = kit_config(&kit);
    connector = connector_of(takes_states);
    groups[0] = kit.group;
    groups[STATES] = (quire_group_config){
        .spec = {.kind = QUIRE_LAYER_MAMBA,
                 .block_size = 8,
                 .states = {{.num_dims = 1, .dims = {8}, .dtype = QUIRE_DTYPE_FLOAT16}},
                 .mamba_mode = QUIRE_MAMBA_MODE_ALIGN}};
    config.cache->groups = groups;
    config.cache->num_groups = 2;
    config.cache->num_blocks = 64;
    config.cache->prefix_cache_retention_interval = QUIRE_RETAIN_ALL;
    config.profile = config.cache->profile = QUIRE_PROFILE_VLLM_0_32;
    config.connector = &connector;
    config.max_batches = max_batches;
    config.max_num_batched_tokens = 8;
    num_ended = keeps = 0;
    kit_open(&kit, &config);
}

/* The block at a place of the request's states. */
static quire_block state_block(quire_req req, uint32_t place)
{
    quire_block_span blocks[2];
    assert_int_equal(quire_sched_get_blocks(kit.sched, req, blocks), QUIRE_OK);
    assert_true(place < blocks[STATES].count);
    return blocks[STATES].ids[place];
}

static void assert_state(uint32_t i, quire_req req, uint32_t num_tokens)
{
    assert_true(i < kit.step->num_states);
    quire_state_offer state = kit.step->states[i];
    assert_int_equal(state.req, req);
    assert_int_equal(state.group, STATES);
    assert_int_equal(state.num_tokens, num_tokens);
    assert_int_not_equal(state.block, QUIRE_NULL_BLOCK);
}

/* 14 tokens: a chunk ends behind 8, the next one behind 12, where the prompt can be resumed. That
 * state moves to a copy before the request goes on. */
static void states_are_told_once(void **state)
{
    (void)state;
    open_kit(1, 1);
    quire_req a = kit_add(&kit, "a", 14);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:8");
    assert_int_equal(kit.step->num_states, 1);
    assert_state(0, a, 8);
    assert_int_equal(kit.step->states[0].block, state_block(a, 0));
    kit_answer(&kit, kit.step->step, 7);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:4");
    assert_int_equal(kit.step->num_states, 0); /* it is in the block that the request goes on in */
    kit_answer(&kit, kit.step->step, 7);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:2");
    assert_int_equal(kit.step->num_states, 1);
    assert_state(0, a, 12);
    assert_int_equal(kit.step->num_copies, 1);
    assert_int_equal(kit.step->states[0].block, kit.step->copies[0].to);
    kit_answer(&kit, kit.step->step, 7);
    kit_step(&kit);
    assert_int_equal(kit.step->num_states, 0);
    kit_answer(&kit, kit.step->step, 7);
    assert_int_equal(num_ended, 0);
    kit_close(&kit);
}

static void nothing_is_told_to_others(void **state)
{
    (void)state;
    open_kit(0, 1);
    kit_add(&kit, "a", 14);
    for (uint32_t i = 0; i < 3; i++) {
        kit_step(&kit);
        assert_int_equal(kit.step->num_states, 0);
        kit_answer(&kit, kit.step->step, 7);
    }
    kit_close(&kit);
}

/* The request ends behind the state: nothing has written over it. */
static void states_of_an_end_are_told(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        open_kit(1, 1);
        quire_req a = kit_add(&kit, "a", 14);
        kit_run(&kit, 7);
        kit_run(&kit, 7);
        quire_block block = state_block(a, 1);
        keeps = i;
        assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                         QUIRE_OK);
        assert_int_equal(num_ended, 1);
        assert_int_equal(ended.num_tokens, 12);
        assert_int_equal(ended.block, block);
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        int known = quire_sched_get_req_info(kit.sched, a, &info);
        assert_int_equal(known, i ? QUIRE_OK : QUIRE_E_UNKNOWN_REQ); /* its blocks are kept */
        kit_step(&kit);
        assert_int_equal(kit.step->num_states, 0);
        kit_answer(&kit, kit.step->step, 7);
        kit_close(&kit);
    }
}

/* A step is in flight: it will write over the state. */
static void states_that_are_written_to_are_not_told(void **state)
{
    (void)state;
    open_kit(1, 2);
    quire_req a = kit_add(&kit, "a", 14);
    kit_run(&kit, 7);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:4");
    assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    assert_int_equal(num_ended, 0);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_told_once),
        cmocka_unit_test(nothing_is_told_to_others),
        cmocka_unit_test(states_of_an_end_are_told),
        cmocka_unit_test(states_that_are_written_to_are_not_told),
    };
    return cmocka_run_group_tests_name("sched_states", tests, NULL, NULL);
}
