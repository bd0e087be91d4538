/* cuda/fake_cuda.c - the driver's calls over host memory; see fake_cuda.h. */
#include "fake_cuda.h"

#include "fake_state.h"
#include "fake_stream.h"
#include "tier/device/cuda/abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 96, INVALID_CONTEXT = 201 };

typedef struct function {
    fake_kernel kernel;
    size_t bytes;
    struct function *next;
} function;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_stream *default_stream;
static function *functions;

#define BEGIN()                                                                                    \
    do {                                                                                           \
        int early = fake_begin(__func__);                                                          \
        if (early != 0)                                                                            \
            return early;                                                                          \
    } while (0)

/* The driver's names: what cuda.h declares and a program finds by dlsym. */
#define CALL(name, arguments)                                                                      \
    FAKE_EXPORT int name arguments;                                                                \
    FAKE_EXPORT int name arguments

/* ---- memory ---------------------------------------------------------------- */

/* What is to use memory must be over when it goes: nothing says that the driver waits. Of device
 * memory this looks at kernels only: an opening that failed has no other way to wait for a copy. */
static void look_for_users(uint64_t address, bool is_host)
{
    if (fake_stream_is_named(address, fake_get_bytes(address), is_host))
        fake_count_misuse();
}

CALL(cuMemAlloc_v2, (uint64_t * address, size_t bytes))
{
    BEGIN();
    return fake_take(address, bytes, false);
}

CALL(cuMemFree_v2, (uint64_t address))
{
    BEGIN();
    look_for_users(address, false);
    fake_stream_wait_all();
    int result = fake_remove_memory(address, false, true);
    if (result == 0)
        free((void *)(uintptr_t)address);
    return result;
}

CALL(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total))
{
    BEGIN();
    fake_get_room(free_bytes, total);
    return 0;
}

CALL(cuMemHostAlloc, (void **memory_out, size_t bytes, unsigned flags))
{
    uint64_t address = 0;
    (void)flags;
    BEGIN();
    int result = fake_take(&address, bytes, true);
    if (result == 0)
        *memory_out = (void *)(uintptr_t)address;
    return result;
}

CALL(cuMemFreeHost, (void *address))
{
    BEGIN();
    look_for_users((uintptr_t)address, true);
    fake_stream_wait_all();
    int result = fake_remove_memory((uintptr_t)address, true, true);
    if (result == 0)
        free(address);
    return result;
}

CALL(cuMemHostRegister_v2, (void *address, size_t bytes, unsigned flags))
{
    (void)flags;
    BEGIN();
    return fake_add_memory((uintptr_t)address, bytes, true, false);
}

CALL(cuMemHostUnregister, (void *address))
{
    BEGIN();
    look_for_users((uintptr_t)address, true);
    fake_stream_wait_all();
    return fake_remove_memory((uintptr_t)address, true, false);
}

CALL(cuMemHostGetDevicePointer_v2, (uint64_t * address, void *host, unsigned flags))
{
    (void)flags;
    BEGIN();
    *address = (uintptr_t)host;
    return fake_is_taken((uintptr_t)host, 1) ? 0 : QR_CU_INVALID_VALUE;
}

CALL(cuPointerGetAttribute, (void *value, int which, uint64_t address))
{
    unsigned host = QR_CU_MEMORY_HOST;
    BEGIN();
    if (which != QR_CU_POINTER_MEMORY_TYPE || !fake_is_taken(address, 1))
        return QR_CU_INVALID_VALUE;
    memcpy(value, &host, sizeof host);
    return 0;
}

/* ---- the driver, devices, contexts ----------------------------------------- */

CALL(cuInit, (unsigned flags))
{
    (void)flags;
    BEGIN();
    return 0;
}

CALL(cuDriverGetVersion, (int *out))
{
    BEGIN();
    *out = fake_get_version();
    return 0;
}

CALL(cuGetErrorName, (int result, const char **name))
{
    *name = result == QR_CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return 0;
}

CALL(cuGetErrorString, (int result, const char **text))
{
    *text = result == QR_CU_OUT_OF_MEMORY ? "out of memory" : "as the test wished";
    return 0;
}

CALL(cuDeviceGetCount, (int *count))
{
    BEGIN();
    *count = 1;
    return 0;
}

CALL(cuDeviceGet, (int *device, int ordinal))
{
    BEGIN();
    *device = ordinal;
    return 0;
}

CALL(cuDeviceGetName, (char *name, int bytes, int device))
{
    (void)device;
    BEGIN();
    (void)strncpy(name, "stand-in", (size_t)bytes);
    return 0;
}

CALL(cuDeviceGetAttribute, (int *value, int which, int device))
{
    (void)device;
    BEGIN();
    *value = which == QR_CU_ATTRIBUTE_MULTIPROCESSORS ? 4 : 9;
    if (which == QR_CU_ATTRIBUTE_CAPABILITY_MINOR)
        *value = 0;
    return 0;
}

