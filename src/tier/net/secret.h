/* tier/net/secret.h - the password of a server, or the secret that two sides share. It is asked for
 * again at each connection: a token that expires is replaced while the tier works.
 *
 *      text    given once
 *      file    its first line, read for each connection
 *      get     the caller's function, called for each connection
 *
 * If the file cannot be read, or the function has none, the last one is used again.
 *
 * Threads: the one that opens, then the tier's. */
#ifndef QR_TIER_NET_SECRET_H
#define QR_TIER_NET_SECRET_H

#include "base/hooks.h"

#include <quire/tier.h>

#include <stdbool.h>

enum { QR_SECRET_BYTES = 2048, QR_SECRET_AUTH = 64 + 2 * QR_SECRET_BYTES };

typedef struct qr_secret {
    bool is_used;
    bool has_user;
    char user[QR_SECRET_BYTES];
    char password[QR_SECRET_BYTES];
    char *file;
    int (*get)(void *user, char *password, size_t bytes);
    void *get_user;
} qr_secret;

/* At most one of text, file and get is given. */
typedef struct qr_secret_options {
    const char *field; /* "password", "secret": its name in messages; the file is FIELD_file */
    const char *user;  /* NULL: none */
    const char *text;
    const char *file;
    int (*get)(void *user, char *password, size_t bytes);
    void *get_user;
    uint32_t least; /* characters that it must have when it is opened */
} qr_secret_options;

/* QUIRE_OK, or an error with a message: the password is asked for once. */
int qr_secret_open(qr_secret *secret, const qr_secret_options *options);
/* The password of now, up to QR_SECRET_BYTES with a 0 at its end; good until the next call. */
const char *qr_secret_get(qr_secret *secret);
/* Writes the AUTH command with the password of now, up to QR_SECRET_AUTH bytes; returns its
 * length. */
uint32_t qr_secret_write_auth(qr_secret *secret, char *at);
void qr_secret_close(qr_secret *secret);

#endif
