/* api/cache_look_api.c - quire/cache.h: where blocks and tokens are, what all requests have. */
#include "base/config.h"
#include "cache/cache.h"

static bool is_cache(const quire_cache *cache)
{
    return cache != NULL && cache->magic == QR_CACHE_MAGIC;
}

int quire_cache_find_token(const quire_cache *cache, quire_seq seq, uint32_t group, uint32_t token,
                           quire_token_place *place)
{
    if (!is_cache(cache) || place == NULL)
        return QUIRE_E_ARGUMENT;
    uint32_t row = qr_cache_row_of(cache, seq);
    if (row == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    if (group >= cache->num_groups)
        return QUIRE_E_RANGE;
    const qr_group *g = &cache->groups[group];
    if (g->ops == &qr_mamba_ops)
        return QUIRE_E_ARGUMENT;
    uint32_t index = token / g->block_size;
    if (index >= g->rows[row].num_blocks)
        return QUIRE_E_RANGE;
    uint32_t block = qr_group_row_blocks(g, row)[index];
    if (block == QUIRE_NULL_BLOCK)
        return QUIRE_MISS;
    *place = (quire_token_place){block, index, token % g->block_size};
    return QUIRE_OK;
}

/* Of num_tokens tokens those in the index-th block of a group. */
static uint32_t tokens_in_block(const qr_group *group, uint32_t index, uint32_t num_tokens)
{
    uint64_t first = (uint64_t)index * group->block_size;
    uint64_t rest = num_tokens > first ? num_tokens - first : 0;
    return rest < group->block_size ? (uint32_t)rest : group->block_size;
}

/* The null block is none. */
static uint32_t block_or_none(uint32_t block)
{
    return block == QUIRE_NULL_BLOCK ? UINT32_MAX : block;
}

static void describe_device_block(const quire_cache *cache, const qr_group *group, uint32_t row,
                                  uint32_t index, quire_cache_block *out)
{
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    uint32_t block = blocks[index];
    const qr_block *b = &cache->pool->queue.blocks[block];
    out->block = block_or_none(block);
    out->prev = index > 0 ? block_or_none(blocks[index - 1]) : UINT32_MAX;
    if (block == QUIRE_NULL_BLOCK)
        return;
    out->location = QUIRE_LOCATION_DEVICE;
    out->ref_cnt = b->ref_cnt;
    out->num_holds = qr_pool_count_holds(cache->pool, block);
    out->has_key = qr_block_has_key(b);
}

int quire_cache_get_block(const quire_cache *cache, const quire_cache_request *request,
                          uint32_t group, uint32_t index, quire_cache_block *block)
{
    if (!is_cache(cache) || request == NULL || block == NULL)
        return QUIRE_E_ARGUMENT;
    uint32_t row = qr_cache_row_of(cache, request->seq);
    uint32_t slot = qr_host_slot_of(cache, request->seq);
    if (row == QR_NIL && slot == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    if (group >= cache->num_groups)
        return QUIRE_E_RANGE;
    const qr_group *g = &cache->groups[group];
    uint32_t num_tokens =
        row != QR_NIL ? request->num_computed_tokens : cache->host.slots[slot].num_tokens;
    if (index >= (row != QR_NIL ? g->rows[row].num_blocks : qr_ceil_div(num_tokens, g->block_size)))
        return QUIRE_E_RANGE;
    quire_cache_block out = {.block_size = g->block_size, .prev = UINT32_MAX};
    if (row != QR_NIL) {
        describe_device_block(cache, g, row, index, &out);
    } else {
        out.block = qr_host_find(cache, slot, group, index, &out.prev);
        out.location = out.block != QR_NIL ? QUIRE_LOCATION_HOST : QUIRE_LOCATION_NONE;
        out.ref_cnt = out.block != QR_NIL;
    }
    if (out.location != QUIRE_LOCATION_NONE)
        out.num_tokens = tokens_in_block(g, index, num_tokens);
    *block = out;
    return QUIRE_OK;
}

int quire_cache_get_totals(const quire_cache *cache, quire_cache_totals *totals)
{
    if (!is_cache(cache) || totals == NULL)
        return QUIRE_E_ARGUMENT;
    const qr_host *host = &cache->host;
    quire_cache_totals own = {.num_seqs = cache->num_seqs,
                              .num_moved_out = host->num_seqs,
                              .num_host_blocks = host->num_slots - host->num_free,
                              .num_free_host_blocks = host->num_free,
                              .num_copies = cache->num_copies,
                              .watermark_blocks = cache->watermark_blocks};
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        for (uint32_t row = 0; row < cache->max_requests; row++) {
            const uint32_t *blocks = qr_group_row_blocks(group, row);
            for (uint32_t i = 0; i < group->rows[row].num_blocks; i++)
                own.num_table_blocks += blocks[i] != QUIRE_NULL_BLOCK;
        }
    }
    return qr_struct_out(totals, &own, sizeof own);
}
