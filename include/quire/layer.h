/* quire/layer.h - what one layer of a model stores for each token, and its size in bytes.
 *
 *      kind                stores                                   memory of a request
 *      FULL                keys and values of every token           grows with its length
 *      TQ_FULL             the same, in slots of tq_slot_size bytes
 *      MLA                 one latent vector for each token
 *      SINK_FULL           as FULL, and sink_len tokens that all requests share
 *      SLIDING_WINDOW      the last sliding_window tokens           stops growing at the window
 *      SLIDING_WINDOW_MLA  the same, latent vectors
 *      CHUNKED_LOCAL       the current chunk of attention_chunk_size tokens
 *      MAMBA               one state, for any length                one block, more for drafts
 *      CROSS               keys and values of the encoder's tokens  once, for the encoder's input
 *      ENCODER_ONLY        nothing between steps                    none
 *      RSWA                the prompt, and the last rswa_window     stops growing with the output
 *                          tokens
 *      CIRCULAR_BUFFER     the newest block_size tokens             one block
 *      HIDDEN_STATE        a hidden state for each token            grows with its length
 *
 * The last three are layers of vLLM 0.32: a cache takes them in QUIRE_PROFILE_VLLM_0_32 alone.
 *
 * A page is what a layer stores for one block: block_size tokens, or one state. The pages of all
 * groups of a model have one size, so that one pool of blocks serves all groups (quire/plan.h
 * chooses the size).
 *
 * All functions here are pure: they have no state, and any thread may call them.
 */
#ifndef QUIRE_LAYER_H
#define QUIRE_LAYER_H

#include "config.h"
#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum quire_layer_kind {
    QUIRE_LAYER_FULL = 1,
    QUIRE_LAYER_TQ_FULL = 2,
    QUIRE_LAYER_MLA = 3,
    QUIRE_LAYER_SINK_FULL = 4,
    QUIRE_LAYER_SLIDING_WINDOW = 5,
    QUIRE_LAYER_SLIDING_WINDOW_MLA = 6,
    QUIRE_LAYER_CHUNKED_LOCAL = 7,
    QUIRE_LAYER_MAMBA = 8,
    QUIRE_LAYER_CROSS = 9,
    QUIRE_LAYER_ENCODER_ONLY = 10,
    QUIRE_LAYER_RSWA = 11,
    QUIRE_LAYER_CIRCULAR_BUFFER = 12,
    QUIRE_LAYER_HIDDEN_STATE = 13
} quire_layer_kind;

/* The numeric type of an element; its bytes are quire_dtype_bytes. */
typedef enum quire_dtype {
    QUIRE_DTYPE_FLOAT16 = 1,
    QUIRE_DTYPE_BFLOAT16 = 2,
    QUIRE_DTYPE_FLOAT32 = 3,
    QUIRE_DTYPE_FLOAT64 = 4,
    QUIRE_DTYPE_FP8_E4M3 = 5,
    QUIRE_DTYPE_FP8_E5M2 = 6,
    QUIRE_DTYPE_INT8 = 7,
    QUIRE_DTYPE_UINT8 = 8,
    QUIRE_DTYPE_INT32 = 9
} quire_dtype;

/* How keys and values are quantised. The PER_TOKEN_HEAD modes add a 4-byte scale for each token,
 * head and side. NVFP4 packs two values into a byte and adds one scale byte for 16 values. */
typedef enum quire_kv_quant {
    QUIRE_KV_QUANT_NONE = 0,
    QUIRE_KV_QUANT_FP8_PER_TENSOR = 1,
    QUIRE_KV_QUANT_INT8_PER_TOKEN_HEAD = 2,
    QUIRE_KV_QUANT_FP8_PER_TOKEN_HEAD = 3,
    QUIRE_KV_QUANT_NVFP4 = 4
} quire_kv_quant;

/* The layout of a latent cache. FP8_DS_MLA stores 656 bytes for each token, or 584 bytes with the
 * DeepSeek V4 model. */
typedef enum quire_mla_cache {
    QUIRE_MLA_CACHE_NONE = 0,
    QUIRE_MLA_CACHE_AUTO = 1,
    QUIRE_MLA_CACHE_FP8 = 2,
    QUIRE_MLA_CACHE_FP8_DS_MLA = 3
} quire_mla_cache;

