/* cuda/test_rest_cuda.c - what is still in flight when a device is closed, or when a call failed:
 * memory is given back when nothing touches it any more, and not before. On the stand-in alone,
 * which counts what the driver would answer with harm. */
#include "tier/device/cuda/device_cuda.h"
#include "world.h"

enum { SPIN_US = 3000, DELAY_US = 3000, LOST = 719, DESTROYED = 709 };

/* A job that is on its way behind a slow step, in a device whose every stream is slow. */
static void start_slowly(world *w, quire_cuda_method method, quire_cuda_crc crc, quire_device_op op,
                         quire_device_job *job, quire_device_copy *copy)
{
    world_plan plan = {
        .num_layers = 2, .bytes = 4096, .method = method, .crc = crc, .is_registered = true};
    kit_step step = {.spin_us = SPIN_US};
    world_open(w, &plan);
    kit.fake->delay_us(DELAY_US);
    kit_compute(&kit, &step);
    *copy = (quire_device_copy){1, 2, 0};
    if (op != 0)
        kit_submit(&w->device, job, op, copy, 1);
}

static void closing_waits_for_all_streams(void **state)
{
    static const struct {
        quire_cuda_method method;
        quire_device_op op;
    } CASES[] = {{QUIRE_CUDA_KERNEL, QUIRE_DEVICE_STORE}, {QUIRE_CUDA_KERNEL, QUIRE_DEVICE_LOAD},
                 {QUIRE_CUDA_STAGED, QUIRE_DEVICE_STORE}, {QUIRE_CUDA_STAGED, QUIRE_DEVICE_LOAD},
                 {QUIRE_CUDA_BATCH, QUIRE_DEVICE_STORE},  {QUIRE_CUDA_LOOP, QUIRE_DEVICE_LOAD}};
    (void)state;
    for (size_t i = 0; i < COUNT(CASES); i++) {
        world w;
        quire_device_job job;
        quire_device_copy copy;
        start_slowly(&w, CASES[i].method, QUIRE_CUDA_CRC_GPU, CASES[i].op, &job, &copy);
        quire_device_close(&w.device);
        assert_int_equal(kit.fake->num_misuses(), 0);
        world_close(&w);
    }
}

/* Lists of copies between blocks are read by the engine's stream. */
static void closing_waits_for_the_engine(void **state)
{
    (void)state;
    world w;
    const quire_cuda_pair pair = {3, 4};
    quire_device_copy copy;
    start_slowly(&w, QUIRE_CUDA_KERNEL, QUIRE_CUDA_CRC_NONE, 0, NULL, &copy);
    assert_int_equal(quire_device_cuda_copy_blocks(&w.device, &pair, 1), QUIRE_OK);
    quire_device_close(&w.device);
    assert_int_equal(kit.fake->num_misuses(), 0);
    world_close(&w);
}

/* ---- after a call that failed ---------------------------------------------- */

/* Beginnings of a job: what is in flight when this call fails. The first event is the mark's. */
static const struct {
    quire_cuda_method method;
    quire_cuda_crc crc;
    quire_device_op op;
    const char *call;
    uint64_t nth;
} BEGINNINGS[] = {
    /* the copies */
    {QUIRE_CUDA_LOOP, QUIRE_CUDA_CRC_NONE, QUIRE_DEVICE_LOAD, "cuEventRecord", 2},
    {QUIRE_CUDA_LOOP, QUIRE_CUDA_CRC_NONE, QUIRE_DEVICE_STORE, "cuEventRecord", 2},
    /* the CRC alone */
    {QUIRE_CUDA_KERNEL, QUIRE_CUDA_CRC_GPU, QUIRE_DEVICE_STORE, "cuLaunchKernel", 2},
    /* the gathering, and nothing of the copy engine's */
    {QUIRE_CUDA_STAGED, QUIRE_CUDA_CRC_NONE, QUIRE_DEVICE_STORE, "cuEventRecord", 2},
    /* the stage, then the scattering */
    {QUIRE_CUDA_STAGED, QUIRE_CUDA_CRC_NONE, QUIRE_DEVICE_LOAD, "cuEventRecord", 3},
};

static void begin_and_fail(world *w, size_t beginning, quire_device_job *job,
                           quire_device_copy *copy)
{
    start_slowly(w, BEGINNINGS[beginning].method, BEGINNINGS[beginning].crc, 0, job, copy);
    kit.fake->fail_at(BEGINNINGS[beginning].call, BEGINNINGS[beginning].nth, LOST);
    kit_submit(&w->device, job, BEGINNINGS[beginning].op, copy, 1);
    assert_int_equal(quire_cuda_get_info(kit.cuda)->is_broken, 1);
}

static bool is_at_rest(const world *w)
{
    const qr_cuda_device *d = qr_cuda_device_of(&w->device);
    const qr_cuda_calls *calls = &kit.cuda->driver.calls;
    bool is_idle = true;
    assert_int_equal(qr_gpu_enter(kit.cuda), QUIRE_OK);
    for (int i = 0; i < QR_NUM_STREAMS; i++)
        is_idle = calls->cuStreamQuery(d->streams[i]) == QR_CU_SUCCESS && is_idle;
    for (int i = 0; i < 2 && d->stage.kernels[i] != NULL; i++)
        is_idle = calls->cuStreamQuery(d->stage.kernels[i]) == QR_CU_SUCCESS && is_idle;
    qr_gpu_leave(kit.cuda);
    return is_idle;
}

