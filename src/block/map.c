#include "block/map.h"

#include "base/assert.h"

/* How many keys of a run are looked up together. */
enum { FIRST_BATCH = QR_AT_A_TIME(4, 1), MAX_BATCH = QR_AT_A_TIME(64, 2) };

void qr_map_carve(qr_map *map, qr_arena *arena, uint32_t num_blocks, uint32_t stride)
{
    map->num_blocks = num_blocks;
    map->stride = stride;
    qr_buckets_carve(&map->index, arena, num_blocks);
    if (stride > QR_BLOCK_HASH_BYTES)
        map->long_hashes = qr_arena_take(arena, num_blocks, stride);
}

void qr_map_init(qr_map *map, qr_block *blocks, bool is_fresh, const uint64_t secret[2])
{
    map->blocks = blocks;
    qr_buckets_init(&map->index, map->num_blocks, secret);
    if (!is_fresh)
        qr_buckets_clear(&map->index);
}

/* The whole search, apart, since the first look nearly always is enough. */
uint32_t qr_map_find_anywhere(const qr_map *map, qr_key key, uint32_t tag)
{
    qr_buckets_search search = qr_buckets_search_begin(&map->index, tag);
    uint32_t block;
    do
        block = qr_buckets_search_next(&search);
    while (block != 0 && !qr_map_has_key(map, block, key));
    return block;
}

QR_NOINLINE uint32_t qr_map_get(const qr_map *map, qr_key key)
{
    return qr_map_find_tagged(map, key, qr_map_tag(map, key));
}

static inline qr_key key_after(qr_key first, uint32_t i)
{
    return (qr_key){first.hash + (size_t)i * first.len, first.len, first.group_id};
}

/* The tags of n keys; asks for their buckets. */
static void tag_keys(const qr_map *map, qr_key first, uint32_t n, uint32_t *tags)
{
    for (uint32_t i = 0; i < n; i++) {
        tags[i] = qr_map_tag(map, key_after(first, i));
        qr_prefetch(qr_map_home(map, tags[i]));
    }
}

/* The block that each tag's home shows first, 0 where it shows none; asks for their records. */
static void find_candidates(const qr_map *map, uint32_t n, const uint32_t *tags, uint32_t *blocks)
{
    for (uint32_t i = 0; i < n; i++) {
        blocks[i] = qr_map_candidate(map, tags[i]);
        qr_prefetch(qr_map_hash_of(map, blocks[i]));
    }
}

/* A lookup waits twice for memory: for the bucket, then for the record that it names. So keys are
 * looked up in batches that wait together. Returns how many of them hit. */
static uint32_t get_batch(const qr_map *map, qr_key first, uint32_t n, uint32_t *blocks)
{
    uint32_t tags[MAX_BATCH];
    tag_keys(map, first, n, tags);
    find_candidates(map, n, tags, blocks);
    for (uint32_t i = 0; i < n; i++) {
        qr_key key = key_after(first, i);
        if (QR_UNLIKELY(!qr_map_has_key(map, blocks[i], key)))
            blocks[i] = qr_map_find_anywhere(map, key, tags[i]);
        if (blocks[i] == 0)
            return i;
    }
    return n;
}

/* Blocks that were cached together often lie one behind the other, forwards or backwards: what the
 * next one would be is looked at, and the index is not asked. Returns how many keys have hit so. */
static uint32_t get_neighbours(const qr_map *map, qr_key first, uint32_t count, uint32_t *out,
                               uint32_t out_stride)
{
    enum { AHEAD = QR_AT_A_TIME(8, 1) };
    uint32_t before = *(out - out_stride);
    uint32_t step = before - *(out - 2 * (size_t)out_stride);
    if (step != 1 && step != UINT32_MAX)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t block = before + step;
        if (block >= map->num_blocks || !map->blocks[block].is_first ||
            !qr_map_has_key(map, block, key_after(first, i)))
            return i;
        if (block + AHEAD * step < map->num_blocks)
            qr_prefetch(&map->blocks[block + AHEAD * step]);
        out[(size_t)i * out_stride] = before = block;
    }
    return count;
}

/* The first batches are small: most prompts miss early, and what is fetched behind the miss is
 * wasted. */
uint32_t qr_map_get_run(const qr_map *map, qr_key first, uint32_t count, uint32_t *out,
                        uint32_t out_stride)
{
    uint32_t blocks[MAX_BATCH];
    uint32_t batch = FIRST_BATCH;
    for (uint32_t done = 0; done < count;) {
        uint32_t n = count - done < batch ? count - done : batch;
        uint32_t num_hit = get_batch(map, key_after(first, done), n, blocks);
        for (uint32_t i = 0; i < num_hit; i++)
            out[(size_t)(done + i) * out_stride] = blocks[i];
        done += num_hit;
        if (num_hit < n)
            return done;
        uint32_t num_beside = 0;
        if (n > 1 && done < count)
            num_beside = get_neighbours(map, key_after(first, done), count - done,
                                        out + (size_t)done * out_stride, out_stride);
        done += num_beside;
        if (num_beside > 0)
            batch = FIRST_BATCH; /* it finds where they go on */
        else
            batch = batch < MAX_BATCH ? batch * 2 : MAX_BATCH;
    }
    return count;
}

