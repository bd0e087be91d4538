/* tier/planner/test_planner.c - what requests find and load, and what goes wrong. The plan of a
 * step with 64k tokens of hits is timed; it allocates nothing. */
#include "planner_world.h"

#include <time.h>

static uint64_t num_allocations;

/* ---- counting -------------------------------------------------------------- */

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    num_allocations++;
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    num_allocations++;
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    num_allocations++;
    return __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    num_allocations++;
    return __real_aligned_alloc(alignment, bytes);
}

/* ---- tests ----------------------------------------------------------------- */

static void stored_and_loaded(void **state)
{
    (void)state;
    enum { N = WIDE };
    uint32_t n;
    quire_req first = add();
    num_events = 0;
    assert_int_equal(match(first, N, &n), QUIRE_RETRY); /* the tiers are asked */
    make_step(0);
    assert_int_equal(match(first, N, &n), QUIRE_OK);
    assert_int_equal(n, 0);
    store(first, N);
    assert_int_equal(num_events, N);
    quire_req second = add();
    assert_int_equal(match(second, N, &n), QUIRE_OK);
    assert_int_equal(n, N);
    assert_int_equal(match(second, N, &n), QUIRE_OK); /* again: the same */
    quire_block_span span = {others, N};
    assert_int_equal(quire_planner_allocated(planner, second, &span, N * TOKENS), QUIRE_OK);
    assert_int_equal(quire_planner_allocated(planner, second, &span, TOKENS), QUIRE_E_ARGUMENT);
    make_step(0);
    assert_int_equal(out.num_held, N);
    assert_int_equal(results.num_loaded, 1);
    assert_int_equal(results.loaded[0], second);
    assert_int_equal(results.num_released, N);
    for (uint32_t i = 0; i < N; i++)
        assert_true(has(others[i], i));
    assert_int_equal(stats().loaded_blocks, N);
    assert_int_equal(quire_planner_finished(planner, first), QUIRE_OK);
    assert_int_equal(quire_planner_finished(planner, first), QUIRE_E_UNKNOWN_REQ);
    assert_int_equal(quire_planner_finished(planner, second), QUIRE_OK);
    (void)settle();
    quire_transfer_stats moved = QUIRE_TRANSFER_STATS_INIT;
    assert_int_equal(quire_planner_get_transfer_stats(planner, &moved), QUIRE_OK);
    assert_true(moved.plans > 1 && moved.jobs_in_flight == 0);
}

/* One load for all that need the same prefix; if the engine does not keep it, each loads it. */
static void one_load_for_many(void **state)
{
    (void)state;
    uint32_t n;
    store(add(), 5);
    quire_req all[50];
    for (uint32_t i = 0; i < 50; i++)
        all[i] = add();
    assert_int_equal(match(all[0], 5, &n), QUIRE_OK);
    quire_block_span span = {others, 5};
    assert_int_equal(quire_planner_allocated(planner, all[0], &span, 5 * TOKENS), QUIRE_OK);
    for (uint32_t i = 1; i < 50; i++)
        assert_int_equal(match(all[i], 5, &n), QUIRE_RETRY);
    make_step(0);
    assert_int_equal(stats().loaded_blocks, 5);
    quire_planner_request request = request_of(all[1], 5); /* the engine has it now */
    assert_int_equal(quire_planner_match(planner, &request, 5 * TOKENS, &n), QUIRE_OK);
    assert_int_equal(n, 0);
    assert_int_equal(match(all[2], 5, &n), QUIRE_OK); /* it has not */
    assert_int_equal(n, 5);
    assert_int_equal(quire_planner_allocated(planner, all[2], &span, 5 * TOKENS), QUIRE_OK);
    assert_int_equal(match(all[3], 5, &n), QUIRE_OK); /* it has waited once */
    assert_int_equal(n, 5);
    make_step(0);
}

