/* events/subscribe/replay_client.h - the subscriber's replay socket: asks, and takes answers.
 *
 *      ask 42 ──►  ◄── 42, 43, ... 57, end            one request at a time
 *      ask 42 ──►  (nothing for too long) ── late: the socket is thrown away, and with it whatever
 *                                            still comes
 */
#ifndef QR_EVENTS_SUBSCRIBE_REPLAY_CLIENT_H
#define QR_EVENTS_SUBSCRIBE_REPLAY_CLIENT_H

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

typedef struct qr_replay_client {
    void *context;
    void *dealer; /* NULL: none is open */
    qr_endpoint endpoint;
    const qr_curve_keys *keys;
    uint64_t max_message_bytes;
    uint32_t timeout_ms; /* for the answer to go on */
    uint64_t deadline_ms;
} qr_replay_client;

typedef enum qr_replay_outcome {
    QR_REPLAY_BATCH,
    QR_REPLAY_END,
    QR_REPLAY_NOTHING, /* within the time of this call */
    QR_REPLAY_LATE     /* within the time of an answer */
} qr_replay_outcome;

/* request: QR_NUMBER_BYTES. False: no socket, the system has no more. */
bool qr_replay_client_ask(qr_replay_client *asker, const void *request);

/* The next message of the answer. payload must be an initialized message, and gets the batch. */
qr_replay_outcome qr_replay_client_next(qr_replay_client *asker, long wait_ms, uint64_t *number,
                                        zmq_msg_t *payload);

void qr_replay_client_close(qr_replay_client *asker);

#endif
