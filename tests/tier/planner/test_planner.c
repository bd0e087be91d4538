/* tier/planner/test_planner.c - a planner with the workers of two ranks in one process: a function
 * call carries plans and reports. What requests find, load and store, and what goes wrong. The plan
 * of a step with 64k tokens of hits is timed; it allocates nothing. */
#include "base/unit.h"
#include "tier/core/faulty.h"

#include <quire/planner.h>
#include <quire/worker.h>

#include <time.h>

enum { RANKS = 2, TOKENS = 16, BLOCKS = 6000, SLOTS = 9000, BYTES = 32, HASH = 32, LONG = 4096 };

static quire_planner *planner;
static struct {
    unsigned char blocks[BLOCKS][BYTES];
    unsigned char slots[SLOTS][BYTES];
    quire_device device;
    faulty *flawed;
    quire_tier *tier;
    quire_worker *worker;
    bool is_deaf; /* its reports are lost in this step */
} ranks[RANKS];
static unsigned char hashes[LONG][HASH];
static quire_block blocks[LONG];
static quire_block others[LONG];
static quire_planner_out out;
static quire_planner_results results;
static uint64_t step;
static uint64_t clock_ns;
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

/* ---- the world ------------------------------------------------------------- */

static uint64_t now(void *user)
{
    (void)user;
    return clock_ns;
}

static const quire_group_config FULL = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                 .block_size = TOKENS,
                                                 .num_kv_heads = 1,
                                                 .head_size = 8,
                                                 .dtype = QUIRE_DTYPE_FLOAT16}};
static quire_cache_config cache;
static quire_planner_config config;
static quire_planner_tier disk;
static uint64_t num_events;

static void count_event(void *user, const quire_event *event)
{
    (void)user;
    num_events += event->num_blocks;
}

static void make_config(void)
{
    cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    cache.groups = &FULL;
    cache.num_groups = 1;
    cache.num_blocks = BLOCKS;
    cache.max_model_len = LONG * TOKENS + TOKENS;
    cache.hash_block_size = TOKENS;
    cache.digest_bytes = HASH;
    disk = (quire_planner_tier){.tier = {.label = "disk"}, .admit = QUIRE_ADMIT_ALL};
    config = (quire_planner_config)QUIRE_PLANNER_CONFIG_INIT;
    config.cache = &cache;
    config.num_slots = SLOTS;
    config.block_bytes = BYTES;
    config.max_requests = 64;
    config.num_ranks = RANKS;
    config.tiers = &disk;
    config.num_tiers = 1;
    config.on_event = count_event;
    config.hooks.now_ns = now;
}

static void open_rank(uint32_t i)
{
    quire_page_region region = {.base = ranks[i].blocks, .stride = BYTES, .bytes = BYTES};
    quire_device_pages_config pages = QUIRE_DEVICE_PAGES_CONFIG_INIT;
    quire_worker_config worker = QUIRE_WORKER_CONFIG_INIT;
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    pages.regions = &region;
    pages.num_regions = 1;
    pages.num_blocks = BLOCKS;
    pages.num_slots = SLOTS;
    pages.slots = ranks[i].slots;
    assert_int_equal(quire_device_pages_open(&pages, NULL, &ranks[i].device), QUIRE_OK);
    ranks[i].flawed = faulty_create(
        &(faulty_config){.max_keys = 2 * LONG, .max_bytes = BYTES, .seed = i, .is_shared = true});
    common.ops = faulty_ops();
    common.self = ranks[i].flawed;
    common.run_inline = QUIRE_ON;
    common.hooks.now_ns = now;
    assert_int_equal(quire_tier_open(&common, NULL, &ranks[i].tier), QUIRE_OK);
    quire_worker_tier tier = {.tier = ranks[i].tier};
    worker.rank = i;
    worker.num_ranks = RANKS;
    worker.key_rank = i;
    worker.device = ranks[i].device;
    worker.memory = ranks[i].slots;
    worker.block_bytes = BYTES;
    worker.num_slots = SLOTS;
    worker.tiers = &tier;
    worker.num_tiers = 1;
    worker.run_inline = QUIRE_ON;
    worker.hooks.now_ns = now;
    assert_int_equal(quire_worker_create(&worker, NULL, &ranks[i].worker), QUIRE_OK);
    ranks[i].is_deaf = false;
}