/* What the host pool has lost comes from the tiers of all ranks. */
static void loaded_from_tiers(void **state)
{
    (void)state;
    enum { N = WIDE / 2 };
    uint32_t n;
    quire_tier_key key = {.rank = 1};
    store(add(), N);
    (void)settle();
    assert_int_equal(stats().tiers[0].stored_blocks, N);
    memcpy(key.hash, hashes[3], HASH);
    assert_true(faulty_has(ranks[1].flawed, &key));
    quire_planner_destroy(planner); /* and a new one, which knows nothing */
    disk.tier.is_persistent = 1;
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    quire_req req = add();
    quire_planner_request request = request_of(req, N);
    assert_int_equal(quire_planner_prefetch(planner, &request, 0), QUIRE_OK);
    int status = QUIRE_RETRY;
    uint32_t num_steps = 0;
    for (; status == QUIRE_RETRY && num_steps < N; num_steps++) {
        make_step(0);
        status = match(req, N, &n);
    }
    assert_int_equal(status, QUIRE_OK);
    assert_int_equal(n, N);
    assert_true(num_steps <= QR_AT_A_TIME(2, N)); /* finding and loading is one job */
    quire_block_span span = {others, N};
    assert_int_equal(quire_planner_allocated(planner, req, &span, N * TOKENS), QUIRE_OK);
    make_step(0);
    assert_int_equal(results.num_loaded, 1);
    for (uint32_t i = 0; i < N; i++)
        assert_true(has(others[i], i));
    assert_int_equal(stats().tiers[0].promoted_blocks, N);
    assert_int_equal(stats().tiers[0].hit_tokens, N * TOKENS);
}

/* What lies in a tier is told: stored, found by a load, missed, too much to know. */
static void events_of_tiers(void **state)
{
    (void)state;
    enum { N = 20, FEW = 16, LOST = 7 };
    uint32_t n = 0;
    quire_planner_destroy(planner);
    disk.tier.is_persistent = 1;
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    memset(num_tier_events, 0, sizeof num_tier_events);
    store(add(), N);
    (void)settle();
    assert_int_equal(num_tier_events[0], N);
    assert_int_equal(num_tier_events[1], 0);
    for (uint32_t i = 0; i < 2; i++) { /* a new planner learns of them when they are loaded */
        quire_planner_destroy(planner);
        config.event_keys = i == 0 ? N : FEW;
        assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
        memset(num_tier_events, 0, sizeof num_tier_events);
        quire_req req = add();
        for (uint32_t k = 0; k < 200 && match(req, N, &n) == QUIRE_RETRY; k++)
            make_step(0);
        assert_int_equal(n, N);
        assert_int_equal(num_tier_events[0], N);
        assert_int_equal(num_tier_events[1], i == 0 ? 0 : N - FEW);
    }
    quire_tier_key key = {.rank = 1}; /* one rank has lost a block, and then the host pool */
    memcpy(key.hash, hashes[LOST], HASH);
    quire_tier_job *ended;
    quire_tier_io io = {.key = key};
    quire_tier_job removal = {.op = QUIRE_TIER_REMOVE, .num_ios = 1, .ios = &io};
    assert_int_equal(quire_tier_submit(ranks[1].tier, &removal), QUIRE_OK);
    while (quire_tier_poll(ranks[1].tier, &ended, 1) == 0)
        ;
    assert_int_equal(io.status, QUIRE_TIER_DONE);
    quire_planner_destroy(planner);
    config.event_keys = N;
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    memset(num_tier_events, 0, sizeof num_tier_events);
    quire_req req = add();
    for (uint32_t k = 0; k < 200 && match(req, N, &n) == QUIRE_RETRY; k++)
        make_step(0);
    assert_in_range(n, 1, LOST);
    assert_in_range(num_tier_events[0], n, N - 1);
    assert_int_equal(num_tier_events[1], 0); /* nobody was told of it */
    assert_int_equal(quire_planner_reset(planner), QUIRE_OK);
    assert_int_equal(num_tier_events[1], num_tier_events[0]);
}

