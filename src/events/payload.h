/* events/payload.h - a batch's bytes, shared by all who still have to send them.
 *
 *      replay buffer ──┐
 *      subscriber 1  ──┼──► payload (refs 3) ──► freed with the last
 *      subscriber 2  ──┘
 *
 * One copy serves the live message, each replay of it and the buffer, so that they cannot differ
 * (and a subscriber that lags costs no copy of its own). The last to let go may be a thread of
 * ZeroMQ's: hence the atomic count.
 *
 * budget    counts the bytes of all payloads that somebody still has; it must outlive them. What
 *           is stuck in queues is bounded by looking at it before sending.
 */
#ifndef QR_EVENTS_PAYLOAD_H
#define QR_EVENTS_PAYLOAD_H

#include "base/bits.h"

#include <quire/hash.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <zmq.h>

typedef struct qr_budget {
    _Atomic uint64_t bytes;
} qr_budget;

typedef struct qr_payload {
    _Atomic uint32_t refs;
    uint64_t number;
    qr_budget *budget;
    size_t len;
    unsigned char bytes[];
} qr_payload;

/* A copy of bytes, with one reference, the caller's; NULL: no memory. */
qr_payload *qr_payload_create(qr_budget *budget, uint64_t number, quire_bytes bytes);
void qr_payload_drop(qr_payload *payload);

/* What it takes of memory. */
static inline uint64_t qr_payload_bytes(const qr_payload *payload)
{
    return sizeof *payload + payload->len;
}

/* Makes a frame of it, with a reference of its own; false: no memory. */
bool qr_payload_wrap(qr_payload *payload, zmq_msg_t *frame);

/* Numbers on the wire: 8 bytes, the highest first. */
enum { QR_NUMBER_BYTES = 8 };

static inline void qr_payload_write_number(uint64_t number, unsigned char bytes[QR_NUMBER_BYTES])
{
    qr_store_u64(bytes, qr_be_u64(number));
}

static inline uint64_t qr_payload_read_number(const unsigned char bytes[QR_NUMBER_BYTES])
{
    return qr_be_u64(qr_load_u64(bytes));
}

/* The request for the whole index, in place of a number. */
#define QR_REPLAY_SNAPSHOT "snapshot"

#endif
