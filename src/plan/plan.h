/* plan/plan.h - the inside of a plan: groups, their parts on each worker, tensors.
 *
 *      specs   by layer index, as planned                    order   the layers that keep something
 *      groups  layers that share block tables                        in the order of the workers
 *      shares  one for each worker:
 *                  parts    of each group, the layers that this worker has
 *                  tensors  which of them lie in the same memory
 *
 *      shape       groups    pages                      tensors
 *      EMPTY       0                                    none
 *      ONE_SPEC    1         all alike                  one for each layer
 *      ONE_TYPE    1         each layer its own         one for each layer
 *      PAGES       2 or more all alike                  the i-th layers of all groups share one
 *      TUPLES      2 or more those of group 0's layers  as PAGES, but for each i a set of tensors:
 *                                                       one for each page size (DeepSeek V4)
 *
 *      sum of num_layers of a share's parts == the worker's layers
 */
#ifndef QR_PLAN_PLAN_H
#define QR_PLAN_PLAN_H

#include "base/arena.h"
#include "base/memory.h"
#include "group/spec.h"

#include <quire/plan.h>

#define QR_PLAN_MAGIC UINT64_C(0x6e616c7065726971)

typedef enum qr_plan_shape {
    QR_PLAN_EMPTY,
    QR_PLAN_ONE_SPEC,
    QR_PLAN_ONE_TYPE,
    QR_PLAN_PAGES,
    QR_PLAN_TUPLES,
} qr_plan_shape;

/* Layer indices, inside an array of the plan's. */
typedef struct qr_layers {
    uint32_t *ids;
    uint32_t count;
} qr_layers;

typedef struct qr_plan_group {
    quire_layer_spec spec; /* merged; with pages of their own, the first layer's */
    qr_layers layers;
    bool is_eagle;
} qr_plan_group;

typedef struct qr_plan_part {
    qr_layers layers;
    qr_layers counted; /* whose pages count where pages differ: layers, or the group's if none */
} qr_plan_part;

typedef struct qr_plan_tensor {
    uint64_t page_bytes;
    qr_layers layers;
} qr_plan_tensor;

typedef struct qr_plan_share {
    uint64_t memory_bytes;
    uint64_t needed_bytes;
    uint64_t num_blocks; /* that its memory holds, or the override */
    double max_concurrency;
    qr_layers layers; /* as given, without those that keep nothing */
    qr_plan_part *parts;
    qr_plan_tensor *tensors;
    uint32_t num_tensors;
    uint32_t *tensor_layers;
} qr_plan_share;

struct quire_plan {
    uint64_t magic;
    qr_owner owner;
    quire_layer_spec *specs;
    uint32_t num_layers;
    qr_layers order;
    uint32_t *marks;                 /* scratch, one for each layer */
    const quire_layer_spec **merges; /* scratch, one for each layer */
    qr_plan_shape shape;
    qr_plan_group *groups;
    uint32_t num_groups;
    uint32_t *group_layers;
    quire_group_config *group_configs;
    qr_plan_share *shares;
    uint32_t num_workers;
    uint32_t num_blocks;
    uint64_t num_tokens;
    uint32_t block_size;
    uint32_t hash_block_size;
    uint32_t dcp_world_size;
    uint32_t pcp_world_size;
    bool use_eagle;
    bool caching;
    bool hashing; /* caching, or a connector */
    qr_limits limits;
};

/* Reads the caller's params and fills defaults; QUIRE_OK, QUIRE_E_ARGUMENT, QUIRE_E_CONFIG. */
int qr_plan_params_read(quire_plan_params *out, const quire_plan_params *params);
quire_plan *qr_plan_carve(qr_arena *arena, const quire_plan_params *params);
/* Makes the plan in carved memory. The status is as in quire/plan.h. */
int qr_plan_build(quire_plan *plan, const quire_plan_params *params);

/* Pages of the layers with their specs as planned; 0 for a spec that planning made impossible. */
uint64_t qr_plan_page_bytes(const quire_plan *plan, uint32_t layer);

#endif
