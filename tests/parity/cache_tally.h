/* parity/cache_tally.h - how often each kind of call and outcome occurred, mix by mix.
 *
 * Workloads are random: one that never runs out of space, or never hits, compares nothing of it.
 * So the replayer counts, prints, and fails when a recording of some size lacks an outcome.
 */
#ifndef PARITY_CACHE_TALLY_H
#define PARITY_CACHE_TALLY_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, must a large recording of 0.20 have it, one of 0.32). `predict` is vLLM's error when it
 * predicted too few blocks. `shared` are lookups with a prefix that one group has for longer,
 * `partial` keys inside a block, `keyless` stored events in which no block got a key, `inside` hits
 * that end inside a block. */
#define CACHE_OUTCOMES(X)                                                                          \
    X(calls, true, true)                                                                           \
    X(hit, true, true)                                                                             \
    X(miss, true, true)                                                                            \
    X(fits, true, true)                                                                            \
    X(no_fit, true, true)                                                                          \
    X(alloc, true, true)                                                                           \
    X(no_space, true, true)                                                                        \
    X(lookahd, true, true)                                                                         \
    X(external, true, true)                                                                        \
    X(delayed, true, true)                                                                         \
    X(cache, true, true)                                                                           \
    X(free, true, true)                                                                            \
    X(preempt, true, true)                                                                         \
    X(skip, true, true)                                                                            \
    X(evict, true, true)                                                                           \
    X(touch, true, true)                                                                           \
    X(reset, true, true)                                                                           \
    X(busy, true, true)                                                                            \
    X(newids, true, true)                                                                          \
    X(common, true, true)                                                                          \
    X(stats, true, true)                                                                           \
    X(stored, true, true)                                                                          \
    X(removed, true, true)                                                                         \
    X(cleared, true, true)                                                                         \
    X(predict, true, false)                                                                        \
    X(refused, true, true)                                                                         \
    X(shared, false, true)                                                                         \
    X(partial, false, true)                                                                        \
    X(keyless, false, true)                                                                        \
    X(inside, false, false)                                                                        \
    X(copies, false, false)                                                                        \
    X(stop, false, false)

enum cache_outcome {
#define CACHE_X(name, in_0_20, in_0_32) CACHE_##name,
    CACHE_OUTCOMES(CACHE_X)
#undef CACHE_X
        CACHE_NUM_OUTCOMES
};

enum { CACHE_MAX_MIXES = 96 };

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
bool cache_tally_has(const cache_tally *tally, enum cache_outcome outcome);
/* False, having said which, when an outcome that must occur never did. */
bool cache_tally_is_complete(const cache_tally *tally, bool is_0_32);

#endif
