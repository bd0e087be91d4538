#include "http/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
    any_sockaddr bound;
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

int qr_http_listener_open(const qr_http_address *address, uint32_t *port)
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

void qr_http_listener_close(int socket, uint32_t port)
{
    uint32_t its_port;
    int is_listening = 0;
    socklen_t len = sizeof is_listening;
    if (get_port(socket, &its_port) && its_port == port &&
        getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) == 0 && is_listening)
        close(socket);
}
