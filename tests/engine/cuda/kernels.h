/* engine/cuda/kernels.h - what the kernels are given. Pointers are the device's.
 *
 *      paged:      begin ──► layer 0 ──► layer 1 ──► ... ──► last layer ──► logits
 *                  embedding,  attention of this layer, what follows it, and
 *                  keys of 0   the keys and values of the next one
 *      reference:  the same, with kernels of its own and a cache that is one piece
 *
 * A launch for each layer, since a token may need keys that another request's token writes in the
 * same step: a prefix that is shared as soon as it is planned. What belongs to one token is one
 * block of threads, from its attention to the next layer's keys, so a pass has one launch more than
 * layers.
 */
#ifndef ENGINE_CUDA_KERNELS_H
#define ENGINE_CUDA_KERNELS_H

#include "engine/model.h"

enum {
    ENGINE_KERNEL_THREADS = 128,
    ENGINE_NO_LOGITS = -1,
};

typedef struct engine_kernel_model {
    uint32_t vocabulary;
    uint32_t width;
    uint32_t num_layers;
    uint32_t num_heads;
    uint32_t num_kv_heads;
    uint32_t head_size;
    uint32_t hidden;
    float epsilon;
    float score_scale;
    const float *embedding;
    const float *final_norm;
    const float *head;
    const float *cosines;
    const float *sines;
    const engine_layer *layers;
} engine_kernel_model;

/* One for each layer, so that a kernel has no table of groups to look into. */
typedef struct engine_kernel_paged_layer {
    float *pages; /* of this layer, block 0 */
    const int32_t *table;
    const int64_t *slots; /* of the batch's tokens */
    uint32_t block_size;
    uint32_t window;
} engine_kernel_paged_layer;

typedef struct engine_kernel_paged {
    engine_kernel_model model;
    engine_kernel_paged_layer now;  /* not in the first launch */
    engine_kernel_paged_layer next; /* not in the last one */
    uint64_t block_stride;          /* in floats */
    uint32_t table_stride;          /* entries in a row */
    uint32_t layer;                 /* of now; the first launch: not used */
    float *x;                       /* [token][width], between launches */
    float *queries;                 /* [token][num_heads * head_size] */
    const int32_t *tokens;
    const uint32_t *rows;
    const uint32_t *positions;
    const int32_t *logit_rows; /* or ENGINE_NO_LOGITS */
    float *logits;
} engine_kernel_paged;

typedef struct engine_kernel_reference {
    engine_kernel_model model;
    uint32_t windows[ENGINE_MAX_GROUPS];
    uint32_t num_groups;
    uint32_t layer;
    uint32_t first_position; /* of block 0 */
    uint32_t first_logits;   /* tokens from here on */
    int32_t token;           /* of engine_reference_token: it need not look far */
    const int32_t *tokens;   /* of the others */
    float *cache;            /* [position][layer][2][num_kv_heads][head_size] */
    float *x;
    float *queries;
    float *logits;
} engine_kernel_reference;

typedef struct engine_kernel_delay {
    uint64_t ns;
} engine_kernel_delay;

/* X(name, type of its argument) for each kernel. */
#define ENGINE_KERNELS(X)                                                                          \
    X(engine_paged_begin, engine_kernel_paged)                                                     \
    X(engine_paged_layer, engine_kernel_paged)                                                     \
    X(engine_reference_begin, engine_kernel_reference)                                             \
    X(engine_reference_layer, engine_kernel_reference)                                             \
    X(engine_reference_token, engine_kernel_reference)                                             \
    X(engine_delay, engine_kernel_delay)

/* Shared memory of a block, at most. */
static inline uint32_t engine_kernel_shared_bytes(const engine_model_config *c)
{
    uint32_t all_heads = (c->num_heads + 2 * c->num_kv_heads) * c->head_size;
    uint32_t floats = 2 * c->width + all_heads + c->num_heads * c->head_size + c->hidden;
    floats += c->num_heads + (c->num_heads + 1) * c->max_positions;
    return (uint32_t)(floats * sizeof(float));
}

#endif
