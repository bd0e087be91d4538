/* tier/offload/test_offload.c - what quire/offload.h promises, one thing at a time. (Linked so that
 * requests for memory come here.) */
#include "tier/offload/offload_world.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- memory ----------------------------------------------------------------- */

static uint64_t num_allocations;
static bool has_no_memory;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    num_allocations++;
    return has_no_memory ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    num_allocations++;
    return has_no_memory ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    num_allocations++;
    return has_no_memory ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    num_allocations++;
    return has_no_memory ? NULL : __real_aligned_alloc(alignment, size);
}

/* ---- a quiet world ---------------------------------------------------------- */

static world the_world;

/* What the engine has is forgotten, what the CPU pool has is not. */
static void forget_engine(world *w)
{
    assert_int_equal(quire_sched_reset_prefix_cache(w->sched, 0, 0), QUIRE_OK);
}

/* ---- stores ----------------------------------------------------------------- */

/* Who had each block of the engine last. */
static uint32_t owners[WORLD_MAX_BLOCKS];

static void note_owner(const world *w, const world_request *r, uint32_t owner)
{
    quire_block_span blocks = {0};
    if (quire_sched_get_blocks(w->sched, r->req, &blocks) != QUIRE_OK)
        return;
    for (uint32_t i = 0; i < blocks.count; i++)
        owners[blocks.ids[i]] = owner;
}

/* What was stored is evicted next, as before: behind what is looked at, older requests' blocks come
 * before younger ones'. */
static void lazy_blocks_stay_cold(void **state)
{
    (void)state;
    enum { LOOKED_AT = 24 };
    quire_block blocks[WORLD_MAX_BLOCKS];
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_LAZY, false);
    setup.num_cpu = 200;
    world_open(w, &setup);
    const quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(w->sched));
    memset(owners, 0, sizeof owners);
    for (uint32_t i = 0; i < 12; i++) {
        world_request *r = world_ask(w, 100 * i, 40 + 3 * i, 2);
        while (quire_sched_get_num_unfinished(w->sched) > 0 || w->num_flight > 0) {
            world_turn(w);
            note_owner(w, r, i + 1);
        }
        world_drain(w);
        assert_int_equal(quire_pool_get_all_free_blocks(pool, blocks, WORLD_MAX_BLOCKS), 63);
        for (uint32_t k = LOOKED_AT; k + 1 < 63; k++)
            assert_true(owners[blocks[k]] <= owners[blocks[k + 1]]);
    }
    assert_true(world_stats(w).stored_blocks > 60);
    world_close(w);
}

/* A turn in which no copy ends, or the oldest one. Time stands still: nothing is late. */
static void turn_slowly(world *w, bool one_ends)
{
    world_job *oldest = NULL;
    for (uint32_t i = 0; i < w->num_jobs; i++) {
        w->jobs[i].after = UINT64_MAX;
        if (oldest == NULL || w->jobs[i].event < oldest->event)
            oldest = &w->jobs[i];
    }
    if (oldest != NULL && one_ends)
        oldest->after = 0;
    w->clock = 0;
    world_turn(w);
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

/* All blocks are cold, and there are many more than the CPU pool has. What is stored comes back to
 * the head of the queue, a few at a time: an idle engine must not store the same round and round,
 * and in the end has stored what will be evicted next. */
static void lazy_comes_to_rest(void **state)
{
    (void)state;
    enum { LOOKED_AT = 24, MOST_IDLE = 1000 };
    for (uint32_t num_cpu = 8; num_cpu <= 64; num_cpu += 4) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_LAZY, false);
        setup.num_gpu = 128;
        setup.num_cpu = num_cpu;
        setup.max_events = 64;
        world_open(w, &setup);
        for (uint32_t i = 0; i < 200; i++) { /* of each, one block is kept */
            world_ask(w, 100 * i, 5, 1);
            while (quire_sched_get_num_unfinished(w->sched) > 0 || w->num_flight > 0)
                turn_slowly(w, false);
        }
        assert_true(world_stats(w).stores_in_flight > 0);
        for (uint32_t turn = 0; quire_offload_has_pending(w->offload); turn++) {
            turn_slowly(w, turn % 8 == 0);
            assert_true(turn < MOST_IDLE);
        }
        uint32_t looked_at = num_cpu < 2 * LOOKED_AT ? num_cpu / 2 : LOOKED_AT;
        assert_int_equal(count_missing(w, looked_at / 2), 0); /* the rest is not due yet */
        world_drain(w);
        world_close(w);
    }
}

