/* quire/table.h - from the tokens of a request to addresses in KV memory.
 *
 *      row (a running request)      block table                      KV memory of a layer
 *      0: tokens 0 ... 37      -->  [ 7 | 3 | 12 |  0 ]   -->  slot = block x block_size + offset
 *      1: tokens 0 ... 15      -->  [ 4 |  0 |  0 |  0 ]        token 20 of row 0: 3 x 16 + 4 = 52
 *
 * table    for each row the ids of its blocks, as int32, ready for an attention kernel.
 * slot     the position of one token's KV in a layer, as int64, for the kernel that writes KV.
 *          -1 (QUIRE_PAD_SLOT) means "write nothing": padding, or a token of another rank.
 * layout   the address of the bytes of (layer, block).
 *
 * Kernel blocks: if a kernel needs smaller blocks than the blocks of the pool (for example 16
 * tokens instead of 32), block b of the pool appears in the table as b*2, b*2+1.
 *
 * Context parallelism: with w ranks a block covers block_size x w positions, which are dealt out to
 * the ranks in runs of `interleave` positions. The slots of another rank's positions are -1.
 *
 * Threads: one thread at a time may use a table. A call that does not return QUIRE_OK has changed
 * nothing. If a required pointer is NULL, a call returns QUIRE_E_ARGUMENT.
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
    uint32_t max_num_reqs;           /* number of rows */
    uint32_t max_num_blocks_per_req; /* the most pool blocks in a row */
    uint32_t max_num_batched_tokens; /* number of slots */
    uint32_t block_size;             /* tokens in a block of the pool; 0 = 16 */
    uint32_t kernel_block_size;      /* must divide block_size; 0 = block_size */
    uint32_t pcp_world_size;         /* ranks of prefill context parallelism; 0 = 1 */
    uint32_t pcp_rank;
    uint32_t dcp_world_size; /* ranks of decode context parallelism; 0 = 1 */
    uint32_t dcp_rank;
    /* 0 = 1. With several ranks it must divide kernel_block_size. */
    uint32_t cp_kv_cache_interleave_size;
} quire_table_config;

#define QUIRE_TABLE_CONFIG_INIT QUIRE_SIZED_INIT(quire_table_config)

/* Create a table: see quire/memory.h. _destroy frees what _create took; NULL: does nothing. */
QUIRE_API int quire_table_create(const quire_table_config *config, const quire_allocator *allocator,
                                 quire_table **table);
static inline size_t quire_table_bytes(const quire_table_config *config)
{
    size_t bytes = 0;
    quire_table *none;
    quire_allocator measure = quire_allocator_measure(&bytes);
    (void)quire_table_create(config, &measure, &none);
    return bytes;
}
QUIRE_API void quire_table_destroy(quire_table *table);

/* Appends blocks to a row. Rows are numbered from 0. Returns QUIRE_E_RANGE if the row does not
 * exist, if the row has no room for the blocks, or if a block id does not fit in an int32. add_row
 * returns the same statuses; move_row and swap_row return QUIRE_E_RANGE if a row does
 * not exist. */
QUIRE_API int quire_table_append_row(quire_table *table, uint32_t row, const quire_block *blocks,
                                     uint32_t num_blocks);
/* Replaces the blocks of a row. Entries of the old row past the new end stay in memory, as in vLLM.
 */
QUIRE_API int quire_table_add_row(quire_table *table, uint32_t row, const quire_block *blocks,
                                  uint32_t num_blocks);
/* Copies row source to row target. Row source is unchanged, or with swap 1 gets the old row target.
 */
QUIRE_API int quire_table_copy_row(quire_table *table, uint32_t source, uint32_t target,
                                   uint32_t swap);
static inline int quire_table_move_row(quire_table *table, uint32_t source, uint32_t target)
{
    return quire_table_copy_row(table, source, target, 0);
}
static inline int quire_table_swap_row(quire_table *table, uint32_t a, uint32_t b)
{
    return quire_table_copy_row(table, a, b, 1);
}

/* The arrays that a kernel reads. Valid as long as the table. All zero if table is NULL. */
typedef struct quire_table_view { /* final */
    const int32_t *entries;       /* num_rows x row_stride elements */
    uint32_t row_stride;          /* kernel blocks in a row */
    uint32_t num_rows;
    const uint32_t *row_lengths; /* kernel blocks in use, for each row */
    const int64_t *slot_mapping; /* num_slots elements */
    uint32_t num_slots;          /* max_num_batched_tokens */
    uint32_t block_size;         /* tokens in a kernel block */
} quire_table_view;

QUIRE_API quire_table_view quire_table_get_view(const quire_table *table);

