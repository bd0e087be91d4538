/* See naive_pool.h. Each function reads as its contract in quire/pool.h does. */
#include "naive_pool.h"

#include <string.h>

/* A copy of the pool and the length of its log, to go back to when an entry of a batch fails. */
typedef struct savepoint {
    naive_pool pool;
    size_t log_len;
    uint32_t log_events;
} savepoint;

static void save(savepoint *point, const naive_pool *pool)
{
    memcpy(&point->pool, pool, naive_pool_size(pool));
    point->log_len = pool->log != NULL ? pool->log->len : 0;
    point->log_events = pool->log != NULL ? pool->log->num_events : 0;
}

static int roll_back(const savepoint *point, naive_pool *pool, int status)
{
    memcpy(pool, &point->pool, naive_pool_size(pool));
    if (pool->log != NULL)
        event_log_truncate(pool->log, point->log_len, point->log_events);
    return status;
}

/* ---- the queue and the keys --------------------------------------------- */

static void queue_remove_at(naive_pool *pool, uint32_t at)
{
    pool->num_free--;
    memmove(pool->queue + at, pool->queue + at + 1, (pool->num_free - at) * sizeof pool->queue[0]);
}

static void queue_remove(naive_pool *pool, quire_block block)
{
    uint32_t at = 0;
    while (pool->queue[at] != block)
        at++;
    queue_remove_at(pool, at);
}

static void queue_insert(naive_pool *pool, uint32_t at, quire_block block)
{
    memmove(pool->queue + at + 1, pool->queue + at, (pool->num_free - at) * sizeof pool->queue[0]);
    pool->queue[at] = block;
    pool->num_free++;
}

static bool same_key(const naive_block *block, const void *hash, size_t len, uint32_t group_id)
{
    return block->hash_len == len && block->group_id == group_id &&
           memcmp(block->hash, hash, len) == 0;
}

/* The block that was cached first under a key, 0 when there is none; *copies says how many. */
static quire_block find(const naive_pool *pool, const void *hash, size_t len, uint32_t group_id,
                        uint32_t *copies)
{
    quire_block first = 0;
    *copies = 0;
    for (quire_block b = 1; b < pool->num_blocks; b++) {
        if (!same_key(&pool->blocks[b], hash, len, group_id))
            continue;
        (*copies)++;
        if (first == 0 || pool->blocks[b].order < pool->blocks[first].order)
            first = b;
    }
    return first;
}

/* Takes the key from a block, if it has one, and tells. */
static void take_key(naive_pool *pool, quire_block block)
{
    naive_block *b = &pool->blocks[block];
    if (b->hash_len == 0)
        return;
    uint32_t copies;
    find(pool, b->hash, b->hash_len, b->group_id, &copies);
    if (pool->log != NULL) {
        quire_event event = {.size = sizeof(quire_event),
                             .kind = QUIRE_EVENT_REMOVED,
                             .group_id = b->group_id,
                             .blocks = &block,
                             .num_blocks = 1,
                             .hashes = b->hash,
                             .hash_bytes = b->hash_len,
                             .still_cached = copies > 1};
        event_log_add(pool->log, &event);
    }
    b->hash_len = 0;
}

static bool hash_len_ok(const naive_pool *pool, size_t len)
{
    return len > 0 && len <= pool->hash_bytes && len % 16 == 0;
}

static int check_id(const naive_pool *pool, quire_block block)
{
    if (block >= pool->num_blocks)
        return QUIRE_E_UNKNOWN_BLOCK;
    return block == QUIRE_NULL_BLOCK ? QUIRE_E_NULL_BLOCK : QUIRE_OK;
}

/* ---- making ------------------------------------------------------------- */

void naive_pool_init(naive_pool *pool, const quire_pool_config *config, event_log *log)
{
    memset(pool, 0, sizeof *pool);
    pool->log = log;
    pool->num_blocks = config->num_blocks;
    pool->hash_bytes = config->hash_bytes != 0 ? config->hash_bytes : 32;
    pool->enable_caching = config->enable_caching != QUIRE_OFF;
    pool->has_two_ends = config->profile != QUIRE_PROFILE_VLLM_0_20;
    for (quire_block b = 1; b < pool->num_blocks; b++)
        pool->queue[pool->num_free++] = b;
}

size_t naive_pool_size(const naive_pool *pool)
{
    return offsetof(naive_pool, blocks) + pool->num_blocks * sizeof pool->blocks[0];
}

/* ---- finding ------------------------------------------------------------ */

