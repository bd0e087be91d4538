#include "http/server.h"

#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "base/thread.h"
#include "http/handler.h"
#include "http/words.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TICK_MS = 100, ANSWER_TIMEOUTS = 6, SEND_BUFFER_BYTES = 128 << 10, CHUNK_BYTES = 16 << 10 };

/* ---- the socket that is listened to ------------------------------------------ */

typedef union any_sockaddr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} any_sockaddr;

static socklen_t fill_sockaddr(any_sockaddr *to, const qr_http_address *address, uint32_t port)
{
    memset(to, 0, sizeof *to);
    if (!address->is_ipv6) {
        to->v4.sin_family = AF_INET;
        to->v4.sin_port = htons((uint16_t)port);
        memcpy(&to->v4.sin_addr, address->bytes, 4);
        return sizeof to->v4;
    }
    to->v6.sin6_family = AF_INET6;
    to->v6.sin6_port = htons((uint16_t)port);
    memcpy(&to->v6.sin6_addr, address->bytes, 16);
    return sizeof to->v6;
}

static bool get_port(int socket, uint32_t *port)
{
    any_sockaddr bound = {.any = {0}};
    socklen_t len = sizeof bound;
    if (getsockname(socket, &bound.any, &len) != 0)
        return false;
    *port = ntohs(bound.any.sa_family == AF_INET6 ? bound.v6.sin6_port : bound.v4.sin_port);
    return true;
}

static bool start_listening(int socket, const qr_http_address *address, uint32_t *port)
{
    any_sockaddr to;
    socklen_t len = fill_sockaddr(&to, address, *port);
    int on = 1;
    int off = 0;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->is_ipv6 && qr_http_address_is_any(address)) /* all addresses are meant */
        setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    return bind(socket, &to.any, len) == 0 && listen(socket, SOMAXCONN) == 0 &&
           get_port(socket, port);
}

/* -1: the system refused, and errno says why. *port becomes the one that the system chose where it
 * was 0. */
static int open_listener(const qr_http_address *address, uint32_t *port)
{
    int family = address->is_ipv6 ? AF_INET6 : AF_INET;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (start_listening(fd, address, port))
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Closes it if it is still the listening socket of that port: who got it may have closed it. */
static void close_listener(int socket, uint32_t port)
{
    uint32_t its_port;
    int is_listening = 0;
    socklen_t len = sizeof is_listening;
    if (get_port(socket, &its_port) && its_port == port &&
        getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) == 0 && is_listening)
        close(socket);
}

/* ---- a request -------------------------------------------------------------- */

static enum MHD_Result take_header(void *user, enum MHD_ValueKind kind, const char *key,
                                   size_t key_size, const char *value, size_t value_size)
{
    (void)kind;
    qr_http_request *request = user;
    const struct {
        const char *name;
        quire_bytes *place;
    } wanted[] = {{"host", &request->host},
                  {"authorization", &request->authorization},
                  {"accept", &request->accept},
                  {"last-event-id", &request->last_event_id}};
    quire_bytes name = {key, key_size};
    quire_bytes text = {value, value_size};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (qr_http_is_name(name, wanted[i].name))
            *wanted[i].place = text;
    request->num_hosts += qr_http_is_name(name, "host");
    request->has_body |= qr_http_is_name(name, "transfer-encoding") ||
                         (qr_http_is_name(name, "content-length") && !qr_http_is_word(text, "0"));
    return MHD_YES;
}

static enum MHD_Result take_arg(void *user, enum MHD_ValueKind kind, const char *key,
                                size_t key_size, const char *value, size_t value_size)
{
    (void)kind;
    qr_http_request *request = user;
    if (request->num_args < QR_HTTP_MAX_ARGS)
        request->args[request->num_args] =
            (qr_http_arg){.name = {key, key_size}, .value = {value, value_size}};
    request->num_args++;
    return MHD_YES;
}

static void gather_request(qr_http_request *request, struct MHD_Connection *connection,
                           const char *url, const char *method)
{
    *request = (qr_http_request){
        .method = {method, strlen(method)}, .path = {url, strlen(url)}, .now_ns = qr_now_ns(NULL)};
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    request->header_bytes = info == NULL ? 0 : info->header_size;
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, take_header, request);
    MHD_get_connection_values_n(connection, MHD_GET_ARGUMENT_KIND, take_arg, request);
}

/* ---- a response ------------------------------------------------------------- */

