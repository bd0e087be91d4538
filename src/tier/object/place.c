#include "tier/object/place.h"

#include "base/config.h"
#include "base/hex.h"
#include "base/refuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HTTP = 80, HTTPS = 443 };

static bool is_letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_lower_word(const char *text, size_t least, size_t most, const char *others)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        bool is_plain = is_letter_or_digit(text[i]) && (text[i] < 'A' || text[i] > 'Z');
        if (!is_plain && (strchr(others, text[i]) == NULL || i == 0 || i == n - 1))
            return false;
    }
    return n >= least && n <= most;
}

/* So that no part of a path is empty, "." or "..": libcurl and servers would change it. */
static bool is_prefix(const char *prefix)
{
    size_t n = strlen(prefix);
    for (size_t i = 0; i < n; i++) {
        bool is_first = i == 0 || prefix[i - 1] == '/';
        if (!is_letter_or_digit(prefix[i]) && (is_first || strchr("._-/", prefix[i]) == NULL))
            return false;
    }
    return n > 0 && n < QR_PLACE_PREFIX && prefix[n - 1] != '/';
}

static int check_names(const quire_tier_object_config *c)
{
    if (c->bucket == NULL || !is_lower_word(c->bucket, 3, QR_PLACE_BUCKET - 1, ".-"))
        return qr_fail(QUIRE_E_CONFIG, "invalid bucket \"%s\" (expected 3..63 of a-z 0-9 . -)",
                       c->bucket == NULL ? "(null)" : c->bucket);
    if (c->prefix != NULL && !is_prefix(c->prefix))
        return qr_fail(QUIRE_E_CONFIG,
                       "invalid prefix \"%s\" (expected 1..128 of A-Z a-z 0-9 . _ - /, each part "
                       "beginning with a letter or a digit)",
                       c->prefix);
    if (c->virtual_host > QUIRE_OFF)
        return qr_fail(QUIRE_E_CONFIG,
                       "invalid virtual_host %d (expected QUIRE_ON, QUIRE_OFF or 0)",
                       (int)c->virtual_host);
    return QUIRE_OK;
}

static int set_region(qr_place *place, const char *region)
{
    region = region != NULL ? region : getenv("AWS_REGION");
    region = region != NULL ? region : getenv("AWS_DEFAULT_REGION");
    region = region != NULL ? region : "us-east-1";
    if (!is_lower_word(region, 1, QR_SIGV4_REGION - 1, "-"))
        return qr_fail(QUIRE_E_CONFIG, "invalid region \"%s\" (expected 1..63 of a-z 0-9 -)",
                       region);
    memcpy(place->region, region, strlen(region) + 1);
    return QUIRE_OK;
}

/* An IPv6 address has its colons, and stands in brackets. */
static void write_host(qr_place *place, const char *bucket)
{
    bool is_v6 = strchr(place->address.host, ':') != NULL;
    bool is_usual = place->address.port == (place->is_tls ? HTTPS : HTTP);
    char port[8] = "";
    if (!is_usual)
        (void)snprintf(port, sizeof port, ":%u", place->address.port);
    (void)snprintf(place->host, sizeof place->host, "%s%s%s%s%s%s", bucket,
                   bucket[0] == 0 ? "" : ".", is_v6 ? "[" : "", place->address.host,
                   is_v6 ? "]" : "", port);
}

static int set_endpoint(qr_place *place, const char *endpoint)
{
    char amazon[32 + QR_SIGV4_REGION];
    (void)snprintf(amazon, sizeof amazon, "https://s3.%s.amazonaws.com", place->region);
    const char *text = endpoint == NULL ? amazon : endpoint;
    place->is_tls = strncmp(text, "https://", 8) == 0;
    const char *host = text + (place->is_tls ? 8 : 7);
    bool is_url = place->is_tls || strncmp(text, "http://", 7) == 0;
    size_t n = is_url ? strcspn(host, "/?#@\\ ") : 0;
    if (n == 0 || (host[n] != 0 && strcmp(host + n, "/") != 0) ||
        !qr_address_parse(&place->address, host, n, place->is_tls ? HTTPS : HTTP) ||
        place->address.is_unix)
        return qr_fail(QUIRE_E_CONFIG,
                       "invalid endpoint \"%s\" (expected https://HOST[:PORT] or "
                       "http://HOST[:PORT])",
                       text);
    return QUIRE_OK;
}

static int set_style(qr_place *place, const quire_tier_object_config *c)
{
    qr_endpoint unused;
    bool is_virtual =
        c->virtual_host == QUIRE_ON || (c->virtual_host == QUIRE_DEFAULT && c->endpoint == NULL);
    if (is_virtual && qr_address_to_endpoint(&place->address, &unused))
        return qr_fail(QUIRE_E_CONFIG,
                       "virtual_host is QUIRE_ON, but endpoint \"%s\" has an address, not a name",
                       c->endpoint);
    write_host(place, is_virtual ? c->bucket : "");
    if (!is_virtual)
        (void)snprintf(place->bucket_path, sizeof place->bucket_path, "/%s", c->bucket);
    return QUIRE_OK;
}

void qr_place_set_fingerprint(qr_place *place, const unsigned char *fingerprint)
{
    int n =
        snprintf(place->space, sizeof place->space, "%s/%s/1/", place->bucket_path, place->prefix);
    char *at = qr_hex_write(place->space + n, fingerprint, QUIRE_FINGERPRINT_BYTES);
    memcpy(at, "/", 2);
    memcpy(place->fingerprint, fingerprint, QUIRE_FINGERPRINT_BYTES);
}

int qr_place_init(qr_place *place, const quire_tier_object_config *c)
{
    memset(place, 0, sizeof *place);
    int status = check_names(c);
    if (status == QUIRE_OK)
        status = set_region(place, c->region);
    if (status == QUIRE_OK)
        status = set_endpoint(place, c->endpoint);
    if (status == QUIRE_OK)
        status = set_style(place, c);
    if (status != QUIRE_OK)
        return status;
    (void)snprintf(place->prefix, sizeof place->prefix, "%s",
                   c->prefix == NULL ? "quire" : c->prefix);
    if (c->fingerprint != NULL)
        qr_place_set_fingerprint(place, c->fingerprint);
    return QUIRE_OK;
}

void qr_place_write_path(const qr_place *place, const quire_tier_key *key, char path[QR_PLACE_PATH])
{
    size_t n = strlen(place->space);
    memcpy(path, place->space, n);
    char *at = qr_hex_write(path + n, key->hash, sizeof key->hash);
    (void)snprintf(at, QR_PLACE_PATH - (size_t)(at - path), "-%u-%u", key->group, key->rank);
}

void qr_place_write_url(const qr_place *place, const char *path, char url[QR_PLACE_URL])
{
    (void)snprintf(url, QR_PLACE_URL, "%s%s%s", place->is_tls ? "https://" : "http://", place->host,
                   path);
}
