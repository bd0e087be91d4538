/* tier/net/socket.h - one connection's bytes: TCP, a socket's path, and TLS over either.
 *
 * Nothing here waits. The descriptor is watched edge by edge (EPOLLET), so what can be done is
 * remembered: can_read and can_write are set by any event and cleared when the system says "later".
 */
#ifndef QR_TIER_NET_SOCKET_H
#define QR_TIER_NET_SOCKET_H

#include "tier/net/address.h"
#include "tier/net/tls.h"

#include <sys/uio.h>

typedef struct qr_socket {
    int fd; /* -1: none */
    void *session;
    bool can_read;
    bool can_write;
    /* TLS has taken the beginning of what was to be sent, and has not said how much: the same bytes
     * must be given again. */
    bool is_promised;
} qr_socket;

/* Input on any descriptor is told by epoll_fd, with data. */
bool qr_socket_watch(int epoll_fd, int fd, void *data);
/* Begins to connect, watched by epoll_fd with data. 0, or -1 with errno. */
int qr_socket_connect(qr_socket *s, const qr_endpoint *endpoint, qr_tls *tls, const char *host,
                      int epoll_fd, void *data);
/* Takes the next connection of a listener that does not block, in the same way. 1, 0: there is
 * none now, or -1 with errno. */
int qr_socket_accept(qr_socket *s, int listener, qr_tls *tls, int epoll_fd, void *data);
/* 1: connected, 0: later, -1: with errno, or EPROTO where TLS failed. */
int qr_socket_finish(qr_socket *s);
void qr_socket_close(qr_socket *s);
/* Why TLS ended the connection; `otherwise` where TLS is not the reason. Static. */
const char *qr_socket_why(const qr_socket *s, const char *otherwise);

/* How many bytes; 0: later; -1: lost, or closed by the other side. */
ssize_t qr_socket_send(qr_socket *s, struct iovec *pieces, int n);
ssize_t qr_socket_receive(qr_socket *s, struct iovec *pieces, int n);

#endif
