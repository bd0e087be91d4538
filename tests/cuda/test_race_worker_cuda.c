/* cuda/test_race_worker_cuda.c - the race of test_race_cuda.c through a planner and the workers of
 * two ranks: marks are those that quire_worker_submit takes.
 *
 *      compute    a slow kernel writes the blocks A of a request, and A is stored at once
 *      load       a slow kernel still reads the blocks B, and what A has is loaded into B at once
 *      check      a kernel compares B
 *
 * Several requests are on their way at a time; nobody waits for the engine's stream. --rounds N:
 * requests of each method; 3,000 on a real GPU. */
#include "kit.h"

#include <quire/planner.h>
#include <quire/worker.h>

enum { RANKS = 2, LAYERS = 2, WORDS = 2048, TOKENS = 16, HASH = 32, REQUESTS = 6, LENGTH = 6 };
enum { PIECE_BYTES = WORDS * 4, BLOCK_BYTES = LAYERS * PIECE_BYTES };
enum { BLOCKS = 1 + REQUESTS * 2 * LENGTH, SLOTS = 3 * REQUESTS * LENGTH };

/* With the stand-in. */
enum { FEW = KIT_IS_SLOW ? 12 : 120 };

static cuda_kit kit;
static uint64_t random_state;

typedef enum phase { COMPUTE, STORING, LOADING } phase;

typedef struct request {
    phase phase;
    quire_req req;
    unsigned char hashes[LENGTH][HASH];
    quire_block a[LENGTH];
    quire_block b[LENGTH];
    bool is_stored; /* the planner has taken all blocks */
} request;

typedef struct rank {
    quire_cuda_arena *arena;
    quire_cuda_arena_view view;
    void *slots;
    quire_device device;
    quire_worker *worker;
    uint32_t values[BLOCKS]; /* all words of a block have one value */
} rank;

static struct {
    rank ranks[RANKS];
    quire_planner *planner;
    quire_planner_results results;
    uint64_t step;
    uint32_t held[BLOCKS];
    request requests[REQUESTS];
    uint64_t next_hash;
    uint32_t next_value;
    uint32_t most_spin_us;
    uint64_t num_wrong;
    uint64_t num_done; /* requests */
} e;

/* ---- the world ------------------------------------------------------------- */

static void open_rank(uint32_t i, quire_cuda_method method, bool ignores_marks)
{
    rank *r = &e.ranks[i];
    quire_cuda_arena_config arena = QUIRE_CUDA_ARENA_CONFIG_INIT;
    quire_device_cuda_config config = QUIRE_DEVICE_CUDA_CONFIG_INIT;
    quire_worker_config worker = QUIRE_WORKER_CONFIG_INIT;
    arena.num_layers = LAYERS;
    arena.num_blocks = BLOCKS;
    arena.bytes = PIECE_BYTES;
    assert_int_equal(quire_cuda_arena_open(kit.cuda, &arena, &r->arena), QUIRE_OK);
    r->view = quire_cuda_arena_get_view(r->arena);
    assert_int_equal(quire_cuda_host_alloc(kit.cuda, SLOTS * BLOCK_BYTES, &r->slots), QUIRE_OK);
    config.cuda = kit.cuda;
    config.regions = r->view.regions;
    config.num_regions = LAYERS;
    config.num_blocks = BLOCKS;
    config.num_slots = SLOTS;
    config.slots = r->slots;
    config.pin = QUIRE_OFF;
    config.method = method;
    config.stage_bytes = 2 * BLOCK_BYTES;
    assert_int_equal(quire_device_cuda_open(&config, NULL, &r->device), QUIRE_OK);
    assert_int_equal(quire_device_cuda_ignore_marks(&r->device, ignores_marks), QUIRE_OK);
    worker.rank = worker.key_rank = i;
    worker.num_ranks = RANKS;
    worker.device = r->device;
    worker.memory = r->slots;
    worker.block_bytes = BLOCK_BYTES;
    worker.num_slots = SLOTS;
    assert_int_equal(quire_worker_create(&worker, NULL, &r->worker), QUIRE_OK);
}

static void open_planner(void)
{
    static const quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                                      .block_size = TOKENS,
                                                      .num_kv_heads = 1,
                                                      .head_size = 8,
                                                      .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_cache_config cache = QUIRE_CACHE_CONFIG_INIT;
    quire_planner_config config = QUIRE_PLANNER_CONFIG_INIT;
    cache.groups = &group;
    cache.num_groups = 1;
    cache.num_blocks = BLOCKS;
    cache.max_model_len = (LENGTH + 1) * TOKENS;
    cache.hash_block_size = TOKENS;
    cache.digest_bytes = HASH;
    config.cache = &cache;
    config.num_slots = SLOTS;
    config.block_bytes = BLOCK_BYTES;
    config.max_requests = 2 * REQUESTS;
    config.num_ranks = RANKS;
    assert_int_equal(quire_planner_create(&config, &e.planner), QUIRE_OK);
}

