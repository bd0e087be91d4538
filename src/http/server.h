/* http/server.h - the handler on libmicrohttpd.
 *
 *      library's thread   sockets, parsing ──► handler ──► response        (all connections)
 *      ticker's thread    ten times a second: health, streams, late lines
 *
 * libmicrohttpd holds a connection's request in QR_HTTP_LINE_BYTES, and answers itself what does
 * not fit or is no HTTP. A stream that has nothing to send is suspended, and resumed by the ticker.
 */
#ifndef QR_HTTP_SERVER_H
#define QR_HTTP_SERVER_H

#include "base/fork_guard.h"
#include "http/hub.h"
#include "http/lines.h"
#include "http/site.h"

#include <quire/http.h>

enum { QR_HTTP_LINE_BYTES = 32 << 10 };

struct MHD_Daemon;

struct quire_http {
    qr_fork_guard guard;
    qr_http_site site;
    qr_http_hub hub;
    qr_http_lines lines;
    struct MHD_Daemon *daemon;
    int socket; /* that listens; -1: none */
    pthread_t ticker;
    int stop_fd; /* an eventfd; -1: the ticker does not run */
    uint32_t port;
    uint32_t max_connections;
    uint64_t timeout_ns;
};

/* How the hub's streams sleep and wake here. */
extern const qr_http_hooks qr_http_server_hooks;

/* With site, hub, lines, max_connections and timeout_ns made. Listens on the site's address, which
 * is `address` in words; port 0: one that the system chooses. QUIRE_E_SYSTEM with a sentence. */
int qr_http_server_start(quire_http *http, const char *address, uint32_t port);
/* Stops what runs. */
void qr_http_server_stop(quire_http *http);
/* In the child of a fork: closes the child's copies of the descriptors, and stops nothing. */
void qr_http_server_leave(quire_http *http);

#endif
