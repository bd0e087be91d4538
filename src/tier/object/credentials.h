/* tier/object/credentials.h - who asks: an access key, its secret, and a token if they expire.
 *
 *      FIXED   given by the config or the environment, once
 *      FILE    the AWS tools' format; read again when it has changed, and when it is told to
 *      URI     asked for over HTTP by the tier's thread, again before they expire
 *
 *      generation   0: there are none yet. Grows when they change: who was refused with an older
 *                   generation may try again.
 *
 * Threads: the one that opens, then the tier's. */
#ifndef QR_TIER_OBJECT_CREDENTIALS_H
#define QR_TIER_OBJECT_CREDENTIALS_H

#include "tier/object/sigv4.h"

#include <quire/tier_object.h>

#include <sys/types.h>
#include <time.h>

enum {
    QR_CREDENTIALS_TOKEN = 8 * 1024,
    QR_CREDENTIALS_URI = 512,
    QR_CREDENTIALS_BODY = 16 * 1024 /* of a URI's answer, or of a file */
};

typedef enum qr_credentials_source {
    QR_CREDENTIALS_FIXED,
    QR_CREDENTIALS_FILE,
    QR_CREDENTIALS_URI_SOURCE
} qr_credentials_source;

typedef struct qr_credentials_set {
    char access_key[QR_SIGV4_ACCESS];
    char secret_key[QR_SIGV4_SECRET];
    char token[QR_CREDENTIALS_TOKEN]; /* empty: none */
    int64_t expires_s;                /* since 1970; 0: never */
} qr_credentials_set;

typedef struct qr_credentials {
    qr_credentials_source source;
    uint64_t generation;
    qr_credentials_set now;
    qr_credentials_set next; /* being read */
    char *file;
    char profile[128];
    struct timespec changed; /* of the file that was read */
    off_t file_bytes;
    ino_t inode;
    char uri[QR_CREDENTIALS_URI];
    char *token_file; /* of the URI; NULL: uri_token */
    char uri_token[QR_CREDENTIALS_TOKEN];
    char body[QR_CREDENTIALS_BODY];
} qr_credentials;

/* QUIRE_OK, or an error with a message. */
int qr_credentials_open(qr_credentials *c, const quire_tier_object_config *config);
void qr_credentials_close(qr_credentials *c);

/* FILE: reads it again if it has changed; is_forced: in any case. Whether there is another
 * generation now. If the file cannot be read, the last ones are used again. */
bool qr_credentials_reload(qr_credentials *c, bool is_forced);

/* URI: whether it should be asked now. */
bool qr_credentials_is_due(const qr_credentials *c, int64_t now_s);
/* The Authorization header of that request: NULL: none. Good until the next call. */
const char *qr_credentials_authorization(qr_credentials *c);
/* What the URI answered, `bytes` of c->body. false: it is not what it should be, and the last ones
 * stay. */
bool qr_credentials_take(qr_credentials *c, size_t bytes);

/* ---- readers, for tests too -------------------------------------------------- */

/* One profile of a file; false: it has no such profile, or not both keys. */
bool qr_credentials_read_file(const char *text, size_t bytes, const char *profile,
                              qr_credentials_set *set);
/* {"AccessKeyId": "...", "SecretAccessKey": "...", "Token": "...", "Expiration": "..."} */
bool qr_credentials_read_json(const char *text, size_t bytes, qr_credentials_set *set);

#endif