static void open_world(quire_cuda_method method, bool ignores_marks, uint32_t most_spin_us)
{
    memset(&e, 0, sizeof e);
    e.next_value = 1;
    e.most_spin_us = most_spin_us;
    kit_open(&kit);
    for (uint32_t i = 0; i < RANKS; i++)
        open_rank(i, method, ignores_marks);
    open_planner();
    for (uint32_t i = 0; i < REQUESTS * LENGTH; i++) {
        e.requests[i / LENGTH].a[i % LENGTH] = 1 + i;
        e.requests[i / LENGTH].b[i % LENGTH] = BLOCKS - 1 - i;
    }
}

static void close_world(void)
{
    assert_int_equal(quire_planner_check(e.planner), QUIRE_OK);
    quire_planner_destroy(e.planner);
    for (uint32_t i = 0; i < RANKS; i++) {
        rank *r = &e.ranks[i];
        assert_int_equal(quire_worker_destroy(r->worker), QUIRE_OK);
        quire_device_close(&r->device);
        quire_cuda_host_free(kit.cuda, r->slots);
        quire_cuda_arena_close(r->arena);
    }
    kit_close(&kit);
}

/* ---- the engine's stream --------------------------------------------------- */

/* Compares a block in all ranks, slowly; and writes it, each rank another value. */
static void run_kernels(quire_block block, bool is_writing)
{
    uint32_t spin_us = unit_random_below(&random_state, e.most_spin_us + 1);
    for (uint32_t i = 0; i < RANKS; i++) {
        rank *r = &e.ranks[i];
        uint32_t written = is_writing ? e.next_value++ : 0;
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            const quire_cuda_region *region = &r->view.regions[layer];
            kit_step step = {.address = region->base + block * region->stride,
                             .bytes = PIECE_BYTES,
                             .spin_us = layer == 0 ? spin_us : 0,
                             .has_check = true,
                             .expected = r->values[block],
                             .has_write = is_writing,
                             .written = written};
            kit_compute(&kit, &step);
        }
        r->values[block] = is_writing ? written : r->values[block];
    }
}

/* ---- requests -------------------------------------------------------------- */

static quire_planner_request seen(const request *r)
{
    return (quire_planner_request){.req = r->req,
                                   .hashes = r->hashes,
                                   .num_hashes = LENGTH,
                                   .num_tokens = LENGTH * TOKENS + 1};
}

static bool has_held(const request *r)
{
    bool is_held = false;
    for (uint32_t i = 0; i < LENGTH; i++)
        is_held = is_held || e.held[r->a[i]] > 0;
    return is_held;
}

static void compute(request *r)
{
    for (uint32_t i = 0; i < LENGTH; i++) {
        uint64_t number = e.next_hash++;
        memset(r->hashes[i], 0, HASH);
        memcpy(r->hashes[i], &number, sizeof number);
        run_kernels(r->a[i], true);
    }
    assert_int_equal(quire_planner_add(e.planner, &r->req), QUIRE_OK);
    r->is_stored = false;
    r->phase = STORING;
}

static void store(request *r)
{
    quire_planner_request now = seen(r);
    quire_block_span span = {r->a, LENGTH};
    int status = quire_planner_computed(e.planner, &now, &span, LENGTH * TOKENS);
    assert_true(status == QUIRE_OK || status == QUIRE_RETRY);
    r->is_stored = status == QUIRE_OK;
}

/* Another request with the same blocks finds them, and gets blocks that are still being read. */
static void load(request *r)
{
    quire_block_span span = {r->b, LENGTH};
    uint32_t num_external = 0;
    assert_int_equal(quire_planner_finished(e.planner, r->req), QUIRE_OK);
    assert_int_equal(quire_planner_add(e.planner, &r->req), QUIRE_OK);
    quire_planner_request now = seen(r);
    assert_int_equal(quire_planner_match(e.planner, &now, 0, &num_external), QUIRE_OK);
    assert_int_equal(num_external, LENGTH * TOKENS);
    for (uint32_t i = 0; i < LENGTH; i++)
        run_kernels(r->b[i], false);
    assert_int_equal(quire_planner_allocated(e.planner, r->req, &span, num_external), QUIRE_OK);
    r->phase = LOADING;
}

