/* cuda/test_faults_cuda.c - a driver that is absent, old, out of memory, or fails at any call: an
 * error with a sentence, jobs that end, nothing left behind. On the stand-in alone. */
#include "kit.h"

#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 12, BYTES = 4096, LOST = 719, FAR = 2000, CALLS_OF_POLLS = 20 };

enum { STEP = KIT_IS_SLOW ? 7 : 1 };

static cuda_kit kit;
static unsigned char slots[BLOCKS * BYTES] __attribute__((aligned(64)));

/* ---- memory of the host that runs out -------------------------------------- */

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

static uint64_t failing_calloc; /* the n-th from now on; 0: none */

void *__wrap_calloc(size_t count, size_t bytes)
{
    if (failing_calloc > 0 && --failing_calloc == 0)
        return NULL;
    return __real_calloc(count, bytes);
}

/* ---- all that can be open -------------------------------------------------- */

typedef struct everything {
    quire_cuda *cuda;
    quire_cuda_arena *arena;
    quire_device device;
    quire_cuda_tables *tables;
} everything;

static int open_cuda(everything *all, quire_switch kernels)
{
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    config.library = kit.library;
    config.kernels = kernels;
    return quire_cuda_open(&config, NULL, &all->cuda);
}

static int open_arena(everything *all)
{
    quire_cuda_arena_config config = QUIRE_CUDA_ARENA_CONFIG_INIT;
    config.num_layers = 1;
    config.num_blocks = BLOCKS;
    config.bytes = BYTES;
    return quire_cuda_arena_open(all->cuda, &config, &all->arena);
}

static int open_device(everything *all, quire_cuda_method method)
{
    quire_device_cuda_config config = QUIRE_DEVICE_CUDA_CONFIG_INIT;
    quire_cuda_arena_view view = quire_cuda_arena_get_view(all->arena);
    bool has_kernels = quire_cuda_get_info(all->cuda)->has_kernels != 0;
    config.cuda = all->cuda;
    config.regions = view.regions;
    config.num_regions = view.num_regions;
    config.num_blocks = BLOCKS;
    config.num_slots = BLOCKS;
    config.slots = slots;
    config.max_jobs = 4;
    config.max_copies = 8;
    config.method = method;
    config.stage_bytes = 2 * BYTES;
    config.crc = has_kernels ? QUIRE_CUDA_CRC_GPU : QUIRE_CUDA_CRC_HOST;
    return quire_device_cuda_open(&config, NULL, &all->device);
}

static int open_tables(everything *all)
{
    quire_cuda_tables_config config = QUIRE_CUDA_TABLES_CONFIG_INIT;
    config.cuda = all->cuda;
    config.num_rows = 4;
    config.row_stride = 8;
    config.num_slots = 16;
    return quire_cuda_tables_open(&config, NULL, &all->tables);
}

static int open_everything(everything *all, quire_cuda_method method)
{
    *all = (everything){0};
    int status = open_cuda(all, QUIRE_ON);
    if (status == QUIRE_OK)
        status = open_arena(all);
    if (status == QUIRE_OK)
        status = open_device(all, method);
    if (status == QUIRE_OK)
        status = open_tables(all);
    return status;
}

static void close_everything(everything *all)
{
    quire_cuda_tables_close(all->tables);
    quire_device_close(&all->device);
    quire_cuda_arena_close(all->arena);
    quire_cuda_close(all->cuda);
    *all = (everything){0};
}

/* ---- no driver ------------------------------------------------------------- */

static void no_driver(void **state)
{
    (void)state;
    static const struct {
        const char *library;
        const char *says;
    } CASES[] = {{"/no/such/libcuda.so.1", "CUDA driver not found"},
                 {"libm.so.6", "has no cuInit"}};
    for (size_t i = 0; i < COUNT(CASES); i++) {
        quire_cuda *cuda = NULL;
        quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
        config.library = CASES[i].library;
        assert_int_equal(quire_cuda_open(&config, NULL, &cuda), QUIRE_E_SYSTEM);
        assert_null(cuda);
        assert_non_null(strstr(quire_refusal(), CASES[i].says));
    }
}