static bool find_groups(const naive_pool *pool, const void *hash, size_t len,
                        const uint32_t *group_ids, uint32_t num_groups, quire_block *blocks)
{
    uint32_t copies;
    for (uint32_t g = 0; g < num_groups; g++)
        if (find(pool, hash, len, group_ids[g], &copies) == 0)
            return false;
    for (uint32_t g = 0; g < num_groups; g++)
        blocks[g] = find(pool, hash, len, group_ids[g], &copies);
    return true;
}

int naive_pool_get_cached_block(const naive_pool *pool, quire_bytes hash, const uint32_t *group_ids,
                                uint32_t num_groups, quire_block *blocks)
{
    if (pool == NULL || hash.data == NULL || num_groups == 0)
        return QUIRE_E_ARGUMENT;
    if (group_ids == NULL || blocks == NULL)
        return QUIRE_E_ARGUMENT;
    if (!hash_len_ok(pool, hash.len))
        return QUIRE_E_RANGE;
    return find_groups(pool, hash.data, hash.len, group_ids, num_groups, blocks) ? QUIRE_OK
                                                                                 : QUIRE_MISS;
}

int naive_pool_get_cached_prefix(const naive_pool *pool, const void *hashes, size_t hash_len,
                                 uint32_t num_hashes, const uint32_t *group_ids,
                                 uint32_t num_groups, quire_block *blocks, uint32_t *num_hit)
{
    if (pool == NULL || num_hit == NULL || num_groups == 0)
        return QUIRE_E_ARGUMENT;
    if (num_hashes > 0 && (hashes == NULL || group_ids == NULL || blocks == NULL))
        return QUIRE_E_ARGUMENT;
    if (!hash_len_ok(pool, hash_len))
        return QUIRE_E_RANGE;
    const unsigned char *hash = hashes;
    uint32_t hit = 0;
    while (hit < num_hashes && find_groups(pool, hash + hit * hash_len, hash_len, group_ids,
                                           num_groups, blocks + (size_t)hit * num_groups))
        hit++;
    *num_hit = hit;
    return QUIRE_OK;
}

/* ---- changing ----------------------------------------------------------- */

int naive_pool_get_new_blocks(naive_pool *pool, uint32_t num_blocks, quire_block *blocks)
{
    if (pool == NULL || (num_blocks > 0 && blocks == NULL))
        return QUIRE_E_ARGUMENT;
    if (num_blocks > pool->num_blocks - 1)
        return QUIRE_E_RANGE;
    if (num_blocks > pool->num_free)
        return QUIRE_NO_SPACE;
    for (uint32_t i = 0; i < num_blocks; i++) {
        blocks[i] = pool->queue[0];
        queue_remove_at(pool, 0);
        take_key(pool, blocks[i]);
        pool->blocks[blocks[i]].ref_cnt = 1;
    }
    return QUIRE_OK;
}

int naive_pool_touch(naive_pool *pool, const quire_block *blocks, uint32_t num_blocks)
{
    if (pool == NULL || (num_blocks > 0 && blocks == NULL))
        return QUIRE_E_ARGUMENT;
    savepoint before;
    save(&before, pool);
    for (uint32_t i = 0; i < num_blocks; i++) {
        int status = check_id(pool, blocks[i]);
        if (status == QUIRE_OK && pool->blocks[blocks[i]].ref_cnt == UINT32_MAX)
            status = QUIRE_E_OVERFLOW;
        if (status != QUIRE_OK)
            return roll_back(&before, pool, status);
        if (pool->blocks[blocks[i]].ref_cnt++ == 0)
            queue_remove(pool, blocks[i]);
    }
    return QUIRE_OK;
}

int naive_pool_free_blocks(naive_pool *pool, const quire_block *blocks, uint32_t num_blocks)
{
    if (pool == NULL || (num_blocks > 0 && blocks == NULL))
        return QUIRE_E_ARGUMENT;
    savepoint before;
    save(&before, pool);
    uint32_t num_at_head = 0; /* the first of them stays the first */
    for (uint32_t i = 0; i < num_blocks; i++) {
        int status = check_id(pool, blocks[i]);
        if (status == QUIRE_OK && pool->blocks[blocks[i]].ref_cnt == pool->blocks[blocks[i]].held)
            status = QUIRE_E_DOUBLE_FREE;
        if (status != QUIRE_OK)
            return roll_back(&before, pool, status);
        if (--pool->blocks[blocks[i]].ref_cnt > 0)
            continue;
        bool is_first = pool->has_two_ends && pool->blocks[blocks[i]].hash_len == 0;
        queue_insert(pool, is_first ? num_at_head++ : pool->num_free, blocks[i]);
    }
    return QUIRE_OK;
}

