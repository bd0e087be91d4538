/* cli/model/plan_blocks.h - how many blocks a model has on a GPU, by the library's planning.
 *
 *      memory x utilization                         as the GPU's driver reports it
 *        - weights / tp
 *        - reserve          activations, graphs, the driver's own: an estimate, or --reserve-memory
 *        = KV cache ─► quire_plan ─► groups, blocks
 */
#ifndef QUIRE_CLI_MODEL_PLAN_BLOCKS_H
#define QUIRE_CLI_MODEL_PLAN_BLOCKS_H

#include "gpu.h"
#include "shape.h"

#include <quire/plan.h>

typedef struct plan_settings {
    uint32_t tp;                     /* 0 = 1 */
    double gpu_memory_utilization;   /* 0 = 0.9 */
    uint32_t block_size;             /* 0 = 16 */
    uint32_t max_model_len;          /* 0 = the model's, or less where that does not fit */
    uint32_t max_num_batched_tokens; /* 0 = 8192 */
    uint32_t max_num_seqs;           /* 0 = 256 */
    uint32_t num_gpu_blocks;         /* blocks, whatever the memory; 0: not */
    uint64_t reserve_bytes;          /* 0 = estimated */
    quire_cache_dtype cache_dtype;
} plan_settings;

typedef struct plan_result {
    uint64_t budget_bytes;  /* memory x utilization */
    uint64_t weight_bytes;  /* on one GPU */
    uint64_t reserve_bytes; /* on one GPU */
    uint64_t kv_bytes;      /* left for KV cache, on one GPU */
    uint64_t used_bytes;    /* of it, in blocks */
    uint64_t token_bytes;   /* that all layers keep of one token, on one GPU */
    uint64_t block_bytes;   /* of one block of the pool, on one GPU */
    uint32_t num_blocks;    /* the null block included */
    uint32_t block_size;
    uint32_t max_model_len;
    uint32_t num_groups;
    uint64_t num_tokens;    /* that fit when all groups keep all tokens */
    double max_concurrency; /* requests of max_model_len tokens at one time */
    bool does_not_fit;      /* weights and reserve leave nothing; blocks are as given */
} plan_result;

/* 0, or -1 and a sentence. If num_gpu_blocks is given, the model need not fit: does_not_fit is set
 * then, and the sentence is there all the same. *plan: the plan itself, to be destroyed by the
 * caller; may be NULL. */
int plan_num_blocks(const shape *s, const gpu *g, const plan_settings *settings,
                    plan_result *result, quire_plan **plan);

#endif
