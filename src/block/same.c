/* Two pools: blocks of one and their copies in the other, by their keys. */
#include "block/pool.h"

/* Keys that are looked up together, so that they wait for memory together. */
enum { AT_ONCE = QR_AT_A_TIME(32, 2) };

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
            uint32_t candidate = qr_map_candidate(map, tags[i]);
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
    quire_cache_full_params p = {.size = sizeof(quire_cache_full_params),
                                 .blocks = block,
                                 .num_full_blocks = 1,
                                 .hashes = key.hash,
                                 .hash_len = key.len,
                                 .group_id = key.group_id};
    qr_pool_tell_stored(pool, &p);
}

/* ---- copies ------------------------------------------------------------------- */

/* A hold more. False: it has too many. */
static inline bool hold_one(quire_pool *pool, const qr_block *b, uint32_t block)
{
    uint8_t *holds = &pool->holds[block];
    if (QR_UNLIKELY((*holds & QR_HOLDS_COUNT) == QR_HOLDS_MOST))
        return false;
    if (QR_UNLIKELY(b->ref_cnt == 0 && *holds == 0)) {
        qr_queue_remove(&pool->queue, block);
        pool->num_cached -= qr_block_has_key(b);
        *holds = QR_HOLDS_ALONE;
    }
    ++*holds;
    return true;
}

/* The one user of a block. */
static void turn_into_hold(quire_pool *pool, uint32_t block)
{
    pool->queue.blocks[block].ref_cnt = 0;
    pool->holds[block] = QR_HOLDS_ALONE | 1;
    pool->num_held++;
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
        turn_into_hold(pool, to[same.num_taken]);
        qr_map_insert(&pool->map, key, to[same.num_taken]);
        tell_same(pool, &to[same.num_taken++]);
    }
    return same;
}

/* Blocks from the head of the queue, and places in the index. What the loop needs is kept in hand:
 * behind each byte that it writes, the compiler would fetch it again. */
typedef struct taking {
    qr_block *blocks;
    qr_bucket *buckets;
    uint64_t num_buckets;
    uint32_t id_mask;
    uint32_t *scouted;
    uint8_t *holds;
    uint32_t head;
    uint32_t num_taken;
    uint32_t num_scouted; /* the pool's num_taken: those that had a key */
} taking;

static inline qr_bucket *home_of(const taking *t, uint32_t tag)
{
    return &t->buckets[(tag * t->num_buckets) >> 32];
}

/* As qr_pool_scout. */
static inline void scout_next(taking *t, const qr_block *taken)
{
    uint32_t *place = &t->scouted[t->num_scouted++ % QR_POOL_SCOUTS];
    qr_prefetch_write(home_of(t, t->blocks[*place].tag));
    *place = taken->ahead;
}

/* The key of a block that is alone with it is overwritten at once: it leaves the index only. */
static inline void leave_index(quire_pool *pool, taking *t, const qr_block *b, uint32_t block)
{
    if (QR_UNLIKELY(!b->is_first || b->dup_next != block)) {
        qr_map_remove(&pool->map, block);
        pool->map.index.used++; /* the key is still there; end_taking counts it as gone */
        return;
    }
    qr_bucket *home = home_of(t, b->tag);
    qr_places found = qr_bucket_match(home, qr_tag_mark(b->tag));
    uint32_t place = qr_first_place(found | QR_PLACES_END);
    if (QR_UNLIKELY(found == 0 ||
                    home->entries[place] != (block | qr_tag_rest(t->id_mask, b->tag)))) {
        qr_buckets_remove(&pool->map.index, b->tag, block);
        pool->map.index.used++; /* counted in end_taking */
        return;
    }
    home->marks[place] = 0;
    home->entries[place] = 0;
}

/* As qr_queue_take. */
static inline qr_block *take_next(quire_pool *pool, taking *t)
{
    uint32_t block = t->head;
    qr_block *b = &t->blocks[block];
    t->head = qr_queue_next_of(t->blocks, block);
    qr_prefetch_write(&t->blocks[b->ahead]);
    qr_link_clear(&b->free);
    t->num_taken++;
    t->holds[block] = QR_HOLDS_ALONE | 1;
    if (QR_LIKELY(qr_block_has_key(b))) {
        scout_next(t, b);
        leave_index(pool, t, b, block);
    }
    return b;
}

