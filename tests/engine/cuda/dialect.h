/* engine/cuda/dialect.h - the language of kernels.cu: CUDA, and C.
 *
 *      nvcc, or clang alone    a thread of a block is one of the GPU's
 *      a C compiler            it is a thread of the process, or one stands for all of them
 *
 * A kernel is written for any number of threads in a block, one included: each shared loop is
 * EACH(i, n), and between what some threads write and others read stands TOGETHER(). So a C
 * compiler can make a block a plain loop; and with real threads a race detector sees a TOGETHER()
 * that is missing.
 */
#ifndef ENGINE_CUDA_DIALECT_H
#define ENGINE_CUDA_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__) || defined(__CUDA__)

#include "tier/device/cuda/language.h"

#define KERNEL             extern "C" __global__ void
#define DEVICE             static __device__ __forceinline__
#define MY_BLOCK           (blockIdx.x)
#define MY_THREAD          (threadIdx.x)
#define NUM_THREADS        (blockDim.x)
#define TOGETHER()         __syncthreads()
#define SHARED(type, name) extern __shared__ type name[]
#define UNROLLED           _Pragma("unroll 16")
#if defined(__clang__) /* the library's is the host's */
#define memcpy(to, from, bytes) __builtin_memcpy(to, from, bytes)
#endif

DEVICE uint64_t now_ns(void)
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

#else

#include "engine/cuda/block.h"

#define KERNEL             static void
#define DEVICE             static inline
#define MY_BLOCK           (engine_my_place.block)
#define MY_THREAD          (engine_my_place.thread)
#define NUM_THREADS        (engine_my_place.num_threads)
#define TOGETHER()         engine_block_together()
#define SHARED(type, name) type *name = (type *)engine_my_place.shared
#define UNROLLED
#define now_ns engine_block_now_ns

#endif

#define ENGINE_INLINE DEVICE /* engine/arith.h */
#define EACH(i, n)    for (uint32_t i = MY_THREAD; i < (n); i += NUM_THREADS)

#endif
