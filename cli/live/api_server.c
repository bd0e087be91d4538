#include "api_server.h"
#include "api_answer.h"
#include "output/failure.h"

#include <quire/version.h>

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_BODY = 64 << 20,
    MAX_CONNECTIONS = 16384,
    IDLE_S = 60,
    CHUNK_BYTES = 16 << 10,
    LINE_BYTES = 32 << 10,
    FIRST_BODY_BYTES = 4096,
    HOST_BYTES = 256
};

static const char JSON[] = "application/json";

struct api_server {
    api_server_config config;
    struct MHD_Daemon *daemon;
    int socket;
    uint32_t port;
    double started_unix_s;
    _Atomic uint64_t num_asks;
};

/* A request from its headers to the end of its answer. */
typedef struct call {
    api_server *server;
    struct MHD_Connection *connection;
    char *body;
    size_t body_bytes;
    size_t body_room;
    bool is_too_long;
    bool has_no_memory;

    api_subject subject; /* its ask: from inbox_submit to inbox_leave */
    ask *ask;
    ask_progress seen;
    char *out; /* of a stream: text that is not sent yet */
    size_t out_at;
    size_t out_bytes;
    bool has_begun; /* a chunk was made */
    bool has_last;
} call;

/* ---- answers that are there --------------------------------------------------- */

/* Takes over the text; NULL: no memory, and the connection is closed. */
static enum MHD_Result reply(struct MHD_Connection *connection, uint32_t status, const char *type,
                             char *text)
{
    if (text == NULL)
        return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(text);
        return MHD_NO;
    }
    enum MHD_Result result = MHD_NO;
    if (MHD_add_response_header(response, "Content-Type", type) == MHD_YES &&
        (status != 401 ||
         MHD_add_response_header(response, "WWW-Authenticate", "Bearer") == MHD_YES))
        result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result reply_error(struct MHD_Connection *connection, uint32_t status,
                                   const char *field, const char *message)
{
    return reply(connection, status, JSON, api_answer_error(status, field, message));
}

static enum MHD_Result reply_metrics(api_server *s, struct MHD_Connection *connection)
{
    char name[16];
    snprintf(name, sizeof name, "%u", s->config.rank);
    quire_metrics_format format = QUIRE_METRICS_FORMAT_INIT;
    format.model_name = s->config.limits.model;
    format.engine = name;
    uint64_t bytes = 0;
    char *text = NULL;
    int status = QUIRE_E_TOO_SMALL;
    while (status == QUIRE_E_TOO_SMALL) {
        uint64_t room = bytes + bytes / 8 + 4096;
        char *larger = realloc(text, room);
        if (larger == NULL)
            break;
        text = larger;
        status = quire_monitor_write_metrics(s->config.monitor, &format, text, room, &bytes);
    }
    if (status != QUIRE_OK) {
        free(text);
        return MHD_NO;
    }
    return reply(connection, 200, "text/plain; version=0.0.4; charset=utf-8", text);
}

static enum MHD_Result reply_version(struct MHD_Connection *connection)
{
    char text[64];
    snprintf(text, sizeof text, "{\"version\":\"quire %s\"}", quire_version_string());
    return reply(connection, 200, JSON, strdup(text));
}

/* ---- asks ---------------------------------------------------------------------- */

static int socket_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info == NULL ? -1 : info->connect_fd;
}

/* Nobody reads from a connection that sleeps: that its client has closed must be asked. */
static bool is_gone(void *asker)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    return getsockopt(socket_of(asker), IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
           info.tcpi_state != TCP_ESTABLISHED;
}

void api_server_sleep(void *asker)
{
    MHD_suspend_connection(asker);
}

void api_server_wake(void *asker)
{
    MHD_resume_connection(asker);
}

