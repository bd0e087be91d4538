/* Parts of `quire events` that the program shows only in part: texts of strangers, and numbers. */
#include "base/unit.h"

#include "live/events_print.h"
#include "live/events_tally.h"

#include <stdlib.h>
#include <string.h>

static void check_json(const char *bytes, size_t len, const char *wanted)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    events_print_json_text(out, (quire_bytes){bytes, len});
    fclose(out);
    assert_string_equal(text, wanted);
    free(text);
}

static void texts_become_json(void **state)
{
    (void)state;
    check_json(NULL, 0, "null");
    check_json("", 0, "\"\"");
    check_json("GPU", 3, "\"GPU\"");
    check_json("a\"b\\c\n\x7f\0", 8, "\"a\\\"b\\\\c\\u000a\\u007f\\u0000\"");
    check_json("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9,
               "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
    /* Cut off, longer than need be, half of a pair, beyond the last character, no character. */
    check_json("\xe2\x82", 2, "\"\\u00e2\\u0082\"");
    check_json("\xc0\xaf", 2, "\"\\u00c0\\u00af\"");
    check_json("\xe0\x80\xaf", 3, "\"\\u00e0\\u0080\\u00af\"");
    check_json("\xed\xa0\x80", 3, "\"\\u00ed\\u00a0\\u0080\"");
    check_json("\xf4\x90\x80\x80", 4, "\"\\u00f4\\u0090\\u0080\\u0080\"");
    check_json("\xff\xfe", 2, "\"\\u00ff\\u00fe\"");
}

/* "p7 r8 l9 g12 s0": part of an index, replayed, live, gap of 5, restart, each with its number. */
static events_tally tally_of(const char *words)
{
    events_tally t = {0};
    static const struct {
        char letter;
        quire_delivery_kind kind;
    } kinds[] = {{'l', QUIRE_DELIVERY_LIVE},
                 {'r', QUIRE_DELIVERY_REPLAY},
                 {'p', QUIRE_DELIVERY_SNAPSHOT},
                 {'g', QUIRE_DELIVERY_GAP},
                 {'s', QUIRE_DELIVERY_RESTART}};
    for (const char *at = words; *at != '\0'; at += strcspn(at, " "), at += *at == ' ') {
        quire_delivery d = {.size = sizeof(quire_delivery), .number = strtoull(at + 1, NULL, 10)};
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (kinds[i].letter == *at)
                d.kind = kinds[i].kind;
        d.num_missed = d.kind == QUIRE_DELIVERY_GAP ? 5 : 0;
        events_tally_add(&t, &d);
    }
    return t;
}

static void numbers_are_checked(void **state)
{
    (void)state;
    events_tally t = tally_of("p7 p7 r8 r9 l10 p20 l21");
    assert_true(events_tally_is_sound(&t));
    assert_int_equal(events_tally_num_batches(&t), 4);
    assert_int_equal(t.first_number, 7);
    assert_int_equal(t.last_number, 21);

    t = tally_of("l3 l3");
    assert_int_equal(t.num_repeated, 1);
    assert_false(events_tally_is_sound(&t));

    t = tally_of("l3 l5 l4");
    assert_int_equal(t.num_disordered, 2);
    assert_false(events_tally_is_sound(&t));

    t = tally_of("p9 l9");
    assert_int_equal(t.num_repeated, 1);

    t = tally_of("l3 g9 l9 s0 l0");
    assert_int_equal(t.num_gaps, 1);
    assert_int_equal(t.num_missed, 5);
    assert_int_equal(t.num_restarts, 1);
    assert_int_equal(t.num_disordered, 0);
    assert_false(events_tally_is_sound(&t));

    t = tally_of("l3 p9 p9 l10");
    assert_int_equal(t.num_covered, 6);

    t = (events_tally){0}; /* silence is no proof */
    assert_false(events_tally_is_sound(&t));
}

static void faults_are_named(void **state)
{
    (void)state;
    char text[FAULTS_BYTES];
    events_tally t = tally_of("l3 l4");
    events_tally_faults(&t, text);
    assert_string_equal(text, "");
    t = tally_of("l3 g9 l9 g20 l20 l20 s0 l0");
    events_tally_faults(&t, text);
    assert_string_equal(text, "2 gaps, 1 restart, 1 repetition");
    t = (events_tally){0};
    events_tally_faults(&t, text);
    assert_string_equal(text, "no events received");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_become_json),
                                       cmocka_unit_test(numbers_are_checked),
                                       cmocka_unit_test(faults_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
