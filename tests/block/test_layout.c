/* block/test_layout.c - addresses of (layer, block): both orders against a loop that counts.
 *
 *      layer outermost   L0: b0 b1 b2 | L1: b0 b1 b2        block outermost   b0: L0 L1 | b1: L0 L1
 */
#include <quire/table.h>

#include "base/unit.h"

enum { LAYERS = 3, BLOCKS = 5, BYTES = 24, BASE = 1000 };

static void layer_outer_addresses(void **state)
{
    (void)state;
    quire_layout layout;
    assert_int_equal(quire_layout_layer_outer(BASE, LAYERS, BLOCKS, BYTES, &layout), QUIRE_OK);
    uint64_t wanted = BASE;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t block = 0; block < BLOCKS; block++, wanted += BYTES) {
            uint64_t address = 0;
            assert_int_equal(quire_layout_address(&layout, layer, block, &address), QUIRE_OK);
            assert_int_equal(address, wanted);
            assert_int_equal(quire_layout_address_of(&layout, layer, block), wanted);
        }
}

static void block_outer_addresses(void **state)
{
    (void)state;
    quire_layout layout;
    assert_int_equal(quire_layout_block_outer(BASE, LAYERS, BLOCKS, BYTES, &layout), QUIRE_OK);
    uint64_t wanted = BASE;
    for (uint32_t block = 0; block < BLOCKS; block++)
        for (uint32_t layer = 0; layer < LAYERS; layer++, wanted += BYTES) {
            uint64_t address = 0;
            assert_int_equal(quire_layout_address(&layout, layer, block, &address), QUIRE_OK);
            assert_int_equal(address, wanted);
            assert_int_equal(quire_layout_address_of(&layout, layer, block), wanted);
        }
}

static void fields_say_what_was_asked(void **state)
{
    (void)state;
    quire_layout a;
    quire_layout b;
    assert_int_equal(quire_layout_layer_outer(BASE, LAYERS, BLOCKS, BYTES, &a), QUIRE_OK);
    assert_int_equal(quire_layout_block_outer(BASE, LAYERS, BLOCKS, BYTES, &b), QUIRE_OK);
    assert_int_equal(a.layer_stride, BLOCKS * BYTES);
    assert_int_equal(a.block_stride, BYTES);
    assert_int_equal(b.layer_stride, BYTES);
    assert_int_equal(b.block_stride, LAYERS * BYTES);
    assert_true(a.base == BASE && a.num_layers == LAYERS && a.num_blocks == BLOCKS &&
                a.block_bytes == BYTES);
}

static void address_checks_layer_and_block(void **state)
{
    (void)state;
    quire_layout layout;
    uint64_t address = 77;
    assert_int_equal(quire_layout_layer_outer(BASE, LAYERS, BLOCKS, BYTES, &layout), QUIRE_OK);
    assert_int_equal(quire_layout_address(&layout, LAYERS, 0, &address), QUIRE_E_RANGE);
    assert_int_equal(quire_layout_address(&layout, 0, BLOCKS, &address), QUIRE_E_UNKNOWN_BLOCK);
    assert_int_equal(address, 77);
}

/* Real sizes: 80 layers, two million blocks of 64 KiB are more than 32 bits can count. */
static void sizes_beyond_32_bits(void **state)
{
    (void)state;
    quire_layout layout;
    assert_int_equal(quire_layout_layer_outer(0, 80, 2000000, 65536, &layout), QUIRE_OK);
    assert_int_equal(quire_layout_address_of(&layout, 79, 1999999),
                     UINT64_C(79) * 2000000 * 65536 + UINT64_C(1999999) * 65536);
    assert_int_equal(quire_layout_block_outer(0, 80, 2000000, 65536, &layout), QUIRE_OK);
    assert_int_equal(quire_layout_address_of(&layout, 79, 1999999),
                     UINT64_C(1999999) * 80 * 65536 + UINT64_C(79) * 65536);
}

static void assert_overflow(uint64_t base, uint32_t layers, uint32_t blocks, uint64_t bytes)
{
    quire_layout layout;
    memset(&layout, 0x77, sizeof layout);
    quire_layout before = layout;
    assert_int_equal(quire_layout_layer_outer(base, layers, blocks, bytes, &layout),
                     QUIRE_E_OVERFLOW);
    assert_int_equal(quire_layout_block_outer(base, layers, blocks, bytes, &layout),
                     QUIRE_E_OVERFLOW);
    assert_memory_equal(&layout, &before, sizeof layout);
}

static void overflow_is_an_error(void **state)
{
    (void)state;
    assert_overflow(0, UINT32_MAX, UINT32_MAX, 2);
    assert_overflow(0, 2, 1, UINT64_MAX / 2 + 1);
    assert_overflow(UINT64_MAX - 10, 2, 3, 2);
    assert_overflow(UINT64_MAX, 1, 1, 2);
    quire_layout layout;
    assert_int_equal(quire_layout_layer_outer(UINT64_MAX - 12, 2, 3, 2, &layout), QUIRE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_outer_addresses),
        cmocka_unit_test(block_outer_addresses),
        cmocka_unit_test(fields_say_what_was_asked),
        cmocka_unit_test(address_checks_layer_and_block),
        cmocka_unit_test(sizes_beyond_32_bits),
        cmocka_unit_test(overflow_is_an_error),
    };
    return cmocka_run_group_tests_name("block_layout", tests, NULL, NULL);
}
