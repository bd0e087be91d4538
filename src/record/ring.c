#include "record/ring.h"

#include "base/memory.h"

#include <quire/error.h>

#include <string.h>

int qr_line_ring_init(qr_line_ring *ring, uint64_t bytes)
{
    memset(ring, 0, sizeof *ring);
    ring->size = 4096;
    while (ring->size < bytes)
        ring->size *= 2;
    /* Touched now: a page fault in a step would be a wait. */
    ring->memory = qr_alloc_raw((size_t)ring->size);
    if (ring->memory == NULL)
        return QUIRE_E_NOMEM;
    memset(ring->memory, 1, (size_t)ring->size);
    return QUIRE_OK;
}

void qr_line_ring_free(qr_line_ring *ring)
{
    if (ring->memory != NULL)
        qr_memory_wipe(ring->memory, (size_t)ring->size); /* it has hashes without a salt */
    qr_free(ring->memory);
    ring->memory = NULL;
}

static int has_room(qr_line_ring *ring, uint64_t head, uint64_t bytes)
{
    if (head + bytes - ring->known_tail <= ring->size)
        return 1;
    ring->known_tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    return head + bytes - ring->known_tail <= ring->size;
}

qr_line *qr_line_ring_reserve(qr_line_ring *ring, uint64_t bytes)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t at = head & (ring->size - 1);
    uint64_t pad = 0;
    bytes = (bytes + 7) & ~UINT64_C(7);
    if (bytes > ring->size / 2)
        return NULL;
    if (at + bytes > ring->size)
        pad = ring->size - at;
    if (!has_room(ring, head, pad + bytes))
        return NULL;
    if (pad != 0) { /* of 8 bytes at least: bytes and kind, and nothing else is read of it */
        uint32_t words[2] = {(uint32_t)pad, 0};
        memcpy(ring->memory + at, words, sizeof words);
    }
    qr_line *line = (qr_line *)(ring->memory + ((head + pad) & (ring->size - 1)));
    line->bytes = (uint32_t)bytes;
    ring->reserved = head + pad + bytes;
    return line;
}

void qr_line_ring_commit(qr_line_ring *ring)
{
    atomic_store_explicit(&ring->head, ring->reserved, memory_order_release);
}

const qr_line *qr_line_ring_peek(qr_line_ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail == atomic_load_explicit(&ring->head, memory_order_acquire))
        return NULL;
    const qr_line *line = (const qr_line *)(ring->memory + (tail & (ring->size - 1)));
    if (line->kind == 0) { /* a line follows each pad in the same commit */
        tail += line->bytes;
        atomic_store_explicit(&ring->tail, tail, memory_order_release);
        line = (const qr_line *)(ring->memory + (tail & (ring->size - 1)));
    }
    return line;
}

void qr_line_ring_pop(qr_line_ring *ring, const qr_line *line)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    atomic_store_explicit(&ring->tail, tail + line->bytes, memory_order_release);
}
