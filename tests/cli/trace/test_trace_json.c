/* cli/trace/test_trace_json.c - the JSON scanner: values, lists, objects, windows; what is no
 * JSON. */
#include "base/unit.h"

#include <math.h>

#include "trace/json.h"

static scanner scan_of(const char *text)
{
    scanner scan;
    scan_of_text(&scan, text, strlen(text));
    return scan;
}

static void numbers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_integer;
        bool is_negative;
        uint64_t magnitude;
        double real;
    } cases[] = {
        {"0", true, false, 0, 0},
        {"-0", true, true, 0, 0},
        {" 42 ", true, false, 42, 42},
        {"-3", true, true, 3, -3},
        {"9999999999999999999", true, false, UINT64_C(9999999999999999999), 1e19},
        {"18446744073709551615", true, false, UINT64_MAX, 0x1p64},
        {"18446744073709551616", false, false, 0, 0x1p64},
        {"99999999999999999999", false, false, 0, 1e20},
        {"61.114", false, false, 61, 61.114},
        {"1e3", false, false, 1, 1000},
        {"-2.5E-1", false, true, 2, -0.25},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        scanner scan = scan_of(cases[i].text);
        scan_value value;
        assert_int_equal(scan_peek(&scan), JSON_NUMBER);
        assert_true(scan_number(&scan, &value));
        assert_int_equal(value.is_integer, cases[i].is_integer);
        assert_int_equal(value.is_negative, cases[i].is_negative);
        if (value.is_integer)
            assert_true(value.magnitude == cases[i].magnitude);
        assert_true(value.real == cases[i].real);
        assert_true(scan_at_end(&scan));
    }
}

static void strings_are_measured_in_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *head;
        uint64_t num_bytes;
    } cases[] = {
        {"\"\"", "", 0},
        {"\"a\\n\\\"\\\\\\/\\u0041\"", "a\n\"\\/A", 6},
        {"\"\\u00e9\\u20ac\"", "\xc3\xa9\xe2\x82\xac", 5},
        {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", 4},
        {"\"\\ud83dx\"", "\xef\xbf\xbdx", 4},
        {"\"\\ud83d\\u0041\"",
         "\xef\xbf\xbd"
         "A",
         4},
        {"\"\\udc00\"", "\xef\xbf\xbd", 3},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        scanner scan = scan_of(cases[i].text);
        scan_text text;
        assert_true(scan_string(&scan, &text));
        assert_string_equal(text.head, cases[i].head);
        assert_int_equal(text.num_bytes, cases[i].num_bytes);
        assert_true(scan_at_end(&scan));
    }
}

static void long_strings_keep_their_head(void **state)
{
    (void)state;
    char text[300];
    memset(text, 'x', sizeof text);
    text[0] = '"';
    text[298] = '"';
    text[299] = 0;
    scanner scan = scan_of(text);
    scan_text result;
    assert_true(scan_string(&scan, &result));
    assert_int_equal(result.num_bytes, 297);
    assert_int_equal(strlen(result.head), JSON_NAME_BYTES - 1);
    uint64_t hash = result.hash;
    text[200] = 'y';
    scan = scan_of(text);
    assert_true(scan_string(&scan, &result));
    assert_true(result.hash != hash);
}

static void objects_and_lists_are_walked(void **state)
{
    (void)state;
    scanner scan = scan_of("{\"a\": [1, [2], {\"b\": null}], \"c\" : true , \"d\":{}}");
    scan_text name;
    scan_value value;
    bool is_true = false;
    assert_true(scan_open(&scan, '{'));
    assert_int_equal(scan_field(&scan, &name), 1);
    assert_true(scan_is(&name, "a"));
    assert_false(scan_is(&name, "ab"));
    assert_false(scan_is(&name, ""));
    assert_true(scan_open(&scan, '['));
    assert_int_equal(scan_element(&scan), 1);
    assert_true(scan_number(&scan, &value));
    assert_int_equal(scan_element(&scan), 1);
    assert_int_equal(scan_peek(&scan), JSON_ARRAY);
    assert_true(scan_skip(&scan));
    assert_int_equal(scan_element(&scan), 1);
    assert_int_equal(scan_peek(&scan), JSON_OBJECT);
    assert_true(scan_skip(&scan));
    assert_int_equal(scan_element(&scan), 0);
    assert_int_equal(scan_field(&scan, &name), 1);
    assert_true(scan_bool(&scan, &is_true));
    assert_true(is_true);
    assert_int_equal(scan_field(&scan, &name), 1);
    assert_true(scan_skip(&scan));
    assert_int_equal(scan_field(&scan, &name), 0);
    assert_true(scan_at_end(&scan));
    assert_null(scan.error);
}

