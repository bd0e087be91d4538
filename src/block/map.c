#include "block/map.h"

#include "base/assert.h"

/* How many keys of a run are looked up together. */
enum { FIRST_BATCH = 8, MAX_BATCH = 64 };

void qr_map_carve(qr_map *map, qr_arena *arena, uint32_t num_blocks, uint32_t stride)
{
    map->num_blocks = num_blocks;
    map->stride = stride;
    qr_index_carve(&map->index, arena, num_blocks);
    map->keys = qr_arena_take(arena, num_blocks, stride);
}

void qr_map_init(qr_map *map, qr_block *blocks, uint64_t secret0, uint64_t secret1)
{
    map->blocks = blocks;
    qr_index_init(&map->index, secret0, secret1);
}

/* From the end of the hash: joined hashes of different blocks may begin alike. */
static inline uint32_t map_tag(const qr_map *map, qr_key key)
{
    uint64_t group = (uint64_t)key.group_id << 32 | key.len;
    return qr_index_tag(&map->index, qr_load_u64(key.hash + key.len - 8),
                        qr_load_u64(key.hash + key.len - 16) ^ group);
}

static inline bool same_hash(const unsigned char *a, const unsigned char *b, uint32_t len)
{
    uint64_t differ = 0;
    for (uint32_t i = 0; i < len; i += QR_HASH_UNIT)
        differ |= (qr_load_u64(a + i) ^ qr_load_u64(b + i)) |
                  (qr_load_u64(a + i + 8) ^ qr_load_u64(b + i + 8));
    return differ == 0;
}

static inline void copy_hash(unsigned char *to, const unsigned char *from, uint32_t len)
{
    for (uint32_t i = 0; i < len; i += QR_HASH_UNIT)
        memcpy(to + i, from + i, QR_HASH_UNIT);
}

static inline bool has_key(const qr_map *map, uint32_t block, qr_key key)
{
    const qr_block *b = &map->blocks[block];
    return qr_block_key_len(b) == key.len && b->group_id == key.group_id &&
           same_hash(qr_map_hash_of(map, block), key.hash, key.len);
}

static inline uint32_t find_tagged(const qr_map *map, qr_key key, uint32_t tag)
{
    const qr_index *index = &map->index;
    uint32_t slot = qr_index_home(index, tag);
    for (; index->slots[slot].id != 0; slot = qr_index_after(index, slot))
        if (index->slots[slot].tag == tag && has_key(map, index->slots[slot].id, key))
            return index->slots[slot].id;
    return 0;
}

uint32_t qr_map_get(const qr_map *map, qr_key key)
{
    return find_tagged(map, key, map_tag(map, key));
}

static inline qr_key key_after(qr_key first, uint32_t i)
{
    return (qr_key){first.hash + (size_t)i * first.len, first.len, first.group_id};
}

/* The tags of n keys; asks for their slots. */
static void tag_keys(const qr_map *map, qr_key first, uint32_t n, uint32_t *tags)
{
    for (uint32_t i = 0; i < n; i++) {
        tags[i] = map_tag(map, key_after(first, i));
        qr_prefetch(&map->index.slots[qr_index_home(&map->index, tags[i])]);
    }
}

/* Asks for the record and the key of the block that stands at each tag's home. */
static void fetch_candidates(const qr_map *map, uint32_t n, const uint32_t *tags)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t candidate = map->index.slots[qr_index_home(&map->index, tags[i])].id;
        qr_prefetch(&map->blocks[candidate]);
        qr_prefetch(qr_map_hash_of(map, candidate));
    }
}

/* A lookup waits twice for memory: for the slot, then for the key of the block that stands there.
 * So keys are looked up in batches that wait together. The first batches are small: most prompts
 * miss early, and what is fetched behind the miss is wasted. */
uint32_t qr_map_get_run(const qr_map *map, qr_key first, uint32_t count, uint32_t *out,
                        uint32_t out_stride)
{
    uint32_t tags[MAX_BATCH];
    uint32_t batch = FIRST_BATCH;
    for (uint32_t done = 0; done < count;) {
        uint32_t n = count - done < batch ? count - done : batch;
        tag_keys(map, key_after(first, done), n, tags);
        fetch_candidates(map, n, tags);
        for (uint32_t i = 0; i < n; i++, done++) {
            uint32_t block = find_tagged(map, key_after(first, done), tags[i]);
            if (block == 0)
                return done;
            out[(size_t)done * out_stride] = block;
        }
        batch = batch < MAX_BATCH ? batch * 2 : MAX_BATCH;
    }
    return count;
}

