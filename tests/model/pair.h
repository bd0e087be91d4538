/* model/pair.h - a real pool and a naive one that must never differ.
 *
 *      pair_apply:   the same call on both
 *                      --> same status, same outputs, same events
 *                    pair_same_state:
 *                      --> same free queue, same numbers, same info of every block
 *                    and quire_pool_check finds nothing
 */
#ifndef MODEL_PAIR_H
#define MODEL_PAIR_H

#include "operation.h"

typedef struct pair {
    quire_pool *real;
    naive_pool naive;
    event_log real_log;
    event_log naive_log;
    op_result real_result; /* of the last operation */
    op_result naive_result;
} pair;

/* The config that the real pool is to be made with: the given one with events to real_log and
 * random bytes from seed; also makes the naive pool. The caller then makes both->real. */
quire_pool_config pair_init(pair *both, const quire_pool_config *config, const uint64_t *seed);

/* Carries out the operation on both. NULL when answers and events agree, else what does not. */
const char *pair_apply(pair *both, const operation *op);
/* NULL when the two pools cannot be told apart, else by what they can. */
const char *pair_same_state(const pair *both);
/* Prints the operation, both answers, both lists of events and both pools. */
void pair_print(const pair *both, const operation *op, const char *difference);

#endif
