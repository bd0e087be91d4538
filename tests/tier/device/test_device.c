/* tier/device/test_device.c - the host device: copies in both directions wait for what was given to
 * compute before their mark, as on a GPU. First that the harm is seen without the waiting, then
 * that it never happens with it. */
#include "base/unit.h"

#include <quire/device.h>
#include <quire/tier.h>

#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 16, SLOTS = 32, BYTES = 4096, JOBS = 24, SECONDS = 20 };

static unsigned char blocks[BLOCKS][BYTES];
static unsigned char slots[SLOTS][BYTES];

static void forget_log(void *user, quire_log_level level, const char *message)
{
    (void)user;
    assert_true(level <= QUIRE_LOG_INFO && message[0] != 0);
}

static quire_device open_device(uint32_t max_jobs)
{
    quire_device device = {0};
    quire_device_host_config config = QUIRE_DEVICE_HOST_CONFIG_INIT;
    config.blocks = blocks;
    config.num_blocks = BLOCKS;
    config.slots = slots;
    config.num_slots = SLOTS;
    config.block_bytes = BYTES;
    config.max_jobs = max_jobs;
    config.hooks.log = forget_log;
    assert_int_equal(quire_device_host_open(&config, NULL, &device), QUIRE_OK);
    assert_string_equal(quire_refusal(), "");
    return device;
}

static uint64_t true_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static quire_device_job *wait_for_job(quire_device *device)
{
    quire_device_job *job = NULL;
    uint64_t end_ns = true_now() + UINT64_C(1000000000) * SECONDS;
    while (device->ops->poll(device->self, &job, 1) == 0) {
        assert_true(true_now() < end_ns);
        usleep(50);
    }
    return job;
}

static void submit_job(quire_device *device, quire_device_job *job, quire_device_op op,
                       quire_device_copy *copies, uint32_t num_copies)
{
    *job = (quire_device_job){.op = op, .copies = copies, .num_copies = num_copies, .status = 99};
    assert_int_equal(device->ops->mark(device->self, &job->after), QUIRE_OK);
    assert_int_equal(device->ops->submit(device->self, job), QUIRE_OK);
}

static bool is_filled(const unsigned char *memory, int value)
{
    for (size_t i = 0; i < BYTES; i++)
        if (memory[i] != value)
            return false;
    return true;
}

/* ---- copies ---------------------------------------------------------------- */

static void there_and_back(void **state)
{
    (void)state;
    quire_device device = open_device(0);
    quire_device_job job;
    quire_device_copy copies[3] = {{1, 7, 0}, {2, 0, 0}, {15, 31, 0}};
    for (int i = 0; i < 3; i++)
        memset(blocks[copies[i].block], 10 + i, BYTES);
    submit_job(&device, &job, QUIRE_DEVICE_STORE, copies, 3);
    assert_ptr_equal(wait_for_job(&device), &job);
    assert_int_equal(job.status, QUIRE_OK);
    assert_int_equal(job.state, 0);
    for (int i = 0; i < 3; i++) {
        assert_true(is_filled(slots[copies[i].slot], 10 + i));
        assert_int_equal(copies[i].crc, quire_crc32c(0, slots[copies[i].slot], BYTES));
    }
    memset(blocks, 0, sizeof blocks);
    copies[0].crc = copies[1].crc = copies[2].crc = 0;
    submit_job(&device, &job, QUIRE_DEVICE_LOAD, copies, 3);
    assert_ptr_equal(wait_for_job(&device), &job);
    for (int i = 0; i < 3; i++) {
        assert_true(is_filled(blocks[copies[i].block], 10 + i));
        assert_int_equal(copies[i].crc, quire_crc32c(0, slots[copies[i].slot], BYTES));
    }
    submit_job(&device, &job, QUIRE_DEVICE_LOAD, NULL, 0); /* nothing to do */
    assert_ptr_equal(wait_for_job(&device), &job);
    quire_device_close(&device);
    assert_null(device.ops);
    quire_device_close(&device);
    quire_device_close(NULL);
}

