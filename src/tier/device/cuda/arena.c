/* tier/device/cuda/arena.c - KV memory of layers x blocks on a GPU, in one piece.
 *
 *      LAYER_OUTER   | layer 0: b0 b1 b2 ... | layer 1: b0 b1 b2 ... |
 *      BLOCK_OUTER   | b0: layer 0, 1, ... | b1: layer 0, 1, ... |
 *
 * A region for each layer in both: in the second they interleave.
 */
#include "tier/device/cuda/gpu.h"

#include "base/arena.h"
#include "base/bits.h"
#include "base/refuse.h"

#include <stdio.h>

enum { MOST_LAYERS = 4096 };

struct quire_cuda_arena {
    quire_cuda *cuda;
    quire_cuda_arena_view view;
    quire_cuda_region *regions;
    qr_owner owner;
};

static quire_cuda_arena *create_arena(const quire_cuda_arena_config *config)
{
    qr_owner owner;
    qr_arena plan = qr_arena_plan();
    (void)qr_arena_take(&plan, 1, sizeof(quire_cuda_arena));
    (void)qr_arena_take(&plan, config->num_layers, sizeof(quire_cuda_region));
    qr_arena carve = qr_owner_carve(&owner, NULL, plan.used);
    if (carve.base == NULL)
        return NULL;
    quire_cuda_arena *arena = qr_arena_take(&carve, 1, sizeof *arena);
    arena->regions = qr_arena_take(&carve, config->num_layers, sizeof(quire_cuda_region));
    arena->owner = owner;
    return arena;
}

static int take_device_memory(quire_cuda_arena *arena)
{
    const qr_cuda_calls *calls = &arena->cuda->driver.calls;
    size_t bytes = (size_t)arena->view.bytes;
    size_t free_bytes = 0;
    size_t total = 0;
    char what[128];
    if (qr_gpu_enter(arena->cuda) != QUIRE_OK)
        return qr_fail(QUIRE_E_SYSTEM, "the GPU is broken: %s", arena->cuda->info.what);
    qr_cu_result result = qr_gpu_alloc(arena->cuda, bytes, &arena->view.base);
    if (result == QR_CU_SUCCESS) {
        result = calls->cuMemsetD8Async(arena->view.base, 0, bytes, arena->cuda->stream);
        if (result == QR_CU_SUCCESS)
            result = calls->cuStreamSynchronize(arena->cuda->stream);
    } else {
        (void)calls->cuMemGetInfo(&free_bytes, &total);
    }
    qr_gpu_leave(arena->cuda);
    if (result == QR_CU_SUCCESS)
        return QUIRE_OK;
    (void)snprintf(what, sizeof what,
                   "out of GPU memory: %zu MiB of KV memory requested, %zu MiB free", bytes >> 20,
                   free_bytes >> 20);
    return qr_gpu_explain(arena->cuda, result, what);
}

static void lay_out(quire_cuda_arena *arena, const quire_cuda_arena_config *config)
{
    bool is_layer_outer = config->layout == QUIRE_CUDA_LAYER_OUTER;
    uint64_t layer_stride = is_layer_outer ? config->num_blocks * config->bytes : config->bytes;
    uint64_t stride = is_layer_outer ? config->bytes : config->num_layers * config->bytes;
    for (uint32_t i = 0; i < config->num_layers; i++)
        arena->regions[i] =
            (quire_cuda_region){arena->view.base + i * layer_stride, stride, config->bytes};
    arena->view.regions = arena->regions;
    arena->view.num_regions = config->num_layers;
}

QUIRE_API int quire_cuda_arena_open(quire_cuda *cuda, const quire_cuda_arena_config *callers,
                                    quire_cuda_arena **arena)
{
    quire_cuda_arena_config config;
    int status = qr_refuse_opening(&config, sizeof config, callers, cuda != NULL ? arena : NULL,
                                   NULL, "the arena's config");
    if (status != QUIRE_OK || cuda == NULL)
        return status;
    size_t bytes =
        qr_mul_size(qr_mul_size(config.num_layers, config.num_blocks), (size_t)config.bytes);
    if (bytes == 0 || bytes == SIZE_MAX || config.num_layers > MOST_LAYERS ||
        (config.layout != QUIRE_CUDA_LAYER_OUTER && config.layout != QUIRE_CUDA_BLOCK_OUTER))
        return qr_fail(QUIRE_E_CONFIG, "the arena's config: %s", quire_strerror(QUIRE_E_CONFIG));
    quire_cuda_arena *a = create_arena(&config);
    if (a == NULL)
        return qr_fail(QUIRE_E_NOMEM, "out of memory for an arena of %u layers", config.num_layers);
    a->cuda = cuda;
    a->view.bytes = bytes;
    status = take_device_memory(a);
    if (status != QUIRE_OK) {
        quire_cuda_arena_close(a);
        return status;
    }
    lay_out(a, &config);
    *arena = a;
    return QUIRE_OK;
}

QUIRE_API void quire_cuda_arena_close(quire_cuda_arena *arena)
{
    if (arena == NULL || qr_fork_guard_is_child(&arena->cuda->guard))
        return;
    if (arena->view.base != 0 && qr_gpu_enter(arena->cuda) == QUIRE_OK) {
        qr_gpu_free(arena->cuda, arena->view.base);
        qr_gpu_leave(arena->cuda);
    }
    qr_owner_release(&arena->owner);
}

QUIRE_API quire_cuda_arena_view quire_cuda_arena_get_view(const quire_cuda_arena *arena)
{
    return arena == NULL ? (quire_cuda_arena_view){0} : arena->view;
}
