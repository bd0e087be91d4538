/* tier/offload/test_limits.c - how much of the engine's memory, of the CPU pool and of the process
 * an offload takes, and what stops counting when a device hangs or all is reset. (Linked so that
 * lookups of the engine's blocks in the CPU pool come here.) */
#include "tier/offload/offload_world.h"

enum { BLOCK = 4 };

static world the_world;
static uint64_t num_looked_up; /* blocks of the engine, in the CPU pool */

int __real_quire_pool_take_same(quire_pool *pool, quire_pool *other, const quire_block *others,
                                uint32_t n, quire_block *from, quire_block *to, quire_same *same);
int __wrap_quire_pool_take_same(quire_pool *pool, quire_pool *other, const quire_block *others,
                                uint32_t n, quire_block *from, quire_block *to, quire_same *same);

int __wrap_quire_pool_take_same(quire_pool *pool, quire_pool *other, const quire_block *others,
                                uint32_t n, quire_block *from, quire_block *to, quire_same *same)
{
    int status = __real_quire_pool_take_same(pool, other, others, n, from, to, same);
    num_looked_up += same->num_done;
    return status;
}

static void forget_engine(world *w)
{
    assert_int_equal(quire_sched_reset_prefix_cache(w->sched, 0, 0), QUIRE_OK);
}

static void run_all(world *w)
{
    for (uint32_t turns = 0; quire_sched_get_num_unfinished(w->sched) > 0; turns++) {
        world_turn(w);
        assert_true(turns < 5000);
    }
}

/* ---- what it takes ------------------------------------------------------------ */

/* The longest request takes nearly the whole pool: stores may hold an eighth of it, and one. */
static void stores_hold_a_part_of_the_engine(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    setup.num_gpu = 26;
    setup.pace_percent = 0;
    uint64_t most = 0;
    world_open(w, &setup);
    world_ask(w, 10, 90, 2);
    while (quire_sched_get_num_unfinished(w->sched) > 0) {
        world_turn(w);
        uint64_t now = world_stats(w).stores_in_flight;
        most = now > most ? now : most;
    }
    assert_int_equal(most, 26 / 8 + 1);
    w->setup.pace_percent = 100;
    world_drain(w);
    world_close(w);
}

/* Lazy stores are of the blocks that will be evicted next: of no more than two steps can take,
 * which is less than half of the CPU pool here. */
static void lazy_stores_look_no_further(void **state)
{
    (void)state;
    enum { NUM_GPU = 128, TWO_STEPS = 2 * 48 / BLOCK };
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_LAZY, false);
    setup.num_gpu = NUM_GPU;
    setup.num_cpu = 60;
    world_open(w, &setup);
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(w->sched));
    for (uint32_t i = 0; i < 16; i++) {
        world_ask(w, 100 * i, 40, 1);
        while (quire_sched_get_num_unfinished(w->sched) > 0 || w->num_flight > 0) {
            world_turn(w);
            uint64_t seen = quire_pool_get_counts(pool).num_allocated + TWO_STEPS;
            assert_true(w->num_stores <= (seen > NUM_GPU - 1 ? seen - (NUM_GPU - 1) : 0));
        }
    }
    assert_true(w->num_stores > 24);
    world_drain(w);
    world_close(w);
}

/* A walk looks up the blocks that it has not met before: each block about once on its way to the
 * head, although it is in two walks or more. */
static void lazy_stores_look_once(void **state)
{
    (void)state;
    enum { TWO_STEPS = 2 * 48 / BLOCK };
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_LAZY, false);
    setup.num_gpu = 128;
    setup.num_cpu = 250;
    world_open(w, &setup);
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(w->sched));
    num_looked_up = 0;
    for (uint32_t i = 0; i < 60; i++) {
        world_ask(w, 100 * i, 40, 1);
        run_all(w);
    }
    world_drain(w);
    uint64_t num_taken = quire_pool_get_counts(pool).num_allocated;
    assert_true(w->num_stores > 400);
    assert_in_range(num_looked_up, w->num_stores, num_taken + num_taken / 4 + TWO_STEPS);
    world_close(w);
}

