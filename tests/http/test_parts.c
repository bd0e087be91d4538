/* http/test_parts.c - texts, words, who may ask: the parts that know nothing of a server. */
#include "base/unit.h"
#include "http/access.h"
#include "http/body.h"
#include "http/lines.h"
#include "http/words.h"

#include <quire/error.h>

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>

static quire_bytes bytes_of(const char *text)
{
    return (quire_bytes){text, strlen(text)};
}

/* ---- body ------------------------------------------------------------------ */

static void expect_body(qr_http_body *body, const char *text)
{
    assert_false(body->is_failed);
    assert_int_equal(body->len, strlen(text));
    assert_memory_equal(body->bytes, text, body->len);
    qr_http_body_clear(body);
}

static void numbers_are_written_as_json_takes_them(void **state)
{
    (void)state;
    qr_http_body body = {0};
    qr_http_body_print(&body, "%d", 0);
    qr_http_body_text(&body, " ");
    qr_http_body_print(&body, "%" PRIu64, UINT64_MAX);
    expect_body(&body, "0 18446744073709551615");
    static const struct {
        uint64_t ns;
        const char *us;
    } TIMES[] = {{0, "0"},      {1, "0.001"},     {10, "0.01"},   {100, "0.1"},        {1000, "1"},
                 {1500, "1.5"}, {12050, "12.05"}, {999, "0.999"}, {2000020, "2000.02"}};
    for (size_t i = 0; i < COUNT(TIMES); i++) {
        qr_http_body_us(&body, TIMES[i].ns);
        expect_body(&body, TIMES[i].us);
    }
    qr_http_body_free(&body);
}

static void texts_become_json_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *json;
    } CASES[] = {
        {"", "\"\""},
        {"a b", "\"a b\""},
        {"\"\\\n\x7f", "\"\\\"\\\\\\u000a\\u007f\""},
        {"</script>", "\"\\u003c/script>\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\xff", "\"\\ufffd\""},
        {"\xc3", "\"\\ufffd\""},                                  /* cut short */
        {"\xc0\xaf", "\"\\ufffd\\ufffd\""},                       /* longer than needed */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},            /* half of a pair */
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* beyond Unicode */
        {"\xe2\x82"
         "a",
         "\"\\ufffd\\ufffda\""},
    };
    qr_http_body body = {0};
    for (size_t i = 0; i < COUNT(CASES); i++) {
        qr_http_body_json(&body, bytes_of(CASES[i].text));
        expect_body(&body, CASES[i].json);
    }
    qr_http_body_quote(&body, bytes_of("a\x01\xff"
                                       "b"));
    expect_body(&body, "\"a??b\"");
    qr_http_body_quote(&body, bytes_of("0123456789012345678901234567890123456789x"));
    expect_body(&body, "\"0123456789012345678901234567890123456789...\"");
    qr_http_body_quote(&body, (quire_bytes){NULL, 0});
    expect_body(&body, "\"\"");
    qr_http_body_free(&body);
}

static void a_body_has_a_limit(void **state)
{
    (void)state;
    static const char piece[1024];
    qr_http_body body = {0};
    for (size_t i = 0; i < QR_HTTP_BODY_LIMIT / sizeof piece; i++)
        qr_http_body_add(&body, piece, sizeof piece);
    assert_false(body.is_failed);
    assert_int_equal(body.capacity, QR_HTTP_BODY_LIMIT);
    body.len--;
    qr_http_body_add(&body, piece, 2);
    assert_true(body.is_failed);
    qr_http_body_add(&body, piece, 1); /* it would fit, and yet the text is not whole */
    assert_true(body.is_failed);
    assert_int_equal(body.len, QR_HTTP_BODY_LIMIT - 1);
    qr_http_body_free(&body);
}

/* ---- words ------------------------------------------------------------------ */

