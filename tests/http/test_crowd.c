/* http/test_crowd.c - a thousand clients at one time, while the scheduler works.
 *
 *      64 have a place
 *      each further one       displaces one that has not sent its request yet
 *
 * All come to an end, memory stays within its limits, and the scheduler decides what it decides
 * without clients. Slow clients keep neither other addresses nor their own from being answered.
 */
#include "http/server_kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 1000, PLACES = 64, ENOUGH_OF_A_STREAM = 1000, MAX_GROWTH_KIB = 48 << 10 };

typedef struct visitor {
    int socket;
    bool is_sent;
    bool is_stream;
    size_t num_read;
    int status;
} visitor;

static const char *const PATHS[] = {
    "/metrics", "/snapshot?limit=1000", "/healthz", "/", "/events", "/blocks", "/nothing"};

static visitor visit(uint32_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    visitor v = {.socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)};
    assert_true(v.socket >= 0);
    int status = connect(v.socket, (const struct sockaddr *)&to, sizeof to);
    assert_true(status == 0 || errno == EINPROGRESS);
    return v;
}

static void leave(visitor *v)
{
    close(v->socket);
    v->socket = -1;
}

static void speak(visitor *v, const char *path)
{
    char request[128];
    int len = snprintf(request, sizeof request,
                       "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    v->is_stream = strcmp(path, "/events") == 0;
    v->is_sent = true;
    if (send(v->socket, request, (size_t)len, MSG_NOSIGNAL) != len)
        leave(v);
}

static void listen_to(visitor *v)
{
    char bytes[16384];
    ssize_t n = recv(v->socket, bytes, sizeof bytes - 1, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0 && v->num_read == 0) {
        bytes[n] = '\0';
        v->status = atoi(bytes + strcspn(bytes, " "));
    }
    v->num_read += n > 0 ? (size_t)n : 0;
    bool has_enough = v->is_stream && v->num_read > ENOUGH_OF_A_STREAM;
    if (n <= 0 || has_enough)
        leave(v);
}

/* Until all are gone; how many have an answer. */
static uint32_t serve_all(visitor *visitors, uint32_t num, uint64_t *peak_kib)
{
    static struct pollfd ready[CLIENTS];
    uint64_t until = client_now_ms() + 4 * CLIENT_PATIENCE_MS;
    uint32_t num_here = num;
    uint32_t num_rounds = 0;
    while (num_here > 0 && client_now_ms() < until) {
        for (uint32_t i = 0; i < num; i++)
            ready[i] = (struct pollfd){.fd = visitors[i].socket,
                                       .events = visitors[i].is_sent ? POLLIN : POLLOUT};
        if (poll(ready, num, 1000) < 0)
            break;
        num_here = 0;
        for (uint32_t i = 0; i < num; i++) {
            if (visitors[i].socket >= 0 && ready[i].revents != 0) {
                if (visitors[i].is_sent)
                    listen_to(&visitors[i]);
                else
                    speak(&visitors[i], PATHS[i % COUNT(PATHS)]);
            }
            num_here += visitors[i].socket >= 0;
        }
        uint64_t rss = num_rounds++ % 16 == 0 ? server_rss_kib() : 0;
        *peak_kib = rss > *peak_kib ? rss : *peak_kib;
    }
    assert_int_equal(num_here, 0);
    uint32_t num_answered = 0;
    for (uint32_t i = 0; i < num; i++)
        num_answered += visitors[i].status != 0;
    return num_answered;
}

static void allow_files(rlim_t wanted)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < wanted) {
        printf("only %llu files may be open\n", (unsigned long long)limit.rlim_cur);
        skip();
    }
}

/* The digest of as many steps when nobody looks. */
static uint64_t digest_alone(uint64_t num_steps)
{
    engine alone;
    engine_open(&alone, 11, false, 0);
    engine_run(&alone, num_steps);
    uint64_t digest = alone.digest;
    engine_close(&alone);
    return digest;
}

/* Requests that come with their connections are all answered; where connections come first, those
 * that have a place. */
static void visit_by_a_thousand(bool speaks_at_once)
{
    static visitor visitors[CLIENTS];
    server_kit kit;
    allow_files(CLIENTS + PLACES + 100);
    server_open(&kit);
    kit.config.max_connections = PLACES;
    server_start(&kit);
    engine_run(&kit.engine, 2000);
    assert_true(server_is_alive(&kit));
    uint64_t before = server_rss_kib();
    uint64_t peak = before;
    engine_start(&kit.engine, UINT64_MAX, 300);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        visitors[i] = visit(kit.port);
        if (speaks_at_once)
            speak(&visitors[i], PATHS[i % COUNT(PATHS)]);
    }
    uint32_t answered = serve_all(visitors, CLIENTS, &peak);
    engine_stop(&kit.engine);
    printf("%u of %d answered; resident %llu KiB, at most %llu KiB; %llu steps meanwhile\n",
           answered, CLIENTS, (unsigned long long)before, (unsigned long long)peak,
           (unsigned long long)kit.engine.num_steps - 2000);
    assert_true(answered >= (speaks_at_once ? CLIENTS : PLACES));
    for (uint32_t i = 0; i < CLIENTS; i++) {
        int expected = strcmp(PATHS[i % COUNT(PATHS)], "/nothing") == 0 ? 404 : 200;
        bool is_full = visitors[i].is_stream && visitors[i].status == 503;
        assert_true(visitors[i].status == 0 || visitors[i].status == expected || is_full);
    }
    if (SERVER_MEMORY_TELLS)
        assert_true(peak - before < MAX_GROWTH_KIB);
    assert_true(server_is_alive(&kit));
    assert_true(kit.engine.digest == digest_alone(kit.engine.num_steps));
    server_close(&kit);
}

