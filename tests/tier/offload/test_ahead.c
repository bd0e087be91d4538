/* tier/offload/test_ahead.c - what waiting requests were told, and what they will need: who keeps
 * it, who gives way, and who is looked up when. */
#include "tier/offload/offload_world.h"

enum { BLOCK = 4, PROMPT = 42, NUM_HIT = PROMPT / BLOCK };

static world the_world;

static void forget_engine(world *w)
{
    assert_int_equal(quire_sched_reset_prefix_cache(w->sched, 0, 0), QUIRE_OK);
}

/* The CPU pool has the full blocks of this prompt, the engine has not. */
static void leave_below(world *w, uint32_t first, uint32_t n)
{
    world_ask(w, first, n, 1);
    world_drain(w);
    forget_engine(w);
}

static void turn_often(world *w, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        world_turn(w);
}

static void set_pause(world *w, quire_pause pause)
{
    assert_int_equal(quire_sched_set_pause(w->sched, pause), QUIRE_OK);
}

/* Requests that come while others wait are looked up, too, however long those have waited. */
static void those_that_come_later_are_looked_up(void **state)
{
    (void)state;
    enum { LONG = 170, MOST = 3 }; /* turns: a look is due after 64 polls */
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    world_open(w, &setup);
    for (uint32_t i = 0; i < MOST; i++)
        leave_below(w, 1000 * i, PROMPT);
    set_pause(w, QUIRE_PAUSED_NEW);
    for (uint32_t i = 0; i < MOST; i++) {
        world_ask(w, 1000 * i, PROMPT, 2);
        turn_often(w, LONG);
        assert_int_equal(world_stats(w).expected_blocks, (i + 1) * NUM_HIT);
    }
    set_pause(w, QUIRE_UNPAUSED);
    world_drain(w);
    assert_int_equal(world_stats(w).hit_tokens, MOST * NUM_HIT * BLOCK);
    world_close(w);
}

/* The least that a request can find is one token. */
static void a_token_is_kept(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    setup.num_gpu = 128;
    setup.block_tokens = 1;
    world_open(w, &setup);
    leave_below(w, 10, 2);
    set_pause(w, QUIRE_PAUSED_NEW);
    world_ask(w, 10, 2, 1);
    turn_often(w, 2);
    assert_int_equal(world_stats(w).expected_blocks, 1);
    set_pause(w, QUIRE_UNPAUSED);
    world_drain(w);
    assert_int_equal(world_stats(w).hit_tokens, 1);
    world_close(w);
}

/* Only waiting requests' blocks are left for a store: those of the last in the queue are enough,
 * and the first keeps its own. */
static void the_first_in_the_queue_gives_nothing(void **state)
{
    (void)state;
    enum { EACH = 5 };
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    setup.num_cpu = 2 * EACH + 1;
    world_open(w, &setup);
    leave_below(w, 10, EACH * BLOCK + 2);
    leave_below(w, 1000, EACH * BLOCK + 2);
    world_ask(w, 500, 1, 40); /* it has nothing to store before its fourth token */
    world_turn(w);
    set_pause(w, QUIRE_PAUSED_NEW);
    world_ask(w, 10, EACH * BLOCK + 2, 2);
    world_ask(w, 1000, EACH * BLOCK + 2, 2);
    turn_often(w, 2);
    assert_int_equal(world_stats(w).expected_blocks, 2 * EACH);
    for (uint64_t before = w->num_stores; w->num_stores == before;)
        world_turn(w);
    assert_int_equal(world_stats(w).expected_blocks, EACH);
    set_pause(w, QUIRE_UNPAUSED);
    world_drain(w);
    world_close(w);
}

/* A request that finds no room in the engine is asked for again: what it was told stays true, also
 * where the CPU pool would not find it any more. */
