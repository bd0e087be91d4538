/* quire/http.h - a monitor over HTTP: metrics, steps, events, and the live page.
 *
 *      GET /          the live page
 *      GET /metrics   Prometheus text, or OpenMetrics if Accept asks for it
 *      GET /healthz   200 while the scheduler makes steps or has nothing to do, otherwise 503
 *      GET /snapshot  the last steps as JSON (?after=STEP&limit=N)
 *      GET /blocks    the block maps of the GPU's pool and of the host pool, as JSON
 *      GET /events    server-sent events: steps and cache events as they happen
 *
 * docs/http.md describes the replies. HEAD works like GET; all other methods are refused.
 *
 * The server is read-only. It listens on the loopback address; any other address requires a token,
 * which clients send as "Authorization: Bearer TOKEN" (or ?token= for the page, which cannot send
 * headers). If a token is set, every request needs it. The Host header must name the server's
 * address, so that no foreign page can read the server through a browser. Connections, headers and
 * times are limited: a connection beyond the limits is closed. No reply contains token ids of
 * prompts.
 *
 * The scheduler never waits for the server (quire/monitor.h).
 *
 * Part of libquire_http. Threads: the server has two threads, with all signals blocked. Any thread
 * may call the functions.
 */
#ifndef QUIRE_HTTP_H
#define QUIRE_HTTP_H

#include "monitor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_http quire_http;

typedef struct quire_http_config {
    size_t size;
    quire_monitor *monitor; /* must outlive the server */
    const char *address;    /* numeric; NULL = "127.0.0.1" */
    uint32_t port;          /* 0: the system chooses a port, see quire_http_port */
    /* 16 to 256 ASCII characters without blanks; required for addresses other than the loopback. */
    const char *token;
    const char *const *hosts; /* more names that Host may have, without port; at most 64 */
    uint32_t num_hosts;
    /* 0 = 64; at most 4,096. A further connection closes another one: of the address with the most
     * connections, the connection that has waited longest for its request, or else the connection
     * whose reply takes longest to read. */
    uint32_t max_connections;
    /* Timeout for a whole request, and for a connection without traffic; 0 = 5; at most 3,600. */
    uint32_t timeout_s;
    /* The most /events streams; 0 = 16; at most 256, and at most three quarters of the connections.
     */
    uint32_t max_streams;

    /* For the page and the labels of metrics; NULL: unknown; at most 255 bytes each. */
    const char *title;
    const char *model_name;
    const char *engine;
    const char *gpu;

    /* /healthz returns 503 if requests run or wait and no step is made for this time; 0 = 30. */
    uint32_t stuck_s;
} quire_http_config;

#define QUIRE_HTTP_CONFIG_INIT QUIRE_SIZED_INIT(quire_http_config)

/* Listens, and starts the threads. QUIRE_E_UNSAFE: an address other than the loopback without a
 * token. QUIRE_E_CONFIG: a field is out of its range. QUIRE_E_SYSTEM: the address is in use or does
 * not belong to this machine. QUIRE_E_ARGUMENT: a required pointer is NULL. If the call
 * fails, quire_refusal names the value and says what to do. */
QUIRE_API int quire_http_create(const quire_http_config *config, quire_http **http);
/* Closes all connections and stops the threads. NULL: does nothing. A server belongs to the process
 * that created it: in the child of a fork this frees the child's memory and closes the child's copy
 * of the listening socket; the parent's server continues. */
QUIRE_API void quire_http_destroy(quire_http *http);
/* The port that the server listens on. */
QUIRE_API uint32_t quire_http_port(const quire_http *http);

#ifdef __cplusplus
}
#endif
#endif
