/* api/test_version_api.c - the version, in its three forms. */
#include "base/unit.h"

#include <quire.h>

static void number_is_made_of_the_parts(void **state)
{
    (void)state;
    assert_int_equal(QUIRE_VERSION_NUMBER,
                     QUIRE_VERSION_MAJOR * 10000 + QUIRE_VERSION_MINOR * 100 + QUIRE_VERSION_PATCH);
}

static void library_and_header_agree(void **state)
{
    (void)state;
    assert_int_equal(quire_version(), QUIRE_VERSION_NUMBER);
    assert_string_equal(quire_version_string(), QUIRE_VERSION_STRING);
}

static void string_is_made_of_the_parts(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", QUIRE_VERSION_MAJOR, QUIRE_VERSION_MINOR,
             QUIRE_VERSION_PATCH);
    assert_string_equal(QUIRE_VERSION_STRING, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(number_is_made_of_the_parts),
        cmocka_unit_test(library_and_header_agree),
        cmocka_unit_test(string_is_made_of_the_parts),
    };
    return cmocka_run_group_tests_name("api_version", tests, NULL, NULL);
}
