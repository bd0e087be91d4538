/* model/naive_pool.h - the block pool as one would write it in ten minutes: the model that the real
 * one is compared with.
 *
 *      queue    [ 5 | 9 | 2 | 7 | . | . ]      an array; taking from it moves the rest (memmove)
 *      blocks   [ ref_cnt, key, order ]        a key is found by looking at every block; of several
 *                                              with the same key the lowest order is the first
 *
 * There is nothing clever here on purpose: no index, no links, no list of duplicates. A batch is
 * carried out entry by entry, and when an entry is not valid the whole pool is put back from a
 * copy, so "a call that fails changes nothing" needs no thought either.
 *
 * It answers every call of quire/pool.h, with the same status codes and the same events. It is one
 * flat struct: copying naive_pool_size bytes saves or restores it.
 */
#ifndef MODEL_NAIVE_POOL_H
#define MODEL_NAIVE_POOL_H

#include "event_log.h"

#include <quire/pool.h>
#include <stdbool.h>

#define NAIVE_MAX_BLOCKS   24
#define NAIVE_MAX_HASH     64
#define NAIVE_MAX_GROUP_ID 65535

typedef struct naive_block {
    uint32_t ref_cnt;
    uint32_t held;     /* of these, by users who are no requests */
    uint32_t hash_len; /* 0: no key */
    uint32_t group_id;
    uint32_t order; /* of caching: grows with every key given */
    unsigned char hash[NAIVE_MAX_HASH];
} naive_block;

typedef struct naive_pool {
    event_log *log; /* NULL: no events */
    uint32_t num_blocks;
    uint32_t hash_bytes;
    bool enable_caching;
    bool has_two_ends; /* freed blocks without a key go to the head */
    uint32_t next_order;
    uint32_t num_free;
    quire_block queue[NAIVE_MAX_BLOCKS];
    naive_block blocks[NAIVE_MAX_BLOCKS]; /* last, so that a copy can stop at num_blocks */
} naive_pool;

/* For a valid config of at most NAIVE_MAX_BLOCKS blocks and NAIVE_MAX_HASH bytes. */
void naive_pool_init(naive_pool *pool, const quire_pool_config *config, event_log *log);
/* The bytes that are in use. */
size_t naive_pool_size(const naive_pool *pool);

int naive_pool_get_cached_block(const naive_pool *pool, quire_bytes hash, const uint32_t *group_ids,
                                uint32_t num_groups, quire_block *blocks);
int naive_pool_get_cached_prefix(const naive_pool *pool, const void *hashes, size_t hash_len,
                                 uint32_t num_hashes, const uint32_t *group_ids,
                                 uint32_t num_groups, quire_block *blocks, uint32_t *num_hit);
int naive_pool_get_new_blocks(naive_pool *pool, uint32_t num_blocks, quire_block *blocks);
int naive_pool_touch(naive_pool *pool, const quire_block *blocks, uint32_t num_blocks);
int naive_pool_free_blocks(naive_pool *pool, const quire_block *blocks, uint32_t num_blocks);
int naive_pool_hold(naive_pool *pool, const quire_block *blocks, uint32_t num_blocks);
int naive_pool_let_go(naive_pool *pool, const quire_block *blocks, uint32_t num_blocks,
                      uint32_t to_head);
int naive_pool_cache_full_blocks(naive_pool *pool, const quire_cache_full_params *params);
int naive_pool_evict_blocks(naive_pool *pool, const quire_block *blocks, uint32_t num_blocks);
int naive_pool_reset_prefix_cache(naive_pool *pool);

quire_usage naive_pool_usage(const naive_pool *pool);
uint32_t naive_pool_get_num_free_blocks(const naive_pool *pool);
double naive_pool_get_usage(const naive_pool *pool);
int naive_pool_get_block(const naive_pool *pool, quire_block block, quire_block_info *info);
quire_block naive_pool_get_next_free(const naive_pool *pool, quire_block block);
uint32_t naive_pool_get_all_free_blocks(const naive_pool *pool, quire_block *blocks,
                                        uint32_t capacity);
uint32_t naive_pool_num_keys(const naive_pool *pool);
int naive_pool_draw(const naive_pool *pool, quire_block first, uint32_t num_blocks, char *out);

#endif
