/* tier/device/cuda/cta.cuh - the words in which kernels are written, so that one text runs on a GPU and, in
 * tests without one, on a processor.
 *
 *      KERNEL(name, type of args, threads)         what one CTA does, as
 *      {   EACH_THREAD (thread)  ...               loops over its threads,
 *          SYNC();                                 with this between those that depend on each other
 *          EACH_THREAD (thread)  ... }
 *
 * Nothing is kept in a thread from one loop to the next but in SHARED memory. CTA, NUM_CTAS and
 * NUM_THREADS say where it is. With QUIRE_KERNELS_ON_HOST the includer has defined all of this.
 */
#ifndef QR_TIER_CUDA_CTA_H
#define QR_TIER_CUDA_CTA_H

#include "tier/device/cuda/language.h"

#ifndef QUIRE_KERNELS_ON_HOST

#define KERNEL(name, type, threads)                                                                \
    extern "C" __global__ void __launch_bounds__(threads) name(const type args)
#define EACH_THREAD(thread)                                                                        \
    for (unsigned thread = threadIdx.x, once = 1; once != 0; once = 0)
#define SYNC() __syncthreads()
#define SHARED __shared__
#define INLINE static __forceinline__ __device__
#define UNROLL _Pragma("unroll")
#define CTA blockIdx.x
#define NUM_CTAS gridDim.x
#define NUM_THREADS blockDim.x

typedef struct qr_vector {
    unsigned x;
    unsigned y;
    unsigned z;
    unsigned w;
} qr_vector;

/* 16 bytes at a time. Not through the read-only path: the assembler would then move each load down
 * to its store, and a warp would have a vector on the way where it can have eight. */
INLINE qr_vector load_vector(unsigned long long from)
{
    qr_vector v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

/* The same of memory that is not read again soon: it is the first to leave the cache, where the
 * engine's kernels have what they do read again. */
INLINE qr_vector load_once(unsigned long long from)
{
    qr_vector v;
    asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

INLINE void store_vector(unsigned long long to, qr_vector v)
{
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

INLINE unsigned long long read_timer_ns(void)
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns) : : "memory");
    return ns;
}

#endif
#endif
