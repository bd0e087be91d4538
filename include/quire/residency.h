/* quire/residency.h - how long the blocks of a pool stay, and how often they are hit.
 *
 *      handed out ──► hit ──► hit ──► hit ──► handed out again
 *      └──────────────── lifetime ───────────┘
 *                     └ gap ┘└ gap ┘└── idle ──┘
 *
 * residency   follows the life of some blocks of one pool: each block that is handed out is drawn
 *             with sample_rate, as vLLM 0.20.0's KVCacheMetricsCollector draws it. A life ends when
 *             the block is handed out again or loses its key; without prefix caching no life ends,
 *             there as here.
 *
 * For a pool, or the pool of a cache (quire_cache_pool), that no scheduler with a monitor has: the
 * monitor follows blocks itself (quire_monitor_config.residency).
 *
 * Cost: a bit for each block that is not drawn; a clock reading for each call that hands out or
 * hits blocks. Nothing is allocated after creation.
 *
 * Threads: the writer of the pool, for all calls. Destroy the residency before the pool.
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
typedef struct quire_block_life {
    quire_block block;
    uint32_t num_gaps;    /* between its last hits: 0 to 3 */
    uint64_t lifetime_ns; /* from being handed out to the end */
    uint64_t idle_ns;     /* from the last hit, or from being handed out, to the end */
    uint64_t gaps_ns[3];
} quire_block_life;

typedef struct quire_residency_config {
    size_t size;
    double sample_rate; /* how many of the blocks handed out; 0 = 0.01; at most 1 */
    /* Told inside the call that ends a life, which it must not change the pool in; NULL: not. */
    void (*on_end)(void *user, const quire_block_life *life);
    void *user;
    quire_hooks hooks; /* the clock, and the random bytes that choose what is sampled */
} quire_residency_config;

#define QUIRE_RESIDENCY_CONFIG_INIT QUIRE_SIZED_INIT(quire_residency_config)

/* Plan, carve, seal: see quire/memory.h. Follows the pool from then on. QUIRE_BUSY if the pool is
 * followed already. */
QUIRE_API size_t quire_residency_bytes(const quire_residency_config *config,
                                       const quire_pool *pool);
QUIRE_API int quire_residency_create_in(void *memory, size_t bytes,
                                        const quire_residency_config *config, quire_pool *pool,
                                        quire_residency **residency);
QUIRE_API int quire_residency_create(const quire_residency_config *config, quire_pool *pool,
                                     const quire_allocator *allocator, quire_residency **residency);
/* The pool is no longer followed. NULL is fine. */
QUIRE_API void quire_residency_destroy(quire_residency *residency);

/* As quire_monitor_write_metrics, of the pool alone: its blocks by state, its usage, blocks handed
 * out and evicted, and the histograms of lifetime, idle time and gaps. */
QUIRE_API int quire_residency_write_metrics(quire_residency *residency,
                                            const quire_metrics_format *format, char *text,
                                            size_t bytes, size_t *written);

#ifdef __cplusplus
}
#endif
#endif