int naive_pool_hold(naive_pool *pool, const quire_block *blocks, uint32_t num_blocks)
{
    if (pool == NULL || (num_blocks > 0 && blocks == NULL))
        return QUIRE_E_ARGUMENT;
    savepoint before;
    save(&before, pool);
    for (uint32_t i = 0; i < num_blocks; i++) {
        int status = check_id(pool, blocks[i]);
        if (status == QUIRE_OK && pool->blocks[blocks[i]].held == 63)
            status = QUIRE_E_OVERFLOW;
        if (status != QUIRE_OK)
            return roll_back(&before, pool, status);
        naive_pool_touch(pool, &blocks[i], 1);
        pool->blocks[blocks[i]].held++;
    }
    return QUIRE_OK;
}

int naive_pool_let_go(naive_pool *pool, const quire_block *blocks, uint32_t num_blocks,
                      uint32_t to_head)
{
    if (pool == NULL || (num_blocks > 0 && blocks == NULL))
        return QUIRE_E_ARGUMENT;
    savepoint before;
    save(&before, pool);
    for (uint32_t i = 0; i < num_blocks; i++) {
        int status = check_id(pool, blocks[i]);
        if (status == QUIRE_OK && pool->blocks[blocks[i]].held == 0)
            status = QUIRE_E_DOUBLE_FREE;
        if (status != QUIRE_OK)
            return roll_back(&before, pool, status);
        pool->blocks[blocks[i]].held--;
    }
    if (!to_head)
        return naive_pool_free_blocks(pool, blocks, num_blocks);
    for (uint32_t i = num_blocks; i-- > 0;) {
        if (--pool->blocks[blocks[i]].ref_cnt == 0)
            queue_insert(pool, 0, blocks[i]);
    }
    return QUIRE_OK;
}

static void tell_stored(naive_pool *pool, const quire_cache_full_params *params, uint32_t hash_len)
{
    const unsigned char *hashes = params->hashes;
    uint32_t first = params->num_cached_blocks;
    quire_event event = {.size = sizeof(quire_event),
                         .kind = QUIRE_EVENT_STORED,
                         .group_id = params->group_id,
                         .blocks = params->blocks + first,
                         .num_blocks = params->num_full_blocks - first,
                         .first_block = first,
                         .hashes = hashes + (size_t)first * hash_len,
                         .hash_bytes = hash_len,
                         .block_size = params->block_size,
                         .request = params->request};
    if (first > 0)
        event.parent = (quire_bytes){hashes + (size_t)(first - 1) * hash_len, hash_len};
    if (pool->log != NULL)
        event_log_add(pool->log, &event);
}

int naive_pool_cache_full_blocks(naive_pool *pool, const quire_cache_full_params *params)
{
    if (pool == NULL || params == NULL)
        return QUIRE_E_ARGUMENT;
    if (!pool->enable_caching)
        return QUIRE_E_DISABLED;
    if (params->num_cached_blocks >= params->num_full_blocks)
        return QUIRE_OK;
    if (params->blocks == NULL || params->hashes == NULL)
        return QUIRE_E_ARGUMENT;
    size_t len = params->hash_len;
    if (!hash_len_ok(pool, len) || params->group_id > NAIVE_MAX_GROUP_ID ||
        params->num_hashes < params->num_full_blocks)
        return QUIRE_E_RANGE;
    savepoint before;
    save(&before, pool);
    for (uint32_t i = params->num_cached_blocks; i < params->num_full_blocks; i++) {
        int status = check_id(pool, params->blocks[i]);
        if (status == QUIRE_E_NULL_BLOCK)
            continue;
        if (status == QUIRE_OK && pool->blocks[params->blocks[i]].hash_len != 0)
            status = QUIRE_E_ALREADY_CACHED;
        if (status != QUIRE_OK)
            return roll_back(&before, pool, status);
        naive_block *b = &pool->blocks[params->blocks[i]];
        memcpy(b->hash, (const unsigned char *)params->hashes + i * len, len);
        b->hash_len = (uint32_t)len;
        b->group_id = params->group_id;
        b->order = pool->next_order++;
    }
    tell_stored(pool, params, (uint32_t)len);
    return QUIRE_OK;
}