static void take_loaded(request *r)
{
    for (uint32_t i = 0; i < LENGTH; i++) {
        for (uint32_t k = 0; k < RANKS; k++)
            e.ranks[k].values[r->b[i]] = e.ranks[k].values[r->a[i]];
        run_kernels(r->b[i], false);
    }
    assert_int_equal(quire_planner_finished(e.planner, r->req), QUIRE_OK);
    r->phase = COMPUTE;
    e.num_done++;
}

/* ---- steps ----------------------------------------------------------------- */

static void make_plan(void)
{
    quire_planner_out out;
    assert_int_equal(quire_planner_plan(e.planner, ++e.step, 1, 1, &out), QUIRE_OK);
    for (uint32_t i = 0; i < out.num_held; i++)
        e.held[out.held[i]]++;
    for (uint32_t i = 0; i < RANKS && out.plan.len > 0; i++)
        assert_int_equal(quire_worker_submit(e.ranks[i].worker, out.plan), QUIRE_OK);
}

static void take_reports(void)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        quire_bytes report;
        assert_int_equal(quire_worker_poll(e.ranks[i].worker, &report), QUIRE_OK);
        if (report.len > 0)
            assert_int_equal(quire_planner_report(e.planner, report), QUIRE_OK);
    }
    assert_int_equal(quire_planner_get_results(e.planner, e.step, &e.results), QUIRE_OK);
    assert_int_equal(e.results.num_failed, 0);
    for (uint32_t i = 0; i < e.results.num_released; i++)
        e.held[e.results.released[i]]--;
    for (uint32_t i = 0; i < e.results.num_loaded; i++)
        for (uint32_t k = 0; k < REQUESTS; k++)
            if (e.requests[k].phase == LOADING && e.requests[k].req == e.results.loaded[i])
                take_loaded(&e.requests[k]);
}

static void make_step(bool may_begin)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        request *r = &e.requests[i];
        if (r->phase == COMPUTE && may_begin && unit_random_below(&random_state, 3) == 0)
            compute(r);
        if (r->phase == STORING && !r->is_stored)
            store(r);
        else if (r->phase == STORING && !has_held(r))
            load(r);
    }
    make_plan();
    take_reports();
}

static bool is_idle(void)
{
    bool is_busy = quire_planner_has_pending(e.planner) != 0;
    for (uint32_t i = 0; i < REQUESTS; i++)
        is_busy = is_busy || e.requests[i].phase != COMPUTE;
    return !is_busy;
}

static void run(uint64_t num_requests)
{
    uint64_t end = e.num_done + num_requests;
    while (e.num_done < end || !is_idle()) {
        make_step(e.num_done < end);
        if (e.step % 64 == 0) /* an engine's stream is not filled without end */
            e.num_wrong += kit_surprises(&kit);
    }
    e.num_wrong += kit_surprises(&kit);
}

/* ---- tests ----------------------------------------------------------------- */

static const quire_cuda_method METHODS[] = {QUIRE_CUDA_KERNEL, QUIRE_CUDA_BATCH, QUIRE_CUDA_LOOP,
                                            QUIRE_CUDA_STAGED, QUIRE_CUDA_ROWS};

static void with_marks_nothing_is_early(void **state)
{
    (void)state;
    uint32_t rounds = kit.num_rounds != 0 ? kit.num_rounds : (kit.fake != NULL ? FEW : 3000);
    for (size_t m = 0; m < COUNT(METHODS); m++) {
        open_world(METHODS[m], false, 60);
        run(rounds);
        print_message("method %d: %llu requests in %llu steps, %llu surprises\n", (int)METHODS[m],
                      (unsigned long long)e.num_done, (unsigned long long)e.step,
                      (unsigned long long)e.num_wrong);
        assert_int_equal(e.num_wrong, 0);
        close_world();
    }
}

/* The races are meant, and seen by TSan too. */
static void without_marks_it_is_seen(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip();
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    skip();
#endif
#endif
    for (size_t m = 0; m < COUNT(METHODS); m++) {
        open_world(METHODS[m], true, 1000);
        for (int i = 0; i < 20 && e.num_wrong == 0; i++) /* it is a matter of luck */
            run(REQUESTS);
        print_message("method %d: %llu surprises\n", (int)METHODS[m],
                      (unsigned long long)e.num_wrong);
        assert_true(e.num_wrong > 0);
        close_world();
    }
}

int main(int argc, char **argv)
{
    random_state = unit_seed(argc, argv, 1);
    kit_init(&kit, argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_marks_nothing_is_early),
        cmocka_unit_test(without_marks_it_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
