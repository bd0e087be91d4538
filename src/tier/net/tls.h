/* tier/net/tls.h - TLS on a socket that does not block, with OpenSSL: of a client and of a server.
 *
 * A client checks the server's certificate against the CA's file or the system's, and against the
 * host's name or address, unless the caller said otherwise. A server asks its clients for a
 * certificate if it has a CA's file. Where the library is built without libssl, qr_tls_open says
 * so, and nothing else here is ever called. */
#ifndef QR_TIER_NET_TLS_H
#define QR_TIER_NET_TLS_H

#include "base/hooks.h"

#include <quire/tier.h>

#include <stdbool.h>
#include <sys/types.h>

typedef struct qr_tls qr_tls; /* what all connections share */

typedef struct qr_tls_options {
    const char *ca_file;     /* PEM; NULL: the system's; of a server: clients need no certificate */
    const char *cert_file;   /* PEM, of this side; NULL: none */
    const char *key_file;    /* and its key */
    const char *server_name; /* that a client expects; NULL: the host's */
    bool trusts_any;         /* a client does not check the server's certificate */
    bool is_server;
} qr_tls_options;

/* QUIRE_OK, or an error with a sentence. */
int qr_tls_open(const qr_tls_options *options, qr_tls **out);
void qr_tls_close(qr_tls *tls);
bool qr_tls_is_built(void);

/* A connection's own part; NULL: no memory. host: of the server; NULL for a server. */
void *qr_tls_attach(qr_tls *tls, int fd, const char *host);
void qr_tls_detach(void *session);

/* All: > 0 done (bytes), 0 later, -1 lost. Both ways may want to read and to write. */
int qr_tls_greet(void *session);
ssize_t qr_tls_send(void *session, const void *bytes, size_t n);
ssize_t qr_tls_receive(void *session, void *bytes, size_t n);
/* Why a connection was refused, by this side or by the other, for a log; static. NULL: TLS is not
 * the reason. */
const char *qr_tls_reason(void *session);

#if defined QUIRE_NO_TLS
#define qr_tls_close(tls)                 ((void)(tls))
#define qr_tls_attach(tls, fd, host)      ((void)(tls), (void)(host), NULL)
#define qr_tls_detach(session)            ((void)(session))
#define qr_tls_greet(session)             (-1)
#define qr_tls_send(session, bytes, n)    (-1)
#define qr_tls_receive(session, bytes, n) (-1)
#define qr_tls_reason(session)            (NULL)
#endif

#endif
