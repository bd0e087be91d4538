/* engine/forks.h - parallel samples, beam search and branches: requests that are forked.
 *
 *      samples   prompt ─► request ─┬─ seed 0 ─► tokens       forked before its first token: each
 *                                   └─ seed 1 ─► tokens       as if it had been alone
 *      beams     prompt ─► request ─► the best width continuations, again and again: the first
 *                                     of a beam goes on, the others are forks with another token
 *      branch    a request in any state ─┬─► goes on
 *                                        └─► another seed, from the same text on
 *
 * All are requests of the scheduler (quire_sched_fork). A search needs the logits of all its beams
 * in one step: when one of them was left out, for want of room, it gives up and begins again.
 */
#ifndef ENGINE_FORKS_H
#define ENGINE_FORKS_H

#include "engine/engine.h"

enum {
    ENGINE_FORK_WIDTH = 4,
    ENGINE_FORK_TASKS = 2, /* at a time */
    ENGINE_BRANCHES = 2,   /* at a time */
    ENGINE_NUM_REFERENCES = 1 + 2 * ENGINE_FORK_WIDTH
};

/* Draws its tasks, and asks the reference. 0, or 1. */
int engine_forks_create(engine *e);
void engine_forks_destroy(engine *e);
/* Between two steps: requests are added and forked. */
int engine_forks_turn(engine *e);
/* The logits of a beam's part of a step, which was computed. */
void engine_forks_note_logits(engine *e, engine_request *r, const float *logits);
/* Before the update: searches choose, and write the tokens of their beams into the parts. */
void engine_forks_choose(engine *e, engine_flight *flight);
/* After it: beams end and are forked. */
int engine_forks_advance(engine *e);
bool engine_forks_are_done(const engine *e);

#endif
