/* cuda/test_race_cuda.c - copies beside a computation that is slow on purpose.
 *
 * Without waiting for the engine's stream a store reads what is not computed yet, and a load writes
 * over what is still being read: first that both are seen then, and next that neither is ever seen
 * with the waiting, whatever is in flight. --rounds N: how often; 10,000 on a real GPU. */
#include "kit.h"

#include <quire/tier.h>

#include <stdlib.h>

enum { BLOCKS = 24, SLOTS = 24, LAYERS = 2, WORDS = 4096, MOST_COPIES = 4, MOST_JOBS = 8 };
enum { PIECE_BYTES = WORDS * 4, BLOCK_BYTES = LAYERS * PIECE_BYTES };

/* With the stand-in. */
enum { FEW = KIT_IS_SLOW ? 10 : 60, MANY = KIT_IS_SLOW ? 200 : 1500 };

static cuda_kit kit;
static uint64_t random_state;

typedef struct engine_job {
    quire_device_job job;
    quire_device_copy copies[MOST_COPIES];
    uint32_t values[MOST_COPIES];
    bool is_out;
} engine_job;

typedef struct engine {
    quire_cuda_arena *arena;
    quire_cuda_arena_view view;
    quire_device device;
    uint32_t *slots;
    uint32_t values[BLOCKS]; /* all words of a block have one value */
    bool is_busy[BLOCKS];
    bool is_slot_busy[SLOTS];
    engine_job jobs[MOST_JOBS];
    uint32_t next_value;
    uint64_t num_wrong; /* slots that do not have what was computed */
    uint64_t num_stores;
    uint64_t num_loads;
    uint64_t num_steps;
} engine;

/* ---- an engine ------------------------------------------------------------- */

static void open_engine(engine *e, quire_cuda_method method, bool ignores_marks)
{
    void *slots = NULL;
    quire_cuda_arena_config arena = QUIRE_CUDA_ARENA_CONFIG_INIT;
    quire_device_cuda_config config = QUIRE_DEVICE_CUDA_CONFIG_INIT;
    *e = (engine){.next_value = 1};
    kit_open(&kit);
    arena.num_layers = LAYERS;
    arena.num_blocks = BLOCKS;
    arena.bytes = PIECE_BYTES;
    assert_int_equal(quire_cuda_arena_open(kit.cuda, &arena, &e->arena), QUIRE_OK);
    e->view = quire_cuda_arena_get_view(e->arena);
    assert_int_equal(quire_cuda_host_alloc(kit.cuda, SLOTS * BLOCK_BYTES, &slots), QUIRE_OK);
    e->slots = slots;
    config.cuda = kit.cuda;
    config.regions = e->view.regions;
    config.num_regions = LAYERS;
    config.num_blocks = BLOCKS;
    config.num_slots = SLOTS;
    config.slots = slots;
    config.pin = QUIRE_OFF;
    config.method = method;
    config.crc = QUIRE_CUDA_CRC_GPU;
    config.stage_bytes = 2 * BLOCK_BYTES;
    assert_int_equal(quire_device_cuda_open(&config, NULL, &e->device), QUIRE_OK);
    assert_int_equal(quire_device_cuda_ignore_marks(&e->device, ignores_marks), QUIRE_OK);
}

static void close_engine(engine *e)
{
    quire_device_close(&e->device);
    quire_cuda_host_free(kit.cuda, e->slots);
    quire_cuda_arena_close(e->arena);
    kit_close(&kit);
}

/* A step that reads a block, and writes it where is_writing: the layers one after the other. */
static void step_block(engine *e, quire_block block, uint32_t spin_us, bool is_writing)
{
    uint32_t written = is_writing ? e->next_value++ : 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const quire_cuda_region *region = &e->view.regions[layer];
        kit_step step = {.address = region->base + block * region->stride,
                         .bytes = PIECE_BYTES,
                         .spin_us = layer == 0 ? spin_us : 0,
                         .has_check = true,
                         .expected = e->values[block],
                         .has_write = is_writing,
                         .written = written};
        kit_compute(&kit, &step);
    }
    e->values[block] = is_writing ? written : e->values[block];
    e->num_steps++;
}

static uint32_t *slot_words(const engine *e, uint32_t slot)
{
    return e->slots + (size_t)slot * LAYERS * WORDS;
}

static bool has_value(const engine *e, uint32_t slot, uint32_t value)
{
    const uint32_t *words = slot_words(e, slot);
    for (uint32_t i = 0; i < LAYERS * WORDS; i++)
        if (words[i] != value)
            return false;
    return true;
}