static void words_are_cut(void **state)
{
    (void)state;
    quire_bytes rest = bytes_of(" a , b;q=1,,c\t");
    assert_true(qr_http_is_word(qr_http_cut(&rest, ','), "a"));
    assert_true(qr_http_is_word(qr_http_cut(&rest, ','), "b;q=1"));
    assert_true(qr_http_is_word(qr_http_cut(&rest, ','), ""));
    assert_true(qr_http_is_word(qr_http_cut(&rest, ','), "c"));
    assert_int_equal(rest.len, 0);
    assert_int_equal(qr_http_cut(&rest, ',').len, 0);
    rest = (quire_bytes){NULL, 0};
    assert_false(qr_http_is_word(qr_http_cut(&rest, ','), ""));
    assert_true(qr_http_has_prefix(bytes_of("BeArEr x"), "bearer ", &rest));
    assert_true(qr_http_is_word(rest, "x"));
    assert_false(qr_http_has_prefix(bytes_of("bear"), "bearer", &rest));
}

static void numbers_are_read_strictly(void **state)
{
    (void)state;
    static const char *const BAD[] = {"",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "0x1",
                                      "1e3",
                                      "a",
                                      "9007199254740993",
                                      "99999999999999999"};
    uint64_t number;
    for (size_t i = 0; i < COUNT(BAD); i++)
        assert_false(qr_http_read_number(bytes_of(BAD[i]), &number));
    assert_false(qr_http_read_number((quire_bytes){NULL, 0}, &number));
    assert_false(qr_http_read_number((quire_bytes){"1\0", 2}, &number));
    assert_true(qr_http_read_number(bytes_of("007"), &number) && number == 7);
    assert_true(qr_http_read_number(bytes_of("9007199254740992"), &number) && number == (uint64_t)1
                                                                                            << 53);
}

/* ---- access ----------------------------------------------------------------- */

static qr_http_access access_of(const char *address)
{
    qr_http_access access = {0};
    assert_true(qr_http_address_read(&access.address, address, strlen(address)));
    return access;
}

static void addresses_are_sorted(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_loopback;
        bool is_any;
    } CASES[] = {{"127.0.0.1", true, false},
                 {"127.1.2.3", true, false},
                 {"::1", true, false},
                 {"0.0.0.0", false, true},
                 {"::", false, true},
                 {"10.0.0.1", false, false},
                 {"128.0.0.1", false, false},
                 {"fe80::1", false, false},
                 {"::ffff:127.0.0.1", false, false}};
    for (size_t i = 0; i < COUNT(CASES); i++) {
        qr_http_access access = access_of(CASES[i].text);
        assert_int_equal(qr_http_address_is_loopback(&access.address), CASES[i].is_loopback);
        assert_int_equal(qr_http_address_is_any(&access.address), CASES[i].is_any);
    }
    static const char *const BAD[] = {
        "",           "localhost", "127.0.0", "127.0.0.1.",
        "0127.0.0.1", "::g",       "[::1]",   "1:2:3:4:5:6:7:8:9:10:11:12:13:14:15:16:17:18:19"};
    qr_http_address address;
    for (size_t i = 0; i < COUNT(BAD); i++)
        assert_false(qr_http_address_read(&address, BAD[i], strlen(BAD[i])));
    assert_false(qr_http_address_read(&address, "::1\0x", 5));
}

static void check_hosts(const qr_http_access *access, const char *const *hosts, size_t n,
                        bool is_ok)
{
    for (size_t i = 0; i < n; i++)
        if (qr_http_access_has_host(access, bytes_of(hosts[i])) != is_ok)
            fail_msg("Host: %s", hosts[i]);
}