static void close_rank(uint32_t i)
{
    assert_int_equal(quire_worker_abandon(ranks[i].worker), QUIRE_OK);
    (void)quire_tier_close(ranks[i].tier);
    assert_int_equal(quire_worker_destroy(ranks[i].worker), QUIRE_OK);
    quire_device_close(&ranks[i].device);
}

static int open_world(void **state)
{
    (void)state;
    clock_ns = 1000000000;
    make_config();
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    for (uint32_t i = 0; i < RANKS; i++)
        open_rank(i);
    for (uint32_t i = 0; i < LONG; i++) {
        memset(hashes[i], 0, HASH);
        memcpy(hashes[i], &i, sizeof i);
        blocks[i] = 1 + i;
        others[i] = BLOCKS - 1 - i;
    }
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    assert_int_equal(quire_planner_check(planner), QUIRE_OK);
    quire_planner_destroy(planner);
    for (uint32_t i = 0; i < RANKS; i++)
        close_rank(i);
    return 0;
}

/* ---- steps ----------------------------------------------------------------- */

static void fill(quire_block block, uint32_t n)
{
    for (uint32_t i = 0; i < RANKS; i++)
        memset(ranks[i].blocks[block], (int)(n * 7 + i), BYTES);
}

static bool has(quire_block block, uint32_t n)
{
    bool is_same = true;
    for (uint32_t i = 0; i < RANKS; i++)
        for (uint32_t k = 0; k < BYTES; k++)
            is_same = is_same && ranks[i].blocks[block][k] == (unsigned char)(n * 7 + i);
    return is_same;
}

static quire_req add(void)
{
    quire_req req;
    assert_int_equal(quire_planner_add(planner, &req), QUIRE_OK);
    return req;
}

static quire_planner_request request_of(quire_req req, uint32_t n)
{
    return (quire_planner_request){
        .req = req, .hashes = hashes, .num_hashes = n, .num_tokens = n * TOKENS + 1};
}

static int match(quire_req req, uint32_t n, uint32_t *num_blocks)
{
    quire_planner_request request = request_of(req, n);
    int status = quire_planner_match(planner, &request, 0, num_blocks);
    *num_blocks /= TOKENS;
    return status;
}

static int report_all(void)
{
    int status = QUIRE_OK;
    for (uint32_t i = 0; i < RANKS; i++) {
        quire_bytes report;
        if (ranks[i].is_deaf)
            continue;
        assert_int_equal(quire_worker_poll(ranks[i].worker, &report), QUIRE_OK);
        if (report.len > 0) {
            int err = quire_planner_report(planner, report);
            status = err == QUIRE_OK ? status : err;
        }
    }
    return status;
}

/* Returns what the reports returned. */
static int make_step(uint32_t num_tokens)
{
    assert_int_equal(quire_planner_plan(planner, ++step, num_tokens, 1, &out), QUIRE_OK);
    for (uint32_t i = 0; i < RANKS; i++)
        if (out.plan.len > 0)
            assert_int_equal(quire_worker_submit(ranks[i].worker, out.plan), QUIRE_OK);
    int status = report_all();
    assert_int_equal(quire_planner_get_results(planner, step, &results), QUIRE_OK);
    return status;
}

/* A request computes the first n blocks, and they are stored. */
static void store(quire_req req, uint32_t n)
{
    quire_planner_request request = request_of(req, n);
    quire_block_span span = {blocks, n};
    for (uint32_t i = 0; i < n; i++)
        fill(blocks[i], i);
    assert_int_equal(quire_planner_computed(planner, &request, &span, n * TOKENS), QUIRE_OK);
    uint32_t num_held = 0;
    uint32_t num_released = 0;
    for (uint32_t i = 0; i < 200 && (i == 0 || quire_planner_has_pending(planner)); i++) {
        make_step(0);
        num_held += out.num_held;
        num_released += results.num_released;
        assert_int_equal(quire_planner_computed(planner, &request, &span, n * TOKENS), QUIRE_OK);
    }
    assert_int_equal(num_held, n);
    assert_int_equal(num_released, n);
}

