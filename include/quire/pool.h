/* quire/pool.h - a fixed pool of KV blocks with a prefix cache.
 *
 *      block id   0  1  2  3  4  5  6  7  8  9
 *                 N  A  A  A  C  C  E  E  C  E       N null   A active   C cached   E empty
 *
 *                 get_new_blocks                free_blocks
 *        empty ---------------------> active ----------------> empty    (no hash)
 *          ^                          |  ^ |
 *          | evicted, oldest first    |  | | cache_full_blocks, then free_blocks
 *          +------- cached <----------+  | v
 *                      |                 cached
 *                      +--- touch -------^      (a prefix hit)
 *
 * block    a page of KV memory, named by its id. The pool never reads or writes the page.
 * ref_cnt  the number of users of a block. A block with ref_cnt 0 is in the free queue.
 * free queue   the blocks without a user. Blocks are taken from its head. A cached block in the
 *          free queue keeps its content until it is taken: taking it evicts it, so the block that
 *          was freed first is evicted first.
 * group    a set of layers that share block tables. The blocks of all groups come from one pool.
 * key      a block hash (or several joined hashes) and a group id: the name of a full block's
 *          content. Several blocks may have the same key; a lookup finds the block that was cached
 *          first.
 *
 *      empty + cached + active + null = num_blocks          at all times
 *      empty + cached                 = blocks in the free queue
 *
 * Cost: every operation is O(1) for each block that it names, for any size of the pool. Nothing is
 * allocated after creation. Memory: 65 bytes for each block; with caching also the bytes of its
 * hash (hash_bytes) and about 11 bytes of index.
 *
 * Threads: one writer thread. Any thread may call quire_pool_get_usage and
 * quire_pool_get_num_free_blocks at any time. All numbers of one such call belong to one moment and
 * add up; the moment may lie inside a call of the writer that changes many blocks.
 *
 * Statuses: a call that does not return QUIRE_OK has changed nothing. If the pool is NULL, or an
 * array is NULL and its count is above 0, a call returns QUIRE_E_ARGUMENT.
 */
#ifndef QUIRE_POOL_H
#define QUIRE_POOL_H

#include "config.h"
#include "error.h"
#include "hash.h"
#include "memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_pool quire_pool;

/* ---- events ------------------------------------------------------------- */

typedef enum quire_event_kind {
    QUIRE_EVENT_STORED = 1,  /* blocks got keys: one event for each cache_full_blocks call */
    QUIRE_EVENT_REMOVED = 2, /* one block lost its key: one event for each block */
    QUIRE_EVENT_CLEARED = 3, /* all blocks lost their keys */
    /* A request found blocks that have their keys already: nothing changed. One event for each
     * group and lookup of a request with kv_cache_report_full (quire/sched.h). */
    QUIRE_EVENT_REPORTED = 4
} quire_event_kind;

/* A change of the prefix cache. The pool calls the hook after the change. Pointers are valid during
 * the call. The hook may call the functions under "finding" and "looking". The hook must not change
 * the pool. */
typedef struct quire_event {
    size_t size;
    quire_event_kind kind;
    uint32_t group_id;

    /* STORED: blocks [first_block, first_block + num_blocks) of the request. Null blocks among them
     * did not get keys. hashes has one hash of hash_bytes bytes for each block, null blocks
     * included. parent is the hash of the block before the first; it is absent if first_block is 0.
     * REMOVED: one block and one hash. REPORTED: as STORED, from the first block on; the hashes of
     * null blocks count too. */
    const quire_block *blocks;
    uint32_t num_blocks;
    uint32_t first_block;
    const void *hashes;
    uint32_t hash_bytes;
    quire_bytes parent;
    uint32_t block_size;   /* STORED, REPORTED: tokens in a block, from the caller's params */
    void *request;         /* STORED, REPORTED: from the caller's params */
    uint32_t still_cached; /* REMOVED: 1 if another block has the same key, 0 otherwise */
} quire_event;

#define QUIRE_EVENT_INIT QUIRE_SIZED_INIT(quire_event)

/* ---- making a pool ------------------------------------------------------ */

typedef struct quire_pool_config {
    size_t size;
    uint32_t num_blocks;         /* with the null block; 1 to QUIRE_MAX_BLOCKS */
    quire_switch enable_caching; /* default on; off saves the memory for keys and index */
    /* Bytes of the longest hash: digest size x number of joined hashes. 0 = 32; a multiple of 16,
     * at most 4,080. */
    uint32_t hash_bytes;
    /* Called inside the call that causes the event; must not call this pool. NULL: no events. */
    void (*on_event)(void *user, const quire_event *event);
    void *event_user;
    quire_hooks hooks;
    quire_profile profile; /* not VLLM_0_20: freed blocks without a key are taken first */
} quire_pool_config;

