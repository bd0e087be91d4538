/* quire/table.h - from a request's tokens to places in KV memory.
 *
 *      row (a running request)      block table                      KV memory of a layer
 *      0: tokens 0 ... 37      -->  [ 7 | 3 | 12 |  0 ]   -->  slot = block x block_size + offset
 *      1: tokens 0 ... 15      -->  [ 4 |  0 |  0 |  0 ]        token 20 of row 0: 3 x 16 + 4 = 52
 *
 * table    for each row the ids of its blocks, in int32, ready for an attention kernel.
 * slot     the place of one token's KV in a layer: what the kernel that writes KV needs, in int64.
 *          -1 (QUIRE_PAD_SLOT) means "write nothing": padding, or another rank's token.
 * layout   where a block's bytes are: the address of (layer, block).
 *
 * Kernel blocks: where a kernel wants smaller blocks than the pool's (say 16 of 32), block b of the
 * pool stands in the table as b*2, b*2+1.
 *
 * Context parallelism: with a world of w ranks a block covers block_size x w positions, dealt out
 * to the ranks in runs of `interleave`; slots of other ranks' positions are -1.
 *
 * A table belongs to one thread at a time. A call that does not return QUIRE_OK has changed
 * nothing.
 */
#ifndef QUIRE_TABLE_H
#define QUIRE_TABLE_H

#include "config.h"
#include "error.h"
#include "memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_table quire_table;

#define QUIRE_PAD_SLOT INT64_C(-1)

typedef struct quire_table_config {
    size_t size;
    uint32_t max_num_reqs;           /* rows */
    uint32_t max_num_blocks_per_req; /* blocks of the pool in a row */
    uint32_t max_num_batched_tokens; /* slots */
    uint32_t block_size;             /* tokens in a block of the pool; 0 = 16 */
    uint32_t kernel_block_size;      /* divides block_size; 0 = the same */
    uint32_t pcp_world_size;         /* ranks of prefill context parallelism; 0 = 1 */
    uint32_t pcp_rank;
    uint32_t dcp_world_size; /* ranks of decode context parallelism; 0 = 1 */
    uint32_t dcp_rank;
    uint32_t
        cp_kv_cache_interleave_size; /* 0 = 1; divides kernel_block_size where ranks are many */
} quire_table_config;

#define QUIRE_TABLE_CONFIG_INIT QUIRE_SIZED_INIT(quire_table_config)

/* Plan, carve, seal: see quire/memory.h. _bytes gives 0 when the config is not valid. */
QUIRE_API size_t quire_table_bytes(const quire_table_config *config);
QUIRE_API int quire_table_create_in(void *memory, size_t bytes, const quire_table_config *config,
                                    quire_table **table);
QUIRE_API int quire_table_create(const quire_table_config *config, const quire_allocator *allocator,
                                 quire_table **table);
QUIRE_API void quire_table_destroy(quire_table *table);

/* Rows are numbered from 0. QUIRE_E_RANGE for a row that does not exist, or when its blocks would
 * not fit. */
QUIRE_API int quire_table_append_row(quire_table *table, uint32_t row, const quire_block *blocks,
                                     uint32_t num_blocks);
/* Replaces what the row has. Entries of the old row past the new end stay in memory, as in vLLM. */
QUIRE_API int quire_table_add_row(quire_table *table, uint32_t row, const quire_block *blocks,
                                  uint32_t num_blocks);
/* Zeroes the row's entries; its length is 0 afterwards. */
QUIRE_API int quire_table_clear_row(quire_table *table, uint32_t row);
/* target becomes a copy of source; source stays. */
QUIRE_API int quire_table_move_row(quire_table *table, uint32_t source, uint32_t target);
QUIRE_API int quire_table_swap_row(quire_table *table, uint32_t a, uint32_t b);
/* Zeroes all entries; the rows keep their lengths, as in vLLM. */
QUIRE_API int quire_table_clear(quire_table *table);

/* What a kernel is given. Valid as long as the table. */
typedef struct quire_table_view {
    const int32_t *entries; /* num_rows x row_stride */
    uint32_t row_stride;    /* kernel blocks in a row */
    uint32_t num_rows;
    const uint32_t *row_lengths; /* kernel blocks in use, for each row */
    const int64_t *slot_mapping; /* num_slots */
    uint32_t num_slots;          /* max_num_batched_tokens */
    uint32_t block_size;         /* tokens in a kernel block */
} quire_table_view;

QUIRE_API quire_table_view quire_table_get_view(const quire_table *table);

/* Fills slot_mapping for a batch: tokens [query_start_loc[i], query_start_loc[i+1]) belong to row
 * i, for i < num_reqs, and positions[t] is token t's position in its request. Tokens from
 * query_start_loc[0] to query_start_loc[num_reqs] are mapped, slots from num_tokens on are padded
 * with -1. QUIRE_E_RANGE when a position lies past its row's blocks (vLLM would use whatever stands
 * there), when query_start_loc decreases or passes num_tokens, or when there are too many rows or
 * tokens. */
QUIRE_API int quire_table_compute_slot_mapping(quire_table *table, uint32_t num_reqs,
                                               const int32_t *query_start_loc,
                                               const int64_t *positions, uint32_t num_tokens);

/* ---- addresses ---------------------------------------------------------- */

/* Where blocks lie. Layer outermost: layer_stride = num_blocks x block_bytes, block_stride =
 * block_bytes. Block outermost: layer_stride = block_bytes, block_stride = num_layers x
 * block_bytes. block_bytes is what one layer keeps of one block. */
typedef struct quire_layout {
    uint64_t base;
    uint64_t layer_stride;
    uint64_t block_stride;
    uint64_t block_bytes;
    uint32_t num_layers;
    uint32_t num_blocks;
} quire_layout;

QUIRE_API int quire_layout_layer_outer(uint64_t base, uint32_t num_layers, uint32_t num_blocks,
                                       uint64_t block_bytes, quire_layout *layout);
QUIRE_API int quire_layout_block_outer(uint64_t base, uint32_t num_layers, uint32_t num_blocks,
                                       uint64_t block_bytes, quire_layout *layout);

/* base + layer x layer_stride + block x block_stride. The caller keeps layer and block in range;
 * quire_layout_address checks them. Any thread. */
static inline uint64_t quire_layout_address_of(const quire_layout *layout, uint32_t layer,
                                               quire_block block)
{
    return layout->base + layer * layout->layer_stride + block * layout->block_stride;
}
QUIRE_API int quire_layout_address(const quire_layout *layout, uint32_t layer, quire_block block,
                                   uint64_t *address);

/* The address of one token: that of its block, and offset x (block_bytes / block_size) behind it.
 * For memory in which a block's tokens lie one after the other, equally long: keys alone, values
 * alone, or both side by side in each token. offset and block are those of quire_cache_find_token.
 * QUIRE_E_RANGE for a layer that is not there, an offset of block_size or more, and a block_size
 * that does not divide block_bytes; QUIRE_E_UNKNOWN_BLOCK. */
QUIRE_API int quire_layout_token_address(const quire_layout *layout, uint32_t layer,
                                         quire_block block, uint32_t offset, uint32_t block_size,
                                         uint64_t *address);

#ifdef __cplusplus
}
#endif
#endif