/* One rank has lost a block: nobody has it. */
static void a_rank_that_fails(void **state)
{
    (void)state;
    uint32_t n = 9;
    store(add(), 100);
    for (uint32_t i = 0; i < 20; i++)
        make_step(0);
    assert_int_equal(quire_planner_reset(planner), QUIRE_OK); /* also the tiers */
    make_step(0);
    quire_req req = add();
    assert_int_equal(match(req, 100, &n), QUIRE_RETRY);
    make_step(0);
    assert_int_equal(match(req, 100, &n), QUIRE_OK);
    assert_int_equal(n, 0);
    store(req, 100);
    for (uint32_t i = 0; i < 20; i++)
        make_step(0);
    faulty_set(ranks[1].flawed, FAULTY_FLIP, 1000);
    quire_planner_destroy(planner);
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    req = add();
    for (uint32_t i = 0; i < 20 && match(req, 100, &n) == QUIRE_RETRY; i++)
        make_step(0);
    assert_int_equal(n, 0);
    quire_transfer_stats moved = QUIRE_TRANSFER_STATS_INIT;
    assert_int_equal(quire_planner_get_transfer_stats(planner, &moved), QUIRE_OK);
    assert_true(moved.rank_failures > 0);
}

/* A load that fails is told with its blocks; what nobody promised is such a load. */
static void failed_loads(void **state)
{
    (void)state;
    uint32_t n;
    store(add(), 10);
    quire_req req = add();
    quire_block wrong[10];
    for (uint32_t i = 0; i < 10; i++)
        wrong[i] = i < 9 ? others[i] : BLOCKS - 1 - i;
    assert_int_equal(match(req, 10, &n), QUIRE_OK);
    quire_block_span span = {wrong, 10};
    assert_int_equal(quire_planner_allocated(planner, req, &span, 9 * TOKENS), QUIRE_OK);
    make_step(0);
    assert_int_equal(results.num_failed, 1);
    assert_int_equal(results.failed[0], req);
    assert_int_equal(results.num_failed_blocks, 10);
    assert_int_equal(stats().failed_loads, 1);
    assert_int_equal(match(req, 10, &n), QUIRE_OK);
    assert_int_equal(quire_planner_allocated(planner, req, &span, 10 * TOKENS), QUIRE_OK);
    assert_int_equal(quire_planner_reset(planner), QUIRE_OK); /* meanwhile */
    make_step(0);
    assert_int_equal(results.num_failed, 1);
    assert_int_equal(results.num_failed_blocks, 10);
}

/* A request that ends while it loads is told, and its blocks are held until then. */
static void ended_while_loading(void **state)
{
    (void)state;
    uint32_t n;
    store(add(), 10);
    quire_req req = add();
    quire_block_span span = {others, 10};
    assert_int_equal(match(req, 10, &n), QUIRE_OK);
    assert_int_equal(quire_planner_allocated(planner, req, &span, 10 * TOKENS), QUIRE_OK);
    const quire_block *held;
    uint32_t num_held;
    assert_int_equal(quire_planner_take_held(planner, &held, &num_held), QUIRE_OK);
    assert_int_equal(num_held, 10);
    assert_int_equal(quire_planner_finished(planner, req), QUIRE_OK); /* before it began */
    make_step(0);
    assert_int_equal(out.num_held, 0);
    assert_int_equal(results.num_failed, 1);
    assert_int_equal(results.num_released, 10);
    req = add();
    assert_int_equal(match(req, 10, &n), QUIRE_OK);
    assert_int_equal(quire_planner_allocated(planner, req, &span, 10 * TOKENS), QUIRE_OK);
    ranks[1].is_deaf = true;
    make_step(0);
    assert_int_equal(results.num_loaded + results.num_failed + results.num_released, 0);
    assert_int_equal(quire_planner_finished(planner, req), QUIRE_OK);
    assert_int_equal(match(req, 10, &n), QUIRE_E_UNKNOWN_REQ);
    assert_true(quire_planner_has_pending(planner));
    ranks[1].is_deaf = false;
    make_step(0);
    assert_int_equal(results.num_loaded, 1);
    assert_int_equal(results.loaded[0], req);
    assert_int_equal(results.num_released, 10);
}

