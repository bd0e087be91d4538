/* cuda/test_calls_cuda.c - wrong calls, the order of jobs, old marks, and what an engine brings:
 * pinned slots, a context. On the stand-in, or with --driver gpu on a real one. */
#include "world.h"

#include <stdlib.h>

/* ---- wrong calls ----------------------------------------------------------- */

static void wrong_jobs(void **state)
{
    (void)state;
    world w;
    world_plan plan = {.num_layers = 1, .bytes = 4096};
    quire_device_job job = {.op = QUIRE_DEVICE_STORE};
    quire_device_copy copy = {BLOCKS, 0, 0};
    uint64_t mark = 0;
    world_open(&w, &plan);
    const quire_device_ops *ops = w.device.ops;
    void *self = w.device.self;
    assert_int_equal(ops->mark(self, NULL), QUIRE_E_ARGUMENT);
    job.num_copies = 1;
    assert_int_equal(ops->submit(self, &job), QUIRE_E_ARGUMENT);
    job.copies = &copy;
    assert_int_equal(ops->submit(self, &job), QUIRE_E_RANGE);
    copy = (quire_device_copy){0, SLOTS, 0};
    assert_int_equal(ops->submit(self, &job), QUIRE_E_RANGE);
    copy.slot = 0;
    job.after = 1; /* no such mark yet */
    assert_int_equal(ops->submit(self, &job), QUIRE_E_RANGE);
    assert_int_equal(ops->mark(self, &mark), QUIRE_OK);
    assert_int_equal(mark, 1);
    job.op = (quire_device_op)3;
    assert_int_equal(ops->submit(self, &job), QUIRE_E_ARGUMENT);
    assert_int_equal(ops->submit(self, NULL), QUIRE_E_ARGUMENT);
    job.op = QUIRE_DEVICE_LOAD;
    job.num_copies = 257;
    assert_int_equal(ops->submit(self, &job), QUIRE_E_RANGE);
    job.num_copies = 1;
    assert_int_equal(ops->submit(self, &job), QUIRE_OK);
    assert_int_equal(ops->submit(self, &job), QUIRE_E_ARGUMENT); /* in flight */
    assert_int_equal(ops->poll(self, NULL, 4), 0);
    assert_ptr_equal(kit_wait_for_job(&w.device), &job);
    world_close(&w);
    assert_null(quire_device_cuda_get_stats(&w.device)); /* closed */
    assert_int_equal(quire_device_cuda_ignore_marks(&w.device, 1), QUIRE_E_ARGUMENT);
}

static void wrong_devices(void **state)
{
    (void)state;
    world w;
    world_plan plan = {.num_layers = 2, .bytes = 4096};
    world_open(&w, &plan);
    for (int wrong = 0; wrong < 17; wrong++) {
        quire_device device = {0};
        quire_allocator half = {0};
        quire_cuda_region regions[2] = {w.view.regions[0], w.view.regions[1]};
        quire_cuda_region many[9];
        quire_device_cuda_config config = world_device_config(&w);
        config.cuda = wrong == 0 ? NULL : config.cuda;
        config.regions = wrong == 1 ? NULL : regions;
        config.num_regions = wrong == 2 ? 0 : 2;
        config.num_blocks = wrong == 3 ? 0 : BLOCKS;
        config.num_slots = wrong == 4 ? 0 : wrong == 5 ? UINT32_MAX : SLOTS;
        config.slots = wrong == 6 ? NULL : w.slots;
        config.max_jobs = wrong == 7 ? 65537 : 0;
        config.num_ctas = wrong == 8 ? 5000 : 0;
        config.method = wrong == 9 ? (quire_cuda_method)6 : QUIRE_CUDA_BY_SIZE;
        config.crc = wrong == 10 ? (quire_cuda_crc)4 : QUIRE_CUDA_CRC_DEFAULT;
        regions[1].base = wrong == 11 ? 0 : regions[1].base;
        regions[1].stride = wrong == 12 ? 100 : regions[1].stride;
        regions[0].bytes = wrong == 5 ? UINT64_C(1) << 40 : regions[0].bytes;
        regions[0].stride = wrong == 5 ? UINT64_C(1) << 40 : regions[0].stride;
        config.size = wrong == 13 ? 1 : config.size;
        if (wrong == 16) { /* together more than there are numbers */
            config.num_blocks = 1;
            config.regions = many;
            config.num_regions = COUNT(many);
            for (size_t i = 0; i < COUNT(many); i++)
                many[i] = (quire_cuda_region){4096, UINT64_MAX / 8, UINT64_MAX / 8};
        }
        if (wrong == 14) { /* not at multiples of 16, and it must be a kernel */
            regions[0].base += 8;
            config.method = QUIRE_CUDA_KERNEL;
        }
        int status = quire_device_cuda_open(&config, wrong == 15 ? &half : NULL, &device);
        assert_int_equal(status, wrong == 15 ? QUIRE_E_ARGUMENT : QUIRE_E_CONFIG);
        assert_null(device.ops);
        assert_true(strlen(quire_refusal()) > 10);
    }
    assert_int_equal(quire_device_cuda_open(NULL, NULL, &w.device), QUIRE_E_ARGUMENT);
    world_close(&w);
}

