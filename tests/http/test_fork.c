/* http/test_fork.c - a process with a server forks: whatever the child does with its copy of the
 * server, the parent's server answers, greets new streams and keeps its time limits. */
#include "http/server_kit.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_SECONDS = 10, SHORT_S = 1 };

typedef int (*child_work)(server_kit *kit);

static int destroys(server_kit *kit)
{
    uint32_t port = quire_http_port(kit->http);
    quire_http_destroy(kit->http);
    return port == kit->port ? 0 : 1;
}

static int uses(server_kit *kit)
{
    quire_http *own = NULL;
    quire_http_config config = kit->config;
    if (quire_http_port(kit->http) != kit->port)
        return 1;
    if (quire_http_create(&config, &own) != QUIRE_OK)
        return 2;
    uint32_t port = quire_http_port(own);
    if (port == kit->port || client_get(port, "GET /healthz", NULL, &kit->reply) != 200)
        return 3;
    quire_http_destroy(kit->http);
    if (client_get(port, "GET /healthz", NULL, &kit->reply) != 200)
        return 4;
    quire_http_destroy(own);
    return 0;
}

static int destroys_the_scheduler_too(server_kit *kit)
{
    quire_http_destroy(kit->http);
    engine_run(&kit->engine, 100); /* the child's copy of monitor and scheduler is memory alone */
    engine_close(&kit->engine);
    return 0;
}

static int only_exits(server_kit *kit)
{
    (void)kit;
    return 0;
}

static void run_child(server_kit *kit, child_work work)
{
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(CHILD_SECONDS);
        _exit(work(kit));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        fail_msg("the child was ended by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Reads a stream until that word comes. */
static bool stream_says(int socket, const char *word)
{
    static char text[CLIENT_MAX_REPLY];
    size_t len = 0;
    long n = 1;
    text[0] = '\0';
    while (n > 0 && len < sizeof text - 1 && strstr(text, word) == NULL) {
        n = client_read_some(socket, text + len, sizeof text - 1 - len, 5000);
        len += n > 0 ? (size_t)n : 0;
        text[len] = '\0';
    }
    return strstr(text, word) != NULL;
}

static int open_stream(server_kit *kit)
{
    int socket = client_open(kit->port);
    assert_true(client_say(socket, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    return socket;
}

static void expect_server_goes_on(server_kit *kit, int old_stream)
{
    assert_true(server_is_alive(kit));
    engine_run(&kit->engine, 10);
    assert_true(stream_says(old_stream, "event: steps"));
    int stream = open_stream(kit);
    assert_true(stream_says(stream, "event: hello")); /* by the thread that keeps the times */
    int slow = client_open(kit->port);
    assert_true(client_say(slow, "GET /healthz HTTP/1.1\r\n"));
    assert_true(client_is_closed(slow, 5000 * SHORT_S));
    client_close(slow);
    client_close(stream);
}

static void the_parents_server_goes_on(void **state)
{
    (void)state;
    const child_work works[] = {destroys, uses, destroys_the_scheduler_too, only_exits};
    server_kit kit;
    server_open(&kit);
    kit.config.timeout_s = SHORT_S;
    server_start(&kit);
    engine_run(&kit.engine, 10);
    for (size_t i = 0; i < COUNT(works); i++) {
        int stream = open_stream(&kit);
        assert_true(stream_says(stream, "event: hello"));
        run_child(&kit, works[i]);
        expect_server_goes_on(&kit, stream);
        client_close(stream);
    }
    server_close(&kit);
}

static void a_child_that_lives_on_does_not_keep_the_port(void **state)
{
    (void)state;
    server_kit kit;
    server_open(&kit);
    server_start(&kit);
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(CHILD_SECONDS);
        (void)pause();
        _exit(0);
    }
    quire_http_destroy(kit.http);
    assert_true(client_open(kit.port) < 0);
    kit.config.port = kit.port;
    server_start(&kit);
    assert_true(server_is_alive(&kit));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    server_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parents_server_goes_on),
        cmocka_unit_test(a_child_that_lives_on_does_not_keep_the_port),
    };
    return cmocka_run_group_tests_name("http_fork", tests, NULL, NULL);
}