void qr_map_get_each(const qr_map *map, qr_key first, uint32_t n, uint32_t *out)
{
    uint32_t tags[MAX_BATCH];
    for (uint32_t done = 0; done < n;) {
        uint32_t batch = n - done < MAX_BATCH ? n - done : MAX_BATCH;
        tag_keys(map, key_after(first, done), batch, tags);
        find_candidates(map, batch, tags, out + done);
        for (uint32_t i = 0; i < batch; i++, done++) {
            qr_key key = key_after(first, done);
            if (!qr_map_has_key(map, out[done], key))
                out[done] = qr_map_find_anywhere(map, key, tags[i]);
        }
    }
}

static inline void insert_tagged(qr_map *map, qr_key key, uint32_t tag, uint32_t block)
{
    qr_map_insert_after(map, key, tag, block, qr_map_find_tagged(map, key, tag));
}

void qr_map_insert(qr_map *map, qr_key key, uint32_t block)
{
    insert_tagged(map, key, qr_map_tag(map, key), block);
}

/* Inserts wait for memory as lookups do, and are batched as they are. */
void qr_map_insert_run(qr_map *map, qr_key first, const uint32_t *blocks, uint32_t n)
{
    uint32_t tags[MAX_BATCH];
    if (n == 1 && blocks[0] != QUIRE_NULL_BLOCK) {
        qr_map_insert(map, first, blocks[0]);
        return;
    }
    for (uint32_t done = 0; done < n;) {
        uint32_t batch = n - done < MAX_BATCH ? n - done : MAX_BATCH;
        qr_key key = key_after(first, done);
        for (uint32_t i = 0; i < batch; i++) {
            tags[i] = qr_map_tag(map, key_after(key, i));
            qr_prefetch_write(qr_map_home(map, tags[i]));
            qr_prefetch_write(&map->blocks[blocks[done + i]]);
        }
        for (uint32_t i = 0; i < batch; i++, done++)
            if (blocks[done] != QUIRE_NULL_BLOCK)
                insert_tagged(map, key_after(key, i), tags[i], blocks[done]);
    }
}

bool qr_map_remove(qr_map *map, uint32_t block)
{
    qr_block *b = &map->blocks[block];
    qr_assert(qr_block_has_key(b));
    uint32_t next = b->dup_next;
    bool alone = next == block;
    if (b->is_first && alone) {
        qr_buckets_remove(&map->index, b->tag, block);
    } else if (b->is_first) {
        uint64_t place = qr_buckets_find_id(&map->index, b->tag, block);
        qr_assert(place != QR_NO_PLACE);
        *qr_buckets_at(&map->index, place) = qr_buckets_entry(&map->index, b->tag, next);
        map->blocks[next].is_first = true;
    }
    map->blocks[b->dup_prev].dup_next = next;
    map->blocks[next].dup_prev = b->dup_prev;
    b->key_units = 0;
    b->is_first = false;
    return !alone;
}

void qr_map_clear(qr_map *map)
{
    qr_buckets_clear(&map->index);
    for (uint32_t b = 0; b < map->num_blocks; b++) {
        map->blocks[b].key_units = 0;
        map->blocks[b].is_first = false;
    }
}

/* Every id in the buckets and every length of a key can be used without reading past an array: what
 * the checks below rely on. */
static bool map_is_readable(const qr_map *map)
{
    for (uint32_t at = 0; at < map->index.count; at++)
        for (uint32_t place = 0; place < QR_BUCKET_PLACES; place++)
            if ((map->index.all[at].entries[place] & map->index.id_mask) >= map->num_blocks)
                return false;
    for (uint32_t block = 0; block < map->num_blocks; block++)
        if (qr_block_key_len(&map->blocks[block]) > map->stride)
            return false;
    return true;
}

/* The ring of one key, walked from its first block: says how many, 0 when something is wrong. */
static uint32_t ring_length(const qr_map *map, uint32_t first)
{
    const qr_block *blocks = map->blocks;
    qr_key key = {qr_map_hash_of(map, first), qr_block_key_len(&blocks[first]),
                  blocks[first].group_id};
    uint32_t length = 0;
    uint32_t block = first;
    do {
        const qr_block *b = &blocks[block];
        if (b->dup_next >= map->num_blocks || !qr_map_has_key(map, block, key) ||
            b->tag != blocks[first].tag || blocks[b->dup_next].dup_prev != block ||
            ++length > map->num_blocks)
            return 0;
        block = b->dup_next;
    } while (block != first);
    return length;
}

bool qr_map_is_valid(const qr_map *map)
{
    uint64_t sum_passed;
    if (!map_is_readable(map) || !qr_buckets_is_valid(&map->index, &sum_passed))
        return false;
    uint32_t with_key = 0;
    uint32_t in_rings = 0;
    uint32_t firsts = 0;
    uint64_t distances = 0;
    for (uint32_t block = 0; block < map->num_blocks; block++) {
        const qr_block *b = &map->blocks[block];
        if (!qr_block_has_key(b) && b->is_first)
            return false;
        with_key += qr_block_has_key(b);
        if (!b->is_first)
            continue;
        qr_key key = {qr_map_hash_of(map, block), qr_block_key_len(b), b->group_id};
        uint32_t length = ring_length(map, block);
        if (length == 0 || b->tag != qr_map_tag(map, key) || qr_map_get(map, key) != block)
            return false;
        uint64_t place = qr_buckets_find_id(&map->index, b->tag, block);
        distances += qr_buckets_distance(&map->index, b->tag, place);
        in_rings += length;
        firsts++;
    }
    return with_key == in_rings && firsts == map->index.used && distances == sum_passed;
}
