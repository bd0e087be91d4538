/* quire/plan.h - from a model's layers and the memory of its workers to groups and blocks.
 *
 *      layers (a model of 10 full and 20 window layers)
 *          f w w f w w f w w ...
 *      groups, which share block tables: layers of one kind, of one size
 *          0  f f f f f f f f f f
 *          1  w w w w w w w w w w           the 1st, 3rd, 5th ... window layer
 *          2  w w w w w w w w w w           the 2nd, 4th, 6th ...
 *      tensors, each shared by one layer of each group: a block belongs to one group at a time,
 *          0  f w w      and the other groups do not use its bytes
 *          1  f w w
 *          ...           bytes = page x num_blocks
 *
 *      num_blocks = memory / (page x tensors), the smallest of all workers
 *
 * layer    one layer of a model (quire/layer.h), identified by its index in params.layers. The
 *          program keeps the names of layers. ENCODER_ONLY layers store nothing, and have no group
 *          and no tensor.
 * worker   a process with its own GPU. With pipeline parallelism workers have different layers,
 *          with tensor parallelism the same layers.
 * page     the bytes that one layer stores for one block. If pages differ in size, layers with
 *          smaller pages get more tokens in a block.
 *
 * The results are the results of vLLM's get_kv_cache_configs, generate_scheduler_kv_cache_config
 * and resolve_kv_cache_block_sizes, number for number: with QUIRE_PROFILE_VLLM_0_32 the results of
 * vLLM 0.32.0, otherwise the results of vLLM 0.20.0.
 *
 * vLLM 0.32 puts all layers of a worker into one allocation, in the order that a layout names. A
 * tensor is then a set of equal layers of one group in this allocation (quire_plan_get_placement).
 * The null block counts when memory is checked. Pages that differ in size are padded where a larger
 * block cannot make them equal, or, in layouts with blocks outermost, lie side by side.
 *
 * A plan is a read-only handle: any thread may read it. Pointers from a plan are valid until the
 * plan is destroyed. If a pointer is NULL, a call returns QUIRE_E_ARGUMENT.
 */
#ifndef QUIRE_PLAN_H
#define QUIRE_PLAN_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_plan quire_plan;

/* ---- asking ------------------------------------------------------------- */

/* The order of the KV cache in memory, the outermost dimension first: layers L, blocks B, heads H,
 * tokens N, the content of a token C. */
typedef enum quire_kv_layout {
    QUIRE_KV_LAYOUT_DEFAULT = 0, /* LBNHC */
    QUIRE_KV_LAYOUT_LBNHC = 1,
    QUIRE_KV_LAYOUT_LBHNC = 2,
    QUIRE_KV_LAYOUT_LHBNC = 3,
    QUIRE_KV_LAYOUT_BLHNC = 4,
    QUIRE_KV_LAYOUT_BLNHC = 5,
    QUIRE_KV_LAYOUT_BHLNC = 6
} quire_kv_layout;

typedef struct quire_plan_worker { /* final */
    const uint32_t *layers;        /* indices, each once; NULL and 0: all layers, in their order */
    uint32_t num_layers;
    uint64_t memory_bytes; /* memory for KV cache */
} quire_plan_worker;

/* Why a plan does not fit, and what would fit. */
typedef struct quire_plan_shortage {
    size_t size;
    uint32_t worker;          /* the first worker with too little memory */
    uint64_t memory_bytes;    /* its memory; in QUIRE_PROFILE_VLLM_0_32 without the null block */
    uint64_t needed_bytes;    /* for one request of max_model_len tokens */
    uint32_t max_model_len;   /* from the params */
    uint32_t fitting_max_len; /* the most tokens that fit in its memory; 0: not even one */
} quire_plan_shortage;

#define QUIRE_PLAN_SHORTAGE_INIT QUIRE_SIZED_INIT(quire_plan_shortage)

