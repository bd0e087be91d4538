#include "http/handler.h"

#include "http/format.h"
#include "http/words.h"

#include <inttypes.h>

enum { MAX_HEADER_BYTES = 8192, METRICS_ROOM = 96 << 10 };

static const char TEXT[] = "text/plain; charset=utf-8";
static const char JSON[] = "application/json";

/* ---- small things ----------------------------------------------------------- */

static uint32_t num_kept_args(const qr_http_request *request)
{
    return request->num_args < QR_HTTP_MAX_ARGS ? request->num_args : QR_HTTP_MAX_ARGS;
}

/* The value of the first of that name. */
static quire_bytes find_arg(const qr_http_request *request, const char *name)
{
    for (uint32_t i = 0; i < num_kept_args(request); i++)
        if (qr_http_is_word(request->args[i].name, name))
            return request->args[i].value;
    return (quire_bytes){NULL, 0};
}

static void sentence(qr_http_response *response, uint32_t status, const char *text)
{
    response->status = status;
    response->content_type = TEXT;
    qr_http_body_text(&response->body, text);
}

/* An answer that quotes what was wrong. */
static void refuse_quoted(qr_http_response *response, const char *text, quire_bytes quoted)
{
    sentence(response, 400, text);
    qr_http_body_quote(&response->body, quoted);
    qr_http_body_text(&response->body, "\n");
}

static void with_header(qr_http_response *response, const char *name, const char *value)
{
    response->header_name = name;
    response->header_value = value;
}

/* ---- the endpoints ---------------------------------------------------------- */

static void answer_page(const qr_http_site *site, const qr_http_request *request,
                        qr_http_response *response)
{
    (void)request;
    response->content_type = "text/html; charset=utf-8";
    response->policy = site->page_policy;
    response->page = site->page;
    response->page_bytes = site->page_bytes;
}

/* One entry of Accept: a type, then parameters, of which q=0 says "anything but that". */
static bool is_openmetrics(quire_bytes entry)
{
    quire_bytes type = qr_http_cut(&entry, ';');
    quire_bytes rest;
    if (!qr_http_is_name(type, "application/openmetrics-text"))
        return false;
    while (entry.len > 0) {
        if (!qr_http_has_prefix(qr_http_cut(&entry, ';'), "q=", &rest))
            continue;
        const char *digits = rest.data;
        for (size_t i = 0; i < rest.len; i++)
            if (digits[i] >= '1' && digits[i] <= '9')
                return true;
        return false;
    }
    return true;
}

static bool wants_openmetrics(quire_bytes accept)
{
    while (accept.len > 0)
        if (is_openmetrics(qr_http_cut(&accept, ',')))
            return true;
    return false;
}

static void answer_metrics(const qr_http_site *site, const qr_http_request *request,
                           qr_http_response *response)
{
    quire_metrics_format format = {.size = sizeof format,
                                   .is_openmetrics = wants_openmetrics(request->accept),
                                   .model_name = site->model_name.text,
                                   .engine = site->engine.is_known ? site->engine.text : NULL};
    qr_http_body *body = &response->body;
    size_t room_bytes = METRICS_ROOM;
    size_t bytes = 0;
    int status = QUIRE_E_TOO_SMALL;
    while (status == QUIRE_E_TOO_SMALL) { /* numbers grow: each time there is more room */
        char *room = qr_http_body_room(body, room_bytes);
        if (room == NULL)
            return;
        status = quire_monitor_write_metrics(site->monitor, &format, room, room_bytes, &bytes);
        room_bytes = bytes + bytes / 8 + 64;
    }
    body->len = status == QUIRE_OK ? bytes : 0;
    body->is_failed |= status != QUIRE_OK;
    response->content_type = format.is_openmetrics
                                 ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                 : "text/plain; version=0.0.4; charset=utf-8";
}

