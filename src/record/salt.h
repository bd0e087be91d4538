/* record/salt.h - the secret of a recording, and the salted hashes that it makes.
 *
 *      secret (256 random bits, in memory alone)
 *         └─► HMAC-SHA256(secret, kind | value) ─► the first 64 bits
 */
#ifndef QR_RECORD_SALT_H
#define QR_RECORD_SALT_H

#include <quire/config.h>

#include <stddef.h>
#include <stdint.h>

enum { QR_SALTED_BYTES = 8 };

/* One byte before each value: equal bytes of two kinds have different hashes. */
typedef enum qr_salt_kind {
    QR_SALT_BLOCK = 'b',
    QR_SALT_ADAPTER = 'a',
    QR_SALT_SALT = 's',
    QR_SALT_SESSION = 'n',
    QR_SALT_INPUT = 'm'
} qr_salt_kind;

typedef struct qr_salt qr_salt;

/* QUIRE_OK, QUIRE_E_RANDOM or QUIRE_E_NOMEM. */
int qr_salt_create(const quire_hooks *hooks, qr_salt **salt);
void qr_salt_destroy(qr_salt *salt);
/* QUIRE_OK or QUIRE_E_NOMEM. */
int qr_salt_hash(qr_salt *salt, qr_salt_kind kind, const void *value, size_t bytes,
                 unsigned char out[QR_SALTED_BYTES]);

#endif
