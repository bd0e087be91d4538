/* tier/offload/test_eager.c - eager stores: which blocks, and when. */
#include "base/bits.h"
#include "tier/offload/offload_world.h"

static world the_world;

static void last_blocks_are_stored(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 13; n++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
        world_open(w, &setup);
        world_ask(w, 10, n, 1); /* it ends with its first step */
        world_drain(w);
        assert_int_equal(world_num_cpu_keys(w), n / 4);
        world_close(w);
    }
}

/* A request that goes on by a token in each step fills a block in four of them. Steps may be of 48
 * tokens, so six are worth a look: two blocks at a time, or one. The hostile build looks after each
 * step. */
static void blocks_of_small_steps_are_stored_together(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    world_open(w, &setup);
    const world_request *r = world_ask(w, 10, 2, 50);
    uint32_t num_events = 0;
    while (quire_sched_get_num_unfinished(w->sched) > 0) {
        uint64_t before = w->num_stores;
        world_turn(w);
        num_events += w->num_stores > before;
        assert_true(r->num_tokens / 4 <= w->num_stores + 2);
    }
    /* 12 blocks; the last waits for the step behind */
    assert_int_equal(num_events, QR_AT_A_TIME(8, 12));
    world_drain(w);
    assert_int_equal(world_num_cpu_keys(w), 51 / 4);
    world_close(w);
}

/* Two steps on their way, with a request each: both are looked at. */
static void blocks_of_every_batch_are_stored(void **state)
{
    (void)state;
    for (uint32_t num_requests = 1; num_requests <= 2; num_requests++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
        setup.is_piped = true;
        world_open(w, &setup);
        const world_request *requests[2];
        for (uint32_t i = 0; i < num_requests; i++) {
            requests[i] = world_ask(w, 10 + 200 * i, 2, 80);
            world_turn(w);
        }
        while (quire_sched_get_num_unfinished(w->sched) > 0) {
            uint32_t num_full = requests[0]->num_tokens / 4;
            num_full += num_requests > 1 ? requests[1]->num_tokens / 4 : 0;
            assert_true(num_full <= w->num_stores + (uint64_t)3 * num_requests);
            world_turn(w);
        }
        world_drain(w);
        world_close(w);
    }
}

static void same_prompts_are_stored_once(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    setup.pace_percent = 20;
    world_open(w, &setup);
    for (uint32_t i = 0; i < 5; i++)
        world_ask(w, 10, 24, 3);
    world_drain(w);
    assert_int_equal(world_stats(w).stored_blocks, world_num_cpu_keys(w));
    assert_true(world_num_cpu_keys(w) >= 6);
    world_close(w);
}

/* max_model_len is near the pool, so stores may hold four blocks of the engine, or five; or the CPU
 * pool is small. What is not stored is counted, block by block. */
static void what_is_not_stored_is_counted(void **state)
{
    (void)state;
    uint64_t num_left_out = 0;
    for (uint32_t n = 1; n <= 90; n++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, n % 2 == 0);
        setup.is_hybrid = n % 7 == 0;
        setup.num_gpu = setup.is_hybrid ? 60 : 26;
        setup.num_cpu = n % 3 == 0 ? 8 : 200;
        world_open(w, &setup);
        world_ask(w, 10, n, 1);
        while (quire_sched_get_num_unfinished(w->sched) > 0)
            world_turn(w);
        quire_offload_stats stats = world_stats(w);
        uint32_t num_blocks = n / 4 * (1 + setup.is_hybrid);
        if (setup.is_hybrid) /* blocks that left the window may be gone */
            assert_true(world_num_cpu_keys(w) + stats.no_room <= num_blocks);
        else
            assert_int_equal(world_num_cpu_keys(w) + stats.no_room, num_blocks);
        num_left_out += stats.no_room;
        world_drain(w);
        assert_true(world_stats(w).no_room == stats.no_room);
        world_close(w);
    }
    assert_true(num_left_out > 100);
}

/* A block of one request has lost its key: its copy would be of no use. Of the others, whose blocks
 * are looked at together with it, all are stored. */
static void a_block_without_a_key_stops_no_other(void **state)
{
    (void)state;
    enum { FULL = 5 };
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    setup.num_gpu = 128;
    world_open(w, &setup);
    const world_request *requests[3];
    for (uint32_t i = 0; i < 3; i++)
        requests[i] = world_ask(w, 10 + 200 * i, 12, 10);
    world_turn(w);
    while (w->num_flight > 0)
        world_turn(w);
    quire_pool *gpu = quire_cache_get_pool(quire_sched_get_cache(w->sched));
    quire_block_span blocks = {0};
    assert_int_equal(quire_sched_get_blocks(w->sched, requests[0]->req, &blocks), QUIRE_OK);
    assert_int_equal(quire_pool_evict_blocks(gpu, &blocks.ids[1], 1), QUIRE_OK);
    quire_block rows[3][FULL] = {0};
    while (quire_sched_get_num_unfinished(w->sched) > 0) {
        for (uint32_t i = 0; i < 3; i++)
            if (quire_sched_get_blocks(w->sched, requests[i]->req, &blocks) == QUIRE_OK &&
                blocks.count >= FULL)
                memcpy(rows[i], blocks.ids, sizeof rows[i]);
        world_turn(w);
    }
    world_drain(w);
    const quire_pool *cpu = quire_cache_get_pool(quire_offload_cache(w->offload));
    for (uint32_t i = 1; i < 3; i++) {
        quire_block found[FULL];
        assert_int_equal(quire_pool_find_same(cpu, gpu, rows[i], FULL, found), QUIRE_OK);
        for (uint32_t k = 0; k < FULL; k++)
            assert_true(rows[i][k] != QUIRE_NULL_BLOCK && found[k] != QUIRE_NULL_BLOCK &&
                        found[k] != UINT32_MAX);
    }
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_blocks_are_stored),
        cmocka_unit_test(blocks_of_small_steps_are_stored_together),
        cmocka_unit_test(blocks_of_every_batch_are_stored),
        cmocka_unit_test(same_prompts_are_stored_once),
        cmocka_unit_test(what_is_not_stored_is_counted),
        cmocka_unit_test(a_block_without_a_key_stops_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
