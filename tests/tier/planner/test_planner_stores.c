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
    assert_int_equal(quire_planner_computed(planner, &request, &span, TOKENS), QUIRE_RETRY);
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

/* A running request waits for stores in flight; one that ends does not: its blocks are held. */
static void last_blocks(void **state)
{
    (void)state;
    enum { MOST = BLOCKS / 4 + 1, MOST_LAST = SLOTS / 2, N = BLOCKS / 3, MORE = BLOCKS / 6 };
    static unsigned char more[MORE][HASH];
    quire_planner_request request = request_of(add(), N);
    quire_block_span span = {blocks, N};
    assert_int_equal(quire_planner_computed(planner, &request, &span, N * TOKENS), QUIRE_RETRY);
    assert_int_equal(settle().num_held, MOST);
    assert_int_equal(quire_planner_computed(planner, &request, &span, N * TOKENS), QUIRE_OK);
    assert_int_equal(settle().num_held, N - MOST);
    assert_int_equal(quire_planner_reset(planner), QUIRE_OK);
    make_step(0);
    request = request_of(add(), LONG);
    request.is_last = 1;
    span.count = LONG;
    assert_int_equal(quire_planner_computed(planner, &request, &span, LONG * TOKENS), QUIRE_OK);
    assert_int_equal(quire_planner_finished(planner, request.req), QUIRE_OK);
    assert_int_equal(stats().no_room, 0);
    for (uint32_t i = 0; i < MORE; i++) {
        more[i][HASH - 1] = 1;
        memcpy(more[i], &i, sizeof i);
    }
    request = request_of(add(), MORE);
    request.is_last = 1;
    request.hashes = more;
    span = (quire_block_span){others, MORE};
    assert_int_equal(quire_planner_computed(planner, &request, &span, MORE * TOKENS), QUIRE_OK);
    assert_int_equal(stats().no_room, LONG + MORE - MOST_LAST);
    world_sums sums = settle();
    assert_int_equal(sums.num_held, MOST_LAST);
    assert_int_equal(sums.num_released, MOST_LAST);
    assert_int_equal(stats().stored_blocks, N + MOST_LAST);
}

/* The engine gets its blocks back at once; what is in flight is no hit when it ends. */
static void dropped_stores(void **state)
{
    (void)state;
    enum { FIRST = 40, N = 60 };
    uint32_t n;
    uint32_t num_released;
    const quire_block *released;
    quire_planner_request request = request_of(add(), N);
    quire_block_span span = {blocks, N};
    ranks[1].is_deaf = true;
    assert_int_equal(quire_planner_computed(planner, &request, &span, FIRST * TOKENS), QUIRE_OK);
    make_step(0); /* in flight */
    assert_int_equal(out.num_held, FIRST);
    assert_int_equal(quire_planner_computed(planner, &request, &span, N * TOKENS), QUIRE_OK);
    const quire_block *held;
    assert_int_equal(quire_planner_take_held(planner, &held, &n), QUIRE_OK); /* waits for a plan */
    assert_int_equal(n, N - FIRST);
    assert_int_equal(quire_planner_drop_stores(planner, &released, &num_released), QUIRE_OK);
    assert_int_equal(num_released, N);
    bool is_released[BLOCKS] = {false};
    for (uint32_t i = 0; i < N; i++)
        is_released[released[i]] = true;
    for (uint32_t i = 0; i < N; i++)
        assert_true(is_released[blocks[i]]);
    assert_int_equal(quire_planner_drop_stores(planner, &released, &num_released), QUIRE_OK);
    assert_int_equal(num_released, 0);
    assert_int_equal(quire_planner_check(planner), QUIRE_OK);
    ranks[1].is_deaf = false;
    world_sums sums = settle();
    assert_int_equal(sums.num_held + sums.num_released, 0);
    assert_int_equal(stats().failed_stores, N);
    assert_int_equal(stats().stores_in_flight + stats().stored_blocks, 0);
    quire_req req = add();
    for (uint32_t i = 0; i < 20 && match(req, N, &n) == QUIRE_RETRY; i++)
        make_step(0); /* the tiers are asked */
    assert_int_equal(match(req, N, &n), QUIRE_OK);
    assert_int_equal(n, 0);
    store(add(), N); /* and now they are */
    assert_int_equal(stats().stored_blocks, N);
    assert_int_equal(quire_planner_drop_stores(planner, NULL, &num_released), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_planner_drop_stores(planner, &released, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_planner_drop_stores(NULL, &released, &num_released), QUIRE_E_ARGUMENT);
}

/* ---- which blocks are evicted ---------------------------------------------- */

enum { WHOLE = WIDE, NEW = WIDE / 3 };

/* A host pool that has the blocks of one request, and no more; without tiers. */
static quire_req fill_host_pool(void)
{
    quire_planner_destroy(planner);
    config.num_slots = WHOLE + 1;
    config.num_tiers = 0;
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    quire_req req = add();
    store(req, WHOLE);
    return req;
}

/* Other blocks take the place of a third; returns how many of the first blocks are left. */
static uint32_t blocks_left(void)
{
    static unsigned char others_hashes[NEW][HASH];
    uint32_t n;
    for (uint32_t i = 0; i < NEW; i++) {
        others_hashes[i][HASH - 1] = 1;
        memcpy(others_hashes[i], &i, sizeof i);
    }
    quire_planner_request request = request_of(add(), NEW);
    request.hashes = others_hashes;
    quire_block_span span = {others, NEW};
    assert_int_equal(quire_planner_computed(planner, &request, &span, NEW * TOKENS), QUIRE_OK);
    (void)settle();
    assert_int_equal(match(add(), WHOLE, &n), QUIRE_OK);
    return n;
}

/* The blocks were stored in several batches, the start of the prefix first. */
static void a_prefix_that_ends_is_evicted_last(void **state)
{
    (void)state;
    quire_planner_request request = request_of(fill_host_pool(), WHOLE + 1);
    quire_block_span span = {blocks, WHOLE};
    request.is_last = 1;
    assert_int_equal(quire_planner_computed(planner, &request, &span, WHOLE * TOKENS), QUIRE_OK);
    assert_int_equal(quire_planner_finished(planner, request.req), QUIRE_OK);
    assert_int_equal(blocks_left(), WHOLE - NEW);
}

static void a_prefix_that_is_loaded_is_evicted_last(void **state)
{
    (void)state;
    uint32_t n;
    (void)fill_host_pool();
    quire_req req = add();
    quire_block_span span = {others, WHOLE};
    assert_int_equal(match(req, WHOLE, &n), QUIRE_OK);
    assert_int_equal(n, WHOLE);
    assert_int_equal(quire_planner_allocated(planner, req, &span, WHOLE * TOKENS), QUIRE_OK);
    assert_int_equal(settle().num_loaded, 1);
    assert_int_equal(blocks_left(), WHOLE - NEW);
}

int main(void)
{
#define IN_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {IN_WORLD(full_host_pool), IN_WORLD(last_blocks),
                                       IN_WORLD(dropped_stores),
                                       IN_WORLD(a_prefix_that_ends_is_evicted_last),
                                       IN_WORLD(a_prefix_that_is_loaded_is_evicted_last)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
