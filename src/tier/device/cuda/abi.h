/* tier/device/cuda/abi.h - the few facts of CUDA's driver interface that are used here.
 *
 * The driver is opened at run time, so that nothing of CUDA is needed to build or to start. What
 * stands here is its binary interface, by the names that it exports: a name never changes its
 * meaning (what did change got a _v2).
 */
#ifndef QR_TIER_DEVICE_CUDA_ABI_H
#define QR_TIER_DEVICE_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int qr_cu_result;
typedef int qr_cu_device;
typedef uint64_t
    qr_cu_address; /* of device memory, or of pinned host memory as the device sees it */
typedef struct qr_cu_context_s *qr_cu_context;
typedef struct qr_cu_stream_s *qr_cu_stream;
typedef struct qr_cu_event_s *qr_cu_event;
typedef struct qr_cu_module_s *qr_cu_module;
typedef struct qr_cu_function_s *qr_cu_function;

enum {
    QR_CU_SUCCESS = 0,
    QR_CU_INVALID_VALUE = 1,
    QR_CU_OUT_OF_MEMORY = 2,
    QR_CU_NO_DEVICE = 100,
    QR_CU_NOT_FOUND = 500,
    QR_CU_NOT_READY = 600,
    QR_CU_ALREADY_REGISTERED = 712,
    QR_CU_CAPTURE_UNSUPPORTED = 900 /* not while some thread captures a graph */
};

enum { QR_CU_STREAM_NON_BLOCKING = 1 };
enum { QR_CU_EVENT_DISABLE_TIMING = 2 };
enum { QR_CU_HOST_PORTABLE = 1, QR_CU_HOST_DEVICEMAP = 2 };
enum { QR_CU_JIT_ERROR_LOG = 5, QR_CU_JIT_ERROR_LOG_BYTES = 6 };

enum {
    QR_CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    QR_CU_ATTRIBUTE_CAPABILITY_MAJOR = 75,
    QR_CU_ATTRIBUTE_CAPABILITY_MINOR = 76
};

enum { QR_CU_POINTER_MEMORY_TYPE = 2, QR_CU_MEMORY_HOST = 1, QR_CU_MEMORY_DEVICE = 2 };

/* What cuMemcpyBatchAsync is told of its copies. */
typedef struct qr_cu_location {
    int type;
    int id;
} qr_cu_location;

enum { QR_CU_ORDER_STREAM = 1 }; /* a source is read in the order of the stream, not before */

typedef struct qr_cu_copy_attributes {
    int source_order;
    qr_cu_location source_hint;
    qr_cu_location target_hint;
    unsigned flags;
} qr_cu_copy_attributes;

/* Rows at equal distances; one side is host memory, the other the device's. */
typedef struct qr_cu_side {
    size_t x;
    size_t y;
    int type;
    void *host;
    qr_cu_address device;
    void *array;
    size_t pitch;
} qr_cu_side;

typedef struct qr_cu_copy_2d {
    qr_cu_side source;
    qr_cu_side target;
    size_t width;
    size_t height;
} qr_cu_copy_2d;

enum { QR_CU_MOST_PITCH = INT32_MAX };