static void end_engine_job(engine *e, engine_job *j)
{
    assert_int_equal(j->job.status, QUIRE_OK);
    for (uint32_t i = 0; i < j->job.num_copies; i++) {
        e->is_busy[j->copies[i].block] = false;
        e->is_slot_busy[j->copies[i].slot] = false;
        uint32_t crc = quire_crc32c(0, slot_words(e, j->copies[i].slot), BLOCK_BYTES);
        bool is_right = has_value(e, j->copies[i].slot, j->values[i]) && j->copies[i].crc == crc;
        if (j->job.op == QUIRE_DEVICE_STORE)
            e->num_wrong += is_right ? 0 : 1;
        else
            e->values[j->copies[i].block] = j->values[i];
    }
    j->is_out = false;
}

static void take_ended_jobs(engine *e)
{
    quire_device_job *ended[MOST_JOBS];
    uint32_t n = e->device.ops->poll(e->device.self, ended, MOST_JOBS);
    for (uint32_t i = 0; i < n; i++)
        end_engine_job(e, (engine_job *)ended[i]);
}

/* Whether there was something to do, and room for it. */
static bool has_started_job(engine *e, quire_device_op op)
{
    engine_job *j = NULL;
    for (uint32_t i = 0; i < MOST_JOBS && j == NULL; i++)
        j = e->jobs[i].is_out ? NULL : &e->jobs[i];
    uint32_t n = 0;
    if (j == NULL)
        return false;
    for (uint32_t tries = 0; tries < 8 && n < MOST_COPIES; tries++) {
        quire_block block = unit_random_below(&random_state, BLOCKS);
        uint32_t slot = unit_random_below(&random_state, SLOTS);
        if (e->is_busy[block] || e->is_slot_busy[slot])
            continue;
        e->is_busy[block] = true;
        e->is_slot_busy[slot] = true;
        j->values[n] = op == QUIRE_DEVICE_STORE ? e->values[block] : e->next_value++;
        for (uint32_t i = 0; op == QUIRE_DEVICE_LOAD && i < LAYERS * WORDS; i++)
            slot_words(e, slot)[i] = j->values[n];
        j->copies[n++] = (quire_device_copy){block, slot, 0};
    }
    if (n == 0)
        return false;
    kit_submit(&e->device, &j->job, op, j->copies, n);
    j->is_out = true;
    e->num_stores += op == QUIRE_DEVICE_STORE ? n : 0;
    e->num_loads += op == QUIRE_DEVICE_LOAD ? n : 0;
    return true;
}

static void end_all_jobs(engine *e)
{
    while (quire_device_cuda_get_stats(&e->device)->in_flight > 0)
        take_ended_jobs(e);
}

/* Steps, stores and loads at random, as many in flight as there may be; each block is used by one
 * of them at a time, as a scheduler does it, but nobody waits for the engine's stream. */
static void run_engine(engine *e, uint32_t num_rounds, uint32_t most_spin_us)
{
    uint32_t round = 0;
    while (round < num_rounds) {
        uint32_t what = unit_random_below(&random_state, 8);
        quire_block block = unit_random_below(&random_state, BLOCKS);
        bool has_begun = false;
        take_ended_jobs(e);
        if (what < 4) {
            has_begun = has_started_job(e, what < 2 ? QUIRE_DEVICE_STORE : QUIRE_DEVICE_LOAD);
        } else if (!e->is_busy[block]) {
            step_block(e, block, unit_random_below(&random_state, most_spin_us + 1), what < 7);
            has_begun = true;
        }
        round += has_begun ? 1 : 0;
        if (has_begun && round % 64 == 0) /* an engine's stream is not filled without end */
            e->num_wrong += kit_surprises(&kit);
    }
    end_all_jobs(e);
    e->num_wrong += kit_surprises(&kit);
}

/* ---- tests ----------------------------------------------------------------- */

/* A store of what is still being computed: whether the slot has what it was before. */
static bool is_store_early(engine *e, uint32_t spin_us)
{
    engine_job *j = &e->jobs[0];
    uint64_t before = e->num_wrong;
    j->copies[0] = (quire_device_copy){1, 1, 0};
    step_block(e, 1, spin_us, true);
    j->values[0] = e->values[1];
    kit_submit(&e->device, &j->job, QUIRE_DEVICE_STORE, j->copies, 1);
    (void)kit_wait_for_job(&e->device);
    end_engine_job(e, j);
    return e->num_wrong != before;
}

