/* cuda/fake_kernels.c - the kernels' own source, run on the processor: a CTA after the other, and
 * in it a thread after the other up to each SYNC. */
#include "fake_cuda.h"

#include <string.h>
#include <time.h>

#define QUIRE_KERNELS_ON_HOST
#define INLINE static inline
#define SHARED
#define UNROLL
#define SYNC()              ((void)0)
#define EACH_THREAD(thread) for (unsigned thread = 0; thread < NUM_THREADS; thread++)
#define KERNEL(name, type, threads)                                                                \
    static void name##_cta(type args, unsigned, unsigned, unsigned);                               \
    FAKE_EXPORT extern const size_t fake_kernel_bytes_##name;                                      \
    FAKE_EXPORT const size_t fake_kernel_bytes_##name = sizeof(type);                              \
    FAKE_EXPORT void fake_kernel_##name(const unsigned grid[3], const unsigned block[3],           \
                                        unsigned shared_bytes, void **params);                     \
    FAKE_EXPORT void fake_kernel_##name(const unsigned grid[3], const unsigned block[3],           \
                                        unsigned shared_bytes, void **params)                      \
    {                                                                                              \
        (void)shared_bytes;                                                                        \
        for (unsigned i = 0; i < grid[0]; i++)                                                     \
            name##_cta(*(const type *)params[0], i, grid[0], block[0]);                            \
    }                                                                                              \
    static void name##_cta(const type args, __attribute__((unused)) unsigned CTA,                  \
                           __attribute__((unused)) unsigned NUM_CTAS, unsigned NUM_THREADS)

typedef struct qr_vector {
    unsigned x;
    unsigned y;
    unsigned z;
    unsigned w;
} qr_vector;

static qr_vector load_vector(unsigned long long from)
{
    qr_vector v;
    fake_touch(from, sizeof v);
    memcpy(&v, (const void *)from, sizeof v);
    return v;
}

static qr_vector load_once(unsigned long long from)
{
    return load_vector(from);
}

static void store_vector(unsigned long long to, qr_vector v)
{
    fake_touch(to, sizeof v);
    memcpy((void *)to, &v, sizeof v);
}

static unsigned long long read_timer_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000 + (unsigned long long)t.tv_nsec;
}

#include "tier/device/cuda/kernels.cu"

#include "cuda/work.cu"

#include "gpubench/gpu_work.cu"
