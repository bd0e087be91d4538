#include "tier/peer/server.h"

#include "base/config.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "base/thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BLOCK_BYTES = 64 * 1024 * 1024,
    SESSIONS = 32,
    MAX_SESSIONS = 1024,
    MAX_BLOCKS = 1 << 28,
    BACKLOG = 64,
    EVENTS = QR_AT_A_TIME(64, 1),
    AGAIN_MS = 100, /* after an accept that failed */
    NS_PER_MS = 1000000
};

/* ---- the thread ------------------------------------------------------------ */

/* A free session; else that of the client which has tried longest to prove itself. */
static qr_session *find_session(quire_peer_server *server)
{
    qr_session *oldest = NULL;
    for (uint32_t i = 0; i < server->max_sessions; i++) {
        qr_session *session = &server->sessions[i];
        if (session->state == QR_SESSION_CLOSED)
            return session;
        if (session->state < QR_SESSION_READY &&
            (oldest == NULL || session->since_ns < oldest->since_ns))
            oldest = session;
    }
    return oldest;
}

static void take_connection(quire_peer_server *server, qr_session *session, qr_socket *socket)
{
    if (session == NULL || session->state != QR_SESSION_CLOSED)
        qr_served(server, QR_SERVED_TURNED_AWAY, 1);
    if (session == NULL) {
        qr_socket_close(socket);
        return;
    }
    qr_session_close(server, session);
    session->socket = *socket;
    qr_session_begin(server, session);
}

static void accept_all(quire_peer_server *server)
{
    int taken = 1;
    while (taken > 0) {
        qr_socket socket;
        qr_session *session = find_session(server);
        taken = qr_socket_accept(&socket, server->listener, server->tls, server->epoll_fd, session);
        if (taken > 0)
            take_connection(server, session, &socket);
    }
    server->is_out_of_fds = taken < 0;
}

static void close_idle(quire_peer_server *server)
{
    for (uint32_t i = 0; i < server->max_sessions; i++) {
        qr_session *session = &server->sessions[i];
        if (qr_session_due(server, session) > server->now_ns)
            continue;
        bool is_ready = session->state == QR_SESSION_READY;
        qr_served(server, is_ready ? QR_SERVED_STALLED : QR_SERVED_TURNED_AWAY, 1);
        qr_session_close(server, session);
    }
}

static int wait_ms(const quire_peer_server *server)
{
    uint64_t due = UINT64_MAX;
    if (server->has_more)
        return 0;
    for (uint32_t i = 0; i < server->max_sessions; i++) {
        uint64_t one = qr_session_due(server, &server->sessions[i]);
        due = one < due ? one : due;
    }
    if (due == UINT64_MAX)
        return server->is_out_of_fds ? AGAIN_MS : -1;
    uint64_t ms = due > server->now_ns ? (due - server->now_ns) / NS_PER_MS + 1 : 0;
    uint64_t most = server->is_out_of_fds ? AGAIN_MS : 60000;
    return (int)(ms < most ? ms : most);
}

static bool take_events(quire_peer_server *server, const struct epoll_event *events, int n)
{
    bool is_stopped = false;
    bool has_new = server->is_out_of_fds;
    for (int i = 0; i < n; i++) {
        void *data = events[i].data.ptr;
        if (data == &server->stop_fd) {
            is_stopped = true;
        } else if (data == &server->listener) {
            has_new = true;
        } else if (data != NULL) {
            qr_session *session = data;
            session->socket.can_read = true;
            session->socket.can_write = true;
        }
    }
    if (has_new && !is_stopped)
        accept_all(server);
    return is_stopped;
}

static void *serve(void *user)
{
    quire_peer_server *server = user;
    bool is_stopped = false;
    while (!is_stopped) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(server->epoll_fd, events, EVENTS, wait_ms(server));
        server->now_ns = qr_now_ns(NULL);
        is_stopped = take_events(server, events, n);
        server->has_more = false;
        for (uint32_t i = 0; i < server->max_sessions && !is_stopped; i++)
            if (server->sessions[i].state != QR_SESSION_CLOSED)
                qr_session_pump(server, &server->sessions[i]);
        close_idle(server);
    }
    return NULL;
}

/* ---- the config ------------------------------------------------------------ */

/* As qr_address_parse, but names are not looked up here and port 0 is any. */
static bool parse_address(const char *text, qr_address *address, qr_endpoint *endpoint)
{
    size_t bytes = text == NULL ? 0 : strlen(text);
    bool is_any = bytes > 2 && strcmp(text + bytes - 2, ":0") == 0;
    if (bytes == 0 || !qr_address_parse(address, text, is_any ? bytes - 2 : bytes, is_any))
        return false;
    if (is_any && !address->is_unix)
        address->port = 0;
    return qr_address_to_endpoint(address, endpoint);
}