typedef struct quire_plan_params {
    size_t size;
    const quire_layer_spec *layers; /* in the order of the model */
    uint32_t num_layers;            /* 0 for a model without a KV cache */
    const quire_plan_worker *workers;
    uint32_t num_workers;
    uint32_t max_model_len; /* the most tokens of a request */
    /* The most tokens of a step, all requests together; 0 = max_model_len. */
    uint32_t max_num_batched_tokens;
    uint32_t max_encoder_tokens; /* of one request; required with CROSS layers */
    quire_switch auto_fit;       /* default off; on: lower max_model_len until it fits */
    /* Default on. Off: window and chunked layers beside full layers keep all tokens, so that there
     * is one group. */
    quire_switch hybrid;
    /* Number of blocks, for any memory; 0: not set. In QUIRE_PROFILE_VLLM_0_32 one request of
     * max_model_len tokens must fit in them. */
    uint32_t num_blocks_override;
    uint32_t dcp_world_size; /* decode and prefill context parallelism; 0 = 1 */
    uint32_t pcp_world_size;

    /* For the scheduler */
    /* Default off. On: the last layer of a DeepSeek V4 model is a draft layer, and its group has
     * is_eagle. */
    quire_switch use_eagle;
    uint32_t block_size;         /* tokens; 0 = the smallest of all groups, or 16 without groups */
    uint32_t hash_block_size;    /* tokens under one hash; 0 = chosen by the plan */
    quire_switch enable_caching; /* default on; off with CROSS groups or without groups */
    quire_switch use_connector;  /* default off; on: hashes are needed without caching too */

    /* Written if the status is QUIRE_E_MEMORY_LIMIT; NULL: not written. */
    quire_plan_shortage *shortage;

    quire_profile profile; /* VLLM_0_32, or any other: as vLLM 0.20 plans */

    /* QUIRE_PROFILE_VLLM_0_32 only; 0 in other profiles. */
    quire_kv_layout kv_layout;
    /* The most tokens of all steps that are scheduled and not yet updated: what a window must hold
     * besides the window. 0 = max_num_batched_tokens. */
    uint32_t max_in_flight_tokens;
    /* Tokens that draft modules look ahead (quire/cache.h); windows keep all but one of them. */
    uint32_t num_prefill_lookahead;
    /* Default off. On, with use_eagle: the drafts are MTP's, so that the last layer is a draft
     * layer, and if there are several groups its group has is_eagle. */
    quire_switch use_mtp;
} quire_plan_params;

#define QUIRE_PLAN_PARAMS_INIT QUIRE_SIZED_INIT(quire_plan_params)

/* ---- making ------------------------------------------------------------- */

/* Create a plan: see quire/memory.h. params and everything that params points to may be freed
 * afterwards. _bytes reads the counts only. The create calls also return:
 *
 *      QUIRE_E_CONFIG        a layer is invalid; a worker has no layer, a layer twice or a layer
 *                             that does not exist; a layer is on no worker; no tokens; CROSS layers
 *                             without max_encoder_tokens; decode context parallelism with window
 *                             layers, or context parallelism with several groups; a hash block size
 *                             that does not divide the block sizes of the groups
 *      QUIRE_E_MIXED         the layers cannot have one page size, or, with hybrid off, one group;
 *                             or a layer of a worker would be in no tensor (vLLM then fails when it
 *                             allocates the tensors)
 *      QUIRE_E_MEMORY_LIMIT  the memory of a worker cannot hold one request of max_model_len tokens
 *                             (with auto_fit: of one token), or not one block
 *      QUIRE_E_RANGE         more blocks than a quire_block can number, or, in
 *                             QUIRE_PROFILE_VLLM_0_32, more bytes than 64 bits can count */
QUIRE_API int quire_plan_create(const quire_plan_params *params, const quire_allocator *allocator,
                                quire_plan **plan);
static inline size_t quire_plan_bytes(const quire_plan_params *params)
{
    size_t bytes = 0;
    quire_plan *none;
    quire_allocator measure = quire_allocator_measure(&bytes);
    (void)quire_plan_create(params, &measure, &none);
    return bytes;
}
QUIRE_API void quire_plan_destroy(quire_plan *plan);

/* ---- looking ------------------------------------------------------------ */