static void driver_of_no_use(void **state)
{
    (void)state;
    everything all = {0};
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    kit.fake->reset();
    kit.fake->set_version(10020);
    assert_int_equal(open_cuda(&all, QUIRE_DEFAULT), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "10.2"));
    kit.fake->reset();
    kit.fake->fail_at("cuInit", 1, QR_CU_NO_DEVICE);
    assert_int_equal(open_cuda(&all, QUIRE_DEFAULT), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "does not start"));
    config.library = kit.library;
    config.device = 1;
    assert_int_equal(quire_cuda_open(&config, NULL, &all.cuda), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "GPU 1 not found"));
    assert_int_equal(kit.fake->num_live(), 0);
}

/* By the environment, as whoever cannot change the program does it. */
static void driver_by_environment(void **state)
{
    (void)state;
    quire_cuda *cuda = NULL;
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    kit.fake->reset();
    assert_int_equal(setenv("QUIRE_CUDA_LIBRARY", kit.library, 1), 0);
    assert_int_equal(quire_cuda_open(&config, NULL, &cuda), QUIRE_OK);
    assert_string_equal(quire_cuda_get_info(cuda)->name, "stand-in");
    quire_cuda_close(cuda);
    assert_int_equal(unsetenv("QUIRE_CUDA_LIBRARY"), 0);
}

/* ---- opening, with each call failing once ---------------------------------- */

static void opening_fails_at_any_call(void **state)
{
    (void)state;
    static const int RESULTS[] = {QR_CU_OUT_OF_MEMORY, LOST};
    for (size_t r = 0; r < COUNT(RESULTS); r++) {
        uint64_t num_failed = 0;
        for (uint64_t nth = 1; nth < FAR; nth += STEP) {
            everything all;
            kit.fake->reset();
            kit.fake->fail_at(NULL, nth, RESULTS[r]);
            int status = open_everything(&all, QUIRE_CUDA_STAGED);
            bool is_over = kit.fake->num_calls() < nth;
            if (status != QUIRE_OK) {
                assert_true(status == QUIRE_E_NOMEM || status == QUIRE_E_SYSTEM);
                assert_true(strlen(quire_refusal()) > 10);
                num_failed++;
            }
            kit.fake->fail_at(NULL, 0, 0);
            close_everything(&all);
            assert_int_equal(kit.fake->num_live(), 0);
            assert_int_equal(kit.fake->num_misuses(), 0);
            if (is_over)
                break;
        }
        print_message("%llu calls whose failure is an error\n", (unsigned long long)num_failed);
        assert_in_range(num_failed, 300 / STEP, FAR - 100); /* mostly events */
    }
}

static void opening_without_host_memory(void **state)
{
    (void)state;
    int status = QUIRE_E_NOMEM;
    uint64_t nth = 0;
    while (status != QUIRE_OK && nth < 100) {
        everything all;
        kit.fake->reset();
        failing_calloc = ++nth;
        status = open_everything(&all, QUIRE_CUDA_STAGED);
        failing_calloc = 0;
        assert_true(status == QUIRE_OK ||
                    (status == QUIRE_E_NOMEM && strlen(quire_refusal()) > 10));
        close_everything(&all);
        assert_int_equal(kit.fake->num_live(), 0);
    }
    assert_in_range(nth, 5, 20);
}

