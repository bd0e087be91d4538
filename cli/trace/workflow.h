/* cli/trace/workflow.h - which request of an agent waits for which, found from recorded times.
 *
 *      parent   r1 ──┬───────────────► r3 ──► r4       a turn waits for the turn before;
 *                    │                        ▲        the first turn of a child session for the
 *      child         └─► c1 ──► c2 ───────────┘        parent's request before it; and the parent's
 *                                                      first request after the child's end for the
 *                                                      child's request that ended last
 *
 * A recording may say more: which request launched a child session, and which one took its result
 * (workflow_launch). Such a child needs no guess.
 *
 * The order of the requests is made for a replay: each stands behind all that it waits for, and
 * right behind the request without waits that it goes back to; requests without waits are in the
 * order of their times.
 */
#ifndef QUIRE_CLI_TRACE_WORKFLOW_H
#define QUIRE_CLI_TRACE_WORKFLOW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct workflow_request {
    uint64_t id;
    uint64_t session; /* 0: none; it waits for nothing */
    uint64_t parent;  /* session; 0: none */
    double start_ms;
    double end_ms;
    /* found: */
    uint64_t session_number; /* 1, 2, ... in the order of their starts; 0: none */
    uint32_t turn;
    bool is_last_turn;
    double think_ms; /* from the end of the last that it waits for to its start; not negative */
    uint32_t first_wait;
    uint32_t num_waits; /* 0: it comes at its time */
} workflow_request;

/* A session that a request launched. */
typedef struct workflow_launch {
    uint64_t child;    /* session */
    uint64_t source;   /* id of the request that launched it */
    uint64_t consumer; /* id of the request that took its result; 0: none */
} workflow_launch;

typedef struct workflow {
    uint32_t num_requests;
    uint32_t *order; /* of the requests */
    uint32_t *waits; /* indices of requests; in the order in which they were found */
    uint32_t num_waits;
} workflow;

typedef enum workflow_problem {
    WORKFLOW_OK,
    WORKFLOW_NO_MEMORY,
    WORKFLOW_SAME_ID,        /* at: the second request of that id */
    WORKFLOW_TWO_PARENTS,    /* at: a request whose session has another parent elsewhere */
    WORKFLOW_UNKNOWN_LAUNCH, /* at: the launch: its source or consumer is no request of the
                                child's parent session */
    WORKFLOW_TWO_LAUNCHES,   /* at: the launch: the child was launched before */
    WORKFLOW_CYCLE           /* at: a request that waits for itself, through others */
} workflow_problem;

/* Requests in any order. On success workflow_free must be called. */
workflow_problem workflow_find(workflow *w, workflow_request *requests, uint32_t num_requests,
                               const workflow_launch *launches, uint32_t num_launches,
                               uint32_t *at);
void workflow_free(workflow *w);

#endif
