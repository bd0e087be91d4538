/* cache/cache_mix.h - mixes of groups for the model test, and requests with beginnings in common.
 *
 *      request     family 1, split 3, tail 2:    hashes  1 1 1 (1,3,2) (1,3,2) ...
 *                                                        ^^^^^ shared with all of family 1
 *
 * Families, splits and tails are few, so that every length of a common beginning happens, and the
 * same prompt comes again.
 */
#ifndef CACHE_CACHE_MIX_H
#define CACHE_CACHE_MIX_H

#include "cache/cache_pair.h"

typedef struct cache_mix {
    const char *name;
    quire_group_config groups[NAIVE_GROUPS];
    uint32_t num_groups;
    quire_cache_config config; /* its groups point into this struct */
} cache_mix;

uint32_t cache_num_mixes(void);
/* The n-th mix with sizes drawn at random. */
void cache_mix_make(uint32_t n, uint64_t *random, cache_mix *mix);

/* A new prompt for a request without blocks. */
void cache_mix_prompt(const cache_mix *mix, uint64_t *random, uint32_t hash_block_size,
                      pair_request *q);
/* num_hashes as num_tokens asks. */
void cache_mix_grow(uint32_t hash_block_size, pair_request *q, uint32_t num_tokens);

#endif