#define QUIRE_POOL_CONFIG_INIT QUIRE_SIZED_INIT(quire_pool_config)
#define QUIRE_MAX_BLOCKS       UINT32_C(0x7fffffff)

/* Create a pool: see quire/memory.h. Beside the statuses of quire/memory.h, returns QUIRE_E_RANDOM
 * if the random hook fails. The pool keeps the event hook and nothing else of the config. Block 0
 * becomes the null block. The free queue holds the blocks 1, 2, 3, ... in this order. */
QUIRE_API int quire_pool_create(const quire_pool_config *config, const quire_allocator *allocator,
                                quire_pool **pool);
static inline size_t quire_pool_bytes(const quire_pool_config *config)
{
    size_t bytes = 0;
    quire_pool *none;
    quire_allocator measure = quire_allocator_measure(&bytes);
    (void)quire_pool_create(config, &measure, &none);
    return bytes;
}
/* Frees the memory that _create took. NULL: does nothing. */
QUIRE_API void quire_pool_destroy(quire_pool *pool);

/* ---- finding ------------------------------------------------------------ */

/* Finds a run of hashes, up to the first hash that one of the groups does not have:
 * blocks[i * num_groups + g] for i < *num_hit. hashes holds num_hashes hashes of hash_len bytes
 * each, one after the other (for blocks that join k hashes, hash_len is k times the digest size).
 * Returns QUIRE_OK also with 0 hits; with caching off *num_hit is 0. The blocks can be evicted
 * until quire_pool_touch. QUIRE_E_RANGE if hash_len is not a multiple of 16 or exceeds hash_bytes;
 * QUIRE_E_ARGUMENT if num_groups is 0. */
QUIRE_API int quire_pool_get_cached_prefix(const quire_pool *pool, const void *hashes,
                                           size_t hash_len, uint32_t num_hashes,
                                           const uint32_t *group_ids, uint32_t num_groups,
                                           quire_block *blocks, uint32_t *num_hit);

/* The same for one hash: QUIRE_OK, or QUIRE_MISS if a group does not have the hash. */
QUIRE_API int quire_pool_get_cached_block(const quire_pool *pool, quire_bytes hash,
                                          const uint32_t *group_ids, uint32_t num_groups,
                                          quire_block *blocks);

/* Finds each of the hashes in one group: blocks[i] is QUIRE_NULL_BLOCK for a miss. Statuses as
 * quire_pool_get_cached_prefix. */
QUIRE_API int quire_pool_get_cached_each(const quire_pool *pool, const void *hashes,
                                         size_t hash_len, uint32_t num_hashes, uint32_t group_id,
                                         quire_block *blocks);

/* ---- changing ----------------------------------------------------------- */

/* Takes num_blocks blocks from the head of the free queue and sets their ref_cnt to 1. A cached
 * block among them is evicted: one REMOVED event each, in order. Returns QUIRE_NO_SPACE if fewer
 * blocks are free, QUIRE_E_RANGE if num_blocks is not below the pool's num_blocks. */
QUIRE_API int quire_pool_get_new_blocks(quire_pool *pool, uint32_t num_blocks, quire_block *blocks);

/* Adds one user to each block, in order. A block that had no user leaves the free queue. Returns
 * QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK, or QUIRE_E_OVERFLOW if a ref_cnt would overflow. */
QUIRE_API int quire_pool_touch(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks);

/* Removes one user from each block. A block without users joins the tail of the free queue, in the
 * order of blocks: blocks[0] is evicted first. So pass the blocks of a request from last to first:
 * then the end of its prefix is evicted before the start. A block may be listed as often as it has
 * users; it joins the queue once, at its last place in the list. Blocks without a key join the head
 * of the queue instead, in the same order: blocks[0] is the new head (not in profile VLLM_0_20).
 * Returns QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK, or QUIRE_E_DOUBLE_FREE if a block is listed
 * more often than it has users. */
QUIRE_API int quire_pool_free_blocks(quire_pool *pool, const quire_block *blocks,
                                     uint32_t num_blocks);

/* Adds one hold to each block. A hold is a user that is not a request: a copy in progress, or a
 * pin. A block with a hold is not evicted. Holds do not count as requests in
 * quire_cache_get_num_common_prefix_blocks. Returns QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK, or
 * QUIRE_E_OVERFLOW if a block would have more than 63 holds. */
QUIRE_API int quire_pool_hold(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks);

/* Removes one hold from each block. A block that has no user left returns to the free queue: at the
 * tail, as in quire_pool_free_blocks; or, with to_head, at the head, so that blocks[0] is evicted
 * first. Use to_head for blocks that were not used while they were held. Returns
 * QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK, or QUIRE_E_DOUBLE_FREE if a block is listed more often
 * than it has holds. */
