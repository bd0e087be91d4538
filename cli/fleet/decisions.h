/* cli/fleet/decisions.h - routing decisions, each with a sentence that says why.
 *
 *      every decision ──► --why FILE, a line for each
 *                    └──► the page: of all requests, or of every second, fourth, ... request
 */
#ifndef QUIRE_CLI_FLEET_DECISIONS_H
#define QUIRE_CLI_FLEET_DECISIONS_H

#include "routers/router.h"

#include <stdio.h>

enum { DECISIONS_MOST = 2048 };

typedef struct decision {
    uint64_t request; /* its number in the trace, from 0 on */
    double time_s;
    uint32_t router;
    uint32_t worker; /* ROUTER_NONE: it waits, or was refused */
    uint32_t prompt_tokens;
    uint32_t believed_tokens;
    uint32_t hit_tokens;  /* that the worker found; 0: its prompt is not computed yet */
    bool has_first_token; /* it is */
    char *why;
} decision;

/* Kept for the page. All zero: none. */
typedef struct decisions {
    decision *list; /* in the order of time */
    uint32_t count;
    uint64_t every; /* numbers of requests in the list are multiples of it; 0: of 1 */
} decisions;

/* Notes a decision. Returns false if memory is short. */
bool decisions_note(decisions *d, const routers *r, const router_request *request,
                    const router_answer *answer);
/* The prompt of the request is computed. */
void decisions_found(decisions *d, uint64_t request, uint32_t hit_tokens);
void decisions_free(decisions *d);

/* A line of --why. */
void decisions_print(FILE *out, const routers *r, const router_request *request,
                     const router_answer *answer);

#endif