static void failed_stores_are_not_there(void **state)
{
    (void)state;
    for (uint32_t has_device = 0; has_device < 2; has_device++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, has_device != 0);
        setup.fail_percent = 100;
        world_open(w, &setup);
        world_ask(w, 10, 24, 3);
        world_drain(w);
        assert_int_equal(world_num_cpu_keys(w), 0);
        assert_int_equal(world_stats(w).stored_blocks, 0);
        assert_true(world_stats(w).failed_stores > 0);
        world_close(w);
    }
}

/* Requests end although the device does not; afterwards nothing of it counts. */
static void stores_that_hang_stop_nobody(void **state)
{
    (void)state;
    for (uint32_t mode = 0; mode < 4; mode++) {
        world *w = &the_world;
        world_setup setup =
            world_quiet((mode & 1) != 0 ? QUIRE_OFFLOAD_LAZY : QUIRE_OFFLOAD_EAGER, true);
        setup.stores_hang = true;
        setup.is_async = mode >= 2;
        world_open(w, &setup);
        for (uint32_t i = 0; i < 40; i++)
            world_ask(w, 100 * i, 70, 12);
        uint32_t turns = 0;
        while (quire_sched_get_num_unfinished(w->sched) > 0) {
            world_turn(w);
            assert_true(++turns < 5000);
        }
        assert_int_equal(world_stats(w).hit_tokens, 0);
        w->setup.stores_hang = false;
        world_drain(w);
        world_close(w);
    }
}

static void a_device_that_hangs_is_left_behind(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
    setup.stores_hang = true;
    world_open(w, &setup);
    world_ask(w, 10, 42, 6);
    while (w->num_jobs == 0)
        world_turn(w);
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    assert_int_equal(quire_offload_destroy(w->offload), QUIRE_BUSY);
    assert_int_equal(quire_offload_abandon(w->offload), QUIRE_OK);
    assert_int_equal(quire_offload_poll(w->offload, 1, &output), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_offload_abandon(NULL), QUIRE_E_ARGUMENT);
    world_close(w);
}

static void stores_of_a_reset_do_not_count(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
    setup.pace_percent = 0; /* copies stay on the way */
    world_open(w, &setup);
    world_ask(w, 10, 24, 3);
    while (quire_sched_get_num_unfinished(w->sched) > 0 || w->num_flight > 0)
        world_turn(w);
    assert_true(world_stats(w).stores_in_flight > 0);
    assert_int_equal(quire_offload_destroy(w->offload), QUIRE_BUSY);
    world_reset(w, false);
    w->setup.pace_percent = 100;
    world_drain(w);
    assert_int_equal(world_num_cpu_keys(w), 0);
    world_close(w);
}

/* ---- loads ------------------------------------------------------------------ */

static void hits_are_loaded(void **state)
{
    (void)state;
    for (uint32_t mode = 0; mode < 4; mode++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, (mode & 1) != 0);
        setup.is_hybrid = mode >= 2;
        setup.num_gpu = 128;
        world_open(w, &setup);
        world_ask(w, 10, 42, 1);
        world_drain(w);
        forget_engine(w);
        world_ask(w, 10, 42, 2);
        world_drain(w);
        assert_int_equal(world_stats(w).hit_tokens, 40);
        assert_true(world_stats(w).loaded_blocks >= 10);
        assert_int_equal(world_stats(w).loads_in_flight, 0);
        world_close(w);
    }
}

static void failed_loads_are_computed(void **state)
{
    (void)state;
    for (uint32_t has_device = 0; has_device < 2; has_device++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, has_device != 0);
        world_open(w, &setup);
        world_ask(w, 10, 42, 1);
        world_drain(w);
        forget_engine(w);
        w->setup.fail_percent = 100;
        world_ask(w, 10, 42, 2);
        world_drain(w);
        assert_int_equal(world_stats(w).failed_loads, 1); /* and it was not tried again */
        assert_int_equal(w->num_finished, 2);
        world_close(w);
    }
}

