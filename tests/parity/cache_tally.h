/* parity/cache_tally.h - how often each kind of call and outcome occurred, mix by mix.
 *
 * Workloads are random: one that never runs out of space, or never hits, compares nothing of it.
 * So the replayer counts, prints, and fails when a recording of some size lacks an outcome.
 */
#ifndef PARITY_CACHE_TALLY_H
#define PARITY_CACHE_TALLY_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, must a large recording have it) */
#define CACHE_OUTCOMES(X)                                                                          \
    X(calls, true)                                                                                 \
    X(hit, true)                                                                                   \
    X(miss, true)                                                                                  \
    X(fits, true)                                                                                  \
    X(no_fit, true)                                                                                \
    X(alloc, true)                                                                                 \
    X(no_space, true)                                                                              \
    X(lookahd, true)                                                                               \
    X(external, true)                                                                              \
    X(delayed, true)                                                                               \
    X(cache, true)                                                                                 \
    X(free, true)                                                                                  \
    X(preempt, true)                                                                               \
    X(skip, true)                                                                                  \
    X(evict, true)                                                                                 \
    X(touch, true)                                                                                 \
    X(reset, true)                                                                                 \
    X(busy, true)                                                                                  \
    X(newids, true)                                                                                \
    X(common, true)                                                                                \
    X(stats, true)                                                                                 \
    X(stored, true)                                                                                \
    X(removed, true)                                                                               \
    X(cleared, true)                                                                               \
    X(predict, true)                                                                               \
    X(refused, true)                                                                               \
    X(stop, false)

enum cache_outcome {
#define CACHE_X(name, needed) CACHE_##name,
    CACHE_OUTCOMES(CACHE_X)
#undef CACHE_X
        CACHE_NUM_OUTCOMES
};

enum { CACHE_MAX_MIXES = 64 };

typedef struct cache_tally {
    char mixes[CACHE_MAX_MIXES][32];
    uint64_t counts[CACHE_MAX_MIXES][CACHE_NUM_OUTCOMES];
    uint64_t workloads[CACHE_MAX_MIXES];
    uint32_t num_mixes;
    uint32_t current;
} cache_tally;

/* A workload of this mix starts. */
void cache_tally_start(cache_tally *tally, const char *mix);
void cache_tally_add(cache_tally *tally, enum cache_outcome outcome, uint64_t count);
void cache_tally_print(const cache_tally *tally);
/* False, having said which, when an outcome that must occur never did. */
bool cache_tally_is_complete(const cache_tally *tally);

#endif