/* A load into what is still being read: whether the reader has seen it. */
static bool is_load_early(engine *e, uint32_t spin_us)
{
    engine_job *j = &e->jobs[0];
    j->copies[0] = (quire_device_copy){2, 2, 0};
    j->values[0] = e->next_value++;
    for (uint32_t i = 0; i < LAYERS * WORDS; i++)
        slot_words(e, 2)[i] = j->values[0];
    step_block(e, 2, spin_us, false);
    kit_submit(&e->device, &j->job, QUIRE_DEVICE_LOAD, j->copies, 1);
    (void)kit_wait_for_job(&e->device);
    end_engine_job(e, j);
    return kit_surprises(&kit) > 0;
}

/* The races are meant, and seen by TSan too; those with waiting are none. */
static void skip_under_tsan(void)
{
#if defined(__SANITIZE_THREAD__)
    skip();
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    skip();
#endif
#endif
}

static const quire_cuda_method METHODS[] = {QUIRE_CUDA_KERNEL, QUIRE_CUDA_BATCH, QUIRE_CUDA_LOOP,
                                            QUIRE_CUDA_STAGED, QUIRE_CUDA_ROWS};

static void without_waiting_the_harm_is_seen(void **state)
{
    (void)state;
    skip_under_tsan();
    for (size_t m = 0; m < COUNT(METHODS); m++) {
        engine e;
        uint32_t num_stores = 0;
        uint32_t num_loads = 0;
        open_engine(&e, METHODS[m], true);
        for (int i = 0; i < 20; i++) {
            num_stores += is_store_early(&e, 2000) ? 1 : 0;
            num_loads += is_load_early(&e, 2000) ? 1 : 0;
        }
        close_engine(&e);
        print_message("method %d: %u of 20 stores too early, %u of 20 loads\n", (int)METHODS[m],
                      num_stores, num_loads);
        assert_true(num_stores > 0);
        assert_true(num_loads > 0);
    }
}

static void with_waiting_it_never_is(void **state)
{
    (void)state;
    uint32_t rounds = kit.num_rounds != 0 ? kit.num_rounds : (kit.fake != NULL ? FEW : 10000);
    for (size_t m = 0; m < COUNT(METHODS); m++) {
        engine e;
        uint32_t num_early = 0;
        open_engine(&e, METHODS[m], false);
        for (uint32_t i = 0; i < rounds; i++) {
            uint32_t spin_us = unit_random_below(&random_state, 100);
            num_early += is_store_early(&e, spin_us) ? 1 : 0;
            num_early += is_load_early(&e, spin_us) ? 1 : 0;
        }
        close_engine(&e);
        print_message("method %d: %u of %u stores and as many loads too early\n", (int)METHODS[m],
                      num_early, rounds);
        assert_int_equal(num_early, 0);
    }
}

static void with_much_in_flight(void **state)
{
    (void)state;
    uint32_t rounds = kit.num_rounds != 0 ? kit.num_rounds : (kit.fake != NULL ? MANY : 30000);
    uint32_t least = rounds / 50;
    for (size_t m = 0; m < COUNT(METHODS); m++) {
        engine e;
        open_engine(&e, METHODS[m], false);
        for (int i = 0; i < 50 && (e.num_stores <= least || e.num_loads <= least); i++)
            run_engine(&e, rounds, 60); /* more often where a busy machine ends few jobs in time */
        close_engine(&e);
        print_message("method %d: %llu steps, %llu stores, %llu loads, %llu surprises\n",
                      (int)METHODS[m], (unsigned long long)e.num_steps,
                      (unsigned long long)e.num_stores, (unsigned long long)e.num_loads,
                      (unsigned long long)e.num_wrong);
        assert_int_equal(e.num_wrong, 0);
        assert_true(e.num_stores > least && e.num_loads > least);
    }
}

static void with_much_in_flight_and_no_waiting(void **state)
{
    (void)state;
    engine e;
    skip_under_tsan();
    open_engine(&e, QUIRE_CUDA_KERNEL, true);
    for (int i = 0; i < 20 && e.num_wrong == 0; i++) /* it is a matter of luck */
        run_engine(&e, kit.fake != NULL ? 300 : 5000, 500);
    print_message("%llu surprises\n", (unsigned long long)e.num_wrong);
    assert_true(e.num_wrong > 0);
    close_engine(&e);
}

int main(int argc, char **argv)
{
    random_state = unit_seed(argc, argv, 1);
    kit_init(&kit, argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_waiting_the_harm_is_seen),
        cmocka_unit_test(with_waiting_it_never_is),
        cmocka_unit_test(with_much_in_flight),
        cmocka_unit_test(with_much_in_flight_and_no_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
