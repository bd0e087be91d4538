/* cli/model/shape.h - what of a model decides over bytes and time: its shape.
 *
 *      "llama-3.1-8b" ──┐
 *                       ├─► shape ─► parameters, weight bytes, FLOPs, bytes of KV cache
 *      config.json ─────┘       └──► quire_model_params ─► the library's planning
 *
 * Weights are not looked at: their number follows from the shape, to the last norm. Where it does
 * not, the user gives the bytes, and the formula says how they are shared out.
 */
#ifndef QUIRE_CLI_MODEL_SHAPE_H
#define QUIRE_CLI_MODEL_SHAPE_H

#include <quire/model.h>

#include <stdbool.h>

enum { SHAPE_MAX_LAYERS = 512 };

/* How the matrices are stored; embeddings and output head stay in bfloat16. */
typedef enum shape_weights { SHAPE_BF16, SHAPE_FP8, SHAPE_INT4, SHAPE_MXFP4_EXPERTS } shape_weights;

typedef struct shape {
    char name[64];
    char model_type[32];
    uint32_t num_layers;
    uint32_t hidden;
    uint32_t num_heads;
    uint32_t num_kv_heads;
    uint32_t head_dim;
    uint32_t ffn; /* of layers without experts */
    uint32_t vocab;
    uint32_t max_model_len;
    bool is_tied; /* the output head is the table of embeddings */
    shape_weights weights;

    /* Mixture of experts; 0 experts: none */
    uint32_t num_experts;
    uint32_t num_active_experts; /* that a token is sent to */
    uint32_t expert_ffn;
    uint32_t shared_ffn;       /* of the experts that all tokens are sent to, together */
    uint32_t num_dense_layers; /* without experts, in a model that has them */

    /* Windows; 0: all layers are full */
    uint32_t window;
    uint32_t window_pattern; /* Gemma 3: every n-th layer is full */
    bool has_layer_types;
    uint8_t layer_types[SHAPE_MAX_LAYERS]; /* quire_layer_type */

    /* Latent attention; kv_lora_rank 0: ordinary */
    uint32_t q_lora_rank;
    uint32_t kv_lora_rank;
    uint32_t qk_nope_head_dim;
    uint32_t qk_rope_head_dim;
    uint32_t v_head_dim;

    /* Chunks of attention (Llama 4); 0: none */
    uint32_t chunk;
    bool has_rope_flags;
    uint8_t rope_flags[SHAPE_MAX_LAYERS]; /* no_rope_layers: 0 marks a full layer */

    /* Linear attention (Qwen3-Next): a state of fixed size in most layers; 0: none */
    uint32_t linear_conv;
    uint32_t linear_key_heads;
    uint32_t linear_value_heads;
    uint32_t linear_key_dim;
    uint32_t linear_value_dim;

    uint32_t full_interval; /* of both: every n-th layer is full; 0: as usual */

    bool needs_weights;    /* the number of its weights does not follow from these: it is to be */
    uint64_t weight_bytes; /* given here. Else 0, or a number that replaces what follows */
} shape;

/* A preset's name, or the path of a config.json (a folder with one in it will do). 0, or -1 and a
 * sentence. */
int shape_find(const char *name_or_path, shape *out);
/* Preset i; NULL after the last. */
const shape *shape_preset(uint32_t i);
/* Its name. */
const char *shape_preset_name(uint32_t i);
int shape_read_config(const char *path, shape *out);
/* 0, or -1 and a sentence: a shape that no model has. */
int shape_check(const shape *s);

/* ---- parameters and bytes ------------------------------------------------ */

typedef struct shape_size {
    uint64_t total_params;
    uint64_t active_params; /* that one token is multiplied with; embeddings are looked up */
    uint64_t dense_params;  /* matrices of all layers, without routed experts */
    uint64_t expert_params; /* of all routed experts */
    uint64_t head_params;   /* of the output head */
    double dense_bytes;     /* the same three as they are stored */
    double expert_bytes;
    double head_bytes;
    uint64_t weight_bytes; /* of everything, embeddings included */
} shape_size;

shape_size shape_measure(const shape *s);

/* Of the feed-forward part, as one token has it: of all experts that it is sent to. */
static inline double shape_width(const shape *s)
{
    if (s->num_experts == 0)
        return s->ffn;
    return (double)s->num_active_experts * s->expert_ffn + s->shared_ffn;
}

/* The layers as the library sees them, on one of tp workers. A status of the library's. */
typedef struct shape_layers_params {
    uint32_t tp;         /* 0 = 1 */
    uint32_t block_size; /* 0 = 16 */
    quire_cache_dtype cache_dtype;
} shape_layers_params;

int shape_layers(const shape *s, const shape_layers_params *params,
                 quire_layer_spec layers[SHAPE_MAX_LAYERS], uint32_t *num_layers);

#endif
