/* table.c - block tables: from a batch's tokens to slots.
 *
 *      prefill      8 requests with 2,048 new tokens each
 *      decode       512 requests with 1 new token each, somewhere in their 8,192 positions
 *      prefill_cp   as prefill, on one of 4 ranks of context parallelism: 3 of 4 slots are -1
 *      append_row   16 blocks added to each of 512 rows
 */
#include "bench.h"

#include <stdlib.h>

#define BLOCK_SIZE     16u
#define BLOCKS_PER_ROW 512u /* 8,192 positions */
#define MAX_ROWS       512u
#define MAX_TOKENS     16384u
#define APPEND_BLOCKS  16u
#define CALLS          16u

typedef struct batch {
    quire_table *table;
    uint32_t num_reqs;
    uint32_t num_tokens;
    int32_t query_start_loc[MAX_ROWS + 1];
    int64_t positions[MAX_TOKENS];
    quire_block blocks[BLOCKS_PER_ROW];
} batch;

static batch *batch_new(uint32_t dcp_world_size)
{
    batch *b = bench_memory(sizeof *b);
    quire_table_config config = QUIRE_TABLE_CONFIG_INIT;
    config.max_num_reqs = MAX_ROWS;
    config.max_num_blocks_per_req = BLOCKS_PER_ROW;
    config.max_num_batched_tokens = MAX_TOKENS;
    config.block_size = BLOCK_SIZE;
    config.dcp_world_size = dcp_world_size;
    config.dcp_rank = dcp_world_size - 1;
    bench_must(quire_table_create(&config, NULL, &b->table), "quire_table_create");

    uint64_t random = 5;
    for (uint32_t row = 0; row < MAX_ROWS; row++) {
        for (uint32_t i = 0; i < BLOCKS_PER_ROW; i++)
            b->blocks[i] = 1 + (uint32_t)(bench_random(&random) % 100000);
        bench_must(quire_table_add_row(b->table, row, b->blocks, BLOCKS_PER_ROW),
                   "quire_table_add_row");
    }
    return b;
}

/* A case's size is its requests, its batch the tokens of one. */
static batch *batch_fill(batch *b, const bench_case *self)
{
    uint64_t random = 6;
    uint32_t last_start = BLOCKS_PER_ROW * BLOCK_SIZE - self->batch;
    b->num_reqs = self->size;
    b->num_tokens = self->size * self->batch;
    b->query_start_loc[0] = 0;
    for (uint32_t req = 0; req < b->num_reqs; req++) {
        int64_t start = (int64_t)(bench_random(&random) % (last_start + 1));
        b->query_start_loc[req + 1] = (int32_t)((req + 1) * self->batch);
        for (uint32_t i = 0; i < self->batch; i++)
            b->positions[req * self->batch + i] = start + i;
    }
    return b;
}

static void *slots_setup(const bench_case *self)
{
    return batch_fill(batch_new(1), self);
}

static void *slots_cp_setup(const bench_case *self)
{
    return batch_fill(batch_new(4), self);
}

static uint64_t slots_pass(void *state, bench_timer *timer)
{
    batch *b = state;
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t i = 0; i < CALLS; i++)
        status |= quire_table_compute_slot_mapping(b->table, b->num_reqs, b->query_start_loc,
                                                   b->positions, b->num_tokens);
    bench_stop(timer, (uint64_t)CALLS * b->num_tokens);
    bench_must(status, "quire_table_compute_slot_mapping");

    const int64_t *slots = quire_table_get_view(b->table).slot_mapping;
    uint64_t check = 0;
    for (uint32_t i = 0; i < b->num_tokens; i++)
        check += (uint64_t)slots[i];
    return check;
}

static uint64_t append_row_pass(void *state, bench_timer *timer)
{
    batch *b = state;
    int status = QUIRE_OK;
    for (uint32_t row = 0; row < MAX_ROWS; row++)
        status |= quire_table_add_row(b->table, row, b->blocks, 1);
    bench_start(timer);
    for (uint32_t row = 0; row < MAX_ROWS; row++)
        status |= quire_table_append_row(b->table, row, b->blocks, APPEND_BLOCKS);
    bench_stop(timer, (uint64_t)MAX_ROWS * APPEND_BLOCKS);
    bench_must(status, "quire_table_append_row");
    quire_table_view view = quire_table_get_view(b->table);
    return (uint64_t)view.entries[(size_t)(MAX_ROWS - 1) * view.row_stride + APPEND_BLOCKS];
}

static void batch_teardown(void *state)
{
    batch *b = state;
    quire_table_destroy(b->table);
    free(b);
}

bench_group bench_table_group(void)
{
    static const bench_case cases[] = {
        {"table/slots/prefill", "ns/token", 1, 0, 8, 2048, false, slots_setup, slots_pass,
         batch_teardown},
        {"table/slots/decode", "ns/token", 1, 0, 512, 1, false, slots_setup, slots_pass,
         batch_teardown},
        {"table/slots/prefill_cp", "ns/token", 1, 0, 8, 2048, false, slots_cp_setup, slots_pass,
         batch_teardown},
        {"table/append_row/16", "ns/block", 1, 0, 1, 1, false, slots_setup, append_row_pass,
         batch_teardown},
    };
    return (bench_group){cases, sizeof cases / sizeof *cases};
}
