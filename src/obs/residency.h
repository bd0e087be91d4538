/* obs/residency.h - the life of some blocks: how long they stay, and how often they are hit.
 *
 *      handed out ──► hit ──► hit ──► hit ──► handed out again
 *      └──────────────── lifetime ───────────┘
 *                     └ gap ┘└ gap ┘└── idle ──┘
 *
 *      is_sampled  [ 0 0 1 0 0 0 1 .. ]    a bit for each block: the others cost nothing more
 *      lives       [ block, birth, last hit, the last four hits ]    64 bytes
 *      index       block -> its life
 *
 * As vLLM's KVCacheMetricsCollector: each block that is handed out is drawn with sample_rate; what
 * it had before ends first. Without prefix caching nothing ever ends, there as here. All blocks of
 * one call have the same time.
 */
#ifndef QR_OBS_RESIDENCY_H
#define QR_OBS_RESIDENCY_H

#include "base/buckets.h"
#include "obs/metrics.h"

#include <quire/residency.h>

enum { QR_RESIDENCY_HITS = 4 };

typedef struct qr_block_life {
    uint64_t birth_ns;
    uint64_t last_ns;
    uint64_t hits_ns[QR_RESIDENCY_HITS]; /* a ring */
    uint64_t num_hits;
    uint32_t block;
    uint32_t next_free; /* of lives that are not in use */
} qr_block_life;

_Static_assert(sizeof(qr_block_life) <= 64, "a cache line");

typedef struct qr_residency {
    qr_metrics *metrics; /* time, and where it is told */
    uint64_t *is_sampled;
    qr_block_life *lives; /* 0 is none */
    qr_buckets index;
    uint32_t num_blocks;
    uint32_t max_lives;
    uint32_t first_free;
    uint64_t threshold; /* of 53 random bits: below it a block is sampled */
    uint64_t random;
    const quire_hooks *clock; /* NULL: the scheduler sets the metrics' time, once in each call */
    void (*on_end)(void *user, const quire_block_life *life);
    void *user;
} qr_residency;

/* So many lives, for blocks that are drawn at this rate. */
uint32_t qr_residency_max_lives(uint32_t num_blocks, double sample_rate);
void qr_residency_carve(qr_residency *residency, qr_arena *arena, uint32_t num_blocks,
                        double sample_rate);
void qr_residency_init(qr_residency *residency, qr_metrics *metrics, double sample_rate,
                       const uint64_t random[3]);

/* The block will be handed out soon. */
static inline void qr_residency_fetch(const qr_residency *residency, uint32_t block)
{
    qr_prefetch(&residency->is_sampled[block / 64]);
}

/* Handed out, in this order; what they had before ends, where is_evicting. */
void qr_residency_take(qr_residency *residency, const uint32_t *blocks, uint32_t n,
                       bool is_evicting);
void qr_residency_touch(qr_residency *residency, const uint32_t *blocks, uint32_t n);
/* Their keys were taken away. */
void qr_residency_evict(qr_residency *residency, const uint32_t *blocks, uint32_t n);
/* Forgets all blocks; what was told stays. */
void qr_residency_reset(qr_residency *residency);

#endif
