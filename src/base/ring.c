#include "base/ring.h"

#include "base/assert.h"

static uint32_t pow2_at_least(uint32_t n)
{
    uint32_t p = 1;
    while (p < n && p < UINT32_C(1) << 31)
        p <<= 1;
    return p;
}

void qr_ring_carve(qr_ring *ring, qr_arena *arena, uint32_t capacity, uint32_t element_bytes)
{
    ring->capacity = pow2_at_least(capacity);
    ring->element_bytes = element_bytes;
    ring->elements = qr_arena_take(arena, ring->capacity, element_bytes);
}

void qr_ring_init(qr_ring *ring)
{
    qr_assert(qr_is_pow2(ring->capacity));
    atomic_init(&ring->put, 0);
    atomic_init(&ring->taken, 0);
    ring->taken_seen = 0;
    ring->put_seen = 0;
}

static unsigned char *place_of(const qr_ring *ring, uint64_t count)
{
    return ring->elements + (size_t)(count & (ring->capacity - 1)) * ring->element_bytes;
}

bool qr_ring_put(qr_ring *ring, const void *element)
{
    uint64_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
    if (put - ring->taken_seen == ring->capacity) {
        ring->taken_seen = atomic_load_explicit(&ring->taken, memory_order_acquire);
        if (put - ring->taken_seen == ring->capacity)
            return false;
    }
    memcpy(place_of(ring, put), element, ring->element_bytes);
    atomic_store_explicit(&ring->put, put + 1, memory_order_release);
    return true;
}

bool qr_ring_take(qr_ring *ring, void *element)
{
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    if (taken == ring->put_seen) {
        ring->put_seen = atomic_load_explicit(&ring->put, memory_order_acquire);
        if (taken == ring->put_seen)
            return false;
    }
    memcpy(element, place_of(ring, taken), ring->element_bytes);
    atomic_store_explicit(&ring->taken, taken + 1, memory_order_release);
    return true;
}

uint32_t qr_ring_count(const qr_ring *ring)
{
    /* taken first: read the other way round it could pass put, and the difference would be
     * negative. */
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
    uint64_t put = atomic_load_explicit(&ring->put, memory_order_acquire);
    uint64_t count = put - taken;
    return (uint32_t)(count > ring->capacity ? ring->capacity : count);
}