static void wrong_jobs(void **state)
{
    (void)state;
    quire_device device = open_device(2);
    quire_device_job job = {.op = QUIRE_DEVICE_STORE};
    quire_device_copy copy = {BLOCKS, 0, 0};
    uint64_t mark = 9;
    assert_int_equal(device.ops->mark(device.self, &mark), QUIRE_OK);
    assert_int_equal(mark, 0);
    assert_int_equal(device.ops->mark(device.self, NULL), QUIRE_E_ARGUMENT);
    job.num_copies = 1;
    assert_int_equal(device.ops->submit(device.self, &job), QUIRE_E_ARGUMENT);
    job.copies = &copy;
    assert_int_equal(device.ops->submit(device.self, &job), QUIRE_E_RANGE);
    copy = (quire_device_copy){0, SLOTS, 0};
    assert_int_equal(device.ops->submit(device.self, &job), QUIRE_E_RANGE);
    copy.slot = 0;
    job.after = 1; /* nothing was computed yet */
    assert_int_equal(device.ops->submit(device.self, &job), QUIRE_E_RANGE);
    job.after = 0;
    job.op = (quire_device_op)3;
    assert_int_equal(device.ops->submit(device.self, &job), QUIRE_E_ARGUMENT);
    assert_int_equal(device.ops->submit(device.self, NULL), QUIRE_E_ARGUMENT);
    job.op = QUIRE_DEVICE_LOAD;
    assert_int_equal(device.ops->submit(device.self, &job), QUIRE_OK);
    assert_int_equal(device.ops->submit(device.self, &job), QUIRE_E_ARGUMENT); /* in flight */
    assert_int_equal(device.ops->poll(device.self, NULL, 4), 0);
    (void)wait_for_job(&device);
    quire_device_close(&device);
}

static _Atomic uint32_t num_works;

static void count_work(void *user)
{
    (void)user;
    num_works++;
}