typedef enum quire_mla_version {
    QUIRE_MLA_VERSION_NONE = 0,
    QUIRE_MLA_VERSION_DEEPSEEK_V4 = 1
} quire_mla_version;

typedef enum quire_mamba_type {
    QUIRE_MAMBA2 = 0,
    QUIRE_MAMBA1 = 1,
    QUIRE_MAMBA_LINEAR = 2,
    QUIRE_MAMBA_SHORT_CONV = 3,
    QUIRE_MAMBA_GDN = 4,
    QUIRE_MAMBA_KDA = 5
} quire_mamba_type;

/* Which states of a Mamba layer are stored. NONE: the newest state. ALL: the state at the end of
 * every block. ALIGN: the states at the ends of scheduled chunks, which end at block borders. */
typedef enum quire_mamba_mode {
    QUIRE_MAMBA_MODE_NONE = 0,
    QUIRE_MAMBA_MODE_ALL = 1,
    QUIRE_MAMBA_MODE_ALIGN = 2
} quire_mamba_mode;

#define QUIRE_MAX_STATES     4
#define QUIRE_MAX_STATE_DIMS 4

/* One tensor of a Mamba state. */
typedef struct quire_state { /* final */
    uint32_t num_dims;       /* 0: this state and all states after it are absent */
    uint32_t dims[QUIRE_MAX_STATE_DIMS];
    quire_dtype dtype;
} quire_state;

/* One layer. Fields that a kind does not use are ignored. */
typedef struct quire_layer_spec { /* final */
    quire_layer_kind kind;
    uint32_t block_size; /* tokens in a block; 1 or more */

    /* All kinds except MAMBA */
    uint32_t num_kv_heads;
    uint32_t head_size;
    /* 0 = head_size; full kinds, SLIDING_WINDOW and CIRCULAR_BUFFER */
    uint32_t head_size_v;
    quire_dtype dtype;
    quire_kv_quant kv_quant;
    uint64_t page_size_padded; /* bytes that a page is padded to; 0: no padding */
    /* Tokens; required by window kinds, allowed in full kinds. */
    uint32_t sliding_window;
    /* Tokens; required by CHUNKED_LOCAL, allowed in full kinds. */
    uint32_t attention_chunk_size;
    uint32_t sink_len;     /* tokens; SINK_FULL */
    uint32_t tq_slot_size; /* bytes for one token and head; TQ_FULL */

    /* MLA, SLIDING_WINDOW_MLA and HIDDEN_STATE */
    quire_mla_cache mla_cache;
    quire_mla_version mla_version;
    uint32_t alignment;      /* bytes that a page is rounded up to; 0: no rounding */
    uint32_t compress_ratio; /* tokens that share one vector; 0 = 1 */

    /* MAMBA */
    quire_state states[QUIRE_MAX_STATES];
    quire_mamba_type mamba_type;
    quire_mamba_mode mamba_mode;
    uint32_t num_speculative_blocks;
    /* ALIGN, in QUIRE_PROFILE_VLLM_0_32: blocks for the state of a token inside a chunk, which the
     * layers can write beside the last state; 0 or 1. The tokens before this token, from the start
     * of the chunk, are a multiple of the alignment; 0: the layers cannot write it. */
    uint32_t num_prefill_checkpoint_blocks;
    uint32_t prefill_checkpoint_alignment;

    uint32_t rswa_window; /* tokens; required by RSWA */

    uint32_t reserved[5]; /* 0; reserved for new fields */
} quire_layer_spec;

/* The bytes of one element. 0 if the value is not a dtype. */
static inline uint32_t quire_dtype_bytes(quire_dtype dtype)
{
    static const unsigned char bytes[] = {0, 2, 2, 4, 8, 1, 1, 1, 1, 4};
    return (size_t)dtype < sizeof bytes ? bytes[dtype] : 0;
}

/* The bytes that one page reserves, with scales, padding and alignment. Returns 0 if spec is NULL
 * or invalid: if a field that the kind needs is missing or out of range, if page_size_padded is
 * smaller than the page, or if a size exceeds 64 bits. quire_refusal then names the field. */
QUIRE_API uint64_t quire_layer_page_bytes(const quire_layer_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
