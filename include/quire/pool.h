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
 * block    a page of KV memory, named by its id. The pool never sees the page itself.
 * ref_cnt  how many users a block has. 0: it is in the free queue.
 * free queue   the blocks without a user, those to be taken first at the head. A cached block in it
 *          keeps its content until it is taken: that is the eviction, least recently freed first.
 * group    a set of layers that share block tables. Blocks of all groups come from one pool.
 * key      a block hash (or several, joined) and a group id: the name of a full block's content.
 *          Several blocks may hold the same key; the one that was cached first is found.
 *
 *      empty + cached + active + null = num_blocks          at all times
 *      empty + cached                 = blocks in the free queue ("free" hides what is cached)
 *
 * Cost: every operation is O(1) for each block named, whatever the size of the pool. Nothing is
 * allocated after creation. Memory: 65 bytes a block; with caching also its hash (hash_bytes) and
 * about 11 bytes of index.
 *
 * Threads: one writer. quire_pool_usage, quire_pool_get_num_free_blocks and quire_pool_get_usage
 * may be called from any thread at any time. All numbers of one call are of one moment and add up;
 * that moment may lie inside a call of the writer that changes many blocks.
 *
 * Answers: as quire/error.h says, a call that does not return QUIRE_OK has changed nothing.
 * NULL handles and NULL arrays with a count above 0 are QUIRE_E_ARGUMENT everywhere.
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
    QUIRE_EVENT_STORED = 1,  /* blocks got their keys: one event for a cache_full_blocks call */
    QUIRE_EVENT_REMOVED = 2, /* a block lost its key: one event for a block */
    QUIRE_EVENT_CLEARED = 3  /* all blocks lost their keys */
} quire_event_kind;

/* What the prefix cache did, told to the hook after it happened. Pointers are valid during the
 * call. The hook may look at the pool (the functions under "finding" and "looking"), not change it.
 */
typedef struct quire_event {
    quire_event_kind kind;
    uint32_t group_id;

    /* STORED: blocks [first_block, first_block + num_blocks) of the request; null blocks among them
     * were skipped. hashes has one hash of hash_bytes for each, null blocks included. parent is the
     * hash before the first, absent when first_block is 0. REMOVED: one block, one hash. */
    const quire_block *blocks;
    uint32_t num_blocks;
    uint32_t first_block;
    const void *hashes;
    uint32_t hash_bytes;
    quire_bytes parent;
    uint32_t block_size;   /* STORED: tokens in a block, as the caller said */
    void *request;         /* STORED: as the caller said */
    uint32_t still_cached; /* REMOVED: 1 when another block holds the same key, else 0 */
} quire_event;

/* ---- making a pool ------------------------------------------------------ */

typedef struct quire_pool_config {
    size_t size;
    uint32_t num_blocks;         /* the null block included; 1 to QUIRE_MAX_BLOCKS */
    quire_switch enable_caching; /* default on; off saves the memory for keys and index */
    uint32_t hash_bytes;         /* bytes of the longest hash: digest size x blocks joined; 0 = 32;
                                    a multiple of 16, at most 4,080 */
    void (*on_event)(void *user, const quire_event *event); /* NULL: no events */
    void *event_user;
    quire_hooks hooks;
} quire_pool_config;

#define QUIRE_POOL_CONFIG_INIT QUIRE_SIZED_INIT(quire_pool_config)
#define QUIRE_MAX_BLOCKS       UINT32_C(0x7fffffff)

/* Plan, carve, seal: see quire/memory.h. _bytes gives 0 when the config is not valid. The pool
 * keeps the event hook, and nothing else of the config. Block 0 is taken as the null block; the
 * free queue holds 1, 2, 3, ... in this order. */
QUIRE_API size_t quire_pool_bytes(const quire_pool_config *config);
QUIRE_API int quire_pool_create_in(void *memory, size_t bytes, const quire_pool_config *config,
                                   quire_pool **pool);
