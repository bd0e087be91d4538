/* engine/dropin/steps.h - the reference engine, told what to do by a scheduler that is elsewhere.
 *
 *      scheduler ─► new, running, resumed, preempted, finished ─► rows of the block table
 *                                                                        │
 *      sampled tokens ◄── logits, all compared ◄── paged forward pass ◄──┘
 *
 * Nothing of Quire decides here: block ids are taken as they are told, and slots follow from them.
 * Every logits vector, those of prompts too, is compared with a contiguous cache of the request.
 * The reference has a history of its own: what it sampled, not what the blocks gave.
 */
#ifndef ENGINE_DROPIN_STEPS_H
#define ENGINE_DROPIN_STEPS_H

#include "engine/backend.h"

#include <stdbool.h>

typedef struct steps_config {
    uint64_t seed; /* of the model's weights, and of sampling */
    uint32_t vocabulary;
    uint32_t max_len; /* tokens of a request */
    uint32_t block_size;
    uint32_t num_blocks;
    uint32_t max_tokens; /* in a step */
    uint32_t max_rows;   /* requests that run at a time */
    uint32_t max_requests;
} steps_config;

typedef struct steps_counts {
    uint64_t requests;
    uint64_t steps;
    uint64_t compared;  /* logits vectors */
    uint64_t differing; /* of them */
    uint64_t sampled;
    uint64_t preempted;
    uint64_t resumed;
    uint64_t hit_tokens; /* that new and resumed requests did not compute */
} steps_counts;

/* A request of a step. Blocks of a running one come after those that it has; of others they are
 * all. */
typedef struct steps_part {
    uint32_t id;
    uint32_t num_computed;
    uint32_t num_scheduled;
    uint32_t num_blocks;
    const uint64_t *blocks;
} steps_part;

typedef struct steps steps;

/* NULL: quire_refusal says why. is_disabled: the backend is not for this machine. */
steps *steps_create(const steps_config *config, const engine_backend_ops *ops, bool *is_disabled);
void steps_destroy(steps *s);

/* All return NULL, or what is wrong. In a step: those that leave, those that run, then go. */
const char *steps_preempt(steps *s, uint64_t id);
const char *steps_finish(steps *s, uint64_t id);
const char *steps_add(steps *s, const steps_part *part, uint32_t num_prompt,
                      const uint64_t *prompt);
const char *steps_run(steps *s, const steps_part *part, bool is_resumed);
const char *steps_go(steps *s);

/* What the last go sampled: pairs of id and token, in the order in which they were told. */
uint32_t steps_sampled(const steps *s, const uint32_t **pairs);
const steps_counts *steps_count(const steps *s);

/* From this step on, the next request that gets a block gets one of somebody else's instead. */
void steps_break(steps *s, uint64_t step);
bool steps_was_broken(const steps *s);

#endif
