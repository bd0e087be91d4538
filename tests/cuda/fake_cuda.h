/* cuda/fake_cuda.h - a stand-in for CUDA's driver: the same calls over host memory.
 *
 *      cuStreamX ──► a queue with a thread of its own      events: numbers that queues reach
 *      kernels    ──► C functions fake_kernel_NAME, in the program or in here
 *
 * A test opens it by its path (QUIRE_CUDA_LIBRARY, or quire_cuda_config.library) and asks it for
 * faults through these functions, which it finds with dlsym. Copies and kernels of this library
 * look whether what they touch is memory that was taken; those that do not are counted. So are
 * calls that the driver would answer with harm: see num_misuses.
 */
#ifndef QUIRE_TESTS_FAKE_CUDA_H
#define QUIRE_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_EXPORT __attribute__((visibility("default")))

typedef struct fake_cuda_controls {
    /* All counters, limits and faults as in the beginning. */
    void (*reset)(void);
    /* The n-th call from now on (1: the next) of this name, or of any with NULL, gives result. */
    void (*fail_at)(const char *call, uint64_t nth, int result);
    /* Calls so far. */
    uint64_t (*num_calls)(void);
    /* The context is lost: everything gives result, and what is in queues is not done. */
    void (*lose)(int result);
    /* Bytes of device memory, and of pinned host memory, that there are. */
    void (*limit)(uint64_t device_bytes, uint64_t pinned_bytes);
    /* Before each copy, memset and kernel. */
    void (*delay_us)(uint32_t us);
    /* As a driver before 12.8, or of this version. */
    void (*set_version)(int version);
    /* Memory, streams, events, modules, contexts that are not given back. */
    uint64_t (*num_live)(void);
    /* Copies of memory that was never taken. */
    uint64_t (*num_strays)(void);
    /* Calls without a context, contexts popped that were not pushed, streams destroyed with work
     * left in them, and memory given back that such work names. */
    uint64_t (*num_misuses)(void);
    /* As if another thread captured a graph in global mode: queries and waiting are refused. */
    void (*capture)(bool is_on);
} fake_cuda_controls;

/* dlsym(handle, "fake_cuda_get_controls") */
typedef const fake_cuda_controls *(*fake_cuda_get_controls_t)(void);

/* ---- inside ---------------------------------------------------------------- */

/* Counts what is not inside memory that was taken, device's or pinned. */
void fake_touch(uint64_t address, size_t bytes);

typedef void (*fake_kernel)(const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                            void **params);

#endif
