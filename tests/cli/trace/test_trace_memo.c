/* cli/trace/test_trace_memo.c - the table of names against a naive list, with a limit so small
 * that most
 * of what is known is forgotten again. */
#include "trace/memo.h"
#include "trace_kit.h"

enum { LIMIT = 37, KEYS = 90, STEPS = 60000, MOST_SAID = 40 };

static uint64_t seed;

/* Keys in the order in which they were heard of, the newest last. */
typedef struct naive {
    uint64_t keys[LIMIT + 1];
    uint32_t notes[LIMIT + 1];
    uint32_t said[LIMIT + 1];
    uint32_t n;
} naive;

static uint32_t place_of(const naive *list, uint64_t key)
{
    uint32_t i = 0;
    while (i < list->n && list->keys[i] != key)
        i++;
    return i;
}

static void take_out(naive *list, uint32_t place)
{
    list->n--;
    size_t rest = list->n - place;
    memmove(&list->keys[place], &list->keys[place + 1], rest * sizeof list->keys[0]);
    memmove(&list->notes[place], &list->notes[place + 1], rest * sizeof list->notes[0]);
    memmove(&list->said[place], &list->said[place + 1], rest * sizeof list->said[0]);
}

static void put_last(naive *list, uint64_t key, uint32_t note, uint32_t said)
{
    if (list->n == LIMIT)
        take_out(list, 0);
    list->keys[list->n] = key;
    list->notes[list->n] = note;
    list->said[list->n++] = said;
}

static void assert_known(const trace_known *known, const naive *list, uint32_t place)
{
    assert_non_null(known);
    assert_true(known->key == list->keys[place]);
    assert_int_equal(known->turn, list->notes[place]);
    assert_int_equal(known->num_said, list->said[place]);
    for (uint32_t i = 0; i < known->num_said; i++)
        assert_true(known->said[i].content == known->key + i);
}

static void say(trace_memo *memo, trace_known *known, uint32_t n)
{
    trace_segment segments[MOST_SAID];
    for (uint32_t i = 0; i < n; i++)
        segments[i] = (trace_segment){.content = known->key + i, .num_tokens = 1};
    assert_true(trace_memo_say(memo, known, segments, n));
}

static void the_oldest_is_forgotten(void **state)
{
    (void)state;
    trace_memo memo;
    naive list = {.n = 0};
    uint64_t random = seed;
    assert_true(trace_memo_begin(&memo, LIMIT));
    for (uint32_t step = 0; step < STEPS; step++) {
        uint64_t key = unit_random_below(&random, KEYS) * UINT64_C(0x100000001);
        uint32_t place = place_of(&list, key);
        trace_known *known = trace_memo_find(&memo, key);
        assert_int_equal(known != NULL, place < list.n);
        if (known == NULL) {
            known = trace_memo_add(&memo, key);
            assert_non_null(known);
            assert_int_equal(known->num_said, 0);
        } else {
            assert_known(known, &list, place);
            take_out(&list, place);
            if (unit_random_below(&random, 4) == 0) {
                trace_memo_forget(&memo, known);
                continue;
            }
        }
        uint32_t said = unit_random_below(&random, MOST_SAID);
        known->turn = step;
        say(&memo, known, said);
        put_last(&list, key, step, said);
    }
    for (uint32_t i = 0; i < list.n; i++)
        assert_known(trace_memo_find(&memo, list.keys[i]), &list, i);
    trace_memo_end(&memo);
}

/* What was said has a limit of its own: the oldest go, never the one that speaks. */
static void what_was_said_has_a_limit(void **state)
{
    (void)state;
    enum { MANY = TRACE_MEMO_SEGMENTS / 4 };
    trace_segment *segments = calloc(MANY, sizeof *segments);
    assert_non_null(segments);
    trace_memo memo;
    assert_true(trace_memo_begin(&memo, LIMIT));
    for (uint64_t key = 1; key <= 6; key++)
        assert_true(trace_memo_say(&memo, trace_memo_add(&memo, key), segments, MANY));
    assert_null(trace_memo_find(&memo, 1));
    assert_null(trace_memo_find(&memo, 2));
    for (uint64_t key = 3; key <= 6; key++)
        assert_int_equal(trace_memo_find(&memo, key)->num_said, MANY);
    assert_true(memo.num_segments <= TRACE_MEMO_SEGMENTS);
    trace_memo_end(&memo);
    free(segments);
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 11);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_is_forgotten),
        cmocka_unit_test(what_was_said_has_a_limit),
    };
    return cmocka_run_group_tests_name("cli_trace_memo", tests, NULL, NULL);
}