/* "cmpl-", and the client's own id, or one that no other answer of this server has. */
static void write_id(call *c)
{
    const char *kind = c->ask->request.kind == API_CHAT ? "chatcmpl" : "cmpl";
    const char *given = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, "X-Request-Id");
    unsigned long long number = atomic_fetch_add(&c->server->num_asks, 1);
    bool is_usable = given != NULL && given[0] != '\0' && strlen(given) <= 64;
    for (const char *at = given; is_usable && *at != '\0'; at++)
        is_usable = *at > ' ' && *at < 0x7f;
    if (is_usable)
        snprintf(c->subject.id, sizeof c->subject.id, "%s-%s", kind, given);
    else
        snprintf(c->subject.id, sizeof c->subject.id, "%s-%08llx%04x%012llx", kind,
                 (unsigned long long)c->server->started_unix_s, c->server->config.rank, number);
}

/* A chunk more to send. False: no memory. */
static bool add_out(call *c, char *text)
{
    size_t bytes = text != NULL ? strlen(text) : 0;
    char *all = text != NULL ? realloc(c->out, c->out_bytes + bytes + 1) : NULL;
    if (all != NULL) {
        memcpy(all + c->out_bytes, text, bytes + 1);
        c->out = all;
        c->out_bytes += bytes;
    }
    free(text);
    return all != NULL;
}

/* What is new of a stream, as chunks. */
static bool make_chunks(call *c, const ask_progress *now)
{
    bool is_first_of_chat = !c->has_begun && c->ask->request.kind == API_CHAT;
    bool ok = !is_first_of_chat || add_out(c, api_answer_role(&c->subject));
    ok = ok && add_out(c, api_answer_chunk(&c->subject, now, c->seen.num_generated));
    c->has_begun = true;
    c->seen = *now;
    if (ok && now->end != ASK_OPEN) {
        ok = add_out(c, api_answer_last(&c->subject, now));
        c->has_last = true;
    }
    return ok;
}