static void insert_tagged(qr_map *map, qr_key key, uint32_t tag, uint32_t block)
{
    qr_index *index = &map->index;
    qr_block *b = &map->blocks[block];
    qr_assert(block != 0 && !qr_block_has_key(b));
    qr_assert(key.len > 0 && key.len <= map->stride && key.len % QR_HASH_UNIT == 0);
    uint32_t first = 0;
    uint32_t slot = qr_index_home(index, tag);
    for (; index->slots[slot].id != 0 && first == 0; slot = qr_index_after(index, slot))
        if (index->slots[slot].tag == tag && has_key(map, index->slots[slot].id, key))
            first = index->slots[slot].id;
    b->tag = tag;
    b->group_id = (uint16_t)key.group_id;
    b->key_units = (uint8_t)(key.len / QR_HASH_UNIT);
    b->is_first = first == 0;
    copy_hash(map->keys + (size_t)block * map->stride, key.hash, key.len);
    if (first == 0) {
        b->dup_next = b->dup_prev = block;
        qr_index_insert_at(index, slot, tag, block);
        return;
    }
    uint32_t last = map->blocks[first].dup_prev;
    b->dup_next = first;
    b->dup_prev = last;
    map->blocks[last].dup_next = block;
    map->blocks[first].dup_prev = block;
}

void qr_map_insert(qr_map *map, qr_key key, uint32_t block)
{
    insert_tagged(map, key, map_tag(map, key), block);
}

/* Inserts wait for memory as lookups do, and are batched as they are. */
void qr_map_insert_run(qr_map *map, qr_key first, const uint32_t *blocks, uint32_t n)
{
    uint32_t tags[MAX_BATCH];
    for (uint32_t done = 0; done < n;) {
        uint32_t batch = n - done < MAX_BATCH ? n - done : MAX_BATCH;
        qr_key key = key_after(first, done);
        for (uint32_t i = 0; i < batch; i++) {
            tags[i] = map_tag(map, key_after(key, i));
            qr_prefetch_write(&map->index.slots[qr_index_home(&map->index, tags[i])]);
            qr_prefetch_write(&map->blocks[blocks[done + i]]);
            qr_prefetch_write(qr_map_hash_of(map, blocks[done + i]));
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
    if (b->is_first) {
        uint32_t slot = qr_index_find_id(&map->index, b->tag, block);
        qr_assert(slot != QR_NIL);
        if (alone) {
            qr_index_remove_at(&map->index, slot);
        } else {
            map->index.slots[slot].id = next;
            map->blocks[next].is_first = true;
        }
    }
    map->blocks[b->dup_prev].dup_next = next;
    map->blocks[next].dup_prev = b->dup_prev;
    b->key_units = 0;
    b->is_first = false;
    return !alone;
}

void qr_map_clear(qr_map *map)
{
    qr_index_clear(&map->index);
    for (uint32_t b = 0; b < map->num_blocks; b++) {
        map->blocks[b].key_units = 0;
        map->blocks[b].is_first = false;
    }
}

/* Every id in the index and every length of a key can be used without reading past an array: what
 * the checks below rely on. */
static bool map_is_readable(const qr_map *map)
{
    for (uint32_t slot = 0; slot < map->index.capacity; slot++)
        if (map->index.slots[slot].id >= map->num_blocks)
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
        bool right_place = b->is_first == (block == first) && b->dup_next < map->num_blocks;
        if (!right_place || !has_key(map, block, key) || b->tag != blocks[first].tag ||
            blocks[b->dup_next].dup_prev != block || ++length > map->num_blocks)
            return 0;
        block = b->dup_next;
    } while (block != first);
    return length;
}

bool qr_map_is_valid(const qr_map *map)
{
    if (!map_is_readable(map) || !qr_index_is_valid(&map->index))
        return false;
    uint32_t with_key = 0;
    uint32_t in_rings = 0;
    uint32_t firsts = 0;
    for (uint32_t block = 0; block < map->num_blocks; block++) {
        const qr_block *b = &map->blocks[block];
        if (!qr_block_has_key(b) && b->is_first)
            return false;
        with_key += qr_block_has_key(b);
        if (!b->is_first)
            continue;
        qr_key key = {qr_map_hash_of(map, block), qr_block_key_len(b), b->group_id};
        uint32_t length = ring_length(map, block);
        if (length == 0 || b->tag != map_tag(map, key) || qr_map_get(map, key) != block)
            return false;
        in_rings += length;
        firsts++;
    }
    return with_key == in_rings && firsts == map->index.used;
}
