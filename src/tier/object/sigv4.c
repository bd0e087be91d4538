#include "tier/object/sigv4.h"

#include "base/hex.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

enum { DAY = 8 };

void qr_sigv4_write_time(int64_t seconds, char text[QR_SIGV4_TIME])
{
    time_t when = (time_t)seconds;
    struct tm t = {0};
    if (gmtime_r(&when, &t) == NULL || strftime(text, QR_SIGV4_TIME, "%Y%m%dT%H%M%SZ", &t) == 0)
        memcpy(text, "19700101T000000Z", QR_SIGV4_TIME);
}

static void end_hash(SHA256_CTX *context, char text[QR_SIGV4_HASH])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256_Final(digest, context);
    *qr_hex_write(text, digest, sizeof digest) = 0;
}

void qr_sigv4_hash(const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                   char text[QR_SIGV4_HASH])
{
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, a, a_bytes);
    SHA256_Update(&context, b, b_bytes);
    end_hash(&context, text);
}

static void add_text(SHA256_CTX *context, const char *text)
{
    SHA256_Update(context, text, strlen(text));
}

static bool write_names(const qr_sigv4_request *r, char names[QR_SIGV4_NAMES])
{
    size_t at = 0;
    names[0] = 0;
    for (uint32_t i = 0; i < r->num_headers; i++) {
        int n = snprintf(names + at, QR_SIGV4_NAMES - at, "%s%s", i == 0 ? "" : ";",
                         r->headers[i].name);
        at += (size_t)n;
        if (at >= QR_SIGV4_NAMES)
            return false;
    }
    return true;
}

static void hash_request(const qr_sigv4_request *r, const char *names, char text[QR_SIGV4_HASH])
{
    SHA256_CTX context;
    const char *const lines[] = {r->method, r->path, r->query};
    SHA256_Init(&context);
    for (int i = 0; i < 3; i++) {
        add_text(&context, lines[i]);
        add_text(&context, "\n");
    }
    for (uint32_t i = 0; i < r->num_headers; i++) {
        add_text(&context, r->headers[i].name);
        add_text(&context, ":");
        add_text(&context, r->headers[i].value);
        add_text(&context, "\n");
    }
    add_text(&context, "\n");
    add_text(&context, names);
    add_text(&context, "\n");
    add_text(&context, r->body_hash);
    end_hash(&context, text);
}

static bool mac(const void *key, size_t key_bytes, const char *text,
                unsigned char out[QR_SIGV4_KEY])
{
    unsigned int bytes = 0;
    unsigned char digest[EVP_MAX_MD_SIZE];
    bool is_made = HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text,
                        strlen(text), digest, &bytes) != NULL &&
                   bytes == QR_SIGV4_KEY;
    memcpy(out, digest, QR_SIGV4_KEY);
    return is_made;
}

static bool make_key(qr_sigv4 *s, const char *secret_key, const char *day)
{
    char first[4 + QR_SIGV4_SECRET];
    int n = snprintf(first, sizeof first, "AWS4%s", secret_key);
    bool is_made = n < (int)sizeof first && mac(first, (size_t)n, day, s->key) &&
                   mac(s->key, QR_SIGV4_KEY, s->region, s->key) &&
                   mac(s->key, QR_SIGV4_KEY, s->service, s->key) &&
                   mac(s->key, QR_SIGV4_KEY, "aws4_request", s->key);
    qr_memory_wipe(first, sizeof first);
    memcpy(s->day, day, DAY + 1);
    return is_made;
}

bool qr_sigv4_sign(qr_sigv4 *s, const char *access_key, const char *secret_key,
                   const qr_sigv4_request *r, char text[QR_SIGV4_TEXT])
{
    char names[QR_SIGV4_NAMES];
    char hash[QR_SIGV4_HASH];
    char scope[DAY + QR_SIGV4_REGION + sizeof s->service + 16];
    char to_sign[sizeof scope + QR_SIGV4_TIME + QR_SIGV4_HASH + 32];
    unsigned char signature[QR_SIGV4_KEY];
    char day[DAY + 1] = "";
    memcpy(day, r->time, DAY);
    if (!write_names(r, names))
        return false;
    if (strcmp(day, s->day) != 0 && !make_key(s, secret_key, day)) {
        qr_sigv4_forget(s);
        return false;
    }
    hash_request(r, names, hash);
    (void)snprintf(scope, sizeof scope, "%s/%s/%s/aws4_request", day, s->region, s->service);
    (void)snprintf(to_sign, sizeof to_sign, "AWS4-HMAC-SHA256\n%s\n%s\n%s", r->time, scope, hash);
    if (!mac(s->key, QR_SIGV4_KEY, to_sign, signature))
        return false;
    *qr_hex_write(hash, signature, sizeof signature) = 0;
    return snprintf(text, QR_SIGV4_TEXT,
                    "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s", access_key,
                    scope, names, hash) < QR_SIGV4_TEXT;
}

void qr_sigv4_forget(qr_sigv4 *s)
{
    s->day[0] = 0;
    qr_memory_wipe(s->key, sizeof s->key);
}
