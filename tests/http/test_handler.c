/* http/test_handler.c - requests in, responses out, over a real scheduler's monitor. */
#include "http/engine.h"
#include "http/format.h"
#include "http/handler.h"
#include "http/json_check.h"
#include "http/site.h"

static const uint64_t SECOND = UINT64_C(1000000000);

typedef struct world {
    engine engine;
    qr_http_site site;
    qr_http_response response;
} world;

static quire_bytes bytes_of(const char *text)
{
    return (quire_bytes){text, text == NULL ? 0 : strlen(text)};
}

static void open_world(world *w)
{
    memset(w, 0, sizeof *w);
    engine_open(&w->engine, 7, true, 12);
    w->site.monitor = w->engine.monitor;
    w->site.info = *quire_monitor_get_info(w->engine.monitor);
    w->site.health.stuck_ns = 30 * SECOND;
    w->site.started = 1234567890.25;
    assert_true(qr_http_address_read(&w->site.access.address, "127.0.0.1", 9));
    snprintf(w->site.title.text, sizeof w->site.title.text, "a \"title\"");
    w->site.title.is_known = true;
    assert_int_equal(qr_http_page_init(&w->site), QUIRE_OK);
}

static void close_world(world *w)
{
    qr_http_body_free(&w->response.body);
    engine_close(&w->engine);
}

static qr_http_request request_of(const char *method, const char *path)
{
    return (qr_http_request){.method = bytes_of(method),
                             .path = bytes_of(path),
                             .host = bytes_of("localhost:80"),
                             .num_hosts = 1};
}

static void add_arg(qr_http_request *request, const char *name, const char *value)
{
    if (request->num_args < QR_HTTP_MAX_ARGS)
        request->args[request->num_args] = (qr_http_arg){bytes_of(name), bytes_of(value)};
    request->num_args++;
}

/* The answer, with a zero byte behind its body. */
static uint32_t ask(world *w, const qr_http_request *request)
{
    qr_http_body_free(&w->response.body);
    qr_http_answer(&w->site, request, &w->response);
    qr_http_body_add(&w->response.body, "", 1);
    w->response.body.len--;
    return w->response.status;
}

static const char *body(const world *w)
{
    return w->response.body.bytes;
}

static bool is_json(const world *w)
{
    return strcmp(w->response.content_type, "application/json") == 0 &&
           json_check(w->response.body.bytes, w->response.body.len);
}

/* ---- who may ask ------------------------------------------------------------ */

static void the_first_that_is_wrong_answers(void **state)
{
    (void)state;
    static const struct {
        const char *method;
        const char *path;
        const char *host;
        const char *authorization;
        uint32_t status;
        uint32_t status_with_token;
    } CASES[] = {
        {"GET", "/metrics", "localhost", NULL, 200, 401},
        {"HEAD", "/metrics", "localhost", "Bearer 0123456789abcdef", 200, 200},
        {"GET", "/metrics", "localhost", "bearer   0123456789abcdef ", 200, 200},
        {"GET", "/metrics", "localhost", "Bearer 0123456789abcdeX", 200, 401},
        {"GET", "/metrics", "localhost", "Basic 0123456789abcdef", 200, 401},
        {"GET", "/metrics", "evil.example", "Bearer 0123456789abcdef", 421, 421},
        {"POST", "/metrics", "evil.example", NULL, 421, 421},
        {"POST", "/metrics", "localhost", NULL, 405, 401},
        {"DELETE", "/", "localhost", "Bearer 0123456789abcdef", 405, 405},
        {"get", "/", "localhost", "Bearer 0123456789abcdef", 405, 405},
        {"OPTIONS", "*", "localhost", "Bearer 0123456789abcdef", 405, 405},
        {"GET", "/config", "localhost", "Bearer 0123456789abcdef", 404, 404},
        {"GET", "/config", "localhost", NULL, 404, 401},
        {"GET", "/metrics/", "localhost", "Bearer 0123456789abcdef", 404, 404},
        {"GET", "//metrics", "localhost", "Bearer 0123456789abcdef", 404, 404},
        {"GET", "", "localhost", "Bearer 0123456789abcdef", 404, 404},
        {"GET", "http://localhost/", "localhost", "Bearer 0123456789abcdef", 404, 404},
    };
    world w;
    open_world(&w);
    for (int has_token = 0; has_token < 2; has_token++) {
        if (has_token)
            assert_true(qr_http_access_set_token(&w.site.access, "0123456789abcdef"));
        for (size_t i = 0; i < COUNT(CASES); i++) {
            qr_http_request request = request_of(CASES[i].method, CASES[i].path);
            request.host = bytes_of(CASES[i].host);
            request.authorization = bytes_of(CASES[i].authorization);
            uint32_t expected = has_token ? CASES[i].status_with_token : CASES[i].status;
            if (ask(&w, &request) != expected)
                fail_msg("%s %s: %u, not %u", CASES[i].method, CASES[i].path, w.response.status,
                         expected);
            assert_null(strstr(body(&w), "0123456789abcdef"));
            if (expected == 405)
                assert_string_equal(w.response.header_value, "GET, HEAD");
            if (expected == 401)
                assert_string_equal(w.response.header_name, "WWW-Authenticate");
            if (expected == 404)
                assert_non_null(strstr(body(&w), "/snapshot\n"));
        }
    }
    close_world(&w);
}

