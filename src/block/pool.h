/* block/pool.h - the pool: free queue and prefix cache over one array of block records.
 *
 * The public contracts are in quire/pool.h. The functions here expect a valid pool and arrays that
 * are there; they check everything about the blocks themselves, and leave no change behind when one
 * is wrong.
 *
 *      num_free (queue) = empty + cached;   num_cached = blocks in the queue that have a key
 *
 * Users of a block are requests, in its record, and holds: somebody copies it, or keeps it. Copies
 * come and go while requests have the block: their holds are bytes in a row of their own, so that
 * records, which lie anywhere, are not touched.
 *
 *      holds[block]   | alone | count, 7 bits |      alone: no request uses it, only holds do
 *
 *      in the queue  <=>  ref_cnt = 0 and holds = 0;   sum of counts = num_held
 */
#ifndef QR_BLOCK_POOL_H
#define QR_BLOCK_POOL_H

#include "base/memory.h"
#include "block/extra.h"
#include "block/queue.h"
#include "obs/residency.h"

#include <quire/pool.h>

#include <stdatomic.h>

enum { QR_POOL_SCOUTS = QR_QUEUE_AHEAD / 2 };

struct quire_pool {
    uint32_t magic;
    bool enable_caching;
    bool is_fresh; /* when it was made, its memory was all zero */
    uint32_t num_cached;
    uint64_t num_held;     /* of all users, those who are no requests */
    uint8_t *holds;        /* of each block */
    uint32_t num_reserved; /* taken for good; they do not stand in the way of a reset */
    qr_queue queue;
    qr_map map;                       /* not carved when caching is off */
    uint32_t scouted[QR_POOL_SCOUTS]; /* ring of blocks to be taken soon, see pool.c */
    uint32_t num_taken;
    uint64_t num_allocated; /* since the start */
    uint64_t num_evicted;
    qr_residency *residency; /* NULL: no block's life is followed */
    _Atomic uint64_t counts; /* num_free << 32 | num_cached, as other threads see them */
    /* Called when a caller asks for n blocks and fewer are not kept back, though n are free: must
     * unwant blocks until n are not kept back. NULL where no block is wanted. */
    void (*release_kept)(void *keeper, uint32_t n);
    void *keeper;
    void (*on_event)(void *user, const quire_event *event);
    void *event_user;
    void (*on_move)(void *user, uint32_t from, uint32_t to); /* of qr_pool_move_keys; NULL: none */
    void *move_user;
    qr_extras extras; /* keys of blocks that have several */
    qr_owner owner;
};

#define QR_POOL_MAGIC UINT32_C(0x51504f4c) /* "QPOL" */

/* The config with its defaults filled in, or an error. */
int qr_pool_config_read(quire_pool_config *config, const quire_pool_config *callers);
/* Plans or carves, see base/arena.h; returns the pool, NULL while planning. */
quire_pool *qr_pool_carve(qr_arena *arena, const quire_pool_config *config, uint32_t num_extras);
/* QUIRE_OK or QUIRE_E_RANDOM. */
int qr_pool_init(quire_pool *pool, const quire_pool_config *config);

/* QUIRE_OK or QUIRE_E_RANGE: what a hash's length must be in this pool. */
int qr_pool_check_hash_len(const quire_pool *pool, size_t len);

int qr_pool_get_new_blocks(quire_pool *pool, uint32_t n, uint32_t *out);
int qr_pool_touch(quire_pool *pool, const uint32_t *blocks, uint32_t n);
int qr_pool_free_blocks(quire_pool *pool, const uint32_t *blocks, uint32_t n);
int qr_pool_hold(quire_pool *pool, const uint32_t *blocks, uint32_t n);
int qr_pool_let_go(quire_pool *pool, const uint32_t *blocks, uint32_t n, bool to_head);
/* As free_blocks, for blocks that the library itself holds: from the last to the first, null blocks
 * passed over. Cannot fail. */
void qr_pool_free_row(quire_pool *pool, const uint32_t *blocks, uint32_t n);
/* The same for several rows, which then are as one. */
typedef struct qr_pool_freeing {
    qr_queue_joining joining;
    uint32_t num_cached;
} qr_pool_freeing;
qr_pool_freeing qr_pool_free_begin(const quire_pool *pool);
void qr_pool_free_part(quire_pool *pool, qr_pool_freeing *freeing, const uint32_t *blocks,
                       uint32_t n);
