/* tier/device/cuda/gpu.h - a GPU that is open: driver, context, the engine's stream, the kernels.
 *
 * Calls into the driver stand between qr_gpu_enter and qr_gpu_leave, which make the context
 * current. The first error that is not expected breaks it, for good: CUDA's own errors mostly stay
 * too, and what was on its way is not known any more.
 */
#ifndef QR_TIER_DEVICE_CUDA_GPU_H
#define QR_TIER_DEVICE_CUDA_GPU_H

#include "base/fork_guard.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "tier/device/cuda/driver.h"

#include <quire/device_cuda.h>

typedef enum qr_kernel {
    QR_KERNEL_COPY,
    QR_KERNEL_CRC,
    QR_KERNEL_TABLES,
    QR_NUM_KERNELS
} qr_kernel;

struct quire_cuda {
    qr_cuda_driver driver;
    qr_fork_guard guard;
    quire_hooks hooks;
    qr_cu_device device;
    qr_cu_context context;
    bool is_retained;    /* it is the primary one, and counts us */
    qr_cu_stream stream; /* the engine's */
    int low_priority;
    qr_cu_module module;
    qr_cu_function kernels[QR_NUM_KERNELS];
    quire_cuda_info info;
    qr_owner owner; /* where all of this lies */
};

/* QUIRE_OK, or QUIRE_E_SYSTEM: in the child of a fork, or when the context is gone. */
int qr_gpu_enter(quire_cuda *cuda);
void qr_gpu_leave(quire_cuda *cuda);

/* Marks it as broken by what a call answered. */
void qr_gpu_break(quire_cuda *cuda, qr_cu_result result, const char *call);
/* What a call at opening answered, as a code; nothing is broken by it. Says so in message. */
int qr_gpu_explain(const quire_cuda *cuda, qr_cu_result result, const char *what);

/* Whether a query was not answered: too early, or refused while another thread captures a graph. */
static inline bool qr_gpu_is_not_known(qr_cu_result result)
{
    return result == QR_CU_NOT_READY || result == QR_CU_CAPTURE_UNSUPPORTED;
}

/* Each in the GPU's context; what failed is NULL or 0, which the others pass over. */
qr_cu_result qr_gpu_alloc(const quire_cuda *cuda, size_t bytes, qr_cu_address *address);
void qr_gpu_free(const quire_cuda *cuda, qr_cu_address address);
/* Pinned host memory, and where the GPU sees it. */
qr_cu_result qr_gpu_alloc_pinned(const quire_cuda *cuda, size_t bytes, void **memory,
                                 qr_cu_address *address);
/* Copies are less urgent than the engine's own work. */
qr_cu_result qr_gpu_make_stream(const quire_cuda *cuda, qr_cu_stream *stream);
/* Waits for what is in it. */
void qr_gpu_drop_stream(const quire_cuda *cuda, qr_cu_stream stream);
qr_cu_result qr_gpu_make_events(const quire_cuda *cuda, qr_cu_event *events, uint32_t n);
void qr_gpu_drop_events(const quire_cuda *cuda, const qr_cu_event *events, uint32_t n);

/* A kernel in a stream. */
qr_cu_result qr_gpu_launch(quire_cuda *cuda, qr_kernel kernel, uint32_t num_ctas,
                           uint32_t num_threads, qr_cu_stream stream, const void *arguments);

#endif
