/* model/generate.h - makes up configs and operations from a stream of random numbers.
 *
 * Most operations are ones that a caller could make in the pool's present state: free what is in
 * use, touch what is cached, give keys to blocks without one. Some are then spoilt in one place: an
 * id that does not exist, the null block, one mention too many, a NULL, a wrong length.
 */
#ifndef MODEL_GENERATE_H
#define MODEL_GENERATE_H

#include "operation.h"

typedef struct rng {
    uint64_t state;
} rng;

uint64_t rng_next(rng *random);
/* 0 <= result < limit; limit > 0. */
uint32_t rng_below(rng *random, uint32_t limit);

/* What stays the same during a pool's life. */
typedef struct generator {
    uint32_t num_hashes; /* different ones */
    uint32_t num_groups;
    uint32_t group_ids[3];
    uint32_t weights[OP_NUM_KINDS];
    uint32_t sum_of_weights;
} generator;

void generate_config(rng *random, quire_pool_config *config, generator *gen);
void generate_operation(rng *random, const generator *gen, const naive_pool *pool, operation *op);

#endif