static void the_token_may_be_in_the_query(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    assert_true(qr_http_access_set_token(&w.site.access, "0123456789abcdef"));
    qr_http_request request = request_of("GET", "/snapshot");
    add_arg(&request, "token", "0123456789abcdef");
    assert_int_equal(ask(&w, &request), 200);
    request.args[0].value = bytes_of("0123456789abcdeF");
    assert_int_equal(ask(&w, &request), 401);
    request.args[0].value = bytes_of(NULL);
    assert_int_equal(ask(&w, &request), 401);
    close_world(&w);
}

static void hosts_are_needed_once(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    qr_http_request request = request_of("GET", "/healthz");
    for (request.num_hosts = 0; request.num_hosts < 3; request.num_hosts++)
        assert_int_equal(ask(&w, &request), request.num_hosts == 1 ? 200 : 400);
    close_world(&w);
}

static void queries_have_an_end(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    qr_http_request request = request_of("GET", "/healthz");
    for (uint32_t i = 0; i < QR_HTTP_MAX_ARGS; i++)
        add_arg(&request, "x", "1");
    assert_int_equal(ask(&w, &request), 200);
    add_arg(&request, "x", "1");
    assert_int_equal(ask(&w, &request), 400);
    close_world(&w);
}

static void large_requests_are_refused_early(void **state)
{
    (void)state;
    qr_http_request request = request_of("GET", "/");
    qr_http_response response;
    assert_int_equal(qr_http_refuse(&request, &response), 0);
    request.header_bytes = 8192;
    assert_int_equal(qr_http_refuse(&request, &response), 0);
    request.header_bytes = 8193;
    assert_int_equal(qr_http_refuse(&request, &response), 431);
    qr_http_body_free(&response.body);
    request.header_bytes = 10;
    request.has_body = true;
    assert_int_equal(qr_http_refuse(&request, &response), 413);
    qr_http_body_free(&response.body);
}

/* ---- the endpoints ---------------------------------------------------------- */

/* At most four that run, four that wait, and how many more there are. */
static void expect_names(world *w, const quire_monitor_step *last)
{
    const char *names = strstr(body(w), "\"names\":{\"step\":");
    char more[32];
    assert_non_null(names);
    assert_int_equal(json_number(names, "step"), last->step);
    uint32_t num_running = last->num_running < 4 ? last->num_running : 4;
    assert_int_equal(json_number(names, "more_running"), last->num_running - num_running);
    uint32_t num_waiting = last->num_waiting + last->num_skipped;
    uint32_t shown = num_waiting < 4 ? num_waiting : 4;
    (void)snprintf(more, sizeof more, "\"more_waiting\":%u}", num_waiting - shown);
    assert_non_null(strstr(names, more));
    assert_true(num_running > 0);
    quire_step_names kept = QUIRE_STEP_NAMES_INIT;
    quire_name list[8];
    char first[128];
    assert_int_equal(quire_monitor_get_names(w->engine.monitor, last->step, &kept, list, 8),
                     QUIRE_OK);
    (void)snprintf(first, sizeof first, "\"running\":[\"%.*s\"", (int)list[0].bytes, list[0].text);
    assert_non_null(strstr(names, first));
}

