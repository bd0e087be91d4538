/* engine/backend.h - where the model computes: the processor, or a GPU.
 *
 *      runner                        compute stream of the backend              host memory
 *      submit(work) ─────────────►  swap out, zero, swap in, copy, tables,     swap slots
 *      submit(work) ─────────────►    forward ──► logits                       offload's slots
 *      wait(ticket) ◄──────────────                  │                               ▲
 *      device: mark, submit, poll ─► copies, after marks in this stream ─────────────┘
 *
 * KV memory is one arena of blocks. A block belongs to one group at a time, and holds the pages of
 * all layers of that group: layers x page_bytes. In a page tokens lie one after the other, each
 * with the keys and then the values of its KV heads: [token][2][num_kv_heads][head_size] floats.
 * Pages of all groups have one size, that of the largest; where a group has fewer tokens in a
 * block, the end of its pages is not used.
 *
 *      ENGINE_LAYER_OUTER   [place of the layer in its group][block][page]
 *      ENGINE_BLOCK_OUTER   [block][place of the layer in its group][page]
 *
 *      token's KV   slot = block x block_size + offset, block = slot / block_size, in its group
 *
 * A block table row is a request's, from its first step until its end: entries are block ids in the
 * order of tokens, one table for each group. Rows, entries and slots in one work are those of its
 * forward pass; entries that were not written stay as they were. Entries behind a window may be
 * null blocks or somebody else's by now: the forward pass must not look at them.
 *
 * Tokens of a request in a batch have rising positions, and each token sees those before it, also
 * those of the same batch; and a request may share a block that another one, before or behind it,
 * computes in this very batch. So all keys and values of a layer are written before its attention
 * runs.
 *
 * Bounds of one work, beside the config's: 2 x num_blocks to zero, num_blocks copies,
 * num_swap_blocks swapped each way, one diff for a row and group.
 *
 * Threads: one calls, but several backends may be used by several threads: there are no globals.
 * Errors are QUIRE_E_*; after one the backend can only be destroyed.
 */
#ifndef ENGINE_BACKEND_H
#define ENGINE_BACKEND_H

#include "engine/model.h"

#include <quire.h>
#include <quire/device.h>

#include <string.h>

typedef enum engine_layout { ENGINE_LAYER_OUTER = 0, ENGINE_BLOCK_OUTER = 1 } engine_layout;

typedef struct engine_backend_config {
    const engine_model *model; /* stays */
    engine_layout layout;
    uint32_t num_blocks;                     /* the null block included; all of them have memory */
    uint32_t block_sizes[ENGINE_MAX_GROUPS]; /* tokens */
    uint32_t max_rows;                       /* of the block tables */
    uint32_t max_row_blocks;                 /* entries in a row, in each group */
    uint32_t max_tokens;                     /* in one work */
    uint32_t max_logits;                     /* in one work */
    uint32_t max_works;                      /* submitted and not waited for; 2 or more */
    uint32_t num_swap_blocks;                /* host slots of the scheduler's swapping; may be 0 */
    /* Offload's host memory, num_slots x engine_block_bytes; the backend pins it where it must.
     * NULL and 0: there is no offload, and device() gives none. */
    void *slots;
    uint32_t num_slots;
    uint32_t num_references; /* contiguous caches, of model->config.max_positions tokens each */
} engine_backend_config;

/* Bytes of one layer of one block, and of all layers of a group. */
static inline uint64_t engine_page_bytes(const engine_backend_config *config)
{
    uint32_t tokens = 0;
    for (uint32_t g = 0; g < config->model->config.num_groups; g++)
        tokens = config->block_sizes[g] > tokens ? config->block_sizes[g] : tokens;
    return (uint64_t)tokens * engine_token_floats(&config->model->config) * sizeof(float);
}

static inline uint32_t engine_group_layers(const engine_model_config *model)
{
    return model->num_layers / model->num_groups;
}

static inline uint64_t engine_block_bytes(const engine_backend_config *config)
{
    return engine_group_layers(&config->model->config) * engine_page_bytes(config);
}

/* Entries [first, first + count) of a row become these. */
typedef struct engine_table_diff {
    uint32_t group;
    uint32_t row;
    uint32_t first;
    uint32_t count;
    const quire_block *blocks;
} engine_table_diff;

