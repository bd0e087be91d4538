/* base/test_error.c - the statuses. Their values are part of the ABI, so they stand here once more
 * as literals: a renumbering must fail a test. */
#include "base/unit.h"

#include <quire/error.h>

static const struct {
    int value;
    const char *name;
} STATUSES[] = {
    {0, "QUIRE_OK"},
    {1, "QUIRE_NO_SPACE"},
    {2, "QUIRE_RETRY"},
    {3, "QUIRE_FULL"},
    {4, "QUIRE_MISS"},
    {5, "QUIRE_BUSY"},
    {6, "QUIRE_LOST"},
    {-1, "QUIRE_E_NOMEM"},
    {-2, "QUIRE_E_ARGUMENT"},
    {-3, "QUIRE_E_CONFIG"},
    {-4, "QUIRE_E_RANGE"},
    {-5, "QUIRE_E_UNKNOWN_BLOCK"},
    {-6, "QUIRE_E_NULL_BLOCK"},
    {-7, "QUIRE_E_DOUBLE_FREE"},
    {-8, "QUIRE_E_ALREADY_CACHED"},
    {-9, "QUIRE_E_DISABLED"},
    {-10, "QUIRE_E_TOO_SMALL"},
    {-11, "QUIRE_E_ALIGNMENT"},
    {-12, "QUIRE_E_RANDOM"},
    {-13, "QUIRE_E_OVERFLOW"},
    {-14, "QUIRE_E_CORRUPT"},
    {-15, "QUIRE_E_UNKNOWN_NAME"},
    {-16, "QUIRE_E_MIXED"},
    {-17, "QUIRE_E_MEMORY_LIMIT"},
    {-18, "QUIRE_E_UNKNOWN_SEQ"},
    {-19, "QUIRE_E_PREDICTION"},
    {-20, "QUIRE_E_STALE_HIT"},
    {-21, "QUIRE_E_UNKNOWN_REQ"},
    {-22, "QUIRE_E_DUPLICATE"},
    {-23, "QUIRE_E_TOO_LONG"},
    {-24, "QUIRE_E_SYSTEM"},
    {-25, "QUIRE_E_UNSAFE"},
    {-26, "QUIRE_E_IDENTITY"},
};

static void values_are_pinned(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(STATUSES); i++)
        assert_string_equal(quire_status_name(STATUSES[i].value), STATUSES[i].name);
}

static void constants_have_their_values(void **state)
{
    (void)state;
#define QUIRE_X(value, name, sentence)                                                             \
    assert_string_equal(quire_status_name(QUIRE_##name), "QUIRE_" #name);
    QUIRE_OUTCOME_MAP(QUIRE_X)
    QUIRE_ERROR_MAP(QUIRE_X)
#undef QUIRE_X
}

static void no_status_is_missing_here(void **state)
{
    (void)state;
    size_t known = 0;
    for (int value = -1000; value <= 1000; value++)
        known += strcmp(quire_status_name(value), "QUIRE_UNKNOWN") != 0;
    assert_int_equal(known, COUNT(STATUSES));
}

static void every_status_has_its_own_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(STATUSES); i++) {
        const char *sentence = quire_strerror(STATUSES[i].value);
        assert_non_null(sentence);
        assert_true(strlen(sentence) > 3);
        assert_string_not_equal(sentence, "unknown status");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(sentence, quire_strerror(STATUSES[k].value));
    }
}

static void unknown_values_have_an_answer(void **state)
{
    (void)state;
    static const int VALUES[] = {7, -27, 1000, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < COUNT(VALUES); i++) {
        assert_string_equal(quire_strerror(VALUES[i]), "unknown status");
        assert_string_equal(quire_status_name(VALUES[i]), "QUIRE_UNKNOWN");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_pinned),
        cmocka_unit_test(constants_have_their_values),
        cmocka_unit_test(no_status_is_missing_here),
        cmocka_unit_test(every_status_has_its_own_sentence),
        cmocka_unit_test(unknown_values_have_an_answer),
    };
    return cmocka_run_group_tests_name("base_error", tests, NULL, NULL);
}
