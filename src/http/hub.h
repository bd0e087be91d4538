/* http/hub.h - /events: what happens, told to all streams.
 *
 *      monitor ──► one reader, ten times a second ──► one text ─┬─► stream [ ....    ] ──► client
 *                                                               ├─► stream [ ....... ] ──► slow one
 *                                                               └─► stream [ .       ] ──► client
 *
 *      event: hello   meta, columns, the last steps      first, and once
 *      event: steps   the steps since                    at most 10 times a second
 *      event: kv      what the cache did since           the same
 *      :              nothing for a long time
 *
 * A stream has room for QR_HTTP_STREAM_BYTES. A message for which a slow client has left no room is
 * not told to it: the next one says how many steps and events it missed.
 *
 *      0 <= len <= QR_HTTP_STREAM_BYTES;   is_asleep implies len == 0 when the lock is free
 *
 * Threads: the server's thread opens, takes from and closes streams; another one makes the ticks.
 * The hub's lock is all that they share. Its hooks are called under it.
 */
#ifndef QR_HTTP_HUB_H
#define QR_HTTP_HUB_H

#include "http/body.h"
#include "http/site.h"

#include <pthread.h>

enum {
    QR_HTTP_STREAM_BYTES = 256 << 10,
    QR_HTTP_HELLO_STEPS = 512,
    QR_HTTP_MESSAGE_STEPS = 256,
    QR_HTTP_MESSAGE_EVENTS = 200
};

struct MHD_Connection;

/* What the hub asks of the server; connection as given to qr_http_hub_open. */
typedef struct qr_http_hooks {
    void (*sleep)(struct MHD_Connection *connection); /* do not ask for more until woken */
    void (*wake)(struct MHD_Connection *connection);
    bool (*is_gone)(
        struct MHD_Connection *connection); /* asked while it sleeps: whether the client has left */
} qr_http_hooks;

typedef struct qr_http_stream {
    struct qr_http_hub *hub;
    struct MHD_Connection *connection; /* NULL: this place is free */
    char *bytes;
    size_t first;
    size_t len;
    bool is_new; /* not greeted yet */
    bool is_asleep;
    bool is_ended;
    bool has_after;
    uint64_t after;
    uint64_t num_skipped_steps; /* since its last message */
    uint64_t num_skipped_events;
    uint64_t num_losses;
    uint64_t told_ns;
} qr_http_stream;

typedef struct qr_http_hub {
    const qr_http_site *site;
    qr_http_hooks hooks;
    pthread_mutex_t lock;
    qr_http_stream *streams;
    uint32_t max_streams;
    uint32_t num_streams;
    bool is_ended;

    /* Of the ticks alone. */
    quire_reader *reader;
    bool is_following; /* seen is not long ago */
    uint64_t seen;     /* step */
    qr_http_body steps;
    uint64_t num_steps;
    uint64_t num_skipped_steps;
    qr_http_body events;
    uint64_t num_events; /* in the text */
    uint64_t num_skipped_events;
    uint64_t num_losses; /* times that events were overwritten before they were read */
    qr_http_body message;
} qr_http_hub;

int qr_http_hub_init(qr_http_hub *hub, const qr_http_site *site, uint32_t max_streams,
                     const qr_http_hooks *hooks);
/* No stream may be open. */
void qr_http_hub_free(qr_http_hub *hub);

/* NULL: there are as many as there may be, or no memory. */
qr_http_stream *qr_http_hub_open(qr_http_hub *hub, struct MHD_Connection *connection,
                                 bool has_after, uint64_t after);
void qr_http_hub_close(qr_http_stream *stream);
/* Up to `most` bytes. 0: nothing now, and it was put to sleep; -1: the end. */
int64_t qr_http_hub_take(qr_http_stream *stream, char *out, size_t most);

void qr_http_hub_tick(qr_http_hub *hub, uint64_t now_ns);
/* All streams end, and none is opened or put to sleep any more. */
void qr_http_hub_end(qr_http_hub *hub);

#endif
