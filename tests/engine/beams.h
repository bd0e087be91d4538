/* engine/beams.h - beam search as such: which continuations are the best, and what the reference
 * does with that. */
#ifndef ENGINE_BEAMS_H
#define ENGINE_BEAMS_H

#include "engine/forks.h"

typedef struct engine_candidate {
    uint32_t parent;
    quire_token token;
    float score;
} engine_candidate;

/* The best width continuations, best first; of equal ones the first parent's, then the first token.
 * Returns how many. */
uint32_t engine_beams_choose(const float *const *logits, const float *scores, uint32_t num_beams,
                             uint32_t width, uint32_t vocabulary, engine_candidate *best);

/* What every step of a beam search says: the logits of each beam, in order. */
typedef struct engine_beam_reference {
    uint32_t num_steps;
    uint32_t width;
    float *logits; /* [step][ENGINE_FORK_WIDTH][vocabulary]; the first step has one beam */
} engine_beam_reference;

/* 0, or 1. prompt is read. */
int engine_beams_expect(const engine *e, const quire_token *prompt, uint32_t num_prompt,
                        engine_beam_reference *reference);

#endif