static void waiting_requests_keep_their_blocks(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
    world_open(w, &setup);
    world_ask(w, 10, 42, 1);
    world_drain(w);
    forget_engine(w);
    assert_int_equal(quire_sched_set_pause(w->sched, QUIRE_PAUSED_NEW), QUIRE_OK);
    world_request *r = world_ask(w, 10, 42, 2);
    for (uint32_t i = 0; i < 8; i++)
        world_turn(w);
    assert_int_equal(world_stats(w).expected_blocks, 10);
    assert_int_equal(world_stats(w).cpu.active, 10);
    (void)quire_sched_finish(w->sched, &r->req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
    assert_int_equal(world_stats(w).expected_blocks, 0);
    assert_int_equal(quire_sched_set_pause(w->sched, QUIRE_UNPAUSED), QUIRE_OK);
    world_drain(w);
    world_close(w);
}

/* Stores find room where only waiting requests' blocks are. */
static void the_last_in_the_queue_give_way(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
    setup.num_cpu = 11; /* the first request takes them all */
    world_open(w, &setup);
    world_ask(w, 10, 42, 1);
    world_drain(w);
    forget_engine(w);
    world_ask(w, 500, 1, 40); /* it has nothing to store before its fourth token */
    world_turn(w);
    assert_int_equal(quire_sched_set_pause(w->sched, QUIRE_PAUSED_NEW), QUIRE_OK);
    world_ask(w, 10, 42, 2);
    for (uint32_t i = 0; i < 2; i++)
        world_turn(w);
    assert_int_equal(world_stats(w).expected_blocks, 10);
    for (uint32_t i = 0; i < 60; i++)
        world_turn(w);
    assert_int_equal(world_stats(w).expected_blocks, 0);
    assert_int_equal(world_stats(w).no_room, 0);
    assert_int_equal(quire_sched_set_pause(w->sched, QUIRE_UNPAUSED), QUIRE_OK);
    world_drain(w);
    world_close(w);
}

/* ---- reports ---------------------------------------------------------------- */

/* The CPU pool is full and another request's hit is pinned when a request ends: that hit is given
 * up, and what is stored of the one that ends are its own blocks. */
static void a_hit_is_given_up_for_last_blocks(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    setup.num_gpu = 16;
    setup.num_cpu = 13;
    world_open(w, &setup);
    world_ask(w, 10, 42, 6);
    world_drain(w);
    forget_engine(w);
    world_ask(w, 1000, 40, 1);
    world_ask(w, 10, 42, 2);
    for (int i = 0; i < 6; i++)
        world_turn(w);
    world_drain(w);
    world_close(w);
}

/* What was looked up for a waiting request is told only if it still has the request's keys. */
static void what_is_known_is_looked_at_again(void **state)
{
    (void)state;
    for (uint32_t is_evicted = 0; is_evicted < 2; is_evicted++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, true);
        setup.saves_nothing = true; /* preempted requests find nothing of their own */
        world_open(w, &setup);
        world_ask(w, 10, 42, 2);
        world_drain(w);
        forget_engine(w);
        for (uint32_t i = 1; i <= 3; i++) /* the engine is full of these */
            world_ask(w, 1000 * i, 80, 8);
        world_ask(w, 10, 42, 2);
        for (uint32_t i = 0; i < 4; i++)
            world_turn(w);
        assert_true(world_stats(w).expected_blocks >= 10);
        quire_pool *pool = quire_cache_get_pool(quire_offload_cache(w->offload));
        for (quire_block b = 1; is_evicted != 0 && b < setup.num_cpu; b++)
            assert_int_equal(quire_pool_evict_blocks(pool, &b, 1), QUIRE_OK);
        world_drain(w);
        assert_int_equal(world_stats(w).hit_tokens, is_evicted != 0 ? 0 : 40);
        assert_int_equal(world_stats(w).expected_blocks, 0);
        world_close(w);
    }
}

