/* cli/curve/curve.h - the hit-ratio curve of a trace, for requests one at a time.
 *
 *      trace_request ─► identities of its blocks ─► lanes ─► hits at any pool size
 *
 * What a request does is what the scheduler and the pool do with it when it is alone:
 *   - it looks up its leading full blocks, so many that one prompt token is left to compute:
 *     (prompt - 1) / block size at most;
 *   - it computes prompt + output - 1 tokens (the last one sampled is never computed) and holds the
 *     blocks for them until its end, when they are freed, last block first;
 *   - full blocks are cached under the identity of all tokens up to their end, those that it
 *     generates too: a later prompt may contain them.
 *
 * Exact: one lane with all blocks. Sampled: blocks are kept by a hash of their identity, so that a
 * block is always kept or never, in CURVE_LANES lanes that have no block in common; a lane's stack
 * is thinner by its rate, and pool sizes are taken at that rate. The lanes are as many independent
 * estimates: their spread gives the error bars.
 */
#ifndef QUIRE_CLI_CURVE_H
#define QUIRE_CLI_CURVE_H

#include "policies.h"
#include "trace/trace.h"

enum { CURVE_LANES = 8 };

typedef struct curve_options {
    uint32_t block_size;
    double sample;     /* share of blocks that are kept; 1: all, exact */
    bool has_belady;   /* keep what Belady's bound needs: a few numbers for each request */
    bool has_policies; /* keep what other policies need: all blocks of all requests. Exact only */
} curve_options;

typedef struct curve_totals {
    uint64_t requests;
    uint64_t prompt_tokens;
    uint64_t query_blocks; /* of prompts, part-filled last ones included */
    uint64_t lookups;      /* of them, those that can be found: full, and not the last token's */
    uint32_t min_blocks;   /* that the largest request needs: no smaller pool can serve the trace */
    double distinct_blocks; /* what an unlimited pool would hold; sampled: estimated */
} curve_totals;

/* A value and half the width of its 95 % interval; exact: 0. */
typedef struct curve_value {
    double value;
    double error;
} curve_value;

typedef struct curve curve;

/* NULL: no memory. */
curve *curve_open(const curve_options *options);
void curve_close(curve *c);
/* False: no memory. */
bool curve_add(curve *c, const trace_request *request);
/* After the last request, before what follows. */
void curve_finish(curve *c);

curve_totals curve_get_totals(const curve *c);
/* Blocks found in a pool of num_blocks (without the null block): LRU, as the pool does it. */
curve_value curve_hits(const curve *c, uint64_t num_blocks);
/* The same with Belady's policy (belady.h). False: no memory. */
bool curve_belady(const curve *c, uint64_t num_blocks, curve_value *hits);
/* All requests, where has_policies was asked for: for policies.h. */
const policy_log *curve_get_log(const curve *c);
/* A pool of so many blocks finds all that there is to find. */
uint64_t curve_last_size(const curve *c);

#endif
