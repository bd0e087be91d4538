/* tier/promote/test_promote_costs.c - what a tier takes is learned from what requests wait for,
 * and what is
 * slower than computing is not loaded. */
#include "promote_world.h"

static void test_slower_than_computing(void **state)
{
    (void)state;
    /* 4 us a token */
    world *w = world_make(
        (world_config){.recompute_token_ns = 1000, .bytes_per_s = 1e6, .latency_ns = 700});
    assert_true(world_stats(w).tiers[0].bytes_per_s == 1e6); /* what was given */
    assert_true(world_stats(w).tiers[0].latency_ns == 700);
    world_request prompt = world_draw(w, 40);
    world_put_below(w, &prompt);
    world_request *r = world_add(w, &prompt);
    assert_false(world_ask(w, r));
    assert_int_equal(world_match(w, r), 0);
    assert_int_equal(world_stats(w).tiers[0].skipped_tokens, 40 * WORLD_TOKENS);
    assert_false(world_ask(w, r));
    assert_int_equal(world_stats(w).tiers[0].skipped_tokens, 40 * WORLD_TOKENS);
    world_abort(w, r);
    r = world_add(w, &prompt); /* while it waits for the engine, loading costs nothing */
    world_prefetch(w, r);
    world_drain(w);
    assert_false(world_ask(w, r));
    assert_int_equal(world_match(w, r), 40 * WORLD_TOKENS);
    world_close(w);
}

/* Several groups are loaded all or not at all; what is not loaded is counted, too. */
static void test_all_groups_slower_than_computing(void **state)
{
    (void)state;
    world *w = world_make(
        (world_config){.groups = WORLD_MAMBA, .recompute_token_ns = 1000, .bytes_per_s = 1e6});
    world_request prompt = world_draw(w, 40);
    world_put_below(w, &prompt);
    world_request *r = world_add(w, &prompt);
    assert_false(world_ask(w, r));
    assert_int_equal(world_match(w, r), 0);
    assert_in_range(world_stats(w).tiers[0].skipped_tokens, 39 * WORLD_TOKENS - 40,
                    40 * WORLD_TOKENS);
    world_close(w);
}

/* What the tier is thought to take for so many blocks. */
static double learned_ns(const world *w, uint32_t num_blocks)
{
    quire_offload_stats stats = world_stats(w);
    double byte_ns = stats.tiers[0].bytes_per_s > 0 ? 1e9 / stats.tiers[0].bytes_per_s : 0;
    return stats.tiers[0].latency_ns + num_blocks * WORLD_BYTES * byte_ns;
}

/* Two prompts, of 50 and of 20 blocks, that have nothing in common, and are below. */
static void put_two_below(world *w, world_request *prompts)
{
    prompts[0] = world_draw(w, 50);
    prompts[1] = world_draw(w, 20);
    for (uint32_t i = 0; i < 20; i++)
        prompts[1].hashes[i][0] = prompts[0].hashes[i][0] ^ 1;
    world_put_below(w, &prompts[0]);
    world_put_below(w, &prompts[1]);
}

/* A request waits for its own blocks, and for those of others that the tier has before them. */
static void test_costs_of_all_that_is_waited_for(void **state)
{
    (void)state;
    world *w = world_make((world_config){0});
    world_request prompts[2];
    put_two_below(w, prompts);
    faulty_set_delay(w->parts[0], 5);
    world_request *first = world_add(w, &prompts[0]);
    assert_true(world_ask(w, first));
    world_abort(w, first); /* so that nothing is learned of it */
    uint64_t start_ns = w->now_ns;
    world_request *second = world_add(w, &prompts[1]);
    assert_true(world_wait(w, second) > 0);
    double seconds = (double)(w->now_ns - start_ns) / 1e9;
    double bytes = world_stats(w).tiers[0].bytes_per_s * seconds;
    assert_true(bytes > 69.9 * WORLD_BYTES && bytes < 70.1 * WORLD_BYTES);
    world_close(w);
}

/* Also where the tier must look for them first. */
static void test_costs_of_shared_tiers(void **state)
{
    (void)state;
    world *w = world_make((world_config){.shared_tiers = 1});
    world_request prompts[2];
    put_two_below(w, prompts);
    for (uint32_t i = 0; i < 20; i++) {
        world_request *first = world_add(w, &prompts[0]);
        world_request *second = world_add(w, &prompts[1]);
        assert_true(world_ask(w, first));
        assert_true(world_ask(w, second));
        assert_true(world_wait(w, first) + world_wait(w, second) > 0);
        world_abort(w, first);
        world_abort(w, second);
        world_drain(w);
        assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    }
    assert_true(learned_ns(w, 70) > 1e5 && learned_ns(w, 70) < 1e7); /* as below */
    world_close(w);
}

/* The time from the prefetch to the request's turn is not a time that it waited. */
static void test_costs_begin_when_it_waits(void **state)
{
    (void)state;
    world *w = world_make((world_config){.deadline_ns = UINT64_C(10000000000)});
    world_request prompt = world_draw(w, 50);
    world_put_below(w, &prompt);
    faulty_hold(w->parts[0], true);
    world_request *r = world_add(w, &prompt);
    world_prefetch(w, r);
    w->now_ns += 1000000000;
    assert_true(world_ask(w, r));
    faulty_hold(w->parts[0], false);
    assert_true(world_wait(w, r) > 0);
    assert_true(learned_ns(w, 50) > 0 && learned_ns(w, 50) < 1e8);
    world_close(w);
}

static void test_costs_are_learned(void **state)
{
    (void)state;
    world *w = world_make((world_config){.recompute_token_ns = 100000});
    faulty_set_delay(w->parts[0], 3);
    world_request prompt = world_draw(w, 50);
    world_put_below(w, &prompt);
    for (uint32_t i = 0; i < 20; i++) {
        world_request *r = world_add(w, &prompt);
        (void)world_wait(w, r);
        world_admit(w, r, 0);
        world_drain(w);
        assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    }
    /* one to four steps of 0.1 to 1 ms */
    assert_true(learned_ns(w, 50) > 1e5 && learned_ns(w, 50) < 1e7);
    qr_promote_learn(w->promote, 1000, 500000);
    assert_true(world_stats(w).recompute_token_ns < 100000);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slower_than_computing),
        cmocka_unit_test(test_all_groups_slower_than_computing),
        cmocka_unit_test(test_costs_of_all_that_is_waited_for),
        cmocka_unit_test(test_costs_of_shared_tiers),
        cmocka_unit_test(test_costs_begin_when_it_waits),
        cmocka_unit_test(test_costs_are_learned),
    };
    return cmocka_run_group_tests_name("worth loading", tests, NULL, NULL);
}