/* Into the index, where its home has an empty place. */
static inline void join_index(quire_pool *pool, taking *t, qr_bucket *home, qr_places empty,
                              uint32_t tag, uint32_t block)
{
    if (QR_UNLIKELY(empty == 0)) {
        qr_buckets_insert(&pool->map.index, tag, block);
        pool->map.index.used--; /* counted in end_taking */
        return;
    }
    uint32_t place = qr_first_place(empty);
    home->marks[place] = qr_tag_mark(tag);
    home->entries[place] = block | qr_tag_rest(t->id_mask, tag);
}

static taking begin_taking(quire_pool *pool)
{
    return (taking){.blocks = pool->queue.blocks,
                    .buckets = pool->map.index.all,
                    .num_buckets = pool->map.index.count,
                    .id_mask = pool->map.index.id_mask,
                    .scouted = pool->scouted,
                    .holds = pool->holds,
                    .num_scouted = pool->num_taken,
                    .head = qr_queue_head(&pool->queue)};
}

static void end_taking(quire_pool *pool, quire_pool *other, const taking *t)
{
    if (t->num_taken == 0)
        return;
    uint32_t num_evicted = t->num_scouted - pool->num_taken;
    qr_queue_take_end(&pool->queue, t->head, t->num_taken);
    pool->num_taken = t->num_scouted;
    pool->num_cached -= num_evicted;
    pool->num_evicted += num_evicted;
    pool->num_allocated += t->num_taken;
    pool->num_held += t->num_taken;
    pool->map.index.used += t->num_taken - num_evicted;
    other->num_held += t->num_taken;
    qr_pool_publish(pool);
}

/* What is to be stored is asked for on the way, one stage after the other and never much at once. A
 * copy that is there already is the exception, and waited for.
 *
 *      others   [ stored | at | buckets | records | not yet ]
 *                           BUCKETS_AHEAD   RECORDS_AHEAD
 */
enum { BUCKETS_AHEAD = QR_AT_A_TIME(12, 1), RECORDS_AHEAD = QR_AT_A_TIME(24, 2) };

static void ask_for_first(const taking *t, const qr_block *theirs, const uint32_t *others,
                          uint32_t n)
{
    for (uint32_t i = 0; i < n && i < RECORDS_AHEAD; i++)
        qr_prefetch(&theirs[others[i]]);
    for (uint32_t i = 0; i < n && i < BUCKETS_AHEAD; i++)
        qr_prefetch_write(home_of(t, theirs[others[i]].tag));
}

/* The same, where nobody watches, keys lie in the records and tags are shared. It is worth its
 * lines: with batches of take_watched alone, a replay of mooncake_conversation with a host tier
 * takes 1.12 times as long, and one of azure2023_conv 1.05 times. */
static quire_same take_quietly(quire_pool *pool, quire_pool *other, const uint32_t *others,
                               uint32_t n, uint32_t *from, uint32_t *to)
{
    quire_same same = {.num_with_key = n};
    const qr_block *records = other->queue.blocks;
    uint32_t num_free = pool->queue.num_free;
    taking t = begin_taking(pool);
    ask_for_first(&t, records, others, n);
    uint32_t i = 0;
    for (; i < n; i++) {
        if (i + RECORDS_AHEAD < n)
            qr_prefetch(&records[others[i + RECORDS_AHEAD]]);
        if (i + BUCKETS_AHEAD < n)
            qr_prefetch_write(home_of(&t, records[others[i + BUCKETS_AHEAD]].tag));
        const qr_block *theirs = &records[others[i]];
        uint32_t tag = theirs->tag;
        qr_bucket *home = home_of(&t, tag);
        if (QR_UNLIKELY(!qr_block_has_key(theirs))) {
            same.num_with_key = same.num_with_key == n ? i : same.num_with_key;
            continue;
        }
        qr_places empty = qr_bucket_match(home, 0);
        bool is_new = QR_LIKELY(qr_bucket_first_id(home, t.id_mask, tag) == 0 &&
                                !qr_bucket_has_passed(home, tag));
        if (!is_new &&
            qr_map_find_tagged(&pool->map, qr_map_key_of(&other->map, others[i]), tag) != 0)
            continue;
        same.is_full = t.num_taken == num_free;
        if (same.is_full)
            break;
        if (QR_UNLIKELY(!hold_one(other, theirs, others[i])))
            continue;
        from[t.num_taken] = others[i];
        uint32_t mine = t.head;
        to[t.num_taken] = mine;
        qr_block_take_key(take_next(pool, &t), mine, theirs);
        join_index(pool, &t, home, empty, tag, mine); /* what was empty is so still */
    }
    same.num_done = i;
    same.num_taken = t.num_taken;
    end_taking(pool, other, &t);
    return same;
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
    quire_same same = can_be_quiet(pool, other) ? take_quietly(pool, other, others, n, from, to)
                                                : take_watched(pool, other, others, n, from, to);
    if (same.num_with_key > same.num_done)
        same.num_with_key = same.num_done;
    qr_pool_publish(other);
    qr_assert_expensive(qr_pool_is_valid(pool) && qr_pool_is_valid(other));
    return same;
}

