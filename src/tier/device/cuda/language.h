/* tier/device/cuda/language.h - what a kernel's source needs of CUDA, where its headers are not
 * there.
 *
 * Kernels are compiled by nvcc, which brings all of this, or by clang alone (-nocudainc
 * -nocudalib), which knows the instructions but not their usual names. With QUIRE_KERNELS_ON_HOST
 * the same source is C, and whoever includes it says what these words mean there.
 */
#ifndef QR_TIER_DEVICE_CUDA_LANGUAGE_H
#define QR_TIER_DEVICE_CUDA_LANGUAGE_H

#if !defined(QUIRE_KERNELS_ON_HOST) && !defined(__NVCC__)

#define __global__                 __attribute__((global))
#define __device__                 __attribute__((device))
#define __shared__                 __attribute__((shared))
#define __launch_bounds__(threads) __attribute__((launch_bounds(threads)))
#define __forceinline__            __inline__ __attribute__((always_inline))

/* threadIdx.x and the like: a struct without members that reads a register each time. */
#define QR_SPECIAL(name, reads)                                                                    \
    struct qr_##name##_t {                                                                         \
        __declspec(property(get = get_x)) unsigned x;                                              \
        static inline __device__ unsigned get_x(void)                                              \
        {                                                                                          \
            return (unsigned)__nvvm_read_ptx_sreg_##reads##_x();                                   \
        }                                                                                          \
    };                                                                                             \
    extern const __device__ qr_##name##_t name
QR_SPECIAL(threadIdx, tid);
QR_SPECIAL(blockIdx, ctaid);
QR_SPECIAL(blockDim, ntid);
QR_SPECIAL(gridDim, nctaid);
#undef QR_SPECIAL

#endif
#endif
