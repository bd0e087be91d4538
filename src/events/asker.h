/* events/asker.h - a subscriber's side of the replay socket: asks, and takes the answer in.
 *
 *      ask 42 ──►  ◄── 42, 43, ... 57, end            one request at a time
 *      ask 42 ──►  (nothing for too long) ── late: the socket is thrown away, and with it whatever
 *                                            still comes
 */
#ifndef QR_EVENTS_ASKER_H
#define QR_EVENTS_ASKER_H

#include "events/endpoint.h"

#include <stdint.h>
#include <zmq.h>

/* Keys of a subscriber; server NULL: no encryption. */
typedef struct qr_curve_keys {
    char server[41];
    char own_public[41];
    char own_secret[41];
    bool is_used;
} qr_curve_keys;

/* False: libzmq does not take them. */
bool qr_curve_keys_apply(const qr_curve_keys *keys, void *socket);

typedef struct qr_asker {
    void *context;
    void *dealer; /* NULL: none is open */
    qr_endpoint endpoint;
    const qr_curve_keys *keys;
    uint64_t max_message_bytes;
    uint32_t timeout_ms; /* for the answer to go on */
    uint64_t deadline_ms;
} qr_asker;

typedef enum qr_asker_answer {
    QR_ASKER_BATCH,
    QR_ASKER_END,
    QR_ASKER_NOTHING, /* within the time of this call */
    QR_ASKER_LATE     /* within the time of an answer */
} qr_asker_answer;

/* The request that is not a number. */
extern const unsigned char QR_ASKER_WHOLE[8];

/* False: no socket, the system has no more. */
bool qr_asker_ask(qr_asker *asker, const unsigned char request[8]);

/* The next message of the answer. payload must be an initialized message, and gets the batch. */
qr_asker_answer qr_asker_next(qr_asker *asker, long wait_ms, uint64_t *number, zmq_msg_t *payload);

void qr_asker_close(qr_asker *asker);

#endif
