/* tier/core/carve.h - one piece of memory, in parts: first counted, then taken.
 *
 *      base NULL: counts          base given: hands out parts, each at a multiple of 64
 *
 * A structure writes one function that takes its parts, and runs it twice; so plan and memory
 * cannot disagree. used is SIZE_MAX once a plan is larger than memory can be.
 */
#ifndef QR_TIER_CORE_CARVE_H
#define QR_TIER_CORE_CARVE_H

#include "base/bits.h"

#include <quire/memory.h>

typedef struct qr_carve {
    unsigned char *base;
    size_t used;
} qr_carve;

/* count elements of size bytes; NULL while counting. Not initialised. */
static inline void *qr_carve_take(qr_carve *carve, size_t count, size_t size)
{
    size_t start = carve->used;
    size_t bytes = qr_add_size(qr_mul_size(count, size), QUIRE_ALIGNMENT - 1);
    if (bytes != SIZE_MAX)
        bytes &= ~(size_t)(QUIRE_ALIGNMENT - 1);
    carve->used = qr_add_size(start, bytes);
    return carve->base == NULL ? NULL : carve->base + start;
}

#endif