QUIRE_API int quire_pool_let_go(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks,
                                uint32_t to_head);

/* Params of quire_pool_cache_full_blocks. */
typedef struct quire_cache_full_params {
    size_t size;
    const quire_block *blocks;  /* all blocks of the request; null blocks are skipped */
    uint32_t num_cached_blocks; /* the first blocks, which already have keys */
    uint32_t num_full_blocks;   /* the number of blocks that have keys after the call */
    const void *hashes;  /* all hashes of the request, from block 0 on, hash_len bytes each */
    size_t hash_len;     /* a multiple of 16, at most hash_bytes, otherwise QUIRE_E_RANGE */
    uint32_t num_hashes; /* at least num_full_blocks, otherwise QUIRE_E_RANGE */
    uint32_t group_id;   /* at most 65,535, otherwise QUIRE_E_RANGE */
    uint32_t block_size; /* for the event only */
    void *request;       /* for the event only */
    /* Number of the block whose hash is the first of hashes: 0, or below num_cached_blocks. */
    uint32_t first_hash;
} quire_cache_full_params;

#define QUIRE_CACHE_FULL_PARAMS_INIT QUIRE_SIZED_INIT(quire_cache_full_params)

/* Gives full blocks their keys, so that lookups find them. If num_cached_blocks >= num_full_blocks,
 * does nothing and makes no event. Returns QUIRE_E_UNKNOWN_BLOCK; QUIRE_E_ALREADY_CACHED if a block
 * has a key or is listed twice; QUIRE_E_RANGE if a field of params is out of range;
 * QUIRE_E_DISABLED if caching is off. */
QUIRE_API int quire_pool_cache_full_blocks(quire_pool *pool, const quire_cache_full_params *params);

/* The following functions copy keys between two pools with the same hash_bytes, such as a GPU pool
 * and its copy in host memory.
 *
 * For each of n blocks of `other`: found[i] is the block of `pool` with the same key,
 * QUIRE_NULL_BLOCK if no block of `pool` has the key, UINT32_MAX if the block of `other` has no
 * key. Returns QUIRE_E_UNKNOWN_BLOCK, or QUIRE_E_DISABLED if caching is off in one of the pools. */
QUIRE_API int quire_pool_find_same(const quire_pool *pool, const quire_pool *other,
                                   const quire_block *others, uint32_t n, quire_block *found);
/* Begins copies from `other` to `pool`. For each of n blocks of `other` whose key no block of
 * `pool` has: takes a block from the head of the free queue of `pool`, gives it the key, and adds a
 * hold to both blocks (quire_pool_hold). Blocks without a key, and blocks with 63 holds, are
 * skipped. from[i] and to[i] list the num_taken copies to make; both arrays have room for n. Ends
 * before a block for which `pool` has no free block: same->is_full is then 1. One
 * STORED event for each key, without a parent, and REMOVED events for evicted keys.
 *
 * If `pool` has no keys, its index takes over the secret of `other`, which makes these calls
 * faster; a call with n 0 does only this.
 *
 * Returns QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK, QUIRE_E_DISABLED, or QUIRE_E_ARGUMENT if the
 * two pools are the same pool. */
typedef struct quire_same { /* final */
    uint32_t num_done;      /* blocks of others that were processed */
    uint32_t num_taken;
    uint32_t num_with_key; /* processed blocks before the first block without a key */
    uint32_t is_full;      /* 1: no free block was left for the next block */
} quire_same;

QUIRE_API int quire_pool_take_same(quire_pool *pool, quire_pool *other, const quire_block *others,
                                   uint32_t n, quire_block *from, quire_block *to,
                                   quire_same *same);
/* Ends copies that quire_pool_take_same began, from the last to the first: removes one hold from
 * each to[i] and from[i]; a block without users joins its free queue as in quire_pool_free_blocks.
 * Statuses as quire_pool_let_go, and QUIRE_E_ARGUMENT if the two pools are the same pool. */
QUIRE_API int quire_pool_leave_same(quire_pool *pool, quire_pool *other, const quire_block *from,
                                    const quire_block *to, uint32_t n);

/* Removes the keys of blocks, so that lookups no longer find them. Blocks without a key are
 * skipped. Users and the free queue are unchanged. One REMOVED event for each key. Returns
 * QUIRE_E_UNKNOWN_BLOCK or QUIRE_E_NULL_BLOCK. */
QUIRE_API int quire_pool_evict_blocks(quire_pool *pool, const quire_block *blocks,
                                      uint32_t num_blocks);

/* Evicts cached blocks from the head of the free queue on (the least recently freed first), until
 * num_blocks blocks have lost their keys or no cached block is left. One REMOVED event each. The
 * blocks are then empty and keep their places in the queue. *num_evicted, if not NULL, is the
 * number of evicted blocks. Cost: a walk over the queue up to the last evicted block. */
