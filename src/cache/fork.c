/* cache/fork.c - requests that share their blocks until one of them writes.
 *
 *      parent  [ 7 ][ 3 ][ 9 ]      fork: the child lists the same blocks, one more user each
 *      child   [ 7 ][ 3 ][ 9 ]
 *
 *      child   [ 7 ][ 3 ][ 4 ]      before it writes into block 9: a block of its own, and a copy
 *                                   9 -> 4 for the engine to make before the next forward pass
 *
 * Until the copies are taken, 9 and 4 have one user more, the pending copy: neither can be given to
 * somebody else. A source is never the target of another pending copy: a copy of 4 made in the same
 * step has 9 as its source, which holds the same content. The parent, left alone with 9, writes
 * into it: the copy was made before.
 */
#include "cache/cache.h"

int qr_cache_fork(quire_cache *cache, uint32_t parent_row, quire_seq *child)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        if (group->spec.mamba_mode == QUIRE_MAMBA_MODE_ALIGN ||
            group->spec.num_speculative_blocks > 0)
            return QUIRE_E_ARGUMENT;
    }
    if (!qr_cache_has_row(cache))
        return QUIRE_FULL;
    uint32_t row = qr_cache_open_row(cache, child);
    qr_block *records = cache->pool->queue.blocks;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_group *group = &cache->groups[g];
        uint32_t n = group->rows[parent_row].num_blocks;
        const uint32_t *from = qr_group_row_blocks(group, parent_row);
        uint32_t *to = qr_group_row_blocks(group, row);
        group->rows[row] = group->rows[parent_row];
        for (uint32_t i = 0; i < n; i++) {
            to[i] = from[i];
            records[to[i]].ref_cnt += to[i] != QUIRE_NULL_BLOCK; /* in use, so not in the queue */
        }
    }
    qr_assert_expensive(qr_cache_is_valid(cache));
    return QUIRE_OK;
}

/* Blocks [*begin, *end) of the row that tokens [first, last) are written to. */
static void written_range(const qr_group *group, uint32_t row, uint32_t first, uint32_t last,
                          uint32_t *begin, uint32_t *end)
{
    *begin = first / group->block_size;
    *end = qr_ceil_div(last, group->block_size);
    if (*end > group->rows[row].num_blocks)
        *end = group->rows[row].num_blocks;
    if (group->ops->find == NULL) /* cross attention: written once, by the encoder */
        *end = *begin;
}

/* Pending copies run before anything is written: they are no reason for another copy. */
static uint32_t pending_uses(const quire_cache *cache, uint32_t block)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < cache->num_copies; i++)
        count += cache->copies[i].from == block || cache->copies[i].to == block;
    return count;
}

static bool needs_copy(const quire_cache *cache, uint32_t block)
{
    const qr_block *b = &cache->pool->queue.blocks[block];
    if (block == QUIRE_NULL_BLOCK)
        return false;
    uint32_t users = b->ref_cnt + qr_pool_count_holds(cache->pool, block);
    return qr_block_has_key(b) || (users > 1 && users - pending_uses(cache, block) > 1);
}

uint32_t qr_cache_count_shared(const quire_cache *cache, uint32_t row, uint32_t first,
                               uint32_t last)
{
    uint32_t count = 0;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint32_t begin;
        uint32_t end;
        written_range(&cache->groups[g], row, first, last, &begin, &end);
        const uint32_t *blocks = qr_group_row_blocks(&cache->groups[g], row);
        for (uint32_t i = begin; i < end; i++)
            count += needs_copy(cache, blocks[i]);
    }
    return count;
}

/* The pending copy that fills a block, or NULL. */
static const quire_block_copy *copy_into(const quire_cache *cache, uint32_t block)
{
    for (uint32_t i = cache->num_copies; i-- > 0;)
        if (cache->copies[i].to == block)
            return &cache->copies[i];
    return NULL;
}

static void copy_block(quire_cache *cache, uint32_t group, uint32_t *place)
{
    qr_block *records = cache->pool->queue.blocks;
    uint32_t old = *place;
    uint32_t fresh;
    int err = qr_pool_get_new_blocks(cache->pool, 1, &fresh);
    qr_assert(err == QUIRE_OK && cache->num_copies < cache->max_copies);
    const quire_block_copy *earlier = copy_into(cache, old);
    uint32_t from = old;
    if (earlier != NULL) { /* the row's use of the old block ends, the source gets one more */
        from = earlier->from;
        records[from].ref_cnt++;
        qr_pool_free_row(cache->pool, &old, 1);
    } /* else the row's use of it becomes the pending copy's */
    records[fresh].ref_cnt++;
    cache->copies[cache->num_copies++] = (quire_block_copy){from, fresh, group};
    *place = fresh;
}

void qr_cache_copy_shared(quire_cache *cache, uint32_t row, uint32_t first, uint32_t last)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint32_t begin;
        uint32_t end;
        written_range(&cache->groups[g], row, first, last, &begin, &end);
        uint32_t *blocks = qr_group_row_blocks(&cache->groups[g], row);
        for (uint32_t i = begin; i < end; i++)
            if (needs_copy(cache, blocks[i]))
                copy_block(cache, g, &blocks[i]);
    }
}

uint32_t qr_cache_take_copies(quire_cache *cache)
{
    uint32_t n = cache->num_copies;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t both[2] = {cache->copies[i].to, cache->copies[i].from};
        qr_pool_free_row(cache->pool, both, 2);
    }
    cache->num_copies = 0;
    qr_assert_expensive(qr_cache_is_valid(cache));
    return n;
}
