/* cuda/test_tables_cuda.c - block tables on the GPU: what was set, and nothing else, is there. */
#include "kit.h"

#include <stdlib.h>

enum { ROWS = 37, STRIDE = 53, TABLE_SLOTS = 200, DEPTH = 3 };

static cuda_kit kit;
static uint64_t random_state;

typedef struct mirror {
    quire_cuda_tables *tables;
    int32_t entries[ROWS][STRIDE];
    int64_t slots[TABLE_SLOTS];
} mirror;

static void open_tables(mirror *m, uint32_t max_changes, uint32_t max_entries)
{
    quire_cuda_tables_config config = QUIRE_CUDA_TABLES_CONFIG_INIT;
    memset(m, 0, sizeof *m);
    memset(m->slots, 255, sizeof m->slots);
    kit_open(&kit);
    config.cuda = kit.cuda;
    config.num_rows = ROWS;
    config.row_stride = STRIDE;
    config.num_slots = TABLE_SLOTS;
    config.depth = DEPTH;
    config.max_changes = max_changes;
    config.max_entries = max_entries;
    int status = quire_cuda_tables_open(&config, NULL, &m->tables);
    assert_string_equal(quire_refusal(), "");
    assert_int_equal(status, QUIRE_OK);
}

static void close_tables(mirror *m)
{
    quire_cuda_tables_close(m->tables);
    kit_close(&kit);
}

static void check_tables(const mirror *m)
{
    static int32_t entries[ROWS][STRIDE];
    static int64_t slots[TABLE_SLOTS];
    quire_cuda_tables_view view = quire_cuda_tables_get_view(m->tables);
    assert_int_equal(view.num_rows, ROWS);
    assert_int_equal(view.row_stride, STRIDE);
    assert_int_equal(view.num_slots, TABLE_SLOTS);
    kit_read(&kit, entries, view.entries, sizeof entries);
    kit_read(&kit, slots, view.slots, sizeof slots);
    assert_memory_equal(entries, m->entries, sizeof entries);
    assert_memory_equal(slots, m->slots, sizeof slots);
}

/* Changes of some rows, each once, and of the first slots. */
static void change_some(mirror *m)
{
    uint32_t row = unit_random_below(&random_state, 4);
    for (; row < ROWS; row += 1 + unit_random_below(&random_state, 9)) {
        uint32_t first = unit_random_below(&random_state, STRIDE);
        uint32_t n = unit_random_below(&random_state, STRIDE - first + 1);
        for (uint32_t i = 0; i < n; i++)
            m->entries[row][first + i] = (int32_t)unit_random_below(&random_state, 1 << 30);
        assert_int_equal(quire_cuda_tables_set(m->tables, row, first, &m->entries[row][first], n),
                         QUIRE_OK);
    }
    uint32_t n = unit_random_below(&random_state, TABLE_SLOTS + 1);
    uint32_t first = unit_random_below(&random_state, TABLE_SLOTS - n + 1);
    for (uint32_t i = 0; i < n; i++)
        m->slots[first + i] = (int64_t)(unit_random(&random_state) >> 1);
    assert_int_equal(quire_cuda_tables_set_slots(m->tables, first, &m->slots[first], n), QUIRE_OK);
}

static void as_the_mirror(void **state)
{
    (void)state;
    mirror m;
    open_tables(&m, 0, 0);
    check_tables(&m);
    for (int round = 0; round < 100; round++) {
        for (uint32_t i = unit_random_below(&random_state, DEPTH); i > 0; i--) {
            change_some(&m);
            assert_int_equal(quire_cuda_tables_send(m.tables), QUIRE_OK);
        }
        assert_int_equal(quire_cuda_tables_send(m.tables), QUIRE_OK); /* nothing */
        check_tables(&m);
    }
    close_tables(&m);
}