/* Blocks at the head of the engine's queue that have a key, and no copy. */
static uint32_t count_missing(const world *w, uint32_t n)
{
    quire_block blocks[WORLD_MAX_BLOCKS];
    quire_block found[WORLD_MAX_BLOCKS];
    const quire_pool *gpu = quire_cache_get_pool(quire_sched_get_cache(w->sched));
    const quire_pool *cpu = quire_cache_get_pool(quire_offload_cache(w->offload));
    uint32_t num_missing = 0;
    quire_pool_get_all_free_blocks(gpu, blocks, WORLD_MAX_BLOCKS);
    assert_int_equal(quire_pool_find_same(cpu, gpu, blocks, n, found), QUIRE_OK);
    for (uint32_t i = 0; i < n; i++)
        num_missing += found[i] == QUIRE_NULL_BLOCK;
    return num_missing;
}

static void run_in_time(world *w, uint32_t a_step)
{
    while (quire_sched_get_num_unfinished(w->sched) > 0 || w->num_flight > 0) {
        world_turn(w);
        if (world_stats(w).stores_in_flight == 0) /* those come back to the head */
            assert_int_equal(count_missing(w, a_step), 0);
    }
}

/* But of all that one step can take: no block is evicted without a copy. A window of ten tokens is
 * in four blocks. */
static void lazy_stores_come_in_time(void **state)
{
    (void)state;
    for (uint32_t is_hybrid = 0; is_hybrid < 2; is_hybrid++) {
        const uint32_t a_step = 48 / BLOCK + 4 * is_hybrid;
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_LAZY, false);
        setup.num_gpu = 128;
        setup.num_cpu = 250;
        setup.is_hybrid = is_hybrid != 0;
        world_open(w, &setup);
        for (uint32_t i = 0; i < 24; i++) {
            world_ask(w, 100 * i, 30 + 5 * (i % 7), 3);
            run_in_time(w, a_step);
        }
        for (uint32_t i = 0; i < 3; i++) /* these take a few blocks at a time */
            world_ask(w, 10000 + 100 * i, 2, 90);
        run_in_time(w, a_step);
        assert_true(w->num_stores > 100);
        world_drain(w);
        world_close(w);
    }
}

static size_t bytes_with(const quire_offload_config *config, quire_sched_config *sched,
                         uint32_t max_requests)
{
    sched->max_requests = max_requests;
    size_t bytes = quire_offload_bytes(config);
    assert_true(bytes > 0);
    return bytes;
}

/* Where requests keep their blocks until they end, an offload keeps no list of them: a request
 * takes the same memory however long it may become. */
static void requests_take_little_memory(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    world_open(w, &setup);
    quire_sched_config sched = world_sched_config(w);
    sched.cache->max_model_len = 100000;
    quire_offload_config config = QUIRE_OFFLOAD_CONFIG_INIT;
    config.num_cpu_blocks = 20;
    config.sched = &sched;
    for (uint32_t is_lazy = 0; is_lazy < 2; is_lazy++) {
        config.mode = is_lazy != 0 ? QUIRE_OFFLOAD_LAZY : QUIRE_OFFLOAD_EAGER;
        size_t few = bytes_with(&config, &sched, 100);
        assert_true(bytes_with(&config, &sched, 200) - few < (size_t)100 * 4096);
    }
    world_close(w);
}

/* Events of the engine's cache are no business of the CPU pool: it has no log of its own. */
static void the_event_log_is_the_engines(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    world_open(w, &setup);
    quire_sched_config sched = world_sched_config(w);
    quire_offload_config config = QUIRE_OFFLOAD_CONFIG_INIT;
    config.num_cpu_blocks = 20;
    config.sched = &sched;
    size_t without = bytes_with(&config, &sched, 100);
    sched.cache->event_log_bytes = 1 << 20;
    assert_int_equal(bytes_with(&config, &sched, 100), without);
    world_close(w);
}