static void wrong_reports_change_nothing(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    setup.pace_percent = 0;
    world_open(w, &setup);
    world_request *r = world_ask(w, 10, 42, 6);
    for (uint32_t i = 0; i < 12; i++)
        world_turn(w);
    assert_true(w->num_jobs > 0);
    uint64_t events[2] = {w->jobs[0].event, 777};
    quire_offload_report report = {
        .size = sizeof(quire_offload_report), .stored_events = events, .num_stored = 2};
    assert_int_equal(quire_offload_tell(w->offload, &report), QUIRE_E_UNKNOWN_REQ);
    report = (quire_offload_report){
        .size = sizeof(quire_offload_report), .loaded = &r->req, .num_loaded = 1};
    assert_int_equal(quire_offload_tell(w->offload, &report), QUIRE_E_UNKNOWN_REQ);
    report = (quire_offload_report){.size = sizeof(quire_offload_report), .num_stored = 1};
    assert_int_equal(quire_offload_tell(w->offload, &report), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_offload_tell(w->offload, NULL), QUIRE_E_ARGUMENT);
    w->setup.pace_percent = 100;
    world_drain(w);
    report = (quire_offload_report){
        .size = sizeof(quire_offload_report), .stored_events = events, .num_stored = 1};
    assert_int_equal(quire_offload_tell(w->offload, &report), QUIRE_E_UNKNOWN_REQ);
    world_close(w);
}

/* ---- making ----------------------------------------------------------------- */

