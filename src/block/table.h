/* block/table.h - block tables and slot mapping; the contracts are in quire/table.h.
 *
 *      row_lengths[r] <= row_stride;  entry of block b, part j: b x split + j  (0 <= j < split)
 *
 * virtual block: the positions that one block covers over all ranks of context parallelism.
 */
#ifndef QR_BLOCK_TABLE_H
#define QR_BLOCK_TABLE_H

#include "base/arena.h"
#include "base/memory.h"

#include <quire/table.h>

struct quire_table {
    uint32_t magic;
    uint32_t num_rows;
    uint32_t row_stride; /* kernel blocks */
    uint32_t num_slots;
    uint32_t block_size; /* tokens in a kernel block */
    uint32_t split;      /* kernel blocks in a block of the pool */
    uint32_t cp_world;   /* ranks of both kinds of context parallelism */
    uint32_t cp_rank;
    uint32_t interleave;
    int32_t *entries;
    uint32_t *row_lengths;
    int64_t *slot_mapping;
    qr_owner owner;
};

#define QR_TABLE_MAGIC UINT32_C(0x5154424c) /* "QTBL" */

int qr_table_config_read(quire_table_config *config, const quire_table_config *callers);
quire_table *qr_table_carve(qr_arena *arena, const quire_table_config *config);
void qr_table_init(quire_table *table, const quire_table_config *config);

int qr_table_append_row(quire_table *table, uint32_t row, const uint32_t *blocks, uint32_t n);
int qr_table_add_row(quire_table *table, uint32_t row, const uint32_t *blocks, uint32_t n);
int qr_table_move_row(quire_table *table, uint32_t source, uint32_t target);
int qr_table_swap_row(quire_table *table, uint32_t a, uint32_t b);
void qr_table_clear(quire_table *table);
int qr_table_compute_slot_mapping(quire_table *table, uint32_t num_reqs, const int32_t *starts,
                                  const int64_t *positions, uint32_t num_tokens);

#endif
