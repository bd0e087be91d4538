/* http/test_crowd.c - a thousand clients at one time, while the scheduler works.
 *
 *      64 have a place        answered at once
 *      936 wait               until a place is free
 *
 * All come to an end, memory stays within its limits, and the scheduler decides what it decides
 * when nobody looks.
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

static const char *const PATHS[] = {"/metrics", "/snapshot?limit=1000", "/healthz", "/", "/events",
                                    "/nothing"};

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

static void a_thousand_clients_change_nothing(void **state)
{
    (void)state;
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
    for (uint32_t i = 0; i < CLIENTS; i++)
        visitors[i] = visit(kit.port);
    uint32_t answered = serve_all(visitors, CLIENTS, &peak);
    engine_stop(&kit.engine);
    printf("%u of %d answered; resident %llu KiB, at most %llu KiB; %llu steps meanwhile\n",
           answered, CLIENTS, (unsigned long long)before, (unsigned long long)peak,
           (unsigned long long)kit.engine.num_steps - 2000);
    assert_true(answered >= PLACES);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        int expected = i % COUNT(PATHS) == 5 ? 404 : 200;
        bool is_full = visitors[i].is_stream && visitors[i].status == 503;
        assert_true(visitors[i].status == 0 || visitors[i].status == expected || is_full);
    }
    if (SERVER_MEMORY_TELLS)
        assert_true(peak - before < MAX_GROWTH_KIB);
    assert_true(server_is_alive(&kit));
    assert_true(kit.engine.digest == digest_alone(kit.engine.num_steps));
    server_close(&kit);
}

/* The places are taken by those that say nothing; who comes behind them waits, and is answered. */
static void who_waits_gets_a_place(void **state)
{
    (void)state;
    enum { FEW = 4, IDLE = 14 };
    int idle[IDLE];
    server_kit kit;
    server_open(&kit);
    kit.config.max_connections = FEW;
    kit.config.timeout_s = 1;
    server_start(&kit);
    for (int i = 0; i < IDLE; i++)
        idle[i] = client_open(kit.port);
    for (int i = 0; i < IDLE; i += 2) /* half of them give up */
        client_close(idle[i]);
    assert_true(server_is_alive(&kit));
    for (int i = 1; i < IDLE; i += 2)
        client_close(idle[i]);
    server_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_clients_change_nothing),
        cmocka_unit_test(who_waits_gets_a_place),
    };
    return cmocka_run_group_tests_name("http_crowd", tests, NULL, NULL);
}
