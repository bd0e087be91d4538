/* engine/cuda/cuda.h - the backend on a GPU, and where its parts are.
 *
 *      cuda.c             its life: memory, the device, faults         ENGINE_CUDA_OPS
 *      cuda_work.c        a step: blocks, tables, forward pass
 *      cuda_reference.c   the contiguous cache
 *
 *      stream     ── swap out ── zero ── swap in ── copies ── tables ── batch ── kernels ── event
 *      pinned     batches and logits of each work in flight: the GPU writes logits there itself
 *
 * KV memory, its copies, block tables and slot mappings are those of quire/device_cuda.h: what is
 * proven here is also that.
 */
#ifndef ENGINE_CUDA_CUDA_H
#define ENGINE_CUDA_CUDA_H

#include "engine/backend.h"
#include "engine/cuda/card.h"
#include "engine/cuda/flaky.h"

#include <quire/device_cuda.h>

#include <stdbool.h>

/* What one work has for itself until the next wait. */
typedef struct engine_cuda_place {
    qr_cu_event done;
    int32_t *batch; /* pinned: tokens, rows, positions, logit rows */
    float *logits;  /* pinned */
} engine_cuda_place;

typedef struct engine_cuda {
    engine_backend_config config;
    const engine_model *model;
    const engine_card *card;
    engine_seat seat;
    qr_cu_stream stream; /* the seat's */
    quire_cuda_arena *arena;
    quire_cuda_arena_view pages; /* regions: places of layers in their groups */
    quire_cuda_tables *tables;   /* rows and slots of group 0, then those of group 1, ... */
    quire_cuda_tables_view table_view;
    quire_device device;
    engine_flaky flaky;
    engine_faults faults;
    uint64_t random; /* of delays */

    qr_cu_address memory;                   /* all that is not KV */
    engine_layer layers[ENGINE_MAX_LAYERS]; /* with the GPU's addresses, until they are there */
    engine_kernel_model kernel_model;
    uint32_t shared_bytes; /* of a kernel's block */
    float *x;
    float *queries;
    int32_t *batch;
    float *caches; /* of the reference */

    unsigned char *pinned;
    uint64_t host_offset; /* added to a pinned address: as the GPU sees it */
    unsigned char *swap;
    int32_t *reference_tokens;
    float *reference_logits;
    void *no_slot;

    engine_cuda_place *places; /* max_works + 1: logits stay until the wait after theirs */
    uint64_t num_submitted;
    uint64_t num_waited;
} engine_cuda;

/* Launches a kernel of num_blocks blocks. QUIRE_OK or QUIRE_E_SYSTEM. */
int engine_cuda_launch(engine_cuda *b, qr_cu_function kernel, const void *args,
                       uint32_t num_blocks);
/* Waits for all that was given to the stream. */
int engine_cuda_finish(engine_cuda *b);

int engine_cuda_submit(void *self, const engine_work *work, uint64_t *ticket);
int engine_cuda_wait(void *self, uint64_t ticket, const float **logits);
int engine_cuda_reference(void *self, uint32_t at, uint32_t first_position,
                          const quire_token *tokens, uint32_t num_tokens, uint32_t num_logits,
                          float *logits);
int engine_cuda_reference_copy(void *self, uint32_t from, uint32_t to, uint32_t num_tokens);

static inline int engine_cuda_status(qr_cu_result result)
{
    return result == QR_CU_SUCCESS ? QUIRE_OK : QUIRE_E_SYSTEM;
}

/* A pinned address, as a kernel is given it. */
static inline void *engine_cuda_seen(const engine_cuda *b, const void *pinned)
{
    return (void *)(uintptr_t)((uint64_t)(uintptr_t)pinned + b->host_offset);
}

static inline uint64_t engine_cuda_cache_floats(const engine_model_config *c)
{
    return (uint64_t)c->max_positions * c->num_layers * engine_token_floats(c);
}

#endif
