/* tier/redis_secret.h - user and password of the servers, asked for anew at each connection: tokens
 * that expire are replaced while the tier works.
 *
 *      password         given once
 *      password_file    its first line, read for each connection
 *      get_password     the caller's, asked for each connection
 *
 * If the file cannot be read, or the caller has none, the last password is used again.
 *
 * Threads: the one that opens, then the tier's. */
#ifndef QR_TIER_REDIS_SECRET_H
#define QR_TIER_REDIS_SECRET_H

#include <quire/tier_redis.h>

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

/* QUIRE_OK, or an error with a message: the password is asked for once. */
int qr_secret_open(qr_secret *secret, const quire_tier_redis_config *config, char *message,
                   size_t message_bytes);
/* Writes the AUTH command with the password of now, up to QR_SECRET_AUTH bytes; returns its
 * length. */
uint32_t qr_secret_write_auth(qr_secret *secret, char *at);
void qr_secret_close(qr_secret *secret);

#endif
