/* http/test_http_oom.c - memory that runs out: for every n, the n-th allocation fails, or all from
 * the n-th on. Making a server fails with a sentence; a request gets 503; a stream misses something
 * and says so. (Linked so that malloc and its kin come here.) */
#include "http/handler.h"
#include "http/hub.h"
#include "http/json_check.h"
#include "http/server_kit.h"
#include "http/site.h"

#include <stdatomic.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

/* The server has threads of its own. */
static _Atomic uint64_t calls;
static _Atomic uint64_t first_failing = UINT64_MAX;
static _Atomic uint64_t last_failing;

static bool may_have(void)
{
    uint64_t n = atomic_fetch_add(&calls, 1) + 1;
    return n < atomic_load(&first_failing) || n > atomic_load(&last_failing);
}

void *__wrap_malloc(size_t size)
{
    return may_have() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t n, size_t size)
{
    return may_have() ? __real_calloc(n, size) : NULL;
}

void *__wrap_realloc(void *memory, size_t size)
{
    return may_have() ? __real_realloc(memory, size) : NULL;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return may_have() ? __real_aligned_alloc(alignment, size) : NULL;
}

static void fail_from(uint64_t first, uint64_t last)
{
    atomic_store(&calls, 0);
    atomic_store(&last_failing, last);
    atomic_store(&first_failing, first);
}

static void fail_nothing(void)
{
    atomic_store(&first_failing, UINT64_MAX);
}

static uint64_t num_calls(void)
{
    return atomic_load(&calls);
}

/* ---- making a server -------------------------------------------------------- */

static void creation_fails_with_a_sentence(void **state)
{
    (void)state;
    static const char *const hosts[] = {"one.example", "two.example"};
    server_kit kit;
    server_open(&kit);
    kit.config.hosts = hosts;
    kit.config.num_hosts = 2;
    uint64_t n = 1;
    for (bool has_failed = true; has_failed; n++) {
        quire_http *http = NULL;
        fail_from(n, n % 2 == 0 ? UINT64_MAX : n);
        int status = quire_http_create(&kit.config, &http);
        fail_nothing();
        has_failed = status != QUIRE_OK;
        if (has_failed) {
            assert_int_equal(status, QUIRE_E_NOMEM);
            assert_true(quire_refusal()[0] != 0);
            assert_null(http);
        }
        quire_http_destroy(http);
    }
    assert_true(n > 5); /* there are so many to fail */
    server_close(&kit);
}

/* ---- answers ---------------------------------------------------------------- */

static quire_bytes bytes_of(const char *text)
{
    return (quire_bytes){text, strlen(text)};
}

static qr_http_site site_of(engine *e)
{
    qr_http_site site = {.monitor = e->monitor,
                         .info = *quire_monitor_get_info(e->monitor),
                         .health.stuck_ns = UINT64_MAX};
    assert_true(qr_http_address_read(&site.access.address, "127.0.0.1", 9));
    assert_int_equal(qr_http_page_init(&site), QUIRE_OK);
    return site;
}

static void answers_fail_with_503(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        uint32_t status;
    } CASES[] = {{"/", 200},       {"/metrics", 200}, {"/healthz", 200}, {"/snapshot", 200},
                 {"/blocks", 200}, {"/events", 200},  {"/x", 404}};
    engine e;
    engine_open(&e, 2, true, 0);
    engine_run(&e, 1000);
    qr_http_site site = site_of(&e);
    uint64_t num_failed = 0;
    for (size_t i = 0; i < COUNT(CASES); i++) {
        const qr_http_request request = {.method = bytes_of("GET"),
                                         .path = bytes_of(CASES[i].path),
                                         .host = bytes_of("localhost"),
                                         .num_hosts = 1};
        for (uint64_t n = 1;; n++) {
            qr_http_response response;
            fail_from(n, n);
            qr_http_answer(&site, &request, &response);
            fail_nothing();
            uint64_t made = num_calls();
            assert_int_equal(response.status, made < n ? CASES[i].status : 503);
            assert_true(made < n || (response.page != NULL && response.body.bytes == NULL));
            num_failed += made >= n;
            qr_http_body_free(&response.body);
            if (made < n)
                break;
        }
    }
    assert_true(num_failed > 8);
    engine_close(&e);
}