/* An engine that keeps the blocks of a load by itself is not asked to. */
static void loads_without_holds(void **state)
{
    (void)state;
    enum { N = WIDE };
    uint32_t n;
    quire_planner_destroy(planner);
    config.holds_loads = QUIRE_OFF;
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    store(add(), N);
    quire_req req = add();
    quire_block_span span = {others, N};
    assert_int_equal(match(req, N, &n), QUIRE_OK);
    assert_int_equal(quire_planner_allocated(planner, req, &span, N * TOKENS), QUIRE_OK);
    ranks[0].is_deaf = true;
    make_step(0);
    assert_int_equal(out.num_held + results.num_loaded, 0);
    assert_int_equal(quire_planner_finished(planner, req), QUIRE_OK);
    assert_int_equal(quire_planner_check(planner), QUIRE_OK);
    ranks[0].is_deaf = false;
    make_step(0);
    assert_int_equal(results.num_loaded, 1);
    assert_int_equal(results.num_released, 0);
    assert_true(has(others[N - 1], N - 1));
    req = add();
    assert_int_equal(match(req, N, &n), QUIRE_OK);
    assert_int_equal(quire_planner_allocated(planner, req, &span, N * TOKENS), QUIRE_OK);
    assert_int_equal(quire_planner_finished(planner, req), QUIRE_OK); /* before it began */
    make_step(0);
    assert_int_equal(results.num_failed, 1);
    assert_int_equal(results.num_failed_blocks, 0); /* they may be another's by now */
    assert_int_equal(results.num_released, 0);
}

/* Preempted: what it computes again is looked at again. */
static void preempted(void **state)
{
    (void)state;
    quire_req req = add();
    store(req, 4);
    assert_int_equal(quire_planner_reset(planner), QUIRE_OK);
    make_step(0);
    assert_int_equal(quire_planner_preempted(planner, req), QUIRE_OK);
    store(req, 4);
    assert_int_equal(stats().stored_blocks, 8);
    assert_int_equal(quire_planner_preempted(planner, 77), QUIRE_E_UNKNOWN_REQ);
}

/* A worker that restarts takes the host pool with it. */
static void lost_worker(void **state)
{
    (void)state;
    uint32_t n;
    quire_req req = add();
    store(req, 10);
    close_rank(1);
    open_rank(1);
    fill(others[0], 500);
    quire_planner_request request = request_of(req, 11);
    quire_block_span span = {blocks, 11};
    fill(blocks[10], 10);
    assert_int_equal(quire_planner_computed(planner, &request, &span, 11 * TOKENS), QUIRE_OK);
    assert_int_equal(make_step(0), QUIRE_LOST);
    for (uint32_t i = 0; i < 10; i++)
        make_step(0);
    quire_req other = add();
    for (uint32_t i = 0; i < 20 && match(other, 10, &n) == QUIRE_RETRY; i++)
        make_step(0);
    assert_int_equal(n, 0);
}

static void identity(void **state)
{
    (void)state;
    uint32_t n;
    static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = "new weights";
    store(add(), 10);
    for (uint32_t i = 0; i < 10; i++)
        make_step(0);
    assert_int_equal(quire_planner_set_identity(planner, fingerprint), QUIRE_OK);
    make_step(0);
    quire_req req = add();
    for (uint32_t i = 0; i < 20 && match(req, 10, &n) == QUIRE_RETRY; i++)
        make_step(0);
    assert_int_equal(n, 0);
    assert_int_equal(quire_planner_set_identity(planner, NULL), QUIRE_E_ARGUMENT);
    quire_planner_destroy(planner);
    disk.tier.is_persistent = disk.tier.is_shared = 1;
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    assert_int_equal(quire_planner_reset(planner), QUIRE_E_IDENTITY);
}