void qr_pool_free_end(quire_pool *pool, const qr_pool_freeing *freeing);
int qr_pool_cache_full_blocks(quire_pool *pool, const quire_cache_full_params *p);
/* As cache_full_blocks, for blocks that the library itself holds, none of which has a key. Cannot
 * fail. */
void qr_pool_cache_row(quire_pool *pool, const quire_cache_full_params *p);
/* A key for the first num_tokens tokens of a request, which end inside one of its blocks. */
typedef struct qr_partial_key {
    uint32_t block; /* a request uses it */
    qr_key key;
    quire_bytes parent; /* hash before it, if there is one */
    uint32_t num_tokens;
    uint32_t hash_block_size;
    bool is_whole; /* they end where a block does: the key is that of a full block */
    bool replaces; /* all keys that the block has are forgotten */
    void *request;
} qr_partial_key;

/* One more key for the block, unless it has it; where its own key is one for fewer tokens, all of
 * its keys are forgotten before. A pool without extra keys gives whole ones alone. */
void qr_pool_cache_partial(quire_pool *pool, const qr_partial_key *p);
/* All keys of a block go to another that has none, both in use. It is no event: what the keys name
 * is in the cache as before. The pool has extra keys. */
void qr_pool_move_keys(quire_pool *pool, uint32_t from, uint32_t to);
/* Whether the block's own key is a partial one. */
static inline bool qr_pool_is_partial(const quire_pool *pool, uint32_t block)
{
    return pool->extras.heads[block].num_tokens > 0;
}
/* Takes the keys from a block that is in use and has some: it gets the key of a longer text. */
void qr_pool_forget_keys(quire_pool *pool, uint32_t block);
int qr_pool_evict_blocks(quire_pool *pool, const uint32_t *blocks, uint32_t n);
/* Of n cached blocks at most, from the head of the queue on; returns how many. */
uint32_t qr_pool_evict_cached(quire_pool *pool, uint32_t n);
int qr_pool_reset_prefix_cache(quire_pool *pool);

/* Parts of the above: every block that is to get a key exists, has none and is listed once; and the
 * event. */
int qr_pool_check_uncached(quire_pool *pool, const quire_cache_full_params *p);
void qr_pool_tell_stored(const quire_pool *pool, const quire_cache_full_params *p);

static inline void qr_pool_publish(quire_pool *pool)
{
    uint64_t counts = (uint64_t)pool->queue.num_free << 32 | pool->num_cached;
    atomic_store_explicit(&pool->counts, counts, memory_order_relaxed);
}

/* May be called in any thread. */
static inline quire_usage qr_pool_usage(const quire_pool *pool)
{
    uint64_t counts = atomic_load_explicit(&pool->counts, memory_order_relaxed);
    uint64_t num_free = counts >> 32;
    uint64_t num_cached = counts & UINT32_MAX;
    return (quire_usage){.total = pool->queue.num_blocks,
                         .empty = num_free - num_cached,
                         .cached = num_cached,
                         .active = pool->queue.num_blocks - 1 - num_free,
                         .null_blocks = 1};
}

/* The share of blocks that are in use. */
static inline double qr_pool_level(const quire_pool *pool)
{
    quire_usage usage = qr_pool_usage(pool);
    if (usage.total <= 1)
        return 0.0;
    return 1.0 - (double)(usage.empty + usage.cached) / (double)(usage.total - 1);
}

/* The queue fetches the record of a block that will be taken QR_QUEUE_AHEAD blocks later. Halfway
 * there the record has arrived, and says where in the index the block's key is: fetch that too. */
static inline void qr_pool_scout(quire_pool *pool, uint32_t taken)
{
    uint32_t place = pool->num_taken++ % QR_POOL_SCOUTS;
    qr_map_prefetch_remove(&pool->map, pool->scouted[place]);
    pool->scouted[place] = pool->queue.blocks[taken].ahead;
}

static inline int qr_pool_why_unusable(uint32_t block)
{
    return block == QUIRE_NULL_BLOCK ? QUIRE_E_NULL_BLOCK : QUIRE_E_UNKNOWN_BLOCK;
}

/* Records of blocks lie anywhere: asked for so many blocks before they are freed. */
enum { QR_FREE_AHEAD = QR_AT_A_TIME(16, 1) };

enum { QR_HOLDS_ALONE = 0x80, QR_HOLDS_COUNT = 0x7f, QR_HOLDS_MOST = 63 };

static inline uint32_t qr_pool_count_holds(const quire_pool *pool, uint32_t block)
{
    return pool->holds[block] & QR_HOLDS_COUNT;
}

