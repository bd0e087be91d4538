/* base/inner.h - calls of the cache that the library makes itself, for tests that make them. */
#ifndef BASE_INNER_H
#define BASE_INNER_H

#include "cache/cache.h"

/* Blocks outside of the window are given back. */
static inline int inner_remove_skipped(quire_cache *cache, quire_seq seq, uint32_t computed)
{
    uint32_t row = qr_cache_row_of(cache, seq);
    if (row == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    if (computed > cache->max_model_len)
        return QUIRE_E_RANGE;
    qr_cache_remove_skipped(cache, row, computed);
    return QUIRE_OK;
}

/* Blocks lose their keys; null blocks have none. */
static inline int inner_evict(quire_cache *cache, const quire_block *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (blocks[i] >= cache->pool->queue.num_blocks)
            return QUIRE_E_UNKNOWN_BLOCK;
    qr_cache_evict(cache, blocks, n);
    return QUIRE_OK;
}

/* The blocks that all requests share in a SINK_FULL group. */
static inline quire_block_span inner_sinks(const quire_cache *cache, uint32_t group)
{
    return (quire_block_span){cache->groups[group].sinks, cache->groups[group].num_sinks};
}

/* The i-th extra key of a block; false: it has fewer. */
static inline bool inner_extra_key(const quire_pool *pool, quire_block block, uint32_t i,
                                   quire_bytes *key)
{
    const qr_extras *extras = &pool->extras;
    uint32_t extra = extras->heads == NULL ? 0 : extras->heads[block].first;
    while (extra != 0 && i-- > 0)
        extra = qr_extras_next(extras, extra);
    if (extra == 0)
        return false;
    qr_key found = qr_map_key_of(&pool->map, extra);
    *key = (quire_bytes){found.hash, found.len};
    return true;
}

/* Blocks get the keys of another pool's blocks, where those have one. */
static inline int inner_cache_same(quire_pool *pool, const quire_block *blocks,
                                   const quire_pool *other, const quire_block *others, uint32_t n)
{
    int err = QUIRE_OK;
    for (uint32_t i = 0; err == QUIRE_OK && i < n; i++) {
        quire_block_info info;
        err = quire_pool_get_block(other, others[i], &info);
        if (err != QUIRE_OK || info.hash.data == NULL)
            continue;
        quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                          .blocks = &blocks[i],
                                          .num_full_blocks = 1,
                                          .hashes = info.hash.data,
                                          .hash_len = info.hash.len,
                                          .num_hashes = 1,
                                          .group_id = info.group_id};
        err = quire_pool_cache_full_blocks(pool, &params);
    }
    return err;
}

#endif