/* For libmicrohttpd: what to send now. 0: the connection sleeps. */
static ssize_t read_stream(void *user, uint64_t position, char *to, size_t most)
{
    (void)position;
    call *c = user;
    ask_progress now;
    if (c->out_at == c->out_bytes) {
        c->out_at = c->out_bytes = 0;
        if (c->has_last)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (is_gone(c->connection))
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (!inbox_look(c->server->config.inbox, c->ask, &c->seen, false, &now))
            return 0;
        if (!make_chunks(c, &now))
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t left = c->out_bytes - c->out_at;
    size_t bytes = left < most ? left : most;
    memcpy(to, c->out + c->out_at, bytes);
    c->out_at += bytes;
    return (ssize_t)bytes;
}

static enum MHD_Result reply_stream(call *c)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK_BYTES, read_stream, c, NULL);
    if (response == NULL)
        return MHD_NO;
    enum MHD_Result result = MHD_NO;
    if (MHD_add_response_header(response, "Content-Type", "text/event-stream; charset=utf-8") ==
            MHD_YES &&
        MHD_add_response_header(response, "Cache-Control", "no-cache") == MHD_YES)
        result = MHD_queue_response(c->connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

/* The ask has begun or ended: until then its status is not known. */
static enum MHD_Result reply_ask(call *c)
{
    ask_progress now;
    const api_request *q = &c->ask->request;
    bool is_stream = q->stream; /* otherwise it sleeps until the end */
    if (is_gone(c->connection))
        return MHD_NO;
    if (!inbox_look(c->server->config.inbox, c->ask, &c->seen, !is_stream, &now))
        return MHD_YES;
    if (now.end == ASK_REFUSED) {
        char text[API_MESSAGE_BYTES];
        snprintf(text, sizeof text,
                 "a prompt of %u tokens and an answer of %u do not fit the whole pool "
                 "(--num-gpu-blocks makes it larger)",
                 q->num_tokens, q->max_tokens);
        return reply_error(c->connection, 400, "prompt", text);
    }
    if (is_stream)
        return make_chunks(c, &now) ? reply_stream(c) : MHD_NO;
    return reply(c->connection, 200, JSON, api_answer_whole(&c->subject, &now));
}

static enum MHD_Result submit(call *c, api_kind kind)
{
    const api_server_config *config = &c->server->config;
    api_request request;
    api_refusal refusal;
    bool ok = api_request_read(&request, kind, c->body, c->body_bytes, &config->limits, &refusal);
    if (!ok) {
        api_request_free(&request);
        return reply_error(c->connection, refusal.status, refusal.field, refusal.message);
    }
    if (kind == API_TOKENIZE) {
        char *text = api_answer_tokens(&request, config->limits.max_model_len);
        api_request_free(&request);
        return reply(c->connection, 200, JSON, text);
    }
    c->ask = ask_create(&request, config->answer_tokens);
    if (c->ask == NULL) {
        api_request_free(&request);
        return reply_error(c->connection, 503, NULL, "not enough memory for the request");
    }
    c->subject.ask = c->ask;
    c->subject.model = config->limits.model;
    write_id(c);
    inbox_status status = inbox_submit(config->inbox, c->ask, c->connection);
    if (status == INBOX_OK)
        return reply_ask(c);
    ask_free(c->ask);
    c->ask = NULL;
    char text[128];
    snprintf(text, sizeof text, "too many requests run and wait (at most %u)",
             config->inbox->max_open);
    return reply_error(c->connection, 503, NULL,
                       status == INBOX_FULL ? text : "the engine is stopping");
}

/* ---- requests ------------------------------------------------------------------ */

/* Compares all bytes, wherever the first difference is. */
static bool has_token(const api_server *s, struct MHD_Connection *connection)
{
    static const char scheme[] = "Bearer ";
    const char *token = s->config.token;
    const char *sent = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    if (token == NULL)
        return true;
    if (sent == NULL || strncmp(sent, scheme, sizeof scheme - 1) != 0)
        return false;
    sent += sizeof scheme - 1;
    size_t bytes = strlen(token);
    size_t sent_bytes = strlen(sent);
    unsigned difference = bytes != sent_bytes;
    for (size_t i = 0; i < bytes; i++)
        difference |= (unsigned)(token[i] ^ sent[sent_bytes > 0 ? i % sent_bytes : 0]);
    return difference == 0;
}

/* The name of a Host header, without its port and the brackets of an IPv6 address. */
static bool read_host(const char *host, char name[HOST_BYTES])
{
    const char *from = host[0] == '[' ? host + 1 : host;
    size_t bytes = strcspn(from, host[0] == '[' ? "]" : ":");
    if (bytes == 0 || bytes >= HOST_BYTES)
        return false;
    memcpy(name, from, bytes);
    name[bytes] = '\0';
    return true;
}

static bool has_host(const api_server *s, struct MHD_Connection *connection)
{
    char name[HOST_BYTES];
    unsigned char address[sizeof(struct in6_addr)];
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    if (host == NULL || !read_host(host, name))
        return false;
    bool is_known = strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, address) == 1 ||
                    inet_pton(AF_INET6, name, address) == 1;
    for (uint32_t i = 0; i < s->config.num_hosts; i++)
        is_known = is_known || strcasecmp(name, s->config.hosts[i]) == 0;
    return is_known;
}

static bool is_json(struct MHD_Connection *connection)
{
    const char *type = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Type");
    size_t bytes = sizeof JSON - 1;
    return type != NULL && strncasecmp(type, JSON, bytes) == 0 &&
           (type[bytes] == '\0' || type[bytes] == ';' || type[bytes] == ' ');
}

typedef enum place {
    PLACE_NONE,
    PLACE_COMPLETIONS,
    PLACE_CHAT,
    PLACE_TOKENIZE,
    PLACE_MODELS,
    PLACE_HEALTH,
    PLACE_VERSION,
    PLACE_METRICS
} place;

