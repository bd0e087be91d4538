/* http/fuzz_handler.c - the handler against requests that nobody meant.
 *
 *      method \n path \n host \n authorization \n accept \n last-event-id \n args ...
 *
 * each arg is a line "name=value" or "name"; a header whose line begins with "-" is absent.
 * Whatever the bytes, there is one answer, it is well-formed, and it is no more than the asker may
 * have. With libFuzzer (target fuzz_http_libfuzzer of a build with clang), or alone: see
 * base/mutate.h.
 */
#include "base/mutate.h"
#include "http/engine.h"
#include "http/handler.h"
#include "http/json_check.h"
#include "http/site.h"

static const char TOKEN[] = "fuzz-token-0123456789";

static engine the_engine;
static qr_http_site sites[2]; /* without and with a token */

static void open_sites(void)
{
    static const char *const HOSTS[] = {"quire.example"};
    engine_open(&the_engine, 5, true, 8);
    engine_run(&the_engine, 300);
    for (size_t i = 0; i < COUNT(sites); i++) {
        uint32_t bad;
        sites[i].monitor = the_engine.monitor;
        sites[i].info = *quire_monitor_get_info(the_engine.monitor);
        sites[i].health.stuck_ns = UINT64_MAX;
        MUTATE_EXPECT(qr_http_address_read(&sites[i].access.address, "10.1.2.3", 8));
        MUTATE_EXPECT(qr_http_access_set_hosts(&sites[i].access, HOSTS, 1, &bad) == QUIRE_OK);
        MUTATE_EXPECT(qr_http_page_init(&sites[i]) == QUIRE_OK);
    }
    MUTATE_EXPECT(qr_http_access_set_token(&sites[1].access, TOKEN));
}

static quire_bytes take_line(const uint8_t **at, size_t *left)
{
    const uint8_t *end = *left == 0 ? NULL : memchr(*at, '\n', *left);
    quire_bytes line = {*at, end == NULL ? *left : (size_t)(end - *at)};
    size_t used = line.len + (end != NULL);
    *at += used;
    *left -= used;
    return line;
}

static quire_bytes take_header(const uint8_t **at, size_t *left)
{
    quire_bytes line = take_line(at, left);
    bool is_absent = line.len > 0 && *(const char *)line.data == '-';
    return is_absent ? (quire_bytes){NULL, 0} : line;
}

static qr_http_request make_request(const uint8_t *bytes, size_t num_bytes)
{
    qr_http_request request = {.num_hosts = 1, .now_ns = 1000};
    request.method = take_line(&bytes, &num_bytes);
    request.path = take_line(&bytes, &num_bytes);
    request.host = take_header(&bytes, &num_bytes);
    request.authorization = take_header(&bytes, &num_bytes);
    request.accept = take_header(&bytes, &num_bytes);
    request.last_event_id = take_header(&bytes, &num_bytes);
    while (num_bytes > 0) {
        quire_bytes line = take_line(&bytes, &num_bytes);
        const char *text = line.data;
        const char *equal = line.len == 0 ? NULL : memchr(text, '=', line.len);
        size_t len = equal == NULL ? line.len : (size_t)(equal - text);
        qr_http_arg arg = {.name = {text, len}};
        if (equal != NULL)
            arg.value = (quire_bytes){equal + 1, line.len - len - 1};
        if (request.num_args < QR_HTTP_MAX_ARGS)
            request.args[request.num_args] = arg;
        request.num_args++;
    }
    return request;
}

static bool is_same(quire_bytes bytes, const char *text)
{
    return bytes.len == strlen(text) && memcmp(bytes.data, text, bytes.len) == 0;
}

static bool knows_token(const qr_http_request *request)
{
    const char *authorization = request->authorization.data;
    size_t len = request->authorization.len;
    for (size_t i = 0; authorization != NULL && i + sizeof TOKEN - 1 <= len; i++)
        if (memcmp(authorization + i, TOKEN, sizeof TOKEN - 1) == 0)
            return true;
    for (uint32_t i = 0; i < request->num_args && i < QR_HTTP_MAX_ARGS; i++)
        if (request->args[i].value.data != NULL && is_same(request->args[i].value, TOKEN))
            return true;
    return false;
}