QUIRE_API int quire_pool_create(const quire_pool_config *config, const quire_allocator *allocator,
                                quire_pool **pool);
/* Gives back what _create took; NULL is fine. */
QUIRE_API void quire_pool_destroy(quire_pool *pool);

/* ---- finding ------------------------------------------------------------ */

/* The cached block of a hash for each of the groups, in their order, or QUIRE_MISS when any group
 * has none; blocks is then untouched. The blocks are not touched: they can be evicted until
 * quire_pool_touch. hash.len must be a multiple of 16 and at most hash_bytes, else QUIRE_E_RANGE;
 * no groups at all is QUIRE_E_ARGUMENT. With caching off everything is a miss. */
QUIRE_API int quire_pool_get_cached_block(const quire_pool *pool, quire_bytes hash,
                                          const uint32_t *group_ids, uint32_t num_groups,
                                          quire_block *blocks);

/* The same for a run of hashes, up to the first miss: blocks[i * num_groups + g] for i < *num_hit.
 * hashes holds num_hashes hashes of hash_len bytes each, one after the other (for blocks that join
 * k hashes: k times the digest size). This is the fast way to look up a prompt. */
QUIRE_API int quire_pool_get_cached_prefix(const quire_pool *pool, const void *hashes,
                                           size_t hash_len, uint32_t num_hashes,
                                           const uint32_t *group_ids, uint32_t num_groups,
                                           quire_block *blocks, uint32_t *num_hit);

/* Each of them, wherever in the row, for one group: QUIRE_NULL_BLOCK for a miss. */
QUIRE_API int quire_pool_get_cached_each(const quire_pool *pool, const void *hashes,
                                         size_t hash_len, uint32_t num_hashes, uint32_t group_id,
                                         quire_block *blocks);

/* How many of the first blocks have these keys, one after the other in hashes: whether what was
 * found some time ago is still that. */
QUIRE_API uint32_t quire_pool_count_unchanged(const quire_pool *pool, const quire_block *blocks,
                                              uint32_t num_blocks, const void *hashes,
                                              size_t hash_len, uint32_t group_id);

/* ---- changing ----------------------------------------------------------- */

/* Takes num_blocks blocks from the head of the free queue, each with ref_cnt 1; a cached one among
 * them is evicted (one REMOVED event each, in order). QUIRE_NO_SPACE when fewer are free,
 * QUIRE_E_RANGE when the pool could never give so many. */
QUIRE_API int quire_pool_get_new_blocks(quire_pool *pool, uint32_t num_blocks, quire_block *blocks);

/* One more user for each block, in order; a block without a user leaves the free queue.
 * QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK, QUIRE_E_OVERFLOW. */
QUIRE_API int quire_pool_touch(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks);

/* One user less for each block. Those without a user join the tail of the free queue in the order
 * given: the first is taken first, so give a request's blocks last to first, and its tail is
 * evicted before its head. A block may be listed as often as it has users; it joins the queue
 * once, where it is listed last. QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK, QUIRE_E_DOUBLE_FREE.
 */
QUIRE_API int quire_pool_free_blocks(quire_pool *pool, const quire_block *blocks,
                                     uint32_t num_blocks);

/* One more user for each block who is no request: a copy that is on its way, a pin. Held blocks are
 * not evicted, and do not count as shared by requests (quire_cache_get_num_common_prefix_blocks).
 * Errors as touch; QUIRE_E_OVERFLOW for a block that is held 63 times. */
QUIRE_API int quire_pool_hold(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks);

/* Ends that for each. Those without a user join the tail of the free queue as with free_blocks, or
 * with to_head its head, the first of them in front: for blocks that are as cold as they were
 * before they were held. QUIRE_E_DOUBLE_FREE for one that is not held so often. */
QUIRE_API int quire_pool_let_go(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks,
                                uint32_t to_head);

