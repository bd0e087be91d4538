/* How much is fetched for a request: what a hit needs and no more, at most half of the CPU pool,
 * and the same once more after a preemption.
 */
#include "promote_world.h"

static uint64_t num_loaded(world *w)
{
    return world_tier_keys(w, 0, QUIRE_TIER_LOAD, QUIRE_TIER_DONE);
}

/* One block for the null block, one for content. */
static void test_the_smallest_cpu_pool(void **state)
{
    (void)state;
    world *w = world_make((world_config){.num_cpu_blocks = 2});
    world_request prompt = world_draw(w, 1);
    world_put_below(w, &prompt);
    world_request *r = world_add(w, &prompt);
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), WORLD_TOKENS);
    world_close(w);
}

static void test_a_request_gets_half_of_the_pool(void **state)
{
    (void)state;
    static const uint32_t POOLS[][2] = {{101, 50}, {100, 50}, {99, 49}};
    for (size_t i = 0; i < COUNT(POOLS); i++) {
        world *w = world_make((world_config){.num_cpu_blocks = POOLS[i][0]});
        world_request prompt = world_draw(w, 60);
        world_put_below(w, &prompt);
        world_request *r = world_add(w, &prompt);
        (void)world_wait(w, r);
        assert_int_equal(world_match(w, r), POOLS[i][1] * WORLD_TOKENS);
        assert_int_equal(num_loaded(w), POOLS[i][1]);
        world_close(w);
    }
}

/* What it got was evicted while it was preempted: it gets all of it again. */
static void test_a_preempted_request_gets_it_again(void **state)
{
    (void)state;
    world *w = world_make((world_config){.num_cpu_blocks = 101});
    world_request prompt = world_draw(w, 40);
    world_put_below(w, &prompt);
    world_request *r = world_add(w, &prompt);
    for (uint32_t i = 1; i <= 3; i++) {
        (void)world_wait(w, r);
        assert_int_equal(world_match(w, r), 40 * WORLD_TOKENS);
        assert_int_equal(num_loaded(w), 40 * i);
        qr_promote_forget(w->promote, r->req);
        r->asked_ns = 0;
        assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    }
    world_close(w);
}

/* Blocks of 16 and of 32 tokens: a hit of both ends after 64 of 80 tokens. */
static void test_only_what_all_groups_can_use(void **state)
{
    (void)state;
    world *w = world_make((world_config){.groups = WORLD_WINDOW});
    world_request prompt = world_draw(w, 5);
    world_put_below(w, &prompt);
    world_request *r = world_add(w, &prompt);
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), 4 * WORLD_TOKENS);
    assert_int_equal(num_loaded(w), 4 + 2);
    world_close(w);
}

/* The engine's own hit ends inside a block: no block from below goes on from there. */
static void test_nothing_goes_on_inside_a_block(void **state)
{
    (void)state;
    world *w = world_make((world_config){0});
    world_request prompt = world_draw(w, 10);
    world_put_below(w, &prompt);
    prompt.num_local = WORLD_TOKENS + WORLD_TOKENS / 2;
    world_request *r = world_add(w, &prompt);
    assert_false(world_ask(w, r));
    assert_int_equal(world_stats(w).tiers[0].in_flight, 0);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_smallest_cpu_pool),
        cmocka_unit_test(test_a_request_gets_half_of_the_pool),
        cmocka_unit_test(test_a_preempted_request_gets_it_again),
        cmocka_unit_test(test_only_what_all_groups_can_use),
        cmocka_unit_test(test_nothing_goes_on_inside_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