static void a_snapshot_has_the_monitors_numbers(void **state)
{
    (void)state;
    static const char COLUMNS[] =
        "\"columns\":[\"step\",\"time_us\",\"running\",\"waiting\",\"skipped\",\"scheduled\","
        "\"new\",\"resumed\",\"preempted\",\"finished\",\"tokens\",\"prefill_tokens\","
        "\"draft_tokens\",\"query_tokens\",\"hit_tokens\",\"external_tokens\",\"empty\",\"cached\","
        "\"active\",\"swap_slots\",\"pinned_requests\",\"pinned\",\"schedule_us\",\"update_us\"]";
    world w;
    open_world(&w);
    engine_run(&w.engine, 300);
    qr_http_request request = request_of("GET", "/snapshot");
    assert_int_equal(ask(&w, &request), 200);
    assert_true(is_json(&w));
    assert_non_null(strstr(body(&w), COLUMNS));
    assert_non_null(strstr(body(&w), "\"title\":\"a \\\"title\\\"\",\"model\":null"));
    assert_non_null(strstr(body(&w), "\"started\":1234567890.25,"));
    assert_non_null(strstr(body(&w), "\"tiers\":[{\"name\":\"gpu\",\"medium\":\"GPU\","));
    assert_non_null(strstr(body(&w), "{\"name\":\"swap\",\"medium\":\"CPU\",\"total\":12,"));
    assert_non_null(strstr(body(&w), "\"stored_bytes\":null"));
    assert_int_equal(json_number(body(&w), "num_blocks"), 97);
    assert_int_equal(json_number(body(&w), "total_blocks"), 96);
    quire_monitor_step steps[300] = {QUIRE_MONITOR_STEP_INIT};
    assert_int_equal(quire_monitor_get_steps(w.engine.monitor, 0, steps, 300), 300);
    const char *at = strstr(body(&w), "\"steps\":[") + strlen("\"steps\":[");
    for (int i = 0; i < 300; i++) {
        const quire_monitor_step *s = &steps[i];
        char row[512];
        snprintf(row, sizeof row,
                 "%s[%llu,%llu,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,",
                 i > 0 ? "," : "", (unsigned long long)s->step,
                 (unsigned long long)(s->time_ns / 1000), s->num_running, s->num_waiting,
                 s->num_skipped, s->num_scheduled, s->num_new, s->num_resumed, s->num_preempted,
                 s->num_finished, s->num_tokens, s->num_prefill_tokens, s->num_draft_tokens,
                 s->num_query_tokens, s->num_hit_tokens, s->num_external_tokens, s->num_empty,
                 s->num_cached, s->num_active, s->num_swap_slots, s->num_pinned,
                 s->num_pinned_blocks);
        assert_memory_equal(at, row, strlen(row));
        char *end;
        at += strlen(row);
        assert_true(strtod(at, &end) * 1000 - (double)s->schedule_ns < 1 && *end == ',');
        assert_true(strtod(end + 1, &end) * 1000 - (double)s->update_ns < 1 && *end == ']');
        at = end + 1;
    }
    expect_names(&w, &steps[299]);
    close_world(&w);
}

