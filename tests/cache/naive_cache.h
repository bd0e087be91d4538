/* cache/naive_cache.h - the KV cache without ideas: the model that the real one is compared with,
 * for QUIRE_PROFILE_DEFAULT.
 *
 *      seqs     [ per group: an array of block ids, how many of them have keys ]
 *      pool     model/naive_pool.h
 *
 * What the real cache does cleverly is done here the long way round:
 *
 *      a hit        every length from the longest down to 0 is tried; each group says yes or no
 *      room         nothing is predicted. Blocks are taken one group after the other; when the pool
 *                   runs dry in the middle, the whole model is put back from a copy, and the answer
 *                   is QUIRE_NO_SPACE. So where both agree, predicted = taken, and a failed call
 *                   changed nothing
 *      can it fit   the one place with a formula, because nothing is taken
 *      keys         a block of a window is worth one if a hit needs it that ends where the prompt
 *                   can be resumed; each such end is asked for each block
 *
 * FULL, SLIDING_WINDOW, CHUNKED_LOCAL and MAMBA (NONE, without speculative blocks) in any mix.
 */
#ifndef CACHE_NAIVE_CACHE_H
#define CACHE_NAIVE_CACHE_H

#include "model/naive_pool.h"

#include <quire/cache.h>

enum {
    NAIVE_GROUPS = 4,
    NAIVE_SEQS = 8,
    NAIVE_TOKENS = 48, /* of a request; blocks may be as small as one token */
    NAIVE_DIGEST = 16,
    NAIVE_STEP_KEYS = 160 /* a step of the tests gives fewer */
};

typedef struct naive_seq {
    bool used;
    uint32_t num_blocks[NAIVE_GROUPS];
    uint32_t num_cached[NAIVE_GROUPS]; /* the first of them have keys, or need none */
    uint32_t num_prompt;
    uint32_t shared; /* tokens of a prefix that is known to be shared */
    quire_block blocks[NAIVE_GROUPS][NAIVE_TOKENS];
} naive_seq;

/* The key of a Mamba state that was computed in this step. */
typedef struct naive_key {
    uint32_t group;
    unsigned char hash[NAIVE_MAX_HASH];
} naive_key;

typedef struct naive_cache {
    naive_pool pool;
    event_log *log;
    uint32_t num_groups;
    quire_group_config groups[NAIVE_GROUPS];
    uint32_t max_model_len;
    uint32_t max_num_batched_tokens;
    uint32_t max_requests;
    uint32_t hash_block_size;
    uint32_t watermark; /* blocks that a new request must leave free */
    bool enable_caching;
    bool use_eagle; /* single groups only */
    naive_seq seqs[NAIVE_SEQS];
    uint32_t num_step_keys;
    naive_key step_keys[NAIVE_STEP_KEYS];
    quire_prefix_stats stats;
    uint32_t short_by; /* blocks that the last NO_SPACE lacked; 0 where a state must wait */
} naive_cache;

/* The blocks that a call answers with, for each group. */
typedef struct naive_answer {
    uint32_t count[NAIVE_GROUPS];
    quire_block ids[NAIVE_GROUPS][NAIVE_TOKENS];
} naive_answer;

/* config: valid, its pool and requests within the limits above. */
void naive_cache_init(naive_cache *cache, const quire_cache_config *config,
                      uint32_t hash_block_size, event_log *log);

/* seq is a place in seqs, the same for a request's whole life; request->seq is not looked at. */
uint32_t naive_cache_lookup(const naive_cache *cache, const quire_cache_request *request,
                            naive_answer *hit);
int naive_cache_allocate(naive_cache *cache, uint32_t seq, const quire_cache_request *request,
                         const quire_allocate_params *params, naive_answer *new_blocks);
int naive_cache_can_fit(const naive_cache *cache, uint32_t seq, const quire_cache_request *request,
                        const quire_allocate_params *params);
void naive_cache_cache_blocks(naive_cache *cache, uint32_t seq, const quire_cache_request *request,
                              uint32_t num_tokens);
void naive_cache_free(naive_cache *cache, uint32_t seq);
void naive_cache_remove_skipped(naive_cache *cache, uint32_t seq, uint32_t num_tokens);
void naive_cache_new_step(naive_cache *cache);
void naive_cache_common_prefix(const naive_cache *cache, uint32_t seq, uint32_t *num_blocks);
uint32_t naive_cache_num_seqs(const naive_cache *cache);

#endif
