/* http/access.h - who may ask: addresses, the Host header, the token.
 *
 *      Host: NAME[:PORT]    NAME is localhost, a loopback address, the address that is listened to,
 *                           or one of the config's; any address of numbers when all are listened
 *                           to. The port is not looked at, so that tunnels work.
 *
 * A page of a stranger that a browser was lured to can make the browser send requests here, and, by
 * a name that first means the stranger's server and then this one, read what comes back (DNS
 * rebinding). Such a request has the stranger's name in Host. Addresses of numbers are nobody's
 * name, and cannot be turned around like that.
 */
#ifndef QR_HTTP_ACCESS_H
#define QR_HTTP_ACCESS_H

#include <quire/hash.h>

#include <stdbool.h>
#include <stdint.h>

enum { QR_HTTP_MIN_TOKEN = 16, QR_HTTP_MAX_TOKEN = 256, QR_HTTP_MAX_HOSTS = 64 };

/* An IPv4 address has the first 4 bytes. */
typedef struct qr_http_address {
    unsigned char bytes[16];
    bool is_ipv6;
} qr_http_address;

bool qr_http_address_read(qr_http_address *address, const char *text, size_t len);
bool qr_http_address_is_loopback(const qr_http_address *address);
/* 0.0.0.0 or ::, which stand for every address of the machine. */
bool qr_http_address_is_any(const qr_http_address *address);

typedef struct qr_http_access {
    qr_http_address address;
    char *hosts; /* names, lower case, each with its zero byte */
    uint32_t num_hosts;
    uint32_t token_len; /* 0: there is none */
    unsigned char token[QR_HTTP_MAX_TOKEN];
} qr_http_access;

/* Copies the names. QUIRE_E_NOMEM; QUIRE_E_CONFIG: *bad is the one that is none. */
int qr_http_access_set_hosts(qr_http_access *access, const char *const *hosts, uint32_t num_hosts,
                             uint32_t *bad);
/* False: too short, too long, or with characters that a header cannot have. */
bool qr_http_access_set_token(qr_http_access *access, const char *token);
void qr_http_access_free(qr_http_access *access);

bool qr_http_access_has_host(const qr_http_access *access, quire_bytes host);
/* Takes the same time whatever is wrong with it. */
bool qr_http_access_has_token(const qr_http_access *access, quire_bytes token);

#endif
