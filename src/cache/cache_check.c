/* cache/cache_check.c - the walker: does everything that cache.h and group.h say still hold? */
#include "cache/cache.h"

/* Rows in use and free_rows together name every row once. */
static bool rows_are_valid(const quire_cache *cache)
{
    qr_tally all = {0};
    qr_tally named = {0};
    uint32_t in_use = 0;
    for (uint32_t row = 0; row < cache->max_requests; row++) {
        qr_tally_add(&all, row, 1);
        qr_tally_add(&named, row, qr_cache_row_in_use(cache, row));
        in_use += qr_cache_row_in_use(cache, row);
    }
    if (in_use != cache->num_seqs)
        return false;
    for (uint32_t i = 0; i < cache->max_requests - cache->num_seqs; i++)
        qr_tally_add(&named, cache->free_rows[i], 1);
    return qr_tally_is_same(all, named);
}

/* The checkpoint's tokens end before those of the chunk, whose last block is the next but one. */
static bool checkpoint_is_valid(const qr_group *group, qr_part part)
{
    if (part.checkpoint == QR_NIL)
        return part.checkpoint_end == 0;
    return part.checkpoint_end > 0 && part.checkpoint_end % group->hash_size == 0 &&
           part.checkpoint_end < ((uint64_t)part.checkpoint + 2) * group->block_size;
}

/* Adds what the row uses to *users. */
static bool row_is_valid(const qr_group *group, uint32_t row, bool in_use, qr_tally *users)
{
    const qr_row *r = &group->rows[row];
    qr_part part = qr_group_part(group, row);
    if (!in_use)
        return r->num_blocks == 0 && r->num_cached == 0 && r->last_state == QR_NIL &&
               part.partial == QR_NIL && part.keyed == QR_NIL && checkpoint_is_valid(group, part) &&
               part.checkpoint == QR_NIL && r->num_retired == 0 && !r->is_settled && !r->has_state;
    if (r->num_blocks > group->max_row || r->num_cached > r->num_blocks)
        return false;
    if (r->last_state != QR_NIL && r->last_state >= r->num_blocks)
        return false;
    if (part.partial != QR_NIL && part.partial >= r->num_blocks)
        return false;
    if (!checkpoint_is_valid(group, part))
        return false;
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    for (uint32_t i = 0; i < r->num_blocks; i++) {
        if (blocks[i] >= group->pool->queue.num_blocks)
            return false;
        if (blocks[i] == QUIRE_NULL_BLOCK)
            continue;
        const qr_block *b = &group->pool->queue.blocks[blocks[i]];
        bool key_ok = !qr_block_has_key(b) || b->group_id == group->id;
        if (b->ref_cnt == 0 || !key_ok)
            return false;
        qr_tally_add(users, blocks[i], 1);
    }
    return true;
}

static bool copies_are_valid(const quire_cache *cache, qr_tally *users)
{
    const qr_block *records = cache->pool->queue.blocks;
    if (cache->num_copies > cache->copy_room || cache->num_told > cache->num_copies)
        return false;
    for (uint32_t i = 0; i < cache->num_copies; i++) {
        quire_block_copy copy = cache->copies[i];
        uint32_t num_blocks = cache->pool->queue.num_blocks;
        if (copy.group >= cache->num_groups || copy.from >= num_blocks || copy.to >= num_blocks ||
            records[copy.from].ref_cnt == 0 || records[copy.to].ref_cnt == 0)
            return false;
        for (uint32_t j = 0; j < cache->num_copies; j++)
            if ((copy.from == cache->copies[j].to && !cache->copies_parts) ||
                (i != j && copy.to == cache->copies[j].to))
                return false;
        qr_tally_add(users, copy.from, 1);
        qr_tally_add(users, copy.to, 1);
    }
    return true;
}

bool qr_cache_is_valid(const quire_cache *cache)
{
    if (!qr_pool_is_valid(cache->pool) || !rows_are_valid(cache) || !qr_host_is_valid(cache))
        return false;
    qr_tally users = {0};
    qr_tally references = {0};
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        for (uint32_t row = 0; row < cache->max_requests; row++)
            if (!row_is_valid(group, row, qr_cache_row_in_use(cache, row), &users))
                return false;
        for (uint32_t i = 0; i < group->num_sinks; i++)
            qr_tally_add(&users, group->sinks[i], 1);
    }
    if (!copies_are_valid(cache, &users))
        return false;
    for (uint32_t block = 1; block < cache->pool->queue.num_blocks; block++)
        qr_tally_add(&references, block, cache->pool->queue.blocks[block].ref_cnt);
    /* More references than users: somebody touches blocks through the pool. */
    return users.count < references.count || qr_tally_is_same(users, references);
}