static void configs_are_looked_at(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    world_open(w, &setup);
    quire_sched_config sched = world_sched_config(w);
    quire_offload_config config = QUIRE_OFFLOAD_CONFIG_INIT;
    quire_offload *offload = NULL;
    config.num_cpu_blocks = 20;
    assert_int_equal(quire_offload_create(&config, NULL, &offload), QUIRE_E_ARGUMENT);
    config.sched = &sched;
    assert_true(quire_offload_bytes(&config) > 0);
    assert_int_equal(quire_offload_create(&config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_offload_create(NULL, NULL, &offload), QUIRE_E_ARGUMENT);
    sched.cache->enable_caching = QUIRE_OFF;
    assert_int_equal(quire_offload_create(&config, NULL, &offload), QUIRE_E_CONFIG);
    assert_int_equal(quire_offload_bytes(&config), 0);
    sched = world_sched_config(w);
    sched.cache->dcp_world_size = 2;
    assert_true(quire_offload_bytes(&config) > 0);
    sched = world_sched_config(w);
    w->groups[0].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    w->groups[0].spec.sliding_window = 9;
    assert_true(quire_offload_bytes(&config) > 0);
    config.num_cpu_blocks = 0;
    assert_int_equal(quire_offload_create(&config, NULL, &offload), QUIRE_E_CONFIG);
    sched = world_sched_config(w);
    sched.cache->num_blocks = 40; /* of another scheduler */
    config = (quire_offload_config)QUIRE_OFFLOAD_CONFIG_INIT;
    config.num_cpu_blocks = 20;
    config.sched = &sched;
    assert_int_equal(quire_offload_create(&config, NULL, &offload), QUIRE_OK);
    assert_int_equal(quire_offload_bind(offload, w->sched), QUIRE_E_CONFIG);
    assert_int_equal(quire_offload_bind(offload, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_offload_destroy(offload), QUIRE_OK);
    assert_int_equal(quire_offload_destroy(NULL), QUIRE_OK);
    world_close(w);
}

static void lives_in_the_callers_memory(void **state)
{
    (void)state;
    world *w = &the_world;
    world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, false);
    world_open(w, &setup);
    quire_sched_config sched = world_sched_config(w);
    quire_offload_config config = QUIRE_OFFLOAD_CONFIG_INIT;
    quire_offload *offload = NULL;
    config.num_cpu_blocks = 20;
    config.sched = &sched;
    size_t bytes = quire_offload_bytes(&config);
    unsigned char *memory = aligned_alloc(QUIRE_ALIGNMENT, bytes + QUIRE_ALIGNMENT);
    assert_non_null(memory);
    quire_allocator small = quire_allocator_fixed(memory, bytes - 1);
    quire_allocator shifted = quire_allocator_fixed(memory + 1, bytes);
    quire_allocator mine = quire_allocator_fixed(memory, bytes);
    assert_int_equal(quire_offload_create(&config, &small, &offload), QUIRE_E_TOO_SMALL);
    assert_int_equal(quire_offload_create(&config, &shifted, &offload), QUIRE_E_ALIGNMENT);
    memset(memory, 0xa5, bytes); /* need not be zero */
    assert_int_equal(quire_offload_create(&config, &mine, &offload), QUIRE_OK);
    assert_int_equal(quire_offload_bind(offload, w->sched), QUIRE_OK);
    assert_int_equal(quire_offload_check(offload), QUIRE_OK);
    assert_int_equal(quire_offload_destroy(offload), QUIRE_OK);
    assert_int_equal(quire_offload_check(offload), QUIRE_E_ARGUMENT);
    free(memory);
    has_no_memory = true;
    int err = quire_offload_create(&config, NULL, &offload);
    has_no_memory = false;
    assert_int_equal(err, QUIRE_E_NOMEM);
    world_close(w);
}

static void nothing_is_allocated_in_steps(void **state)
{
    (void)state;
    for (uint32_t mode = 0; mode < 4; mode++) {
        world *w = &the_world;
        world_setup setup = world_quiet((mode & 1) != 0 ? QUIRE_OFFLOAD_LAZY : QUIRE_OFFLOAD_EAGER,
                                        (mode & 2) != 0);
        setup.fail_percent = 5;
        setup.pace_percent = 40;
        world_open(w, &setup);
        uint64_t before = num_allocations;
        for (uint32_t i = 0; i < 400; i++) {
            if (i % 4 == 0)
                world_add(w);
            if (i % 50 == 0)
                world_abort(w);
            world_turn(w);
        }
        world_drain(w);
        assert_int_equal(num_allocations, before);
        assert_true(world_stats(w).stored_blocks > 0);
        world_close(w);
    }
}

/* What the child of a fork gets from its copy; returns how many answers are wrong. */
static int calls_in_a_child(world *w)
{
    quire_offload_report report = QUIRE_OFFLOAD_REPORT_INIT;
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    int wrong = 0;
    wrong += quire_offload_poll(w->offload, 1, &output) != QUIRE_E_SYSTEM;
    if (!w->setup.has_device)
        wrong += quire_offload_tell(w->offload, &report) != QUIRE_E_SYSTEM;
    wrong += quire_offload_bind(w->offload, w->sched) != QUIRE_E_SYSTEM;
    wrong += quire_offload_learn(w->offload, 1, 1) != QUIRE_E_SYSTEM;
    wrong += quire_offload_abandon(w->offload) != QUIRE_E_SYSTEM;
    const quire_step *step;
    uint32_t num_jobs = w->num_jobs;
    wrong += quire_sched_schedule(w->sched, &step) != QUIRE_OK;
    wrong += w->num_jobs != num_jobs; /* the device is the parent's */
    quire_sched_destroy(w->sched);
    wrong += quire_offload_destroy(w->offload) != QUIRE_OK;
    return wrong;
}

static void a_child_has_no_device(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < 4; variant++) {
        world *w = &the_world;
        world_setup setup = world_quiet(QUIRE_OFFLOAD_EAGER, (variant & 1) != 0);
        setup.pace_percent = 30;
        world_open(w, &setup);
        for (uint32_t i = 0; i < 60; i++) {
            world_add(w);
            world_turn(w);
        }
        assert_true(w->num_jobs > 0); /* else destroy would not have to look who asks */
        (void)fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            _exit((variant & 2) != 0 ? calls_in_a_child(w) : 0);
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        for (uint32_t i = 0; i < 60; i++) {
            world_add(w);
            world_turn(w);
        }
        world_drain(w);
        world_close(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lazy_blocks_stay_cold),
        cmocka_unit_test(lazy_comes_to_rest),
        cmocka_unit_test(failed_stores_are_not_there),
        cmocka_unit_test(stores_that_hang_stop_nobody),
        cmocka_unit_test(a_device_that_hangs_is_left_behind),
        cmocka_unit_test(stores_of_a_reset_do_not_count),
        cmocka_unit_test(hits_are_loaded),
        cmocka_unit_test(failed_loads_are_computed),
        cmocka_unit_test(waiting_requests_keep_their_blocks),
        cmocka_unit_test(the_last_in_the_queue_give_way),
        cmocka_unit_test(a_hit_is_given_up_for_last_blocks),
        cmocka_unit_test(what_is_known_is_looked_at_again),
        cmocka_unit_test(wrong_reports_change_nothing),
        cmocka_unit_test(configs_are_looked_at),
        cmocka_unit_test(lives_in_the_callers_memory),
        cmocka_unit_test(nothing_is_allocated_in_steps),
        cmocka_unit_test(a_child_has_no_device),
    };
    return cmocka_run_group_tests_name("offload", tests, NULL, NULL);
}
