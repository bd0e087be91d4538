/* Two pools: blocks of one and their copies in the other, by their keys. */
#include "block/pool.h"

enum { AT_ONCE = 32 }; /* keys that are looked up together, so that they wait for memory together */

void qr_pool_share_tags(quire_pool *pool, const quire_pool *other)
{
    qr_assert(pool->map.index.used == 0);
    memcpy(pool->map.index.secret, other->map.index.secret, sizeof pool->map.index.secret);
}

static inline bool shares_tags(const qr_map *map, const qr_map *other)
{
    return memcmp(map->index.secret, other->index.secret, sizeof map->index.secret) == 0;
}

/* The tags here of another map's keys; asks for what a search will touch. Keys that are not there,
 * or longer than any here, have some tag, and are not looked for. */
static void tag_others(const qr_map *map, const qr_map *other, const uint32_t *others, uint32_t n,
                       uint32_t *tags)
{
    bool is_shared = shares_tags(map, other);
    for (uint32_t i = 0; i < n; i++) {
        tags[i] = other->blocks[others[i]].tag;
        if (QR_UNLIKELY(!is_shared)) {
            qr_key key = qr_map_key_of(other, others[i]);
            bool fits = key.len > 0 && key.len <= map->stride;
            tags[i] = fits ? qr_map_tag(map, key) : 0;
        }
        qr_prefetch_write(qr_map_home(map, tags[i]));
    }
}

void qr_pool_find_same(const quire_pool *pool, const quire_pool *other, const uint32_t *others,
                       uint32_t n, uint32_t *out)
{
    const qr_map *map = &pool->map;
    uint32_t tags[AT_ONCE];
    for (uint32_t done = 0; done < n; done += AT_ONCE) {
        uint32_t batch = n - done < AT_ONCE ? n - done : AT_ONCE;
        tag_others(map, &other->map, others + done, batch, tags);
        for (uint32_t i = 0; i < batch; i++) {
            uint32_t candidate = qr_map_candidate(qr_map_home(map, tags[i]), tags[i]);
            qr_prefetch(qr_map_hash_of(map, candidate));
        }
        for (uint32_t i = 0; i < batch; i++) {
            qr_key key = qr_map_key_of(&other->map, others[done + i]);
            if (key.len == 0)
                out[done + i] = QR_NIL;
            else
                out[done + i] = key.len > map->stride ? 0 : qr_map_find_tagged(map, key, tags[i]);
        }
    }
}

static void tell_same(const quire_pool *pool, const uint32_t *block)
{
    if (pool->on_event == NULL)
        return;
    qr_key key = qr_map_key_of(&pool->map, *block);
    quire_cache_full_params p = {.blocks = block,
                                 .num_full_blocks = 1,
                                 .hashes = key.hash,
                                 .hash_len = key.len,
                                 .group_id = key.group_id};
    qr_pool_tell_stored(pool, &p);
}

static void insert_same(qr_map *map, const uint32_t *blocks, const qr_map *other,
                        const uint32_t *others, uint32_t n)
{
    uint32_t tags[AT_ONCE];
    for (uint32_t done = 0; done < n; done += AT_ONCE) {
        uint32_t batch = n - done < AT_ONCE ? n - done : AT_ONCE;
        for (uint32_t i = 0; i < batch; i++)
            qr_prefetch_write(&map->blocks[blocks[done + i]]);
        tag_others(map, other, others + done, batch, tags);
        for (uint32_t i = 0; i < batch; i++) {
            qr_key key = qr_map_key_of(other, others[done + i]);
            if (key.len == 0 || key.len > map->stride)
                continue;
            uint32_t first = qr_map_find_tagged(map, key, tags[i]);
            qr_map_insert_after(map, key, tags[i], blocks[done + i], first);
        }
    }
}

int qr_pool_cache_same(quire_pool *pool, const uint32_t *blocks, const quire_pool *other,
                       const uint32_t *others, uint32_t n)
{
    quire_cache_full_params p = {.blocks = blocks, .num_full_blocks = n};
    int err = qr_pool_check_uncached(pool, &p);
    for (uint32_t i = 0; err == QUIRE_OK && i < n; i++)
        if (blocks[i] == QUIRE_NULL_BLOCK)
            err = QUIRE_E_NULL_BLOCK;
    if (err != QUIRE_OK)
        return err;
    insert_same(&pool->map, blocks, &other->map, others, n);
    for (uint32_t i = 0; i < n; i++) {
        const qr_block *b = &pool->queue.blocks[blocks[i]];
        if (!qr_block_has_key(b))
            continue;
        pool->num_cached += b->ref_cnt == 0;
        tell_same(pool, &blocks[i]);
    }
    qr_pool_publish(pool);
    qr_assert_expensive(qr_pool_is_valid(pool));
    return QUIRE_OK;
}

/* ---- copies ------------------------------------------------------------------- */

/* A user more who is no request. False: it has too many. */
static inline bool hold_one(quire_pool *pool, qr_block *b, uint32_t block)
{
    if (QR_UNLIKELY(b->held == QR_BLOCK_MAX_HELD || b->ref_cnt == UINT32_MAX))
        return false;
    if (QR_UNLIKELY(b->ref_cnt++ == 0)) {
        qr_queue_remove(&pool->queue, block);
        pool->num_cached -= qr_block_has_key(b);
    }
    b->held++;
    return true;
}

