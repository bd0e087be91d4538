/* engine/forks.h - parallel samples and beam search, on the scheduler's own cache.
 *
 *      samples   prompt ─► one seq ─┬─ seed 0 ─► tokens          each as if it had been alone
 *                                   └─ seed 1 ─► tokens
 *      beams     prompt ─► one seq ─► the best width continuations, again and again
 *      branch    a request that runs ─┬─► goes on in the scheduler
 *                                     └─► another seed, from the same blocks on
 *
 * All share the prompt's blocks, and get copies of those that they write into. Their tokens go
 * through the same batches as the scheduler's, and their blocks come from the same pool. One that
 * finds no room gives everything back and begins again later.
 */
#ifndef ENGINE_FORKS_H
#define ENGINE_FORKS_H

#include "engine/engine.h"

enum {
    ENGINE_FORK_WIDTH = 4,
    ENGINE_FORK_CHUNK = 16, /* prompt tokens in a step */
    ENGINE_FORK_TASKS = 2,  /* at a time */
    ENGINE_BRANCHES = 2,    /* at a time */
    ENGINE_FORK_TOKENS = (ENGINE_FORK_TASKS + ENGINE_BRANCHES) * ENGINE_FORK_CHUNK,
    ENGINE_NUM_REFERENCES = 1 + 2 * ENGINE_FORK_WIDTH
};

/* Draws its tasks, and asks the reference. 0, or 1. */
int engine_forks_create(engine *e);
void engine_forks_destroy(engine *e);
/* Adds their parts to the flight. */
int engine_forks_schedule(engine *e, engine_flight *flight);
int engine_forks_take(engine *e, const engine_flight *flight, const float *logits);
bool engine_forks_are_done(const engine *e);
/* Between two steps, when none is in flight: now and then a request that runs is forked. */
int engine_forks_branch(engine *e);

#endif
