/* tier/object/sigv4.h - AWS Signature Version 4: how a request proves who sends it.
 *
 *      secret ─ HMAC day ─ HMAC region ─ HMAC service ─ HMAC "aws4_request" ──► key of that day
 *      method, path, query, headers, hash of the body ─ SHA-256 ─┐
 *      time, scope ──────────────────────────────────────────────┴─ HMAC key ──► signature
 *
 * The key is kept while secret and day are the same: then a request costs two hashes of some
 * hundred bytes. */
#ifndef QR_TIER_OBJECT_SIGV4_H
#define QR_TIER_OBJECT_SIGV4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QR_SIGV4_KEY = 32,
    QR_SIGV4_HASH = 64 + 1, /* in hex */
    QR_SIGV4_TIME = 16 + 1, /* "20130524T000000Z" */
    QR_SIGV4_REGION = 63 + 1,
    QR_SIGV4_NAMES = 256,      /* of signed headers, with their ; */
    QR_SIGV4_ACCESS = 128 + 1, /* the access key */
    QR_SIGV4_SECRET = 128 + 1,
    QR_SIGV4_TEXT = 768 /* "AWS4-HMAC-SHA256 Credential=..." */
};

/* Of one region and service. */
typedef struct qr_sigv4 {
    char region[QR_SIGV4_REGION];
    char service[32];
    char day[9]; /* that key is of; empty: of none */
    unsigned char key[QR_SIGV4_KEY];
} qr_sigv4;

typedef struct qr_sigv4_header {
    const char *name; /* in lower case */
    const char *value;
} qr_sigv4_header;

typedef struct qr_sigv4_request {
    const char *method;
    const char *path;  /* as it is sent: already encoded */
    const char *query; /* sorted and encoded; "" */
    const char *time;
    const char *body_hash;          /* hex, or UNSIGNED-PAYLOAD */
    const qr_sigv4_header *headers; /* sorted by name; all of them are signed */
    uint32_t num_headers;
} qr_sigv4_request;

/* The time as it stands in a request; seconds since 1970. */
void qr_sigv4_write_time(int64_t seconds, char text[QR_SIGV4_TIME]);
/* Of some bytes in two pieces, each of which may be empty; in hex. */
void qr_sigv4_hash(const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                   char text[QR_SIGV4_HASH]);
/* Writes the value of the Authorization header. false: a name or a value is too long. */
bool qr_sigv4_sign(qr_sigv4 *sigv4, const char *access_key, const char *secret_key,
                   const qr_sigv4_request *request, char text[QR_SIGV4_TEXT]);
/* The secret has changed: the key of the day is made again. */
void qr_sigv4_forget(qr_sigv4 *sigv4);

#endif
