/* tier/device/cuda/driver.h - CUDA's driver, opened at run time.
 *
 *      libcuda.so.1 ── dlopen ──► calls.cuMemAlloc, calls.cuLaunchKernel, ...
 *
 * Another library can stand in for it: by path, or by the environment's QUIRE_CUDA_LIBRARY.
 */
#ifndef QR_TIER_DEVICE_CUDA_DRIVER_H
#define QR_TIER_DEVICE_CUDA_DRIVER_H

#include "tier/device/cuda/abi.h"

typedef struct qr_cuda_driver {
    void *library;
    int version; /* 13000 is 13.0 */
    qr_cuda_calls calls;
} qr_cuda_driver;

/* QUIRE_E_SYSTEM: there is none, it is too old, or it does not start; message says which. */
int qr_cuda_driver_open(qr_cuda_driver *driver, const char *path);
void qr_cuda_driver_close(qr_cuda_driver *driver); /* one that is not open is fine */

/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory)" */
void qr_cuda_describe(const qr_cuda_driver *driver, qr_cu_result result, char *text, size_t bytes);

#endif