static const char *check_numbers(const quire_peer_server_config *c)
{
    if (c->fingerprint == NULL)
        return "fingerprint is NULL (expected the 32 bytes of quire_fingerprint)";
    if (c->max_blocks == 0 || c->max_blocks > MAX_BLOCKS)
        return "invalid max_blocks (expected 1 to 2^28)";
    if (c->max_connections > MAX_SESSIONS)
        return "invalid max_connections (expected at most 1,024)";
    if (c->handshake_ns > QR_NET_LONGEST || c->stall_ns > QR_NET_LONGEST)
        return "invalid handshake_ns or stall_ns (expected at most a day)";
    if ((c->secret != NULL) + (c->secret_file != NULL) + (c->get_secret != NULL) != 1)
        return "secret, secret_file, get_secret: set exactly one";
    if (c->tls == 0 &&
        (c->tls_ca_file != NULL || c->tls_cert_file != NULL || c->tls_key_file != NULL))
        return "tls is 0, but a TLS file or name is set";
    return NULL;
}

static int check_config(const quire_peer_server_config *c, qr_address *address,
                        qr_endpoint *endpoint)
{
    const char *wrong = check_numbers(c);
    if (wrong != NULL)
        return qr_fail(QUIRE_E_CONFIG, "%s", wrong);
    if (!parse_address(c->address, address, endpoint))
        return qr_fail(QUIRE_E_CONFIG, "address: \"%s\" is not IPv4:PORT, [IPv6]:PORT or unix:PATH",
                       c->address == NULL ? "(null)" : c->address);
    if (c->tls == 0 && c->trust_network == 0 && !qr_address_is_local(address))
        return qr_fail(
            QUIRE_E_UNSAFE,
            "address: \"%s\" is reachable from other machines: set tls, or trust_network "
            "if the network is trusted",
            c->address);
    return QUIRE_OK;
}

/* ---- opening and closing --------------------------------------------------- */

static void free_server(quire_peer_server *server)
{
    for (uint32_t i = 0; server->sessions != NULL && i < server->max_sessions; i++)
        qr_session_close(server, &server->sessions[i]);
    if (server->listener >= 0)
        close(server->listener);
    if (server->path[0] != 0)
        (void)unlink(server->path);
    if (server->epoll_fd >= 0)
        close(server->epoll_fd);
    if (server->stop_fd >= 0)
        close(server->stop_fd);
    qr_tls_close(server->tls);
    qr_secret_close(&server->secret);
    qr_peer_table_close(&server->table);
    qr_free(server->sessions);
    qr_free(server->raw);
}

/* A socket that a process before left behind is in the way; anything else is not touched. */
static void remove_old_socket(const char *path)
{
    struct stat about;
    if (lstat(path, &about) == 0 && S_ISSOCK(about.st_mode))
        (void)unlink(path);
}

static int listen_at(quire_peer_server *server, const qr_address *address,
                     const qr_endpoint *endpoint)
{
    int one = 1;
    struct sockaddr_storage bound;
    socklen_t bound_bytes = sizeof bound;
    int family = endpoint->address.ss_family;
    server->listener = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (address->is_unix)
        remove_old_socket(address->host);
    if (server->listener >= 0 && !address->is_unix)
        (void)setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (server->listener < 0 ||
        bind(server->listener, (const struct sockaddr *)&endpoint->address, endpoint->bytes) != 0 ||
        listen(server->listener, BACKLOG) != 0 ||
        getsockname(server->listener, (struct sockaddr *)&bound, &bound_bytes) != 0)
        return qr_fail(QUIRE_E_SYSTEM, "address: %s: %s", address->host, strerror(errno));
    if (address->is_unix)
        (void)snprintf(server->path, sizeof server->path, "%s", address->host);
    else if (family == AF_INET)
        server->port = ntohs(((struct sockaddr_in *)&bound)->sin_port);
    else
        server->port = ntohs(((struct sockaddr_in6 *)&bound)->sin6_port); /* NOLINT: it is set */
    return QUIRE_OK;
}

static int open_parts(quire_peer_server *server, const quire_peer_server_config *c,
                      const qr_address *address, const qr_endpoint *endpoint)
{
    if (!qr_peer_table_open(&server->table, c->max_blocks, c->fingerprint, &c->hooks))
        return QUIRE_E_NOMEM;
    server->sessions = qr_alloc(server->max_sessions, sizeof *server->sessions);
    if (server->sessions == NULL)
        return QUIRE_E_NOMEM;
    for (uint32_t i = 0; i < server->max_sessions; i++)
        server->sessions[i].socket.fd = -1;
    qr_secret_options secret = QR_PEER_SECRET_OPTIONS(c);
    qr_tls_options tls = {.ca_file = c->tls_ca_file,
                          .cert_file = c->tls_cert_file,
                          .key_file = c->tls_key_file,
                          .is_server = true};
    int status = qr_secret_open(&server->secret, &secret);
    if (status == QUIRE_OK && c->tls != 0)
        status = qr_tls_open(&tls, &server->tls);
    if (status == QUIRE_OK)
        status = listen_at(server, address, endpoint);
    if (status != QUIRE_OK)
        return status;
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    bool is_watched = server->epoll_fd >= 0 && server->stop_fd >= 0 &&
                      qr_socket_watch(server->epoll_fd, server->listener, &server->listener) &&
                      qr_socket_watch(server->epoll_fd, server->stop_fd, &server->stop_fd);
    return is_watched && qr_thread_start(&server->thread, "quire-peer", serve, server)
               ? QUIRE_OK
               : QUIRE_E_SYSTEM;
}

