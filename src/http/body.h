/* http/body.h - a text that grows while it is written.
 *
 *      [ {"version":1,"meta": ...                    ]
 *        0                   len        capacity          len <= capacity <= QR_HTTP_BODY_LIMIT
 *
 * When memory or the limit ends, the text is marked as failed, and stays so: the writer goes on
 * without looking, and whoever sends the text looks once.
 */
#ifndef QR_HTTP_BODY_H
#define QR_HTTP_BODY_H

#include <quire/hash.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QR_HTTP_BODY_LIMIT = 4 << 20 };

typedef struct qr_http_body {
    char *bytes;
    size_t len;
    size_t capacity;
    bool is_failed;
} qr_http_body;

/* Room for so many bytes more; NULL when there is none. They count once len is raised. */
char *qr_http_body_room(qr_http_body *body, size_t bytes);
void qr_http_body_add(qr_http_body *body, const void *bytes, size_t len);
void qr_http_body_text(qr_http_body *body, const char *text);
/* Words and numbers, at most 255 characters. */
void qr_http_body_print(qr_http_body *body, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Nanoseconds as microseconds: 1500 is "1.5". */
void qr_http_body_us(qr_http_body *body, uint64_t ns);
/* A JSON string with its quotes. What is no UTF-8 becomes U+FFFD. */
void qr_http_body_json(qr_http_body *body, quire_bytes text);
/* Something a stranger sent, to be read by a person: what cannot be printed becomes "?", and what
 * is long is cut. */
void qr_http_body_quote(qr_http_body *body, quire_bytes text);

/* Empty and whole again; the memory is kept. */
void qr_http_body_clear(qr_http_body *body);
void qr_http_body_free(qr_http_body *body);

#endif