static void hosts_are_known_or_not(void **state)
{
    (void)state;
    static const char *const NAMES[] = {"Quire.Example", "metrics_1"};
    static const char *const GOOD[] = {
        "localhost",           "LOCALHOST:8000",      "127.0.0.1",
        "127.0.0.1:1",         "127.9.9.9",           "[::1]",
        "[::1]:8000",          "[0:0:0:0:0:0:0:1]:1", "quire.example",
        "QUIRE.example:65535", "metrics_1:80",        "10.0.0.7",
        "10.0.0.7:8000",       "localhost:"};
    static const char *const BAD[] = {"",
                                      "evil.example",
                                      "localhost.evil.example",
                                      "evil.localhost",
                                      "localhost:x",
                                      "localhost:1:2",
                                      "localhost:123456",
                                      "::1",
                                      "[::1",
                                      "[::1]x",
                                      "[]",
                                      "[127.0.0.1]",
                                      "10.0.0.8",
                                      ":80",
                                      "localhost ",
                                      " localhost",
                                      "local\thost",
                                      "quire.example.",
                                      "user@localhost",
                                      "http://localhost",
                                      "localhost/"};
    qr_http_access access = access_of("10.0.0.7");
    uint32_t bad;
    assert_int_equal(qr_http_access_set_hosts(&access, NAMES, COUNT(NAMES), &bad), QUIRE_OK);
    check_hosts(&access, GOOD, COUNT(GOOD), true);
    check_hosts(&access, BAD, COUNT(BAD), false);
    assert_false(qr_http_access_has_host(&access, (quire_bytes){NULL, 0}));
    assert_false(qr_http_access_has_host(&access, (quire_bytes){"localhost\0", 10}));
    qr_http_access_free(&access);

    /* who listens to all addresses does not know its own; numbers are nobody's name */
    static const char *const NUMBERS[] = {"10.0.0.8", "192.168.1.1:80", "[fe80::1]:80"};
    access = access_of("0.0.0.0");
    check_hosts(&access, NUMBERS, COUNT(NUMBERS), true);
    check_hosts(&access, BAD, 3, false);
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    char long_name[300];
    memset(long_name, 'a', sizeof long_name);
    long_name[254] = '\0';
    const char *const bad_names[] = {"", "a:80", "http://a", "a b", "a/b", long_name, NULL};
    for (size_t i = 0; i < COUNT(bad_names); i++) {
        const char *names[] = {"good", bad_names[i]};
        qr_http_access access = {0};
        uint32_t bad;
        assert_int_equal(qr_http_access_set_hosts(&access, names, 2, &bad), QUIRE_E_CONFIG);
        assert_int_equal(bad, 1);
        assert_null(access.hosts);
    }
}

static void tokens_are_compared_as_a_whole(void **state)
{
    (void)state;
    qr_http_access access = {0};
    char longest[QR_HTTP_MAX_TOKEN + 2];
    memset(longest, 'x', sizeof longest);
    longest[QR_HTTP_MAX_TOKEN + 1] = '\0';
    assert_false(qr_http_access_set_token(&access, "fifteen-letters"));
    assert_false(qr_http_access_set_token(&access, longest));
    assert_false(qr_http_access_set_token(&access, "sixteen letters!"));
    assert_false(qr_http_access_set_token(&access, "sixteen-letters\xc3\xa9"));
    assert_true(qr_http_access_set_token(&access, "sixteen-letters!"));
    assert_true(qr_http_access_has_token(&access, bytes_of("sixteen-letters!")));
    static const char *const WRONG[] = {"", "sixteen-letters", "sixteen-letters!!",
                                        "Sixteen-letters!", "sixteen-letters?"};
    for (size_t i = 0; i < COUNT(WRONG); i++)
        assert_false(qr_http_access_has_token(&access, bytes_of(WRONG[i])));
    assert_false(qr_http_access_has_token(&access, (quire_bytes){NULL, 0}));
    assert_false(qr_http_access_has_token(&access, (quire_bytes){"sixteen-letters!\0", 17}));
    longest[QR_HTTP_MAX_TOKEN] = '\0';
    assert_true(qr_http_access_set_token(&access, longest));
    assert_true(qr_http_access_has_token(&access, bytes_of(longest)));
    longest[QR_HTTP_MAX_TOKEN] = 'x';
    assert_false(qr_http_access_has_token(&access, bytes_of(longest)));
    qr_http_access_free(&access);
    for (size_t i = 0; i < QR_HTTP_MAX_TOKEN; i++)
        assert_int_equal(access.token[i], 0);
}

