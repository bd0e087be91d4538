/* quire/plan.h - from a model's layers and the memory of its workers to groups and blocks.
 *
 *      layers (a model of 10 full and 20 window layers)
 *          f w w f w w f w w ...
 *      groups, which share block tables: layers of one kind, of one size
 *          0  f f f f f f f f f f
 *          1  w w w w w w w w w w           the 1st, 3rd, 5th ... window layer
 *          2  w w w w w w w w w w           the 2nd, 4th, 6th ...
 *      tensors, each shared by one layer of each group: a block belongs to one group at a time,
 *          0  f w w      and the others do not use its bytes
 *          1  f w w
 *          ...           bytes = page x num_blocks
 *
 *      num_blocks = memory / (page x tensors), the least of all workers
 *
 * layer    one layer of a model (quire/layer.h), named by its index in params.layers. Names are the
 *          program's own matter. ENCODER_ONLY layers keep nothing, and get no group and no tensor.
 * worker   a process with a GPU of its own. With pipeline parallelism workers have different
 *          layers, with tensor parallelism the same.
 * page     bytes that one layer keeps of one block. When pages differ, smaller ones are enlarged by
 *          giving their layers more tokens in a block.
 *
 * Results are those of vLLM 0.20.0's get_kv_cache_configs, generate_scheduler_kv_cache_config and
 * resolve_kv_cache_block_sizes, number for number.
 *
 * A plan is a read-only handle: any thread may ask it. Pointers that it gives are valid until it is
 * destroyed.
 */
#ifndef QUIRE_PLAN_H
#define QUIRE_PLAN_H

#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_plan quire_plan;

/* ---- asking ------------------------------------------------------------- */

typedef struct quire_plan_worker {
    const uint32_t *layers; /* indices, each once; NULL and 0: all layers, in their order */
    uint32_t num_layers;
    uint64_t memory_bytes; /* that KV cache may take */
} quire_plan_worker;

/* Why a plan did not fit, and what would. */
typedef struct quire_plan_shortage {
    uint32_t worker;          /* the first that has too little */
    uint64_t memory_bytes;    /* that it has */
    uint64_t needed_bytes;    /* for one request of max_model_len tokens */
    uint32_t max_model_len;   /* that was asked for */
    uint32_t fitting_max_len; /* the most tokens that its memory would hold; 0: not even one */
} quire_plan_shortage;

typedef struct quire_plan_params {
    size_t size;
    const quire_layer_spec *layers; /* in the order of the model */
    uint32_t num_layers;            /* 0 for a model without KV cache */
    const quire_plan_worker *workers;
    uint32_t num_workers;
    uint32_t max_model_len;          /* tokens in a request */
    uint32_t max_num_batched_tokens; /* tokens in a step, of all requests; 0 = max_model_len */
    uint32_t max_encoder_tokens;     /* of one request; needed with CROSS layers */
    quire_switch auto_fit;           /* default off; on: max_model_len is lowered until it fits */
    quire_switch hybrid;             /* default on; off: window and chunked layers beside full ones
                                        keep all tokens, so that there is one group */
    uint32_t num_blocks_override;    /* blocks, whatever the memory; 0: not */
    uint32_t dcp_world_size;         /* context parallelism, decode and prefill; 0 = 1 */
    uint32_t pcp_world_size;

    /* For the scheduler */
    quire_switch use_eagle;   /* default off; on: the last layer of a DeepSeek V4 model is a draft
                                    layer, and its group is marked */
    uint32_t block_size;      /* tokens; 0 = the least of all groups, or 16 without groups */
    uint32_t hash_block_size; /* tokens under one hash; 0 = chosen */
    quire_switch enable_caching; /* default on, but off with CROSS groups or without groups */
    quire_switch use_connector;  /* default off; on: hashes are used without caching too */

    quire_plan_shortage *shortage; /* written when the answer is QUIRE_E_MEMORY_LIMIT; NULL: not */
} quire_plan_params;

#define QUIRE_PLAN_PARAMS_INIT QUIRE_SIZED_INIT(quire_plan_params)

/* ---- making ------------------------------------------------------------- */