static void no_room(void **state)
{
    (void)state;
    mirror m;
    const int32_t ids[STRIDE] = {7};
    const int64_t slots[TABLE_SLOTS] = {9};
    open_tables(&m, 4, STRIDE + 20);
    assert_int_equal(quire_cuda_tables_set(m.tables, 0, 0, ids, STRIDE), QUIRE_OK);
    assert_int_equal(quire_cuda_tables_set_slots(m.tables, 0, slots, 11), QUIRE_FULL);
    assert_int_equal(quire_cuda_tables_set_slots(m.tables, 0, slots, 9), QUIRE_OK);
    assert_int_equal(quire_cuda_tables_set(m.tables, 1, 0, ids, 3), QUIRE_FULL);
    assert_int_equal(quire_cuda_tables_set(m.tables, 1, 0, ids, 1), QUIRE_OK);
    assert_int_equal(quire_cuda_tables_set(m.tables, 2, 0, ids, 1), QUIRE_OK);
    assert_int_equal(quire_cuda_tables_set(m.tables, 3, 0, ids, 0), QUIRE_OK);
    assert_int_equal(quire_cuda_tables_send(m.tables), QUIRE_OK);
    for (int i = 0; i < 4; i++) /* four changes, and no fifth */
        assert_int_equal(quire_cuda_tables_set(m.tables, 4, (uint32_t)i, ids, 1), QUIRE_OK);
    assert_int_equal(quire_cuda_tables_set(m.tables, 5, 0, ids, 1), QUIRE_FULL);
    close_tables(&m);
}

/* All steps are on their way: the next one says so, and goes when the first has ended. */
static void too_many_steps(void **state)
{
    (void)state;
    mirror m;
    kit_step slow = {.spin_us = 50000};
    open_tables(&m, 0, 0);
    kit_compute(&kit, &slow);
    for (int32_t i = 0; i < DEPTH; i++) {
        m.entries[0][0] = i;
        assert_int_equal(quire_cuda_tables_set(m.tables, 0, 0, &i, 1), QUIRE_OK);
        assert_int_equal(quire_cuda_tables_send(m.tables), QUIRE_OK);
    }
    assert_int_equal(quire_cuda_tables_set(m.tables, 1, 0, m.entries[1], 1), QUIRE_FULL);
    check_tables(&m);
    assert_int_equal(quire_cuda_tables_set(m.tables, 1, 0, m.entries[1], 1), QUIRE_OK);
    close_tables(&m);
}

/* With a step on its way: its memory stays until it has been read. */
static void closing_waits(void **state)
{
    (void)state;
    mirror m;
    const kit_step slow = {.spin_us = 20000};
    const int32_t id = 7;
    open_tables(&m, 0, 0);
    kit_compute(&kit, &slow);
    assert_int_equal(quire_cuda_tables_set(m.tables, 0, 0, &id, 1), QUIRE_OK);
    assert_int_equal(quire_cuda_tables_send(m.tables), QUIRE_OK);
    close_tables(&m);
}

static void wrong_tables(void **state)
{
    (void)state;
    mirror m;
    const int32_t id = 1;
    const int64_t slot = 1;
    open_tables(&m, 0, 0);
    assert_int_equal(quire_cuda_tables_set(m.tables, ROWS, 0, &id, 1), QUIRE_E_RANGE);
    assert_int_equal(quire_cuda_tables_set(m.tables, 0, STRIDE, &id, 1), QUIRE_E_RANGE);
    assert_int_equal(quire_cuda_tables_set(m.tables, 0, UINT32_MAX, &id, 2), QUIRE_E_RANGE);
    assert_int_equal(quire_cuda_tables_set(m.tables, 0, 0, NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cuda_tables_set(NULL, 0, 0, &id, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cuda_tables_set_slots(m.tables, TABLE_SLOTS, &slot, 1), QUIRE_E_RANGE);
    assert_int_equal(quire_cuda_tables_set_slots(m.tables, 0, NULL, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cuda_tables_send(NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cuda_tables_get_view(NULL).num_rows, 0);
    quire_cuda_tables_close(NULL);
    for (int wrong = 0; wrong < 6; wrong++) {
        quire_cuda_tables *none = NULL;
        quire_cuda_tables_config config = QUIRE_CUDA_TABLES_CONFIG_INIT;
        config.cuda = wrong == 0 ? NULL : kit.cuda;
        config.num_rows = wrong == 1 ? 0 : wrong == 2 ? UINT32_MAX : 1;
        config.row_stride = wrong == 3 ? 0 : 2;
        config.depth = wrong == 4 ? 65 : 0;
        config.size = wrong == 5 ? 3 : config.size;
        assert_int_equal(quire_cuda_tables_open(&config, NULL, &none), QUIRE_E_CONFIG);
        assert_true(strlen(quire_refusal()) > 10);
    }
    close_tables(&m);
}

int main(int argc, char **argv)
{
    random_state = unit_seed(argc, argv, 1);
    kit_init(&kit, argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_mirror),  cmocka_unit_test(no_room),
        cmocka_unit_test(too_many_steps), cmocka_unit_test(closing_waits),
        cmocka_unit_test(wrong_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
