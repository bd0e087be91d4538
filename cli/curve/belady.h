/* cli/curve/belady.h - the hits of a pool that knows the future.
 *
 * The policy: when blocks are needed, evict those that no lookup will find again; then, of the
 * others, the one whose next lookup is furthest away (Belady's MIN), of one request's blocks the
 * deepest. A child is never looked up before its parent, so children go before parents, and what
 * a request finds is a leading run by itself. As in the real pool a request holds all its blocks
 * until its end (they cannot be evicted meanwhile), and nothing is there before it is computed. All
 * blocks have one size and all hits one worth, so no policy with these rules has more hits.
 *
 *      request q     block 0  1  2  3 | 4  5 | 6  7          whose blocks are looked up next by
 *      next lookup        request 9   |  12  | never         so few requests that runs are enough
 *
 * Of the blocks that wait for request r only their number is needed: they are blocks [low, high) of
 * its prompt, those below low wait for somebody earlier. So one pool size costs O(log requests) for
 * each run, however many blocks there are.
 */
#ifndef QUIRE_CLI_CURVE_BELADY_H
#define QUIRE_CLI_CURVE_BELADY_H

#include <stdbool.h>
#include <stdint.h>

/* Blocks [from, to) of a request are looked up next by request `user`. */
typedef struct belady_run {
    uint32_t user;
    uint32_t from;
    uint32_t to;
    uint32_t more; /* the next run of the same request, plus 1; 0: none */
} belady_run;

typedef struct belady_request {
    uint32_t num_held;
    uint32_t first_run; /* plus 1; 0: none */
} belady_request;

/* All zero is an empty log; both arrays are to be freed. */
typedef struct belady_log {
    belady_request *requests;
    belady_run *runs;
    uint32_t num_requests;
    uint32_t requests_room;
    uint32_t num_runs;
    uint32_t runs_room;
} belady_log;

/* The next request; it gets the number log->num_requests had. False: no memory, or too many; so is
 * the next. */
bool belady_add_request(belady_log *log, uint32_t num_held);
/* `user` looks up block `block` of the request that held it last. In order of blocks. */
bool belady_add_lookup(belady_log *log, uint32_t request, uint32_t user, uint32_t block);

/* Blocks found in a pool of num_blocks; false: no memory. */
bool belady_hits(const belady_log *log, uint64_t num_blocks, uint64_t *hits);

#endif
