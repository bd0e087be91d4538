/* http/test_server.c - the server over real sockets: what a friend sees. */
#include "http/json_check.h"
#include "http/server_kit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static const char TOKEN[] = "correct-horse-battery";

/* ---- making one ------------------------------------------------------------- */

typedef struct bad_config {
    const char *what; /* is in the sentence */
    int status;
    quire_http_config config;
} bad_config;

static void bad_configs_get_a_sentence(void **state)
{
    (void)state;
    static char long_text[300];
    static const char *const hosts[] = {"http://x"};
    memset(long_text, 'x', sizeof long_text - 1);
    server_kit kit;
    server_open(&kit);
    quire_monitor *m = kit.engine.monitor;
    const size_t size = sizeof(quire_http_config);
    const bad_config cases[] = {
        {"monitor is NULL", QUIRE_E_ARGUMENT, {.size = size}},
        {"invalid size 3", QUIRE_E_CONFIG, {.size = 3, .monitor = m}},
        {"address localhost", QUIRE_E_CONFIG, {.size = size, .monitor = m, .address = "localhost"}},
        {"port 65536", QUIRE_E_CONFIG, {.size = size, .monitor = m, .port = 65536}},
        {"0.0.0.0", QUIRE_E_UNSAFE, {.size = size, .monitor = m, .address = "0.0.0.0"}},
        {"::", QUIRE_E_UNSAFE, {.size = size, .monitor = m, .address = "::"}},
        {"192.0.2.1", QUIRE_E_UNSAFE, {.size = size, .monitor = m, .address = "192.0.2.1"}},
        {"token (expected 16", QUIRE_E_CONFIG, {.size = size, .monitor = m, .token = "secret"}},
        {"192.0.2.1",
         QUIRE_E_SYSTEM,
         {.size = size, .monitor = m, .address = "192.0.2.1", .token = TOKEN}},
        {"http://x", QUIRE_E_CONFIG, {.size = size, .monitor = m, .hosts = hosts, .num_hosts = 1}},
        {"hosts is NULL", QUIRE_E_ARGUMENT, {.size = size, .monitor = m, .num_hosts = 1}},
        {"num_hosts 65", QUIRE_E_CONFIG, {.size = size, .monitor = m, .num_hosts = 65}},
        {"max_connections 4097",
         QUIRE_E_CONFIG,
         {.size = size, .monitor = m, .max_connections = 4097}},
        {"max_streams 257", QUIRE_E_CONFIG, {.size = size, .monitor = m, .max_streams = 257}},
        {"timeout_s 3601", QUIRE_E_CONFIG, {.size = size, .monitor = m, .timeout_s = 3601}},
        {"title has 299", QUIRE_E_CONFIG, {.size = size, .monitor = m, .title = long_text}},
        {"gpu has 299", QUIRE_E_CONFIG, {.size = size, .monitor = m, .gpu = long_text}},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        quire_http *http = NULL;
        assert_int_equal(quire_http_create(&cases[i].config, &http), cases[i].status);
        if (strstr(quire_refusal(), cases[i].what) == NULL)
            fail_msg("%s is not in: %s", cases[i].what, quire_refusal());
        assert_null(strstr(quire_refusal(), "secret"));
        assert_null(strstr(quire_refusal(), TOKEN));
        assert_null(http);
        assert_int_equal(quire_http_create(&cases[i].config, &http), cases[i].status);
    }
    quire_http *http = NULL;
    assert_int_equal(quire_http_create(NULL, &http), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_http_create(&kit.config, NULL), QUIRE_E_ARGUMENT);
    quire_http_destroy(NULL);
    assert_int_equal(quire_http_port(NULL), 0);
    server_close(&kit);
}

