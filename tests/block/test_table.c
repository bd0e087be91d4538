/* block/test_table.c - rows of block ids, and the slots of a batch, worked out by hand.
 *
 *      block size 4, row 0 = [ 5 | 2 ]:   position 0 -> 5*4+0 = 20,   position 6 -> 2*4+2 = 10
 */
#include "block/table.h"

#include "base/unit.h"

enum { ROWS = 3, ROW_BLOCKS = 4, TOKENS = 16, ROOM = 4096 };

typedef struct fixture {
    quire_table *table;
    _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];
    unsigned char before[ROOM];
} fixture;

static quire_table_config small_config(void)
{
    quire_table_config config = QUIRE_TABLE_CONFIG_INIT;
    config.max_num_reqs = ROWS;
    config.max_num_blocks_per_req = ROW_BLOCKS;
    config.max_num_batched_tokens = TOKENS;
    config.block_size = 4;
    return config;
}

static void open_with(fixture *f, const quire_table_config *config)
{
    memset(f->memory, 0x5a, ROOM);
    assert_int_equal(quire_table_create(
                         config, &(quire_allocator){.memory = f->memory, .bytes = ROOM}, &f->table),
                     QUIRE_OK);
}

static void open_small(fixture *f)
{
    quire_table_config config = small_config();
    open_with(f, &config);
}

/* The row's entries up to its length, as "5 2". */
static void assert_row(const fixture *f, uint32_t row, const char *wanted)
{
    quire_table_view view = quire_table_get_view(f->table);
    char text[128] = "";
    for (uint32_t i = 0; i < view.row_lengths[row]; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, i == 0 ? "%d" : " %d",
                 (int)view.entries[row * view.row_stride + i]);
    }
    assert_string_equal(text, wanted);
}

static int32_t entry(const fixture *f, uint32_t row, uint32_t i)
{
    quire_table_view view = quire_table_get_view(f->table);
    return view.entries[row * view.row_stride + i];
}

static void add(fixture *f, uint32_t row, const quire_block *blocks, uint32_t n)
{
    assert_int_equal(quire_table_add_row(f->table, row, blocks, n), QUIRE_OK);
}

static void assert_slots(const fixture *f, const int64_t *wanted, uint32_t n)
{
    const int64_t *slots = quire_table_get_view(f->table).slot_mapping;
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(slots[i], wanted[i]);
}

/* ---- rows ------------------------------------------------------------------ */

static void new_table_is_zero(void **state)
{
    (void)state;
    fixture f;
    open_small(&f);
    quire_table_view view = quire_table_get_view(f.table);
    assert_int_equal(view.num_rows, ROWS);
    assert_int_equal(view.row_stride, ROW_BLOCKS);
    assert_int_equal(view.num_slots, TOKENS);
    assert_int_equal(view.block_size, 4);
    for (uint32_t i = 0; i < ROWS * ROW_BLOCKS; i++)
        assert_int_equal(view.entries[i], 0);
    for (uint32_t row = 0; row < ROWS; row++)
        assert_int_equal(view.row_lengths[row], 0);
}

static void append_adds_to_the_end(void **state)
{
    (void)state;
    fixture f;
    open_small(&f);
    assert_int_equal(quire_table_append_row(f.table, 1, (quire_block[]){5, 2}, 2), QUIRE_OK);
    assert_int_equal(quire_table_append_row(f.table, 1, (quire_block[]){9}, 1), QUIRE_OK);
    assert_row(&f, 1, "5 2 9");
    assert_row(&f, 0, "");
    assert_row(&f, 2, "");
    assert_int_equal(quire_table_append_row(f.table, 1, NULL, 0), QUIRE_OK);
    assert_row(&f, 1, "5 2 9");
}

static void add_replaces_the_row(void **state)
{
    (void)state;
    fixture f;
    open_small(&f);
    add(&f, 0, (quire_block[]){5, 2, 9}, 3);
    add(&f, 0, (quire_block[]){7}, 1);
    assert_row(&f, 0, "7");
    assert_int_equal(entry(&f, 0, 1), 2); /* past the end the old ones stay */
}

