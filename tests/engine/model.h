/* engine/model.h - a small decoder-only transformer, float32.
 *
 *      token ──► embedding ──► [ RMSNorm ─► attention ─► + ─► RMSNorm ─► SwiGLU ─► + ] x layers
 *                                                                 ──► RMSNorm ──► head ──► logits
 *
 * Attention is grouped-query (num_heads over num_kv_heads), with rotary positions, full or over a
 * sliding window. Layer l belongs to group l % num_groups and is number l / num_groups in it: all
 * groups have as many layers, so that a block of one is as large as a block of another.
 *
 * A token's numbers depend on its own history alone: not on what else is in the batch, on chunks,
 * on where blocks lie, or on threads. Every sum has one order, which is written down here:
 *
 *      y[o] = 0 + x[0] w[0][o] + x[1] w[1][o] + ...     matrices are [in][out], rows in order
 *      RMSNorm   the mean of squares first to last, then x[i] * (1 / sqrt(mean + epsilon)) * w[i]
 *      rotary    pairs (i, i + head_size / 2), with the tables below
 *      score     q . k first to last, times 1 / sqrt(head_size)
 *      softmax   the maximum; exp(score - maximum); their sum by position, lowest first
 *      value     (e[p] v[p]) summed by position, lowest first; then divided by the sum
 *      SwiGLU    g / (1 + exp(-g)) * u
 *
 * exp is engine_exp of engine/arith.h; square root and division are the processor's. Nothing may
 * contract a product and a sum into one rounding (-ffp-contract=off): whether a compiler does so
 * depends on the loop around it, and then the same token has other bits in another file.
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include <stddef.h>
#include <stdint.h>

enum { ENGINE_MAX_LAYERS = 8, ENGINE_MAX_GROUPS = 3 };

typedef struct engine_model_config {
    uint32_t vocabulary;
    uint32_t width;
    uint32_t num_layers; /* a multiple of num_groups */
    uint32_t num_heads;
    uint32_t num_kv_heads; /* divides num_heads */
    uint32_t head_size;    /* even */
    uint32_t hidden;       /* of SwiGLU */
    uint32_t max_positions;
    uint32_t is_tied; /* the head is the embedding, transposed */
    uint32_t num_groups;
    uint32_t windows[ENGINE_MAX_GROUPS]; /* tokens that a token sees, itself included; 0: all */
    uint64_t seed;                       /* of the weights */
} engine_model_config;

typedef struct engine_layer {
    const float *attention_norm; /* [width] */
    const float *query;          /* [width][num_heads * head_size] */
    const float *key;            /* [width][num_kv_heads * head_size] */
    const float *value;          /* [width][num_kv_heads * head_size] */
    const float *output;         /* [num_heads * head_size][width] */
    const float *hidden_norm;    /* [width] */
    const float *gate;           /* [width][hidden] */
    const float *up;             /* [width][hidden] */
    const float *down;           /* [hidden][width] */
} engine_layer;

/* Read only once it is made: any thread. All of it lies in one piece, weights. */
typedef struct engine_model {
    engine_model_config config;
    float *weights;
    size_t num_weights;     /* floats: everything that the pointers below point into */
    const float *embedding; /* [vocabulary][width] */
    engine_layer layers[ENGINE_MAX_LAYERS];
    const float *final_norm; /* [width] */
    const float *head;       /* [width][vocabulary] */
    const float *cosines;    /* [max_positions][head_size / 2] */
    const float *sines;      /* [max_positions][head_size / 2] */
    float epsilon;           /* of RMSNorm */
    float score_scale;       /* 1 / sqrt(head_size) */
} engine_model;

/* NULL when there is no memory or the sizes do not fit together. */
engine_model *engine_model_create(const engine_model_config *config);
void engine_model_destroy(engine_model *model);

static inline uint32_t engine_layer_group(const engine_model_config *config, uint32_t layer)
{
    return layer % config->num_groups;
}

static inline uint32_t engine_layer_place(const engine_model_config *config, uint32_t layer)
{
    return layer / config->num_groups;
}

/* Floats that one layer keeps of one token: keys of all KV heads, then values. */
static inline uint32_t engine_token_floats(const engine_model_config *config)
{
    return 2 * config->num_kv_heads * config->head_size;
}

/* The first position that a token at this one sees. */
static inline uint32_t engine_first_seen(uint32_t window, uint32_t position)
{
    return window == 0 || position < window ? 0 : position - window + 1;
}

#endif