static void older_and_newer_configs_are_read(void **state)
{
    (void)state;
    struct {
        quire_http_config config;
        uint64_t newer;
    } longer = {.config = QUIRE_HTTP_CONFIG_INIT};
    server_kit kit;
    server_open(&kit);
    longer.config.size = sizeof longer;
    longer.config.monitor = kit.engine.monitor;
    quire_http *http;
    assert_int_equal(quire_http_create(&longer.config, &http), QUIRE_OK);
    quire_http_destroy(http);
    longer.newer = 1;
    assert_int_equal(quire_http_create(&longer.config, &http), QUIRE_E_CONFIG);
    kit.config.size = offsetof(quire_http_config, title);
    server_start(&kit);
    assert_true(server_is_alive(&kit));
    server_close(&kit);
}

static void a_taken_port_is_said(void **state)
{
    (void)state;
    server_kit kit;
    server_open(&kit);
    server_start(&kit);
    quire_http_config second = kit.config;
    quire_http *http;
    second.port = kit.port;
    assert_int_equal(quire_http_create(&second, &http), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "127.0.0.1"));
    uint32_t port = kit.port;
    quire_http_destroy(kit.http);
    kit.config.port = port; /* and can be taken again at once */
    server_start(&kit);
    assert_int_equal(kit.port, port);
    server_close(&kit);
}

/* ---- endpoints -------------------------------------------------------------- */

static void expect_headers(const client_reply *reply, const char *type)
{
    static const char *const HEADERS[][2] = {{"X-Content-Type-Options", "nosniff"},
                                             {"X-Frame-Options", "DENY"},
                                             {"Referrer-Policy", "no-referrer"},
                                             {"Cross-Origin-Resource-Policy", "same-origin"},
                                             {"Cache-Control", "no-store"}};
    assert_string_equal(client_header(reply, "Content-Type"), type);
    for (size_t i = 0; i < COUNT(HEADERS); i++)
        assert_string_equal(client_header(reply, HEADERS[i][0]), HEADERS[i][1]);
    assert_non_null(strstr(client_header(reply, "Content-Security-Policy"), "default-src 'none'"));
    assert_null(client_header(reply, "Access-Control-Allow-Origin"));
    assert_null(client_header(reply, "Server"));
}

static void every_endpoint_answers(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int status;
        const char *type;
    } CASES[] = {
        {"/", 200, "text/html; charset=utf-8"},
        {"/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"},
        {"/healthz", 200, "application/json"},
        {"/snapshot", 200, "application/json"},
        {"/snapshot?after=3&limit=2", 200, "application/json"},
        {"/snapshot?after=%33&limit=2&token=x", 200, "application/json"},
        {"/snapshot?limit=1%20", 400, "text/plain; charset=utf-8"},
        {"/snapshot?limit=1&limit=0", 400, "text/plain; charset=utf-8"},
        {"/snapshot?after", 400, "text/plain; charset=utf-8"},
        {"/blocks", 200, "application/json"},
        {"/blocks?token=x", 200, "application/json"},
        {"/blocks?after=3", 400, "text/plain; charset=utf-8"},
        {"/blocks?%00", 400, "text/plain; charset=utf-8"},
        {"/blocks/", 404, "text/plain; charset=utf-8"},
        {"/nothing", 404, "text/plain; charset=utf-8"},
        {"/metrics/../metrics", 404, "text/plain; charset=utf-8"},
    };
    server_kit kit;
    server_open(&kit);
    server_start(&kit);
    engine_run(&kit.engine, 20);
    for (size_t i = 0; i < COUNT(CASES); i++) {
        char line[128];
        if (server_get(&kit, CASES[i].path) != CASES[i].status)
            fail_msg("%s: %d", CASES[i].path, kit.reply.status);
        expect_headers(&kit.reply, CASES[i].type);
        size_t body_bytes = kit.reply.body_bytes;
        assert_true(body_bytes > 0);
        if (strcmp(CASES[i].type, "application/json") == 0)
            assert_true(json_check(client_body(&kit.reply), body_bytes));
        snprintf(line, sizeof line, "HEAD %s", CASES[i].path);
        assert_int_equal(client_get(kit.port, line, NULL, &kit.reply), CASES[i].status);
        expect_headers(&kit.reply, CASES[i].type);
        assert_int_equal(kit.reply.body_bytes, 0);
        if (strcmp(CASES[i].path, "/metrics") != 0) /* whose numbers may have grown */
            assert_int_equal(atoi(client_header(&kit.reply, "Content-Length")), body_bytes);
    }
    assert_int_equal(client_get(kit.port, "HEAD /events", NULL, &kit.reply), 200);
    expect_headers(&kit.reply, "text/event-stream");
    assert_int_equal(client_get(kit.port, "DELETE /", NULL, &kit.reply), 405);
    assert_string_equal(client_header(&kit.reply, "Allow"), "GET, HEAD");
    assert_int_equal(client_get(kit.port, "GET /metrics",
                                "Accept: application/openmetrics-text\r\n", &kit.reply),
                     200);
    expect_headers(&kit.reply, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert_non_null(strstr(kit.reply.text, "model_name=\"tiny\""));
    server_close(&kit);
}

