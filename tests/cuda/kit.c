#include "kit.h"

#include "work.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 60, SMALL_BYTES = 4096 };

extern const char cuda_test_work[];
extern const size_t cuda_test_work_bytes;

static void use_stand_in(cuda_kit *kit, const char *path)
{
    fake_cuda_get_controls_t get;
    kit->library = path;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, "fake_cuda_get_controls");
    if (symbol == NULL)
        return;
    memcpy(&get, &symbol, sizeof symbol);
    kit->fake = get();
}

static void kit_log(void *user, quire_log_level level, const char *message)
{
    (void)user;
    (void)level;
    assert_true(message[0] != 0);
}

/* Without a GPU, or built without kernels, most of this cannot be tested. */
static void skip_without_gpu(const cuda_kit *kit)
{
    quire_cuda *cuda = NULL;
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    config.library = kit->library;
    config.kernels = QUIRE_ON;
    if (quire_cuda_open(&config, NULL, &cuda) != QUIRE_OK) {
        (void)printf("SKIPPED: %s\n", quire_refusal());
        exit(77);
    }
    const quire_cuda_info *info = quire_cuda_get_info(cuda);
    (void)printf("%s, driver %d.%d\n", info->name, info->driver_version / 1000,
                 info->driver_version % 1000 / 10);
    quire_cuda_close(cuda);
}

void kit_init(cuda_kit *kit, int argc, char **argv)
{
    const char *driver = "stand-in";
    *kit = (cuda_kit){0};
    for (int i = 1; i < argc; i++)
        kit->is_few = kit->is_few || strcmp(argv[i], "--few") == 0;
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--driver") == 0)
            driver = argv[i + 1];
        if (strcmp(argv[i], "--rounds") == 0)
            kit->num_rounds = (uint32_t)strtoul(argv[i + 1], NULL, 10);
    }
    if (strcmp(driver, "stand-in") == 0) {
        const char *path = getenv("QUIRE_FAKE_CUDA");
        use_stand_in(kit, path != NULL ? path : QUIRE_FAKE_CUDA_PATH);
        if (kit->fake == NULL) {
            (void)fprintf(stderr, "no stand-in: %s\n", dlerror());
            exit(1);
        }
    } else {
        kit->library = strcmp(driver, "gpu") == 0 ? NULL : driver;
    }
    skip_without_gpu(kit);
}

void kit_open(cuda_kit *kit)
{
    quire_cuda_config config = QUIRE_CUDA_CONFIG_INIT;
    config.hooks.log = kit_log;
    config.library = kit->library;
    if (kit->fake != NULL)
        kit->fake->reset();
    int status = quire_cuda_open(&config, NULL, &kit->cuda);
    assert_string_equal(quire_refusal(), "");
    assert_int_equal(status, QUIRE_OK);
    const qr_cuda_calls *calls = &kit->cuda->driver.calls;
    assert_int_equal(qr_gpu_enter(kit->cuda), QUIRE_OK);
    assert_int_equal(calls->cuStreamCreateWithPriority(&kit->stream, QR_CU_STREAM_NON_BLOCKING, 0),
                     0);
    kit->cuda->stream = kit->stream;
    assert_int_equal(calls->cuModuleLoadDataEx(&kit->module, cuda_test_work, 0, NULL, NULL), 0);
    assert_int_equal(calls->cuModuleGetFunction(&kit->step, kit->module, "quire_test_step"), 0);
    assert_int_equal(calls->cuMemAlloc(&kit->surprises, sizeof(uint32_t)), 0);
    assert_int_equal(calls->cuMemsetD32Async(kit->surprises, 0, 1, kit->stream), 0);
    qr_gpu_leave(kit->cuda);
    assert_int_equal(quire_cuda_host_alloc(kit->cuda, SMALL_BYTES, &kit->pinned), QUIRE_OK);
}