static void too_little_memory(void **state)
{
    (void)state;
    everything all = {0};
    kit.fake->reset();
    assert_int_equal(open_cuda(&all, QUIRE_ON), QUIRE_OK);
    kit.fake->limit(BYTES, UINT64_MAX);
    assert_int_equal(open_arena(&all), QUIRE_E_NOMEM);
    assert_non_null(strstr(quire_refusal(), "MiB free"));
    kit.fake->limit(UINT64_MAX, BYTES);
    assert_int_equal(open_arena(&all), QUIRE_OK);
    assert_int_equal(open_device(&all, QUIRE_CUDA_BY_SIZE), QUIRE_E_NOMEM);
    assert_non_null(strstr(quire_refusal(), "pin the slots"));
    assert_int_equal(quire_cuda_get_info(all.cuda)->is_broken, 0); /* it can be tried again */
    kit.fake->limit(UINT64_MAX, UINT64_MAX);
    assert_int_equal(open_device(&all, QUIRE_CUDA_BY_SIZE), QUIRE_OK);
    close_everything(&all);
    assert_int_equal(kit.fake->num_live(), 0);
}

/* ---- running, with each call failing once ---------------------------------- */

typedef struct run_end {
    uint32_t num_ended;
    uint32_t num_failed;
    uint64_t num_calls; /* until all was given to the GPU */
} run_end;

/* Takes all jobs that were taken: they end in any case. */
static void take_all(everything *all, uint32_t num_out, run_end *end)
{
    for (uint32_t i = 0; i < num_out; i++) {
        const quire_device_job *job = kit_wait_for_job(&all->device);
        assert_true(job->status == QUIRE_OK || job->status == QUIRE_E_SYSTEM);
        assert_int_equal(job->state, 0);
        end->num_ended++;
        end->num_failed += job->status == QUIRE_OK ? 0 : 1;
    }
}

/* What an engine does in a step; whatever fails on the way. No two use the same blocks. */
static run_end run_everything(everything *all)
{
    run_end end = {0};
    quire_device_job jobs[4];
    quire_device_copy copies[4][2];
    const quire_cuda_pair pair = {8, 9};
    const quire_block zeroed = 10;
    const int32_t id = 5;
    uint32_t num_out = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t mark = 0;
        (void)quire_device_cuda_copy_blocks(&all->device, &pair, 1);
        (void)quire_device_cuda_zero_blocks(&all->device, &zeroed, 1);
        if (quire_cuda_tables_set(all->tables, 0, i, &id, 1) == QUIRE_OK)
            (void)quire_cuda_tables_send(all->tables);
        (void)all->device.ops->mark(all->device.self, &mark);
        copies[i][0] = (quire_device_copy){2 * i, 2 * i + 1, 0};
        copies[i][1] = (quire_device_copy){2 * i + 1, 2 * i, 0};
        jobs[i] = (quire_device_job){.op = i % 2 == 0 ? QUIRE_DEVICE_STORE : QUIRE_DEVICE_LOAD,
                                     .copies = copies[i],
                                     .num_copies = 2,
                                     .after = mark};
        int status = all->device.ops->submit(all->device.self, &jobs[i]);
        assert_true(status == QUIRE_OK || status == QUIRE_E_SYSTEM);
        assert_int_equal(jobs[i].state != 0, status == QUIRE_OK);
        num_out += status == QUIRE_OK ? 1 : 0;
    }
    end.num_calls = kit.fake->num_calls();
    take_all(all, num_out, &end);
    return end;
}

static void check_broken(everything *all)
{
    quire_device_job job = {.op = QUIRE_DEVICE_STORE};
    const quire_cuda_pair pair = {1, 2};
    const int32_t id = 5;
    uint64_t mark;
    const quire_cuda_info *info = quire_cuda_get_info(all->cuda);
    assert_int_equal(info->is_broken, 1);
    assert_true(strlen(info->what) > 10);
    assert_int_equal(all->device.ops->mark(all->device.self, &mark), QUIRE_E_SYSTEM);
    assert_int_equal(all->device.ops->submit(all->device.self, &job), QUIRE_E_SYSTEM);
    assert_int_equal(quire_device_cuda_copy_blocks(&all->device, &pair, 1), QUIRE_E_SYSTEM);
    assert_int_equal(quire_cuda_tables_set(all->tables, 0, 0, &id, 1), QUIRE_E_SYSTEM);
    assert_int_equal(quire_cuda_tables_send(all->tables), QUIRE_E_SYSTEM);
}