static quire_peer_server *make_server(const quire_peer_server_config *c)
{
    enum { ALIGN = _Alignof(quire_peer_server) };
    unsigned char *raw = qr_alloc(1, sizeof(quire_peer_server) + ALIGN);
    if (raw == NULL)
        return NULL;
    quire_peer_server *server = (void *)(raw + (ALIGN - (uintptr_t)raw % ALIGN) % ALIGN);
    server->raw = raw;
    server->listener = server->epoll_fd = server->stop_fd = -1;
    server->hooks = c->hooks;
    server->max_block_bytes = (uint32_t)qr_or_default(c->max_block_bytes, BLOCK_BYTES);
    server->max_sessions = (uint32_t)qr_or_default(c->max_connections, SESSIONS);
    server->handshake_ns = qr_or_default(c->handshake_ns, 2 * QR_NET_SECOND);
    server->stall_ns = qr_or_default(c->stall_ns, 10 * QR_NET_SECOND);
    server->now_ns = qr_now_ns(NULL);
    qr_fork_guard_init(&server->guard);
    return server;
}

QUIRE_API int quire_peer_server_open(const quire_peer_server_config *config,
                                     quire_peer_server **out)
{
    qr_refuse_clear();
    quire_peer_server_config c;
    qr_address address = {0};
    qr_endpoint endpoint = {0};
    quire_peer_server *server = NULL;
    if (out == NULL)
        return QUIRE_E_ARGUMENT;
    int status = qr_config_read(&c, sizeof c, config);
    if (status == QUIRE_OK)
        status = check_config(&c, &address, &endpoint);
    if (status == QUIRE_OK) {
        server = make_server(&c);
        status = server == NULL ? QUIRE_E_NOMEM : open_parts(server, &c, &address, &endpoint);
    }
    *out = status == QUIRE_OK ? server : NULL;
    if (status != QUIRE_OK && server != NULL)
        free_server(server);
    return status == QUIRE_OK ? status : qr_fail_plain(status, "peer server");
}

QUIRE_API int quire_peer_server_close(quire_peer_server *server)
{
    uint64_t one = 1;
    if (server == NULL)
        return QUIRE_OK;
    if (qr_fork_guard_is_child(&server->guard))
        return QUIRE_E_SYSTEM;
    (void)!write(server->stop_fd, &one, sizeof one);
    (void)pthread_join(server->thread, NULL);
    free_server(server);
    return QUIRE_OK;
}

QUIRE_API uint32_t quire_peer_server_port(const quire_peer_server *server)
{
    return server == NULL ? 0 : server->port;
}

/* ---- the owner's calls ----------------------------------------------------- */

QUIRE_API int quire_peer_server_offer(quire_peer_server *server, uint32_t slot,
                                      const quire_tier_key *key, const void *memory, uint32_t bytes,
                                      const uint32_t *crc)
{
    if (server == NULL || key == NULL || memory == NULL)
        return QUIRE_E_ARGUMENT;
    if (slot >= server->table.max_slots || bytes == 0 || bytes > server->max_block_bytes)
        return QUIRE_E_RANGE;
    if (qr_fork_guard_is_child(&server->guard))
        return QUIRE_E_SYSTEM;
    qr_peer_table_offer(&server->table, slot, key, memory, bytes, crc);
    return QUIRE_OK;
}

QUIRE_API int quire_peer_server_withdraw(quire_peer_server *server, uint32_t slot)
{
    if (server == NULL)
        return QUIRE_E_ARGUMENT;
    if (slot >= server->table.max_slots)
        return QUIRE_E_RANGE;
    if (qr_fork_guard_is_child(&server->guard))
        return QUIRE_E_SYSTEM;
    qr_peer_table_withdraw(&server->table, slot);
    return QUIRE_OK;
}

QUIRE_API int quire_peer_server_set_identity(quire_peer_server *server,
                                             const unsigned char *fingerprint)
{
    if (server == NULL || fingerprint == NULL)
        return QUIRE_E_ARGUMENT;
    if (qr_fork_guard_is_child(&server->guard))
        return QUIRE_E_SYSTEM;
    qr_peer_table_set_identity(&server->table, fingerprint);
    return QUIRE_OK;
}

QUIRE_API int quire_peer_server_get_stats(const quire_peer_server *server,
                                          quire_peer_server_stats *stats)
{
    quire_peer_server_stats own;
    if (server == NULL)
        return QUIRE_E_ARGUMENT;
#define QR_X(name, field) own.field = qr_count_get(&server->counts[QR_SERVED_##name]);
    QR_SERVED_COUNTS(QR_X)
#undef QR_X
    own.offered = atomic_load_explicit(&server->table.num_offered, memory_order_relaxed);
    return qr_struct_out(stats, &own, sizeof own);
}
