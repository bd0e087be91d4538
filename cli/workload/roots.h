/* cli/workload/roots.h - which arrival a request goes back to.
 *
 *      time ──► r1 ──► r2 ──► r5          r2, r3, r4 and r5 wait for r1 or for each other:
 *                └──► r3 ──► r4 ─┘        r1 is the root of all, and they stay or go together
 *
 *      time ──► r6                        waits for nothing: its own root
 *
 * A request of an open loop is its own root, whatever its session. Roots are counted from 0 in the
 * order in which they come. Memory: what a later request may wait for, 16 bytes for each request
 * and session, and 32 for each root of them.
 */
#ifndef QUIRE_CLI_WORKLOAD_ROOTS_H
#define QUIRE_CLI_WORKLOAD_ROOTS_H

#include "numbers.h"
#include "trace/trace.h"

typedef struct root {
    uint64_t index;
    uint64_t key;  /* the same in each reading: of its session, or its own */
    double time_s; /* when it comes */
    bool is_kept;  /* the caller's */
} root;

typedef struct roots {
    number_map sessions; /* -> root of the last turn, from 1 on */
    number_map requests; /* that may be waited for -> root, from 1 on */
    root *all;           /* those that are remembered */
    uint64_t num_all;
    uint64_t room;
    root last;      /* one that nothing can wait for */
    uint64_t count; /* of all roots */
} roots;

/* Whether requests of this format may wait for others by name. */
bool trace_may_wait(trace_format format);
/* The root of the next request in the order of the trace; *is_new: it is its own. may_wait: a later
 * request may wait for this one by name. Valid until the next call. NULL: no memory. */
root *roots_of(roots *r, const trace_request *request, bool may_wait, bool *is_new);
/* The root of an earlier request; NULL: it is not known. */
const root *roots_of_number(const roots *r, uint64_t number);
void roots_free(roots *r);

/* Whether a request comes at the end of others, not at its own time. */
static inline bool request_waits(const trace_request *r)
{
    return r->is_closed_loop && (r->turn > 0 || r->num_after > 0);
}

#endif
