/* quire/layer.h - what one layer of a model keeps for each token, and how many bytes that is.
 *
 *      kind                keeps                                    memory of a request
 *      FULL                keys and values of every token           grows with its length
 *      TQ_FULL             the same, in slots of tq_slot_size bytes
 *      MLA                 one latent vector for each token
 *      SINK_FULL           as FULL, and sink_len tokens that all requests share
 *      SLIDING_WINDOW      the last sliding_window tokens           stops growing at the window
 *      SLIDING_WINDOW_MLA  the same, latent vectors
 *      CHUNKED_LOCAL       the current chunk of attention_chunk_size tokens
 *      MAMBA               one state, whatever the length           one block, more for drafts
 *      CROSS               keys and values of the encoder's tokens  once, for the encoder's input
 *      ENCODER_ONLY        nothing between steps                    none
 *
 * A page is what a layer keeps of one block: block_size tokens, or one state. Pages of all groups
 * of a model have one size, so that one pool of blocks serves all (quire/plan.h sees to it).
 *
 * All functions here are pure: no state, any thread.
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
    QUIRE_LAYER_ENCODER_ONLY = 10
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

/* How keys and values are quantised. PER_TOKEN_HEAD modes add a 4-byte scale for each token, head
 * and side; NVFP4 packs two values in a byte and adds one scale byte for 16 of them. */
typedef enum quire_kv_quant {
    QUIRE_KV_QUANT_NONE = 0,
    QUIRE_KV_QUANT_FP8_PER_TENSOR = 1,
    QUIRE_KV_QUANT_INT8_PER_TOKEN_HEAD = 2,
    QUIRE_KV_QUANT_FP8_PER_TOKEN_HEAD = 3,
    QUIRE_KV_QUANT_NVFP4 = 4
} quire_kv_quant;

/* The layout of a latent cache: FP8_DS_MLA is 656 bytes a token, 584 with the DeepSeek V4 model. */
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

/* Which states of a Mamba layer are kept: the newest (NONE), one at the end of every block (ALL),
 * or those at the ends of scheduled chunks, which end at block borders (ALIGN). */
typedef enum quire_mamba_mode {
    QUIRE_MAMBA_MODE_NONE = 0,
    QUIRE_MAMBA_MODE_ALL = 1,
    QUIRE_MAMBA_MODE_ALIGN = 2
} quire_mamba_mode;

#define QUIRE_MAX_STATES     4
#define QUIRE_MAX_STATE_DIMS 4

/* One of the tensors that make up a Mamba state. */
typedef struct quire_state {
    uint32_t num_dims; /* 0: this state and those after it are not there */
    uint32_t dims[QUIRE_MAX_STATE_DIMS];
    quire_dtype dtype;
} quire_state;

/* Fields that a kind does not use are ignored, whatever they hold. */
typedef struct quire_layer_spec {
    quire_layer_kind kind;
    uint32_t block_size; /* tokens in a block; 1 or more */

    /* All but MAMBA */
    uint32_t num_kv_heads;
    uint32_t head_size;
    uint32_t head_size_v; /* 0 = head_size; full kinds and SLIDING_WINDOW */
    quire_dtype dtype;
    quire_kv_quant kv_quant;
    uint64_t page_size_padded;     /* bytes that a page is filled up to; 0: not */
    uint32_t sliding_window;       /* tokens; window kinds need it, full kinds may carry it */
    uint32_t attention_chunk_size; /* tokens; CHUNKED_LOCAL needs it, full kinds may carry it */
    uint32_t sink_len;             /* tokens; SINK_FULL */
    uint32_t tq_slot_size;         /* bytes for one token and head; TQ_FULL */

    /* MLA and SLIDING_WINDOW_MLA */
    quire_mla_cache mla_cache;
    quire_mla_version mla_version;
    uint32_t alignment;      /* bytes that a page is rounded up to; 0: not */
    uint32_t compress_ratio; /* tokens that share one vector; 0 = 1 */

    /* MAMBA */
    quire_state states[QUIRE_MAX_STATES];
    quire_mamba_type mamba_type;
    quire_mamba_mode mamba_mode;
    uint32_t num_speculative_blocks;
} quire_layer_spec;

/* 0 for a value that is no dtype. */
QUIRE_API uint32_t quire_dtype_bytes(quire_dtype dtype);

/* QUIRE_OK, or QUIRE_E_CONFIG when a field that the kind needs is missing or impossible (also: a
 * padded page smaller than the page, or sizes whose product passes 64 bits). */
QUIRE_API int quire_layer_check(const quire_layer_spec *spec);

/* Bytes of one page: what is stored (real), and what is reserved (with scales, padding and
 * alignment). 0 for a spec that is not valid. */
QUIRE_API uint64_t quire_layer_real_page_bytes(const quire_layer_spec *spec);
QUIRE_API uint64_t quire_layer_page_bytes(const quire_layer_spec *spec);

/* 1 when the layers keep the same, field by field with defaults filled in, else 0. */
QUIRE_API int quire_layer_equal(const quire_layer_spec *a, const quire_layer_spec *b);

/* One spec that stands for all of them, as layers of one group: those of one kind and shape, full
 * layers with and without a window too. QUIRE_E_MIXED when they differ in what a group must share.
 */
QUIRE_API int quire_layer_merge(const quire_layer_spec *const *specs, uint32_t num_specs,
                                quire_layer_spec *merged);

#ifdef __cplusplus
}
#endif
#endif
