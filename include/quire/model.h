/* quire/model.h - from the fields of a model's config.json to its layers.
 *
 *      config.json --the program parses--> quire_model_params --quire_model_layers--> layers
 *                                                                --quire_plan_create--> a plan
 *
 * The fields have their names from config.json. If a field is missing or null in config.json, set
 * it to 0 here. If config.json has a text_config, use the fields of text_config. The layers are the
 * layers that vLLM makes (profile says which release), in vLLM's order. Layers that store nothing
 * (MLPs, a vision tower) are skipped.
 */
#ifndef QUIRE_MODEL_H
#define QUIRE_MODEL_H

#include "layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Entries of layer_types: full_attention, sliding_attention, chunked_attention, linear_attention */
typedef enum quire_layer_type {
    QUIRE_LAYER_TYPE_FULL = 1,
    QUIRE_LAYER_TYPE_SLIDING = 2,
    QUIRE_LAYER_TYPE_CHUNKED = 3,
    QUIRE_LAYER_TYPE_LINEAR = 4
} quire_layer_type;

/* kv_cache_dtype of an engine. AUTO: the dtype of the model. The other dtypes are stored as bytes.
 */
typedef enum quire_cache_dtype {
    QUIRE_CACHE_DTYPE_AUTO = 0,
    QUIRE_CACHE_DTYPE_FP8 = 1,
    QUIRE_CACHE_DTYPE_INT8_PER_TOKEN_HEAD = 2,
    QUIRE_CACHE_DTYPE_FP8_PER_TOKEN_HEAD = 3,
    QUIRE_CACHE_DTYPE_NVFP4 = 4,
    QUIRE_CACHE_DTYPE_FP8_DS_MLA = 5 /* for MLA models only */
} quire_cache_dtype;

typedef struct quire_model_params {
    size_t size;

    /* ---- config.json ---- */
    const char *model_type;  /* for example "llama"; see quire_model_is_known */
    quire_dtype torch_dtype; /* 0 = bfloat16 */
    uint32_t num_hidden_layers;
    uint32_t hidden_size;
    uint32_t num_attention_heads;
    uint32_t num_key_value_heads; /* 0 = num_attention_heads */
    uint32_t head_dim;            /* 0 = hidden_size / num_attention_heads */
    uint32_t max_position_embeddings;

    /* windows and chunks */
    uint32_t sliding_window;
    quire_switch use_sliding_window; /* Qwen; default off */
    uint32_t max_window_layers;      /* Qwen */
    /* num_hidden_layers elements; NULL = the model's own pattern. */
    const quire_layer_type *layer_types;
    uint32_t sliding_window_pattern; /* Gemma 3: every n-th layer is full; 0 = 6 */
    uint32_t attention_chunk_size;   /* Llama 4; 0 = 8192 */
    uint32_t no_rope_layer_interval; /* Llama 4: every n-th layer is full; 0 = 4 */
    const uint32_t *no_rope_layers;  /* Llama 4: 0 marks a full layer; NULL = the interval */

    /* latent attention */
    uint32_t kv_lora_rank;
    uint32_t qk_rope_head_dim;
    uint32_t index_head_dim; /* DeepSeek V3.2 */

    /* Mamba and linear attention */
    uint32_t attn_layer_period;         /* Jamba; 0 = 8 */
    uint32_t attn_layer_offset;         /* Jamba */
    const uint32_t *attn_layer_indices; /* Bamba */
    uint32_t num_attn_layer_indices;
    const char *hybrid_override_pattern; /* Nemotron-H: M Mamba, * attention, - and E neither */
    uint32_t mamba_expand;               /* Jamba, Bamba; 0 = 2 */
    uint32_t mamba_d_state;              /* Nemotron-H: ssm_state_size */
    uint32_t mamba_d_conv;               /* Nemotron-H: conv_kernel */
    uint32_t mamba_n_heads;              /* Nemotron-H: mamba_num_heads */
    uint32_t mamba_d_head;               /* Nemotron-H: mamba_head_dim */
    uint32_t mamba_n_groups;             /* Nemotron-H: n_groups; 0 = 1 */
    uint32_t mamba_chunk_size;           /* Nemotron-H: chunk_size; 0 = 2048 */
    uint32_t full_attention_interval;    /* Qwen3-Next; 0 = 4 */
    uint32_t linear_num_key_heads;
    uint32_t linear_num_value_heads;
    uint32_t linear_key_head_dim;
    uint32_t linear_value_head_dim;
    uint32_t linear_conv_kernel_dim;

    /* encoder and decoder (Whisper) */
    uint32_t decoder_layers;
    uint32_t decoder_attention_heads;
    uint32_t d_model;

    /* ---- settings of the engine ---- */
    uint32_t block_size; /* tokens in a block of an attention layer; 0 = 16 */
    quire_cache_dtype cache_dtype;
    uint32_t tensor_parallel_size; /* 0 = 1 */
    uint32_t max_model_len;        /* 0 = max_position_embeddings; required with Mamba layers */
    quire_mamba_mode mamba_mode;
    uint32_t mamba_block_size; /* tokens, in mode ALL; 0 = mamba_chunk_size */
    /* Of the larger state; 0 = the model's dtype, FLOAT32 for Nemotron-H. */
    quire_dtype mamba_ssm_dtype;
    uint32_t num_speculative_tokens;
    /* The attention kernel needs blocks of a multiple of this number of tokens, if the model also
     * has Mamba layers; 0 = 16. */
    uint32_t kernel_block_size;

    /* The release whose layers are made: VLLM_0_32, or any other: vLLM 0.20. vLLM 0.32 has no Bamba
     * and no mamba_mode ALL; its window layers have blocks of a multiple of kernel_block_size. */
    quire_profile profile;
} quire_model_params;

#define QUIRE_MODEL_PARAMS_INIT QUIRE_SIZED_INIT(quire_model_params)

/* Writes the layers of one tensor-parallel worker to layers, and their number to *num_layers. With
 * layers NULL and capacity 0, writes only the number. If the model has Mamba layers, the block size
 * of its attention layers is raised until a page holds a state, and the state is padded to the
 * page. quire_refusal names the field that is invalid.
 *
 *      QUIRE_E_UNKNOWN_NAME  model_type is unknown
 *      QUIRE_E_CONFIG        a required field is missing, or vLLM refuses the model: heads that the
 *                             workers cannot share, Qwen with a window in only some layers
 *      QUIRE_E_RANGE         capacity is too small; nothing is written
 *      QUIRE_E_ARGUMENT      a required pointer is NULL */
QUIRE_API int quire_model_layers(const quire_model_params *params, quire_layer_spec *layers,
                                 uint32_t capacity, uint32_t *num_layers);

/* 1 if quire_model_layers accepts this model_type, otherwise 0, also for NULL. */
static inline int quire_model_is_known(const char *model_type)
{
    quire_model_params params = QUIRE_MODEL_PARAMS_INIT;
    uint32_t num_layers;
    params.model_type = model_type;
    return model_type != NULL &&
           quire_model_layers(&params, NULL, 0, &num_layers) != QUIRE_E_UNKNOWN_NAME;
}

#ifdef __cplusplus
}
#endif
#endif
