/* cli/gpubench/gpu_work.cu - three steps of an engine as copies see them: one that is bound by arithmetic,
 * one by the L2 cache, one by memory. */
#include "gpu_work.h"
#include "tier/device/cuda/cta.cuh"

INLINE float work_hard(float a, unsigned steps)
{
    float b = a + 1.0f;
    float c = a + 2.0f;
    float d = a + 3.0f;
    for (unsigned i = 0; i < steps; i++) {
        UNROLL
        for (unsigned k = 0; k < 16; k++) {
            a = a * 0.999f + 0.5f;
            b = b * 0.998f + 0.5f;
            c = c * 0.997f + 0.5f;
            d = d * 0.996f + 0.5f;
        }
    }
    return a + b + c + d;
}

KERNEL(quire_work_math, gpu_work_args, GPU_WORK_THREADS)
{
    EACH_THREAD (thread)
        ((float *)args.results)[CTA * NUM_THREADS + thread] = work_hard((float)thread, args.steps);
}

KERNEL(quire_work_cache, gpu_work_args, GPU_WORK_THREADS)
{
    const unsigned long long stride = (unsigned long long)NUM_CTAS * NUM_THREADS;
    for (unsigned step = 0; step < args.steps; step++)
        EACH_THREAD (thread)
            for (unsigned long long i = CTA * NUM_THREADS + thread; i < args.vectors; i += stride) {
                qr_vector v = load_vector(args.memory + 16 * i);
                v.x++;
                store_vector(args.memory + 16 * i, v);
            }
}

enum { VECTORS_AT_ONCE = 8 };

/* Enough on the way that the bandwidth counts and not the time that one vector takes. */
KERNEL(quire_work_memory, gpu_work_args, GPU_WORK_THREADS)
{
    const unsigned long long turn = VECTORS_AT_ONCE * NUM_THREADS;
    const unsigned long long part = args.vectors / NUM_CTAS / turn * turn;
    EACH_THREAD (thread) {
        unsigned sum = 0;
        for (unsigned step = 0; step < args.steps; step++) {
            const unsigned long long first = (CTA + step * (NUM_CTAS / 4 + 1)) % NUM_CTAS * part;
            for (unsigned long long i = first + thread; i < first + part; i += turn) {
                qr_vector v[VECTORS_AT_ONCE];
                UNROLL
                for (unsigned k = 0; k < VECTORS_AT_ONCE; k++)
                    v[k] = load_vector(args.memory + 16 * (i + k * NUM_THREADS));
                UNROLL
                for (unsigned k = 0; k < VECTORS_AT_ONCE; k++)
                    sum += v[k].x + v[k].y + v[k].z + v[k].w;
            }
        }
        ((unsigned *)args.results)[CTA * NUM_THREADS + thread] = sum;
    }
}
