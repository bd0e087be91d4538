/* tier/redis_tls.h - TLS on a socket that does not block, with OpenSSL.
 *
 * Certificates are checked against the CA's file or the system's, and against the host's name or
 * address, unless the caller said otherwise. Where the library is built without libssl, qr_tls_open
 * says so, and nothing else here is ever called. */
#ifndef QR_TIER_REDIS_TLS_H
#define QR_TIER_REDIS_TLS_H

#include <quire/tier_redis.h>

#include <stdbool.h>
#include <sys/types.h>

typedef struct qr_tls qr_tls; /* what all connections share */

/* QUIRE_OK, or an error with a sentence. */
int qr_tls_open(const quire_tier_redis_config *config, qr_tls **out, char *message, size_t bytes);
void qr_tls_close(qr_tls *tls);
bool qr_tls_is_built(void);

/* A connection's own part; NULL: no memory. */
void *qr_tls_attach(qr_tls *tls, int fd, const char *host);
void qr_tls_detach(void *session);

/* All: > 0 done (bytes), 0 later, -1 lost. Both ways may want to read and to write. */
int qr_tls_greet(void *session);
ssize_t qr_tls_send(void *session, const void *bytes, size_t n);
ssize_t qr_tls_receive(void *session, void *bytes, size_t n);
/* Why the greeting failed, for a log; static. */
const char *qr_tls_reason(void *session);

#endif