/* A pin of the scheduler keeps blocks that no request has: the walker takes it for no fault. */
static void a_pin_is_no_fault(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
    setup.max_pins = 1;
    world_open(w, &setup);
    const world_request *r = world_ask(w, 10, 42, 2);
    assert_int_equal(quire_sched_pin(w->sched, r->req, UINT64_C(3600000000000)), QUIRE_OK);
    run_all(w);
    for (uint32_t i = 0; i < 8; i++)
        world_turn(w); /* looks at every block */
    assert_int_equal(quire_sched_get_usage(w->sched).active, 10);
    forget_engine(w); /* which ends it */
    world_drain(w);
    world_close(w);
}

/* ---- what does not count ------------------------------------------------------ */

/* A device hangs, works again, and hangs again: while it hangs nothing is loaded by it. */
static void a_device_may_hang_again(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
    world_open(w, &setup);
    world_ask(w, 10, 42, 1);
    world_drain(w);
    for (uint32_t round = 0; round < 2; round++) {
        forget_engine(w);
        w->setup.stores_hang = true;
        world_ask(w, 1000 + 1000 * round, 24, 1);
        run_all(w);
        for (uint32_t i = 0; i < 200; i++) /* longer than a copy may take */
            world_turn(w);
        world_ask(w, 10, 42, 2);
        run_all(w);
        assert_int_equal(world_stats(w).hit_tokens, 40 * round);
        w->setup.stores_hang = false;
        world_drain(w);
        forget_engine(w);
        world_ask(w, 10, 42, 2);
        world_drain(w);
        assert_int_equal(world_stats(w).hit_tokens, 40 * (round + 1));
    }
    world_close(w);
}

/* A load takes longer than a request waits: the request computes, and the blocks of both sides are
 * the copy's until it ends. */
static void a_late_load_is_left_behind(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
    world_open(w, &setup);
    world_ask(w, 10, 42, 1);
    world_drain(w);
    forget_engine(w);
    w->setup.stick_percent = 100;
    world_ask(w, 10, 42, 2);
    run_all(w);
    assert_int_equal(world_stats(w).failed_loads, 1);
    assert_int_equal(world_stats(w).loads_in_flight, 0);
    assert_true(world_stats(w).cpu.active >= 10);
    assert_true(quire_sched_get_usage(w->sched).active >= 10);
    w->setup.stick_percent = 0;
    world_drain(w); /* then nothing is in use */
    assert_int_equal(world_stats(w).loaded_blocks, 0);
    world_close(w);
}

/* What is being loaded when all is reset is of before: the request computes it. */
static void loads_of_a_reset_do_not_count(void **state)
{
    (void)state;
    for (uint32_t has_device = 0; has_device < 2; has_device++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, has_device != 0);
        world_open(w, &setup);
        world_ask(w, 10, 42, 1);
        world_drain(w);
        forget_engine(w);
        w->setup.pace_percent = 0;
        world_ask(w, 10, 42, 2);
        while (w->num_jobs == 0)
            world_turn(w);
        assert_int_equal(world_stats(w).loads_in_flight, 10);
        world_reset(w, false);
        w->setup.pace_percent = 100;
        world_drain(w);
        assert_int_equal(world_stats(w).failed_loads, 1);
        assert_int_equal(world_stats(w).loaded_blocks, 0);
        assert_int_equal(w->num_finished, 2);
        world_close(w);
    }
}

/* The device cannot tell where its compute is in the very step in which a load is decided: the load
 * is lost, no later step begins it, and the request computes. */
static void a_load_without_a_mark_is_lost(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
    world_open(w, &setup);
    world_ask(w, 10, 42, 1);
    world_drain(w);
    forget_engine(w);
    w->setup.has_no_mark = true;
    world_ask(w, 10, 42, 2);
    while (world_stats(w).hit_tokens == 0)
        world_turn(w);
    w->setup.has_no_mark = false;
    world_drain(w);
    assert_int_equal(world_stats(w).failed_loads, 1);
    assert_int_equal(w->num_loads, 0);
    assert_int_equal(w->num_finished, 2);
    world_close(w);
}

/* The scheduler waits for tokens that the offload has not promised: all of them are lost, and the
 * request computes. */
