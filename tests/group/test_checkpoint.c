/* group/test_checkpoint.c - where states are kept that later requests can resume at. */
#include "base/unit.h"
#include "group/checkpoint.h"

static void ends_leave_something_to_compute(void **state)
{
    (void)state;
    static const struct {
        uint32_t num_tokens;
        uint32_t size;
        uint32_t plain;
        uint32_t eagle;
    } cases[] = {{0, 4, 0, 0}, {1, 4, 0, 0},  {4, 4, 0, 0},        {5, 4, 4, 0},   {8, 4, 4, 4},
                 {9, 4, 8, 4}, {12, 4, 8, 8}, {150, 16, 144, 128}, {16, 1, 15, 15}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(qr_checkpoint_end(cases[i].num_tokens, cases[i].size, false),
                         cases[i].plain);
        assert_int_equal(qr_checkpoint_end(cases[i].num_tokens, cases[i].size, true),
                         cases[i].eagle);
    }
}

/* Hashes of 16 tokens, blocks of 64, a prompt of 150: the state behind 144. */
static void chunks_that_can_write_a_state(void **state)
{
    (void)state;
    const qr_checkpoint_chunk whole = {
        .end = 150, .hash_size = 16, .block_size = 64, .alignment = 1};
    assert_true(qr_checkpoint_is_possible(&whole, 144));
    assert_false(qr_checkpoint_is_possible(&whole, 0));   /* before the chunk's first state */
    assert_false(qr_checkpoint_is_possible(&whole, 8));   /* less than a hash from the start */
    assert_false(qr_checkpoint_is_possible(&whole, 150)); /* the chunk's own last state */

    qr_checkpoint_chunk c = whole;
    c.alignment = 0; /* the layers write none */
    assert_false(qr_checkpoint_is_possible(&c, 144));
    c.alignment = 48;
    assert_true(qr_checkpoint_is_possible(&c, 144));
    c.start = 16; /* 128 tokens from there */
    assert_false(qr_checkpoint_is_possible(&c, 144));
    c = whole;
    c.start = 8; /* inside a hash */
    assert_false(qr_checkpoint_is_possible(&c, 144));
    c = whole;
    c.start = 64; /* its first state is in block 0, and block 1 is free */
    assert_true(qr_checkpoint_is_possible(&c, 144));
    c.start = 80; /* block 1 has the first state */
    assert_false(qr_checkpoint_is_possible(&c, 144));
    c = whole;
    c.end = 64; /* one block alone */
    assert_false(qr_checkpoint_is_possible(&c, 48));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ends_leave_something_to_compute),
                                       cmocka_unit_test(chunks_that_can_write_a_state)};
    return cmocka_run_group_tests_name("group_checkpoint", tests, NULL, NULL);
}
