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
typedef struct qr_cu_copy_2d {
    size_t source_x;
    size_t source_y;
    int source_type;
    const void *source_host;
    qr_cu_address source_device;
    void *source_array;
    size_t source_pitch;
    size_t target_x;
    size_t target_y;
    int target_type;
    void *target_host;
    qr_cu_address target_device;
    void *target_array;
    size_t target_pitch;
    size_t width;
    size_t height;
} qr_cu_copy_2d;

enum { QR_CU_MOST_PITCH = INT32_MAX };

/* X(name here, name that the driver exports, arguments). */
#define QR_CUDA_CALLS(X)                                                                           \
    X(cuInit, cuInit, (unsigned flags))                                                            \
    X(cuDriverGetVersion, cuDriverGetVersion, (int *version))                                      \
    X(cuGetErrorName, cuGetErrorName, (qr_cu_result result, const char **name))                    \
    X(cuGetErrorString, cuGetErrorString, (qr_cu_result result, const char **text))                \
    X(cuDeviceGetCount, cuDeviceGetCount, (int *count))                                            \
    X(cuDeviceGet, cuDeviceGet, (qr_cu_device * device, int ordinal))                              \
    X(cuDeviceGetName, cuDeviceGetName, (char *name, int bytes, qr_cu_device device))              \
    X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *value, int which, qr_cu_device device))    \
    X(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, qr_cu_device device))                \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain,                                          \
      (qr_cu_context * context, qr_cu_device device))                                              \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (qr_cu_device device))              \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (qr_cu_context context))                              \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (qr_cu_context * context))                              \
    X(cuCtxGetDevice, cuCtxGetDevice, (qr_cu_device * device))                                     \
    X(cuCtxSynchronize, cuCtxSynchronize, (void))                                                  \
    X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int *least, int *greatest))       \
    X(cuMemAlloc, cuMemAlloc_v2, (qr_cu_address * address, size_t bytes))                          \
    X(cuMemFree, cuMemFree_v2, (qr_cu_address address))                                            \
    X(cuMemGetInfo, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                  \
    X(cuMemHostAlloc, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))               \
    X(cuMemFreeHost, cuMemFreeHost, (void *memory))                                                \
    X(cuMemHostRegister, cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags))       \
    X(cuMemHostUnregister, cuMemHostUnregister, (void *memory))                                    \
    X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2,                                     \
      (qr_cu_address * address, void *memory, unsigned flags))                                     \
    X(cuPointerGetAttribute, cuPointerGetAttribute,                                                \
      (void *value, int which, qr_cu_address address))                                             \
    X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                                     \
      (qr_cu_address to, const void *from, size_t bytes, qr_cu_stream stream))                     \
    X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                                     \
      (void *to, qr_cu_address from, size_t bytes, qr_cu_stream stream))                           \
    X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                                     \
      (qr_cu_address to, qr_cu_address from, size_t bytes, qr_cu_stream stream))                   \
    X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, (const qr_cu_copy_2d *copy, qr_cu_stream stream))       \
    X(cuMemsetD8Async, cuMemsetD8Async,                                                            \
      (qr_cu_address to, unsigned char value, size_t bytes, qr_cu_stream stream))                  \
    X(cuMemsetD32Async, cuMemsetD32Async,                                                          \
      (qr_cu_address to, unsigned value, size_t count, qr_cu_stream stream))                       \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority,                                      \
      (qr_cu_stream * stream, unsigned flags, int priority))                                       \
    X(cuStreamDestroy, cuStreamDestroy_v2, (qr_cu_stream stream))                                  \
    X(cuStreamSynchronize, cuStreamSynchronize, (qr_cu_stream stream))                             \
    X(cuStreamQuery, cuStreamQuery, (qr_cu_stream stream))                                         \
    X(cuStreamWaitEvent, cuStreamWaitEvent,                                                        \
      (qr_cu_stream stream, qr_cu_event event, unsigned flags))                                    \
    X(cuEventCreate, cuEventCreate, (qr_cu_event * event, unsigned flags))                         \
    X(cuEventDestroy, cuEventDestroy_v2, (qr_cu_event event))                                      \
    X(cuEventRecord, cuEventRecord, (qr_cu_event event, qr_cu_stream stream))                      \
    X(cuEventQuery, cuEventQuery, (qr_cu_event event))                                             \
    X(cuEventSynchronize, cuEventSynchronize, (qr_cu_event event))                                 \
    X(cuEventElapsedTime, cuEventElapsedTime,                                                      \
      (float *milliseconds, qr_cu_event first, qr_cu_event last))                                  \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx,                                                      \
      (qr_cu_module * module, const void *image, unsigned num_options, int *options,               \
       void **values))                                                                             \
    X(cuModuleUnload, cuModuleUnload, (qr_cu_module module))                                       \
    X(cuModuleGetFunction, cuModuleGetFunction,                                                    \
      (qr_cu_function * function, qr_cu_module module, const char *name))                          \
    X(cuLaunchKernel, cuLaunchKernel,                                                              \
      (qr_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                 \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       qr_cu_stream stream, void **arguments, void **extra))

/* Those that a driver may lack (NULL then): batches came with 12.8, and kept this form under this
 * name when 13.0 brought another as _v2. */
#define QR_CUDA_OPTIONAL_CALLS(X)                                                                  \
    X(cuMemcpyBatchAsync, cuMemcpyBatchAsync,                                                      \
      (qr_cu_address * to, qr_cu_address * from, size_t * bytes, size_t count,                     \
       qr_cu_copy_attributes * attributes, size_t * attribute_starts, size_t num_attributes,       \
       size_t * failed, qr_cu_stream stream))

typedef struct qr_cuda_calls {
#define QR_X(name, symbol, arguments) qr_cu_result(*name) arguments;
    QR_CUDA_CALLS(QR_X)
    QR_CUDA_OPTIONAL_CALLS(QR_X)
#undef QR_X
} qr_cuda_calls;

#endif
