/* http/handler.h - a request in, a response out. No sockets here: what a stranger can send comes
 * through this one function, so that a test can send it too.
 *
 *      Host ──► token ──► method ──► path ──► query         the first that is wrong answers:
 *       421      401       405       404      400           nobody learns more than he may
 */
#ifndef QR_HTTP_HANDLER_H
#define QR_HTTP_HANDLER_H

#include "http/body.h"
#include "http/site.h"

enum {
    QR_HTTP_MAX_ARGS = 16,        /* of a query; more are refused */
    QR_HTTP_SNAPSHOT_STEPS = 512, /* without a limit */
    QR_HTTP_SNAPSHOT_LIMIT = 1000
};

typedef struct qr_http_arg {
    quire_bytes name;
    quire_bytes value; /* absent: the query has no "=" there */
} qr_http_arg;

/* Percent signs are decoded. Headers that did not come are absent (data NULL). */
typedef struct qr_http_request {
    quire_bytes method;
    quire_bytes path;
    quire_bytes host;
    quire_bytes authorization;
    quire_bytes accept;
    quire_bytes last_event_id;
    qr_http_arg args[QR_HTTP_MAX_ARGS];
    uint32_t num_args;  /* all that came, those without a place in args too */
    uint32_t num_hosts; /* Host headers */
    bool has_body;
    uint64_t header_bytes;
    uint64_t now_ns;
} qr_http_request;

typedef struct qr_http_response {
    uint32_t status;
    const char *content_type;
    const char *header_name; /* one that only this status has; NULL: none */
    const char *header_value;
    const char *policy; /* Content-Security-Policy; NULL: the one that allows nothing */
    const char *page;   /* instead of a body: text that stays; NULL: none */
    size_t page_bytes;
    qr_http_body body; /* the receiver's to free */
    bool is_stream;    /* of events; then there is no body */
    bool has_after;    /* the client says which step it saw last */
    uint64_t after;
} qr_http_response;

/* Answers before the body of a request is read: 413, 431, or 0 when the request may go on. */
uint32_t qr_http_refuse(const qr_http_request *request, qr_http_response *response);
void qr_http_answer(const qr_http_site *site, const qr_http_request *request,
                    qr_http_response *response);
/* In place of a stream that cannot be opened. */
void qr_http_answer_full(qr_http_response *response);

#endif