/* Both threads wait for work, and take no processor time meanwhile. */
static void idle_device_sleeps(void **state)
{
    (void)state;
    quire_device device = open_device(0);
    quire_device_job job;
    quire_device_copy copy = {1, 1, 0};
    submit_job(&device, &job, QUIRE_DEVICE_STORE, &copy, 1);
    (void)wait_for_job(&device);
    struct timespec before;
    struct timespec after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    usleep(200000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t used_ns =
        (after.tv_sec - before.tv_sec) * INT64_C(1000000000) + after.tv_nsec - before.tv_nsec;
    assert_true(used_ns < 20000000);
    quire_device_close(&device);
}

static void wrong_devices(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 10; wrong++) {
        quire_device device = {0};
        quire_allocator half = {0};
        quire_device_host_config config = QUIRE_DEVICE_HOST_CONFIG_INIT;
        config.blocks = wrong == 0 ? NULL : blocks;
        config.slots = wrong == 1 ? NULL : slots;
        config.num_blocks = wrong == 2 ? 0 : BLOCKS;
        config.num_slots = wrong == 3 ? 0 : SLOTS;
        config.block_bytes = wrong == 4 ? 0 : wrong == 5 ? UINT64_MAX / 2 : BYTES;
        config.max_jobs = wrong == 6 ? 65537 : 0;
        config.max_works = wrong == 7 ? 65537 : 0;
        config.size = wrong == 8 ? 1 : config.size;
        int status = quire_device_host_open(&config, wrong == 9 ? &half : NULL, &device);
        assert_int_equal(status, wrong == 9 ? QUIRE_E_ARGUMENT : QUIRE_E_CONFIG);
        assert_null(device.ops);
        assert_true(strlen(quire_refusal()) > 10);
    }
    quire_device none = {0};
    quire_device_host_faults faults = {0};
    assert_int_equal(quire_device_host_open(NULL, NULL, &none), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_device_host_compute(&none, count_work, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_device_host_compute(NULL, count_work, NULL), QUIRE_E_ARGUMENT);
    quire_device device = open_device(0);
    quire_device_ops ops = *device.ops;
    quire_device other = {.ops = &ops, .self = device.self};
    assert_int_equal(quire_device_host_compute(&device, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_device_host_compute(&other, count_work, NULL), QUIRE_E_ARGUMENT);
    quire_device_close(&device);
    assert_int_equal(num_works, 0);
    assert_int_equal(quire_device_host_set_faults(&none, &faults), QUIRE_E_ARGUMENT);
}

static uint32_t num_taken;

static void *take_memory(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    num_taken++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void give_memory_back(void *user, void *memory, size_t bytes, size_t alignment)
{
    (void)user;
    (void)bytes;
    (void)alignment;
    num_taken--;
    free(memory);
}

static void memory_of_an_allocator(void **state)
{
    (void)state;
    const quire_allocator halves[2] = {{.alloc = take_memory}, {.free = give_memory_back}};
    const quire_allocator whole = {.alloc = take_memory, .free = give_memory_back};
    quire_device device = {0};
    quire_device_host_config config = QUIRE_DEVICE_HOST_CONFIG_INIT;
    config.blocks = blocks;
    config.num_blocks = BLOCKS;
    config.slots = slots;
    config.num_slots = SLOTS;
    config.block_bytes = BYTES;
    for (int i = 0; i < 2; i++)
        assert_int_equal(quire_device_host_open(&config, &halves[i], &device), QUIRE_E_ARGUMENT);
    assert_int_equal(num_taken, 0);
    assert_int_equal(quire_device_host_open(&config, &whole, &device), QUIRE_OK);
    assert_int_equal(num_taken, 1);
    quire_device_close(&device);
    assert_int_equal(num_taken, 0);
}

/* ---- the order of compute and copies --------------------------------------- */

static _Atomic bool is_gate_open;
static _Atomic int seen; /* by the work that reads; -1: it has not yet */

static void wait_at_gate(void)
{
    while (!is_gate_open)
        usleep(50);
}

static void write_block_1(void *user)
{
    (void)user;
    wait_at_gate();
    memset(blocks[1], 0x22, BYTES);
}

static void read_block_1(void *user)
{
    (void)user;
    wait_at_gate();
    seen = blocks[1][0];
}

/* A store of what is still being computed. Returns what got into the slot. */
static int stored_while_computing(bool ignores_marks)
{
    quire_device device = open_device(0);
    quire_device_job job;
    quire_device_job *done;
    quire_device_copy copy = {1, 1, 0};
    quire_device_host_faults faults = {.ignores_marks = ignores_marks};
    memset(blocks[1], 0x11, BYTES);
    is_gate_open = false;
    assert_int_equal(quire_device_host_set_faults(&device, &faults), QUIRE_OK);
    assert_int_equal(quire_device_host_compute(&device, write_block_1, NULL), QUIRE_OK);
    submit_job(&device, &job, QUIRE_DEVICE_STORE, &copy, 1);
    if (ignores_marks) {
        (void)wait_for_job(&device);
        is_gate_open = true;
    } else {
        usleep(3000);
        assert_int_equal(device.ops->poll(device.self, &done, 1), 0);
        is_gate_open = true;
        (void)wait_for_job(&device);
    }
    int stored = slots[1][0];
    quire_device_close(&device);
    return stored;
}

/* A load into what is still being read (WAR). Returns what the work has read. */
static int read_while_loading(bool ignores_marks)
{
    quire_device device = open_device(0);
    quire_device_job job;
    quire_device_job *done;
    quire_device_copy copy = {1, 1, 0};
    quire_device_host_faults faults = {.ignores_marks = ignores_marks};
    memset(blocks[1], 0x11, BYTES);
    memset(slots[1], 0x33, BYTES);
    seen = -1;
    is_gate_open = false;
    assert_int_equal(quire_device_host_set_faults(&device, &faults), QUIRE_OK);
    assert_int_equal(quire_device_host_compute(&device, read_block_1, NULL), QUIRE_OK);
    submit_job(&device, &job, QUIRE_DEVICE_LOAD, &copy, 1);
    if (ignores_marks) {
        (void)wait_for_job(&device);
        is_gate_open = true;
    } else {
        usleep(3000);
        assert_int_equal(device.ops->poll(device.self, &done, 1), 0);
        is_gate_open = true;
        (void)wait_for_job(&device);
        assert_true(is_filled(blocks[1], 0x33));
    }
    while (seen < 0)
        usleep(50);
    quire_device_close(&device);
    return seen;
}

static void without_waiting_the_harm_is_seen(void **state)
{
    (void)state;
    assert_int_equal(stored_while_computing(true), 0x11); /* not what was being computed */
    assert_int_equal(read_while_loading(true), 0x33);     /* what another request will need */
}

static void with_waiting_it_is_not(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(stored_while_computing(false), 0x22);
        assert_int_equal(read_while_loading(false), 0x11);
    }
}

/* ---- at random ------------------------------------------------------------- */

/* A step of the engine: looks that its block has what it should, and writes the next. */
typedef struct step_work {
    quire_block block;
    unsigned char expected;
    unsigned char written;
} step_work;

static _Atomic uint64_t num_surprises;

static void run_step(void *user)
{
    const step_work *step = user;
    if (!is_filled(blocks[step->block], step->expected))
        num_surprises++;
    memset(blocks[step->block], step->written, BYTES);
}

/* Steps, stores and loads of blocks, one after the other as a scheduler would: each store gives
 * what the steps before it wrote, and each step finds what the loads before it brought. */
static void never_a_surprise(void **state)
{
    enum { ROUNDS = 1500, MOST_STEPS = 4096 };
    uint64_t *random = *state;
    static step_work steps[MOST_STEPS];
    unsigned char in_block[BLOCKS];
    quire_device device = open_device(0);
    quire_device_host_faults faults = {.compute_delay_us = 30, .copy_delay_us = 20};
    uint32_t num_steps = 0;
    uint32_t num_loads = 0;
    memset(blocks, 0, sizeof blocks);
    memset(in_block, 0, sizeof in_block);
    num_surprises = 0;
    assert_int_equal(quire_device_host_set_faults(&device, &faults), QUIRE_OK);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        quire_block block = unit_random_below(random, BLOCKS);
        for (uint32_t i = unit_random_below(random, 3); i > 0; i--) {
            step_work *step = &steps[num_steps++];
            *step = (step_work){block, in_block[block], (unsigned char)unit_random(random)};
            in_block[block] = step->written;
            while (quire_device_host_compute(&device, run_step, step) == QUIRE_FULL)
                usleep(50);
        }
        quire_device_job job;
        quire_device_copy copy = {block, block, 0};
        submit_job(&device, &job, QUIRE_DEVICE_STORE, &copy, 1);
        if (round % 4 == 0) { /* the next step waits for a load, as a request does */
            (void)wait_for_job(&device);
            assert_true(is_filled(slots[block], in_block[block]));
            quire_block other = unit_random_below(random, BLOCKS);
            memset(slots[SLOTS - 1], (int)(round & 0xff), BYTES);
            copy = (quire_device_copy){other, SLOTS - 1, 0};
            submit_job(&device, &job, QUIRE_DEVICE_LOAD, &copy, 1);
            in_block[other] = (unsigned char)(round & 0xff);
            num_loads++;
        }
        assert_ptr_equal(wait_for_job(&device), &job);
        if (job.op == QUIRE_DEVICE_STORE) {
            assert_true(is_filled(slots[block], in_block[block]));
            assert_int_equal(copy.crc, quire_crc32c(0, slots[block], BYTES));
        }
    }
    quire_device_close(&device);
    assert_int_equal(num_surprises, 0);
    assert_true(num_steps > ROUNDS / 2 && num_loads > 100);
}

static void stores_end_in_order(void **state)
{
    (void)state;
    quire_device device = open_device(JOBS);
    quire_device_job jobs[JOBS];
    quire_device_copy copies[JOBS];
    quire_device_job one_more = {.op = QUIRE_DEVICE_STORE};
    is_gate_open = false;
    assert_int_equal(quire_device_host_compute(&device, write_block_1, NULL), QUIRE_OK);
    for (uint32_t i = 0; i < JOBS; i++) {
        copies[i] = (quire_device_copy){i % BLOCKS, i, 0};
        submit_job(&device, &jobs[i], QUIRE_DEVICE_STORE, &copies[i], 1);
    }
    assert_int_equal(device.ops->submit(device.self, &one_more), QUIRE_FULL);
    assert_int_equal(one_more.state, 0);
    is_gate_open = true;
    for (uint32_t i = 0; i < JOBS; i++)
        assert_ptr_equal(wait_for_job(&device), &jobs[i]);
    assert_int_equal(device.ops->submit(device.self, &one_more), QUIRE_OK);
    (void)wait_for_job(&device);
    quire_device_close(&device);
}

/* ---- faults ---------------------------------------------------------------- */

static void copies_that_fail(void **state)
{
    (void)state;
    quire_device device = open_device(0);
    quire_device_host_faults faults = {.fail_per_mille = 500};
    quire_device_copy copies[4] = {{1, 1, 0}, {2, 2, 0}, {3, 3, 0}, {4, 4, 0}};
    uint32_t num_failed = 0;
    assert_int_equal(quire_device_host_set_faults(&device, &faults), QUIRE_OK);
    for (int i = 0; i < 200; i++) {
        quire_device_job job;
        submit_job(&device, &job, i % 2 == 0 ? QUIRE_DEVICE_STORE : QUIRE_DEVICE_LOAD, copies, 4);
        assert_ptr_equal(wait_for_job(&device), &job);
        assert_true(job.status == QUIRE_OK || job.status == QUIRE_E_SYSTEM);
        num_failed += job.status == QUIRE_OK ? 0 : 1;
    }
    assert_in_range(num_failed, 60, 140);
    quire_device_close(&device);
}

/* Not even one in thousands. */
static void no_job_fails_without_faults(void **state)
{
    (void)state;
    enum { ROUNDS = 12000 / JOBS };
    quire_device device = open_device(JOBS);
    quire_device_job jobs[JOBS];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < JOBS; i++)
            submit_job(&device, &jobs[i], QUIRE_DEVICE_STORE, NULL, 0);
        for (uint32_t i = 0; i < JOBS; i++)
            assert_int_equal(wait_for_job(&device)->status, QUIRE_OK);
    }
    quire_device_close(&device);
}

