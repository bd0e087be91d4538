/* engine/cuda/stand_in.c - the kernels, under the names by which the stand-in for CUDA's driver
 * finds them in a program that runs without a GPU.
 *
 * However many threads a launch asks for, a block has ENGINE_BLOCK_THREADS of the environment, or
 * one: what a kernel computes does not depend on it.
 */
#include "engine/cuda/kernels.h"
#include "engine/cuda/kernels_host.h"

#include <stdlib.h>

static uint32_t count_threads(void)
{
    const char *text = getenv("ENGINE_BLOCK_THREADS");
    long threads = text == NULL ? 1 : strtol(text, NULL, 10);
    return threads < 1 ? 1 : (uint32_t)threads;
}

#define STAND_IN(kernel, type)                                                                     \
    extern const size_t fake_kernel_bytes_##kernel;                                                \
    const size_t fake_kernel_bytes_##kernel = sizeof(type);                                        \
    void fake_kernel_##kernel(const unsigned grid[3], const unsigned block[3],                     \
                              unsigned shared_bytes, void **params);                               \
    void fake_kernel_##kernel(const unsigned grid[3], const unsigned block[3],                     \
                              unsigned shared_bytes, void **params)                                \
    {                                                                                              \
        (void)block;                                                                               \
        if (engine_block_run(engine_host_kernel_find(#kernel)->run, params[0], grid[0],            \
                             count_threads(), shared_bytes) != 0)                                  \
            abort();                                                                               \
    }
ENGINE_KERNELS(STAND_IN)
