/* api/test_table_api.c - the table's and the layout's calls, with what they must refuse. */
#include "base/unit.h"

#include <quire/table.h>

enum { ROOM = 4096 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];

static quire_table_config small_config(void)
{
    quire_table_config config = QUIRE_TABLE_CONFIG_INIT;
    config.max_num_reqs = 2;
    config.max_num_blocks_per_req = 4;
    config.max_num_batched_tokens = 8;
    return config;
}

static void making_refuses_null(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    quire_table *table = NULL;
    assert_int_equal(quire_table_bytes(NULL), 0);
    assert_int_equal(quire_table_create(NULL, NULL, &table), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_table_create(&config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_table_create(&config, &(quire_allocator){.memory = NULL, .bytes = ROOM}, &table),
        QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_table_create(NULL, &(quire_allocator){.memory = memory, .bytes = ROOM}, &table),
        QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_table_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, NULL),
        QUIRE_E_ARGUMENT);
    assert_null(table);
    quire_table_destroy(NULL);
}

static void making_refuses_bad_memory_unwritten(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    quire_table *table = NULL;
    size_t bytes = quire_table_bytes(&config);
    memset(memory, 0x77, ROOM);
    assert_int_equal(quire_table_create(
                         &config, &(quire_allocator){.memory = memory, .bytes = bytes - 1}, &table),
                     QUIRE_E_TOO_SMALL);
    for (size_t off = 1; off < QUIRE_ALIGNMENT; off++)
        assert_int_equal(
            quire_table_create(&config, &(quire_allocator){.memory = memory + off, .bytes = bytes},
                               &table),
            QUIRE_E_ALIGNMENT);
    for (size_t i = 0; i < ROOM; i++)
        assert_int_equal(memory[i], 0x77);
    assert_int_equal(
        quire_table_create(&config, &(quire_allocator){.memory = memory, .bytes = bytes}, &table),
        QUIRE_OK);
    for (size_t i = bytes; i < ROOM; i++)
        assert_int_equal(memory[i], 0x77);
}

static void zeros_mean_defaults(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    quire_table *table = NULL;
    assert_int_equal(quire_table_create(&config, NULL, &table), QUIRE_OK);
    assert_int_equal(quire_table_get_view(table).block_size, 16);
    assert_int_equal(quire_table_get_view(table).row_stride, 4);
    quire_table_destroy(table);
}

static void assert_config_refused(quire_table_config config)
{
    quire_table *table = NULL;
    assert_int_equal(quire_table_bytes(&config), 0);
    assert_int_equal(quire_table_create(&config, NULL, &table), QUIRE_E_CONFIG);
    assert_int_equal(
        quire_table_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &table),
        QUIRE_E_CONFIG);
    assert_null(table);
}

static void making_refuses_bad_sizes(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    config.max_num_reqs = 0;
    assert_config_refused(config);
    config = small_config();
    config.max_num_blocks_per_req = 0;
    assert_config_refused(config);
    config = small_config();
    config.max_num_batched_tokens = 0;
    assert_config_refused(config);
    config = small_config();
    config.kernel_block_size = 5;
    assert_config_refused(config);
    config.kernel_block_size = 32;
    assert_config_refused(config);
    config = small_config();
    config.max_num_blocks_per_req = UINT32_MAX;
    assert_config_refused(config);
    config = small_config();
    config.size = 3;
    assert_config_refused(config);
}

static void making_refuses_bad_ranks(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    config.pcp_rank = 1;
    assert_config_refused(config);
    config = small_config();
    config.dcp_rank = 2;
    config.dcp_world_size = 2;
    assert_config_refused(config);
    config = small_config();
    config.pcp_world_size = UINT32_MAX;
    config.dcp_world_size = UINT32_MAX;
    assert_config_refused(config);
    config = small_config();
    config.cp_kv_cache_interleave_size = UINT32_MAX;
    assert_config_refused(config);
}

/* 2^32 rows of 2^31 entries: more bytes than can be counted. */
static void making_refuses_what_no_memory_can_hold(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    config.max_num_reqs = UINT32_MAX;
    config.max_num_blocks_per_req = INT32_MAX;
    quire_table *table = NULL;
    assert_int_equal(quire_table_bytes(&config), 0);
    assert_int_equal(quire_table_create(&config, NULL, &table), QUIRE_E_OVERFLOW);
    assert_int_equal(
        quire_table_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &table),
        QUIRE_E_OVERFLOW);
    assert_null(table);
}

/* What every call must answer to a table that is none. */
static void assert_no_table(quire_table *table)
{
    static const quire_block BLOCKS[] = {1};
    static const int32_t STARTS[] = {0, 1};
    static const int64_t POSITIONS[] = {0};
    assert_int_equal(quire_table_append_row(table, 0, BLOCKS, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_table_add_row(table, 0, BLOCKS, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_table_move_row(table, 0, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_table_swap_row(table, 0, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_table_compute_slot_mapping(table, 1, STARTS, POSITIONS, 1),
                     QUIRE_E_ARGUMENT);
    quire_table_view view = quire_table_get_view(table);
    assert_true(view.entries == NULL && view.slot_mapping == NULL && view.row_lengths == NULL &&
                view.num_rows == 0 && view.num_slots == 0);
}

static void no_table_is_an_argument_error(void **state)
{
    (void)state;
    assert_no_table(NULL);
    quire_table_config config = small_config();
    quire_table *table = NULL;
    assert_int_equal(
        quire_table_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &table),
        QUIRE_OK);
    quire_table_destroy(table);
    assert_no_table(table); /* its memory is still ours */
    quire_table_destroy(table);
}

static void null_arrays_are_argument_errors(void **state)
{
    (void)state;
    quire_table_config config = small_config();
    quire_table *table = NULL;
    static const int32_t STARTS[] = {0, 1};
    static const int64_t POSITIONS[] = {0};
    assert_int_equal(
        quire_table_create(&config, &(quire_allocator){.memory = memory, .bytes = ROOM}, &table),
        QUIRE_OK);
    assert_int_equal(quire_table_append_row(table, 0, NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_table_add_row(table, 0, NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_table_compute_slot_mapping(table, 1, NULL, POSITIONS, 1),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_table_compute_slot_mapping(table, 1, STARTS, NULL, 1), QUIRE_E_ARGUMENT);
    quire_table_destroy(table);
}

static void layouts_refuse_null(void **state)
{
    (void)state;
    quire_layout layout;
    uint64_t address;
    assert_int_equal(quire_layout_layer_outer(0, 1, 1, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_layout_block_outer(0, 1, 1, 1, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_layout_layer_outer(0, 1, 1, 1, &layout), QUIRE_OK);
    assert_int_equal(quire_layout_address(NULL, 0, 0, &address), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_layout_address(&layout, 0, 0, NULL), QUIRE_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(making_refuses_null),
        cmocka_unit_test(making_refuses_bad_memory_unwritten),
        cmocka_unit_test(zeros_mean_defaults),
        cmocka_unit_test(making_refuses_bad_sizes),
        cmocka_unit_test(making_refuses_bad_ranks),
        cmocka_unit_test(making_refuses_what_no_memory_can_hold),
        cmocka_unit_test(no_table_is_an_argument_error),
        cmocka_unit_test(null_arrays_are_argument_errors),
        cmocka_unit_test(layouts_refuse_null),
    };
    return cmocka_run_group_tests_name("api_table", tests, NULL, NULL);
}
