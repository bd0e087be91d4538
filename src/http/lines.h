/* http/lines.h - the open connections, and until when each has time.
 *
 *      opened ──► a request comes ──► it is answered ──► the next one comes ...
 *             timeout             answer_timeout      timeout
 *
 * The server library closes a connection on which nothing moves. One that sends a byte each second
 * moves, and would never end; here it is the whole request that has to come in time. A line that is
 * late is shut down, and the server's thread then finds it closed.
 *
 * Threads: any; the lock is held while a socket is shut down, so that its number is still its own.
 */
#ifndef QR_HTTP_LINES_H
#define QR_HTTP_LINES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct qr_http_line {
    int socket; /* -1: this place is free */
    uint64_t until_ns;
} qr_http_line;

typedef struct qr_http_lines {
    pthread_mutex_t lock;
    qr_http_line *lines;
    uint32_t max_lines;
} qr_http_lines;

#define QR_HTTP_NO_LIMIT UINT64_MAX

int qr_http_lines_init(qr_http_lines *lines, uint32_t max_lines);
void qr_http_lines_free(qr_http_lines *lines);

/* NULL: no place is free. */
qr_http_line *qr_http_lines_open(qr_http_lines *lines, int socket, uint64_t until_ns);
void qr_http_lines_set_time(qr_http_lines *lines, qr_http_line *line, uint64_t until_ns);
void qr_http_lines_close(qr_http_lines *lines, qr_http_line *line);
/* Shuts down those that are late. */
void qr_http_lines_tick(qr_http_lines *lines, uint64_t now_ns);

#endif