static void what_is_no_json_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "[1 2]",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "nul",
        "truth",
        "fals",
        "\"abc",
        "\"a\\x\"",
        "\"\\u12g4\"",
        "\"a\nb\"",
        "\"\\",
        "]",
        "}",
        "[1}",
        "{\"a\":1]",
        "NaN",
        "Infinity",
        "'a'",
        "\"\\ud83d\\u12\"",
        "[\"a\" \"b\"]",
        "{\"a\" 1}",
        "{1:2}",
        "\x01",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        scanner scan = scan_of(texts[i]);
        if (scan_skip(&scan) && scan_at_end(&scan))
            fail_msg("%s was taken", texts[i]);
    }
}

static void numbers_have_a_limit(void **state)
{
    (void)state;
    static const char text[] = "1.00000000000000000000000000000000000000000000000000000000000001 ";
    scan_value value;
    scanner scan = scan_of(text);
    assert_false(scan_number(&scan, &value));
    assert_string_equal(scan.error, "a number has too many digits");
    assert_false(scan_number(&scan, &value)); /* an error stays */
    assert_int_equal(scan_peek(&scan), JSON_NOTHING);
    assert_false(scan_open(&scan, '['));
}

static void nesting_has_a_limit(void **state)
{
    (void)state;
    char text[2 * JSON_MAX_DEPTH + 3];
    for (int depth = JSON_MAX_DEPTH; depth <= JSON_MAX_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = 0;
        scanner scan = scan_of(text);
        assert_int_equal(scan_skip(&scan), depth == JSON_MAX_DEPTH);
    }
}

/* The same document from memory and through an input, whose window is far smaller than it. */
static void windows_do_not_show(void **state)
{
    (void)state;
    enum { ELEMENTS = 60000, BYTES = 64 };
    char *text = malloc(ELEMENTS * BYTES);
    assert_non_null(text);
    char *at = text;
    *at++ = '[';
    for (int i = 0; i < ELEMENTS; i++)
        at += snprintf(at, BYTES, "%s%d, \"t%d\\u00e9\",\n -%d.5e2, true", i ? "," : "", i, i, i);
    *at++ = ']';
    *at = 0;
    input *in = input_of_bytes(text, (size_t)(at - text));
    scanner scan;
    scan_of_input(&scan, in, UINT64_MAX);
    assert_true(scan_open(&scan, '['));
    for (int i = 0; i < ELEMENTS; i++) {
        scan_value value;
        scan_text string;
        char expected[32];
        bool is_true;
        assert_int_equal(scan_element(&scan), 1);
        assert_true(scan_number(&scan, &value));
        assert_int_equal(value.magnitude, i);
        assert_int_equal(scan_element(&scan), 1);
        assert_true(scan_string(&scan, &string));
        snprintf(expected, sizeof expected, "t%d\xc3\xa9", i);
        assert_string_equal(string.head, expected);
        assert_int_equal(scan_element(&scan), 1);
        assert_true(scan_number(&scan, &value));
        assert_true(value.real == -100.0 * i - 50);
        assert_int_equal(scan_element(&scan), 1);
        assert_true(scan_bool(&scan, &is_true));
        if (i % 1000 == 0)
            assert_int_equal(scan_line_number(&scan), i + 2);
    }
    assert_int_equal(scan_element(&scan), 0);
    assert_true(scan_at_end(&scan));
    input_close(in);
    free(text);
}

/* A text of so many bytes ends there, even if what follows would go on well. */
static void a_text_ends_where_it_was_said_to(void **state)
{
    (void)state;
    static const char text[] = "[12]34 \"abc\"true";
    for (uint64_t limit = 0; limit <= 8; limit++) {
        input *in = input_of_bytes(text, sizeof text - 1);
        scanner scan;
        scan_of_input(&scan, in, limit);
        assert_int_equal(scan_skip(&scan), limit >= 4);
        if (limit == 4)
            assert_true(scan_at_end(&scan));
        if (limit == 5) /* 3, not 34 */
            assert_false(scan_skip(&scan));
        if (limit >= 6)
            assert_true(scan_skip(&scan));
        scan_leave(&scan);
        assert_true(scan.limit <= limit);
        input_close(in);
    }
}

static void errors_of_the_input_are_errors_of_the_text(void **state)
{
    (void)state;
    static const unsigned char packed[] = {0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58}; /* cut off */
    input *in = input_of_bytes(packed, sizeof packed);
    scanner scan;
    scan_of_input(&scan, in, UINT64_MAX);
    assert_false(scan_skip(&scan));
    assert_string_equal(scan.error, input_error(in));
    input_close(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(strings_are_measured_in_utf8),
        cmocka_unit_test(long_strings_keep_their_head),
        cmocka_unit_test(objects_and_lists_are_walked),
        cmocka_unit_test(what_is_no_json_is_refused),
        cmocka_unit_test(numbers_have_a_limit),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(windows_do_not_show),
        cmocka_unit_test(a_text_ends_where_it_was_said_to),
        cmocka_unit_test(errors_of_the_input_are_errors_of_the_text),
    };
    return cmocka_run_group_tests_name("cli_trace_json", tests, NULL, NULL);
}