static void what_was_told_stays_true(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    world_open(w, &setup);
    leave_below(w, 10, PROMPT);
    set_pause(w, QUIRE_PAUSED_NEW);
    const world_request *r = world_ask(w, 10, PROMPT, 2);
    const quire_connector *c = quire_offload_connector(w->offload);
    quire_pool *pool = quire_cache_get_pool(quire_offload_cache(w->offload));
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t num_external = 0;
        uint32_t is_async = 0;
        assert_int_equal(
            c->get_num_new_matched_tokens(c->user, r->req, 0, &num_external, &is_async), QUIRE_OK);
        assert_int_equal(num_external, NUM_HIT * BLOCK);
        assert_int_equal(is_async, 1);
        for (quire_block b = 1; b < setup.num_cpu; b++)
            assert_int_equal(quire_pool_evict_blocks(pool, &b, 1), QUIRE_OK);
    }
    set_pause(w, QUIRE_UNPAUSED);
    world_drain(w);
    assert_int_equal(world_stats(w).hit_tokens, NUM_HIT * BLOCK);
    assert_int_equal(world_stats(w).failed_loads, 0);
    world_close(w);
}

/* ---- an engine without room --------------------------------------------------- */

enum { LENGTH = 82, NUM_KEPT = LENGTH / BLOCK };

/* The CPU pool has a prompt of LENGTH tokens, from 10 on, and one block more. Large requests run,
 * and have left no room in the engine for that prompt. A store is on its way, and is the only
 * event: nothing else is stored before it ends. Returns the request that ends first. */
static const world_request *fill_engine(world *w, uint32_t num_large)
{
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    setup.num_gpu = 22 + 14 * num_large;
    setup.num_cpu = NUM_KEPT + 2;
    setup.max_events = 1;
    world_open(w, &setup);
    leave_below(w, 10, LENGTH / 2); /* in two parts: few blocks may be on their way at a time */
    leave_below(w, 10, LENGTH);
    w->setup.pace_percent = 0;
    world_ask(w, 500, BLOCK, 20);
    while (w->num_jobs == 0)
        world_turn(w);
    const world_request *first = world_ask(w, 1000, 60, 12);
    for (uint32_t i = 1; i < num_large; i++)
        world_ask(w, 1000 + 1000 * i, 60, 20);
    while (quire_sched_get_usage(w->sched).active < 16 * num_large || w->num_flight > 0)
        world_turn(w);
    assert_int_equal(world_stats(w).cpu.active, 1);
    return first;
}

/* A request was told of blocks that were kept for it while it waited. Stores take them before the
 * engine has room for the request: it is told anew, and loads nothing of what was there. */
static void what_gave_way_is_not_loaded(void **state)
{
    (void)state;
    world *w = &the_world;
    fill_engine(w, 1);
    set_pause(w, QUIRE_PAUSED_NEW);
    world_ask(w, 10, LENGTH, 2);
    turn_often(w, 4);
    set_pause(w, QUIRE_UNPAUSED);
    turn_often(w, 4); /* it is asked for, and there is no room */
    assert_int_equal(world_stats(w).expected_blocks, NUM_KEPT);
    w->setup.pace_percent = 100;
    for (uint64_t before = w->num_stores; w->num_stores == before;)
        world_turn(w);
    assert_int_equal(world_stats(w).expected_blocks, 0);
    world_drain(w);
    assert_int_equal(w->num_finished, 5);
    assert_int_equal(world_stats(w).failed_loads, 0);
    world_close(w);
}

/* A request was told of blocks before they were kept for it, so that they are its own twice. They
 * are the only room for the blocks of one that ends: all of these are stored. */
static void what_was_told_gives_way_as_well(void **state)
{
    (void)state;
    world *w = &the_world;
    const world_request *first = fill_engine(w, 2);
    world_ask(w, 10, LENGTH, 2);
    turn_often(w, 4);
    assert_int_equal(world_stats(w).expected_blocks, NUM_KEPT);
    assert_int_equal(world_stats(w).cpu.active, NUM_KEPT + 1);
    assert_false(first->has_ended);
    while (!first->has_ended)
        world_turn(w);
    assert_int_equal(world_stats(w).no_room, 0);
    assert_true(world_stats(w).stores_in_flight > 60 / BLOCK);
    w->setup.pace_percent = 100;
    world_drain(w);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_come_later_are_looked_up),
        cmocka_unit_test(a_token_is_kept),
        cmocka_unit_test(the_first_in_the_queue_gives_nothing),
        cmocka_unit_test(what_was_told_stays_true),
        cmocka_unit_test(what_gave_way_is_not_loaded),
        cmocka_unit_test(what_was_told_gives_way_as_well),
    };
    return cmocka_run_group_tests_name("offload_ahead", tests, NULL, NULL);
}