static void move_copies(void **state)
{
    (void)state;
    fixture f;
    open_small(&f);
    add(&f, 0, (quire_block[]){5, 2}, 2);
    add(&f, 2, (quire_block[]){8, 8, 8}, 3);
    assert_int_equal(quire_table_move_row(f.table, 0, 2), QUIRE_OK);
    assert_row(&f, 0, "5 2");
    assert_row(&f, 2, "5 2");
    assert_int_equal(quire_table_move_row(f.table, 0, 0), QUIRE_OK);
    assert_row(&f, 0, "5 2");
}

static void swap_exchanges(void **state)
{
    (void)state;
    fixture f;
    open_small(&f);
    add(&f, 0, (quire_block[]){5, 2}, 2);
    add(&f, 1, (quire_block[]){7, 6, 8, 9}, 4);
    assert_int_equal(quire_table_swap_row(f.table, 0, 1), QUIRE_OK);
    assert_row(&f, 0, "7 6 8 9");
    assert_row(&f, 1, "5 2");
    assert_int_equal(quire_table_swap_row(f.table, 1, 1), QUIRE_OK);
    assert_row(&f, 1, "5 2");
}

static void clear_zeroes_entries_and_keeps_lengths(void **state)
{
    (void)state;
    fixture f;
    open_small(&f);
    add(&f, 0, (quire_block[]){5, 2}, 2);
    qr_table_clear(f.table);
    assert_row(&f, 0, "0 0");
}

static void kernel_blocks_split_a_block(void **state)
{
    (void)state;
    fixture f;
    quire_table_config config = small_config();
    config.block_size = 12;
    config.kernel_block_size = 4;
    open_with(&f, &config);
    quire_table_view view = quire_table_get_view(f.table);
    assert_int_equal(view.row_stride, 3 * ROW_BLOCKS);
    assert_int_equal(view.block_size, 4);
    add(&f, 0, (quire_block[]){5, 2}, 2);
    assert_row(&f, 0, "15 16 17 6 7 8");
    assert_int_equal(quire_table_append_row(f.table, 0, (quire_block[]){1}, 1), QUIRE_OK);
    assert_row(&f, 0, "15 16 17 6 7 8 3 4 5");
    static const int64_t POSITIONS[] = {0, 5, 11, 12, 25};
    static const int64_t WANTED[] = {60, 65, 71, 24, 13};
    assert_int_equal(quire_table_compute_slot_mapping(f.table, 1, (int32_t[]){0, 5}, POSITIONS, 5),
                     QUIRE_OK);
    assert_slots(&f, WANTED, 5);
}

/* ---- slots ----------------------------------------------------------------- */