/* Gives full blocks their keys, so that they can be found. */
typedef struct quire_cache_full_params {
    const quire_block *blocks;  /* all blocks of the request so far; null blocks are skipped */
    uint32_t num_cached_blocks; /* the first of them that already have keys */
    uint32_t num_full_blocks;   /* after the call, so many have keys */
    const void *hashes;  /* all hashes of the request, from block 0 on, hash_len bytes each */
    size_t hash_len;     /* a multiple of 16, at most hash_bytes, else QUIRE_E_RANGE */
    uint32_t num_hashes; /* at least num_full_blocks, else QUIRE_E_RANGE */
    uint32_t group_id;   /* at most 65,535, else QUIRE_E_RANGE */
    uint32_t block_size; /* for the event only */
    void *request;       /* for the event only */
    uint32_t first_hash; /* hashes begins with that of this block; below num_cached_blocks, or 0 */
} quire_cache_full_params;

/* Nothing to do, and no event, when num_cached_blocks >= num_full_blocks.
 * QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_ALREADY_CACHED, QUIRE_E_RANGE, QUIRE_E_DISABLED. */
QUIRE_API int quire_pool_cache_full_blocks(quire_pool *pool, const quire_cache_full_params *params);

/* Blocks of one pool and their copies in another, whose keys are as long: a tier.
 *
 * For each of n blocks of `other`: the block of `pool` with the same key, QUIRE_NULL_BLOCK where
 * there is none, UINT32_MAX where the block has no key. QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_DISABLED. */
QUIRE_API int quire_pool_find_same(const quire_pool *pool, const quire_pool *other,
                                   const quire_block *others, uint32_t n, quire_block *found);
/* blocks[i] gets the key of others[i]; where that has none, nothing happens. Errors as
 * cache_full_blocks; events too, one for each block, without a parent. */
QUIRE_API int quire_pool_cache_same(quire_pool *pool, const quire_block *blocks,
                                    const quire_pool *other, const quire_block *others, uint32_t n);
/* Both at once, for blocks that are to be copied. For each of n blocks of `other` whose key no
 * block of `pool` has: a block from the head of the free queue, which gets the key, and a hold on
 * both (quire_pool_hold); those without a key, and those that are held 63 times, are passed over.
 * from[i] and to[i], num_taken of them, room for n: what is to be copied. It ends before a block
 * for which there is no free one. Events as cache_same, and for keys that are evicted.
 * QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK, QUIRE_E_DISABLED. */
typedef struct quire_same {
    uint32_t num_done; /* blocks that were gone through */
    uint32_t num_taken;
    uint32_t num_with_key; /* of those gone through, before the first without */
    uint32_t is_full;      /* no free block was left for the next one */
} quire_same;

QUIRE_API int quire_pool_take_same(quire_pool *pool, quire_pool *other, const quire_block *others,
                                   uint32_t n, quire_block *from, quire_block *to,
                                   quire_same *same);
/* The end of such copies, from the last to the first: a hold less for each to[i] and from[i], as by
 * quire_pool_let_go to the tail. Errors as its. */
QUIRE_API int quire_pool_leave_same(quire_pool *pool, quire_pool *other, const quire_block *from,
                                    const quire_block *to, uint32_t n);
/* Makes these calls faster: the index of `pool`, which has no keys yet (else QUIRE_BUSY), is built
 * with the secret of the other's. */
QUIRE_API int quire_pool_share_tags(quire_pool *pool, const quire_pool *other);

/* Takes the keys from blocks, so that they can no longer be found; those without a key are passed
 * over, users and queue stay as they are. QUIRE_E_UNKNOWN_BLOCK, QUIRE_E_NULL_BLOCK. */
QUIRE_API int quire_pool_evict_blocks(quire_pool *pool, const quire_block *blocks,
                                      uint32_t num_blocks);

