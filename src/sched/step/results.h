/* sched/step/results.h - what an update gives back. */
#ifndef QR_SCHED_STEP_RESULTS_H
#define QR_SCHED_STEP_RESULTS_H

#include <quire/sched.h>

typedef struct qr_results {
    quire_output *outputs;
    quire_token *output_tokens; /* tokens of the outputs, num_spec_tokens + 1 for each */
    quire_outputs result;
    quire_sched_stats stats; /* result.stats, where the config has log_stats */
    uint64_t *accepted_per_pos;
    quire_output *outgrown; /* of requests that ended in schedule: the next update lists them */
    uint32_t num_outgrown;
    uint32_t num_stopped; /* running requests that ended in this update */
} qr_results;

#endif