/* Fills slot_mapping for a batch. Tokens [query_start_loc[i], query_start_loc[i+1]) belong to row
 * i, for i < num_reqs; positions[t] is the position of token t in its request. The tokens from
 * query_start_loc[0] to query_start_loc[num_reqs] get slots; the slots from num_tokens on are -1.
 *
 * Returns QUIRE_E_RANGE if a position lies past the blocks of its row (vLLM would read whatever the
 * table holds), if query_start_loc decreases or exceeds num_tokens, or if there are too many rows
 * or tokens. */
QUIRE_API int quire_table_compute_slot_mapping(quire_table *table, uint32_t num_reqs,
                                               const int32_t *query_start_loc,
                                               const int64_t *positions, uint32_t num_tokens);

/* ---- addresses ---------------------------------------------------------- */

/* Where blocks lie in memory. block_bytes is what one layer stores for one block.
 *
 *      layer outermost   block_stride = block_bytes   layer_stride = num_blocks x block_bytes
 *      block outermost   layer_stride = block_bytes   block_stride = num_layers x block_bytes
 *
 * _layer_outer and _block_outer fill a layout. They return QUIRE_E_OVERFLOW if the last byte has no
 * 64-bit address, QUIRE_E_ARGUMENT if layout is NULL. Any thread may call the functions of a
 * layout. */
typedef struct quire_layout { /* final */
    uint64_t base;
    uint64_t layer_stride;
    uint64_t block_stride;
    uint64_t block_bytes;
    uint32_t num_layers;
    uint32_t num_blocks;
} quire_layout;

static inline int quire_layout_fill(quire_layout *layout, uint64_t base, uint32_t num_layers,
                                    uint32_t num_blocks, uint64_t block_bytes, int layer_outer)
{
    uint64_t pieces = (uint64_t)num_layers * num_blocks;
    if (layout == NULL)
        return QUIRE_E_ARGUMENT;
    if (pieces > 0 && block_bytes > UINT64_MAX / pieces)
        return QUIRE_E_OVERFLOW;
    if (pieces * block_bytes > 0 && base > UINT64_MAX - (pieces * block_bytes - 1))
        return QUIRE_E_OVERFLOW;
    layout->base = base;
    layout->layer_stride = layer_outer ? num_blocks * block_bytes : block_bytes;
    layout->block_stride = layer_outer ? block_bytes : num_layers * block_bytes;
    layout->block_bytes = block_bytes;
    layout->num_layers = num_layers;
    layout->num_blocks = num_blocks;
    return QUIRE_OK;
}
static inline int quire_layout_layer_outer(uint64_t base, uint32_t num_layers, uint32_t num_blocks,
                                           uint64_t block_bytes, quire_layout *layout)
{
    return quire_layout_fill(layout, base, num_layers, num_blocks, block_bytes, 1);
}
static inline int quire_layout_block_outer(uint64_t base, uint32_t num_layers, uint32_t num_blocks,
                                           uint64_t block_bytes, quire_layout *layout)
{
    return quire_layout_fill(layout, base, num_layers, num_blocks, block_bytes, 0);
}

/* base + layer x layer_stride + block x block_stride. _address_of does not check layer and block.
 * _address returns QUIRE_E_RANGE if the layer does not exist, QUIRE_E_UNKNOWN_BLOCK if the block
 * does not exist. */
static inline uint64_t quire_layout_address_of(const quire_layout *layout, uint32_t layer,
                                               quire_block block)
{
    return layout->base + layer * layout->layer_stride + block * layout->block_stride;
}
static inline int quire_layout_address(const quire_layout *layout, uint32_t layer,
                                       quire_block block, uint64_t *address)
{
    if (layout == NULL || address == NULL)
        return QUIRE_E_ARGUMENT;
    if (layer >= layout->num_layers)
        return QUIRE_E_RANGE;
    if (block >= layout->num_blocks)
        return QUIRE_E_UNKNOWN_BLOCK;
    *address = quire_layout_address_of(layout, layer, block);
    return QUIRE_OK;
}

/* The address of one token: the address of its block plus offset x (block_bytes / block_size). The
 * tokens of a block must lie one after the other and have equal sizes: keys alone, values alone, or
 * both side by side in each token. offset and block come from quire_cache_find_token.
 *
 * Returns QUIRE_E_RANGE if the layer does not exist, if offset is not below block_size, or if
 * block_size does not divide block_bytes; QUIRE_E_UNKNOWN_BLOCK if the block does not exist. */
static inline int quire_layout_token_address(const quire_layout *layout, uint32_t layer,
                                             quire_block block, uint32_t offset,
                                             uint32_t block_size, uint64_t *address)
{
    if (layout == NULL || address == NULL)
        return QUIRE_E_ARGUMENT;
    if (offset >= block_size || layout->block_bytes % block_size != 0)
        return QUIRE_E_RANGE;
    uint64_t first = 0;
    int err = quire_layout_address(layout, layer, block, &first);
    if (err == QUIRE_OK)
        *address = first + offset * (layout->block_bytes / block_size);
    return err;
}
#ifdef __cplusplus
}
#endif
#endif
