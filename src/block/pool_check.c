/* block/pool_check.c - the walker over a whole pool: every invariant of block.h, queue.h, map.h and
 * pool.h. */
#include "block/pool.h"

char qr_pool_state_of(const quire_pool *pool, uint32_t block)
{
    const qr_block *b = &pool->queue.blocks[block];
    if (block == QUIRE_NULL_BLOCK)
        return 'N';
    if (!qr_queue_contains(&pool->queue, block))
        return 'A';
    return qr_block_has_key(b) ? 'C' : 'E';
}

/* A block is in the queue exactly when nobody uses it; marks are down between calls. */
static bool block_is_valid(const quire_pool *pool, uint32_t block)
{
    const qr_block *b = &pool->queue.blocks[block];
    bool queued = qr_queue_contains(&pool->queue, block);
    if (b->mark)
        return false;
    uint32_t holds = qr_pool_count_holds(pool, block);
    bool is_alone = (pool->holds[block] & QR_HOLDS_ALONE) != 0;
    if (block == QUIRE_NULL_BLOCK)
        return !queued && b->ref_cnt == 0 && pool->holds[block] == 0 && !qr_block_has_key(b);
    return holds <= QR_HOLDS_MOST && is_alone == (holds > 0 && b->ref_cnt == 0) &&
           queued == (holds == 0 && b->ref_cnt == 0);
}

bool qr_pool_is_valid(const quire_pool *pool)
{
    if (pool->magic != QR_POOL_MAGIC || !qr_queue_is_valid(&pool->queue))
        return false;
    for (uint32_t i = 0; i < QR_POOL_SCOUTS; i++)
        if (pool->scouted[i] > pool->queue.num_blocks)
            return false;
    uint32_t queued = 0;
    uint32_t cached = 0;
    uint64_t held = 0;
    for (uint32_t block = 0; block < pool->queue.num_blocks; block++) {
        if (!block_is_valid(pool, block))
            return false;
        char state = qr_pool_state_of(pool, block);
        queued += state == 'C' || state == 'E';
        cached += state == 'C';
        held += qr_pool_count_holds(pool, block);
        if (!pool->enable_caching && qr_block_has_key(&pool->queue.blocks[block]))
            return false;
    }
    uint64_t counts = atomic_load_explicit(&pool->counts, memory_order_relaxed);
    return queued == pool->queue.num_free && cached == pool->num_cached && held == pool->num_held &&
           counts == ((uint64_t)queued << 32 | cached) &&
           (!pool->enable_caching || qr_map_is_valid(&pool->map)) &&
           (pool->extras.heads == NULL || qr_extras_is_valid(&pool->extras, &pool->map));
}