static void job_is_kept_until_nothing_moves(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(BEGINNINGS); i++) {
        world w;
        quire_device_job job;
        quire_device_copy copy;
        begin_and_fail(&w, i, &job, &copy);
        assert_ptr_equal(kit_wait_for_job(&w.device), &job);
        assert_true(is_at_rest(&w));
        assert_int_equal(job.status, QUIRE_E_SYSTEM);
        world_close(&w);
    }
}

static void closing_a_broken_device_waits_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(BEGINNINGS); i++) {
        world w;
        quire_device_job job;
        quire_device_copy copy;
        begin_and_fail(&w, i, &job, &copy);
        quire_device_close(&w.device);
        assert_int_equal(kit.fake->num_misuses(), 0);
        world_close(&w);
    }
}

/* ---- what cannot be asked -------------------------------------------------- */

/* Another thread captures a graph: what is refused then says nothing of the copies. */
static void queries_during_a_capture(void **state)
{
    (void)state;
    for (int is_broken = 0; is_broken < 2; is_broken++) {
        world w;
        quire_device_job job;
        quire_device_job *ended[1];
        quire_device_copy copy;
        if (is_broken != 0)
            begin_and_fail(&w, 0, &job, &copy);
        else
            start_slowly(&w, QUIRE_CUDA_KERNEL, QUIRE_CUDA_CRC_NONE, QUIRE_DEVICE_LOAD, &job,
                         &copy);
        kit.fake->capture(true);
        assert_int_equal(w.device.ops->poll(w.device.self, ended, 1), 0);
        assert_int_equal(quire_cuda_get_info(kit.cuda)->is_broken, is_broken);
        kit.fake->capture(false);
        assert_ptr_equal(kit_wait_for_job(&w.device), &job);
        assert_int_equal(job.status, is_broken != 0 ? QUIRE_E_SYSTEM : QUIRE_OK);
        world_close(&w);
    }
}

/* The same for what is in the engine's stream: there is no room until it can be asked again. */
static void rooms_during_a_capture(void **state)
{
    (void)state;
    world w;
    world_plan plan = {.num_layers = 1, .bytes = 4096};
    quire_cuda_tables *tables = NULL;
    quire_cuda_tables_config config = QUIRE_CUDA_TABLES_CONFIG_INIT;
    const quire_cuda_pair pair = {3, 4};
    const int32_t id = 5;
    world_open(&w, &plan);
    config.cuda = kit.cuda;
    config.num_rows = config.row_stride = config.depth = 1;
    assert_int_equal(quire_cuda_tables_open(&config, NULL, &tables), QUIRE_OK);
    assert_int_equal(quire_cuda_tables_set(tables, 0, 0, &id, 1), QUIRE_OK);
    assert_int_equal(quire_cuda_tables_send(tables), QUIRE_OK);
    for (int i = 0; i < QR_NUM_AREAS; i++)
        assert_int_equal(quire_device_cuda_copy_blocks(&w.device, &pair, 1), QUIRE_OK);
    assert_int_equal(kit_surprises(&kit), 0); /* all of it is over */
    kit.fake->capture(true);
    assert_int_equal(quire_device_cuda_copy_blocks(&w.device, &pair, 1), QUIRE_FULL);
    assert_int_equal(quire_cuda_tables_set(tables, 0, 0, &id, 1), QUIRE_FULL);
    assert_int_equal(quire_cuda_get_info(kit.cuda)->is_broken, 0);
    kit.fake->capture(false);
    assert_int_equal(quire_device_cuda_copy_blocks(&w.device, &pair, 1), QUIRE_OK);
    assert_int_equal(quire_cuda_tables_set(tables, 0, 0, &id, 1), QUIRE_OK);
    quire_cuda_tables_close(tables);
    world_close(&w);
}

/* The engine's context is gone, and the device's streams with it: nobody names them any more. */
static void context_is_destroyed(void **state)
{
    (void)state;
    world w;
    quire_device_job job;
    quire_device_job *ended[1];
    quire_device_copy copy;
    start_slowly(&w, QUIRE_CUDA_STAGED, QUIRE_CUDA_CRC_NONE, QUIRE_DEVICE_LOAD, &job, &copy);
    kit.fake->fail_at("cuCtxPushCurrent_v2", 1, DESTROYED);
    assert_int_equal(w.device.ops->poll(w.device.self, ended, 1), 1);
    assert_ptr_equal(ended[0], &job);
    assert_int_equal(job.status, QUIRE_E_SYSTEM);
    assert_int_equal(kit.fake->num_misuses(), 0);
    world_close(&w);
}

int main(int argc, char **argv)
{
    kit_init(&kit, argc, argv);
    if (kit.fake == NULL) {
        (void)printf("SKIPPED: only the stand-in can tell\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_waits_for_all_streams),
        cmocka_unit_test(closing_waits_for_the_engine),
        cmocka_unit_test(job_is_kept_until_nothing_moves),
        cmocka_unit_test(closing_a_broken_device_waits_too),
        cmocka_unit_test(queries_during_a_capture),
        cmocka_unit_test(rooms_during_a_capture),
        cmocka_unit_test(context_is_destroyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