static void a_thousand_requests_change_nothing(void **state)
{
    (void)state;
    visit_by_a_thousand(true);
}

static void a_thousand_connections_change_nothing(void **state)
{
    (void)state;
    visit_by_a_thousand(false);
}

/* ---- slow clients ----------------------------------------------------------- */

enum {
    CROWD = 400,
    ROUNDS = SERVER_MEMORY_TELLS ? 20 : 4,
    PROBE_MS = SERVER_MEMORY_TELLS ? 1000 : 10000
};

/* One of the crowd: begins with first; then sends more whenever it has a turn, and comes again when
 * it was closed. Reads nothing. */
static void keep_busy(uint32_t port, int *socket, const char *first, const char *more)
{
    bool is_open = *socket >= 0 && !client_is_closed(*socket, 1) && client_say(*socket, more);
    if (is_open)
        return;
    if (*socket >= 0)
        client_close(*socket);
    *socket = client_open(port);
    if (*socket >= 0)
        (void)client_say(*socket, first);
}

static void expect_answer(server_kit *kit, const char *source, const char *path)
{
    char request[128];
    uint64_t begin = client_now_ms();
    int socket = client_open_from(kit->port, source);
    assert_true(socket >= 0);
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    assert_true(client_say(socket, request));
    bool is_answered = client_read(socket, &kit->reply);
    uint64_t ms = client_now_ms() - begin;
    if (!is_answered || kit->reply.status != 200 || ms > PROBE_MS)
        fail_msg("%s from %s: status %d after %llu ms", path, source, kit->reply.status,
                 (unsigned long long)ms);
    client_close(socket);
}

/* A crowd from 127.0.0.1 that holds as many connections as it can get. */
static void besiege(const char *first, const char *more)
{
    static const char *const SOURCES[] = {"127.0.0.1", "127.0.0.2"};
    static int crowd[CROWD];
    server_kit kit;
    allow_files(2 * CROWD + 100);
    server_open(&kit);
    server_start(&kit);
    engine_run(&kit.engine, 2000);
    for (int i = 0; i < CROWD; i++)
        crowd[i] = -1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CROWD; i++)
            keep_busy(kit.port, &crowd[i], first, more);
        for (size_t i = 0; i < COUNT(SOURCES); i++) {
            expect_answer(&kit, SOURCES[i], "/healthz");
            expect_answer(&kit, SOURCES[i], "/metrics");
        }
    }
    for (int i = 0; i < CROWD; i++)
        client_close(crowd[i]);
    server_close(&kit);
}

static void requests_that_trickle_keep_nobody_out(void **state)
{
    (void)state;
    besiege("GET /healthz HTTP/1.1\r\nHost: localhost\r\n", "X-A: b\r\n");
}

static void silent_clients_keep_nobody_out(void **state)
{
    (void)state;
    besiege("", "");
}

/* Answers that are larger than the system's buffers, and are not read. */
static void slow_readers_keep_nobody_out(void **state)
{
    (void)state;
    static const char ASK[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static char many[100 * sizeof ASK];
    for (size_t i = 0; i < 100; i++)
        memcpy(many + i * (sizeof ASK - 1), ASK, sizeof ASK);
    besiege(many, "");
}

/* Of the address with most connections the one that has waited longest goes; a stream stays. */
static void who_came_first_gives_way(void **state)
{
    (void)state;
    enum { FEW = 8 };
    int idle[FEW];
    server_kit kit;
    server_open(&kit);
    kit.config.max_connections = FEW;
    kit.config.timeout_s = 60;
    server_start(&kit);
    int stream = client_open(kit.port);
    assert_true(client_say(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    char bytes[1024];
    assert_true(client_read_some(stream, bytes, sizeof bytes, CLIENT_PATIENCE_MS) > 0);
    int other = client_open_from(kit.port, "127.0.0.2");
    for (int i = 0; i < FEW - 2; i++)
        idle[i] = client_open(kit.port);
    expect_answer(&kit, "127.0.0.2", "/healthz");
    assert_true(client_is_closed(idle[0], CLIENT_PATIENCE_MS));
    assert_true(server_is_alive(&kit));
    for (int i = 2; i < FEW - 2; i++) { /* of those that are left */
        assert_false(client_is_closed(idle[i], 20));
        client_close(idle[i]);
    }
    assert_false(client_is_closed(stream, 20));
    assert_false(client_is_closed(other, 20));
    client_close(stream);
    client_close(other);
    client_close(idle[0]);
    client_close(idle[1]);
    server_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_requests_change_nothing),
        cmocka_unit_test(a_thousand_connections_change_nothing),
        cmocka_unit_test(requests_that_trickle_keep_nobody_out),
        cmocka_unit_test(silent_clients_keep_nobody_out),
        cmocka_unit_test(slow_readers_keep_nobody_out),
        cmocka_unit_test(who_came_first_gives_way),
    };
    return cmocka_run_group_tests_name("http_crowd", tests, NULL, NULL);
}