static int socket_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info == NULL ? -1 : info->connect_fd;
}

static uint64_t address_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return qr_http_lines_address(info == NULL ? NULL : info->client_addr);
}

static ssize_t take_stream(void *user, uint64_t position, char *out, size_t most)
{
    (void)position;
    int64_t n = qr_http_hub_take(user, out, most);
    return n < 0 ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)n;
}

static void close_stream(void *user)
{
    qr_http_hub_close(user);
}

/* Nobody waits for what a suspended connection sends: that its client has closed must be asked. */
static bool is_gone(struct MHD_Connection *connection)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    return getsockopt(socket_of(connection), IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
           info.tcpi_state != TCP_ESTABLISHED;
}

/* The stream's bytes and no more lie in the system's buffers when its client is slow. */
static void limit_buffer(struct MHD_Connection *connection)
{
    int bytes = SEND_BUFFER_BYTES;
    setsockopt(socket_of(connection), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static struct MHD_Response *make_stream(quire_http *http, struct MHD_Connection *connection,
                                        qr_http_response *response)
{
    qr_http_stream *stream =
        qr_http_hub_open(&http->hub, connection, response->has_after, response->after);
    if (stream == NULL)
        return NULL;
    struct MHD_Response *made = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, CHUNK_BYTES, take_stream, stream, close_stream);
    if (made == NULL)
        qr_http_hub_close(stream);
    else
        limit_buffer(connection);
    return made;
}

/* Takes the body. */
static struct MHD_Response *make_plain(qr_http_response *response)
{
    static char empty[1];
    struct MHD_Response *made;
    if (response->page != NULL) /* never written to: the library's argument is not const */
        return MHD_create_response_from_buffer(
            response->page_bytes, (void *)(uintptr_t)response->page, MHD_RESPMEM_PERSISTENT);
    if (response->body.bytes == NULL)
        return MHD_create_response_from_buffer(0, empty, MHD_RESPMEM_PERSISTENT);
    made = MHD_create_response_from_buffer_with_free_callback(response->body.len,
                                                              response->body.bytes, qr_free);
    if (made == NULL)
        qr_http_body_free(&response->body);
    return made;
}

static bool add_headers(struct MHD_Response *made, const qr_http_response *response)
{
    static const char NOTHING[] = "default-src 'none'; frame-ancestors 'none'";
    const struct {
        const char *name;
        const char *value;
    } headers[] = {
        {"Content-Type", response->content_type},
        {"Content-Security-Policy", response->policy != NULL ? response->policy : NOTHING},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cache-Control", "no-store"},
        {response->header_name, response->header_value},
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        if (headers[i].name != NULL &&
            MHD_add_response_header(made, headers[i].name, headers[i].value) != MHD_YES)
            return false;
    return true;
}

/* MHD_NO closes the connection: better than an answer without its headers. */
static enum MHD_Result send_response(quire_http *http, struct MHD_Connection *connection,
                                     qr_http_response *response, bool is_head)
{
    struct MHD_Response *made = NULL;
    if (response->is_stream && !is_head) {
        made = make_stream(http, connection, response);
        if (made == NULL)
            qr_http_answer_full(response);
    }
    if (made == NULL)
        made = make_plain(response);
    if (made == NULL)
        return MHD_NO;
    enum MHD_Result result = MHD_NO;
    if (add_headers(made, response))
        result = MHD_queue_response(connection, response->status, made);
    MHD_destroy_response(made);
    return result;
}

/* ---- a connection ----------------------------------------------------------- */

static void set_line(quire_http *http, struct MHD_Connection *connection, qr_http_line_state state,
                     uint64_t now_ns, uint64_t until_ns)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info != NULL && info->socket_context != NULL)
        qr_http_lines_set(&http->lines, info->socket_context, state, now_ns, until_ns);
}

/* Called first when the headers are there, and again when the request is whole. */
static enum MHD_Result take_request(void *user, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *version, const char *upload,
                                    size_t *upload_bytes, void **context)
{
    (void)version;
    (void)upload;
    quire_http *http = user;
    qr_http_request request;
    qr_http_response response;
    gather_request(&request, connection, url, method);
    if (*context == NULL) {
        *context = http; /* any mark will do */
        if (qr_http_refuse(&request, &response) == 0)
            return MHD_YES;
        return send_response(http, connection, &response, false);
    }
    if (*upload_bytes > 0) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    qr_http_answer(&http->site, &request, &response);
    bool is_head = qr_http_is_word(request.method, "HEAD");
    enum MHD_Result result = send_response(http, connection, &response, is_head);
    if (response.is_stream && !is_head) /* else it is an answer, also where streams are full */
        set_line(http, connection, QR_HTTP_STREAMING, request.now_ns, QR_HTTP_NO_LIMIT);
    else
        set_line(http, connection, QR_HTTP_ANSWERING, request.now_ns,
                 request.now_ns + ANSWER_TIMEOUTS * http->timeout_ns);
    return result;
}