QUIRE_API int quire_pool_evict_cached(quire_pool *pool, uint32_t num_blocks, uint32_t *num_evicted);

/* Removes the keys of all blocks, for example after the model's weights changed. The free queue
 * keeps its order. One CLEARED event. Returns QUIRE_BUSY while a block is in use. Cost: a pass over
 * the pool. */
QUIRE_API int quire_pool_reset_prefix_cache(quire_pool *pool);

/* ---- looking ------------------------------------------------------------ */

/* The blocks by state: empty + cached + active + null_blocks == total. */
typedef struct quire_usage { /* final */
    uint64_t total;
    uint64_t empty;       /* no user, no key */
    uint64_t cached;      /* no user, has a key: a prefix hit can use it; evicted when needed */
    uint64_t active;      /* has users or holds */
    uint64_t null_blocks; /* 1: the null block */
} quire_usage;

/* The blocks by state. All 0 if pool is NULL. Any thread. */
QUIRE_API quire_usage quire_pool_get_usage(const quire_pool *pool);
/* empty + cached. 0 if pool is NULL. Any thread. */
static inline uint32_t quire_pool_get_num_free_blocks(const quire_pool *pool)
{
    quire_usage usage = quire_pool_get_usage(pool);
    return (uint32_t)(usage.empty + usage.cached);
}
/* The used part of a pool: 1 - free / (total - 1), as in vLLM; 0 if the pool has the null block
 * alone. */
static inline double quire_usage_level(quire_usage usage)
{
    double num_free = (double)(usage.empty + usage.cached);
    return usage.total > 1 ? 1.0 - num_free / (double)(usage.total - 1) : 0.0;
}

typedef struct quire_block_info { /* final */
    uint32_t ref_cnt;             /* users and holds */
    uint32_t num_holds;           /* of them: holds (quire_pool_hold) */
    uint32_t group_id;            /* of its key */
    char state;                   /* 'N', 'A', 'C' or 'E' */
    quire_bytes hash;             /* absent if the block has no key; valid until the pool changes */
} quire_block_info;

/* Describes blocks: infos[i] for blocks[i]. QUIRE_E_UNKNOWN_BLOCK if a block does not exist. */
QUIRE_API int quire_pool_get_blocks(const quire_pool *pool, const quire_block *blocks,
                                    uint32_t num_blocks, quire_block_info *infos);
/* The same for one block. */
static inline int quire_pool_get_block(const quire_pool *pool, quire_block block,
                                       quire_block_info *info)
{
    return quire_pool_get_blocks(pool, &block, 1, info);
}

/* How many of the first blocks have no hold. 0 if an argument is invalid. */
QUIRE_API uint32_t quire_pool_count_unheld(const quire_pool *pool, const quire_block *blocks,
                                           uint32_t num_blocks);

/* The block after `block` in the free queue; with QUIRE_NULL_BLOCK the head of the queue. Returns
 * QUIRE_NULL_BLOCK at the end of the queue, and if `block` is not in the queue. */
QUIRE_API quire_block quire_pool_get_next_free(const quire_pool *pool, quire_block block);

/* Writes the free queue from head to tail, at most capacity blocks. Returns the number of blocks in
 * the queue, 0 if an argument is invalid. */
static inline uint32_t quire_pool_get_all_free_blocks(const quire_pool *pool, quire_block *blocks,
                                                      uint32_t capacity)
{
    if (blocks == NULL && capacity > 0)
        return 0;
    quire_block next = QUIRE_NULL_BLOCK;
    for (uint32_t i = 0; i < capacity; i++) {
        next = quire_pool_get_next_free(pool, next);
        if (next == QUIRE_NULL_BLOCK)
            break;
        blocks[i] = next;
    }
    return quire_pool_get_num_free_blocks(pool);
}

typedef struct quire_pool_counts { /* final */
    uint64_t num_allocated; /* blocks taken from the free queue since the creation of the pool */
    uint32_t num_keys;      /* different keys in the prefix cache */
} quire_pool_counts;

/* All 0 if pool is NULL. */
QUIRE_API quire_pool_counts quire_pool_get_counts(const quire_pool *pool);

/* Writes one letter for each of num_blocks blocks from first on, and a NUL: "NAAACCEECE". out has
 * room for num_blocks + 1 bytes. Returns QUIRE_E_RANGE if a block does not exist. */
QUIRE_API int quire_pool_draw(const quire_pool *pool, quire_block first, uint32_t num_blocks,
                              char *out);

/* Walks the whole pool and checks every invariant. Returns QUIRE_OK or QUIRE_E_CORRUPT. Cost: a
 * pass over the pool; for tests, and for samples in production. */
QUIRE_API int quire_pool_check(const quire_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
