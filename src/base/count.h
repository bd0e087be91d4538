/* base/count.h - numbers that one thread writes and any thread reads. */
#ifndef QR_BASE_COUNT_H
#define QR_BASE_COUNT_H

#include <stdatomic.h>
#include <stdint.h>

static inline uint64_t qr_count_get(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static inline void qr_count_set(_Atomic uint64_t *count, uint64_t value)
{
    atomic_store_explicit(count, value, memory_order_relaxed);
}

/* Not one step: there is one writer. */
static inline void qr_count_add(_Atomic uint64_t *count, uint64_t more)
{
    qr_count_set(count, qr_count_get(count) + more);
}

#endif
