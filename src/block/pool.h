/* block/pool.h - the pool: free queue and prefix cache over one array of block records.
 *
 * The public contracts are in quire/pool.h. The functions here expect a valid pool and arrays that
 * are there; they check everything about the blocks themselves, and leave no change behind when one
 * is wrong.
 *
 *      num_free (queue) = empty + cached;   num_cached = blocks in the queue that have a key
 */
#ifndef QR_BLOCK_POOL_H
#define QR_BLOCK_POOL_H

#include "base/memory.h"
#include "block/map.h"
#include "block/queue.h"
#include "obs/residency.h"

#include <quire/pool.h>

#include <stdatomic.h>

enum { QR_POOL_SCOUTS = QR_QUEUE_AHEAD / 2 };

struct quire_pool {
    uint32_t magic;
    bool enable_caching;
    uint32_t num_cached;
    uint64_t num_held;     /* of all users, those who are no requests */
    uint32_t num_reserved; /* taken for good; they do not stand in the way of a reset */
    qr_queue queue;
    qr_map map;                       /* not carved when caching is off */
    uint32_t scouted[QR_POOL_SCOUTS]; /* ring of blocks to be taken soon, see pool.c */
    uint32_t num_taken;
    uint64_t num_allocated; /* since the start */
    uint64_t num_evicted;
    qr_residency *residency; /* NULL: no block's life is followed */
    _Atomic uint64_t counts; /* num_free << 32 | num_cached, as other threads see them */
    void (*on_event)(void *user, const quire_event *event);
    void *event_user;
    qr_owner owner;
};

#define QR_POOL_MAGIC UINT32_C(0x51504f4c) /* "QPOL" */

/* The config with its defaults filled in, or an error. */
int qr_pool_config_read(quire_pool_config *config, const quire_pool_config *callers);
/* Plans or carves, see base/arena.h; returns the pool, NULL while planning. */
quire_pool *qr_pool_carve(qr_arena *arena, const quire_pool_config *config);
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
int qr_pool_cache_full_blocks(quire_pool *pool, const quire_cache_full_params *p);
/* As cache_full_blocks, for blocks that the library itself holds, none of which has a key. Cannot
 * fail. */
void qr_pool_cache_row(quire_pool *pool, const quire_cache_full_params *p);
int qr_pool_evict_blocks(quire_pool *pool, const uint32_t *blocks, uint32_t n);
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
enum { QR_FREE_AHEAD = 16 };

/* A user less; is_hold: one who is no request. num_held is the caller's to change. */
static inline int qr_pool_leave(quire_pool *pool, qr_queue_joining *joining, uint32_t block,
                                bool is_hold, uint32_t *num_cached)
{
    if (QR_UNLIKELY(block - 1 >= joining->sentinel - 1)) /* no block, or the null block */
        return qr_pool_why_unusable(block);
    qr_block *b = &joining->blocks[block];
    if (QR_UNLIKELY(is_hold ? b->held == 0 : b->ref_cnt == b->held))
        return QUIRE_E_DOUBLE_FREE;
    if (is_hold)
        b->held--;
    if (--b->ref_cnt > 0)
        return QUIRE_OK;
    qr_queue_join(&pool->queue, joining, block);
    *num_cached += qr_block_has_key(b);
    return QUIRE_OK;
}

/* Takes that back, the last one first. */
static inline void qr_pool_unleave(quire_pool *pool, qr_queue_joining *joining, uint32_t block,
                                   bool is_hold)
{
    qr_block *b = &joining->blocks[block];
    b->held += is_hold;
    if (b->ref_cnt++ == 0)
        qr_queue_unjoin(&pool->queue, joining, block);
}

/* In block/same.c: two pools. Blocks of `other` exist. */
void qr_pool_share_tags(quire_pool *pool, const quire_pool *other);
void qr_pool_find_same(const quire_pool *pool, const quire_pool *other, const uint32_t *others,
                       uint32_t n, uint32_t *out);
int qr_pool_cache_same(quire_pool *pool, const uint32_t *blocks, const quire_pool *other,
                       const uint32_t *others, uint32_t n);
quire_same qr_pool_take_same(quire_pool *pool, quire_pool *other, const uint32_t *others,
                             uint32_t n, uint32_t *from, uint32_t *to);
int qr_pool_leave_same(quire_pool *pool, quire_pool *other, const uint32_t *from,
                       const uint32_t *to, uint32_t n);

/* In block/pool_check.c. */
char qr_pool_state_of(const quire_pool *pool, uint32_t block);
bool qr_pool_is_valid(const quire_pool *pool);

#endif
