/* Prefixes that many prompts share: what is counted, what is hot, what is forgotten. */
#include "base/unit.h"

#include "fleet/prefixes.h"

/* The names of a prompt's blocks: the first `shared` blocks are those of `family`. */
static void note(prefixes *p, uint64_t request, uint32_t num_blocks, uint64_t family,
                 uint32_t shared)
{
    uint64_t blocks[128];
    for (uint32_t i = 0; i < num_blocks; i++)
        blocks[i] = i < shared ? family << 32 | i : (1000 + request) << 32 | i;
    assert_true(prefixes_note(p, request, blocks, num_blocks));
}

/* Only lengths that are powers of two are counted. */
static void test_lengths(void **state)
{
    (void)state;
    const uint32_t blocks[] = {0, 1, 2, 3, 4, 7, 8, 9, 128};
    const uint64_t counted[] = {0, 1, 2, 2, 3, 3, 4, 4, 8};
    for (size_t i = 0; i < COUNT(blocks); i++) {
        prefixes p = {0};
        note(&p, 1, blocks[i], 1, 0);
        assert_int_equal(p.num_used, counted[i]);
        prefixes_free(&p);
    }
}

static void test_nothing_is_shared(void **state)
{
    (void)state;
    prefixes p = {0};
    prefix hot[PREFIXES_HOT];
    assert_int_equal(prefixes_hot(&p, hot), 0);
    note(&p, 0, 16, 0, 0);
    note(&p, 1, 16, 0, 0);
    assert_int_equal(prefixes_hot(&p, hot), 0);
    prefixes_free(&p);
}

/* 6 prompts share 10 blocks, of which 8 are seen; the parts of 1, 2 and 4 are not listed. */
static void test_longest_part(void **state)
{
    (void)state;
    prefixes p = {0};
    prefix hot[PREFIXES_HOT];
    for (uint64_t i = 0; i < 6; i++)
        note(&p, 40 + i, 12, 7, 10);
    assert_int_equal(prefixes_hot(&p, hot), 1);
    assert_int_equal(hot[0].blocks, 8);
    assert_int_equal(hot[0].seen, 6);
    assert_int_equal(hot[0].request, 40);
    prefixes_free(&p);
}

/* A part that twice as many prompts have is listed too; one that fewer than twice as many have is
 * not. */
static void check_part(uint32_t num_short, uint32_t num_hot)
{
    prefixes p = {0};
    prefix hot[PREFIXES_HOT];
    for (uint64_t i = 0; i < 10; i++)
        note(&p, i, 64, 3, 64);
    for (uint64_t i = 0; i < num_short; i++)
        note(&p, 10 + i, 5, 3, 4);
    assert_int_equal(prefixes_hot(&p, hot), num_hot);
    assert_int_equal(hot[0].blocks, 64);
    if (num_hot == 2) {
        assert_int_equal(hot[1].blocks, 4);
        assert_int_equal(hot[1].seen, 10 + num_short);
    }
    prefixes_free(&p);
}

static void test_parts(void **state)
{
    (void)state;
    check_part(9, 1);
    check_part(10, 2);
    check_part(11, 2);
}

/* The order is by spared blocks; at most PREFIXES_HOT are listed. */
static void test_order(void **state)
{
    (void)state;
    prefixes p = {0};
    prefix hot[PREFIXES_HOT];
    uint64_t request = 0;
    for (uint64_t family = 1; family <= PREFIXES_HOT + 5; family++)
        for (uint64_t i = 0; i <= family; i++)
            note(&p, request++, 8, family, 8);
    assert_int_equal(prefixes_hot(&p, hot), PREFIXES_HOT);
    for (uint32_t i = 0; i < PREFIXES_HOT; i++)
        assert_int_equal(hot[i].seen, PREFIXES_HOT + 6 - i);
    prefixes_free(&p);
}

/* Beyond the limit, prefixes that were seen once are forgotten and the shared one stays. */
static void test_forgetting(void **state)
{
    (void)state;
    prefixes p = {0};
    prefix hot[PREFIXES_HOT];
    for (uint64_t i = 0; i < PREFIXES_MOST; i++)
        note(&p, i, 1, 9, i % 1024 == 0 ? 1 : 0);
    assert_true(p.num_slots <= PREFIXES_MOST);
    assert_int_equal(prefixes_hot(&p, hot), 1);
    assert_int_equal(hot[0].seen, PREFIXES_MOST / 1024);
    prefixes_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),      cmocka_unit_test(test_nothing_is_shared),
        cmocka_unit_test(test_longest_part), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_order),        cmocka_unit_test(test_forgetting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