static void foreign_hosts_are_sent_away(void **state)
{
    (void)state;
    static const char *const hosts[] = {"quire.example"};
    server_kit kit;
    server_open(&kit);
    kit.config.hosts = hosts;
    kit.config.num_hosts = 1;
    server_start(&kit);
    client_reply *reply = &kit.reply;
    assert_int_equal(client_get(kit.port, "GET /", "Host: quire.example:99\r\n", reply), 200);
    assert_int_equal(client_get(kit.port, "GET /", "Host: [::1]:99\r\n", reply), 200);
    assert_int_equal(client_get(kit.port, "GET /", "Host: evil.example\r\n", reply), 421);
    assert_int_equal(client_get(kit.port, "GET /", "Host: localhost\r\nHost: x\r\n", reply), 400);
    int socket = client_open(kit.port);
    assert_true(client_say(socket, "GET /metrics HTTP/1.0\r\n\r\n"));
    assert_true(client_read(socket, reply));
    assert_int_equal(reply->status, 400);
    client_close(socket);
    server_close(&kit);
}

static void a_token_opens_every_door(void **state)
{
    (void)state;
    static const char *const PATHS[] = {"/", "/metrics", "/healthz", "/snapshot", "/blocks", "/x"};
    server_kit kit;
    server_open(&kit);
    kit.config.token = TOKEN;
    kit.config.address = "0.0.0.0";
    server_start(&kit);
    for (size_t i = 0; i < COUNT(PATHS); i++) {
        char line[256];
        int expected = strcmp(PATHS[i], "/x") == 0 ? 404 : 200;
        assert_int_equal(server_get(&kit, PATHS[i]), 401);
        assert_string_equal(client_header(&kit.reply, "WWW-Authenticate"), "Bearer");
        snprintf(line, sizeof line, "%s?token=%s", PATHS[i], TOKEN);
        assert_int_equal(server_get(&kit, line), expected);
        assert_null(strstr(kit.reply.text, TOKEN)); /* nowhere in the answer */
        snprintf(line, sizeof line, "%s?token=%%63orrect-horse-battery", PATHS[i]);
        assert_int_equal(server_get(&kit, line), expected);
        snprintf(line, sizeof line, "GET %s", PATHS[i]);
        assert_int_equal(client_get(kit.port, line,
                                    "Authorization: Bearer correct-horse-battery\r\n", &kit.reply),
                         expected);
        assert_int_equal(client_get(kit.port, line,
                                    "Authorization: Bearer correct-horse-batterz\r\n", &kit.reply),
                         401);
    }
    server_close(&kit);
}

