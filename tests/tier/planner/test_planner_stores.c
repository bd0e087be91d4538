/* tier/planner/test_planner_stores.c - stores that find no room, now or ever. */
#include "planner_world.h"

/* A block that finds no room in the host pool does not hold up those of later steps. */
static void full_host_pool(void **state)
{
    (void)state;
    enum { FEW = 8, N = FEW - 1 };
    uint32_t n;
    quire_planner_destroy(planner);
    config.num_slots = FEW;
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    store(add(), N);
    quire_req req = add();
    quire_block_span span = {others, N};
    assert_int_equal(match(req, N, &n), QUIRE_OK);
    assert_int_equal(n, N);
    assert_int_equal(quire_planner_allocated(planner, req, &span, N * TOKENS), QUIRE_OK);
    ranks[1].is_deaf = true; /* all of the host pool is being loaded */
    make_step(0);
    quire_planner_request request = request_of(add(), 1);
    request.hashes = hashes[N];
    span = (quire_block_span){blocks + N, 1};
    assert_true(quire_planner_computed(planner, &request, &span, TOKENS) >= QUIRE_OK);
    make_step(0);
    assert_int_equal(out.num_held, 0);
    ranks[1].is_deaf = false;
    make_step(0);
    assert_int_equal(results.num_loaded, 1);
    assert_int_equal(quire_planner_computed(planner, &request, &span, TOKENS), QUIRE_OK);
    make_step(0);
    assert_int_equal(out.num_held, 1);
    assert_int_equal(results.num_released, 1);
    assert_int_equal(stats().stored_blocks, N + 1);
}

int main(void)
{
#define IN_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {IN_WORLD(full_host_pool)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
