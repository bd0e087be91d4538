#include "http/site.h"

#include <live_page.h>

#include <quire/error.h>

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <stdio.h>
#include <string.h>

enum { SHA256_BASE64 = (SHA256_DIGEST_LENGTH + 2) / 3 * 4 };

/* 'sha256-...' of what stands between two tags, or 'none' where there is no such thing. */
static int hash_between(const char *page, size_t bytes, const char *begin, const char *end,
                        char source[SHA256_BASE64 + 16])
{
    const char *first = memmem(page, bytes, begin, strlen(begin));
    const char *last = NULL;
    if (first != NULL) {
        first += strlen(begin);
        last = memmem(first, bytes - (size_t)(first - page), end, strlen(end));
    }
    (void)snprintf(source, SHA256_BASE64 + 16, "'none'");
    if (last == NULL)
        return QUIRE_OK;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    unsigned char text[SHA256_BASE64 + 1];
    if (SHA256((const unsigned char *)first, (size_t)(last - first), digest) == NULL)
        return QUIRE_E_NOMEM;
    EVP_EncodeBlock(text, digest, sizeof digest);
    (void)snprintf(source, SHA256_BASE64 + 16, "'sha256-%s'", (const char *)text);
    return QUIRE_OK;
}

int qr_http_page_set(qr_http_site *site, const char *page, size_t bytes)
{
    char script[SHA256_BASE64 + 16];
    char style[SHA256_BASE64 + 16];
    if (hash_between(page, bytes, "<script>", "</script>", script) != QUIRE_OK ||
        hash_between(page, bytes, "<style>", "</style>", style) != QUIRE_OK)
        return QUIRE_E_NOMEM;
    (void)snprintf(
        site->page_policy, sizeof site->page_policy,
        "default-src 'none'; script-src %s; style-src %s; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        script, style);
    site->page = page;
    site->page_bytes = bytes;
    return QUIRE_OK;
}

int qr_http_page_init(qr_http_site *site)
{
    return qr_http_page_set(site, quire_live_page, quire_live_page_bytes);
}
