/* tier/net/address.h - where a server is, as people and servers write it.
 *
 *      10.0.0.1:6379   [fd00::1]:6379   redis-0.cache   unix:/run/redis.sock
 *      fd00::1:6379    as servers write it (MOVED): the last colon is before the port
 */
#ifndef QR_TIER_NET_ADDRESS_H
#define QR_TIER_NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { QR_ADDRESS_HOST = 256, QR_ADDRESS_MAX = 8 };

typedef struct qr_address {
    char host[QR_ADDRESS_HOST]; /* or the path of a socket */
    uint16_t port;
    bool is_unix;
} qr_address;

typedef struct qr_endpoint {
    struct sockaddr_storage address;
    socklen_t bytes;
} qr_endpoint;

/* A person's: false where it is none. port: where the text has none; 0: the text must have one. */
bool qr_address_parse(qr_address *address, const char *text, size_t bytes, int64_t port);
/* A server's "host:port"; an empty host means the one that said so. */
bool qr_address_parse_said(qr_address *address, const char *text, size_t bytes,
                           const qr_address *by);
/* Host and port apart; the same rule. */
bool qr_address_set(qr_address *address, const char *host, size_t bytes, int64_t port,
                    const qr_address *by);
bool qr_address_is_equal(const qr_address *a, const qr_address *b);

/* A number of digits alone, at least one, that is not above most. */
bool qr_digits_read(const void *text, size_t n, int64_t most, int64_t *number);

/* A socket's path, or an address in numbers: there is nothing to look up. */
bool qr_address_to_endpoint(const qr_address *address, qr_endpoint *endpoint);
/* This machine: loopback, a socket's path, or "localhost". */
bool qr_address_is_local(const qr_address *address);

#endif