static void slots_of_a_batch(void **state)
{
    (void)state;
    fixture f;
    open_small(&f);
    add(&f, 0, (quire_block[]){5, 2}, 2);
    add(&f, 1, (quire_block[]){1}, 1);
    static const int32_t STARTS[] = {0, 3, 4, 4}; /* row 2 has no token */
    static const int64_t POSITIONS[] = {0, 3, 6, 2};
    static const int64_t WANTED[] = {20, 23, 10, 6, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    assert_int_equal(quire_table_compute_slot_mapping(f.table, 3, STARTS, POSITIONS, 4), QUIRE_OK);
    assert_slots(&f, WANTED, TOKENS);
}

/* Between the last row's end and num_tokens the slots stay as they are. */
static void slots_behind_num_tokens_are_padding(void **state)
{
    (void)state;
    fixture f;
    open_small(&f);
    add(&f, 0, (quire_block[]){5, 2}, 2);
    static const int64_t POSITIONS[] = {0, 1, 2, 3, 4, 5, 6, 7};
    assert_int_equal(quire_table_compute_slot_mapping(f.table, 1, (int32_t[]){0, 8}, POSITIONS, 8),
                     QUIRE_OK);
    assert_int_equal(quire_table_compute_slot_mapping(f.table, 1, (int32_t[]){1, 2}, POSITIONS, 6),
                     QUIRE_OK);
    static const int64_t WANTED[] = {20, 21, 22, 23, 8, 9, -1, -1, -1};
    assert_slots(&f, WANTED, COUNT(WANTED));
    assert_int_equal(quire_table_compute_slot_mapping(f.table, 0, NULL, NULL, 0), QUIRE_OK);
    for (uint32_t i = 0; i < TOKENS; i++)
        assert_int_equal(quire_table_get_view(f.table).slot_mapping[i], QUIRE_PAD_SLOT);
}

static void block_size_need_not_be_a_power_of_two(void **state)
{
    (void)state;
    fixture f;
    quire_table_config config = small_config();
    config.block_size = 6;
    open_with(&f, &config);
    add(&f, 0, (quire_block[]){5, 2}, 2);
    static const int64_t POSITIONS[] = {0, 5, 6, 11};
    static const int64_t WANTED[] = {30, 35, 12, 17};
    assert_int_equal(quire_table_compute_slot_mapping(f.table, 1, (int32_t[]){0, 4}, POSITIONS, 4),
                     QUIRE_OK);
    assert_slots(&f, WANTED, 4);
}

static void large_block_ids_need_64_bits(void **state)
{
    (void)state;
    fixture f;
    open_small(&f);
    add(&f, 0, (quire_block[]){INT32_MAX - 1}, 1);
    static const int64_t POSITIONS[] = {3};
    assert_int_equal(quire_table_compute_slot_mapping(f.table, 1, (int32_t[]){0, 1}, POSITIONS, 1),
                     QUIRE_OK);
    static const int64_t WANTED[] = {(INT64_C(2147483646)) * 4 + 3};
    assert_slots(&f, WANTED, 1);
}

/* ---- context parallelism --------------------------------------------------- */

/* Positions 0 .. 15 of the row [5 2], block size 4. */
static void assert_parallel(quire_table_config config, const int64_t *wanted)
{
    fixture f;
    open_with(&f, &config);
    add(&f, 0, (quire_block[]){5, 2}, 2);
    int64_t positions[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        positions[i] = i;
    assert_int_equal(
        quire_table_compute_slot_mapping(f.table, 1, (int32_t[]){0, TOKENS}, positions, TOKENS),
        QUIRE_OK);
    assert_slots(&f, wanted, TOKENS);
}

static void two_ranks_take_turns(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    config.dcp_world_size = 2;
    assert_parallel(config,
                    (int64_t[]){20, -1, 21, -1, 22, -1, 23, -1, 8, -1, 9, -1, 10, -1, 11, -1});
    config.dcp_rank = 1;
    assert_parallel(config,
                    (int64_t[]){-1, 20, -1, 21, -1, 22, -1, 23, -1, 8, -1, 9, -1, 10, -1, 11});
}

static void two_ranks_take_runs(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    config.pcp_world_size = 2;
    config.cp_kv_cache_interleave_size = 2;
    assert_parallel(config,
                    (int64_t[]){20, 21, -1, -1, 22, 23, -1, -1, 8, 9, -1, -1, 10, 11, -1, -1});
    config.pcp_rank = 1;
    assert_parallel(config,
                    (int64_t[]){-1, -1, 20, 21, -1, -1, 22, 23, -1, -1, 8, 9, -1, -1, 10, 11});
    config.cp_kv_cache_interleave_size = 4;
    assert_parallel(config,
                    (int64_t[]){-1, -1, -1, -1, 20, 21, 22, 23, -1, -1, -1, -1, 8, 9, 10, 11});
}

/* With runs of 3 in blocks of 4, a rank's share of two blocks would be 3 + 3 places: one too many.
 */
static void runs_must_divide_a_block(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    config.cp_kv_cache_interleave_size = 3;
    assert_int_not_equal(quire_table_bytes(&config), 0); /* one rank: no runs to deal out */
    config.dcp_world_size = 2;
    quire_table *table = NULL;
    assert_int_equal(quire_table_create(&config, NULL, &table), QUIRE_E_CONFIG);
}

/* Rank = pcp_rank x dcp_world_size + dcp_rank, here 1 x 2 + 0 = 2 of 4: one block has 16 places. */
static void both_kinds_of_ranks_multiply(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    config.pcp_world_size = 2;
    config.pcp_rank = 1;
    config.dcp_world_size = 2;
    assert_parallel(config,
                    (int64_t[]){-1, -1, 20, -1, -1, -1, 21, -1, -1, -1, 22, -1, -1, -1, 23, -1});
}

static void ranks_share_every_position_once(void **state)
{
    (void)state;
    for (uint32_t world = 1; world <= 4; world++) {
        uint32_t owners[TOKENS] = {0};
        for (uint32_t rank = 0; rank < world; rank++) {
            fixture f;
            quire_table_config config = small_config();
            config.dcp_world_size = world;
            config.dcp_rank = rank;
            config.cp_kv_cache_interleave_size = 2;
            open_with(&f, &config);
            add(&f, 0, (quire_block[]){3, 1, 2, 4}, 4);
            int64_t positions[TOKENS];
            for (int i = 0; i < TOKENS; i++)
                positions[i] = i;
            assert_int_equal(quire_table_compute_slot_mapping(f.table, 1, (int32_t[]){0, TOKENS},
                                                              positions, TOKENS),
                             QUIRE_OK);
            for (uint32_t i = 0; i < TOKENS; i++)
                owners[i] += quire_table_get_view(f.table).slot_mapping[i] >= 0;
        }
        for (uint32_t i = 0; i < TOKENS; i++)
            assert_int_equal(owners[i], 1);
    }
}

/* ---- errors ---------------------------------------------------------------- */

static void open_filled(fixture *f)
{
    open_small(f);
    add(f, 0, (quire_block[]){5, 2, 9}, 3);
    add(f, 1, (quire_block[]){1}, 1);
    static const int64_t POSITIONS[] = {0, 1};
    assert_int_equal(quire_table_compute_slot_mapping(f->table, 1, (int32_t[]){0, 2}, POSITIONS, 2),
                     QUIRE_OK);
    memcpy(f->before, f->memory, ROOM);
}

static void assert_refused(const fixture *f, int got, int wanted)
{
    assert_int_equal(got, wanted);
    assert_memory_equal(f->memory, f->before, ROOM);
}

static void rows_out_of_range_are_refused(void **state)
{
    (void)state;
    fixture f;
    open_filled(&f);
    static const quire_block FIVE[] = {1, 2, 3, 4, 5};
    static const uint32_t BAD[] = {ROWS, ROWS + 1, UINT32_MAX};
    for (size_t i = 0; i < COUNT(BAD); i++) {
        assert_refused(&f, quire_table_append_row(f.table, BAD[i], FIVE, 1), QUIRE_E_RANGE);
        assert_refused(&f, quire_table_add_row(f.table, BAD[i], FIVE, 1), QUIRE_E_RANGE);
        assert_refused(&f, quire_table_move_row(f.table, BAD[i], 0), QUIRE_E_RANGE);
        assert_refused(&f, quire_table_move_row(f.table, 0, BAD[i]), QUIRE_E_RANGE);
        assert_refused(&f, quire_table_swap_row(f.table, BAD[i], 0), QUIRE_E_RANGE);
        assert_refused(&f, quire_table_swap_row(f.table, 0, BAD[i]), QUIRE_E_RANGE);
    }
}

static void blocks_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    fixture f;
    open_filled(&f);
    static const quire_block FIVE[] = {1, 2, 3, 4, 5};
    assert_refused(&f, quire_table_append_row(f.table, 0, FIVE, 2), QUIRE_E_RANGE);
    assert_refused(&f, quire_table_append_row(f.table, 0, FIVE, UINT32_MAX), QUIRE_E_RANGE);
    assert_refused(&f, quire_table_add_row(f.table, 0, FIVE, 5), QUIRE_E_RANGE);
    quire_block too_large[] = {1, (quire_block)INT32_MAX + 1};
    assert_refused(&f, quire_table_add_row(f.table, 0, too_large, 2), QUIRE_E_RANGE);
    too_large[1] = UINT32_MAX;
    assert_refused(&f, quire_table_append_row(f.table, 1, too_large, 2), QUIRE_E_RANGE);
}

static void assert_batch_refused(const fixture *f, uint32_t num_reqs, const int32_t *starts,
                                 const int64_t *positions, uint32_t num_tokens)
{
    int got = quire_table_compute_slot_mapping(f->table, num_reqs, starts, positions, num_tokens);
    assert_refused(f, got, QUIRE_E_RANGE);
}

static void batches_out_of_range_are_refused(void **state)
{
    (void)state;
    fixture f;
    open_filled(&f);
    static const int64_t P[TOKENS + 1] = {0};
    assert_batch_refused(&f, ROWS + 1, (int32_t[]){0, 1, 2, 3, 4}, P, 4); /* rows */
    assert_batch_refused(&f, 1, (int32_t[]){0, 1}, P, TOKENS + 1);        /* tokens */
    assert_batch_refused(&f, 1, (int32_t[]){0, 3}, P, 2);                 /* past num_tokens */
    assert_batch_refused(&f, 2, (int32_t[]){0, 2, 1}, P, 2);              /* decreases */
    assert_batch_refused(&f, 1, (int32_t[]){-1, 1}, P, 2);                /* negative */
    assert_batch_refused(&f, 1, (int32_t[]){0, -1}, P, 2);
}

static void positions_past_the_row_are_refused(void **state)
{
    (void)state;
    fixture f;
    open_filled(&f);
    static const int64_t BAD[] = {12, 13, 1000, INT64_MAX, -1, INT64_MIN};
    for (size_t i = 0; i < COUNT(BAD); i++) {
        int64_t positions[] = {0, BAD[i], 1};
        assert_batch_refused(&f, 1, (int32_t[]){0, 3}, positions, 3);
        assert_batch_refused(&f, 2, (int32_t[]){0, 1, 3}, positions, 3);
    }
    int64_t first_of_row_1[] = {0, 4}; /* fits row 0, but is row 1's */
    assert_batch_refused(&f, 2, (int32_t[]){0, 1, 2}, first_of_row_1, 2);
    int64_t of_row_2[] = {0}; /* which has no block */
    assert_batch_refused(&f, 3, (int32_t[]){0, 0, 0, 1}, of_row_2, 1);
    int64_t last[] = {11};
    assert_int_equal(quire_table_compute_slot_mapping(f.table, 1, (int32_t[]){0, 1}, last, 1),
                     QUIRE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_table_is_zero),
        cmocka_unit_test(append_adds_to_the_end),
        cmocka_unit_test(add_replaces_the_row),
        cmocka_unit_test(move_copies),
        cmocka_unit_test(swap_exchanges),
        cmocka_unit_test(clear_zeroes_entries_and_keeps_lengths),
        cmocka_unit_test(kernel_blocks_split_a_block),
        cmocka_unit_test(slots_of_a_batch),
        cmocka_unit_test(slots_behind_num_tokens_are_padding),
        cmocka_unit_test(block_size_need_not_be_a_power_of_two),
        cmocka_unit_test(large_block_ids_need_64_bits),
        cmocka_unit_test(two_ranks_take_turns),
        cmocka_unit_test(two_ranks_take_runs),
        cmocka_unit_test(runs_must_divide_a_block),
        cmocka_unit_test(both_kinds_of_ranks_multiply),
        cmocka_unit_test(ranks_share_every_position_once),
        cmocka_unit_test(rows_out_of_range_are_refused),
        cmocka_unit_test(blocks_that_do_not_fit_are_refused),
        cmocka_unit_test(batches_out_of_range_are_refused),
        cmocka_unit_test(positions_past_the_row_are_refused),
    };
    return cmocka_run_group_tests_name("block_table", tests, NULL, NULL);
}