/* Plan, carve, seal: see quire/memory.h. params and what it points to are not needed afterwards.
 * _bytes looks at the counts alone; whether the layers make a plan, the create calls say:
 *
 *      QUIRE_E_CONFIG        a layer is not valid; a worker has no layer, a layer twice or one that
 *                            is not there; a layer is on no worker; no tokens; CROSS layers without
 *                            max_encoder_tokens; decode context parallelism with window layers, or
 *                            context parallelism with several groups; a hash block size that does
 *                            not divide the groups' block sizes
 *      QUIRE_E_MIXED         the layers cannot be brought to one page size, or to one group with
 *                            hybrid off; or a worker's layer would be in no tensor (vLLM then fails
 *                            when it allocates them)
 *      QUIRE_E_MEMORY_LIMIT  a worker cannot hold one request of max_model_len tokens (with
 *                            auto_fit: of one token), or not one block
 *      QUIRE_E_RANGE         more blocks than a quire_block can number */
QUIRE_API size_t quire_plan_bytes(const quire_plan_params *params);
QUIRE_API int quire_plan_create_in(void *memory, size_t bytes, const quire_plan_params *params,
                                   quire_plan **plan);
QUIRE_API int quire_plan_create(const quire_plan_params *params, const quire_allocator *allocator,
                                quire_plan **plan);
QUIRE_API void quire_plan_destroy(quire_plan *plan);

/* ---- looking ------------------------------------------------------------ */

typedef struct quire_plan_info {
    uint32_t num_groups;
    uint32_t num_workers;
    uint32_t num_blocks;    /* the null block included; 1 for a model without KV cache */
    uint32_t max_model_len; /* after auto_fit */
    uint64_t num_tokens;    /* that fit in all blocks, when all groups keep all tokens */
    uint32_t block_size;    /* of the scheduler: what counts of computed tokens are multiples of */
    uint32_t hash_block_size;
} quire_plan_info;

typedef struct quire_plan_group {
    quire_layer_spec spec;  /* of its layers, defaults filled in; where they differ, the
                               first's on the first worker */
    const uint32_t *layers; /* on all workers */
    uint32_t num_layers;
    uint64_t page_bytes;    /* of one layer; of all together where layers_differ */
    uint32_t layers_differ; /* 1: layers of one kind that have pages of their own */
    uint32_t is_eagle;
} quire_plan_group;

typedef struct quire_plan_share {
    uint64_t memory_bytes;  /* as given */
    uint64_t needed_bytes;  /* for one request of max_model_len tokens */
    uint64_t used_bytes;    /* of all its tensors */
    double max_concurrency; /* requests of max_model_len tokens at one time; 0 without groups */
    uint32_t num_layers;
    uint32_t num_tensors;
} quire_plan_share;

typedef struct quire_plan_tensor {
    uint64_t bytes;
    const uint32_t *layers; /* that share it, of different groups; may be none (padding) */
    uint32_t num_layers;
} quire_plan_tensor;

/* An index that is too large is QUIRE_E_RANGE. */
QUIRE_API int quire_plan_get_info(const quire_plan *plan, quire_plan_info *info);
QUIRE_API int quire_plan_get_group(const quire_plan *plan, uint32_t group, quire_plan_group *out);
QUIRE_API int quire_plan_get_worker(const quire_plan *plan, uint32_t worker, quire_plan_share *out);
/* Of a group, the layers that a worker has; may be none. */
QUIRE_API int quire_plan_get_worker_group(const quire_plan *plan, uint32_t worker, uint32_t group,
                                          const uint32_t **layers, uint32_t *num_layers);
QUIRE_API int quire_plan_get_tensor(const quire_plan *plan, uint32_t worker, uint32_t tensor,
                                    quire_plan_tensor *out);
/* A layer as it was planned: block size and padding may differ from what was given. */
QUIRE_API int quire_plan_get_layer(const quire_plan *plan, uint32_t layer, quire_layer_spec *out);

/* Sets what a plan knows in a config for quire_cache_create, and nothing else: num_blocks, groups,
 * num_groups, max_model_len, max_num_batched_tokens, max_encoder_tokens, hash_block_size,
 * enable_caching, use_eagle and the context-parallel sizes. config->size must be set. */
QUIRE_API int quire_plan_cache_config(const quire_plan *plan, quire_cache_config *config);

#ifdef __cplusplus
}
#endif
#endif
