/* tier/offload/test_preempt.c - requests that lose their blocks: the offload saves what they have
 * computed. */
#include "tier/offload/offload_world.h"

static world the_world;

enum { BLOCK = 4, PROMPT = 42 };

static quire_req_info info_of(const world *w, const world_request *r)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    assert_int_equal(quire_sched_get_req_info(w->sched, r->req, &info), QUIRE_OK);
    return info;
}

/* Until the request has so many tokens. */
static void run_until(world *w, const world_request *r, uint32_t num_tokens)
{
    while (info_of(w, r).num_tokens < num_tokens)
        world_turn(w);
}

static world_setup setup_of(uint32_t kind)
{
    bool is_lazy = (kind & 1) != 0;
    world_setup setup = world_quiet(is_lazy ? QUIRE_OFFLOAD_LAZY : QUIRE_OFFLOAD_EAGER, kind & 2);
    setup.is_hybrid = (kind & 4) != 0;
    setup.is_async = (kind & 8) != 0;
    setup.num_gpu = 128;
    setup.num_cpu = 128;
    return setup;
}

/* Every full block that it has computed for good is in the CPU pool, and comes back from there: the
 * engine's own cache is emptied. Where the window has left a block before another was full, what
 * comes back ends with the prompt. */
static void a_request_that_is_moved_comes_back(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 16; kind++) {
        for (uint32_t how = 0; how < 2 && (kind & 5) != 5; how++) {
            world *w = &the_world;
            world_setup setup = setup_of(kind);
            world_open(w, &setup);
            const world_request *r = world_ask(w, 10, PROMPT, 20);
            run_until(w, r, PROMPT + 6);
            quire_req_info info = info_of(w, r);
            uint32_t sure = info.num_computed_tokens - info.num_output_placeholders;
            assert_true(sure >= PROMPT + 3);
            assert_int_equal(info_of(w, r).location, QUIRE_LOCATION_DEVICE);
            if (how == 0)
                assert_int_equal(quire_sched_preempt(w->sched, r->req, QUIRE_PREEMPT_SWAP),
                                 QUIRE_OK);
            else
                assert_int_equal(quire_sched_offload(w->sched, r->req), QUIRE_OK);
            info = info_of(w, r);
            assert_int_equal(info.location, QUIRE_LOCATION_HOST);
            uint32_t num_saved = info.num_swapped_tokens;
            assert_true(num_saved == sure / BLOCK * BLOCK ||
                        (setup.is_hybrid && num_saved == PROMPT / BLOCK * BLOCK));
            assert_int_equal(quire_offload_check(w->offload), QUIRE_OK);
            (void)quire_sched_set_pause(w->sched, QUIRE_PAUSED_ALL);
            while (quire_offload_has_pending(w->offload) || w->num_flight > 0)
                world_turn(w);
            assert_int_equal(quire_sched_get_usage(w->sched).active, 0);
            assert_true(world_num_cpu_keys(w) >= sure / BLOCK);
            assert_int_equal(quire_sched_reset_prefix_cache(w->sched, 0, 0), QUIRE_OK);
            (void)quire_sched_set_pause(w->sched, QUIRE_UNPAUSED);
            uint64_t tokens = w->num_tokens;
            for (uint32_t i = 0; i < 10 && how == 1; i++)
                world_turn(w); /* it is not admitted before it may */
            assert_true(how == 0 || w->num_tokens == tokens);
            assert_int_equal(quire_sched_resume(w->sched, r->req),
                             how == 1 ? QUIRE_OK : QUIRE_MISS);
            while (info_of(w, r).location != QUIRE_LOCATION_DEVICE)
                world_turn(w);
            assert_int_equal(info_of(w, r).num_swapped_tokens, 0);
            assert_int_equal(world_stats(w).hit_tokens, num_saved);
            world_drain(w);
            assert_int_equal(w->num_finished, 1);
            world_close(w);
        }
    }
}

/* Others go through the CPU pool meanwhile, several times over: what a request that will come back
 * needs is evicted last. */
static void what_was_saved_outlives_others(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 16; kind++) {
        world *w = &the_world;
        world_setup setup = setup_of(kind);
        setup.num_cpu = setup.is_hybrid ? 60 : 40;
        setup.num_gpu = 64;
        if ((kind & 5) == 5)
            continue;
        world_open(w, &setup);
        const world_request *r = world_ask(w, 10, PROMPT, 20);
        run_until(w, r, PROMPT + 6);
        assert_int_equal(quire_sched_offload(w->sched, r->req), QUIRE_OK);
        uint32_t num_saved = info_of(w, r).num_swapped_tokens;
        for (uint32_t i = 0; i < 30; i++) {
            const world_request *other = world_ask(w, 200 * (i + 1), PROMPT, 6);
            while (!other->has_ended)
                world_turn(w);
        }
        uint64_t before = world_stats(w).hit_tokens;
        assert_int_equal(quire_sched_resume(w->sched, r->req), QUIRE_OK);
        while (info_of(w, r).location != QUIRE_LOCATION_DEVICE)
            world_turn(w);
        assert_int_equal(world_stats(w).hit_tokens - before, num_saved);
        world_drain(w);
        world_close(w);
    }
}