static void running_fails_at_any_call(void **state)
{
    (void)state;
    static const quire_cuda_method METHODS[] = {
        QUIRE_CUDA_KERNEL, QUIRE_CUDA_BATCH, QUIRE_CUDA_LOOP, QUIRE_CUDA_STAGED, QUIRE_CUDA_ROWS};
    for (size_t m = 0; m < COUNT(METHODS); m++) {
        uint64_t num_broken = 0;
        uint64_t num_failed = 0;
        for (uint64_t nth = 1; nth < FAR; nth += STEP) {
            everything all;
            kit.fake->reset();
            assert_int_equal(open_everything(&all, METHODS[m]), QUIRE_OK);
            uint64_t before = kit.fake->num_calls();
            kit.fake->fail_at(NULL, nth, LOST);
            run_end end = run_everything(&all);
            bool is_over = end.num_calls - before + CALLS_OF_POLLS < nth;
            kit.fake->fail_at(NULL, 0, 0);
            if (quire_cuda_get_info(all.cuda)->is_broken != 0) {
                check_broken(&all);
                num_broken++;
            }
            num_failed += end.num_failed;
            close_everything(&all);
            assert_int_equal(kit.fake->num_live(), 0);
            assert_int_equal(kit.fake->num_strays(), 0);
            assert_int_equal(kit.fake->num_misuses(), 0);
            if (is_over)
                break;
        }
        print_message("method %d: %llu calls broke it, %llu jobs failed\n", (int)METHODS[m],
                      (unsigned long long)num_broken, (unsigned long long)num_failed);
        assert_true(num_broken > 40 / STEP && num_failed > 20 / STEP);
    }
}

/* ---- more ------------------------------------------------------------------ */

/* The context goes with jobs in flight: they end, and nothing hangs. */
static void context_is_lost(void **state)
{
    (void)state;
    for (uint32_t us = 0; us < 4000; us += 500) {
        everything all;
        run_end end = {0};
        quire_device_job jobs[3];
        quire_device_copy copies[3];
        kit.fake->reset();
        assert_int_equal(open_everything(&all, QUIRE_CUDA_KERNEL), QUIRE_OK);
        kit.fake->delay_us(1000);
        for (uint32_t i = 0; i < 3; i++) {
            copies[i] = (quire_device_copy){i, i, 0};
            kit_submit(&all.device, &jobs[i], i == 1 ? QUIRE_DEVICE_LOAD : QUIRE_DEVICE_STORE,
                       &copies[i], 1);
        }
        usleep(us);
        kit.fake->lose(LOST);
        take_all(&all, 3, &end);
        assert_int_equal(end.num_failed, 3);
        check_broken(&all);
        assert_int_equal(quire_device_cuda_get_stats(&all.device)->failed_jobs, 3);
        close_everything(&all);
    }
    kit.fake->reset();
}

static void batches_that_are_not_supported(void **state)
{
    (void)state;
    everything all;
    quire_device device = {0};
    kit.fake->reset();
    assert_int_equal(open_everything(&all, QUIRE_CUDA_BATCH), QUIRE_OK);
    kit.fake->fail_at("cuMemcpyBatchAsync", 1, 801);
    assert_int_equal(run_everything(&all).num_failed, 0);
    assert_int_equal(quire_device_cuda_get_stats(&all.device)->method, QUIRE_CUDA_LOOP);
    all.cuda->info.has_batches = 0; /* as before 12.8 */
    quire_device kept = all.device;
    all.device = device;
    quire_device_close(&kept);
    assert_int_equal(open_device(&all, QUIRE_CUDA_BATCH), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "12.8"));
    close_everything(&all);
}