/* A new identity does not wait for what is on its way to a tier; the tier waits for it. */
static void identity_with_jobs(void **state)
{
    (void)state;
    enum { N = 10 };
    uint32_t n = 9;
    static const unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES] = "new weights";
    quire_planner_request request = request_of(add(), N);
    quire_block_span span = {blocks, N};
    for (uint32_t i = 0; i < N; i++)
        fill(blocks[i], i);
    assert_int_equal(quire_planner_computed(planner, &request, &span, N * TOKENS), QUIRE_OK);
    while (stats().stored_blocks < N)
        make_step(0);
    ranks[1].is_deaf = true;
    make_step(0); /* to the tiers */
    assert_true(stats().tiers[0].in_flight > 0);
    assert_int_equal(quire_planner_set_identity(planner, fingerprint), QUIRE_OK);
    quire_req req = add();
    assert_int_equal(match(req, N, &n), QUIRE_OK); /* nobody asks the tiers */
    assert_int_equal(n, 0);
    make_step(0);
    assert_true(quire_planner_has_pending(planner));
    assert_int_equal(quire_planner_set_identity(planner, fingerprint), QUIRE_OK); /* again */
    ranks[1].is_deaf = false;
    (void)settle();
    uint64_t num_stored = stats().tiers[0].stored_blocks;
    store(add(), N); /* and now they are used */
    (void)settle();
    assert_int_equal(stats().tiers[0].stored_blocks, num_stored + N);
    quire_planner_destroy(planner); /* a planner that knows nothing finds them there */
    disk.tier.is_persistent = 1;
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    req = add();
    for (uint32_t i = 0; i < 200 && match(req, N, &n) == QUIRE_RETRY; i++)
        make_step(0);
    assert_int_equal(n, N);
}

/* Nobody has to call anything: the time of steps with many tokens is learned. */
static void learned_costs(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 30; i++) {
        assert_int_equal(quire_planner_plan(planner, ++step, 1000, 1, &out), QUIRE_OK);
        clock_ns += 40 * 1000 * 1000;
        assert_int_equal(quire_planner_get_results(planner, step, &results), QUIRE_OK);
    }
    assert_in_range((uint64_t)stats().recompute_token_ns, 30000, 50000);
}

/* 64k tokens of hits: 4,096 blocks in one plan. */
static void plan_of_many_hits(void **state)
{
    (void)state;
    enum { N = QR_AT_A_TIME(LONG, WIDE) };
    uint64_t best_ns = UINT64_MAX;
    store(add(), N);
    for (uint32_t round = 0; round < 20; round++) {
        struct timespec from;
        struct timespec to;
        uint32_t n;
        quire_req req = add();
        quire_block_span span = {blocks, N};
        for (uint32_t i = 0; i < 50 && match(req, N, &n) == QUIRE_RETRY; i++)
            make_step(0);
        assert_int_equal(n, N);
        assert_int_equal(quire_planner_allocated(planner, req, &span, N * TOKENS), QUIRE_OK);
        num_allocations = 0;
        (void)clock_gettime(CLOCK_MONOTONIC, &from);
        assert_int_equal(quire_planner_plan(planner, ++step, 0, 0, &out), QUIRE_OK);
        (void)clock_gettime(CLOCK_MONOTONIC, &to);
        assert_int_equal(num_allocations, 0);
        assert_true(out.plan.len > N * 8);
        assert_int_equal(out.num_held, N);
        uint64_t ns = (uint64_t)(to.tv_sec - from.tv_sec) * 1000000000 +
                      (uint64_t)(to.tv_nsec - from.tv_nsec);
        best_ns = ns < best_ns ? ns : best_ns;
        for (uint32_t i = 0; i < RANKS; i++)
            assert_int_equal(quire_worker_submit(ranks[i].worker, out.plan), QUIRE_OK);
        (void)report_all();
        assert_int_equal(quire_planner_get_results(planner, step, &results), QUIRE_OK);
        assert_int_equal(results.num_loaded, 1);
        assert_int_equal(quire_planner_finished(planner, req), QUIRE_OK);
    }
    printf("plan of %d blocks, %zu bytes: %.1f us\n", (int)N, out.plan.len, (double)best_ns / 1000);
}

int main(void)
{
#define IN_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {
        IN_WORLD(stored_and_loaded),  IN_WORLD(one_load_for_many),   IN_WORLD(loaded_from_tiers),
        IN_WORLD(a_rank_that_fails),  IN_WORLD(failed_loads),        IN_WORLD(ended_while_loading),
        IN_WORLD(preempted),          IN_WORLD(lost_worker),         IN_WORLD(identity),
        IN_WORLD(identity_with_jobs), IN_WORLD(events_of_tiers),     IN_WORLD(learned_costs),
        IN_WORLD(plan_of_many_hits),  IN_WORLD(loads_without_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