static void check_text(const qr_http_response *response)
{
    const qr_http_body *body = &response->body;
    if (strcmp(response->content_type, "application/json") == 0)
        MUTATE_EXPECT(json_check(body->bytes, body->len));
    for (size_t i = 0; response->status != 200 && i < body->len; i++)
        MUTATE_EXPECT(body->bytes[i] == '\n' || (body->bytes[i] >= ' ' && body->bytes[i] <= '~'));
    /* 400 names a value that the asker has sent */
    for (size_t i = 0; response->status != 400 && i + sizeof TOKEN - 1 <= body->len; i++)
        MUTATE_EXPECT(memcmp(body->bytes + i, TOKEN, sizeof TOKEN - 1) != 0);
}

static void check_response(const qr_http_request *request, const qr_http_response *response,
                           bool has_token)
{
    static const uint32_t KNOWN[] = {200, 400, 401, 404, 405, 421};
    bool is_known = false;
    for (size_t i = 0; i < COUNT(KNOWN); i++)
        is_known |= response->status == KNOWN[i];
    MUTATE_EXPECT(is_known && response->content_type != NULL && !response->body.is_failed);
    MUTATE_EXPECT((response->header_name == NULL) == (response->header_value == NULL));
    bool may_know = !has_token || knows_token(request);
    MUTATE_EXPECT(may_know || response->status == 401 || response->status == 421);
    if (response->status == 200) {
        MUTATE_EXPECT(is_same(request->method, "GET") || is_same(request->method, "HEAD"));
        MUTATE_EXPECT(response->is_stream || response->page != NULL || response->body.len > 0);
    }
    if (response->page == NULL && !response->is_stream)
        check_text(response);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t num_bytes)
{
    if (the_engine.sched == NULL)
        open_sites();
    const qr_http_request request = make_request(bytes, num_bytes);
    for (size_t i = 0; i < COUNT(sites); i++) {
        qr_http_response response;
        qr_http_answer(&sites[i], &request, &response);
        check_response(&request, &response, i == 1);
        qr_http_body_free(&response.body);
    }
    return 0;
}

#ifndef QUIRE_LIBFUZZER

static const char *const SAMPLES[] = {
    "GET\n/\nlocalhost\n-\n-\n-\n",
    ("GET\n/metrics\n127.0.0.1:80\nBearer fuzz-token-0123456789\n"
     "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1\n-\n"),
    "HEAD\n/healthz\n[::1]:8000\n-\n*/*\n-\ntoken=fuzz-token-0123456789\n",
    "GET\n/snapshot\nquire.example\n-\n-\n-\nafter=12\nlimit=100\ntoken=fuzz-token-0123456789\n",
    "GET\n/snapshot\n10.1.2.3\n-\n-\n-\nafter=9007199254740992\n",
    "GET\n/events\nLOCALHOST\nbearer fuzz-token-0123456789\n-\n250\n",
    "GET\n/blocks\nlocalhost\n-\n-\n-\ntoken=fuzz-token-0123456789\n",
    "POST\n/\nevil.example\nBasic eA==\n-\n-\n",
    "GET\n/nothing\nlocalhost\n-\n-\n-\n",
};
static const char *const WORDS[] = {
    "GET",
    "HEAD",
    "POST",
    "/",
    "/metrics",
    "/snapshot",
    "/blocks",
    "/events",
    "/healthz",
    "localhost",
    "[::1]",
    "[",
    "]",
    ":",
    ":65536",
    "10.1.2.3",
    "\n",
    "-\n",
    "\0",
    "after",
    "limit",
    "=",
    "token",
    "token=",
    "0",
    "1000",
    "1001",
    "-1",
    "18446744073709551616",
    "fuzz-token-0123456789",
    "Bearer ",
    ";q=0",
    ",",
    "application/openmetrics-text",
    "\xff\xfe",
    "<script>",
    "%00",
    "\"",
    "\\",
    "after=\nafter=\nafter=\nafter=\nafter=\nafter=\nafter=\nafter=\nafter=\n",
};

int main(int argc, char **argv)
{
    return mutate_strings(argc, argv, 8000, SAMPLES, COUNT(SAMPLES), WORDS, COUNT(WORDS));
}

#endif
