#include "tier/net/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { KEEP_IDLE_S = 10, KEEP_STEP_S = 3, KEEP_COUNT = 3, UNHEARD_MS = 10000 };

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value); /* without, it only works less well */
}

/* No waiting for more to send; and a peer that is gone without a word is noticed. */
static void tune(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_STEP_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, UNHEARD_MS);
}

bool qr_socket_watch(int epoll_fd, int fd, void *data)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = data};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* The rest of making a connection; result: of what came before, with errno. */
static int add_parts(qr_socket *s, int result, qr_tls *tls, const char *host, int epoll_fd,
                     void *data)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = data};
    if (result == 0)
        result = epoll_ctl(epoll_fd, EPOLL_CTL_ADD, s->fd, &event);
    if (result == 0 && tls != NULL) {
        s->session = qr_tls_attach(tls, s->fd, host);
        result = s->session == NULL ? -1 : 0;
        errno = result == 0 ? errno : ENOMEM;
    }
    if (result != 0) {
        int error = errno;
        qr_socket_close(s);
        errno = error;
    }
    return result;
}

int qr_socket_connect(qr_socket *s, const qr_endpoint *endpoint, qr_tls *tls, const char *host,
                      int epoll_fd, void *data)
{
    int family = endpoint->address.ss_family;
    *s = (qr_socket){.fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (s->fd < 0)
        return -1;
    if (family != AF_UNIX)
        tune(s->fd);
    int result = connect(s->fd, (const struct sockaddr *)&endpoint->address, endpoint->bytes);
    if (result != 0 && errno == EINPROGRESS)
        result = 0;
    return add_parts(s, result, tls, host, epoll_fd, data);
}

int qr_socket_accept(qr_socket *s, int listener, qr_tls *tls, int epoll_fd, void *data)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof from;
    *s = (qr_socket){
        .fd = accept4(listener, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (s->fd < 0) {
        bool is_none =
            errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED;
        return is_none ? 0 : -1;
    }
    if (from.ss_family != AF_UNIX)
        tune(s->fd);
    return add_parts(s, 0, tls, NULL, epoll_fd, data) == 0 ? 1 : -1;
}

int qr_socket_finish(qr_socket *s)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    struct sockaddr_storage peer;
    socklen_t peer_bytes = sizeof peer;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        return -1;
    errno = error;
    if (error != 0)
        return -1;
    if (getpeername(s->fd, (struct sockaddr *)&peer, &peer_bytes) != 0)
        return errno == ENOTCONN ? 0 : -1;
    if (s->session == NULL)
        return 1;
    int greeted = qr_tls_greet(s->session);
    if (greeted < 0)
        errno = EPROTO;
    return greeted;
}

void qr_socket_close(qr_socket *s)
{
    if (s->session != NULL)
        qr_tls_detach(s->session);
    if (s->fd >= 0)
        close(s->fd);
    *s = (qr_socket){.fd = -1};
}

const char *qr_socket_why(const qr_socket *s, const char *otherwise)
{
    const char *why = s->session != NULL ? qr_tls_reason(s->session) : NULL;
    return why != NULL ? why : otherwise;
}

static ssize_t later_or_lost(bool *can)
{
    if (errno == EINTR)
        return 0; /* the flag stays: it is tried again */
    *can = false;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
}

ssize_t qr_socket_send(qr_socket *s, struct iovec *pieces, int n)
{
    if (s->session != NULL) {
        ssize_t sent = qr_tls_send(s->session, pieces[0].iov_base, pieces[0].iov_len);
        s->can_write = sent > 0;
        s->is_promised = sent == 0;
        return sent;
    }
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)n};
    ssize_t sent = sendmsg(s->fd, &message, MSG_NOSIGNAL);
    return sent < 0 ? later_or_lost(&s->can_write) : sent;
}

ssize_t qr_socket_receive(qr_socket *s, struct iovec *pieces, int n)
{
    if (s->session != NULL) {
        ssize_t got = qr_tls_receive(s->session, pieces[0].iov_base, pieces[0].iov_len);
        s->can_read = got > 0;
        return got;
    }
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)n};
    ssize_t got = recvmsg(s->fd, &message, 0);
    if (got == 0)
        return -1; /* closed by the other side */
    return got < 0 ? later_or_lost(&s->can_read) : got;
}
