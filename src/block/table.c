#include "block/table.h"

#include "base/assert.h"
#include "base/hooks.h"
#include "base/refuse.h"

enum { TABLE_DEFAULT_BLOCK_SIZE = 16 };

/* ---- making ---------------------------------------------------------------- */

static uint32_t or_default(uint32_t value, uint32_t fallback)
{
    return value == 0 ? fallback : value;
}

int qr_table_config_read(quire_table_config *config, const quire_table_config *callers)
{
    int err = qr_refuse_reading(config, sizeof *config, callers, "quire_table_config");
    if (err != QUIRE_OK)
        return err;
    config->block_size = or_default(config->block_size, TABLE_DEFAULT_BLOCK_SIZE);
    config->kernel_block_size = or_default(config->kernel_block_size, config->block_size);
    config->pcp_world_size = or_default(config->pcp_world_size, 1);
    config->dcp_world_size = or_default(config->dcp_world_size, 1);
    config->cp_kv_cache_interleave_size = or_default(config->cp_kv_cache_interleave_size, 1);
    const qr_field fields[] = {
        QR_FIELD(config, pcp_rank, 0, config->pcp_world_size - 1),
        QR_FIELD(config, dcp_rank, 0, config->dcp_world_size - 1),
    };
    err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    if (err != QUIRE_OK)
        return err;
    if (config->block_size % config->kernel_block_size != 0)
        return qr_refuse("invalid kernel_block_size %u (expected a divisor of block_size %u)",
                         config->kernel_block_size, config->block_size);
    /* Otherwise a rank's share of a virtual block would not fit in its block. */
    bool shared = config->pcp_world_size > 1 || config->dcp_world_size > 1;
    if (shared && config->kernel_block_size % config->cp_kv_cache_interleave_size != 0)
        return qr_refuse("invalid cp_kv_cache_interleave_size %u (expected a divisor of "
                         "kernel_block_size %u)",
                         config->cp_kv_cache_interleave_size, config->kernel_block_size);
    /* Entries are int32 and a virtual block's positions are counted in 32 bits. */
    uint64_t split = config->block_size / config->kernel_block_size;
    uint64_t world = (uint64_t)config->pcp_world_size * config->dcp_world_size;
    bool fits = world <= UINT32_MAX && config->max_num_blocks_per_req * split <= INT32_MAX &&
                world <= INT32_MAX / config->block_size &&
                config->cp_kv_cache_interleave_size <= INT32_MAX / world;
    return fits ? QUIRE_OK
                : qr_refuse("block_size %u, max_num_blocks_per_req %u, world sizes %u and %u and "
                            "cp_kv_cache_interleave_size %u: a product is above %d",
                            config->block_size, config->max_num_blocks_per_req,
                            config->pcp_world_size, config->dcp_world_size,
                            config->cp_kv_cache_interleave_size, INT32_MAX);
}

quire_table *qr_table_carve(qr_arena *arena, const quire_table_config *config)
{
    uint32_t split = config->block_size / config->kernel_block_size;
    size_t stride = (size_t)config->max_num_blocks_per_req * split;
    quire_table *table = qr_arena_take(arena, 1, sizeof *table);
    int32_t *entries = qr_arena_take(arena, config->max_num_reqs, stride * sizeof *entries);
    uint32_t *lengths = qr_arena_take(arena, config->max_num_reqs, sizeof *lengths);
    int64_t *slots = qr_arena_take(arena, config->max_num_batched_tokens, sizeof *slots);
    if (table != NULL)
        *table = (quire_table){.num_rows = config->max_num_reqs,
                               .row_stride = (uint32_t)stride,
                               .num_slots = config->max_num_batched_tokens,
                               .split = split,
                               .entries = entries,
                               .row_lengths = lengths,
                               .slot_mapping = slots};
    return table;
}

void qr_table_init(quire_table *table, const quire_table_config *config)
{
    table->magic = QR_TABLE_MAGIC;
    table->block_size = config->kernel_block_size;
    table->cp_world = config->pcp_world_size * config->dcp_world_size;
    table->cp_rank = config->pcp_rank * config->dcp_world_size + config->dcp_rank;
    table->interleave = config->cp_kv_cache_interleave_size;
    qr_table_clear(table);
    memset(table->row_lengths, 0, table->num_rows * sizeof *table->row_lengths);
    memset(table->slot_mapping, 0, table->num_slots * sizeof *table->slot_mapping);
}

/* ---- rows ------------------------------------------------------------------ */

static int32_t *row_of(const quire_table *table, uint32_t row)
{
    return table->entries + (size_t)row * table->row_stride;
}

/* The blocks' kernel parts must fit behind `start`, and each in an int32. */
static int put_row(quire_table *table, uint32_t row, uint32_t start, const uint32_t *blocks,
                   uint32_t n)
{
    if (row >= table->num_rows || n > (table->row_stride - start) / table->split)
        return QUIRE_E_RANGE;
    for (uint32_t i = 0; i < n; i++)
        if (blocks[i] > (uint32_t)INT32_MAX / table->split - 1)
            return QUIRE_E_RANGE;
    int32_t *entry = row_of(table, row) + start;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t part = 0; part < table->split; part++)
            *entry++ = (int32_t)(blocks[i] * table->split + part);
    table->row_lengths[row] = start + n * table->split;
    return QUIRE_OK;
}

