#include "tier/device/cuda/gpu.h"

#include "base/hooks.h"
#include "base/refuse.h"

#include <stdarg.h>
#include <stdio.h>

/* Of kernels.cu; empty where no compiler for it was there. */
extern const char qr_cuda_kernels[];
extern const size_t qr_cuda_kernels_bytes;

static const char *const KERNEL_NAMES[QR_NUM_KERNELS] = {
    [QR_KERNEL_COPY] = "quire_copy_pieces",
    [QR_KERNEL_CRC] = "quire_crc_blocks",
    [QR_KERNEL_TABLES] = "quire_set_tables",
};

/* ---- errors ---------------------------------------------------------------- */

/* Says what is wrong with it, or with its kernels. */
static void note(quire_cuda *cuda, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(quire_cuda *cuda, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    (void)vsnprintf(cuda->info.what, sizeof cuda->info.what, format, values);
    va_end(values);
}

void qr_gpu_break(quire_cuda *cuda, qr_cu_result result, const char *call)
{
    char why[96];
    if (cuda->info.is_broken != 0)
        return;
    qr_cuda_describe(&cuda->driver, result, why, sizeof why);
    note(cuda, "%s: %s", call, why);
    cuda->info.is_broken = 1;
    qr_log(&cuda->hooks, QUIRE_LOG_ERROR, "the GPU is broken: %s; its blocks are computed again",
           cuda->info.what);
}

int qr_gpu_explain(const quire_cuda *cuda, qr_cu_result result, const char *what)
{
    char why[96];
    qr_cuda_describe(&cuda->driver, result, why, sizeof why);
    qr_say("%s: %s", what, why);
    return result == QR_CU_OUT_OF_MEMORY ? QUIRE_E_NOMEM : QUIRE_E_SYSTEM;
}

int qr_gpu_enter(quire_cuda *cuda)
{
    if (qr_fork_guard_is_child(&cuda->guard))
        return QUIRE_E_SYSTEM;
    qr_cu_result result = cuda->driver.calls.cuCtxPushCurrent(cuda->context);
    if (result == QR_CU_SUCCESS)
        return QUIRE_OK;
    qr_gpu_break(cuda, result, "cuCtxPushCurrent");
    return QUIRE_E_SYSTEM;
}

void qr_gpu_leave(quire_cuda *cuda)
{
    qr_cu_context ours;
    (void)cuda->driver.calls.cuCtxPopCurrent(&ours);
}

qr_cu_result qr_gpu_launch(quire_cuda *cuda, qr_kernel kernel, uint32_t num_ctas,
                           uint32_t num_threads, qr_cu_stream stream, const void *arguments)
{
    void *pointers[1];
    memcpy(pointers, &arguments, sizeof arguments); /* the driver only reads them */
    return cuda->driver.calls.cuLaunchKernel(cuda->kernels[kernel], num_ctas, 1, 1, num_threads, 1,
                                             1, 0, stream, pointers, NULL);
}

/* ---- memory, streams, events ----------------------------------------------- */

qr_cu_result qr_gpu_alloc(const quire_cuda *cuda, size_t bytes, qr_cu_address *address)
{
    qr_cu_result result = cuda->driver.calls.cuMemAlloc(address, bytes);
    if (result != QR_CU_SUCCESS)
        *address = 0;
    return result;
}

void qr_gpu_free(const quire_cuda *cuda, qr_cu_address address)
{
    if (address != 0)
        (void)cuda->driver.calls.cuMemFree(address);
}

qr_cu_result qr_gpu_alloc_pinned(const quire_cuda *cuda, size_t bytes, void **memory,
                                 qr_cu_address *address)
{
    const qr_cuda_calls *calls = &cuda->driver.calls;
    qr_cu_result result =
        calls->cuMemHostAlloc(memory, bytes, QR_CU_HOST_PORTABLE | QR_CU_HOST_DEVICEMAP);
    if (result == QR_CU_SUCCESS)
        return calls->cuMemHostGetDevicePointer(address, *memory, 0);
    *memory = NULL;
    return result;
}

qr_cu_result qr_gpu_make_stream(const quire_cuda *cuda, qr_cu_stream *stream)
{
    qr_cu_result result = cuda->driver.calls.cuStreamCreateWithPriority(
        stream, QR_CU_STREAM_NON_BLOCKING, cuda->low_priority);
    if (result != QR_CU_SUCCESS)
        *stream = NULL;
    return result;
}

void qr_gpu_drop_stream(const quire_cuda *cuda, qr_cu_stream stream)
{
    if (stream == NULL)
        return;
    (void)cuda->driver.calls.cuStreamSynchronize(stream);
    (void)cuda->driver.calls.cuStreamDestroy(stream);
}

qr_cu_result qr_gpu_make_events(const quire_cuda *cuda, qr_cu_event *events, uint32_t n)
{
    qr_cu_result result = QR_CU_SUCCESS;
    for (uint32_t i = 0; i < n && result == QR_CU_SUCCESS; i++) {
        result = cuda->driver.calls.cuEventCreate(&events[i], QR_CU_EVENT_DISABLE_TIMING);
        if (result != QR_CU_SUCCESS)
            events[i] = NULL;
    }
    return result;
}

void qr_gpu_drop_events(const quire_cuda *cuda, const qr_cu_event *events, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (events[i] != NULL)
            (void)cuda->driver.calls.cuEventDestroy(events[i]);
}

/* ---- opening --------------------------------------------------------------- */

/* Kernels are not needed for everything: where they cannot be had, `what` says why. */
static void load_kernels(quire_cuda *cuda)
{
    char log[512] = "";
    char why[96];
    int options[2] = {QR_CU_JIT_ERROR_LOG, QR_CU_JIT_ERROR_LOG_BYTES};
    void *values[2] = {log, (void *)(uintptr_t)(sizeof log - 1)};
    const qr_cuda_calls *calls = &cuda->driver.calls;
    if (qr_cuda_kernels_bytes == 0) {
        note(cuda, "no kernels: this library was built without clang or nvcc");
        return;
    }
    qr_cu_result result =
        calls->cuModuleLoadDataEx(&cuda->module, qr_cuda_kernels, 2, options, values);
    if (result != QR_CU_SUCCESS)
        cuda->module = NULL;
    for (int i = 0; i < QR_NUM_KERNELS && result == QR_CU_SUCCESS; i++)
        result = calls->cuModuleGetFunction(&cuda->kernels[i], cuda->module, KERNEL_NAMES[i]);
    cuda->info.has_kernels = result == QR_CU_SUCCESS;
    if (result == QR_CU_SUCCESS)
        return;
    qr_cuda_describe(&cuda->driver, result, why, sizeof why);
    note(cuda, "no kernels: %s %s", why, log);
    qr_log(&cuda->hooks, QUIRE_LOG_WARNING, "%s; copies use the copy engine", cuda->info.what);
}

static qr_cu_result read_info(quire_cuda *cuda)
{
    const qr_cuda_calls *calls = &cuda->driver.calls;
    quire_cuda_info *info = &cuda->info;
    static const int WHICH[3] = {QR_CU_ATTRIBUTE_CAPABILITY_MAJOR, QR_CU_ATTRIBUTE_CAPABILITY_MINOR,
                                 QR_CU_ATTRIBUTE_MULTIPROCESSORS};
    int values[3] = {0};
    size_t bytes = 0;
    qr_cu_result result = calls->cuDeviceGetName(info->name, sizeof info->name, cuda->device);
    for (int i = 0; i < 3 && result == QR_CU_SUCCESS; i++)
        result = calls->cuDeviceGetAttribute(&values[i], WHICH[i], cuda->device);
    if (result == QR_CU_SUCCESS)
        result = calls->cuDeviceTotalMem(&bytes, cuda->device);
    info->driver_version = cuda->driver.version;
    info->capability = (uint32_t)(10 * values[0] + values[1]);
    info->num_multiprocessors = (uint32_t)values[2];
    info->total_bytes = bytes;
    info->has_batches = calls->cuMemcpyBatchAsync != NULL;
    return result;
}

static int find_device(quire_cuda *cuda, uint32_t ordinal)
{
    const qr_cuda_calls *calls = &cuda->driver.calls;
    int count = 0;
    qr_cu_result result = calls->cuDeviceGetCount(&count);
    if (result == QR_CU_SUCCESS && (uint32_t)count <= ordinal)
        return qr_fail(QUIRE_E_SYSTEM,
                       "GPU %u not found: the driver shows %d; CUDA_VISIBLE_DEVICES may hide some",
                       ordinal, count);
    if (result == QR_CU_SUCCESS)
        result = calls->cuDeviceGet(&cuda->device, (int)ordinal);
    if (result == QR_CU_SUCCESS)
        result = calls->cuDevicePrimaryCtxRetain(&cuda->context, cuda->device);
    if (result == QR_CU_SUCCESS) {
        cuda->is_retained = true;
        return QUIRE_OK;
    }
    return qr_gpu_explain(cuda, result, "the GPU cannot be used");
}

static int set_up_gpu(quire_cuda *cuda, const quire_cuda_config *config)
{
    int greatest = 0;
    int status = QUIRE_OK;
    if (config->context != NULL)
        cuda->context = config->context;
    else
        status = find_device(cuda, config->device);
    if (status != QUIRE_OK)
        return status;
    if (qr_gpu_enter(cuda) != QUIRE_OK)
        return qr_fail(QUIRE_E_SYSTEM, "the GPU's context cannot be used: %s", cuda->info.what);
    qr_cu_result result = QR_CU_SUCCESS;
    if (config->context != NULL)
        result = cuda->driver.calls.cuCtxGetDevice(&cuda->device);
    if (result == QR_CU_SUCCESS)
        result = cuda->driver.calls.cuCtxGetStreamPriorityRange(&cuda->low_priority, &greatest);
    if (result == QR_CU_SUCCESS)
        result = read_info(cuda);
    if (config->kernels == QUIRE_OFF)
        note(cuda, "no kernels: the config has them off");
    else if (result == QR_CU_SUCCESS)
        load_kernels(cuda);
    qr_gpu_leave(cuda);
    if (result != QR_CU_SUCCESS)
        return qr_gpu_explain(cuda, result, "the GPU cannot be used");
    if (config->kernels == QUIRE_ON && cuda->info.has_kernels == 0)
        return qr_fail(QUIRE_E_SYSTEM, "%s", cuda->info.what);
    return QUIRE_OK;
}

QUIRE_API int quire_cuda_open(const quire_cuda_config *callers, const quire_allocator *allocator,
                              quire_cuda **cuda)
{
    quire_cuda_config config;
    qr_owner owner;
    int status =
        qr_refuse_opening(&config, sizeof config, callers, cuda, allocator, "the GPU's config");
    if (status != QUIRE_OK)
        return status;
    quire_cuda *c = (void *)qr_owner_carve(&owner, allocator, sizeof *c).base;
    if (c == NULL)
        return qr_fail(QUIRE_E_NOMEM, "out of memory");
    c->owner = owner;
    c->hooks = config.hooks;
    c->stream = config.stream;
    qr_fork_guard_init(&c->guard);
    status = qr_cuda_driver_open(&c->driver, config.library);
    if (status == QUIRE_OK)
        status = set_up_gpu(c, &config);
    if (status != QUIRE_OK) {
        quire_cuda_close(c);
        return status;
    }
    *cuda = c;
    return QUIRE_OK;
}

QUIRE_API void quire_cuda_close(quire_cuda *cuda)
{
    if (cuda == NULL || qr_fork_guard_is_child(&cuda->guard))
        return;
    if (cuda->module != NULL && qr_gpu_enter(cuda) == QUIRE_OK) {
        (void)cuda->driver.calls.cuModuleUnload(cuda->module);
        qr_gpu_leave(cuda);
    }
    if (cuda->is_retained)
        (void)cuda->driver.calls.cuDevicePrimaryCtxRelease(cuda->device);
    qr_cuda_driver_close(&cuda->driver);
    qr_owner_release(&cuda->owner);
}

QUIRE_API const quire_cuda_info *quire_cuda_get_info(quire_cuda *cuda)
{
    if (cuda == NULL)
        return NULL;
    quire_cuda_info *info = &cuda->info;
    info->free_bytes = 0;
    qr_cu_context ours;
    size_t total;
    size_t bytes = 0;
    if (qr_fork_guard_is_child(&cuda->guard) ||
        cuda->driver.calls.cuCtxPushCurrent(cuda->context) != QR_CU_SUCCESS)
        return info;
    if (cuda->driver.calls.cuMemGetInfo(&bytes, &total) == QR_CU_SUCCESS)
        info->free_bytes = bytes;
    (void)cuda->driver.calls.cuCtxPopCurrent(&ours);
    return info;
}

/* ---- pinned host memory ---------------------------------------------------- */

QUIRE_API int quire_cuda_host_alloc(quire_cuda *cuda, uint64_t bytes, void **memory)
{
    if (cuda == NULL || memory == NULL || bytes == 0 || bytes > SIZE_MAX)
        return QUIRE_E_ARGUMENT;
    if (qr_gpu_enter(cuda) != QUIRE_OK)
        return QUIRE_E_SYSTEM;
    qr_cu_result result = cuda->driver.calls.cuMemHostAlloc(
        memory, (size_t)bytes, QR_CU_HOST_PORTABLE | QR_CU_HOST_DEVICEMAP);
    qr_gpu_leave(cuda);
    if (result == QR_CU_SUCCESS)
        return QUIRE_OK;
    *memory = NULL;
    return result == QR_CU_OUT_OF_MEMORY ? QUIRE_E_NOMEM : QUIRE_E_SYSTEM;
}

QUIRE_API void quire_cuda_host_free(quire_cuda *cuda, void *memory)
{
    if (cuda == NULL || memory == NULL || qr_gpu_enter(cuda) != QUIRE_OK)
        return;
    (void)cuda->driver.calls.cuMemFreeHost(memory);
    qr_gpu_leave(cuda);
}