typedef struct quire_plan_info {
    size_t size;
    uint32_t num_groups;
    uint32_t num_workers;
    uint32_t num_blocks;    /* with the null block; 1 for a model without a KV cache */
    uint32_t max_model_len; /* after auto_fit */
    /* Tokens that fit in all blocks if all groups keep all tokens. In QUIRE_PROFILE_VLLM_0_32 the
     * tokens of the requests of max_model_len tokens that fit: max_concurrency x max_model_len. */
    uint64_t num_tokens;
    uint32_t block_size; /* of the scheduler: counts of computed tokens are multiples of it */
    uint32_t hash_block_size;
} quire_plan_info;

#define QUIRE_PLAN_INFO_INIT QUIRE_SIZED_INIT(quire_plan_info)

typedef struct quire_plan_group {
    size_t size;
    /* Of its layers, with defaults filled in. If the layers differ: of the first layer on the first
     * worker. */
    quire_layer_spec spec;
    /* Layers on all workers. A worker has the layers that its quire_plan_worker also lists. */
    const uint32_t *layers;
    uint32_t num_layers;
    uint64_t page_bytes;    /* of one layer; if layers_differ, of all layers together */
    uint32_t layers_differ; /* 1: layers of one kind with pages of different sizes */
    uint32_t is_eagle;
} quire_plan_group;

#define QUIRE_PLAN_GROUP_INIT QUIRE_SIZED_INIT(quire_plan_group)

typedef struct quire_plan_share {
    size_t size;
    uint64_t memory_bytes;  /* from the params */
    uint64_t needed_bytes;  /* for one request of max_model_len tokens */
    uint64_t used_bytes;    /* bytes of all its tensors, or of the allocation that they lie in */
    double max_concurrency; /* requests of max_model_len tokens at a time; 0 without groups */
    uint32_t num_layers;
    uint32_t num_tensors;
} quire_plan_share;

#define QUIRE_PLAN_SHARE_INIT QUIRE_SIZED_INIT(quire_plan_share)

typedef struct quire_plan_tensor { /* final */
    uint64_t bytes;
    /* Layers of different groups that share the tensor; may be empty (padding). In
     * QUIRE_PROFILE_VLLM_0_32 equal layers of one group, one behind the other. */
    const uint32_t *layers;
    uint32_t num_layers;
} quire_plan_tensor;

/* Where a tensor lies. In QUIRE_PROFILE_VLLM_0_32: the page of its l-th layer for block b begins at
 * offset_bytes + l * layer_stride + b * block_stride in the allocation of the worker, whose size is
 * the bytes of each tensor; tensors of different groups overlap. Otherwise each tensor is an
 * allocation that its layers share: offset_bytes and layer_stride are 0. */
typedef struct quire_plan_placement {
    size_t size;
    uint64_t offset_bytes;
    uint64_t layer_stride;
    uint64_t block_stride;
} quire_plan_placement;

#define QUIRE_PLAN_PLACEMENT_INIT QUIRE_SIZED_INIT(quire_plan_placement)

/* Read a plan. Each call returns QUIRE_E_RANGE if an index is too large. */
QUIRE_API int quire_plan_get_info(const quire_plan *plan, quire_plan_info *info);
QUIRE_API int quire_plan_get_group(const quire_plan *plan, uint32_t group, quire_plan_group *out);
QUIRE_API int quire_plan_get_worker(const quire_plan *plan, uint32_t worker, quire_plan_share *out);
QUIRE_API int quire_plan_get_tensor(const quire_plan *plan, uint32_t worker, uint32_t tensor,
                                    quire_plan_tensor *out);
QUIRE_API int quire_plan_get_placement(const quire_plan *plan, uint32_t worker, uint32_t tensor,
                                       quire_plan_placement *out);
/* A layer as planned: its block size and padding may differ from params. */
QUIRE_API int quire_plan_get_layer(const quire_plan *plan, uint32_t layer, quire_layer_spec *out);

/* Sets these fields of a config for quire_cache_create, and no others: num_blocks, groups,
 * num_groups, max_model_len, max_num_batched_tokens, max_encoder_tokens, hash_block_size,
 * enable_caching, use_eagle, the context-parallel sizes, num_prefill_lookahead and
 * max_in_flight_tokens. The config points into the plan.
 * config->size must be set, otherwise QUIRE_E_CONFIG. */
QUIRE_API int quire_plan_cache_config(const quire_plan *plan, quire_cache_config *config);

#ifdef __cplusplus
}
#endif
#endif
