/* engine/cuda/kernels_host.h - the kernels of kernels.cu, compiled as C, by name. */
#ifndef ENGINE_CUDA_KERNELS_HOST_H
#define ENGINE_CUDA_KERNELS_HOST_H

#include "engine/cuda/block.h"

typedef struct engine_host_kernel {
    const char *name;
    size_t args_bytes;
    engine_block_kernel run;
} engine_host_kernel;

/* NULL: there is none of that name. */
const engine_host_kernel *engine_host_kernel_find(const char *name);

#endif
