/* api/pool_api.c - quire/pool.h: argument checks, then one call inward. */
#include "api/fields.h"
#include "base/assert.h"
#include "block/pool.h"

static bool pool_ok(const quire_pool *pool)
{
    return pool != NULL && pool->magic == QR_POOL_MAGIC;
}

/* ---- making ---------------------------------------------------------------- */

int quire_pool_create(const quire_pool_config *config, const quire_allocator *allocator,
                      quire_pool **pool)
{
    quire_pool_config c;
    if (pool == NULL)
        return QUIRE_E_ARGUMENT;
    int err = qr_check_pool_config(&c, config);
    if (err == QUIRE_OK)
        err = qr_pool_config_read(&c, config);
    if (err != QUIRE_OK)
        return err;
    qr_owner owner;
    qr_arena arena;
    qr_arena size = qr_arena_plan();
    qr_pool_carve(&size, &c, 0);
    err = qr_owner_begin_fresh(&owner, allocator, &size, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_pool *made = qr_pool_carve(&arena, &c, 0);
    qr_arena_seal(&arena);
    err = qr_pool_init(made, &c);
    if (err != QUIRE_OK) {
        qr_owner_release(&owner);
        return err;
    }
    made->owner = owner;
    *pool = made;
    return QUIRE_OK;
}

void quire_pool_destroy(quire_pool *pool)
{
    if (!pool_ok(pool))
        return;
    pool->magic =
        0; /* a handle used after its end is an argument error, as long as the memory lives */
    qr_owner_release(&pool->owner);
}

/* ---- finding --------------------------------------------------------------- */

static int check_lookup(const quire_pool *pool, const void *hashes, size_t hash_len,
                        uint32_t num_hashes, const uint32_t *group_ids, uint32_t num_groups,
                        const quire_block *blocks)
{
    bool arrays_ok = num_hashes == 0 || (hashes != NULL && group_ids != NULL && blocks != NULL);
    if (!pool_ok(pool) || num_groups == 0 || !arrays_ok)
        return QUIRE_E_ARGUMENT;
    return qr_pool_check_hash_len(pool, hash_len);
}

int quire_pool_get_cached_block(const quire_pool *pool, quire_bytes hash, const uint32_t *group_ids,
                                uint32_t num_groups, quire_block *blocks)
{
    int err = check_lookup(pool, hash.data, hash.len, 1, group_ids, num_groups, blocks);
    if (err != QUIRE_OK)
        return err;
    if (!pool->enable_caching)
        return QUIRE_MISS;
    qr_key key = {hash.data, (uint32_t)hash.len, 0};
    for (uint32_t pass = 0; pass < 2; pass++) { /* all are there before the first is written */
        for (uint32_t g = 0; g < num_groups; g++) {
            key.group_id = group_ids[g];
            uint32_t block = qr_extras_owner(&pool->extras, qr_map_get(&pool->map, key));
            if (block == QUIRE_NULL_BLOCK)
                return QUIRE_MISS;
            if (pass == 1 || num_groups == 1)
                blocks[g] = block;
        }
        if (num_groups == 1)
            break;
    }
    return QUIRE_OK;
}

int quire_pool_get_cached_prefix(const quire_pool *pool, const void *hashes, size_t hash_len,
                                 uint32_t num_hashes, const uint32_t *group_ids,
                                 uint32_t num_groups, quire_block *blocks, uint32_t *num_hit)
{
    int err = check_lookup(pool, hashes, hash_len, num_hashes, group_ids, num_groups, blocks);
    if (err != QUIRE_OK)
        return err;
    if (num_hit == NULL)
        return QUIRE_E_ARGUMENT;
    uint32_t hit = pool->enable_caching ? num_hashes : 0;
    for (uint32_t g = 0; g < num_groups; g++) {
        qr_key first = {hashes, (uint32_t)hash_len, hit > 0 ? group_ids[g] : 0};
        hit = hit == 0 ? 0 : qr_map_get_run(&pool->map, first, hit, blocks + g, num_groups);
    }
    for (uint32_t i = 0; pool->extras.heads != NULL && i < hit * num_groups; i++)
        blocks[i] = qr_extras_owner(&pool->extras, blocks[i]);
    *num_hit = hit;
    return QUIRE_OK;
}

int quire_pool_get_cached_each(const quire_pool *pool, const void *hashes, size_t hash_len,
                               uint32_t num_hashes, uint32_t group_id, quire_block *blocks)
{
    int err = check_lookup(pool, hashes, hash_len, num_hashes, &group_id, 1, blocks);
    if (err != QUIRE_OK)
        return err;
    if (pool->enable_caching)
        qr_map_get_each(&pool->map, (qr_key){hashes, (uint32_t)hash_len, group_id}, num_hashes,
                        blocks);
    else if (num_hashes > 0)
        memset(blocks, 0, num_hashes * sizeof *blocks); /* null blocks */
    for (uint32_t i = 0; pool->extras.heads != NULL && i < num_hashes; i++)
        blocks[i] = qr_extras_owner(&pool->extras, blocks[i]);
    return QUIRE_OK;
}

/* ---- changing -------------------------------------------------------------- */

static int check_blocks(const quire_pool *pool, const quire_block *blocks, uint32_t num_blocks)
{
    return pool_ok(pool) && (blocks != NULL || num_blocks == 0) ? QUIRE_OK : QUIRE_E_ARGUMENT;
}

int quire_pool_get_new_blocks(quire_pool *pool, uint32_t num_blocks, quire_block *blocks)
{
    int err = check_blocks(pool, blocks, num_blocks);
    return err == QUIRE_OK ? qr_pool_get_new_blocks(pool, num_blocks, blocks) : err;
}

int quire_pool_touch(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks)
{
    int err = check_blocks(pool, blocks, num_blocks);
    return err == QUIRE_OK ? qr_pool_touch(pool, blocks, num_blocks) : err;
}

int quire_pool_free_blocks(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks)
{
    int err = check_blocks(pool, blocks, num_blocks);
    return err == QUIRE_OK ? qr_pool_free_blocks(pool, blocks, num_blocks) : err;
}

int quire_pool_hold(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks)
{
    int err = check_blocks(pool, blocks, num_blocks);
    return err == QUIRE_OK ? qr_pool_hold(pool, blocks, num_blocks) : err;
}

int quire_pool_let_go(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks,
                      uint32_t to_head)
{
    int err = check_blocks(pool, blocks, num_blocks);
    return err == QUIRE_OK ? qr_pool_let_go(pool, blocks, num_blocks, to_head != 0) : err;
}

int quire_pool_cache_full_blocks(quire_pool *pool, const quire_cache_full_params *params)
{
    quire_cache_full_params room;
    params = qr_struct_in(&room, sizeof room, params);
    if (params == NULL || !pool_ok(pool))
        return QUIRE_E_ARGUMENT;
    if (!pool->enable_caching)
        return QUIRE_E_DISABLED;
    bool something = params->num_full_blocks > params->num_cached_blocks;
    if (something && (params->blocks == NULL || params->hashes == NULL))
        return QUIRE_E_ARGUMENT;
    int err = something ? qr_check_cache_full_params(params) : QUIRE_OK;
    return err == QUIRE_OK ? qr_pool_cache_full_blocks(pool, params) : err;
}

static int check_same(const quire_pool *pool, const quire_pool *other, const void *a, const void *b,
                      uint32_t n)
{
    if (!pool_ok(pool) || !pool_ok(other) || (n > 0 && (a == NULL || b == NULL)))
        return QUIRE_E_ARGUMENT;
    return pool->enable_caching && other->enable_caching ? QUIRE_OK : QUIRE_E_DISABLED;
}

int quire_pool_find_same(const quire_pool *pool, const quire_pool *other, const quire_block *others,
                         uint32_t n, quire_block *found)
{
    int err = check_same(pool, other, others, found, n);
    for (uint32_t i = 0; err == QUIRE_OK && i < n; i++)
        if (others[i] >= other->queue.num_blocks)
            err = QUIRE_E_UNKNOWN_BLOCK;
    if (err == QUIRE_OK)
        qr_pool_find_same(pool, other, others, n, found);
    return err;
}

int quire_pool_take_same(quire_pool *pool, quire_pool *other, const quire_block *others, uint32_t n,
                         quire_block *from, quire_block *to, quire_same *same)
{
    int err = check_same(pool, other, from, to, n);
    if (err != QUIRE_OK)
        return err;
    if (same == NULL || pool == other || (n > 0 && others == NULL))
        return QUIRE_E_ARGUMENT;
    uint32_t highest = 0; /* of the ids, less one: the null block is above all of them */
    for (uint32_t i = 0; i < n; i++)
        highest = others[i] - 1 > highest ? others[i] - 1 : highest;
    if (n > 0 && highest >= other->queue.num_blocks - 1)
        return qr_pool_why_unusable(highest + 1);
    if (pool->map.index.used == 0)
        qr_pool_share_tags(pool, other);
    *same = qr_pool_take_same(pool, other, others, n, from, to);
    return QUIRE_OK;
}

int quire_pool_leave_same(quire_pool *pool, quire_pool *other, const quire_block *from,
                          const quire_block *to, uint32_t n)
{
    int err = check_same(pool, other, from, to, n);
    if (err != QUIRE_OK)
        return err;
    return pool == other ? QUIRE_E_ARGUMENT : qr_pool_leave_same(pool, other, from, to, n);
}

int quire_pool_evict_blocks(quire_pool *pool, const quire_block *blocks, uint32_t num_blocks)
{
    int err = check_blocks(pool, blocks, num_blocks);
    return err == QUIRE_OK ? qr_pool_evict_blocks(pool, blocks, num_blocks) : err;
}

int quire_pool_evict_cached(quire_pool *pool, uint32_t num_blocks, uint32_t *num_evicted)
{
    if (!pool_ok(pool))
        return QUIRE_E_ARGUMENT;
    uint32_t n = qr_pool_evict_cached(pool, num_blocks);
    if (num_evicted != NULL)
        *num_evicted = n;
    return QUIRE_OK;
}

int quire_pool_reset_prefix_cache(quire_pool *pool)
{
    return pool_ok(pool) ? qr_pool_reset_prefix_cache(pool) : QUIRE_E_ARGUMENT;
}

/* ---- looking --------------------------------------------------------------- */

quire_usage quire_pool_get_usage(const quire_pool *pool)
{
    return pool_ok(pool) ? qr_pool_usage(pool) : (quire_usage){0, 0, 0, 0, 0};
}

int quire_pool_get_blocks(const quire_pool *pool, const quire_block *blocks, uint32_t num_blocks,
                          quire_block_info *infos)
{
    if (!pool_ok(pool) || (num_blocks > 0 && (blocks == NULL || infos == NULL)))
        return QUIRE_E_ARGUMENT;
    for (uint32_t i = 0; i < num_blocks; i++) {
        if (blocks[i] >= pool->queue.num_blocks)
            return QUIRE_E_UNKNOWN_BLOCK;
        qr_prefetch(&pool->queue.blocks[blocks[i]]);
    }
    for (uint32_t i = 0; i < num_blocks; i++) {
        const qr_block *b = &pool->queue.blocks[blocks[i]];
        uint32_t num_holds = qr_pool_count_holds(pool, blocks[i]);
        infos[i] = (quire_block_info){.ref_cnt = b->ref_cnt + num_holds,
                                      .num_holds = num_holds,
                                      .state = qr_pool_state_of(pool, blocks[i])};
        if (!qr_block_has_key(b))
            continue;
        infos[i].group_id = b->group_id;
        infos[i].hash = (quire_bytes){qr_map_hash_of(&pool->map, blocks[i]), qr_block_key_len(b)};
    }
    return QUIRE_OK;
}

uint32_t quire_pool_count_unheld(const quire_pool *pool, const quire_block *blocks,
                                 uint32_t num_blocks)
{
    uint32_t n = 0;
    if (!pool_ok(pool) || blocks == NULL)
        return 0;
    while (n < num_blocks && blocks[n] < pool->queue.num_blocks && pool->holds[blocks[n]] == 0)
        n++;
    return n;
}

quire_block quire_pool_get_next_free(const quire_pool *pool, quire_block block)
{
    if (!pool_ok(pool) || block >= pool->queue.num_blocks)
        return QUIRE_NULL_BLOCK;
    const qr_queue *queue = &pool->queue;
    if (block != QUIRE_NULL_BLOCK && !qr_queue_contains(queue, block))
        return QUIRE_NULL_BLOCK;
    uint32_t next = block == QUIRE_NULL_BLOCK ? qr_queue_head(queue) : qr_queue_next(queue, block);
    return next == queue->num_blocks ? QUIRE_NULL_BLOCK : next;
}

quire_pool_counts quire_pool_get_counts(const quire_pool *pool)
{
    if (!pool_ok(pool))
        return (quire_pool_counts){0, 0};
    return (quire_pool_counts){pool->num_allocated, pool->map.index.used};
}

int quire_pool_draw(const quire_pool *pool, quire_block first, uint32_t num_blocks, char *out)
{
    if (!pool_ok(pool) || out == NULL)
        return QUIRE_E_ARGUMENT;
    if (num_blocks > pool->queue.num_blocks || first > pool->queue.num_blocks - num_blocks)
        return QUIRE_E_RANGE;
    for (uint32_t i = 0; i < num_blocks; i++)
        out[i] = qr_pool_state_of(pool, first + i);
    out[num_blocks] = '\0';
    return QUIRE_OK;
}

int quire_pool_check(const quire_pool *pool)
{
    if (!pool_ok(pool))
        return QUIRE_E_ARGUMENT;
    return qr_pool_is_valid(pool) ? QUIRE_OK : QUIRE_E_CORRUPT;
}