static const struct {
    const char *path;
    place place;
    const char *method;
} places[] = {{"/v1/completions", PLACE_COMPLETIONS, "POST"},
              {"/v1/chat/completions", PLACE_CHAT, "POST"},
              {"/tokenize", PLACE_TOKENIZE, "POST"},
              {"/v1/models", PLACE_MODELS, "GET"},
              {"/health", PLACE_HEALTH, "GET"},
              {"/version", PLACE_VERSION, "GET"},
              {"/metrics", PLACE_METRICS, "GET"}};

static enum MHD_Result answer_get(call *c, place where)
{
    api_server *s = c->server;
    struct MHD_Connection *connection = c->connection;
    switch (where) {
    case PLACE_MODELS:
        return reply(connection, 200, JSON,
                     api_answer_models(s->config.limits.model, s->started_unix_s,
                                       s->config.limits.max_model_len));
    case PLACE_HEALTH:
        if (inbox_is_closed(s->config.inbox))
            return reply_error(connection, 503, NULL, "the engine is stopping");
        return reply(connection, 200, JSON, strdup(""));
    case PLACE_VERSION:
        return reply_version(connection);
    default:
        return reply_metrics(s, connection);
    }
}

static enum MHD_Result answer(call *c, const char *path, const char *method)
{
    place where = PLACE_NONE;
    const char *allowed = NULL;
    char text[256];
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (strcmp(places[i].path, path) == 0) {
            where = places[i].place;
            allowed = places[i].method;
        }
    if (!has_host(c->server, c->connection))
        return reply_error(c->connection, 421, "Host",
                           "invalid Host (expected localhost, a numeric address, or a name of "
                           "--host)");
    if (where != PLACE_HEALTH && !has_token(c->server, c->connection))
        return reply_error(c->connection, 401, "Authorization",
                           "the header \"Authorization: Bearer TOKEN\" is missing or wrong");
    if (where == PLACE_NONE) {
        snprintf(text, sizeof text,
                 "no such path (there are /v1/completions, /v1/chat/completions, /v1/models, "
                 "/tokenize, /health, /version and /metrics)");
        return reply_error(c->connection, 404, NULL, text);
    }
    if (strcmp(method, allowed) != 0) {
        snprintf(text, sizeof text, "invalid method for %s (expected %s)", path, allowed);
        return reply_error(c->connection, 405, NULL, text);
    }
    if (strcmp(allowed, "GET") == 0)
        return answer_get(c, where);
    if (c->has_no_memory)
        return reply_error(c->connection, 503, NULL, "not enough memory for the body");
    if (c->is_too_long) {
        snprintf(text, sizeof text, "the body is too long (at most %d bytes)", MAX_BODY);
        return reply_error(c->connection, 413, NULL, text);
    }
    if (!is_json(c->connection)) /* also keeps out pages of strangers in a browser */
        return reply_error(c->connection, 415, "Content-Type",
                           "invalid Content-Type (expected application/json)");
    return submit(c, where == PLACE_COMPLETIONS ? API_COMPLETION
                     : where == PLACE_CHAT      ? API_CHAT
                                                : API_TOKENIZE);
}

static void add_body(call *c, const char *bytes, size_t n)
{
    if (n > MAX_BODY - c->body_bytes) {
        c->is_too_long = true;
        return;
    }
    if (c->body_bytes + n > c->body_room) {
        size_t room = 2 * (c->body_bytes + n) + FIRST_BODY_BYTES;
        char *larger = realloc(c->body, room);
        c->has_no_memory |= larger == NULL;
        if (larger == NULL)
            return;
        c->body = larger;
        c->body_room = room;
    }
    memcpy(c->body + c->body_bytes, bytes, n);
    c->body_bytes += n;
}

/* libmicrohttpd calls this when the headers are there, for each part of the body, when the request
 * is whole, and when a connection that slept is woken. */