static void snapshots_can_be_paged(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    engine_run(&w.engine, 5000); /* more than the 4,096 that are kept */
    uint64_t first;
    uint64_t last;
    qr_http_request request = request_of("GET", "/snapshot");
    assert_int_equal(ask(&w, &request), 200);
    assert_int_equal(json_steps(body(&w), &first, &last), 512);
    assert_true(first == 5000 - 511 && last == 5000);
    add_arg(&request, "after", "0");
    add_arg(&request, "limit", "1000");
    assert_int_equal(ask(&w, &request), 200);
    assert_true(is_json(&w));
    assert_int_equal(json_steps(body(&w), &first, &last), 1000);
    assert_int_equal(json_number(body(&w), "skipped"), first - 1);
    assert_true(first > 1 && first <= 5000 - 4094);
    uint64_t num_pages = 0;
    char after[24];
    for (uint64_t n = 1; n > 0; num_pages++) {
        snprintf(after, sizeof after, "%llu", (unsigned long long)last);
        uint64_t before = last;
        request.args[0].value = bytes_of(after);
        assert_int_equal(ask(&w, &request), 200);
        n = json_steps(body(&w), &first, &last);
        assert_int_equal(json_number(strstr(body(&w), "],\"skipped\""), "skipped"), 0);
        assert_true(n == 0 || first == before + 1);
    }
    assert_int_equal(last, 5000);
    assert_true(num_pages >= 4);
    assert_int_equal(ask(&w, &request), 200);
    assert_non_null(strstr(body(&w), "\"steps\":[],\"skipped\":0,\"names\":{"));
    close_world(&w);
}

static void steps_have_two_ends(void **state)
{
    (void)state;
    static const struct {
        uint64_t after;
        uint64_t until;
        uint64_t limit;
        uint64_t every;
        uint64_t num;
        uint64_t last;
    } CASES[] = {
        {10, 20, 999, 0, 10, 20},   {10, 10, 999, 1, 0, 10},     {0, 300, 200, 1, 200, 200},
        {10, 20, 3, 1, 3, 13},      {290, 400, 100, 1, 10, 300}, {300, 400, 100, 1, 0, 300},
        {0, 130, 129, 1, 129, 129}, {0, 130, 128, 1, 128, 128},  {0, 300, 999, 3, 100, 300},
        {0, 299, 999, 7, 43, 299},  {0, 300, 10, 2, 10, 20},     {5, 6, 999, 100, 1, 6}};
    world w;
    open_world(&w);
    engine_run(&w.engine, 300);
    for (size_t i = 0; i < COUNT(CASES); i++) {
        qr_http_body rows = {0};
        const qr_http_range range = {CASES[i].after, CASES[i].until, CASES[i].limit,
                                     CASES[i].every};
        qr_http_rows told = qr_http_format_steps(&rows, w.engine.monitor, &range);
        assert_int_equal(told.num, CASES[i].num);
        assert_int_equal(told.last, CASES[i].last);
        assert_int_equal(told.num_skipped, told.last - CASES[i].after - told.num);
        qr_http_body_free(&rows);
    }
    close_world(&w);
}

static void expect_event(const quire_feed_event *event, const char *json)
{
    qr_http_body text = {0};
    assert_int_equal(qr_http_format_event(&text, event), json != NULL);
    assert_int_equal(text.len, json == NULL ? 0 : strlen(json));
    if (json != NULL)
        assert_memory_equal(text.bytes, json, text.len);
    qr_http_body_free(&text);
}

static void events_are_told_in_short(void **state)
{
    (void)state;
    static const unsigned char HASHES[20] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xee};
    static const quire_token TOKENS[] = {77777, 77777};
    quire_feed_event event = {.size = sizeof(quire_feed_event),
                              .medium = "GPU",
                              .kind = QUIRE_FEED_STORED,
                              .group_id = 3,
                              .num_blocks = 2,
                              .hashes = HASHES,
                              .hash_bytes = 10,
                              .tokens = TOKENS,
                              .num_tokens = 2};
    expect_event(&event, "{\"kind\":\"stored\",\"group\":3,\"blocks\":2,"
                         "\"hash\":\"02030405060708ff\",\"parent\":null,\"medium\":\"GPU\"}");
    event.parent = (quire_bytes){"\xab\xcd", 2};
    expect_event(
        &event,
        "{\"kind\":\"stored\",\"group\":3,\"blocks\":2,"
        "\"hash\":\"02030405060708ff\",\"parent\":\"000000000000abcd\",\"medium\":\"GPU\"}");
    event.kind = QUIRE_FEED_REMOVED;
    event.num_blocks = 1;
    expect_event(&event, "{\"kind\":\"removed\",\"group\":3,\"blocks\":1,"
                         "\"hash\":\"02030405060708ff\",\"parent\":null,\"medium\":\"GPU\"}");
    event.kind = QUIRE_FEED_CLEARED;
    expect_event(&event, "{\"kind\":\"cleared\",\"group\":null,\"blocks\":null,"
                         "\"hash\":null,\"parent\":null}");
    static const quire_feed_kind OTHERS[] = {QUIRE_FEED_PRESENT, QUIRE_FEED_WALKED,
                                             QUIRE_FEED_BATCH};
    for (size_t i = 0; i < COUNT(OTHERS); i++) {
        event.kind = OTHERS[i];
        expect_event(&event, NULL);
    }
}