static void answer_health(const qr_http_site *site, const qr_http_request *request,
                          qr_http_response *response)
{
    qr_http_state state = qr_http_health_ask(&site->health, site->monitor, request->now_ns);
    qr_http_body *body = &response->body;
    response->status = state.is_stuck ? 503 : 200;
    response->content_type = JSON;
    qr_http_body_print(body, "{\"status\":\"%s\",\"step\":", state.is_stuck ? "stuck" : "ok");
    if (state.step > 0)
        qr_http_body_print(body, "%" PRIu64, state.step);
    else
        qr_http_body_text(body, "null");
    qr_http_body_print(body,
                       ",\"unfinished\":%" PRIu64 ",\"quiet_s\":", (uint64_t)state.num_unfinished);
    qr_http_body_us(body, state.quiet_ns / 1000000);
    qr_http_body_text(body, "}\n");
}

/* False, with a sentence, where a value is none or a name is not known. */
static bool read_snapshot_args(const qr_http_request *request, qr_http_response *response,
                               uint64_t *after, uint64_t *limit, bool *has_after)
{
    *limit = QR_HTTP_SNAPSHOT_STEPS;
    *has_after = false;
    for (uint32_t i = 0; i < request->num_args; i++) {
        const qr_http_arg *arg = &request->args[i];
        bool is_after = qr_http_is_word(arg->name, "after");
        bool is_limit = qr_http_is_word(arg->name, "limit");
        *has_after |= is_after;
        if (is_after && !qr_http_read_number(arg->value, after))
            refuse_quoted(response, "after must be the number of a step, not ", arg->value);
        else if (is_limit && !(qr_http_read_number(arg->value, limit) && *limit >= 1 &&
                               *limit <= QR_HTTP_SNAPSHOT_LIMIT))
            refuse_quoted(response, "limit must be a number from 1 to 1000, not ", arg->value);
        else if (!is_after && !is_limit && !qr_http_is_word(arg->name, "token"))
            refuse_quoted(response, "unknown parameter (expected after or limit): ", arg->name);
        else
            continue;
        return false;
    }
    return true;
}

static void answer_snapshot(const qr_http_site *site, const qr_http_request *request,
                            qr_http_response *response)
{
    uint64_t after = 0;
    uint64_t limit;
    bool has_after;
    if (!read_snapshot_args(request, response, &after, &limit, &has_after))
        return;
    qr_http_body *body = &response->body;
    response->content_type = JSON;
    qr_http_body_text(body, "{\"version\":1,");
    qr_http_format_meta(body, site);
    qr_http_body_text(body, ",\"steps\":[");
    uint64_t last = qr_http_last_step(site->monitor);
    if (!has_after)
        after = last < limit ? 0 : last - limit;
    const qr_http_range range = {.after = after, .until = UINT64_MAX, .limit = limit};
    qr_http_rows rows = qr_http_format_steps(body, site->monitor, &range);
    qr_http_body_print(body,
                       "],\"skipped\":%" PRIu64 ",\"names\":", has_after ? rows.num_skipped : 0);
    qr_http_format_names(body, site->monitor);
    qr_http_body_text(body, "}\n");
}

/* A token is the only parameter. */
static bool has_other_arg(const qr_http_request *request, qr_http_response *response)
{
    for (uint32_t i = 0; i < request->num_args; i++) {
        if (qr_http_is_word(request->args[i].name, "token"))
            continue;
        refuse_quoted(response, "blocks has no parameters, and no ", request->args[i].name);
        return true;
    }
    return false;
}

static void answer_blocks(const qr_http_site *site, const qr_http_request *request,
                          qr_http_response *response)
{
    if (has_other_arg(request, response))
        return;
    qr_http_body *body = &response->body;
    response->content_type = JSON;
    qr_http_body_print(body, "{\"version\":1,\"map_ms\":%u,\"maps\":", site->info.map_ms);
    qr_http_format_maps(body, site->monitor);
    qr_http_body_text(body, "}\n");
}

static void answer_events(const qr_http_site *site, const qr_http_request *request,
                          qr_http_response *response)
{
    (void)site;
    response->content_type = "text/event-stream";
    response->is_stream = true;
    response->has_after = qr_http_read_number(request->last_event_id, &response->after);
}