CALL(cuDeviceTotalMem_v2, (size_t * bytes, int device))
{
    (void)device;
    BEGIN();
    *bytes = (size_t)1 << 34;
    return 0;
}

CALL(cuDevicePrimaryCtxRetain, (void **context, int device))
{
    (void)device;
    BEGIN();
    *context = &lock;
    fake_count_live(1);
    return 0;
}

CALL(cuDevicePrimaryCtxRelease_v2, (int device))
{
    (void)device;
    fake_count_live(-1);
    BEGIN();
    return 0;
}

CALL(cuCtxPushCurrent_v2, (void *context))
{
    BEGIN();
    if (context == NULL)
        return QR_CU_INVALID_VALUE;
    fake_push_context();
    return 0;
}

CALL(cuCtxPopCurrent_v2, (void **context))
{
    bool had_one = fake_pop_context(); /* also where a test wants an error: it would pile up */
    BEGIN();
    *context = &lock;
    return had_one ? 0 : INVALID_CONTEXT;
}

CALL(cuCtxGetDevice, (int *device))
{
    BEGIN();
    *device = 0;
    return 0;
}

CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest))
{
    BEGIN();
    *least = 0;
    *greatest = -5;
    return 0;
}

/* ---- streams and events ---------------------------------------------------- */

static fake_stream *stream_of(void *stream)
{
    pthread_mutex_lock(&lock);
    if (stream == NULL && default_stream == NULL)
        default_stream = fake_stream_create();
    fake_stream *found = stream != NULL ? stream : default_stream;
    pthread_mutex_unlock(&lock);
    return found;
}

CALL(cuCtxSynchronize, (void))
{
    BEGIN();
    fake_stream_wait(stream_of(NULL));
    return 0;
}

CALL(cuStreamCreateWithPriority, (void **stream, unsigned flags, int priority))
{
    (void)flags;
    (void)priority;
    BEGIN();
    *stream = fake_stream_create();
    if (*stream == NULL)
        return QR_CU_OUT_OF_MEMORY;
    fake_count_live(1);
    return 0;
}

CALL(cuStreamDestroy_v2, (void *stream))
{
    fake_count_live(-1); /* also of a lost context: there is no more to be done for it */
    if (!fake_stream_is_idle(stream))
        fake_count_misuse(); /* the driver returns at once, and the rest goes on */
    fake_stream_destroy(stream);
    BEGIN();
    return 0;
}

CALL(cuStreamSynchronize, (void *stream))
{
    BEGIN();
    fake_stream_wait(stream_of(stream));
    return 0;
}

CALL(cuStreamQuery, (void *stream))
{
    BEGIN();
    return fake_stream_is_idle(stream_of(stream)) ? 0 : QR_CU_NOT_READY;
}

CALL(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))
{
    (void)flags;
    BEGIN();
    fake_work work = {.op = FAKE_WAIT, .event = event};
    fake_stream_add(stream_of(stream), &work);
    return 0;
}

CALL(cuEventCreate, (void **event, unsigned flags))
{
    (void)flags;
    BEGIN();
    *event = calloc(1, sizeof(fake_event));
    if (*event == NULL)
        return QR_CU_OUT_OF_MEMORY;
    fake_count_live(1);
    return 0;
}

CALL(cuEventDestroy_v2, (void *event))
{
    fake_count_live(-1);
    fake_event_destroy(event);
    BEGIN();
    return 0;
}

CALL(cuEventRecord, (void *event, void *stream))
{
    BEGIN();
    fake_work work = {.op = FAKE_RECORD, .event = event};
    fake_stream_add(stream_of(stream), &work);
    return 0;
}

CALL(cuEventQuery, (void *event))
{
    BEGIN();
    return fake_event_is_reached(event) ? 0 : QR_CU_NOT_READY;
}

CALL(cuEventSynchronize, (void *event))
{
    BEGIN();
    fake_event_wait(event);
    return 0;
}

CALL(cuEventElapsedTime, (float *milliseconds, const void *first, const void *last))
{
    const fake_event *a = first;
    const fake_event *b = last;
    BEGIN();
    *milliseconds = (float)(b->reached_ns - a->reached_ns) / 1e6f;
    return 0;
}

/* ---- work ------------------------------------------------------------------ */

static int add_copy(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    fake_work work = {.op = FAKE_COPY, .to = to, .from = from, .bytes = bytes};
    fake_touch(to, bytes);
    fake_stream_add(stream_of(stream), &work);
    return 0;
}

CALL(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, void *stream))
{
    BEGIN();
    return add_copy(to, (uintptr_t)from, bytes, stream);
}

CALL(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, void *stream))
{
    BEGIN();
    fake_touch(from, bytes);
    return add_copy((uintptr_t)to, from, bytes, stream);
}

CALL(cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t bytes, void *stream))
{
    BEGIN();
    fake_touch(from, bytes);
    return add_copy(to, from, bytes, stream);
}