static void do_nothing(void *user)
{
    (void)user;
}

static void mark_that_is_never_reached(void **state)
{
    (void)state;
    quire_device device = open_device(0);
    quire_device_host_faults faults = {.marks_stick = 1};
    quire_device_job jobs[2];
    quire_device_job *done;
    quire_device_copy copy = {1, 1, 0};
    submit_job(&device, &jobs[0], QUIRE_DEVICE_STORE, &copy, 1);
    (void)wait_for_job(&device);
    assert_int_equal(quire_device_host_set_faults(&device, &faults), QUIRE_OK);
    assert_int_equal(quire_device_host_compute(&device, do_nothing, NULL), QUIRE_OK);
    submit_job(&device, &jobs[0], QUIRE_DEVICE_STORE, &copy, 1);
    submit_job(&device, &jobs[1], QUIRE_DEVICE_LOAD, &copy, 1);
    usleep(5000);
    assert_int_equal(device.ops->poll(device.self, &done, 1), 0);
    faults.marks_stick = 0;
    assert_int_equal(quire_device_host_set_faults(&device, &faults), QUIRE_OK);
    (void)wait_for_job(&device);
    (void)wait_for_job(&device);
    faults.marks_stick = 1;
    assert_int_equal(quire_device_host_set_faults(&device, &faults), QUIRE_OK);
    assert_int_equal(quire_device_host_compute(&device, do_nothing, NULL), QUIRE_OK);
    submit_job(&device, &jobs[0], QUIRE_DEVICE_STORE, &copy, 1);
    quire_device_close(&device); /* does not wait for it */
}

