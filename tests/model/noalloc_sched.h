/* model/noalloc_sched.h - an engine that uses every call of quire/sched.h, for test_noalloc.c.
 *
 *      requests    come all the time, of a few families of prompts; a pool that preempts and evicts
 *      steps       schedule, update, drafts; sync or async with two in flight
 *      between     aborts, resets, sessions that go on, and everything that can be looked at
 *
 * Nothing here allocates or calls the system once it has started.
 */
#ifndef MODEL_NOALLOC_SCHED_H
#define MODEL_NOALLOC_SCHED_H

#include <quire/sched.h>
#include <stdbool.h>

enum { NOALLOC_SEQS = 12, NOALLOC_SPEC = 2, NOALLOC_LIVE = 32 };

typedef struct noalloc_sched {
    quire_hasher *hasher;
    quire_sched *sched;
    quire_token sampled[NOALLOC_SEQS * (NOALLOC_SPEC + 1)];
    uint64_t random;
    uint64_t number; /* of the next request */
    uint64_t updated;
    bool is_async;
    uint64_t steps;
    uint64_t hits;
    uint64_t preempted;
    uint64_t finished;
    uint64_t evictions;
    uint64_t resets;
    uint64_t full;
    uint64_t failures; /* answers that must not be */
    uint64_t clock;
} noalloc_sched;

bool noalloc_sched_start(noalloc_sched *e, uint64_t seed, bool is_async);
void noalloc_sched_run(noalloc_sched *e, uint64_t steps);
void noalloc_sched_end(noalloc_sched *e);
/* Whether everything happened that can, and nothing that must not. */
bool noalloc_sched_did_all(const noalloc_sched *e);
void noalloc_sched_print(const noalloc_sched *e);

#endif