static void it_listens_on_ipv6_too(void **state)
{
    (void)state;
    server_kit kit;
    server_open(&kit);
    kit.config.address = "::1";
    if (quire_http_create(&kit.config, &kit.http) == QUIRE_E_SYSTEM) {
        printf("no IPv6 here: %s\n", quire_refusal());
        server_close(&kit);
        skip();
    }
    struct sockaddr_in6 to = {.sin6_family = AF_INET6,
                              .sin6_port = htons((uint16_t)quire_http_port(kit.http)),
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    assert_true(client_say(fd, "GET /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n"));
    assert_true(client_read(fd, &kit.reply));
    assert_int_equal(kit.reply.status, 200);
    client_close(fd);
    server_close(&kit);
}

/* ---- streams ---------------------------------------------------------------- */

static int open_stream(server_kit *kit, const char *headers)
{
    char request[256];
    int socket = client_open(kit->port);
    assert_true(socket >= 0);
    snprintf(request, sizeof request, "GET /events HTTP/1.1\r\nHost: localhost\r\n%s\r\n", headers);
    assert_true(client_say(socket, request));
    kit->reply.num_bytes = 0;
    kit->reply.text[0] = '\0';
    return socket;
}

/* Reads until the text is there; what was read since the stream was opened is in reply. */
static void read_until(server_kit *kit, int socket, const char *text)
{
    client_reply *reply = &kit->reply;
    while (strstr(reply->text, text) == NULL) {
        long n = client_read_some(socket, reply->text + reply->num_bytes,
                                  CLIENT_MAX_REPLY - reply->num_bytes, CLIENT_PATIENCE_MS);
        if (n <= 0)
            fail_msg("%s does not come", text);
        reply->num_bytes += (size_t)n;
        reply->text[reply->num_bytes] = '\0';
    }
}

static void streams_follow_the_engine(void **state)
{
    (void)state;
    server_kit kit;
    server_open(&kit);
    server_start(&kit);
    engine_run(&kit.engine, 100);
    int socket = open_stream(&kit, "");
    read_until(&kit, socket, "\"resumed\":0}\n\n");
    assert_non_null(strstr(kit.reply.text, "Content-Type: text/event-stream\r\n"));
    assert_non_null(strstr(kit.reply.text, "event: hello\nid: 100\n"));
    engine_run(&kit.engine, 100);
    read_until(&kit, socket, "\nid: 200\n");
    read_until(&kit, socket, "event: kv\ndata: {\"events\":[{\"kind\":\"");
    client_close(socket);
    socket = open_stream(&kit, "Last-Event-ID: 150\r\n");
    read_until(&kit, socket, "\"resumed\":1}\n\n");
    uint64_t first;
    uint64_t last;
    assert_int_equal(json_steps(kit.reply.text, &first, &last), 50);
    assert_true(first == 151 && last == 200);
    server_close(&kit); /* with the stream open */
    assert_true(client_is_closed(socket, CLIENT_PATIENCE_MS));
    client_close(socket);
}

/* Other connections end when nothing moves for so long. */
static void a_quiet_stream_outlives_the_timeout(void **state)
{
    (void)state;
    server_kit kit;
    server_open(&kit);
    kit.config.timeout_s = 1;
    server_start(&kit);
    int socket = open_stream(&kit, "");
    read_until(&kit, socket, "event: hello\nid: 0\n");
    usleep(2200000);
    engine_run(&kit.engine, 5);
    read_until(&kit, socket, "event: steps\nid: 5\n");
    client_close(socket);
    server_close(&kit);
}

static void streams_have_a_limit_and_places_come_back(void **state)
{
    (void)state;
    enum { STREAMS = 3 };
    int sockets[STREAMS];
    server_kit kit;
    server_open(&kit);
    kit.config.max_streams = STREAMS;
    server_start(&kit);
    for (int i = 0; i < STREAMS; i++) {
        sockets[i] = open_stream(&kit, "");
        read_until(&kit, sockets[i], "event: hello");
    }
    for (int round = 0; round < 3; round++) {
        assert_int_equal(server_get(&kit, "/events"), 503);
        assert_string_equal(client_header(&kit.reply, "Retry-After"), "5");
        client_close(sockets[round]);             /* while nothing is said to it */
        uint64_t until = client_now_ms() + 10000; /* before something is said to it again */
        do {
            sockets[round] = open_stream(&kit, "");
            read_until(&kit, sockets[round], "\r\n\r\n");
            if (strstr(kit.reply.text, " 200 ") != NULL)
                break;
            client_close(sockets[round]);
            usleep(20000);
        } while (client_now_ms() < until);
        assert_non_null(strstr(kit.reply.text, " 200 "));
    }
    assert_true(server_is_alive(&kit)); /* and others are answered meanwhile */
    server_close(&kit);
    for (int i = 0; i < STREAMS; i++)
        client_close(sockets[i]);
}

/* Streams stay; without a limit they would take all places. */
static void streams_leave_places_for_others(void **state)
{
    (void)state;
    enum { PLACES = 4, STREAMS = 3 };
    int sockets[STREAMS];
    server_kit kit;
    server_open(&kit);
    kit.config.max_connections = PLACES;
    server_start(&kit);
    for (int i = 0; i < STREAMS; i++) {
        sockets[i] = open_stream(&kit, "");
        read_until(&kit, sockets[i], "event: hello");
    }
    assert_int_equal(server_get(&kit, "/events"), 503);
    assert_true(server_is_alive(&kit));
    server_close(&kit);
    for (int i = 0; i < STREAMS; i++)
        client_close(sockets[i]);
}

static void servers_come_and_go(void **state)
{
    (void)state;
    server_kit kit;
    server_open(&kit);
    for (int i = 0; i < 20; i++) { /* with a stream at every age */
        server_start(&kit);
        int socket = open_stream(&kit, "");
        int idle = client_open(kit.port);
        if (i % 2 == 0)
            read_until(&kit, socket, "event: hello");
        engine_run(&kit.engine, 50);
        usleep((useconds_t)i * 1000);
        quire_http_destroy(kit.http);
        kit.http = NULL;
        assert_true(client_is_closed(socket, CLIENT_PATIENCE_MS));
        client_close(socket);
        client_close(idle);
    }
    server_close(&kit);
}

/* ---- signals ---------------------------------------------------------------- */

static volatile sig_atomic_t signalled;
static pthread_t signalled_thread;

static void on_signal(int number)
{
    (void)number;
    signalled_thread = pthread_self();
    signalled = 1;
}

static void signals_are_the_hosts(void **state)
{
    (void)state;
    server_kit kit;
    server_open(&kit);
    server_start(&kit);
    signal(SIGUSR1, on_signal);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    kill(getpid(), SIGUSR1); /* every thread that takes signals may get it, and none may */
    usleep(50000);
    assert_int_equal(signalled, 0);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    assert_int_equal(signalled, 1);
    assert_true(pthread_equal(signalled_thread, pthread_self()));
    signal(SIGUSR1, SIG_DFL);
    server_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_configs_get_a_sentence),
        cmocka_unit_test(older_and_newer_configs_are_read),
        cmocka_unit_test(a_taken_port_is_said),
        cmocka_unit_test(every_endpoint_answers),
        cmocka_unit_test(foreign_hosts_are_sent_away),
        cmocka_unit_test(a_token_opens_every_door),
        cmocka_unit_test(it_listens_on_ipv6_too),
        cmocka_unit_test(streams_follow_the_engine),
        cmocka_unit_test(a_quiet_stream_outlives_the_timeout),
        cmocka_unit_test(streams_have_a_limit_and_places_come_back),
        cmocka_unit_test(streams_leave_places_for_others),
        cmocka_unit_test(servers_come_and_go),
        cmocka_unit_test(signals_are_the_hosts),
    };
    return cmocka_run_group_tests_name("http_server", tests, NULL, NULL);
}