void kit_close(cuda_kit *kit)
{
    const qr_cuda_calls *calls = &kit->cuda->driver.calls;
    quire_cuda_host_free(kit->cuda, kit->pinned);
    if (qr_gpu_enter(kit->cuda) == QUIRE_OK) {
        (void)calls->cuStreamSynchronize(kit->stream);
        (void)calls->cuMemFree(kit->surprises);
        (void)calls->cuModuleUnload(kit->module);
        (void)calls->cuStreamDestroy(kit->stream);
        qr_gpu_leave(kit->cuda);
    }
    quire_cuda_close(kit->cuda);
    kit->cuda = NULL;
    if (kit->fake != NULL) {
        assert_int_equal(kit->fake->num_strays(), 0);
        assert_int_equal(kit->fake->num_misuses(), 0);
        assert_int_equal(kit->fake->num_live(), 0);
    }
}

void kit_write(cuda_kit *kit, uint64_t address, const void *from, size_t bytes)
{
    const qr_cuda_calls *calls = &kit->cuda->driver.calls;
    assert_int_equal(qr_gpu_enter(kit->cuda), QUIRE_OK);
    assert_int_equal(calls->cuMemcpyHtoDAsync(address, from, bytes, kit->stream), 0);
    assert_int_equal(calls->cuStreamSynchronize(kit->stream), 0);
    qr_gpu_leave(kit->cuda);
}

void kit_read(cuda_kit *kit, void *to, uint64_t address, size_t bytes)
{
    const qr_cuda_calls *calls = &kit->cuda->driver.calls;
    void *pinned = kit->pinned;
    if (bytes > SMALL_BYTES)
        assert_int_equal(quire_cuda_host_alloc(kit->cuda, bytes, &pinned), QUIRE_OK);
    assert_int_equal(qr_gpu_enter(kit->cuda), QUIRE_OK);
    assert_int_equal(calls->cuMemcpyDtoHAsync(pinned, address, bytes, kit->stream), 0);
    assert_int_equal(calls->cuStreamSynchronize(kit->stream), 0);
    qr_gpu_leave(kit->cuda);
    memcpy(to, pinned, bytes);
    if (bytes > SMALL_BYTES)
        quire_cuda_host_free(kit->cuda, pinned);
}

void kit_compute(cuda_kit *kit, const kit_step *step)
{
    work_args args = {.address = step->address,
                      .surprises = kit->surprises,
                      .spin_ns = 1000ULL * step->spin_us,
                      .num_words = (unsigned)(step->bytes / 4),
                      .check = step->has_check,
                      .expected = step->expected,
                      .write = step->has_write,
                      .written = step->written};
    void *arguments[1] = {&args};
    assert_int_equal(qr_gpu_enter(kit->cuda), QUIRE_OK);
    assert_int_equal(kit->cuda->driver.calls.cuLaunchKernel(kit->step, 1, 1, 1, WORK_THREADS, 1, 1,
                                                            0, kit->stream, arguments, NULL),
                     0);
    qr_gpu_leave(kit->cuda);
}

uint32_t kit_surprises(cuda_kit *kit)
{
    uint32_t count;
    uint32_t none = 0;
    kit_read(kit, &count, kit->surprises, sizeof count);
    kit_write(kit, kit->surprises, &none, sizeof none);
    return count;
}

static uint64_t kit_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

quire_device_job *kit_wait_for_job(quire_device *device)
{
    quire_device_job *job = NULL;
    uint64_t end_ns = kit_now_ns() + UINT64_C(1000000000) * SECONDS;
    for (uint32_t i = 0; device->ops->poll(device->self, &job, 1) == 0; i++) {
        assert_true(kit_now_ns() < end_ns);
        if (i > 100)
            usleep(20);
    }
    return job;
}

void kit_submit(quire_device *device, quire_device_job *job, quire_device_op op,
                quire_device_copy *copies, uint32_t num_copies)
{
    *job = (quire_device_job){.op = op, .copies = copies, .num_copies = num_copies, .status = 99};
    assert_int_equal(device->ops->mark(device->self, &job->after), QUIRE_OK);
    assert_int_equal(device->ops->submit(device->self, job), QUIRE_OK);
}
