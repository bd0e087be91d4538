/* cli/trace/ideal.h - an infinite cache, and where a real one falls behind it.
 *
 *      arrived     leading ids of the prompt that came before     the ideal hit
 *      admitted    the real hit                                   the rest is lost, by reason
 *      computed    from now on a loss of these ids is an eviction
 *
 *      hits + losses = ideal, exactly;  losses.beyond is taken off the sum
 *
 * With several workers, the infinite cache is one for all of them: what a worker does not find,
 * although another worker has computed it, was lost to the choice of the worker.
 */
#ifndef QUIRE_CLI_TRACE_IDEAL_H
#define QUIRE_CLI_TRACE_IDEAL_H

#include "id_set.h"
#include "trace.h"

/* Why hits that an infinite cache would have had did not come about, in tokens. */
typedef struct ideal_losses {
    uint64_t partial;    /* the end of a shared prefix that fills no block */
    uint64_t last_token; /* blocks of a prompt that was there as a whole: one token is computed */
    uint64_t not_ready;  /* blocks that another request was still computing, or waiting to */
    uint64_t evicted;    /* blocks that were computed once, and evicted */
    uint64_t beyond;     /* hits that the ideal does not know: taken off the sum */
    uint64_t partial_requests;
    uint64_t last_token_requests;
    /* Of a fleet: blocks that another worker has computed and this one never had, */
    uint64_t wrong_worker;
    uint64_t stale; /* and blocks that the router believed to be there, and were not */
} ideal_losses;

/* Of one request. */
typedef struct ideal_share {
    uint64_t tokens;
    uint32_t blocks; /* of the trace's own ids */
    uint32_t trace_blocks;
    ideal_losses losses;
} ideal_share;

typedef struct ideal_cache {
    id_set seen;      /* ids of prompts and outputs; those that were computed are marked */
    id_set outputs;   /* of them, those that end with what a request generates */
    id_set by_worker; /* (id, worker): who computed it. Used with several workers alone */
    bool has_workers; /* there are several */
} ideal_cache;

/* What the real cache found, and where. */
typedef struct ideal_hit {
    uint32_t tokens;
    uint32_t block_size; /* hits are multiples of it */
    uint32_t worker;
    uint32_t believed_tokens; /* by the router */
} ideal_hit;

/* The request has come: what of it came before. */
void ideal_arrived(ideal_cache *c, const trace_request *q, ideal_share *share);
/* Its hit is known: what was lost. */
void ideal_admitted(const ideal_cache *c, const trace_request *q, const ideal_hit *hit,
                    ideal_share *share);
/* Its prompt is computed, and what it generates will be. */
void ideal_computed(ideal_cache *c, const trace_request *q, uint32_t worker);
/* Adds the losses of one request to a sum. */
void ideal_add_losses(ideal_losses *sum, const ideal_losses *losses);
/* Too many ids, or no memory: the shares mean nothing. */
bool ideal_gave_up(const ideal_cache *c);
void ideal_free(ideal_cache *c);

#endif