/* ---- lines ------------------------------------------------------------------ */

static uint64_t line_address(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return qr_http_lines_address((const struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return qr_http_lines_address((const struct sockaddr *)&v6);
}

static void clients_are_told_apart_by_address(void **state)
{
    (void)state;
    assert_true(line_address("192.0.2.1") == line_address("::ffff:192.0.2.1"));
    assert_true(line_address("192.0.2.1") != line_address("192.0.2.2"));
    assert_true(line_address("2001:db8::1") == line_address("2001:db8::2:3:4:5"));
    assert_true(line_address("2001:db8::1") != line_address("2001:db8:0:1::1"));
    assert_true(line_address("2001:db8::1") != line_address("192.0.2.1"));
    assert_true(qr_http_lines_address(NULL) == 0);
}

/* Sockets that are none: nothing is shut down but in the books. */
static void the_largest_address_gives_way(void **state)
{
    (void)state;
    enum { FEW = 6, NONE = 1 << 20 };
    qr_http_lines lines;
    qr_http_line *of[FEW + 4];
    assert_int_equal(qr_http_lines_init(&lines, FEW), QUIRE_OK);
    for (uint64_t i = 0; i < FEW; i++) /* addresses 1 2 2 2 3 3 */
        of[i] = qr_http_lines_open(&lines, NONE, i == 0 ? 1 : i < 4 ? 2 : 3, i, QR_HTTP_NO_LIMIT);
    qr_http_lines_set(&lines, of[1], QR_HTTP_ANSWERING, 0, QR_HTTP_NO_LIMIT);
    of[6] = qr_http_lines_open(&lines, NONE, 4, 6, QR_HTTP_NO_LIMIT);
    assert_true(of[2]->is_shut); /* the first of the three that still waits */
    qr_http_lines_set(&lines, of[3], QR_HTTP_STREAMING, 7, QR_HTTP_NO_LIMIT);
    of[7] = qr_http_lines_open(&lines, NONE, 5, 7, QR_HTTP_NO_LIMIT);
    assert_true(of[4]->is_shut && !of[1]->is_shut); /* address 2 has one, 3 has two */
    of[8] = qr_http_lines_open(&lines, NONE, 6, 8, QR_HTTP_NO_LIMIT);
    assert_true(of[0]->is_shut); /* all have one: who waits goes before who is answered */
    qr_http_lines_close(&lines, of[0]);
    qr_http_lines_close(&lines, of[8]);
    of[9] = qr_http_lines_open(&lines, NONE, 6, 9, QR_HTTP_NO_LIMIT); /* there is a place */
    assert_int_equal(lines.num_live, FEW);
    assert_true(!of[5]->is_shut && !of[6]->is_shut && !of[7]->is_shut);
    qr_http_lines_set(&lines, of[5], QR_HTTP_WAITING, 9, 10);
    qr_http_lines_tick(&lines, 10);
    assert_true(of[5]->is_shut && lines.num_live == FEW - 1);
    qr_http_lines_free(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written_as_json_takes_them),
        cmocka_unit_test(texts_become_json_strings),
        cmocka_unit_test(a_body_has_a_limit),
        cmocka_unit_test(words_are_cut),
        cmocka_unit_test(numbers_are_read_strictly),
        cmocka_unit_test(addresses_are_sorted),
        cmocka_unit_test(hosts_are_known_or_not),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(tokens_are_compared_as_a_whole),
        cmocka_unit_test(clients_are_told_apart_by_address),
        cmocka_unit_test(the_largest_address_gives_way),
    };
    return cmocka_run_group_tests_name("http_parts", tests, NULL, NULL);
}