/* Mode RECOMPUTE saves nothing; nor does a connector that is not told. */
static void what_is_not_to_be_saved_is_not(void **state)
{
    (void)state;
    for (uint32_t how = 0; how < 2; how++) {
        world *w = &the_world;
        world_setup setup = setup_of(1 + 2); /* lazy: nothing is stored before */
        setup.saves_nothing = how == 1;
        world_open(w, &setup);
        const world_request *r = world_ask(w, 10, PROMPT, 20);
        run_until(w, r, PROMPT + 6);
        if (how == 1) {
            assert_int_equal(quire_sched_preempt(w->sched, r->req, QUIRE_PREEMPT_SWAP),
                             QUIRE_E_DISABLED);
            assert_int_equal(quire_sched_offload(w->sched, r->req), QUIRE_E_DISABLED);
            assert_int_equal(info_of(w, r).location, QUIRE_LOCATION_DEVICE);
        }
        assert_int_equal(quire_sched_preempt(w->sched, r->req, QUIRE_PREEMPT_RECOMPUTE), QUIRE_OK);
        assert_int_equal(info_of(w, r).location, QUIRE_LOCATION_NONE);
        assert_int_equal(info_of(w, r).num_swapped_tokens, 0);
        assert_false(quire_offload_has_pending(w->offload));
        world_drain(w);
        world_close(w);
    }
}

/* A CPU pool without room for the request, or a device that is gone: refused, and it goes on. */
static void without_room_it_is_refused(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = setup_of(2);
    setup.num_cpu = 2;
    setup.stores_hang = true;
    world_open(w, &setup);
    const world_request *other = world_ask(w, 200, 6, 2); /* its store takes the only block */
    run_until(w, other, 7);
    const world_request *r = world_ask(w, 10, PROMPT, 20);
    run_until(w, r, PROMPT + 2);
    assert_int_equal(quire_sched_preempt(w->sched, r->req, QUIRE_PREEMPT_SWAP), QUIRE_FULL);
    assert_int_equal(quire_sched_offload(w->sched, r->req), QUIRE_FULL);
    assert_int_equal(info_of(w, r).location, QUIRE_LOCATION_DEVICE);
    assert_int_equal(info_of(w, r).num_preemptions, 0);
    assert_int_equal(quire_sched_check(w->sched), QUIRE_OK);
    assert_int_equal(quire_sched_preempt(w->sched, r->req, QUIRE_PREEMPT_CHEAPER), QUIRE_OK);
    w->setup.stores_hang = false;
    world_drain(w);
    assert_int_equal(w->num_finished, 2);
    world_close(w);
}

/* A request with more blocks than half of the CPU pool would evict itself there: nothing is saved,
 * and what the pool has stays. */
static void what_is_too_large_is_not_saved(void **state)
{
    (void)state;
    for (uint32_t num_cpu = 20; num_cpu <= 28; num_cpu += 2) {
        world *w = &the_world;
        world_setup setup = setup_of(1 + 2);
        setup.num_cpu = num_cpu;
        world_open(w, &setup);
        const world_request *r = world_ask(w, 10, PROMPT, 20);
        run_until(w, r, PROMPT + 4);
        quire_block_span blocks;
        assert_int_equal(quire_sched_get_blocks(w->sched, r->req, &blocks), QUIRE_OK);
        bool is_saved = blocks.count <= num_cpu / 2;
        assert_int_equal(quire_sched_preempt(w->sched, r->req, QUIRE_PREEMPT_SWAP),
                         is_saved ? QUIRE_OK : QUIRE_FULL);
        assert_int_equal(info_of(w, r).num_swapped_tokens > 0, is_saved);
        assert_int_equal(quire_offload_has_pending(w->offload) != 0, is_saved);
        world_drain(w);
        world_close(w);
    }
}

