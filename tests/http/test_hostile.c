/* http/test_hostile.c - the server over real sockets: what a stranger can do to it, which is
 * little. After each attempt it still answers. */
#include "http/server_kit.h"

#include <sys/socket.h>
#include <unistd.h>

static void start(server_kit *kit, uint32_t timeout_s)
{
    server_open(kit);
    kit->config.timeout_s = timeout_s;
    server_start(kit);
}

static int open_and_say(server_kit *kit, const char *text)
{
    int socket = client_open(kit->port);
    assert_true(socket >= 0);
    client_say(socket, text);
    return socket;
}

/* ---- time ------------------------------------------------------------------- */

/* One byte after the other keeps a connection moving, and yet it is closed in time. */
static void slow_senders_are_cut_off(void **state)
{
    (void)state;
    enum { SLOW = 8 };
    static const char HEADER[] =
        "X-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    int sockets[SLOW];
    bool is_open[SLOW];
    server_kit kit;
    start(&kit, 1);
    for (int i = 0; i < SLOW; i++) { /* the last ones are in their second request */
        sockets[i] = open_and_say(&kit, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n");
        is_open[i] = true;
        if (i >= SLOW / 2) {
            assert_true(client_say(sockets[i], "\r\n"));
            assert_true(client_read(sockets[i], &kit.reply));
            assert_true(client_say(sockets[i], "GET /healthz HTTP/1.1\r\n"));
        }
    }
    uint64_t began = client_now_ms();
    int num_open = SLOW;
    for (size_t at = 0; num_open > 0; at++) {
        assert_true(at < sizeof HEADER && client_now_ms() < began + 5500); /* six is an answer's */
        for (int i = 0; i < SLOW; i++) {
            char byte;
            if (!is_open[i])
                continue;
            is_open[i] = client_send(sockets[i], &HEADER[at], 1) &&
                         client_read_some(sockets[i], &byte, 1, 0) < 0;
            num_open -= !is_open[i];
        }
        usleep(200000);
    }
    assert_true(client_now_ms() - began >= 800);
    for (int i = 0; i < SLOW; i++)
        client_close(sockets[i]);
    assert_true(server_is_alive(&kit));
    server_close(&kit);
}

static void silent_ones_are_cut_off(void **state)
{
    (void)state;
    static const char *const SAID[] = {"", "G", "GET / HTTP/1.1\r\nHost: loc"};
    int sockets[COUNT(SAID)];
    server_kit kit;
    start(&kit, 1);
    for (size_t i = 0; i < COUNT(SAID); i++)
        sockets[i] = open_and_say(&kit, SAID[i]);
    for (size_t i = 0; i < COUNT(SAID); i++) {
        assert_true(client_is_closed(sockets[i], CLIENT_PATIENCE_MS));
        client_close(sockets[i]);
    }
    assert_true(server_is_alive(&kit));
    server_close(&kit);
}

/* Whether the other side has closed, without reading: what is said to it then is refused. */
static bool is_cut_off(int socket)
{
    uint64_t until = client_now_ms() + CLIENT_PATIENCE_MS;
    while (client_now_ms() < until) {
        usleep(50000);
        if (!client_say(socket, "x"))
            return true;
    }
    return false;
}

/* A stream whose client never reads is closed when the buffers are full, and costs no more. */
static void a_stream_that_is_never_read_is_cut_off(void **state)
{
    (void)state;
    server_kit kit;
    start(&kit, 1);
    int small = 4096;
    int socket = client_open(kit.port);
    setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_true(client_say(socket, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    engine_start(&kit.engine, UINT64_MAX, 200);
    bool is_closed = is_cut_off(socket);
    engine_stop(&kit.engine);
    assert_true(is_closed);
    client_close(socket);
    assert_true(server_is_alive(&kit));
    server_close(&kit);
}

/* Answers that are asked for and not read wait in buffers of a fixed size, and not for ever. */
static void answers_that_nobody_reads_are_cut_off(void **state)
{
    (void)state;
    enum { REQUESTS = 200 };
    server_kit kit;
    start(&kit, 1);
    int socket = client_open(kit.port);
    for (int i = 0; i < REQUESTS; i++)
        assert_true(client_say(socket, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_true(is_cut_off(socket));
    client_close(socket);
    assert_true(server_is_alive(&kit));
    server_close(&kit);
}

/* ---- size ------------------------------------------------------------------- */

static char *filled(const char *before, size_t num, const char *after)
{
    size_t len = strlen(before);
    char *text = malloc(len + num + strlen(after) + 1);
    assert_non_null(text);
    memcpy(text, before, len);
    memset(text + len, 'a', num);
    memcpy(text + len + num, after, strlen(after) + 1);
    return text;
}

/* The status, or 0 when it was closed without one. */
static int status_of(server_kit *kit, const char *text)
{
    int socket = open_and_say(kit, text);
    kit->reply.status = 0;
    client_read(socket, &kit->reply);
    client_close(socket);
    return kit->reply.status;
}

static int status_of_filled(server_kit *kit, const char *before, size_t num, const char *after)
{
    char *text = filled(before, num, after);
    int status = status_of(kit, text);
    free(text);
    return status;
}

static bool is_one_of(int status, int a, int b, int c)
{
    return status == a || status == b || status == c;
}

static void large_requests_are_refused(void **state)
{
    (void)state;
    static const char HOST[] = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    server_kit kit;
    start(&kit, 2);
    assert_int_equal(status_of_filled(&kit, "GET /", 7000, HOST), 404);
    assert_int_equal(status_of_filled(&kit, "GET /", 9000, HOST), 431);
    assert_true(is_one_of(status_of_filled(&kit, "GET /", 100000, HOST), 414, 431, 0));
    assert_true(is_one_of(status_of_filled(&kit, "", 100000, HOST), 400, 414, 0));
    assert_int_equal(
        status_of_filled(&kit, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", 7000, "\r\n\r\n"),
        200);
    assert_int_equal(
        status_of_filled(&kit, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", 9000, "\r\n\r\n"),
        431);
    assert_true(is_one_of(
        status_of_filled(&kit, "GET / HTTP/1.1\r\nHost: localhost\r\nX: ", 100000, "\r\n\r\n"), 431,
        413, 0));
    assert_true(server_is_alive(&kit));
    server_close(&kit);
}

static void bodies_are_refused(void **state)
{
    (void)state;
    static const char *const HEADS[] = {
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\na",
        "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000000\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\naaaaa\r\n",
        "PUT / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    };
    server_kit kit;
    start(&kit, 2);
    for (size_t i = 0; i < COUNT(HEADS); i++) {
        assert_int_equal(status_of_filled(&kit, HEADS[i], 200000, ""), 413);
        assert_int_equal(status_of(&kit, HEADS[i]), 413);
        assert_string_equal(client_header(&kit.reply, "Connection"), "close");
    }
    assert_int_equal(
        status_of(&kit, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
        200);
    assert_true(server_is_alive(&kit));
    server_close(&kit);
}

/* What follows a body that nobody read is no request. */
static void no_request_hides_in_a_body(void **state)
{
    (void)state;
    server_kit kit;
    start(&kit, 1);
    int socket =
        open_and_say(&kit, "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 45\r\n\r\n"
                           "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
                           "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(client_read(socket, &kit.reply));
    assert_int_equal(kit.reply.status, 413);
    assert_int_equal(kit.reply.num_bytes, kit.reply.body + kit.reply.body_bytes);
    assert_true(client_is_closed(socket, CLIENT_PATIENCE_MS));
    client_close(socket);
    server_close(&kit);
}

/* ---- nonsense --------------------------------------------------------------- */

static void garbage_is_no_request(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {
        "\r\n\r\n\r\n",
        "\x16\x03\x01\x02\x01\x01\xfc\x03\x03",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1 x\r\nHost localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        "GET /%zz?%=%&&&=&token=%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET / HTTP/1.1\r\n : \r\nHost: localhost\r\n\r\n",
    };
    int sockets[COUNT(TEXTS)];
    server_kit kit;
    start(&kit, 1);
    uint64_t random = 5;
    for (size_t i = 0; i < COUNT(TEXTS); i++) {
        sockets[i] = open_and_say(&kit, TEXTS[i]);
        shutdown(sockets[i], SHUT_WR);
    }
    for (size_t i = 0; i < COUNT(TEXTS); i++) {
        assert_true(client_is_closed(sockets[i], CLIENT_PATIENCE_MS));
        client_close(sockets[i]);
    }
    for (int i = 0; i < 200; i++) {
        char bytes[512];
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (char)unit_random(&random);
        int socket = client_open(kit.port);
        client_send(socket, bytes, 1 + unit_random_below(&random, sizeof bytes));
        client_close(socket);
    }
    assert_true(server_is_alive(&kit));
    server_close(&kit);
}

static void requests_may_come_in_one_piece(void **state)
{
    (void)state;
    enum { REQUESTS = 60 };
    static const char *const PATHS[] = {"/healthz", "/nothing", "/snapshot?limit=1"};
    static const int STATUS[] = {200, 404, 200};
    char text[REQUESTS * 80] = "";
    size_t len = 0;
    server_kit kit;
    start(&kit, 5);
    for (int i = 0; i < REQUESTS; i++)
        len += (size_t)snprintf(text + len, sizeof text - len,
                                "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", PATHS[i % 3],
                                i == REQUESTS - 1 ? "Connection: close\r\n" : "");
    int socket = open_and_say(&kit, text);
    client_reply *reply = &kit.reply;
    reply->num_bytes = 0;
    long n;
    while ((n = client_read_some(socket, reply->text + reply->num_bytes,
                                 CLIENT_MAX_REPLY - reply->num_bytes, CLIENT_PATIENCE_MS)) > 0)
        reply->num_bytes += (size_t)n;
    reply->text[reply->num_bytes] = '\0';
    int num = 0;
    for (char *at = strstr(reply->text, "HTTP/1.1 "); at != NULL; at = strstr(at + 1, "HTTP/1.1 "))
        assert_int_equal(atoi(at + 9), STATUS[num++ % 3]);
    assert_int_equal(num, REQUESTS);
    client_close(socket);
    server_close(&kit);
}

static void hang_up(int socket)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    client_close(socket);
}

static void clients_may_hang_up_at_any_time(void **state)
{
    (void)state;
    static const char *const SAID[] = {
        "",
        "GET /metr",
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /snapshot?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /blocks HTTP/1.1\r\nHost: localhost\r\n\r\n",
    };
    server_kit kit;
    start(&kit, 2);
    uint64_t random = 9;
    char bytes[2000];
    engine_start(&kit.engine, UINT64_MAX, 500);
    for (int i = 0; i < 600; i++) {
        int socket = open_and_say(&kit, SAID[unit_random_below(&random, COUNT(SAID))]);
        uint32_t how = unit_random_below(&random, 4);
        if (how == 1)
            client_read_some(socket, bytes, sizeof bytes, 1);
        else if (how == 2)
            usleep(unit_random_below(&random, 2000));
        else if (how == 3)
            shutdown(socket, SHUT_WR);
        if (unit_random_below(&random, 2) == 0)
            hang_up(socket);
        else
            client_close(socket);
    }
    engine_stop(&kit.engine);
    assert_true(server_is_alive(&kit));
    server_close(&kit);
}

/* ---- memory ----------------------------------------------------------------- */

static void ask_often(server_kit *kit, int num)
{
    static const char *const LINES[] = {"GET /metrics", "GET /snapshot?limit=50",
                                        "GET /nothing", "GET /healthz",
                                        "GET /blocks",  "HEAD /"};
    int socket = -1;
    for (int i = 0; i < num; i++) {
        char request[128];
        if (socket < 0)
            socket = client_open(kit->port);
        snprintf(request, sizeof request, "%s HTTP/1.1\r\nHost: localhost\r\n\r\n",
                 LINES[i % (int)(COUNT(LINES) - 1)]);
        assert_true(client_say(socket, request));
        assert_true(client_read(socket, &kit->reply));
        if (i % 10 == 9) {
            client_close(socket);
            socket = -1;
        }
    }
    if (socket >= 0)
        client_close(socket);
}

static void memory_stays_what_it_was(void **state)
{
    (void)state;
    server_kit kit;
    start(&kit, 5);
    engine_run(&kit.engine, 5000);
    ask_often(&kit, 500);
    uint64_t before = server_rss_kib();
    ask_often(&kit, SERVER_MEMORY_TELLS ? 10000 : 500);
    uint64_t after = server_rss_kib();
    printf("resident: %llu KiB, then %llu KiB\n", (unsigned long long)before,
           (unsigned long long)after);
    if (SERVER_MEMORY_TELLS)
        assert_true(after <= before + 512);
    server_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_senders_are_cut_off),
        cmocka_unit_test(silent_ones_are_cut_off),
        cmocka_unit_test(a_stream_that_is_never_read_is_cut_off),
        cmocka_unit_test(answers_that_nobody_reads_are_cut_off),
        cmocka_unit_test(large_requests_are_refused),
        cmocka_unit_test(bodies_are_refused),
        cmocka_unit_test(no_request_hides_in_a_body),
        cmocka_unit_test(garbage_is_no_request),
        cmocka_unit_test(requests_may_come_in_one_piece),
        cmocka_unit_test(clients_may_hang_up_at_any_time),
        cmocka_unit_test(memory_stays_what_it_was),
    };
    return cmocka_run_group_tests_name("http_hostile", tests, NULL, NULL);
}
