/* cli/workload/test_workload.c - the parts of `quire trace`: the cipher, the map of numbers, roots,
 * and the tree of prefixes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace/content.h"
#include "workload/cipher.h"
#include "workload/numbers.h"
#include "workload/prefix_tree.h"
#include "workload/roots.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- the cipher ---------------------------------------------------------------------- */

/* What eight rounds of SHA-256 in another language give. */
static void the_cipher_is_what_its_header_says(void **state)
{
    (void)state;
    cipher c;
    cipher_begin_from_seed(&c, 7);
    assert_true(cipher_of(&c, 1, 0) == UINT64_C(0x6197ce3b45af7d1b));
    assert_true(cipher_of(&c, 1, 1) == UINT64_C(0xcf92ddd6c269e52e));
    assert_true(cipher_of(&c, 1, UINT64_MAX) == UINT64_C(0x07ced10952f6e1d8));
    assert_true(cipher_of(&c, 2, 1) == UINT64_C(0x4c28a71e4fd4172e));
    cipher_begin_from_seed(&c, 8);
    assert_true(cipher_of(&c, 1, 1) == UINT64_C(0x092b67d195417727));
}

static void numbers_that_differ_stay_different(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    cipher one;
    cipher two;
    number_map seen = {0};
    uint64_t num_equal = 0;
    assert_true(cipher_begin(&one) && cipher_begin(&two));
    for (uint64_t n = 0; n < MANY; n++) {
        uint64_t *number = number_map_at(&seen, cipher_of(&one, 1, n << 20));
        assert_non_null(number);
        assert_int_equal(*number, 0);
        *number = n + 1;
        num_equal += cipher_of(&one, 1, n) == cipher_of(&two, 1, n);
    }
    assert_int_equal(seen.count, MANY);
    assert_int_equal(num_equal, 0); /* two secrets */
    number_map_free(&seen);
}

/* ---- numbers --------------------------------------------------------------------------- */

static void a_map_is_like_a_list(void **state)
{
    (void)state;
    enum { KEYS = 3000, STEPS = 20000 };
    static uint64_t naive[KEYS];
    number_map map = {0};
    uint64_t random = 5;
    uint64_t count = 0;
    assert_int_equal(number_map_get(&map, 3), 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < STEPS; i++) {
            uint64_t key = content_random(&random) % KEYS;
            uint64_t *number = number_map_at(&map, key << 32);
            assert_non_null(number);
            assert_int_equal(*number, naive[key]);
            count += naive[key] == 0;
            *number = naive[key] = 1 + (content_random(&random) >> 1);
            assert_int_equal(map.count, count);
        }
        for (uint64_t key = 0; key < KEYS; key++)
            assert_int_equal(number_map_get(&map, key << 32), naive[key]);
        number_map_clear(&map);
        memset(naive, 0, sizeof naive);
        count = 0;
        assert_int_equal(number_map_get(&map, 0), 0);
    }
    number_map_free(&map);
}

/* ---- roots ------------------------------------------------------------------------------ */

static void requests_go_back_to_arrivals(void **state)
{
    (void)state;
    const uint64_t waits[] = {0, 3};
    static const struct {
        trace_request request;
        uint64_t root;
    } cases[] = {
        {{.number = 0, .session = 5, .time_s = 1}, 0},
        {{.number = 1, .session = 5, .turn = 1, .is_closed_loop = true}, 0},
        {{.number = 2, .time_s = 2}, 1},
        {{.number = 3, .session = 6, .is_closed_loop = true, .time_s = 3}, 2},
        {{.number = 4, .session = 7, .is_closed_loop = true, .num_after = 1}, 0}, /* a helper */
        {{.number = 5, .session = 7, .turn = 1, .is_closed_loop = true}, 0},      /* and its turn */
        {{.number = 6, .session = 5, .turn = 2, .time_s = 9}, 3},                 /* open loop */
        {{.number = 7, .session = 99, .turn = 4, .is_closed_loop = true}, 4},     /* unknown */
    };
    roots r = {0};
    for (size_t i = 0; i < COUNT(cases); i++) {
        trace_request request = cases[i].request;
        bool is_new;
        request.after = waits;
        const root *it = roots_of(&r, &request, true, &is_new);
        assert_non_null(it);
        assert_int_equal(it->index, cases[i].root);
        assert_int_equal(roots_of_number(&r, request.number)->index, cases[i].root);
    }
    assert_int_equal(r.count, 5);
    assert_null(roots_of_number(&r, 1000));
    roots_free(&r);
}

/* ---- prefixes ----------------------------------------------------------------------------- */

static void add_prompt(prefix_tree *tree, const trace_segment *segments, uint32_t n)
{
    trace_request request = {.prompt = segments, .num_segments = n};
    prefix_tree_add(tree, &request);
}

static void the_heaviest_prefixes_are_listed(void **state)
{
    (void)state;
    prefix_tree tree = {0};
    shared_prefix list[4];
    assert_int_equal(prefix_tree_largest(&tree, list, 4), 0);
    for (uint64_t i = 0; i < 9; i++) { /* 9 prompts with [1: 10][2: 20], of which 2 have [3: 5] */
        trace_segment segments[] = {{1, 10}, {2, 20}, {i < 2 ? 3 : 100 + i, 5}};
        add_prompt(&tree, segments, 3);
    }
    for (uint64_t i = 0; i < 3; i++) { /* like the longer one in number: only one of both */
        trace_segment segments[] = {{50, 1000}, {51, 1}, {i < 2 ? 52 : 60, 7}};
        add_prompt(&tree, segments, 3);
    }
    assert_int_equal(prefix_tree_largest(&tree, list, 4), 3);
    assert_int_equal(list[0].num_tokens, 1001);
    assert_int_equal(list[0].num_prompts, 3);
    assert_int_equal(list[1].num_tokens, 30);
    assert_int_equal(list[1].num_prompts, 9);
    assert_int_equal(list[2].num_tokens, 35);
    assert_int_equal(list[2].num_prompts, 2);
    prefix_tree_free(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cipher_is_what_its_header_says),
        cmocka_unit_test(numbers_that_differ_stay_different),
        cmocka_unit_test(a_map_is_like_a_list),
        cmocka_unit_test(requests_go_back_to_arrivals),
        cmocka_unit_test(the_heaviest_prefixes_are_listed),
    };
    return cmocka_run_group_tests_name("cli_workload", tests, NULL, NULL);
}