/* ---- streams ---------------------------------------------------------------- */

static void no_sleep(struct MHD_Connection *connection)
{
    (void)connection;
}

static bool never_gone(struct MHD_Connection *connection)
{
    (void)connection;
    return false;
}

/* Steps that were told and that were skipped, in a stream's text. */
static uint64_t count_steps(const char *text)
{
    uint64_t num = 0;
    for (const char *at = strstr(text, "\"steps\":["); at != NULL;
         at = strstr(at + 1, "\"steps\":[")) {
        uint64_t first;
        uint64_t last;
        num += json_steps(at, &first, &last);
        num += json_number(strstr(at, "],\"skipped\""), "skipped");
    }
    return num;
}

static void streams_say_what_they_missed(void **state)
{
    (void)state;
    static const qr_http_hooks HOOKS = {no_sleep, no_sleep, never_gone};
    static char text[QR_HTTP_STREAM_BYTES + 1];
    engine e;
    engine_open(&e, 2, true, 0);
    qr_http_site site = site_of(&e);
    int connection;
    uint64_t num_failed = 0;
    uint64_t made;
    uint64_t n = 0;
    do {
        qr_http_hub hub;
        n++;
        assert_int_equal(qr_http_hub_init(&hub, &site, 1, &HOOKS), QUIRE_OK);
        uint64_t before = e.num_steps;
        fail_from(n, n + 2);
        qr_http_stream *stream = qr_http_hub_open(&hub, (void *)&connection, true, before);
        for (int i = 0; i < 6 && stream != NULL; i++) {
            engine_run(&e, 20);
            qr_http_hub_tick(&hub, (uint64_t)i * 100000000);
        }
        fail_nothing();
        made = num_calls();
        num_failed += stream == NULL;
        if (stream != NULL) {
            engine_run(&e, 20);
            qr_http_hub_tick(&hub, 600000000);
            size_t len = 0;
            int64_t got;
            while ((got = qr_http_hub_take(stream, text + len, QR_HTTP_STREAM_BYTES - len)) > 0)
                len += (size_t)got;
            text[len] = '\0';
            assert_int_equal(count_steps(text), e.num_steps - before);
            qr_http_hub_close(stream);
        }
        qr_http_hub_free(&hub);
    } while (made >= n);
    assert_true(n > 5 && num_failed > 0);
    engine_close(&e);
}

/* ---- the whole server ------------------------------------------------------- */

static void a_server_outlives_bad_times(void **state)
{
    (void)state;
    static const char *const PATHS[] = {"/",       "/metrics", "/healthz", "/snapshot",
                                        "/blocks", "/events",  "/x"};
    server_kit kit;
    server_open(&kit);
    server_start(&kit);
    engine_run(&kit.engine, 1000);
    for (uint64_t n = 1; n < 8; n++) {
        for (size_t i = 0; i < COUNT(PATHS); i++) {
            char request[128];
            char answer[64] = "";
            int socket = client_open(kit.port);
            assert_true(socket >= 0);
            snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", PATHS[i]);
            fail_from(n, UINT64_MAX);
            assert_true(client_say(socket, request));
            long len = client_read_some(socket, answer, sizeof answer - 1, CLIENT_PATIENCE_MS);
            fail_nothing();
            assert_true(len >= 0);
            if (len > 12)
                assert_true(strstr(answer, " 200 ") || strstr(answer, " 404 ") ||
                            strstr(answer, " 503 "));
            client_close(socket);
        }
    }
    assert_true(server_is_alive(&kit));
    server_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creation_fails_with_a_sentence),
        cmocka_unit_test(answers_fail_with_503),
        cmocka_unit_test(streams_say_what_they_missed),
        cmocka_unit_test(a_server_outlives_bad_times),
    };
    return cmocka_run_group_tests_name("http_oom", tests, NULL, NULL);
}
