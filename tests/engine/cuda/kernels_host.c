#include "engine/cuda/kernels_host.h"

#include "engine/cuda/kernels.cu"

#include <string.h>

#define HOST_KERNEL(kernel, type)                                                                  \
    static void run_##kernel(const void *args)                                                     \
    {                                                                                              \
        const type *a = args;                                                                      \
        kernel(*a);                                                                                \
    }
ENGINE_KERNELS(HOST_KERNEL)

#define HOST_ENTRY(kernel, type) {#kernel, sizeof(type), run_##kernel},
static const engine_host_kernel host_kernels[] = {ENGINE_KERNELS(HOST_ENTRY)};

const engine_host_kernel *engine_host_kernel_find(const char *name)
{
    for (size_t i = 0; i < sizeof host_kernels / sizeof *host_kernels; i++)
        if (strcmp(host_kernels[i].name, name) == 0)
            return &host_kernels[i];
    return NULL;
}