/* The blocks of all groups count. Those that left a window are not there any more. */
static void groups_are_too_large_together(void **state)
{
    (void)state;
    uint32_t num_close = 0;
    for (uint32_t num_cpu = 20; num_cpu <= 44; num_cpu += 2) {
        world *w = &the_world;
        world_setup setup = setup_of(4);
        setup.num_cpu = num_cpu;
        world_open(w, &setup);
        const world_request *r = world_ask(w, 10, PROMPT, 20);
        run_until(w, r, PROMPT + 4);
        quire_block_span blocks[WORLD_MAX_GROUPS];
        assert_int_equal(quire_sched_get_blocks(w->sched, r->req, blocks), QUIRE_OK);
        uint32_t num_blocks = blocks[0].count;
        for (uint32_t i = 0; i < blocks[1].count; i++)
            num_blocks += blocks[1].ids[i] != QUIRE_NULL_BLOCK;
        bool is_saved = num_blocks <= num_cpu / 2;
        num_close += !is_saved && blocks[0].count <= num_cpu / 2;
        assert_int_equal(quire_sched_preempt(w->sched, r->req, QUIRE_PREEMPT_SWAP),
                         is_saved ? QUIRE_OK : QUIRE_FULL);
        assert_int_equal(info_of(w, r).num_swapped_tokens > 0, is_saved);
        world_drain(w);
        world_close(w);
    }
    assert_true(num_close > 0);
}

/* A device that cannot tell where its compute is copies nothing: the request keeps its blocks until
 * the device can. Of requests that the offload never saw it has nothing either. */
static void without_a_mark_it_is_refused(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = setup_of(1 + 2);
    world_open(w, &setup);
    const world_request *r = world_ask(w, 10, PROMPT, 20);
    run_until(w, r, PROMPT + 2);
    for (uint32_t has_mark = 0; has_mark < 2; has_mark++) {
        w->setup.has_no_mark = has_mark == 0;
        for (uint64_t before = w->num_scheduled; w->num_scheduled == before;)
            world_turn(w);
        assert_int_equal(quire_sched_preempt(w->sched, r->req, QUIRE_PREEMPT_SWAP),
                         has_mark != 0 ? QUIRE_OK : QUIRE_FULL);
        assert_int_equal(info_of(w, r).num_swapped_tokens > 0, has_mark);
        assert_int_equal(quire_offload_has_pending(w->offload), has_mark);
    }
    const quire_connector *c = quire_offload_connector(w->offload);
    quire_block_span none = {0};
    assert_int_equal(c->request_preempted(c->user, 12345, &none, BLOCK, 0), 0);
    world_drain(w);
    assert_int_equal(w->num_finished, 1);
    world_close(w);
}

/* Requests that do not fit together preempt one another. Returns how many tokens were computed
 * beyond those that the requests have. */
static uint64_t recomputed(uint32_t kind, bool saves_nothing, uint64_t *num_preempted)
{
    world *w = &the_world;
    world_setup setup = setup_of(kind);
    setup.num_gpu = setup.is_hybrid ? 90 : 60;
    setup.saves_nothing = saves_nothing;
    setup.pace_percent = 60;
    world_open(w, &setup);
    uint64_t num_known = 0;
    for (uint32_t i = 0; i < 24; i++)
        world_ask(w, 10 + 100 * i, 24, 50);
    world_drain(w);
    for (uint32_t i = 0; i < w->num_people; i++)
        num_known += 24 + 50 - 1;
    *num_preempted = w->num_preempted;
    uint64_t more = w->num_tokens - num_known;
    assert_int_equal(w->num_finished, 24);
    world_close(w);
    return more;
}

static void preempted_requests_compute_less_again(void **state)
{
    (void)state;
    uint64_t sum_with = 0;
    uint64_t sum_without = 0;
    for (uint32_t kind = 0; kind < 8; kind++) {
        uint64_t num_preempted;
        uint64_t num_before;
        uint64_t with = recomputed(kind, false, &num_preempted);
        uint64_t without = recomputed(kind, true, &num_before);
        print_message("%s%s%s: %llu tokens again in %llu preemptions, without %llu in %llu\n",
                      (kind & 1) != 0 ? "lazy" : "eager", (kind & 2) != 0 ? ", device" : "",
                      (kind & 4) != 0 ? ", window" : "", (unsigned long long)with,
                      (unsigned long long)num_preempted, (unsigned long long)without,
                      (unsigned long long)num_before);
        assert_true(num_preempted > 10 && num_before > 10);
        sum_with += with;
        sum_without += without;
    }
    assert_true(5 * sum_with < 4 * sum_without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_is_moved_comes_back),
        cmocka_unit_test(what_was_saved_outlives_others),
        cmocka_unit_test(what_is_not_to_be_saved_is_not),
        cmocka_unit_test(without_room_it_is_refused),
        cmocka_unit_test(what_is_too_large_is_not_saved),
        cmocka_unit_test(groups_are_too_large_together),
        cmocka_unit_test(without_a_mark_it_is_refused),
        cmocka_unit_test(preempted_requests_compute_less_again),
    };
    return cmocka_run_group_tests_name("offload_preempt", tests, NULL, NULL);
}