/* ---- the end of copies --------------------------------------------------------- */

/* A hold less for each, from the last to the first; where one is wrong, nothing is changed. */
static int leave_row(quire_pool *pool, qr_queue_joining *joining, const uint32_t *blocks,
                     uint32_t n, uint32_t *num_cached)
{
    for (uint32_t i = n; i-- > 0;) {
        int err = qr_pool_leave_hold(pool, joining, blocks[i], num_cached);
        if (QR_UNLIKELY(err != QUIRE_OK)) {
            while (++i < n)
                qr_pool_unleave_hold(pool, joining, blocks[i]);
            return err;
        }
    }
    return QUIRE_OK;
}

static void hold_alone(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        pool->holds[blocks[i]] = QR_HOLDS_ALONE | 1;
}

/* Takes the holds from blocks that nobody has but one hold each, and that all join the tail; false,
 * and no change, where one is not so. */
static bool release_alone(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    uint8_t *holds = pool->holds;
    uint32_t num_blocks = pool->queue.num_blocks;
    const qr_block *records = pool->queue.blocks;
    bool needs_key = pool->queue.is_two_ended;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = blocks[i];
        if (QR_LIKELY(block < num_blocks && holds[block] == (QR_HOLDS_ALONE | 1) &&
                      (!needs_key || qr_block_has_key(&records[block])))) {
            holds[block] = 0;
            continue;
        }
        hold_alone(pool, blocks, i);
        return false;
    }
    return true;
}

/* Of the copies, mostly nobody has one but who made it; of what was copied, mostly somebody has. */
int qr_pool_leave_same(quire_pool *pool, quire_pool *other, const uint32_t *from,
                       const uint32_t *to, uint32_t n)
{
    uint32_t num_cached = 0;
    uint32_t num_others_cached = 0;
    qr_queue_joining mine = qr_queue_join_begin(&pool->queue);
    qr_queue_joining theirs = qr_queue_join_begin(&other->queue);
    bool are_alone = n > 0 && pool->queue.wanted == NULL && release_alone(pool, to, n);
    int err = are_alone ? QUIRE_OK : leave_row(pool, &mine, to, n, &num_cached);
    if (err != QUIRE_OK)
        return err;
    err = leave_row(other, &theirs, from, n, &num_others_cached);
    if (err != QUIRE_OK && are_alone)
        hold_alone(pool, to, n);
    for (uint32_t i = 0; err != QUIRE_OK && !are_alone && i < n; i++)
        qr_pool_unleave_hold(pool, &mine, to[i]);
    if (err != QUIRE_OK)
        return err;
    if (are_alone)
        num_cached = qr_queue_join_row(&pool->queue, &mine, to, n);
    qr_queue_join_end(&pool->queue, &mine);
    qr_queue_join_end(&other->queue, &theirs);
    pool->num_cached += num_cached;
    other->num_cached += num_others_cached;
    pool->num_held -= n;
    other->num_held -= n;
    qr_pool_publish(pool);
    qr_pool_publish(other);
    qr_assert_expensive(qr_pool_is_valid(pool) && qr_pool_is_valid(other));
    return QUIRE_OK;
}
