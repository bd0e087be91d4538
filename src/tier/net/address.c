#include "tier/net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

bool qr_digits_read(const void *text, size_t n, int64_t most, int64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < n; i++) {
        int digit = ((const char *)text)[i] - '0';
        if (digit < 0 || digit > 9 || *number > (most - digit) / 10)
            return false;
        *number = *number * 10 + digit;
    }
    return n > 0;
}

static bool parse_port(const char *text, size_t n, int64_t *port)
{
    return n <= 5 && qr_digits_read(text, n, 65535, port) && *port > 0;
}

/* Letters, digits and what addresses have besides: nothing that a terminal would act on. */
static bool is_host(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_word && (c == 0 || strchr(".-_:%", c) == NULL))
            return false;
    }
    return n > 0 && n < QR_ADDRESS_HOST;
}

bool qr_address_set(qr_address *address, const char *host, size_t bytes, int64_t port,
                    const qr_address *by)
{
    if (bytes == 0 && by != NULL) { /* behind a socket's path there is one server */
        *address = *by;
        if (!by->is_unix)
            address->port = (uint16_t)port;
        return port > 0 && port <= 65535;
    }
    if (!is_host(host, bytes) || port <= 0 || port > 65535)
        return false;
    memset(address, 0, sizeof *address);
    memcpy(address->host, host, bytes);
    address->port = (uint16_t)port;
    return true;
}

bool qr_address_parse_said(qr_address *address, const char *text, size_t bytes,
                           const qr_address *by)
{
    size_t after = bytes; /* the last colon */
    int64_t port;
    while (after > 0 && text[after - 1] != ':')
        after--;
    return after > 0 && parse_port(text + after, bytes - after, &port) &&
           qr_address_set(address, text, after - 1, port, by);
}

static bool parse_path(qr_address *address, const char *path, size_t n)
{
    const struct sockaddr_un *room = NULL;
    if (n >= sizeof room->sun_path || memchr(path, 0, n) != NULL)
        return false;
    memset(address, 0, sizeof *address);
    memcpy(address->host, path, n);
    address->is_unix = true;
    return true;
}

bool qr_address_parse(qr_address *address, const char *text, size_t bytes, int64_t port)
{
    if (bytes > 5 && memcmp(text, "unix:", 5) == 0)
        return parse_path(address, text + 5, bytes - 5);
    if (bytes > 0 && text[0] == '[') {
        const char *end = memchr(text, ']', bytes);
        if (end == NULL)
            return false;
        size_t rest = bytes - (size_t)(end - text) - 1;
        if (rest > 0 && (end[1] != ':' || !parse_port(end + 2, rest - 1, &port)))
            return false;
        return qr_address_set(address, text + 1, (size_t)(end - text) - 1, port, NULL);
    }
    const char *colon = memchr(text, ':', bytes);
    if (colon == NULL || memchr(colon + 1, ':', bytes - (size_t)(colon - text) - 1) != NULL)
        return qr_address_set(address, text, bytes, port, NULL); /* a name, or IPv6 */
    return parse_port(colon + 1, bytes - (size_t)(colon - text) - 1, &port) &&
           qr_address_set(address, text, (size_t)(colon - text), port, NULL);
}

bool qr_address_is_equal(const qr_address *a, const qr_address *b)
{
    return a->port == b->port && a->is_unix == b->is_unix && strcmp(a->host, b->host) == 0;
}

bool qr_address_to_endpoint(const qr_address *address, qr_endpoint *endpoint)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(address->port)};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    const void *found = NULL;
    memset(endpoint, 0, sizeof *endpoint);
    if (address->is_unix) {
        memcpy(path.sun_path, address->host, strlen(address->host));
        found = &path;
        endpoint->bytes = sizeof path;
    } else if (inet_pton(AF_INET, address->host, &v4.sin_addr) == 1) {
        found = &v4;
        endpoint->bytes = sizeof v4;
    } else if (inet_pton(AF_INET6, address->host, &v6.sin6_addr) == 1) {
        found = &v6;
        endpoint->bytes = sizeof v6;
    }
    if (found != NULL)
        memcpy(&endpoint->address, found, endpoint->bytes);
    return found != NULL;
}

bool qr_address_is_local(const qr_address *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (address->is_unix || strcmp(address->host, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, address->host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, address->host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}
