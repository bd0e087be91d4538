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
 * into it: the copy was made before. A request that is freed takes the copies with it that only it
 * wanted: 4 and 9 are free then, as far as nobody else has them.
 */
#include "cache/parts.h"

/* Blocks of the parent's row that hold its first num_tokens tokens. Those of cross attention hold
 * the encoder's. */
static uint32_t num_forked(const qr_group *group, const qr_row *parent, uint32_t num_tokens)
{
    uint32_t n = num_tokens / group->block_size + (num_tokens % group->block_size != 0);
    return group->ops->find == NULL || n > parent->num_blocks ? parent->num_blocks : n;
}

static bool has_forkable_groups(const quire_cache *cache)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        if (group->spec.mamba_mode == QUIRE_MAMBA_MODE_ALIGN ||
            group->spec.num_speculative_blocks > 0 || group->ops == &qr_ring_ops)
            return false;
    }
    return true;
}

bool qr_cache_can_fork(const quire_cache *cache)
{
    return cache->max_copies > 0 && has_forkable_groups(cache) && qr_cache_has_row(cache);
}

int qr_cache_fork(quire_cache *cache, uint32_t parent_row, uint32_t num_tokens, quire_seq *child)
{
    if (!has_forkable_groups(cache))
        return QUIRE_E_ARGUMENT;
    if (!qr_cache_has_row(cache))
        return QUIRE_FULL;
    uint32_t row = qr_cache_open_row(cache, child);
    qr_block *records = cache->pool->queue.blocks;
    if (cache->prompts != NULL)
        cache->prompts[row] = cache->prompts[parent_row];
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_group *group = &cache->groups[g];
        uint32_t n = num_forked(group, &group->rows[parent_row], num_tokens);
        const uint32_t *from = qr_group_row_blocks(group, parent_row);
        uint32_t *to = qr_group_row_blocks(group, row);
        group->rows[row] = group->rows[parent_row];
        group->rows[row].num_blocks = n;
        if (group->rows[row].num_cached > n)
            group->rows[row].num_cached = n;
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

uint32_t qr_cache_content_of(const quire_cache *cache, uint32_t block)
{
    const quire_block_copy *copy = copy_into(cache, block);
    return copy == NULL ? block : copy->from;
}

static void copy_block(quire_cache *cache, uint32_t group, qr_copy_place place)
{
    qr_block *records = cache->pool->queue.blocks;
    uint32_t *listed = qr_group_row_blocks(&cache->groups[group], place.row) + place.index;
    uint32_t old = *listed;
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
    cache->copy_places[cache->num_copies] = place;
    cache->copies[cache->num_copies++] = (quire_block_copy){from, fresh, group};
    *listed = fresh;
}

void qr_cache_copy_shared(quire_cache *cache, uint32_t row, uint32_t first, uint32_t last)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint32_t begin;
        uint32_t end;
        written_range(&cache->groups[g], row, first, last, &begin, &end);
        const uint32_t *blocks = qr_group_row_blocks(&cache->groups[g], row);
        for (uint32_t i = begin; i < end; i++)
            if (needs_copy(cache, blocks[i]))
                copy_block(cache, g, (qr_copy_place){row, i});
    }
}

/* Whether any but the pending copy itself has the block, or may find it. */
static bool is_wanted(const quire_cache *cache, uint32_t block)
{
    const qr_block *b = &cache->pool->queue.blocks[block];
    return b->ref_cnt > 1 || qr_block_has_key(b) || qr_pool_count_holds(cache->pool, block) > 0;
}

void qr_cache_drop_copies(quire_cache *cache)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cache->num_copies; i++) {
        quire_block_copy copy = cache->copies[i];
        if (!is_wanted(cache, copy.to)) {
            uint32_t both[2] = {copy.to, copy.from};
            qr_pool_free_row(cache->pool, both, 2);
            continue;
        }
        cache->copy_places[kept] = cache->copy_places[i];
        cache->copies[kept++] = copy;
    }
    cache->num_copies = kept;
}

/* In a cache of parts.c the list keeps its place until a copy is added. */
static uint32_t take_parts(quire_cache *cache)
{
    if (cache->num_told > 0) /* a scheduler takes them */
        return 0;
    uint32_t n = qr_cache_tell_copies(cache);
    qr_cache_end_copies(cache, n);
    return n;
}

uint32_t qr_cache_take_copies(quire_cache *cache)
{
    if (cache->copies_parts)
        return take_parts(cache);
    uint32_t n = cache->num_copies;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t both[2] = {cache->copies[i].to, cache->copies[i].from};
        qr_pool_free_row(cache->pool, both, 2);
    }
    cache->num_copies = 0;
    qr_assert_expensive(qr_cache_is_valid(cache));
    return n;
}