/* X(name, what the driver adds to it in the name that it exports, arguments). */
#define QR_CUDA_CALLS(X)                                                                           \
    X(cuInit, , (unsigned flags))                                                                  \
    X(cuDriverGetVersion, , (int *version))                                                        \
    X(cuGetErrorName, , (qr_cu_result result, const char **name))                                  \
    X(cuGetErrorString, , (qr_cu_result result, const char **text))                                \
    X(cuDeviceGetCount, , (int *count))                                                            \
    X(cuDeviceGet, , (qr_cu_device * device, int ordinal))                                         \
    X(cuDeviceGetName, , (char *name, int bytes, qr_cu_device device))                             \
    X(cuDeviceGetAttribute, , (int *value, int which, qr_cu_device device))                        \
    X(cuDeviceTotalMem, _v2, (size_t * bytes, qr_cu_device device))                                \
    X(cuDevicePrimaryCtxRetain, , (qr_cu_context * context, qr_cu_device device))                  \
    X(cuDevicePrimaryCtxRelease, _v2, (qr_cu_device device))                                       \
    X(cuCtxPushCurrent, _v2, (qr_cu_context context))                                              \
    X(cuCtxPopCurrent, _v2, (qr_cu_context * context))                                             \
    X(cuCtxGetDevice, , (qr_cu_device * device))                                                   \
    X(cuCtxGetStreamPriorityRange, , (int *least, int *greatest))                                  \
    X(cuMemAlloc, _v2, (qr_cu_address * address, size_t bytes))                                    \
    X(cuMemFree, _v2, (qr_cu_address address))                                                     \
    X(cuMemGetInfo, _v2, (size_t * free_bytes, size_t * total_bytes))                              \
    X(cuMemHostAlloc, , (void **memory, size_t bytes, unsigned flags))                             \
    X(cuMemFreeHost, , (void *memory))                                                             \
    X(cuMemHostRegister, _v2, (void *memory, size_t bytes, unsigned flags))                        \
    X(cuMemHostUnregister, , (void *memory))                                                       \
    X(cuMemHostGetDevicePointer, _v2, (qr_cu_address * address, void *memory, unsigned flags))     \
    X(cuPointerGetAttribute, , (void *value, int which, qr_cu_address address))                    \
    X(cuMemcpyHtoDAsync, _v2,                                                                      \
      (qr_cu_address to, const void *from, size_t bytes, qr_cu_stream stream))                     \
    X(cuMemcpyDtoHAsync, _v2, (void *to, qr_cu_address from, size_t bytes, qr_cu_stream stream))   \
    X(cuMemcpyDtoDAsync, _v2,                                                                      \
      (qr_cu_address to, qr_cu_address from, size_t bytes, qr_cu_stream stream))                   \
    X(cuMemcpy2DAsync, _v2, (const qr_cu_copy_2d *copy, qr_cu_stream stream))                      \
    X(cuMemsetD8Async, ,                                                                           \
      (qr_cu_address to, unsigned char value, size_t bytes, qr_cu_stream stream))                  \
    X(cuMemsetD32Async, , (qr_cu_address to, unsigned value, size_t count, qr_cu_stream stream))   \
    X(cuStreamCreateWithPriority, , (qr_cu_stream * stream, unsigned flags, int priority))         \
    X(cuStreamDestroy, _v2, (qr_cu_stream stream))                                                 \
    X(cuStreamSynchronize, , (qr_cu_stream stream))                                                \
    X(cuStreamQuery, , (qr_cu_stream stream))                                                      \
    X(cuStreamWaitEvent, , (qr_cu_stream stream, qr_cu_event event, unsigned flags))               \
    X(cuEventCreate, , (qr_cu_event * event, unsigned flags))                                      \
    X(cuEventDestroy, _v2, (qr_cu_event event))                                                    \
    X(cuEventRecord, , (qr_cu_event event, qr_cu_stream stream))                                   \
    X(cuEventQuery, , (qr_cu_event event))                                                         \
    X(cuEventSynchronize, , (qr_cu_event event))                                                   \
    X(cuEventElapsedTime, , (float *milliseconds, qr_cu_event first, qr_cu_event last))            \
    X(cuModuleLoadDataEx, ,                                                                        \
      (qr_cu_module * module, const void *image, unsigned num_options, int *options,               \
       void **values))                                                                             \
    X(cuModuleUnload, , (qr_cu_module module))                                                     \
    X(cuModuleGetFunction, , (qr_cu_function * function, qr_cu_module module, const char *name))   \
    X(cuLaunchKernel, ,                                                                            \
      (qr_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                 \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       qr_cu_stream stream, void **arguments, void **extra))

/* Those that a driver may lack (NULL then): batches came with 12.8, and kept this form under this
 * name when 13.0 brought another as _v2. */
#define QR_CUDA_OPTIONAL_CALLS(X)                                                                  \
    X(cuMemcpyBatchAsync, ,                                                                        \
      (qr_cu_address * to, qr_cu_address * from, size_t * bytes, size_t count,                     \
       qr_cu_copy_attributes * attributes, size_t * attribute_starts, size_t num_attributes,       \
       size_t * failed, qr_cu_stream stream))

typedef struct qr_cuda_calls {
#define QR_X(name, version, arguments) qr_cu_result(*name) arguments;
    QR_CUDA_CALLS(QR_X)
    QR_CUDA_OPTIONAL_CALLS(QR_X)
#undef QR_X
} qr_cuda_calls;

#endif