static enum MHD_Result take_request(void *user, struct MHD_Connection *connection, const char *path,
                                    const char *method, const char *version, const char *upload,
                                    size_t *upload_bytes, void **context)
{
    (void)version;
    call *c = *context;
    if (c == NULL) {
        c = calloc(1, sizeof *c);
        if (c == NULL)
            return MHD_NO;
        c->server = user;
        c->connection = connection;
        *context = c;
        return MHD_YES;
    }
    if (*upload_bytes > 0) {
        add_body(c, upload, *upload_bytes);
        *upload_bytes = 0;
        return MHD_YES;
    }
    return c->ask != NULL ? reply_ask(c) : answer(c, path, method);
}

/* The answer was sent, or the client has left. */
static void request_is_over(void *user, struct MHD_Connection *connection, void **context,
                            enum MHD_RequestTerminationCode why)
{
    (void)user;
    (void)connection;
    (void)why;
    call *c = *context;
    *context = NULL;
    if (c == NULL)
        return;
    if (c->ask != NULL)
        inbox_leave(c->server->config.inbox, c->ask);
    free(c->body);
    free(c->out);
    free(c);
}

/* ---- starting and stopping ----------------------------------------------------- */

typedef union any_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} any_address;

static bool get_port(api_server *s)
{
    any_address bound = {.any = {0}};
    socklen_t bytes = sizeof bound;
    if (getsockname(s->socket, &bound.any, &bytes) != 0)
        return false;
    s->port = ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
    return true;
}

static int start_listening(api_server *s)
{
    const api_server_config *c = &s->config;
    any_address to = {.any = {0}};
    socklen_t bytes = sizeof to.v4;
    int on = 1;
    to.v4.sin_family = AF_INET;
    to.v4.sin_port = htons((uint16_t)c->port);
    if (inet_pton(AF_INET, c->address, &to.v4.sin_addr) != 1) {
        to = (any_address){.any = {0}};
        to.v6.sin6_family = AF_INET6;
        to.v6.sin6_port = htons((uint16_t)c->port);
        bytes = sizeof to.v6;
        if (inet_pton(AF_INET6, c->address, &to.v6.sin6_addr) != 1)
            return fail_with("--listen: invalid address \"%s\" (expected a numeric address, such "
                             "as 127.0.0.1)",
                             c->address);
    }
    s->socket = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->socket >= 0) {
        setsockopt(s->socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(s->socket, &to.any, bytes) == 0 && listen(s->socket, SOMAXCONN) == 0 &&
            get_port(s))
            return 0;
    }
    return fail_with("--listen: cannot listen on %s port %u: %s; choose another address or port",
                     c->address, c->port, strerror(errno));
}

api_server *api_server_start(const api_server_config *config)
{
    api_server *s = calloc(1, sizeof *s);
    struct timespec now;
    if (s == NULL) {
        fail_with("not enough memory");
        return NULL;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    s->config = *config;
    s->socket = -1;
    s->started_unix_s = (double)now.tv_sec;
    if (start_listening(s) == 0) {
        s->daemon = MHD_start_daemon(
            MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL,
            NULL, take_request, s, MHD_OPTION_LISTEN_SOCKET, s->socket, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)LINE_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
            request_is_over, NULL, MHD_OPTION_END);
        if (s->daemon == NULL)
            fail_with("cannot start the HTTP server: no thread or no memory");
    }
    if (s->daemon != NULL)
        return s;
    if (s->socket >= 0)
        close(s->socket);
    free(s);
    return NULL;
}

void api_server_stop(api_server *s)
{
    if (s == NULL)
        return;
    MHD_stop_daemon(s->daemon); /* closes its socket too */
    free(s);
}

uint32_t api_server_port(const api_server *s)
{
    return s->port;
}

void api_server_tick(api_server *s)
{
    inbox_wake_gone(s->config.inbox, is_gone);
}