/* Whether nobody but one request uses it. */
static inline bool qr_pool_is_one_user(const quire_pool *pool, uint32_t block)
{
    return pool->queue.blocks[block].ref_cnt == 1 && pool->holds[block] == 0;
}

/* A request is the first that uses a block; the block is in the queue, or held. */
static inline void qr_pool_begin_use(quire_pool *pool, uint32_t block)
{
    if (QR_UNLIKELY(pool->num_held > 0) && pool->holds[block] != 0) {
        pool->holds[block] &= QR_HOLDS_COUNT;
        return;
    }
    qr_queue_remove(&pool->queue, block);
    pool->num_cached -= qr_block_has_key(&pool->queue.blocks[block]);
}

/* No request uses it any more. */
static inline void qr_pool_end_use(quire_pool *pool, qr_queue_joining *joining, uint32_t block,
                                   uint32_t *num_cached)
{
    if (QR_UNLIKELY(pool->num_held > 0) && pool->holds[block] != 0) {
        pool->holds[block] |= QR_HOLDS_ALONE;
        return;
    }
    qr_queue_join(&pool->queue, joining, block);
    *num_cached += qr_block_has_key(&joining->blocks[block]);
}

/* Neither unknown nor the null block. */
static inline bool qr_pool_can_leave(const qr_queue_joining *joining, uint32_t block)
{
    return QR_LIKELY(block - 1 < joining->sentinel - 1);
}

/* A request less. */
static inline int qr_pool_leave(quire_pool *pool, qr_queue_joining *joining, uint32_t block,
                                uint32_t *num_cached)
{
    if (!qr_pool_can_leave(joining, block))
        return qr_pool_why_unusable(block);
    qr_block *b = &joining->blocks[block];
    if (QR_UNLIKELY(b->ref_cnt == 0))
        return QUIRE_E_DOUBLE_FREE;
    if (--b->ref_cnt == 0)
        qr_pool_end_use(pool, joining, block, num_cached);
    return QUIRE_OK;
}

/* Takes that back, the last one first. */
static inline void qr_pool_unleave(quire_pool *pool, qr_queue_joining *joining, uint32_t block)
{
    if (joining->blocks[block].ref_cnt++ > 0)
        return;
    if (pool->holds[block] != 0)
        pool->holds[block] &= QR_HOLDS_COUNT;
    else
        qr_queue_unjoin(&pool->queue, joining, block);
}

/* A hold less; num_held is the caller's to change. */
static inline int qr_pool_leave_hold(quire_pool *pool, qr_queue_joining *joining, uint32_t block,
                                     uint32_t *num_cached)
{
    if (!qr_pool_can_leave(joining, block))
        return qr_pool_why_unusable(block);
    uint8_t holds = pool->holds[block];
    if (QR_UNLIKELY((holds & QR_HOLDS_COUNT) == 0))
        return QUIRE_E_DOUBLE_FREE;
    pool->holds[block] = --holds;
    if (QR_LIKELY(holds != QR_HOLDS_ALONE))
        return QUIRE_OK;
    pool->holds[block] = 0;
    qr_queue_join(&pool->queue, joining, block);
    *num_cached += qr_block_has_key(&joining->blocks[block]);
    return QUIRE_OK;
}

/* Takes that back, the last one first. */
static inline void qr_pool_unleave_hold(quire_pool *pool, qr_queue_joining *joining, uint32_t block)
{
    if (pool->holds[block]++ > 0 || joining->blocks[block].ref_cnt > 0)
        return;
    pool->holds[block] |= QR_HOLDS_ALONE;
    qr_queue_unjoin(&pool->queue, joining, block);
}

/* In block/same.c: two pools. Blocks of `other` exist. */
void qr_pool_share_tags(quire_pool *pool, const quire_pool *other);
void qr_pool_find_same(const quire_pool *pool, const quire_pool *other, const uint32_t *others,
                       uint32_t n, uint32_t *out);
quire_same qr_pool_take_same(quire_pool *pool, quire_pool *other, const uint32_t *others,
                             uint32_t n, uint32_t *from, uint32_t *to);
int qr_pool_leave_same(quire_pool *pool, quire_pool *other, const uint32_t *from,
                       const uint32_t *to, uint32_t n);

/* In block/pool_check.c. */
char qr_pool_state_of(const quire_pool *pool, uint32_t block);
bool qr_pool_is_valid(const quire_pool *pool);

#endif
