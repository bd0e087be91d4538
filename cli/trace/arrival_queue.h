/* cli/trace/arrival_queue.h - requests by the time of their arrival, then by their number.
 *
 *      arrival_queue_push ──► heap ──► arrival_queue_pop: the one that comes first
 */
#ifndef QUIRE_CLI_TRACE_ARRIVAL_QUEUE_H
#define QUIRE_CLI_TRACE_ARRIVAL_QUEUE_H

#include "ideal.h"
#include "trace.h"

/* What an engine does of a request. Where one computes the prompt and another one generates, the
 * first counts the prompt with its hits, and the second the tokens and times that a user sees. */
typedef enum arrival_part { ARRIVAL_WHOLE, ARRIVAL_PREFILL, ARRIVAL_DECODE } arrival_part;

/* A request with its own copies of the arrays. */
typedef struct arrival {
    trace_request request;
    trace_segment *segments;
    uint64_t *after;
    double time_s;
    uint64_t number;   /* in the order of the trace */
    ideal_share ideal; /* what an infinite cache has of it: the replay fills it in */
    void *note;        /* of who replays it; not freed */
    arrival_part part;
    const struct engine_ask *ask; /* it is not of a trace (replay/engine.h); not freed */
    double first_token_s;         /* that an engine gave it which crashed later; 0: none */
    uint32_t num_back;            /* times that it went back to the router (fleet) */
    bool is_counted;              /* its prompt, with its hits, by such an engine */
} arrival;

void arrival_free(arrival *it);
/* The same request once more, with its own arrays. NULL: no memory. */
arrival *arrival_copy(const arrival *it);

typedef struct arrival_queue {
    arrival **items;
    uint32_t count;
    uint32_t capacity;
} arrival_queue;

/* False: no memory. */
bool arrival_queue_push(arrival_queue *q, arrival *it);
/* NULL: the queue is empty. */
arrival *arrival_queue_pop(arrival_queue *q);
/* Takes the request out. False: it is not there. */
bool arrival_queue_remove(arrival_queue *q, const arrival *it);
/* Frees the requests in it too. */
void arrival_queue_free(arrival_queue *q);

/* NULL: the queue is empty. */
static inline const arrival *arrival_queue_first(const arrival_queue *q)
{
    return q->count > 0 ? q->items[0] : NULL;
}

#endif