int naive_pool_evict_blocks(naive_pool *pool, const quire_block *blocks, uint32_t num_blocks)
{
    if (pool == NULL || (num_blocks > 0 && blocks == NULL))
        return QUIRE_E_ARGUMENT;
    savepoint before;
    save(&before, pool);
    for (uint32_t i = 0; i < num_blocks; i++) {
        int status = check_id(pool, blocks[i]);
        if (status != QUIRE_OK)
            return roll_back(&before, pool, status);
        take_key(pool, blocks[i]);
    }
    return QUIRE_OK;
}

int naive_pool_reset_prefix_cache(naive_pool *pool)
{
    if (pool == NULL)
        return QUIRE_E_ARGUMENT;
    if (pool->num_free != pool->num_blocks - 1)
        return QUIRE_BUSY;
    for (quire_block b = 1; b < pool->num_blocks; b++)
        pool->blocks[b].hash_len = 0;
    if (pool->log != NULL)
        event_log_add(pool->log,
                      &(quire_event){.size = sizeof(quire_event), .kind = QUIRE_EVENT_CLEARED});
    return QUIRE_OK;
}

/* ---- looking ------------------------------------------------------------ */

static char state_of(const naive_pool *pool, quire_block block)
{
    if (block == QUIRE_NULL_BLOCK)
        return 'N';
    if (pool->blocks[block].ref_cnt > 0)
        return 'A';
    return pool->blocks[block].hash_len > 0 ? 'C' : 'E';
}

quire_usage naive_pool_usage(const naive_pool *pool)
{
    quire_usage usage = {0};
    for (quire_block b = 0; b < pool->num_blocks; b++) {
        char state = state_of(pool, b);
        usage.total++;
        usage.empty += state == 'E';
        usage.cached += state == 'C';
        usage.active += state == 'A';
        usage.null_blocks += state == 'N';
    }
    return usage;
}

uint32_t naive_pool_get_num_free_blocks(const naive_pool *pool)
{
    return pool->num_free;
}

double naive_pool_get_usage(const naive_pool *pool)
{
    uint32_t usable = pool->num_blocks - 1;
    /* vLLM's own expression: active / usable can differ from it in the last bit. */
    return usable > 0 ? 1.0 - (double)pool->num_free / usable : 0;
}

int naive_pool_get_block(const naive_pool *pool, quire_block block, quire_block_info *info)
{
    if (pool == NULL || info == NULL)
        return QUIRE_E_ARGUMENT;
    if (block >= pool->num_blocks)
        return QUIRE_E_UNKNOWN_BLOCK;
    const naive_block *b = &pool->blocks[block];
    memset(info, 0, sizeof *info);
    info->ref_cnt = b->ref_cnt;
    info->state = state_of(pool, block);
    if (b->hash_len > 0) {
        info->group_id = b->group_id;
        info->hash = (quire_bytes){b->hash, b->hash_len};
    }
    return QUIRE_OK;
}

uint32_t naive_pool_get_all_free_blocks(const naive_pool *pool, quire_block *blocks,
                                        uint32_t capacity)
{
    if (pool == NULL)
        return 0;
    uint32_t n = capacity < pool->num_free ? capacity : pool->num_free;
    if (n > 0)
        memcpy(blocks, pool->queue, n * sizeof blocks[0]);
    return pool->num_free;
}

quire_block naive_pool_get_next_free(const naive_pool *pool, quire_block block)
{
    if (pool == NULL || pool->num_free == 0)
        return QUIRE_NULL_BLOCK;
    if (block == QUIRE_NULL_BLOCK)
        return pool->queue[0];
    for (uint32_t i = 0; i + 1 < pool->num_free; i++)
        if (pool->queue[i] == block)
            return pool->queue[i + 1];
    return QUIRE_NULL_BLOCK;
}

uint32_t naive_pool_num_keys(const naive_pool *pool)
{
    uint32_t keys = 0;
    for (quire_block b = 1; b < pool->num_blocks; b++) {
        const naive_block *block = &pool->blocks[b];
        quire_block seen = 1;
        while (block->hash_len > 0 && seen < b &&
               !same_key(&pool->blocks[seen], block->hash, block->hash_len, block->group_id))
            seen++;
        keys += block->hash_len > 0 && seen == b;
    }
    return keys;
}

int naive_pool_draw(const naive_pool *pool, quire_block first, uint32_t num_blocks, char *out)
{
    if (pool == NULL || out == NULL)
        return QUIRE_E_ARGUMENT;
    if (first > pool->num_blocks || num_blocks > pool->num_blocks - first)
        return QUIRE_E_RANGE;
    for (uint32_t i = 0; i < num_blocks; i++)
        out[i] = state_of(pool, first + i);
    out[num_blocks] = '\0';
    return QUIRE_OK;
}
