/* base/ring.h - a bounded queue between two threads: one puts, one takes, no locks.
 *
 *          taken           put
 *            v              v
 *      [ .. | a | b | c | d | .. | .. ]      place = count & (capacity - 1)
 *
 * put and taken only grow (they wrap at 2^64, which no program lives to see). Each is written by
 * one side and stands in its own cache line; each side also keeps the other's last known value, so
 * that it looks across only when the ring seems full or empty.
 *
 *      0 <= put - taken <= capacity;  capacity is a power of two
 */
#ifndef QR_BASE_RING_H
#define QR_BASE_RING_H

#include "base/arena.h"

#include <stdatomic.h>

typedef struct qr_ring {
    unsigned char *elements;
    uint32_t element_bytes;
    uint32_t capacity;
    _Alignas(64) _Atomic uint64_t put;
    uint64_t taken_seen; /* by the side that puts */
    _Alignas(64) _Atomic uint64_t taken;
    uint64_t put_seen; /* by the side that takes */
} qr_ring;

/* capacity is rounded up to a power of two. */
void qr_ring_carve(qr_ring *ring, qr_arena *arena, uint32_t capacity, uint32_t element_bytes);
void qr_ring_init(qr_ring *ring);

/* Copies one element in; false when the ring is full. The putting thread only. */
bool qr_ring_put(qr_ring *ring, const void *element);
/* Copies one element out; false when the ring is empty. The taking thread only. */
bool qr_ring_take(qr_ring *ring, void *element);
/* How many are in it; exact on either side for its own purpose, otherwise a moment's view. */
uint32_t qr_ring_count(const qr_ring *ring);

#endif
