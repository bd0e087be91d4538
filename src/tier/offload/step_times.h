/* tier/offload/step_times.h - what computing costs, from the steps themselves.
 *
 *      begin step n ────────── end step n       a step that is mostly prefill: tokens, time
 *              begin step n + 1 ──────── end    it was computed after the one before had ended
 */
#ifndef QR_TIER_OFFLOAD_STEP_TIMES_H
#define QR_TIER_OFFLOAD_STEP_TIMES_H

#include "base/bits.h"
#include "base/hooks.h"

enum { QR_STEPS_TIMED = QR_AT_A_TIME(8, 2) }; /* steps in flight that are measured */

typedef struct qr_step_times {
    struct {
        uint64_t step;
        uint64_t start_ns;
        uint32_t num_tokens; /* 0: not of interest */
    } timed[QR_STEPS_TIMED]; /* by step */
    uint64_t last_step;      /* that began */
    uint64_t last_end_ns;    /* of a step, where the next one had begun */
    uint32_t most_decode;    /* tokens that a request computes in a step without prefill */
} qr_step_times;

void qr_step_times_begin(qr_step_times *times, uint64_t step, uint32_t num_tokens,
                         uint32_t num_reqs, const quire_hooks *hooks);
/* Returns the time that the step took for *num_tokens of prefill; 0: it tells nothing. */
uint64_t qr_step_times_end(qr_step_times *times, uint64_t step, const quire_hooks *hooks,
                           uint32_t *num_tokens);

#endif