/* One after the other, each with all that belongs to it. */
static quire_same take_watched(quire_pool *pool, quire_pool *other, const uint32_t *others,
                               uint32_t n, uint32_t *from, uint32_t *to)
{
    quire_same same = {.num_with_key = n};
    for (; same.num_done < n; same.num_done++) {
        uint32_t block = others[same.num_done];
        uint32_t found;
        qr_pool_find_same(pool, other, &block, 1, &found);
        qr_key key = qr_map_key_of(&other->map, block);
        if (found == QR_NIL && same.num_with_key == n)
            same.num_with_key = same.num_done;
        if (found != QUIRE_NULL_BLOCK || key.len > pool->map.stride)
            continue;
        same.is_full = pool->queue.num_free == 0;
        if (same.is_full)
            break;
        if (!hold_one(other, &other->queue.blocks[block], block))
            continue;
        other->num_held++;
        from[same.num_taken] = block;
        qr_pool_get_new_blocks(pool, 1, &to[same.num_taken]);
        qr_map_insert(&pool->map, key, to[same.num_taken]);
        tell_same(pool, &to[same.num_taken++]);
    }
    return same;
}

/* Blocks from the head of the queue, which is kept in hand. */
typedef struct taking {
    uint32_t head;
    uint32_t num_taken;
    uint32_t num_evicted;
} taking;

/* The key of a block that is alone with it is overwritten at once: it leaves the index only. */
static inline uint32_t take_next(quire_pool *pool, taking *t)
{
    uint32_t block = t->head;
    qr_block *b = &pool->queue.blocks[block];
    t->head = qr_queue_take(&pool->queue, block);
    t->num_taken++;
    b->ref_cnt = 1;
    if (QR_UNLIKELY(!qr_block_has_key(b)))
        return block;
    qr_pool_scout(pool, block);
    t->num_evicted++;
    if (QR_LIKELY(b->is_first && b->dup_next == block))
        qr_buckets_remove_id(&pool->map.index, b->tag, block);
    else
        qr_map_remove(&pool->map, block);
    return block;
}

static void end_taking(quire_pool *pool, quire_pool *other, const taking *t)
{
    if (t->num_taken == 0)
        return;
    qr_queue_take_end(&pool->queue, t->head, t->num_taken);
    pool->num_cached -= t->num_evicted;
    pool->num_evicted += t->num_evicted;
    pool->num_allocated += t->num_taken;
    other->num_held += t->num_taken;
    qr_pool_publish(pool);
}

/* The same for n <= AT_ONCE, where nobody watches, keys lie in the records and tags are shared:
 * each line of memory is touched once, and what was asked for at the beginning is there. */
static quire_same take_quietly(quire_pool *pool, quire_pool *other, const uint32_t *others,
                               uint32_t n, uint32_t *from, uint32_t *to)
{
    qr_map *map = &pool->map;
    quire_same same = {.num_with_key = n};
    uint32_t tags[AT_ONCE];
    taking t = {.head = qr_queue_head(&pool->queue)};
    tag_others(map, &other->map, others, n, tags);
    for (; same.num_done < n; same.num_done++) {
        uint32_t block = others[same.num_done];
        uint32_t tag = tags[same.num_done];
        qr_block *theirs = &other->queue.blocks[block];
        qr_bucket *home = qr_map_home(map, tag);
        if (QR_UNLIKELY(!qr_block_has_key(theirs))) {
            if (same.num_with_key == n)
                same.num_with_key = same.num_done;
            continue;
        }
        bool is_new =
            QR_LIKELY(qr_bucket_match(home, qr_tag_mark(tag)) == 0 && home->num_passed == 0);
        if (!is_new && qr_map_find_tagged(map, qr_map_key_of(&other->map, block), tag) != 0)
            continue;
        same.is_full = pool->queue.num_free == t.num_taken;
        if (same.is_full)
            break;
        if (!hold_one(other, theirs, block))
            continue;
        uint32_t mine = take_next(pool, &t);
        qr_map_take_key(map, mine, theirs);
        qr_buckets_insert_home(&map->index, home, tag, mine);
        from[same.num_taken] = block;
        to[same.num_taken++] = mine;
    }
    end_taking(pool, other, &t);
    return same;
}

static void fetch_records(const quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        qr_prefetch_write(&pool->queue.blocks[blocks[i]]);
}

static bool can_be_quiet(const quire_pool *pool, const quire_pool *other)
{
    bool is_watched =
        pool->on_event != NULL || pool->residency != NULL || pool->queue.wanted != NULL;
    return !is_watched && pool->map.stride <= QR_BLOCK_HASH_BYTES &&
           other->map.stride <= pool->map.stride && shares_tags(&pool->map, &other->map);
}

quire_same qr_pool_take_same(quire_pool *pool, quire_pool *other, const uint32_t *others,
                             uint32_t n, uint32_t *from, uint32_t *to)
{
    quire_same all = {0};
    bool is_quiet = can_be_quiet(pool, other);
    fetch_records(other, others, n < AT_ONCE ? n : AT_ONCE);
    while (all.num_done < n && all.is_full == 0) {
        uint32_t left = n - all.num_done;
        uint32_t batch = left < AT_ONCE ? left : AT_ONCE;
        left -= batch; /* the next ones are there when their turn comes */
        fetch_records(other, others + all.num_done + batch, left < AT_ONCE ? left : AT_ONCE);
        const uint32_t *next = others + all.num_done;
        uint32_t *next_from = from + all.num_taken;
        uint32_t *next_to = to + all.num_taken;
        quire_same same = is_quiet ? take_quietly(pool, other, next, batch, next_from, next_to)
                                   : take_watched(pool, other, next, batch, next_from, next_to);
        if (all.num_with_key == all.num_done) /* all before these had one */
            all.num_with_key +=
                same.num_with_key < same.num_done ? same.num_with_key : same.num_done;
        all.num_done += same.num_done;
        all.num_taken += same.num_taken;
        all.is_full = same.is_full;
    }
    qr_pool_publish(other);
    qr_assert_expensive(qr_pool_is_valid(pool) && qr_pool_is_valid(other));
    return all;
}