static void bad_values_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *value;
        const char *said;
    } CASES[] = {
        {"after", "x", "after must be the number of a step, not \"x\""},
        {"after", "", "after must be the number of a step, not \"\""},
        {"after", NULL, "after must be the number of a step, not \"\""},
        {"after", "-1", "not \"-1\""},
        {"after", "18446744073709551616", "not \"18446744073709551616\""},
        {"limit", "0", "limit must be a number from 1 to 1000, not \"0\""},
        {"limit", "1001", "not \"1001\""},
        {"limit", "1\n<b>", "not \"1?<b>\""},
        {"steps", "1", "unknown parameter (expected after or limit): \"steps\""},
    };
    world w;
    open_world(&w);
    for (size_t i = 0; i < COUNT(CASES); i++) {
        qr_http_request request = request_of("GET", "/snapshot");
        add_arg(&request, CASES[i].name, CASES[i].value);
        assert_int_equal(ask(&w, &request), 400);
        assert_non_null(strstr(body(&w), CASES[i].said));
        assert_string_equal(w.response.content_type, "text/plain; charset=utf-8");
    }
    close_world(&w);
}

static void metrics_come_in_two_formats(void **state)
{
    (void)state;
    static const struct {
        const char *accept;
        bool is_openmetrics;
    } CASES[] = {
        {NULL, false},
        {"*/*", false},
        {"text/plain", false},
        {"application/openmetrics-text", true},
        {"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         true},
        {"text/html, Application/OpenMetrics-Text ; q=0.3", true},
        {"application/openmetrics-text;q=0", false},
        {"application/openmetrics-text; q=0.000, text/plain", false},
        {"application/openmetrics-textual", false},
        {"x,,;;q=,", false},
    };
    world w;
    open_world(&w);
    engine_run(&w.engine, 100);
    for (size_t i = 0; i < COUNT(CASES); i++) {
        qr_http_request request = request_of("GET", "/metrics");
        request.accept = bytes_of(CASES[i].accept);
        assert_int_equal(ask(&w, &request), 200);
        assert_string_equal(w.response.content_type,
                            CASES[i].is_openmetrics
                                ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                : "text/plain; version=0.0.4; charset=utf-8");
        assert_int_equal(w.response.body.len, strlen(body(&w)));
        assert_int_equal(strstr(body(&w), "# EOF") != NULL, CASES[i].is_openmetrics);
    }
    close_world(&w);
}

static uint32_t health_at(world *w, uint64_t now_ns)
{
    qr_http_request request = request_of("GET", "/healthz");
    request.now_ns = now_ns;
    uint32_t status = ask(w, &request);
    assert_true(is_json(w));
    assert_int_equal(strstr(body(w), "\"status\":\"ok\"") != NULL, status == 200);
    assert_int_equal(strstr(body(w), "\"status\":\"stuck\"") != NULL, status == 503);
    return status;
}

static void look_at(world *w, uint64_t now_ns)
{
    qr_http_health_look(&w->site.health, w->engine.monitor, now_ns);
}

static void health_is_steps_that_are_made(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    look_at(&w, 100 * SECOND);
    assert_int_equal(health_at(&w, 1000 * SECOND), 200);
    assert_non_null(strstr(body(&w), "\"step\":null"));

    engine_run(&w.engine, 50); /* something runs now, and will for a while */
    assert_int_equal(health_at(&w, 1000 * SECOND), 200); /* though nobody has looked */
    look_at(&w, 1000 * SECOND);
    look_at(&w, 1020 * SECOND);
    assert_int_equal(health_at(&w, 1029 * SECOND), 200);
    assert_int_equal(health_at(&w, 1030 * SECOND), 503);
    assert_int_equal(json_number(body(&w), "step"), 50);
    assert_int_equal(json_number(body(&w), "quiet_s"), 30);
    assert_int_equal(json_number(body(&w), "unfinished"),
                     quire_monitor_get_num_unfinished(w.engine.monitor));
    assert_true(json_number(body(&w), "unfinished") > 0);

    engine_run(&w.engine, 1);
    assert_int_equal(health_at(&w, 1031 * SECOND), 200);
    look_at(&w, 1031 * SECOND);
    assert_int_equal(health_at(&w, 1032 * SECOND), 200);
    engine_drain(&w.engine);
    look_at(&w, 1033 * SECOND);
    assert_int_equal(health_at(&w, 2000 * SECOND), 200); /* it has nothing to do */
    look_at(&w, 2000 * SECOND);
    engine_add(&w.engine); /* and now it has, for the first time since long */
    look_at(&w, 2001 * SECOND);
    assert_int_equal(health_at(&w, 2029 * SECOND), 200);
    assert_int_equal(health_at(&w, 2030 * SECOND), 503);
    close_world(&w);
}

static void the_page_names_its_script(void **state)
{
    (void)state;
    static const char PAGE[] = "<style>b{}</style><script>alert(1)</script>";
    world w;
    open_world(&w);
    qr_http_request request = request_of("GET", "/");
    assert_int_equal(ask(&w, &request), 200);
    assert_true(w.response.page_bytes > 1000);
    assert_non_null(strstr(w.response.policy, "script-src 'sha256-"));
    assert_non_null(strstr(w.response.policy, "connect-src 'self'"));
    assert_null(strstr(w.response.policy, "unsafe"));
    assert_int_equal(qr_http_page_set(&w.site, PAGE, sizeof PAGE - 1), QUIRE_OK);
    assert_non_null(strstr(w.site.page_policy, /* by openssl dgst -sha256 -binary | base64 */
                           "script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"));
    assert_int_equal(qr_http_page_set(&w.site, "<script>", 8), QUIRE_OK);
    assert_non_null(strstr(w.site.page_policy, "script-src 'none'; style-src 'none'"));
    close_world(&w);
}

static void streams_begin_where_the_client_was(void **state)
{
    (void)state;
    world w;
    open_world(&w);
    qr_http_request request = request_of("GET", "/events");
    assert_int_equal(ask(&w, &request), 200);
    assert_true(w.response.is_stream && !w.response.has_after);
    request.last_event_id = bytes_of("17");
    assert_int_equal(ask(&w, &request), 200);
    assert_true(w.response.is_stream && w.response.has_after && w.response.after == 17);
    request.last_event_id = bytes_of("seventeen");
    assert_int_equal(ask(&w, &request), 200);
    assert_true(w.response.is_stream && !w.response.has_after);
    qr_http_answer_full(&w.response);
    assert_int_equal(w.response.status, 503);
    assert_string_equal(w.response.header_name, "Retry-After");
    assert_false(w.response.is_stream);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_is_wrong_answers),
        cmocka_unit_test(the_token_may_be_in_the_query),
        cmocka_unit_test(hosts_are_needed_once),
        cmocka_unit_test(queries_have_an_end),
        cmocka_unit_test(large_requests_are_refused_early),
        cmocka_unit_test(a_snapshot_has_the_monitors_numbers),
        cmocka_unit_test(snapshots_can_be_paged),
        cmocka_unit_test(steps_have_two_ends),
        cmocka_unit_test(events_are_told_in_short),
        cmocka_unit_test(bad_values_are_named),
        cmocka_unit_test(metrics_come_in_two_formats),
        cmocka_unit_test(health_is_steps_that_are_made),
        cmocka_unit_test(the_page_names_its_script),
        cmocka_unit_test(streams_begin_where_the_client_was),
    };
    return cmocka_run_group_tests_name("http_handler", tests, NULL, NULL);
}
