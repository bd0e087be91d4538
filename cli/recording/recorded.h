/* cli/recording/recorded.h - what a recording says of requests and steps, as numbers.
 *
 *      arrival ──► added ──► scheduled ─┬─► update ──► gap ──► scheduled ...
 *        front end   queue              └─ step ─┘
 *
 * All of it is in memory: some 130 bytes for a step, and 80 for a request.
 */
#ifndef QUIRE_CLI_RECORDING_RECORDED_H
#define QUIRE_CLI_RECORDING_RECORDED_H

#include "header.h"
#include "model/time_model.h"

/* Times are seconds since the start of the recording; negative: it did not happen. */
typedef struct recorded_request {
    double arrival_s;
    double added_s;
    double scheduled_s;
    double first_s;
    double last_s;
    uint32_t num_prompt_tokens;
    uint32_t output;
    uint32_t hit;
    uint32_t preemptions;
    bool was_idle; /* the engine had nothing else when it came */
    bool is_whole; /* it ended by itself: stop or length */
} recorded_request;

typedef struct recorded_step {
    double start_s; /* the end of its schedule call; asynchronous: of the step before, if later */
    double ms;      /* negative: it has no update */
    double gap_ms;  /* from its end to the schedule call of the next one; negative: the engine was
                       idle, or does not wait for the end */
    step_work work;
    uint32_t running;
    uint32_t waiting;
    uint32_t num_added; /* requests that were added in the gap */
} recorded_step;

typedef struct recorded {
    recorded_header header;
    recorded_request *requests; /* request n is requests[n - 1] */
    uint32_t num_requests;
    recorded_step *steps; /* without those that have no tokens */
    uint32_t num_steps;
    uint64_t num_preemptions;
    uint64_t num_lost; /* lines; what follows the first of them was not read */
    double end_s;      /* of the last line */
    bool is_cut;       /* it has no close line */
} recorded;

/* The model says which tokens are read in layers with a window. 0, or -1 and a sentence. Free it in
 * either case. */
int recorded_read(const char *path, const time_model *model, recorded *out);
void recorded_free(recorded *m);

#endif