static void request_is_over(void *user, struct MHD_Connection *connection, void **context,
                            enum MHD_RequestTerminationCode why)
{
    (void)why;
    quire_http *http = user;
    *context = NULL;
    uint64_t now_ns = qr_now_ns(NULL);
    set_line(http, connection, QR_HTTP_WAITING, now_ns, now_ns + http->timeout_ns);
}

static void connection_changes(void *user, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode what)
{
    quire_http *http = user;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        int socket = socket_of(connection);
        uint64_t now_ns = qr_now_ns(NULL);
        *context = qr_http_lines_open(&http->lines, socket, address_of(connection), now_ns,
                                      now_ns + http->timeout_ns);
        if (*context == NULL)
            shutdown(socket, SHUT_RDWR);
    } else if (*context != NULL) {
        qr_http_lines_close(&http->lines, *context);
        *context = NULL;
    }
}

/* ---- starting and stopping -------------------------------------------------- */

static void *run_ticker(void *user)
{
    quire_http *http = user;
    struct pollfd stop = {.fd = http->stop_fd, .events = POLLIN};
    while (poll(&stop, 1, TICK_MS) <= 0) {
        uint64_t now_ns = qr_now_ns(NULL);
        qr_http_health_look(&http->site.health, http->site.monitor, now_ns);
        qr_http_lines_tick(&http->lines, now_ns);
        qr_http_hub_tick(&http->hub, now_ns);
    }
    return NULL;
}

static int start_daemon(quire_http *http, int socket)
{
    unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, take_request, http, MHD_OPTION_LISTEN_SOCKET, socket,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)http->lines.num_lines, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(http->timeout_ns / 1000000000), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)QR_HTTP_LINE_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED,
        request_is_over, http, MHD_OPTION_NOTIFY_CONNECTION, connection_changes, http,
        MHD_OPTION_END);
    if (http->daemon == NULL) {
        close_listener(socket, http->port);
        return QUIRE_E_SYSTEM;
    }
    http->socket = socket;
    return QUIRE_OK;
}

static int start_ticker(quire_http *http)
{
    http->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (http->stop_fd < 0)
        return QUIRE_E_SYSTEM;
    if (qr_thread_start(&http->ticker, "quire-http", run_ticker, http))
        return QUIRE_OK;
    close(http->stop_fd);
    http->stop_fd = -1;
    return QUIRE_E_SYSTEM;
}

const qr_http_hooks qr_http_server_hooks = {MHD_suspend_connection, MHD_resume_connection, is_gone};

int qr_http_server_start(quire_http *http, const char *address, uint32_t port)
{
    sigset_t before;
    http->port = port;
    int socket = open_listener(&http->site.access.address, &http->port);
    if (socket < 0)
        return qr_fail(QUIRE_E_SYSTEM,
                       "cannot listen on %s port %u: %s; choose another address or port", address,
                       port, strerror(errno));
    qr_signals_block(&before); /* the server's threads */
    int status = start_daemon(http, socket);
    qr_signals_restore(&before);
    if (status == QUIRE_OK)
        status = start_ticker(http);
    if (status != QUIRE_OK)
        qr_say("cannot start the server: no thread or no memory");
    return status;
}

void qr_http_server_stop(quire_http *http)
{
    if (http->daemon == NULL)
        return;
    qr_http_hub_end(&http->hub); /* the library stops only when nothing is suspended */
    if (http->stop_fd >= 0) {
        eventfd_write(http->stop_fd, 1);
        pthread_join(http->ticker, NULL);
        close(http->stop_fd);
    }
    /* A child of a fork may have a copy of the socket. Without this the port would stay taken, and
     * connections would wait in vain, until that child ends. */
    shutdown(http->socket, SHUT_RDWR);
    MHD_stop_daemon(http->daemon);
    http->daemon = NULL;
}

void qr_http_server_leave(quire_http *http)
{
    close_listener(http->socket, http->port);
    close(http->stop_fd);
}
