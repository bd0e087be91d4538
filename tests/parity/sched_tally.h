/* parity/sched_tally.h - how often each kind of event occurred, mix by mix.
 *
 * Workloads are random: one in which nobody is preempted compares nothing of preemption. So the
 * replayer counts, prints, and fails when a recording of some size lacks an outcome.
 */
#ifndef PARITY_SCHED_TALLY_H
#define PARITY_SCHED_TALLY_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, must a large recording have it) */
#define SCHED_OUTCOMES(X)                                                                          \
    X(steps, true)                                                                                 \
    X(empty, true)    /* steps without any token */                                                \
    X(inflight, true) /* steps scheduled before the update of another */                           \
    X(reqs, true)     /* requests in steps */                                                      \
    X(new, true)                                                                                   \
    X(hit, true) /* new ones that found tokens */                                                  \
    X(resumed, true)                                                                               \
    X(preempt, true)                                                                               \
    X(drafts, true)                                                                                \
    X(accepted, true)                                                                              \
    X(encoder, true)                                                                               \
    X(evicted, true) /* from the encoder cache */                                                  \
    X(zeroed, true)                                                                                \
    X(common, true)                                                                                \
    X(grammar, true)                                                                               \
    X(pending, true) /* grammar tokens not known yet */                                            \
    X(stopped, true)                                                                               \
    X(length, true)                                                                                \
    X(error, true)                                                                                 \
    X(repeated, true)                                                                              \
    X(by_token, true) /* stopped by a stop token */                                                \
    X(aborted, true)                                                                               \
    X(abort_all, true)                                                                             \
    X(pooled, true)                                                                                \
    X(continued, true) /* sessions */                                                              \
    X(ended, true)                                                                                 \
    X(at_once, true) /* loads of a connector */                                                    \
    X(later, true)                                                                                 \
    X(again, true)                                                                                 \
    X(received, true)                                                                              \
    X(sent, true)                                                                                  \
    X(failed, true)                                                                                \
    X(not_ready, true)                                                                             \
    X(rejected, true)                                                                              \
    X(reset, true)                                                                                 \
    X(busy, true)                                                                                  \
    X(forced, true) /* resets that preempt */                                                      \
    X(encreset, true)                                                                              \
    X(pause, true)                                                                                 \
    X(stored, true)                                                                                \
    X(removed, true)                                                                               \
    X(cleared, true)                                                                               \
    X(copies, false)                                                                               \
    X(stop, false) /* workloads that ended before vLLM raised */

enum sched_outcome {
#define SCHED_X(name, needed) SCHED_##name,
    SCHED_OUTCOMES(SCHED_X)
#undef SCHED_X
        SCHED_NUM_OUTCOMES
};

enum { SCHED_MAX_MIXES = 128 };

typedef struct sched_tally {
    char mixes[SCHED_MAX_MIXES][32];
    uint64_t counts[SCHED_MAX_MIXES][SCHED_NUM_OUTCOMES];
    uint64_t workloads[SCHED_MAX_MIXES];
    uint64_t preempting[SCHED_MAX_MIXES]; /* workloads in which somebody was preempted */
    uint32_t num_mixes;
    uint32_t current;
    bool has_preempted;
    bool counts_common; /* a release is among those recorded that counts common blocks */
} sched_tally;

/* A workload of this mix starts. */
void sched_tally_start(sched_tally *tally, const char *mix);
void sched_tally_add(sched_tally *tally, enum sched_outcome outcome, uint64_t count);
void sched_tally_print(const sched_tally *tally);
/* False, having said which, when an outcome that must occur never did, or when fewer than a third
 * of the workloads preempt. */
bool sched_tally_is_complete(const sched_tally *tally);

#endif