static quire_offload_stats stats(void)
{
    quire_offload_stats s = QUIRE_OFFLOAD_STATS_INIT;
    assert_int_equal(quire_planner_get_stats(planner, &s), QUIRE_OK);
    return s;
}

/* ---- tests ----------------------------------------------------------------- */

static void stored_and_loaded(void **state)
{
    (void)state;
    enum { N = 600 };
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
    uint32_t n;
    quire_tier_key key = {.rank = 1};
    store(add(), 200);
    for (uint32_t i = 0; i < 20 && stats().tiers[0].stored_blocks < 200; i++)
        make_step(0);
    assert_int_equal(stats().tiers[0].stored_blocks, 200);
    memcpy(key.hash, hashes[3], HASH);
    assert_true(faulty_has(ranks[1].flawed, &key));
    quire_planner_destroy(planner); /* and a new one, which knows nothing */
    disk.tier.is_persistent = 1;
    assert_int_equal(quire_planner_create(&config, &planner), QUIRE_OK);
    quire_req req = add();
    quire_planner_request request = request_of(req, 200);
    assert_int_equal(quire_planner_prefetch(planner, &request, 0), QUIRE_OK);
    int status = QUIRE_RETRY;
    uint32_t num_steps = 0;
    for (; status == QUIRE_RETRY && num_steps < 20; num_steps++) {
        make_step(0);
        status = match(req, 200, &n);
    }
    assert_int_equal(status, QUIRE_OK);
    assert_int_equal(n, 200);
    assert_true(num_steps <= 2); /* finding and loading is one job */
    quire_block_span span = {others, 200};
    assert_int_equal(quire_planner_allocated(planner, req, &span, 200 * TOKENS), QUIRE_OK);
    make_step(0);
    assert_int_equal(results.num_loaded, 1);
    for (uint32_t i = 0; i < 200; i++)
        assert_true(has(others[i], i));
    assert_int_equal(stats().tiers[0].promoted_blocks, 200);
    assert_int_equal(stats().tiers[0].hit_tokens, 200 * TOKENS);
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
    unsigned char none[QUIRE_FINGERPRINT_BYTES] = "same";
    (void)none;
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
    uint64_t best_ns = UINT64_MAX;
    store(add(), LONG);
    for (uint32_t round = 0; round < 20; round++) {
        struct timespec from;
        struct timespec to;
        uint32_t n;
        quire_req req = add();
        quire_block_span span = {round % 2 == 0 ? blocks : blocks, LONG};
        for (uint32_t i = 0; i < 50 && match(req, LONG, &n) == QUIRE_RETRY; i++)
            make_step(0);
        assert_int_equal(n, LONG);
        assert_int_equal(quire_planner_allocated(planner, req, &span, LONG * TOKENS), QUIRE_OK);
        num_allocations = 0;
        (void)clock_gettime(CLOCK_MONOTONIC, &from);
        assert_int_equal(quire_planner_plan(planner, ++step, 0, 0, &out), QUIRE_OK);
        (void)clock_gettime(CLOCK_MONOTONIC, &to);
        assert_int_equal(num_allocations, 0);
        assert_true(out.plan.len > LONG * 8);
        assert_int_equal(out.num_held, LONG);
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
    printf("plan of %d blocks, %zu bytes: %.1f us\n", (int)LONG, out.plan.len,
           (double)best_ns / 1000);
}

int main(void)
{
#define IN_WORLD(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)
    const struct CMUnitTest tests[] = {
        IN_WORLD(stored_and_loaded), IN_WORLD(one_load_for_many), IN_WORLD(loaded_from_tiers),
        IN_WORLD(a_rank_that_fails), IN_WORLD(failed_loads),      IN_WORLD(ended_while_loading),
        IN_WORLD(preempted),         IN_WORLD(lost_worker),       IN_WORLD(identity),
        IN_WORLD(learned_costs),     IN_WORLD(plan_of_many_hits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
