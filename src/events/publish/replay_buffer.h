/* events/publish/replay_buffer.h - the last batches, for those who missed some.
 *
 *      oldest                       newest
 *      [ 41 | 42 | 43 | ... | 139 | 140 ]      numbers follow each other: a place is a remainder
 *
 * Bounded by a number of batches and by their bytes: the oldest goes first. The newest always
 * stays, even when it alone has more bytes than that. */
#ifndef QR_EVENTS_PUBLISH_REPLAY_BUFFER_H
#define QR_EVENTS_PUBLISH_REPLAY_BUFFER_H

#include "events/payload.h"

typedef struct qr_replay_buffer {
    qr_payload **batches; /* ring: that of number n is at n % capacity */
    uint32_t capacity;
    uint32_t count;
    uint64_t next; /* number of the batch that comes after the newest */
    uint64_t bytes;
    uint64_t max_bytes;
} qr_replay_buffer;

/* QUIRE_E_NOMEM. */
int qr_replay_buffer_init(qr_replay_buffer *buffer, uint32_t capacity, uint64_t max_bytes);
void qr_replay_buffer_release(qr_replay_buffer *buffer);

/* Takes over the caller's reference. Its number must be buffer->next. */
void qr_replay_buffer_push(qr_replay_buffer *buffer, qr_payload *payload);

/* The batch of that number or, where it is no longer there, the oldest; NULL: all are older. */
qr_payload *qr_replay_buffer_find(const qr_replay_buffer *buffer, uint64_t number);

#endif