static void too_many_works(void **state)
{
    (void)state;
    quire_device device = open_device(0);
    uint32_t count = 0;
    is_gate_open = false;
    while (count < 1000 && quire_device_host_compute(&device, write_block_1, NULL) == QUIRE_OK)
        count++;
    assert_int_equal(count, 256);
    is_gate_open = true;
    quire_device_close(&device);
}

static void device_after_a_fork(void **state)
{
    (void)state;
    quire_device device = open_device(0);
    quire_device_job job;
    quire_device_copy copy = {1, 1, 0};
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        quire_device_job *done;
        job = (quire_device_job){.op = QUIRE_DEVICE_STORE, .copies = &copy, .num_copies = 1};
        int wrong = device.ops->submit(device.self, &job) != QUIRE_E_SYSTEM;
        wrong += device.ops->poll(device.self, &done, 1) != 0;
        wrong += quire_device_host_compute(&device, do_nothing, NULL) != QUIRE_E_SYSTEM;
        quire_device_close(&device);
        _exit(wrong);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    submit_job(&device, &job, QUIRE_DEVICE_STORE, &copy, 1);
    (void)wait_for_job(&device);
    quire_device_close(&device);
}

int main(int argc, char **argv)
{
    uint64_t random = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(wrong_jobs),
        cmocka_unit_test(wrong_devices),
        cmocka_unit_test(memory_of_an_allocator),
        cmocka_unit_test(idle_device_sleeps),
        cmocka_unit_test(without_waiting_the_harm_is_seen),
        cmocka_unit_test(with_waiting_it_is_not),
        cmocka_unit_test_prestate(never_a_surprise, &random),
        cmocka_unit_test(stores_end_in_order),
        cmocka_unit_test(copies_that_fail),
        cmocka_unit_test(no_job_fails_without_faults),
        cmocka_unit_test(mark_that_is_never_reached),
        cmocka_unit_test(too_many_works),
        cmocka_unit_test(device_after_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