static void what_nobody_promised_is_computed(void **state)
{
    (void)state;
    for (uint32_t has_device = 0; has_device < 2; has_device++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, has_device != 0);
        setup.promises_more = true;
        world_open(w, &setup);
        world_ask(w, 10, 42, 2);
        world_drain(w); /* looks at the content of every block that is needed */
        assert_int_equal(world_stats(w).failed_loads, 1);
        assert_int_equal(world_stats(w).hit_tokens, 0);
        assert_int_equal(world_stats(w).loads_in_flight, 0);
        assert_int_equal(w->num_finished, 1);
        world_close(w);
    }
}

/* A request that is aborted while its load is on the way keeps its blocks until the load ends. The
 * walker knows them, so that it finds a block that is nobody's. */
static void an_aborted_load_keeps_its_blocks(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
    world_open(w, &setup);
    world_ask(w, 10, 42, 1);
    world_drain(w);
    forget_engine(w);
    for (uint32_t i = 1; i <= 3; i++)
        world_ask(w, 1000 * i, 1, 40);
    for (uint32_t i = 0; i < 4; i++)
        world_turn(w);
    w->setup.pace_percent = 0;
    world_request *r = world_ask(w, 10, 42, 2);
    while (world_stats(w).loads_in_flight == 0)
        world_turn(w);
    uint64_t num_used = quire_sched_get_usage(w->sched).active;
    assert_int_equal(quire_sched_finish(w->sched, &r->req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    r->has_ended = true;
    assert_int_equal(quire_sched_get_usage(w->sched).active, num_used);
    assert_int_equal(quire_offload_check(w->offload), QUIRE_OK);
    quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(w->sched));
    quire_block block;
    assert_int_equal(quire_pool_get_new_blocks(pool, 1, &block), QUIRE_OK);
    assert_int_equal(quire_offload_check(w->offload), QUIRE_E_CORRUPT);
    assert_int_equal(quire_pool_free_blocks(pool, &block, 1), QUIRE_OK);
    w->setup.pace_percent = 100;
    world_drain(w);
    world_close(w);
}

/* A chunk of attention begins at a multiple of its length, wherever the engine's own hit ends: what
 * comes from the CPU pool has all blocks of the chunk in which it ends. */
static void chunks_are_whole(void **state)
{
    (void)state;
    uint64_t num_loads = 0;
    for (uint32_t seed = 1; seed <= 12; seed++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, seed % 2 == 0);
        setup.seed = seed;
        setup.is_hybrid = setup.is_chunked = true;
        setup.num_cpu = 200;
        world_open(w, &setup);
        for (uint32_t turn = 0; turn < 600; turn++) {
            if (world_chance(w, 25))
                world_add(w);
            world_turn(w); /* looks at the content of every block that is needed */
        }
        world_drain(w);
        num_loads += w->num_loads;
        world_close(w);
    }
    assert_true(num_loads > 100);
}

/* A connector answers both questions, also where it has nothing. */
static void nothing_is_told_of_strangers(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    world_open(w, &setup);
    const quire_connector *c = quire_offload_connector(w->offload);
    uint32_t num_external = 7;
    uint32_t is_async = 7;
    assert_int_equal(c->get_num_new_matched_tokens(c->user, 12345, 0, &num_external, &is_async),
                     QUIRE_OK);
    assert_int_equal(num_external, 0);
    assert_int_equal(is_async, 0);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_hold_a_part_of_the_engine),
        cmocka_unit_test(lazy_stores_look_no_further),
        cmocka_unit_test(lazy_stores_look_once),
        cmocka_unit_test(lazy_stores_come_in_time),
        cmocka_unit_test(requests_take_little_memory),
        cmocka_unit_test(the_event_log_is_the_engines),
        cmocka_unit_test(a_pin_is_no_fault),
        cmocka_unit_test(a_device_may_hang_again),
        cmocka_unit_test(a_late_load_is_left_behind),
        cmocka_unit_test(loads_of_a_reset_do_not_count),
        cmocka_unit_test(a_load_without_a_mark_is_lost),
        cmocka_unit_test(what_nobody_promised_is_computed),
        cmocka_unit_test(an_aborted_load_keeps_its_blocks),
        cmocka_unit_test(chunks_are_whole),
        cmocka_unit_test(nothing_is_told_of_strangers),
    };
    return cmocka_run_group_tests_name("limits of an offload", tests, NULL, NULL);
}
