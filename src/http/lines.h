/* http/lines.h - the open connections: until when each has time, and which one gives way.
 *
 *      opened ──► WAITING ──► a request is complete ──► ANSWERING ──► sent ──► WAITING ...
 *                 timeout          └──► /events: STREAMING  6 timeouts
 *
 * The server library closes a connection on which nothing moves. A client that sends a byte each
 * second would keep its connection for ever; here the whole request has to come in time. A line
 * that is late is shut down, and the server's thread then finds it closed.
 *
 * When max_live lines are open, a new one displaces another, so that a crowd of slow clients cannot
 * keep others out: of the address with most lines, the line that has waited longest for its
 * request, or else the one that has been read longest. A request that comes with its connection is
 * complete at once: it is never the one that has waited longest. Streams are not displaced; the hub
 * limits them. An address is an IPv4 address or the first 64 bits of an IPv6 address.
 *
 *      num_live <= max_live, unless all others are streams
 *      line.num_same == live lines of its address that are no streams
 *
 * A line that is shut down keeps its place until the server's thread has closed its socket:
 * QR_HTTP_SPARE_LINES more places than max_live are for these.
 *
 * Threads: any; the lock is held while a socket is shut down, so that its number is still its own.
 */
#ifndef QR_HTTP_LINES_H
#define QR_HTTP_LINES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { QR_HTTP_SPARE_LINES = 32 };

struct sockaddr;

typedef enum qr_http_line_state {
    QR_HTTP_WAITING = 0, /* for a complete request */
    QR_HTTP_ANSWERING,
    QR_HTTP_STREAMING
} qr_http_line_state;

typedef struct qr_http_line {
    int socket;   /* -1: this place is free */
    bool is_shut; /* and will be closed by the server's thread */
    qr_http_line_state state;
    uint32_t num_same;
    uint64_t address;
    uint64_t since_ns; /* in this state */
    uint64_t until_ns;
} qr_http_line;

typedef struct qr_http_lines {
    pthread_mutex_t lock;
    qr_http_line *lines; /* max_live + QR_HTTP_SPARE_LINES */
    uint32_t num_lines;
    uint32_t num_live; /* not shut */
    uint32_t max_live;
} qr_http_lines;

#define QR_HTTP_NO_LIMIT UINT64_MAX

int qr_http_lines_init(qr_http_lines *lines, uint32_t max_live);
void qr_http_lines_free(qr_http_lines *lines);

/* What counts as one address; NULL and unknown families are all alike. */
uint64_t qr_http_lines_address(const struct sockaddr *from);
/* Waiting. May shut another one down. NULL: no place is free. */
qr_http_line *qr_http_lines_open(qr_http_lines *lines, int socket, uint64_t address,
                                 uint64_t now_ns, uint64_t until_ns);
void qr_http_lines_set(qr_http_lines *lines, qr_http_line *line, qr_http_line_state state,
                       uint64_t now_ns, uint64_t until_ns);
void qr_http_lines_close(qr_http_lines *lines, qr_http_line *line);
/* Shuts down those that are late. */
void qr_http_lines_tick(qr_http_lines *lines, uint64_t now_ns);

#endif
