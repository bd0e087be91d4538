/* tier/core/spsc.h - numbers from one thread to one other, without locks.
 *
 *          taken           put
 *            v              v
 *      [ .. | a | b | c | d | .. | .. ]      place = count & (capacity - 1)
 *
 * Each side writes one of the two counts, in a cache line of its own. There is always room: whoever
 * puts has counted before (a job is in flight, and that often at most).
 *
 *      0 <= put - taken <= capacity;  capacity is a power of two
 */
#ifndef QR_TIER_CORE_SPSC_H
#define QR_TIER_CORE_SPSC_H

#include "base/arena.h"
#include "base/assert.h"

#include <stdatomic.h>

typedef struct qr_spsc {
    uint32_t *numbers;
    uint32_t capacity;
    _Alignas(64) _Atomic uint32_t put;
    _Alignas(64) _Atomic uint32_t taken;
} qr_spsc;

/* Room for so many. */
static inline void qr_spsc_carve(qr_spsc *ring, qr_arena *arena, uint32_t most)
{
    ring->capacity = (uint32_t)qr_round_up_pow2(most);
    ring->numbers = qr_arena_take(arena, ring->capacity, sizeof *ring->numbers);
}

/* seq_cst: whether the other side sleeps is looked at after this, and it looks here after it said
 * that it will; one of the two must see the other. */
static inline void qr_spsc_put(qr_spsc *ring, uint32_t number)
{
    uint32_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
    qr_assert(put - atomic_load_explicit(&ring->taken, memory_order_acquire) < ring->capacity);
    ring->numbers[put & (ring->capacity - 1)] = number;
    atomic_store_explicit(&ring->put, put + 1, memory_order_seq_cst);
}

static inline bool qr_spsc_is_empty(const qr_spsc *ring)
{
    return atomic_load_explicit(&ring->put, memory_order_seq_cst) ==
           atomic_load_explicit(&ring->taken, memory_order_relaxed);
}

static inline bool qr_spsc_take(qr_spsc *ring, uint32_t *number)
{
    uint32_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    if (taken == atomic_load_explicit(&ring->put, memory_order_acquire))
        return false;
    *number = ring->numbers[taken & (ring->capacity - 1)];
    atomic_store_explicit(&ring->taken, taken + 1, memory_order_release);
    return true;
}

#endif
