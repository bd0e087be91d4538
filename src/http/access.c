#include "http/access.h"

#include "base/memory.h"
#include "http/words.h"

#include <quire/error.h>

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <string.h>

enum { MAX_NAME = 253 };

/* ---- addresses -------------------------------------------------------------- */

bool qr_http_address_read(qr_http_address *address, const char *text, size_t len)
{
    char copy[INET6_ADDRSTRLEN];
    *address = (qr_http_address){0};
    if (len == 0 || len >= sizeof copy || memchr(text, 0, len) != NULL)
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (inet_pton(AF_INET, copy, address->bytes) == 1)
        return true;
    address->is_ipv6 = true;
    return inet_pton(AF_INET6, copy, address->bytes) == 1;
}

bool qr_http_address_is_loopback(const qr_http_address *address)
{
    static const unsigned char ONE[16] = {[15] = 1};
    return address->is_ipv6 ? memcmp(address->bytes, ONE, sizeof ONE) == 0
                            : address->bytes[0] == 127;
}

bool qr_http_address_is_any(const qr_http_address *address)
{
    static const unsigned char ZERO[16];
    return memcmp(address->bytes, ZERO, address->is_ipv6 ? 16 : 4) == 0;
}

static bool is_same_address(const qr_http_address *a, const qr_http_address *b)
{
    return a->is_ipv6 == b->is_ipv6 && memcmp(a->bytes, b->bytes, a->is_ipv6 ? 16 : 4) == 0;
}

/* ---- names ------------------------------------------------------------------ */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

static bool is_host_name(const char *name, size_t len)
{
    if (len == 0 || len > MAX_NAME)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_name_char(qr_http_lower(name[i])))
            return false;
    return true;
}

int qr_http_access_set_hosts(qr_http_access *access, const char *const *hosts, uint32_t num_hosts,
                             uint32_t *bad)
{
    size_t bytes = 1;
    for (*bad = 0; *bad < num_hosts; ++*bad) {
        const char *host = hosts[*bad];
        if (host == NULL || !is_host_name(host, strlen(host)))
            return QUIRE_E_CONFIG;
        bytes += strlen(host) + 1;
    }
    access->hosts = qr_alloc(1, bytes);
    if (access->hosts == NULL)
        return QUIRE_E_NOMEM;
    char *to = access->hosts;
    for (uint32_t i = 0; i < num_hosts; i++) {
        for (const char *from = hosts[i]; *from != '\0'; from++)
            *to++ = qr_http_lower(*from);
        *to++ = '\0';
    }
    access->num_hosts = num_hosts;
    return QUIRE_OK;
}

static bool is_known_name(const qr_http_access *access, quire_bytes name)
{
    const char *known = access->hosts;
    bool is_known = qr_http_is_name(name, "localhost");
    for (uint32_t i = 0; i < access->num_hosts && !is_known; i++, known += strlen(known) + 1)
        is_known = qr_http_is_name(name, known);
    return is_known;
}

static bool is_known_address(const qr_http_access *access, const char *text, size_t len)
{
    qr_http_address address;
    return qr_http_address_read(&address, text, len) &&
           (qr_http_address_is_loopback(&address) || is_same_address(&address, &access->address) ||
            qr_http_address_is_any(&access->address));
}

/* "" or ":" and digits. */
static bool is_port(const char *text, size_t len)
{
    if (len == 0)
        return true;
    if (text[0] != ':' || len > 6)
        return false;
    for (size_t i = 1; i < len; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return true;
}

bool qr_http_access_has_host(const qr_http_access *access, quire_bytes host)
{
    const char *text = host.data;
    if (text == NULL || host.len == 0)
        return false;
    if (text[0] == '[') {
        const char *end = memchr(text, ']', host.len);
        return end != NULL && is_port(end + 1, host.len - (size_t)(end + 1 - text)) &&
               memchr(text, ':', (size_t)(end - text)) != NULL &&
               is_known_address(access, text + 1, (size_t)(end - text - 1));
    }
    const char *colon = memchr(text, ':', host.len);
    size_t len = colon == NULL ? host.len : (size_t)(colon - text);
    return is_port(text + len, host.len - len) && is_host_name(text, len) &&
           (is_known_name(access, (quire_bytes){text, len}) || is_known_address(access, text, len));
}

/* ---- the token -------------------------------------------------------------- */

bool qr_http_access_set_token(qr_http_access *access, const char *token)
{
    size_t len = strlen(token);
    if (len < QR_HTTP_MIN_TOKEN || len > QR_HTTP_MAX_TOKEN)
        return false;
    for (size_t i = 0; i < len; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return false;
    memcpy(access->token, token, len);
    access->token_len = (uint32_t)len;
    return true;
}

bool qr_http_access_has_token(const qr_http_access *access, quire_bytes token)
{
    unsigned char given[QR_HTTP_MAX_TOKEN] = {0};
    size_t len = token.len < sizeof given ? token.len : sizeof given;
    if (token.data != NULL && len > 0)
        memcpy(given, token.data, len);
    int difference = CRYPTO_memcmp(given, access->token, sizeof given);
    return (difference | (token.len != access->token_len)) == 0;
}

void qr_http_access_free(qr_http_access *access)
{
    qr_memory_wipe(access->token, sizeof access->token);
    qr_free(access->hosts);
    access->hosts = NULL;
}