/* Takes the keys from cached blocks, from the head of the free queue on (the least
 * recently freed first), until num_blocks have lost theirs or no cached block is left. One REMOVED
 * event each. The blocks are empty then, and keep their places in the queue. *num_evicted, where
 * not NULL, is how many blocks lost their keys. Costs a walk over the queue up to the last of them.
 */
QUIRE_API int quire_pool_evict_cached(quire_pool *pool, uint32_t num_blocks, uint32_t *num_evicted);

/* Takes the keys from all blocks, for instance after the model's weights changed. The free queue
 * keeps its order. QUIRE_BUSY while any block is in use. Costs a pass over the pool. */
QUIRE_API int quire_pool_reset_prefix_cache(quire_pool *pool);

/* ---- looking ------------------------------------------------------------ */

/* The three numbers, and the null block: empty + cached + active + null_blocks == total. */
typedef struct quire_usage {
    uint64_t total;
    uint64_t empty;       /* no user, no content worth keeping */
    uint64_t cached;      /* no user, content that a prefix hit can use; evicted when needed */
    uint64_t active;      /* in use */
    uint64_t null_blocks; /* 1 */
} quire_usage;

/* Any thread. All zero for a NULL pool. */
QUIRE_API quire_usage quire_pool_usage(const quire_pool *pool);
/* empty + cached. Any thread. */
QUIRE_API uint32_t quire_pool_get_num_free_blocks(const quire_pool *pool);
/* 1 - free / (num_blocks - 1), as vLLM computes it; 0 for a pool of the null block alone. Any
 * thread. */
QUIRE_API double quire_pool_get_usage(const quire_pool *pool);

typedef struct quire_block_info {
    uint32_t ref_cnt;
    uint32_t group_id; /* of its key */
    quire_bytes hash;  /* absent when it has no key; valid until the next change */
    char state;        /* 'N', 'A', 'C' or 'E' */
} quire_block_info;

QUIRE_API int quire_pool_block_info(const quire_pool *pool, quire_block block,
                                    quire_block_info *info);

/* The keys of many blocks. QUIRE_E_UNKNOWN_BLOCK. */
typedef struct quire_block_key {
    const void *hash; /* NULL: the block has no key; valid until the next change */
    uint32_t hash_len;
    uint32_t group_id;
} quire_block_key;

QUIRE_API int quire_pool_get_keys(const quire_pool *pool, const quire_block *blocks,
                                  uint32_t num_blocks, quire_block_key *keys);

/* How many of the first blocks there are that nobody holds. */
QUIRE_API uint32_t quire_pool_count_unheld(const quire_pool *pool, const quire_block *blocks,
                                           uint32_t num_blocks);

/* The free queue from head to tail, as far as capacity goes; returns how many are in it. */
QUIRE_API uint32_t quire_pool_get_all_free_blocks(const quire_pool *pool, quire_block *blocks,
                                                  uint32_t capacity);

/* The block behind one of the free queue, and with QUIRE_NULL_BLOCK its head; QUIRE_NULL_BLOCK when
 * there is none, and for a block that is not in the queue. */
QUIRE_API quire_block quire_pool_next_free(const quire_pool *pool, quire_block block);

/* How many blocks were taken from the free queue, since the start. */
QUIRE_API uint64_t quire_pool_get_num_allocated(const quire_pool *pool);

/* How many different keys can be found. */
QUIRE_API uint32_t quire_pool_num_keys(const quire_pool *pool);

/* One letter for each of num_blocks blocks from first on, and a NUL: "NAAACCEECE". out takes
 * num_blocks + 1. */
QUIRE_API int quire_pool_draw(const quire_pool *pool, quire_block first, uint32_t num_blocks,
                              char *out);

/* Walks the whole pool and checks every invariant: QUIRE_OK or QUIRE_E_CORRUPT. Costs a pass over
 * the pool; meant for tests and for sampling in production. */
QUIRE_API int quire_pool_check(const quire_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