int qr_table_append_row(quire_table *table, uint32_t row, const uint32_t *blocks, uint32_t n)
{
    uint32_t start = row < table->num_rows ? table->row_lengths[row] : 0;
    return put_row(table, row, start, blocks, n);
}

int qr_table_add_row(quire_table *table, uint32_t row, const uint32_t *blocks, uint32_t n)
{
    return put_row(table, row, 0, blocks, n);
}

int qr_table_move_row(quire_table *table, uint32_t source, uint32_t target)
{
    if (source >= table->num_rows || target >= table->num_rows)
        return QUIRE_E_RANGE;
    uint32_t length = table->row_lengths[source];
    memmove(row_of(table, target), row_of(table, source), length * sizeof *table->entries);
    table->row_lengths[target] = length;
    return QUIRE_OK;
}

int qr_table_swap_row(quire_table *table, uint32_t a, uint32_t b)
{
    if (a >= table->num_rows || b >= table->num_rows)
        return QUIRE_E_RANGE;
    int32_t *row_a = row_of(table, a);
    int32_t *row_b = row_of(table, b);
    for (uint32_t i = 0; i < table->row_stride; i++) {
        int32_t entry = row_a[i];
        row_a[i] = row_b[i];
        row_b[i] = entry;
    }
    uint32_t length = table->row_lengths[a];
    table->row_lengths[a] = table->row_lengths[b];
    table->row_lengths[b] = length;
    return QUIRE_OK;
}

void qr_table_clear(quire_table *table)
{
    memset(table->entries, 0, (size_t)table->num_rows * table->row_stride * sizeof(int32_t));
}

/* ---- slots ----------------------------------------------------------------- */

static int check_batch(const quire_table *table, uint32_t num_reqs, const int32_t *starts,
                       const int64_t *positions, uint32_t num_tokens)
{
    if (num_reqs > table->num_rows || num_tokens > table->num_slots ||
        (num_reqs > 0 && starts[0] < 0))
        return QUIRE_E_RANGE;
    uint64_t virtual_block = (uint64_t)table->block_size * table->cp_world;
    for (uint32_t r = 0; r < num_reqs; r++) {
        if (starts[r + 1] < starts[r] || (uint32_t)starts[r + 1] > num_tokens)
            return QUIRE_E_RANGE;
        uint64_t end = table->row_lengths[r] * virtual_block;
        uint64_t farthest = 0;
        for (int32_t t = starts[r]; t < starts[r + 1]; t++)
            farthest = (uint64_t)positions[t] > farthest ? (uint64_t)positions[t] : farthest;
        if (starts[r + 1] > starts[r] && farthest >= end) /* a negative position is huge here */
            return QUIRE_E_RANGE;
    }
    return QUIRE_OK;
}

/* The common case: no context parallelism, and a block size that is a power of two. */
static void map_tokens_pow2(const quire_table *table, const int32_t *row, const int64_t *positions,
                            int64_t *slots, uint32_t n)
{
    uint32_t shift = (uint32_t)__builtin_ctz(table->block_size);
    int64_t mask = (int64_t)table->block_size - 1;
    for (uint32_t t = 0; t < n; t++)
        slots[t] = ((int64_t)row[positions[t] >> shift] << shift) | (positions[t] & mask);
}

static void map_tokens(const quire_table *table, const int32_t *row, const int64_t *positions,
                       int64_t *slots, uint32_t n)
{
    uint32_t world = table->cp_world;
    uint32_t run = table->interleave;
    uint64_t virtual_block = (uint64_t)table->block_size * world;
    qr_assert(virtual_block > 0 && run > 0);
    for (uint32_t t = 0; t < n; t++) {
        uint64_t position = (uint64_t)positions[t];
        uint64_t index = position / virtual_block;
        uint32_t offset = (uint32_t)(position - index * virtual_block);
        bool local = offset / run % world == table->cp_rank;
        uint32_t local_offset = offset / (world * run) * run + offset % run;
        slots[t] = local ? (int64_t)row[index] * table->block_size + local_offset : QUIRE_PAD_SLOT;
    }
}

int qr_table_compute_slot_mapping(quire_table *table, uint32_t num_reqs, const int32_t *starts,
                                  const int64_t *positions, uint32_t num_tokens)
{
    int err = check_batch(table, num_reqs, starts, positions, num_tokens);
    if (err != QUIRE_OK)
        return err;
    bool simple = table->cp_world == 1 && qr_is_pow2(table->block_size);
    for (uint32_t r = 0; r < num_reqs; r++) {
        const int64_t *from = positions + starts[r];
        int64_t *to = table->slot_mapping + starts[r];
        uint32_t n = (uint32_t)(starts[r + 1] - starts[r]);
        if (simple)
            map_tokens_pow2(table, row_of(table, r), from, to, n);
        else
            map_tokens(table, row_of(table, r), from, to, n);
    }
    for (uint32_t t = num_tokens; t < table->num_slots; t++)
        table->slot_mapping[t] = QUIRE_PAD_SLOT;
    return QUIRE_OK;
}
