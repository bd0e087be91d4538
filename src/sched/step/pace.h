/* sched/step/pace.h - pace: requests that a step passes over on purpose, and the drafts after it.
 *
 *      decode_interval 3     step   1   2   3   4        a request decodes in steps 1 and 4: its
 *                                   x   .   .   x        token goes through all stages first
 *
 *      throttled             prompts wait while a request decodes, unless the last step that
 *                            admitted requests had to leave some of them waiting
 *
 * All of it is vLLM 0.32's: #42187, #44558, #32374. */
#ifndef QR_SCHED_STEP_PACE_H
#define QR_SCHED_STEP_PACE_H

#include "base/arena.h"
#include "sched/requests/request.h"

typedef struct qr_pace {
    bool is_throttled;        /* as the caller asked */
    bool is_bound;            /* the last admission left requests waiting that nothing held up */
    bool defers_prefills;     /* of the step being made */
    bool is_on;               /* some request may be passed over in the step being made */
    uint32_t decode_interval; /* 1: a request decodes in every step */
    uint32_t *drafts;         /* by requests of a step, num_sizes; NULL: always num_spec_tokens */
    uint32_t num_sizes;
} qr_pace;

int qr_pace_check(const quire_sched_config *config);
void qr_pace_carve(qr_pace *pace, qr_arena *arena, const quire_sched_config *config);
void qr_pace_init(qr_pace *pace, const quire_sched_config *config);

/* At the start of a step. */
void qr_pace_begin(quire_sched *sched);
/* Whether the step passes over a running request. */
bool qr_pace_passes_over(const quire_sched *sched, const qr_request *r);
/* After the admissions of a step. */
void qr_pace_end_admission(quire_sched *sched);
/* Drafts of each request that follow a step of so many requests. */
uint32_t qr_pace_drafts(const quire_sched *sched, uint32_t num_reqs);

#endif
