/* parity/parity_table.c - Quire's block table against vLLM's BlockTable and its slot kernel.
 *
 *      table ROWS WIDTH TOKENS BLOCK KERNEL_BLOCK PCP PCP_RANK DCP DCP_RANK INTERLEAVE
 *      a 1 5,6    append to row 1      d 1 5,6   row 1 becomes     c 1   clear row 1
 *      m 0 1      copy row 0 to 1      w 0 1     swap              z     zero all
 *      s 2 40 16:30,~77:8              slot mapping of 40 tokens from token 2 on: row 0 has
 *                                      positions 16..45, row 1 has 8 drawn with seed 77
 *
 * After each operation row lengths, all entries and all slots are compared.
 */
#include "block/table.h"
#include "parity/recording.h"
#include "parity/stream.h"

#include <quire/table.h>

#include <inttypes.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ROWS = 16, MAX_TOKENS = 256, MAX_LIST = 256 };

static const char *path;

typedef struct table_case {
    recording r;
    quire_table *table;
    uint64_t positions_per_entry;
} table_case;

static void start_case(table_case *c)
{
    recording *r = &c->r;
    quire_table_config config = QUIRE_TABLE_CONFIG_INIT;
    config.max_num_reqs = recording_u32(r);
    config.max_num_blocks_per_req = recording_u32(r);
    config.max_num_batched_tokens = recording_u32(r);
    config.block_size = recording_u32(r);
    config.kernel_block_size = recording_u32(r);
    config.pcp_world_size = recording_u32(r);
    config.pcp_rank = recording_u32(r);
    config.dcp_world_size = recording_u32(r);
    config.dcp_rank = recording_u32(r);
    config.cp_kv_cache_interleave_size = recording_u32(r);
    recording_expect(r, config.max_num_reqs <= MAX_ROWS, "rows fit");
    recording_expect(r, config.max_num_batched_tokens <= MAX_TOKENS, "tokens fit");
    quire_table_destroy(c->table);
    recording_expect(r, quire_table_create(&config, NULL, &c->table) == QUIRE_OK, "table is made");
    c->positions_per_entry =
        (uint64_t)config.kernel_block_size * config.pcp_world_size * config.dcp_world_size;
    recording_start_case(r);
}

/* "16:30" or "~77:8": the positions of one row's tokens; returns how many. */
static uint32_t read_positions(table_case *c, uint32_t row, char *piece, int64_t *out)
{
    char *start_word = strsep(&piece, ":");
    recording_expect(&c->r, piece != NULL, "positions have a count");
    uint32_t n = (uint32_t)strtoul(piece, NULL, 10);
    recording_expect(&c->r, n <= MAX_TOKENS, "tokens of a row fit");
    if (start_word[0] != '~') {
        int64_t start = (int64_t)strtoull(start_word, NULL, 10);
        for (uint32_t i = 0; i < n; i++)
            out[i] = start + i;
        return n;
    }
    uint64_t state = strtoull(start_word + 1, NULL, 10);
    uint64_t limit = quire_table_get_view(c->table).row_lengths[row] * c->positions_per_entry;
    for (uint32_t i = 0; i < n; i++)
        out[i] = (int64_t)(stream_next(&state) % limit);
    return n;
}

static int run_slot_mapping(table_case *c)
{
    int32_t starts[MAX_ROWS + 1];
    int64_t positions[2 * MAX_TOKENS] = {0};
    uint32_t at = recording_u32(&c->r);
    uint32_t num_tokens = recording_u32(&c->r);
    uint32_t rows = 0;
    char *pieces = recording_word(&c->r);
    starts[0] = (int32_t)at;
    for (char *piece = strsep(&pieces, ","); piece != NULL; piece = strsep(&pieces, ",")) {
        recording_expect(&c->r, rows < MAX_ROWS && at <= MAX_TOKENS, "batch fits");
        at += read_positions(c, rows, piece, positions + at);
        starts[++rows] = (int32_t)at;
    }
    return quire_table_compute_slot_mapping(c->table, rows, starts, positions, num_tokens);
}

/* vLLM's clear_row: an engine has add_row. */
static int clear_row(quire_table *table, uint32_t row)
{
    if (row >= table->num_rows)
        return QUIRE_E_RANGE;
    memset(table->entries + (size_t)row * table->row_stride, 0,
           table->row_lengths[row] * sizeof *table->entries);
    table->row_lengths[row] = 0;
    return QUIRE_OK;
}

static int run_operation(table_case *c, char op)
{
    uint32_t list[MAX_LIST];
    recording *r = &c->r;
    if (op == 's')
        return run_slot_mapping(c);
    if (op == 'z') {
        qr_table_clear(c->table);
        return QUIRE_OK;
    }
    uint32_t row = recording_u32(r);
    if (op == 'c')
        return clear_row(c->table, row);
    uint32_t count = recording_ids(r, list, MAX_LIST);
    switch (op) {
    case 'a':
        return quire_table_append_row(c->table, row, list, count);
    case 'd':
        return quire_table_add_row(c->table, row, list, count);
    case 'm':
        return quire_table_move_row(c->table, row, list[0]);
    case 'w':
        return quire_table_swap_row(c->table, row, list[0]);
    default:
        recording_expect(r, false, "operation is known");
        return QUIRE_E_ARGUMENT;
    }
}

static void check_state(table_case *c, char op)
{
    recording *r = &c->r;
    quire_table_view view = quire_table_get_view(c->table);
    text_add(&r->answer, "%c|", op);
    text_add_ids(&r->answer, view.row_lengths, view.num_rows);
    size_t num_entries = (size_t)view.num_rows * view.row_stride;
    for (size_t i = 0; i < num_entries; i++)
        text_add(&r->answer, "%s%" PRId32, i == 0 ? "|" : ",", view.entries[i]);
    for (uint32_t i = 0; i < view.num_slots; i++)
        text_add(&r->answer, "%s%" PRId64, i == 0 ? "|" : ",", view.slot_mapping[i]);
    recording_check_answer(r);
}

static void table_answers_as_vllm(void **state)
{
    (void)state;
    static table_case c;
    recording_open(&c.r, path, "table");
    while (recording_next(&c.r)) {
        const char *op = recording_word(&c.r);
        if (strcmp(op, "table") == 0) {
            start_case(&c);
        } else if (strcmp(op, "end") == 0) {
            recording_check_case(&c.r);
        } else {
            int status = run_operation(&c, op[0]);
            if (status != QUIRE_OK)
                recording_differs(&c.r, "status", "QUIRE_OK", quire_status_name(status));
            check_state(&c, op[0]);
        }
    }
    recording_close(&c.r);
    quire_table_destroy(c.table);
}

int main(int argc, char **argv)
{
    path = recording_path(argc, argv, QUIRE_TEST_DATA "/table.txt");
    const struct CMUnitTest tests[] = {cmocka_unit_test(table_answers_as_vllm)};
    return cmocka_run_group_tests_name("parity_table", tests, NULL, NULL);
}
