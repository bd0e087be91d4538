#include "events/endpoint.h"

#include "base/refuse.h"
#include "events/frames.h"

#include <quire/error.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

static const char TCP[] = "tcp://";
static const char IPC[] = "ipc://";

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Numbers only: a name could mean another machine tomorrow. */
static bool is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (host[0] != '[')
        return false;
    char inner[INET6_ADDRSTRLEN] = "";
    size_t len = strlen(host);
    if (len < 3 || len - 2 >= sizeof inner)
        return false;
    memcpy(inner, host + 1, len - 2);
    return inet_pton(AF_INET6, inner, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* vLLM listens where the address has "*" or "::", and connects otherwise; the loopback, which is
 * Quire's default, is listened on too. */
static bool is_listening(const qr_endpoint *endpoint)
{
    return endpoint->is_ipc || endpoint->is_local || strchr(endpoint->text, '*') != NULL ||
           strstr(endpoint->text, "::") != NULL || starts_with(endpoint->text, "tcp://0.0.0.0:");
}

static int read_tcp(const char *text, uint32_t rank, qr_endpoint *endpoint)
{
    const char *host = text + strlen(TCP);
    const char *colon = strrchr(host, ':');
    if (colon == NULL || colon == host || strpbrk(host, ";/ ") != NULL)
        return qr_fail(QUIRE_E_ARGUMENT, "invalid address '%s' (expected tcp://HOST:PORT)", text);
    char name[256];
    (void)snprintf(name, sizeof name, "%.*s", (int)(colon - host), host);
    if (strcmp(name, "localhost") == 0)
        (void)snprintf(name, sizeof name, "127.0.0.1");
    endpoint->is_local = is_loopback(name);
    endpoint->is_ipv6 = name[0] == '[';
    if (strcmp(colon + 1, "*") == 0) {
        (void)snprintf(endpoint->text, sizeof endpoint->text, "tcp://%s:*", name);
        return QUIRE_OK;
    }
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != 0 || port == 0 || port + rank > 65535)
        return qr_fail(QUIRE_E_ARGUMENT,
                       "invalid address '%s': the port plus rank %u must be 1..65535, or *", text,
                       rank);
    (void)snprintf(endpoint->text, sizeof endpoint->text, "tcp://%s:%lu", name, port + rank);
    return QUIRE_OK;
}

int qr_endpoint_read(const char *text, uint32_t rank, qr_endpoint *endpoint)
{
    *endpoint = (qr_endpoint){.text = ""};
    int status = QUIRE_OK;
    if (strlen(text) + 16 > sizeof endpoint->text || rank > 65535) {
        status =
            qr_fail(QUIRE_E_ARGUMENT, "the address is too long, or rank %u is too large", rank);
    } else if (starts_with(text, TCP)) {
        status = read_tcp(text, rank, endpoint);
    } else if (starts_with(text, IPC) && text[strlen(IPC)] != 0) {
        endpoint->is_ipc = true;
        endpoint->is_local = true;
        int len = snprintf(endpoint->text, sizeof endpoint->text, "%s", text);
        if (rank > 0)
            (void)snprintf(endpoint->text + len, sizeof endpoint->text - (size_t)len, "_dp%u",
                           rank);
    } else {
        status = qr_fail(
            QUIRE_E_ARGUMENT, "invalid address '%s' (expected tcp://HOST:PORT or ipc://FILE%s)",
            text, starts_with(text, "inproc://") ? "; inproc:// ends inside the publisher" : "");
    }
    endpoint->listens = status == QUIRE_OK && is_listening(endpoint);
    return status;
}

/* The file of a socket that listens; NULL: tcp, a name without a file ("@"), or a file in a folder
 * of its own ("*"), which libzmq makes private. */
static const char *file_of(const qr_endpoint *endpoint)
{
    const char *path = endpoint->text + strlen(IPC);
    bool has_file = endpoint->is_ipc && endpoint->listens && path[0] != '@' && path[0] != '*';
    return has_file ? path : NULL;
}

static bool fill_address(struct sockaddr_un *address, const char *path)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path)
        return false;
    memcpy(address->sun_path, path, strlen(path));
    return true;
}

/* A socket's file is for its user alone, from its first moment on: Linux gives the file the mode
 * that the socket has when it is bound. (The mode of libzmq's own file depends on the umask.) -1,
 * with errno. */
static int listen_privately(const char *path)
{
    enum { BACKLOG = 100 };
    const mode_t private_mode = S_IRUSR | S_IWUSR;
    struct sockaddr_un address;
    if (!fill_address(&address, path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return -1;
    (void)unlink(path); /* a socket without a listener: see check_name */
    if (fchmod(s, private_mode) == 0 &&
        bind(s, (const struct sockaddr *)&address, sizeof address) == 0 &&
        chmod(path, private_mode) == 0 && listen(s, BACKLOG) == 0)
        return s;
    int why = errno;
    (void)close(s);
    errno = why;
    return -1;
}

static bool has_listener(const char *path)
{
    struct sockaddr_un to;
    if (!fill_address(&to, path))
        return false;
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = s >= 0 && connect(s, (const struct sockaddr *)&to, sizeof to) == 0;
    if (s >= 0)
        (void)close(s);
    return found;
}

/* A socket of that name which has no listener is replaced. A file of another kind, and the socket
 * of another publisher, must stay. */
static int check_name(const qr_endpoint *endpoint)
{
    const char *path = file_of(endpoint);
    struct stat found;
    if (path == NULL || lstat(path, &found) != 0)
        return QUIRE_OK;
    if (!S_ISSOCK(found.st_mode))
        return qr_fail(QUIRE_E_SYSTEM,
                       "cannot listen on '%s': a file with this name exists; choose another name",
                       endpoint->text);
    if (has_listener(path))
        return qr_fail(QUIRE_E_SYSTEM,
                       "cannot listen on '%s': another process listens there; choose another name",
                       endpoint->text);
    return QUIRE_OK;
}

/* False, with errno. */
static bool is_bound(const qr_endpoint *endpoint, void *socket)
{
    const char *path = file_of(endpoint);
    if (path == NULL)
        return zmq_bind(socket, endpoint->text) == 0;
    int s = listen_privately(path);
    if (s < 0)
        return false;
    if (zmq_setsockopt(socket, ZMQ_USE_FD, &s, sizeof s) == 0 &&
        zmq_bind(socket, endpoint->text) == 0)
        return true;
    int why = errno;
    (void)close(s);
    errno = why;
    return false;
}

int qr_endpoint_attach(qr_endpoint *endpoint, void *socket)
{
    int status = check_name(endpoint);
    if (status != QUIRE_OK)
        return status;
    qr_socket_set(socket, ZMQ_IPV6, endpoint->is_ipv6);
    if (!(endpoint->listens ? is_bound(endpoint, socket)
                            : zmq_connect(socket, endpoint->text) == 0))
        return qr_fail(QUIRE_E_SYSTEM, "cannot %s '%s': %s",
                       endpoint->listens ? "listen on" : "connect to", endpoint->text,
                       zmq_strerror(zmq_errno()));
    if (endpoint->listens) {
        size_t bytes = sizeof endpoint->text;
        (void)zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint->text, &bytes);
    }
    return QUIRE_OK;
}
