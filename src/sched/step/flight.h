/* sched/step/flight.h - steps that were scheduled and not updated yet.
 *
 *      batches   [ 8 ][ . ][ . ][ 6 ][ 7 ]     a ring: first_batch is 3, num_batches is 3
 *
 *      num_batches <= max_batches, oldest first */
#ifndef QR_SCHED_STEP_FLIGHT_H
#define QR_SCHED_STEP_FLIGHT_H

#include <quire/sched.h>

/* A step that was scheduled and not updated yet. */
typedef struct qr_batch {
    uint64_t step;
    uint32_t num_reqs;
    quire_req *reqs;
    uint32_t *num_tokens;
    uint32_t *num_drafts;
    uint32_t
        *num_preemptions;    /* of each when it was scheduled: more now, and the output is stale */
    uint8_t *is_past_prompt; /* a token is sampled for it */
    bool loads;              /* a request of the step loads blocks and computes */
} qr_batch;

typedef struct qr_flight {
    uint64_t step;
    qr_batch *batches; /* a ring */
    uint32_t first_batch;
    uint32_t num_batches;
    uint64_t first_valid_step; /* steps before it were made void by a reset */
} qr_flight;

/* The place of a step among those in flight, oldest first, or QR_NIL. */
uint32_t qr_flight_find(const quire_sched *sched, uint64_t step);
/* Whether no request of the step waits for an older step. */
bool qr_flight_is_in_order(quire_sched *sched, uint32_t place);
/* Who waits for the i-th output of the step; QR_NIL: the request has ended, or has begun again. */
uint32_t qr_flight_who_waits(const quire_sched *sched, const qr_batch *batch, uint32_t i);
/* The step is no longer in flight. */
void qr_flight_end(quire_sched *sched, uint32_t place);
int qr_sched_forget_step(quire_sched *sched, uint64_t step);

#endif