CALL(cuMemcpyBatchAsync,
     (const uint64_t *to, const uint64_t *from, const size_t *bytes, size_t count,
      const qr_cu_copy_attributes *attributes, const size_t *starts, size_t num_attributes,
      size_t *failed, void *stream))
{
    BEGIN();
    *failed = SIZE_MAX;
    if (stream == NULL || count == 0 || num_attributes != 1 || starts[0] != 0 ||
        attributes->source_order != QR_CU_ORDER_STREAM)
        return QR_CU_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        fake_touch(from[i], bytes[i]);
        (void)add_copy(to[i], from[i], bytes[i], stream);
    }
    return 0;
}

CALL(cuMemcpy2DAsync_v2, (const qr_cu_copy_2d *copy, void *stream))
{
    bool is_store = copy->source.type == QR_CU_MEMORY_DEVICE;
    BEGIN();
    if (copy->source.pitch < copy->width || copy->target.pitch < copy->width ||
        copy->source.pitch > QR_CU_MOST_PITCH || copy->target.pitch > QR_CU_MOST_PITCH ||
        copy->source.type + copy->target.type != QR_CU_MEMORY_DEVICE + QR_CU_MEMORY_HOST)
        return QR_CU_INVALID_VALUE;
    uint64_t from = is_store ? copy->source.device : (uintptr_t)copy->source.host;
    uint64_t to = is_store ? (uintptr_t)copy->target.host : copy->target.device;
    for (size_t i = 0; i < copy->height; i++) {
        fake_touch(from + i * copy->source.pitch, copy->width);
        (void)add_copy(to + i * copy->target.pitch, from + i * copy->source.pitch, copy->width,
                       stream);
    }
    return 0;
}

static int add_fill(uint64_t to, unsigned value, unsigned value_bytes, size_t count, void *stream)
{
    fake_work work = {
        .op = FAKE_FILL, .to = to, .bytes = count, .value = value, .value_bytes = value_bytes};
    fake_touch(to, count * value_bytes);
    fake_stream_add(stream_of(stream), &work);
    return 0;
}

CALL(cuMemsetD8Async, (uint64_t to, unsigned char value, size_t bytes, void *stream))
{
    BEGIN();
    return add_fill(to, value, 1, bytes, stream);
}

CALL(cuMemsetD32Async, (uint64_t to, unsigned value, size_t count, void *stream))
{
    BEGIN();
    return add_fill(to, value, 4, count, stream);
}

CALL(cuModuleLoadDataEx,
     (void **module, const void *image, unsigned num_options, int *options, void **values))
{
    (void)num_options;
    (void)options;
    (void)values;
    BEGIN();
    if (image == NULL)
        return QR_CU_INVALID_VALUE;
    *module = &functions;
    fake_count_live(1);
    return 0;
}

CALL(cuModuleUnload, (void *module))
{
    (void)module;
    fake_count_live(-1);
    BEGIN();
    return 0;
}

/* In the program, which may have kernels of its own, else in this library. */
static void *find_symbol(const char *prefix, const char *name)
{
    char symbol[NAME_BYTES] = "";
    Dl_info here;
    (void)strncat(symbol, prefix, sizeof symbol - 1);
    (void)strncat(symbol, name, sizeof symbol - 1 - strlen(symbol));
    void *found = dlsym(RTLD_DEFAULT, symbol);
    if (found != NULL || dladdr(&functions, &here) == 0)
        return found;
    void *self = dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (self == NULL)
        return NULL;
    found = dlsym(self, symbol);
    (void)dlclose(self);
    return found;
}

CALL(cuModuleGetFunction, (void **out, void *module, const char *name))
{
    (void)module;
    BEGIN();
    void *kernel = find_symbol("fake_kernel_", name);
    const size_t *bytes = find_symbol("fake_kernel_bytes_", name);
    if (kernel == NULL || bytes == NULL)
        return QR_CU_NOT_FOUND;
    function *f = calloc(1, sizeof *f);
    memcpy(&f->kernel, &kernel, sizeof kernel);
    f->bytes = *bytes;
    pthread_mutex_lock(&lock);
    f->next = functions; /* they stay as long as the process, as modules do */
    functions = f;
    pthread_mutex_unlock(&lock);
    *out = f;
    return 0;
}

CALL(cuLaunchKernel,
     (void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
      unsigned shared_bytes, void *stream, void **params, void **extra))
{
    const function *f = kernel;
    (void)extra;
    BEGIN();
    if (f == NULL || gx == 0 || gy == 0 || gz == 0 || bx == 0 || bx * by * bz > 1024)
        return QR_CU_INVALID_VALUE;
    fake_work work = {.op = FAKE_KERNEL,
                      .kernel = f->kernel,
                      .grid = {gx, gy, gz},
                      .block = {bx, by, bz},
                      .shared_bytes = shared_bytes,
                      .argument = malloc(f->bytes),
                      .argument_bytes = f->bytes};
    memcpy(work.argument, params[0], f->bytes);
    fake_stream_add(stream_of(stream), &work);
    return 0;
}