/* A request's part of a batch: tokens [first_token, first_token + num_tokens) of the batch. */
typedef struct engine_span {
    uint32_t row;
    uint32_t first_token;
    uint32_t num_tokens;
    uint32_t first_position; /* of its first token; the others follow */
} engine_span;

/* Everything of one step, in the order in which it is done. Read during submit, nothing is kept. */
typedef struct engine_work {
    uint32_t num_swap_out;
    const quire_block *swap_out_blocks; /* to swap_out_slots[i] */
    const uint32_t *swap_out_slots;
    uint32_t num_zero;
    const quire_block *zero_blocks;
    uint32_t num_swap_in;
    const quire_block *swap_in_blocks; /* from swap_in_slots[i] */
    const uint32_t *swap_in_slots;
    uint32_t num_copies;
    const quire_block_copy *copies; /* no block is both source and target */
    uint32_t num_diffs;
    const engine_table_diff *diffs;

    uint32_t num_tokens; /* 0: no forward pass */
    uint32_t num_spans;
    const engine_span *spans;                        /* one after the other, all tokens */
    const quire_token *tokens;                       /* num_tokens */
    const int64_t *slot_mappings[ENGINE_MAX_GROUPS]; /* num_tokens each: where KV is written */
    uint32_t num_logits;
    const uint32_t
        *logit_tokens; /* whose logits are wanted: rising numbers of the batch's tokens */
} engine_work;

/* What a test breaks on purpose. */
typedef struct engine_faults {
    uint32_t compute_delay_us; /* of each work, up to */
    uint32_t copy_delay_us;    /* of each copy of the device, up to */
    uint32_t fail_per_mille;   /* of the device's jobs */
    uint32_t ignores_marks;    /* copies do not wait for compute */
} engine_faults;

typedef struct engine_backend_ops {
    const char *name;
    /* quire_refusal says why there is none. QUIRE_E_DISABLED: not on this machine. KV memory is
     * filled with NaNs (all bits 1), so that what was never written is seen. */
    int (*create)(const engine_backend_config *config, void **self);
    /* Nothing is in flight any more but what nobody waits for. NULL is fine. */
    void (*destroy)(void *self);
    /* Copies between blocks and config->slots, for quire_offload; NULL without slots. It is the
     * backend's, and closed by destroy. */
    const quire_device *(*device)(void *self);
    /* Gives a work to the compute stream and returns at once. QUIRE_FULL: max_works are there. */
    int (*submit)(void *self, const engine_work *work, uint64_t *ticket);
    /* Waits for a work; in the order of tickets, each once. *logits: num_logits x vocabulary, valid
     * until the next wait. */
    int (*wait)(void *self, uint64_t ticket, const float **logits);

    /* The reference: a contiguous cache of one request, none of the above. Appends tokens at
     * positions [first_position, first_position + num_tokens) of cache `at`, and writes the logits
     * of the last num_logits of them. Waits. first_position is 0, or where an earlier call ended or
     * before (what comes after it is then forgotten). */
    int (*reference)(void *self, uint32_t at, uint32_t first_position, const quire_token *tokens,
                     uint32_t num_tokens, uint32_t num_logits, float *logits);
    /* Cache `to` becomes a copy of the first num_tokens tokens of `from`. */
    int (*reference_copy)(void *self, uint32_t from, uint32_t to, uint32_t num_tokens);

    /* NULL: cannot be broken. */
    int (*set_faults)(void *self, const engine_faults *faults);
} engine_backend_ops;

extern const engine_backend_ops ENGINE_CPU_OPS;
#ifdef ENGINE_HAS_CUDA
extern const engine_backend_ops ENGINE_CUDA_OPS; /* engine/cuda */
#endif

/* By its name, of those that this program has; NULL: there is none. */
static inline const engine_backend_ops *engine_backend_find(const char *name)
{
#ifdef ENGINE_HAS_CUDA
    if (strcmp(name, "cuda") == 0)
        return &ENGINE_CUDA_OPS;
#endif
    return strcmp(name, "cpu") == 0 ? &ENGINE_CPU_OPS : NULL;
}

#endif