static void without_kernels(void **state)
{
    (void)state;
    everything all = {0};
    quire_device_job job;
    quire_device_copy copy = {1, 2, 0};
    const quire_cuda_pair pair = {0, 1};
    kit.fake->reset();
    assert_int_equal(open_cuda(&all, QUIRE_OFF), QUIRE_OK);
    assert_int_equal(open_arena(&all), QUIRE_OK);
    assert_int_equal(open_device(&all, QUIRE_CUDA_KERNEL), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "no kernels: the config has them off"));
    close_everything(&all);
    kit.fake->fail_at("cuModuleLoadDataEx", 1, 218);
    assert_int_equal(open_cuda(&all, QUIRE_ON), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "no kernels"));
    kit.fake->fail_at("cuModuleGetFunction", 2, 500);
    assert_int_equal(open_cuda(&all, QUIRE_DEFAULT), QUIRE_OK);
    assert_int_equal(quire_cuda_get_info(all.cuda)->has_kernels, 0);
    assert_int_equal(open_arena(&all), QUIRE_OK);
    assert_int_equal(open_device(&all, QUIRE_CUDA_KERNEL), QUIRE_E_CONFIG);
    assert_int_equal(open_tables(&all), QUIRE_E_SYSTEM);
    assert_int_equal(open_device(&all, QUIRE_CUDA_BY_SIZE), QUIRE_OK);
    const quire_device_cuda_stats *stats = quire_device_cuda_get_stats(&all.device);
    assert_int_equal(stats->method, QUIRE_CUDA_BATCH);
    assert_int_equal(stats->crc, QUIRE_CUDA_CRC_HOST);
    assert_int_equal(quire_device_cuda_copy_blocks(&all.device, &pair, 1), QUIRE_OK);
    kit_submit(&all.device, &job, QUIRE_DEVICE_STORE, &copy, 1);
    (void)kit_wait_for_job(&all.device);
    assert_int_equal(job.status, QUIRE_OK);
    assert_int_equal(slots[2 * BYTES], 0);
    close_everything(&all);
    assert_int_equal(kit.fake->num_live(), 0);
}

static void gpu_after_a_fork(void **state)
{
    (void)state;
    everything all;
    kit.fake->reset();
    assert_int_equal(open_everything(&all, QUIRE_CUDA_BY_SIZE), QUIRE_OK);
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        quire_device_job *done;
        quire_device_job job = {.op = QUIRE_DEVICE_STORE};
        const quire_block block = 1;
        const int32_t id = 1;
        void *memory;
        uint64_t mark;
        int wrong = all.device.ops->submit(all.device.self, &job) != QUIRE_E_SYSTEM;
        wrong += all.device.ops->mark(all.device.self, &mark) != QUIRE_E_SYSTEM;
        wrong += all.device.ops->poll(all.device.self, &done, 1) != 0;
        wrong += quire_device_cuda_zero_blocks(&all.device, &block, 1) != QUIRE_E_SYSTEM;
        wrong += quire_cuda_host_alloc(all.cuda, 100, &memory) != QUIRE_E_SYSTEM;
        wrong += quire_cuda_tables_set(all.tables, 0, 0, &id, 1) != QUIRE_E_SYSTEM;
        job.num_copies = 99;
        wrong += all.device.ops->submit(all.device.self, &job) != QUIRE_E_SYSTEM;
        wrong += quire_cuda_tables_send(all.tables) != QUIRE_E_SYSTEM;
        close_everything(&all);
        _exit(wrong);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(run_everything(&all).num_failed, 0);
    close_everything(&all);
    assert_int_equal(kit.fake->num_live(), 0);
}

int main(int argc, char **argv)
{
    kit_init(&kit, argc, argv);
    if (kit.fake == NULL) {
        (void)printf("SKIPPED: faults need the stand-in\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_driver),
        cmocka_unit_test(driver_of_no_use),
        cmocka_unit_test(driver_by_environment),
        cmocka_unit_test(opening_fails_at_any_call),
        cmocka_unit_test(opening_without_host_memory),
        cmocka_unit_test(too_little_memory),
        cmocka_unit_test(running_fails_at_any_call),
        cmocka_unit_test(context_is_lost),
        cmocka_unit_test(batches_that_are_not_supported),
        cmocka_unit_test(without_kernels),
        cmocka_unit_test(gpu_after_a_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
