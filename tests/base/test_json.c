/* base/test_json.c - texts as JSON strings: escapes, UTF-8, and bytes that are none. */
#include "base/json.h"
#include "base/unit.h"

static void expect(const char *text, size_t len, const char *expected)
{
    char out[256];
    size_t n = 0;
    for (size_t i = 0, used = 0; i < len; i += used)
        n += qr_json_char(text + i, len - i, out + n, &used);
    out[n] = 0;
    assert_string_equal(out, expected);
}

static void text_stays_and_the_rest_is_escaped(void **state)
{
    (void)state;
    expect("plain text", 10, "plain text");
    expect("a\"b\\c", 5, "a\\\"b\\\\c");
    expect("\0\n\x1f\x7f", 4, "\\u0000\\u000a\\u001f\\u007f");
    expect("</script>", 9, "\\u003c/script>");
    expect("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
}

static void what_is_no_utf8_becomes_a_mark(void **state)
{
    (void)state;
    expect("\xff", 1, "\\ufffd");
    expect("\xc3", 1, "\\ufffd");                                    /* cut short */
    expect("\xc0\xaf", 2, "\\ufffd\\ufffd");                         /* longer than needed */
    expect("\xed\xa0\x80", 3, "\\ufffd\\ufffd\\ufffd");              /* half of a pair */
    expect("\xf4\x90\x80\x80z", 5, "\\ufffd\\ufffd\\ufffd\\ufffdz"); /* beyond Unicode */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_stays_and_the_rest_is_escaped),
        cmocka_unit_test(what_is_no_utf8_becomes_a_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
