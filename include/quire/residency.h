/* quire/residency.h - how long the blocks of a pool stay, and how often they are hit.
 *
 *      allocated ──► hit ──► hit ──► hit ──► allocated again
 *      └─────────────── lifetime ───────────┘
 *                    └ gap ┘└ gap ┘└── idle ─┘
 *
 * residency   follows the lives of some blocks of one pool. Each allocated block is sampled with
 *             probability sample_rate, as in vLLM 0.20.0's KVCacheMetricsCollector. A life ends
 *             when the block is allocated again or loses its key. Without prefix caching no life
 *             ends, as in vLLM.
 *
 * Use a residency for a pool, or for the pool of a cache (quire_cache_get_pool), that does not
 * belong to a scheduler with a monitor: the monitor follows blocks itself
 * (quire_monitor_config.residency).
 *
 * Cost: one bit test for each block that is not sampled; one reading of the clock for each call
 * that allocates or hits blocks. Nothing is allocated after creation.
 *
 * Threads: only the writer thread of the pool may make these calls. Destroy the residency before
 * the pool.
 */
#ifndef QUIRE_RESIDENCY_H
#define QUIRE_RESIDENCY_H

#include "config.h"
#include "error.h"
#include "memory.h"
#include "monitor.h"
#include "pool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_residency quire_residency;

/* A life that has ended. */
typedef struct quire_block_life { /* lent */
    quire_block block;
    uint32_t num_gaps;    /* gaps between its last hits: 0 to 3 */
    uint64_t lifetime_ns; /* from the allocation to the end */
    /* From the last hit to the end; without a hit, from the allocation. */
    uint64_t idle_ns;
    uint64_t gaps_ns[3];
} quire_block_life;

typedef struct quire_residency_config {
    size_t size;
    /* Part of the allocated blocks that is followed; 0 = 0.01; at most 1. */
    double sample_rate;
    /* Called inside the call that ends a life; NULL: not called. The callback must not change the
     * pool. */
    void (*on_end)(void *user, const quire_block_life *life);
    void *user;
    quire_hooks hooks; /* the clock, and the random bytes for sampling */
} quire_residency_config;

#define QUIRE_RESIDENCY_CONFIG_INIT QUIRE_SIZED_INIT(quire_residency_config)

/* Create a residency: see quire/memory.h. It follows the pool from then on. Beside the statuses of
 * quire/memory.h, returns QUIRE_BUSY if the pool already has a residency, QUIRE_E_RANDOM if the
 * random hook fails. _bytes returns 0 if _create would fail before it allocates. */
QUIRE_API int quire_residency_create(const quire_residency_config *config, quire_pool *pool,
                                     const quire_allocator *allocator, quire_residency **residency);
static inline size_t quire_residency_bytes(const quire_residency_config *config, quire_pool *pool)
{
    size_t bytes = 0;
    quire_residency *none;
    quire_allocator measure = quire_allocator_measure(&bytes);
    (void)quire_residency_create(config, pool, &measure, &none);
    return bytes;
}
/* Stops following the pool, and frees what _create took. NULL: does nothing. */
QUIRE_API void quire_residency_destroy(quire_residency *residency);

/* Writes the metrics of the pool like quire_monitor_write_metrics, with the same statuses: its
 * blocks by state, its usage, the blocks allocated and evicted, and the histograms of lifetime,
 * idle time and gaps. */
QUIRE_API int quire_residency_write_metrics(quire_residency *residency,
                                            const quire_metrics_format *format, char *text,
                                            size_t bytes, size_t *written);

#ifdef __cplusplus
}
#endif
#endif
