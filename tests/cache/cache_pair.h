/* cache/cache_pair.h - a real cache and a naive one that must never differ.
 *
 *      pair_*:   the same call on both     --> same status, same blocks, same numbers, same events
 *                cache_pair_compare        --> same free queue, same info of every block, same
 *                                              blocks of every request; quire_cache_check is fine
 *
 * A function that finds a difference writes it to pair->difference (the first one stays).
 */
#ifndef CACHE_CACHE_PAIR_H
#define CACHE_CACHE_PAIR_H

#include "cache/naive_cache.h"

/* A request of the engine that both caches are shown. */
typedef struct pair_request {
    quire_cache_request r;  /* seq is the real cache's */
    uint32_t slot;          /* in the naive cache */
    uint32_t num_allocated; /* tokens that have slots and are certain: what may be computed */
    uint32_t is_delayed;    /* its blocks have no keys yet */
    unsigned char hashes[NAIVE_TOKENS * NAIVE_DIGEST];
} pair_request;

typedef struct cache_pair {
    quire_cache *real;
    quire_pool *pool;
    naive_cache naive;
    event_log real_log;
    event_log naive_log;
    pair_request requests[NAIVE_SEQS];
    uint32_t num_requests;
    quire_block ballast[NAIVE_MAX_BLOCKS]; /* taken through the pool, to make it smaller */
    uint32_t num_ballast;
    char call[160];
    const char *difference;
} cache_pair;

/* What happened, over all pairs of a run. */
typedef struct pair_tally {
    uint64_t hits;
    uint64_t partial_hits; /* some group's hit starts with null blocks */
    uint64_t exact_fits;   /* a success that took the last free block */
    uint64_t one_short;    /* NO_SPACE for the want of one block */
    uint64_t no_space;
    uint64_t waits; /* for a state of this step */
    uint64_t full;
    uint64_t trims;
    uint64_t externals;
    uint64_t evictions;
    uint64_t resets;
    uint64_t busy;
    uint64_t fits;
    uint64_t does_not_fit;
    uint64_t errors;
} pair_tally;

/* NULL, or why the real cache could not be made. */
const char *cache_pair_open(cache_pair *pair, const quire_cache_config *config, uint64_t *seed);
void cache_pair_close(cache_pair *pair);

/* Looks up; fills hit with the real cache's spans; returns the tokens of the hit. */
uint32_t pair_lookup(cache_pair *pair, pair_request *q, quire_block_span *hit, pair_tally *tally);
int pair_allocate(cache_pair *pair, pair_request *q, const quire_allocate_params *params,
                  pair_tally *tally);
void pair_can_fit(cache_pair *pair, const pair_request *q, const quire_allocate_params *params,
                  pair_tally *tally);
void pair_free(cache_pair *pair, pair_request *q);
void pair_remove_skipped(cache_pair *pair, pair_request *q, uint32_t num_tokens, pair_tally *tally);
void pair_cache_blocks(cache_pair *pair, pair_request *q, uint32_t num_tokens);
void pair_evict(cache_pair *pair, const quire_block *blocks, uint32_t num_blocks,
                pair_tally *tally);
void pair_reset(cache_pair *pair, pair_tally *tally);
void pair_new_step(cache_pair *pair);
void pair_common_prefix(cache_pair *pair, const pair_request *q);
void pair_take_stats(cache_pair *pair);
/* Ballast: blocks that the pool lacks for a while. */
void pair_take_ballast(cache_pair *pair, uint32_t num_blocks);
void pair_drop_ballast(cache_pair *pair);
/* A call on the real cache that must fail with this status. */
void pair_must_fail(cache_pair *pair, int status, int wanted, pair_tally *tally);

/* Everything that can be seen of both. */
void cache_pair_compare(cache_pair *pair);
void cache_pair_print(const cache_pair *pair);

#endif