static void wrong_arenas(void **state)
{
    (void)state;
    quire_cuda *none = NULL;
    kit_open(&kit);
    for (int wrong = 0; wrong < 7; wrong++) {
        quire_cuda_arena *arena = NULL;
        quire_cuda_arena_config config = QUIRE_CUDA_ARENA_CONFIG_INIT;
        config.num_layers = wrong == 0 ? 0 : wrong == 1 ? 5000 : 2;
        config.num_blocks = wrong == 2 ? 0 : 4;
        config.bytes = wrong == 3 ? 0 : wrong == 4 ? UINT64_MAX / 2 : 4096;
        config.layout = wrong == 5 ? (quire_cuda_layout)2 : QUIRE_CUDA_LAYER_OUTER;
        config.size = wrong == 6 ? 4 : config.size;
        assert_int_equal(quire_cuda_arena_open(kit.cuda, &config, &arena), QUIRE_E_CONFIG);
        assert_null(arena);
        assert_true(strlen(quire_refusal()) > 10);
    }
    assert_int_equal(quire_cuda_arena_open(NULL, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cuda_open(NULL, NULL, &none), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cuda_host_alloc(kit.cuda, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cuda_arena_get_view(NULL).num_regions, 0);
    assert_null(quire_cuda_get_info(NULL));
    quire_cuda_arena_close(NULL);
    quire_cuda_close(NULL);
    kit_close(&kit);
}

/* Jobs of a direction end in order, and one more than there may be is not taken. */
static void jobs_end_in_order(void **state)
{
    enum { JOBS = 5 };
    (void)state;
    world w;
    world_plan plan = {.num_layers = 1, .bytes = 4096, .max_jobs = JOBS};
    quire_device_job jobs[JOBS];
    quire_device_copy copies[JOBS];
    quire_device_job one_more = {.op = QUIRE_DEVICE_STORE};
    quire_device_job *ended[1];
    kit_step step = {.spin_us = 50000};
    world_open(&w, &plan);
    kit_compute(&kit, &step);
    for (uint32_t i = 0; i < JOBS; i++) {
        copies[i] = (quire_device_copy){i, i, 0};
        kit_submit(&w.device, &jobs[i], QUIRE_DEVICE_STORE, &copies[i], 1);
    }
    assert_int_equal(w.device.ops->submit(w.device.self, &one_more), QUIRE_FULL);
    assert_int_equal(one_more.state, 0);
    assert_int_equal(w.device.ops->poll(w.device.self, ended, 1), 0);
    for (uint32_t i = 0; i < JOBS; i++)
        assert_ptr_equal(kit_wait_for_job(&w.device), &jobs[i]);
    assert_int_equal(w.device.ops->submit(w.device.self, &one_more), QUIRE_OK);
    (void)kit_wait_for_job(&w.device);
    kit_compute(&kit, &step);
    kit_submit(&w.device, &jobs[0], QUIRE_DEVICE_LOAD, copies, 1);
    world_close(&w); /* with one in flight: waits for it */
    assert_true(jobs[0].state != 0);
}

/* A stage that could hold more blocks than numbers have room for has as many as a job does. */
static void stages_without_end(void **state)
{
    static const uint64_t SIZES[] = {UINT64_C(1) << 36, UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        world w;
        world_plan plan = {.num_layers = 1, .bytes = 16, .method = QUIRE_CUDA_STAGED};
        quire_device_job job;
        quire_device_copy copies[2] = {{1, 3, 0}, {5, 4, 0}};
        plan.stage_bytes = SIZES[i];
        world_open(&w, &plan);
        for (int k = 0; k < 2; k++) {
            world_fill_block(&w, copies[k].block);
            memcpy(w.expected + copies[k].slot * w.block_bytes,
                   w.blocks + copies[k].block * w.block_bytes, w.block_bytes);
        }
        kit_submit(&w.device, &job, QUIRE_DEVICE_STORE, copies, 2);
        assert_ptr_equal(kit_wait_for_job(&w.device), &job);
        assert_int_equal(job.status, QUIRE_OK);
        world_check_slots(&w);
        world_close(&w);
    }
}

/* Marks are used again: an old one waits for more than it must, never for less. */
static void old_marks(void **state)
{
    (void)state;
    world w;
    world_plan plan = {.num_layers = 1, .bytes = 4096};
    quire_device_copy copy = {1, 1, 0};
    uint64_t first = 0;
    uint64_t mark = 0;
    world_open(&w, &plan);
    assert_int_equal(w.device.ops->mark(w.device.self, &first), QUIRE_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(w.device.ops->mark(w.device.self, &mark), QUIRE_OK);
    assert_int_equal(mark, first + 1000);
    quire_device_job job = {
        .op = QUIRE_DEVICE_STORE, .copies = &copy, .num_copies = 1, .after = first};
    assert_int_equal(w.device.ops->submit(w.device.self, &job), QUIRE_OK);
    assert_ptr_equal(kit_wait_for_job(&w.device), &job);
    assert_int_equal(job.status, QUIRE_OK);
    world_close(&w);
}

/* ---- what an engine brings ------------------------------------------------- */

/* Memory that is pinned already, by allocation or by registration, needs nothing; some of it is not
 * enough. */
static void slots_that_are_pinned(void **state)
{
    (void)state;
    world w;
    world_plan plan = {.num_layers = 1, .bytes = 4096, .is_registered = true};
    world_open(&w, &plan);
    for (int how = 0; how < 4; how++) { /* allocated, registered, half of it, not at all */
        const qr_cuda_calls *calls = &kit.cuda->driver.calls;
        quire_device device = {0};
        quire_device_cuda_config config = world_device_config(&w);
        void *memory = NULL;
        size_t bytes = (size_t)SLOTS * 4096;
        assert_int_equal(qr_gpu_enter(kit.cuda), QUIRE_OK);
        if (how == 0)
            assert_int_equal(quire_cuda_host_alloc(kit.cuda, bytes, &memory), QUIRE_OK);
        else
            memory = aligned_alloc(4096, bytes);
        if (how == 1 || how == 2)
            assert_int_equal(calls->cuMemHostRegister(memory, how == 1 ? bytes : bytes / 2, 3), 0);
        config.slots = memory;
        config.pin = how == 3 ? QUIRE_OFF : QUIRE_DEFAULT;
        int status = quire_device_cuda_open(&config, NULL, &device);
        assert_int_equal(status == QUIRE_OK, how < 2);
        quire_device_close(&device);
        if (how == 1 || how == 2)
            assert_int_equal(calls->cuMemHostUnregister(memory), 0);
        qr_gpu_leave(kit.cuda);
        if (how == 0)
            quire_cuda_host_free(kit.cuda, memory);
        else
            free(memory);
    }
    world_close(&w);
}

/* A context that the engine made: it is used, and still there afterwards. */
static void context_of_an_engine(void **state)
{
    (void)state;
    quire_cuda *other = NULL;
    void *memory = NULL;
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    kit_open(&kit);
    config.library = kit.library;
    config.context = kit.cuda->context;
    assert_int_equal(quire_cuda_open(&config, NULL, &other), QUIRE_OK);
    const quire_cuda_info *info = quire_cuda_get_info(other);
    assert_string_equal(info->name, quire_cuda_get_info(kit.cuda)->name);
    assert_true(info->capability > 0 && info->num_multiprocessors > 0 && info->total_bytes > 0);
    assert_true(info->free_bytes <= info->total_bytes);
    assert_int_equal(quire_cuda_host_alloc(other, 100, &memory), QUIRE_OK);
    quire_cuda_host_free(other, memory);
    quire_cuda_close(other);
    assert_int_equal(kit_surprises(&kit), 0);
    kit_close(&kit);
}

int main(int argc, char **argv)
{
    random_state = unit_seed(argc, argv, 1);
    kit_init(&kit, argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_jobs),
        cmocka_unit_test(wrong_devices),
        cmocka_unit_test(wrong_arenas),
        cmocka_unit_test(jobs_end_in_order),
        cmocka_unit_test(stages_without_end),
        cmocka_unit_test(old_marks),
        cmocka_unit_test(slots_that_are_pinned),
        cmocka_unit_test(context_of_an_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
