/* quire/http.h - a monitor over HTTP: metrics, steps, events, and the live page.
 *
 *      GET /          the live page
 *      GET /metrics   Prometheus text, or OpenMetrics where Accept asks for it
 *      GET /healthz   200 while the scheduler makes steps or has nothing to do, else 503
 *      GET /snapshot  the last steps as JSON (?after=STEP&limit=N)
 *      GET /events    server-sent events: steps and cache events as they happen
 *
 * docs/http.md has what they answer. HEAD works as GET does; everything else is refused.
 *
 * Read-only. Listens on the loopback; any other address needs a token, which clients send as
 * "Authorization: Bearer TOKEN" (or ?token= for the page, which cannot send headers). Where there
 * is a token, everything needs it. The Host header must name what it listens to, so that no foreign
 * page can read it through a browser. Connections, headers and times are limited: what does not fit
 * is closed. No answer has token ids of prompts.
 *
 * The scheduler never waits for any of this (quire/monitor.h).
 *
 * Part of libquire_http. Threads: the server has two of its own, with all signals blocked; the
 * functions may be called by any.
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
    quire_monitor *monitor;   /* must outlive the server */
    const char *address;      /* numeric; NULL = "127.0.0.1" */
    uint32_t port;            /* 0: the system chooses, see quire_http_port */
    const char *token;        /* 16 to 256 characters, none of them a blank or beyond ASCII; needed
                                 beyond the loopback */
    const char *const *hosts; /* further names that Host may have, without port; at most 64 */
    uint32_t num_hosts;
    uint32_t max_connections; /* 0 = 64; at most 4,096. A further one displaces another: of the
                                 address with most connections, the one that has waited longest
                                 for its request, else the one whose answer is read longest */
    uint32_t timeout_s;       /* for a whole request to come, and for a connection on which nothing
                                 moves; 0 = 5; at most 3,600 */
    uint32_t max_streams;     /* /events at one time; 0 = 16; at most 256, and never more than
                                 three quarters of the connections */

    /* For the page and the labels of metrics; NULL: not known; at most 255 bytes */
    const char *title;
    const char *model_name;
    const char *engine;
    const char *gpu;

    uint32_t stuck_s; /* /healthz is 503 when requests run or wait and no step is made for so long;
                         0 = 30 */
} quire_http_config;

#define QUIRE_HTTP_CONFIG_INIT QUIRE_SIZED_INIT(quire_http_config)

/* Listens, and starts its threads. QUIRE_E_UNSAFE: an address beyond the loopback, and no token;
 * QUIRE_E_CONFIG: a field is out of its range; QUIRE_E_SYSTEM: the address is taken or not ours.
 * message, where not NULL, gets a sentence when it fails, with the value and what to do. */
QUIRE_API int quire_http_create(const quire_http_config *config, quire_http **http, char *message,
                                size_t message_bytes);
/* Closes all connections and stops; NULL is fine. A server belongs to the process that created it:
 * in the child of a fork this frees the child's memory and closes the child's copy of the listening
 * socket; the parent's server goes on. */
QUIRE_API void quire_http_destroy(quire_http *http);
/* The port it listens to. */
QUIRE_API uint32_t quire_http_port(const quire_http *http);

#ifdef __cplusplus
}
#endif
#endif