static const struct {
    const char *path;
    void (*answer)(const qr_http_site *site, const qr_http_request *request,
                   qr_http_response *response);
} ENDPOINTS[] = {
    {"/", answer_page},          {"/metrics", answer_metrics},
    {"/healthz", answer_health}, {"/snapshot", answer_snapshot},
    {"/blocks", answer_blocks},  {"/events", answer_events},
};
enum { NUM_ENDPOINTS = sizeof ENDPOINTS / sizeof ENDPOINTS[0] };

static void answer_unknown(qr_http_response *response)
{
    sentence(response, 404, "Not found. Available:\n");
    for (size_t i = 0; i < NUM_ENDPOINTS; i++) {
        qr_http_body_text(&response->body, ENDPOINTS[i].path);
        qr_http_body_text(&response->body, "\n");
    }
}

/* ---- who may ask ------------------------------------------------------------ */

static bool has_token(const qr_http_site *site, const qr_http_request *request)
{
    if (site->access.token_len == 0)
        return true;
    quire_bytes given = find_arg(request, "token");
    quire_bytes credentials;
    if (qr_http_has_prefix(request->authorization, "bearer ", &credentials))
        given = qr_http_cut(&credentials, '\n'); /* which no header has: all of it */
    return qr_http_access_has_token(&site->access, given);
}

static bool may_go_on(const qr_http_site *site, const qr_http_request *request,
                      qr_http_response *response)
{
    if (request->num_hosts != 1) {
        sentence(response, 400, "A request needs one Host header.\n");
    } else if (!qr_http_access_has_host(&site->access, request->host)) {
        sentence(response, 421,
                 "Invalid Host header. Allowed are localhost, the server's own address, and the "
                 "names that the server was started with.\n");
    } else if (!has_token(site, request)) {
        sentence(response, 401,
                 "Unauthenticated: send \"Authorization: Bearer TOKEN\", or ?token=TOKEN.\n");
        with_header(response, "WWW-Authenticate", "Bearer");
    } else if (!qr_http_is_word(request->method, "GET") &&
               !qr_http_is_word(request->method, "HEAD")) {
        sentence(response, 405, "Method not allowed: use GET or HEAD.\n");
        with_header(response, "Allow", "GET, HEAD");
    } else if (request->num_args > QR_HTTP_MAX_ARGS) {
        sentence(response, 400, "The query has more than 16 parameters.\n");
    } else {
        return true;
    }
    return false;
}

/* An answer that did not fit into memory becomes one that needs none. */
static void finish_answer(qr_http_response *response)
{
    static const char SORRY[] = "Out of memory.\n";
    if (!response->body.is_failed)
        return;
    qr_http_body_free(&response->body);
    *response = (qr_http_response){.status = 503,
                                   .content_type = TEXT,
                                   .header_name = "Retry-After",
                                   .header_value = "1",
                                   .page = SORRY,
                                   .page_bytes = sizeof SORRY - 1};
}

uint32_t qr_http_refuse(const qr_http_request *request, qr_http_response *response)
{
    *response = (qr_http_response){0};
    if (request->header_bytes > MAX_HEADER_BYTES)
        sentence(response, 431, "The headers have more than 8192 bytes.\n");
    else if (request->has_body)
        sentence(response, 413, "A request must have no body.\n");
    finish_answer(response);
    return response->status;
}

void qr_http_answer(const qr_http_site *site, const qr_http_request *request,
                    qr_http_response *response)
{
    *response = (qr_http_response){.status = 200};
    if (may_go_on(site, request, response)) {
        size_t i = 0;
        while (i < NUM_ENDPOINTS && !qr_http_is_word(request->path, ENDPOINTS[i].path))
            i++;
        if (i < NUM_ENDPOINTS)
            ENDPOINTS[i].answer(site, request, response);
        else
            answer_unknown(response);
    }
    finish_answer(response);
}

void qr_http_answer_full(qr_http_response *response)
{
    qr_http_body_free(&response->body);
    *response = (qr_http_response){0};
    sentence(response, 503, "Too many event streams are open.\n");
    with_header(response, "Retry-After", "5");
    finish_answer(response);
}
