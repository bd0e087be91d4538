/* api/table_api.c - quire/table.h: argument checks, then one call inward. */
#include "api/fields.h"
#include "block/table.h"

static bool table_ok(const quire_table *table)
{
    return table != NULL && table->magic == QR_TABLE_MAGIC;
}

/* ---- making ---------------------------------------------------------------- */

int quire_table_create(const quire_table_config *config, const quire_allocator *allocator,
                       quire_table **table)
{
    quire_table_config c;
    if (table == NULL)
        return QUIRE_E_ARGUMENT;
    int err = qr_check_table_config(&c, config);
    if (err == QUIRE_OK)
        err = qr_table_config_read(&c, config);
    if (err != QUIRE_OK)
        return err;
    qr_owner owner;
    qr_arena arena;
    qr_arena size = qr_arena_plan();
    qr_table_carve(&size, &c);
    err = qr_owner_begin(&owner, allocator, &size, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_table *made = qr_table_carve(&arena, &c);
    qr_arena_seal(&arena);
    qr_table_init(made, &c);
    made->owner = owner;
    *table = made;
    return QUIRE_OK;
}

void quire_table_destroy(quire_table *table)
{
    if (!table_ok(table))
        return;
    table->magic = 0;
    qr_owner_release(&table->owner);
}

/* ---- rows ------------------------------------------------------------------ */

static int check_row_args(const quire_table *table, const quire_block *blocks, uint32_t num_blocks)
{
    return table_ok(table) && (blocks != NULL || num_blocks == 0) ? QUIRE_OK : QUIRE_E_ARGUMENT;
}

int quire_table_append_row(quire_table *table, uint32_t row, const quire_block *blocks,
                           uint32_t num_blocks)
{
    int err = check_row_args(table, blocks, num_blocks);
    return err == QUIRE_OK ? qr_table_append_row(table, row, blocks, num_blocks) : err;
}

int quire_table_add_row(quire_table *table, uint32_t row, const quire_block *blocks,
                        uint32_t num_blocks)
{
    int err = check_row_args(table, blocks, num_blocks);
    return err == QUIRE_OK ? qr_table_add_row(table, row, blocks, num_blocks) : err;
}

int quire_table_copy_row(quire_table *table, uint32_t source, uint32_t target, uint32_t swap)
{
    if (!table_ok(table))
        return QUIRE_E_ARGUMENT;
    return swap != 0 ? qr_table_swap_row(table, source, target)
                     : qr_table_move_row(table, source, target);
}

quire_table_view quire_table_get_view(const quire_table *table)
{
    if (!table_ok(table))
        return (quire_table_view){0};
    return (quire_table_view){.entries = table->entries,
                              .row_stride = table->row_stride,
                              .num_rows = table->num_rows,
                              .row_lengths = table->row_lengths,
                              .slot_mapping = table->slot_mapping,
                              .num_slots = table->num_slots,
                              .block_size = table->block_size};
}

int quire_table_compute_slot_mapping(quire_table *table, uint32_t num_reqs,
                                     const int32_t *query_start_loc, const int64_t *positions,
                                     uint32_t num_tokens)
{
    bool arrays_ok =
        (query_start_loc != NULL || num_reqs == 0) && (positions != NULL || num_tokens == 0);
    if (!table_ok(table) || !arrays_ok)
        return QUIRE_E_ARGUMENT;
    return qr_table_compute_slot_mapping(table, num_reqs, query_start_loc, positions, num_tokens);
}
