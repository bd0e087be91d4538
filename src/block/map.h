/* block/map.h - from key to block: the prefix cache's index.
 *
 *      key = hash bytes + group id
 *
 *      buckets         records, with the hashes of their keys
 *      [mark, id 7] --> 7 "c3 f1 ..." --dup--> 3 "c3 f1 ..." --dup--> 12 "c3 f1 ..."
 *                       first                  in the order cached
 *
 * Blocks of one key form a ring in the order in which they were cached; the first one is in the
 * buckets and is the one that is found. When it goes, the next takes its place.
 *
 *      a block is in exactly the ring of its key;  it has a key  <=>  it is in a ring
 *      is_first  <=>  its id is in a bucket;        num_keys = index.used
 */
#ifndef QR_BLOCK_MAP_H
#define QR_BLOCK_MAP_H

#include "base/arena.h"
#include "base/buckets.h"
#include "block/block.h"

typedef struct qr_map {
    qr_buckets index;
    qr_block *blocks;
    unsigned char *long_hashes; /* stride bytes for each block, where a record is too small */
    uint32_t num_blocks;
    uint32_t stride; /* most bytes of a hash; a multiple of QR_HASH_UNIT */
} qr_map;

/* len is a multiple of QR_HASH_UNIT and not 0. */
typedef struct qr_key {
    const unsigned char *hash;
    uint32_t len;
    uint32_t group_id;
} qr_key;

void qr_map_carve(qr_map *map, qr_arena *arena, uint32_t num_blocks, uint32_t stride);
/* is_fresh: the memory of its buckets is all zero. */
void qr_map_init(qr_map *map, qr_block *blocks, bool is_fresh, const uint64_t secret[2]);

/* The block that was cached first under this key, else 0 (the null block is never cached). */
uint32_t qr_map_get(const qr_map *map, qr_key key);
/* For each of count keys that lie len bytes apart: as get, up to the first miss; returns how many
 * hit. */
uint32_t qr_map_get_run(const qr_map *map, qr_key first, uint32_t count, uint32_t *out,
                        uint32_t out_stride);
/* Each of n keys, 0 where it is not there. */
void qr_map_get_each(const qr_map *map, qr_key first, uint32_t n, uint32_t *out);
/* Gives a block without a key this key, as the last of its ring. */
void qr_map_insert(qr_map *map, qr_key key, uint32_t block);
/* For n blocks and keys that lie len bytes apart; null blocks are passed over. */
void qr_map_insert_run(qr_map *map, qr_key first, const uint32_t *blocks, uint32_t n);
/* Takes the key from a block that has one; true when another block still has the same key. The
 * key's bytes stay in place until the block gets another. */
bool qr_map_remove(qr_map *map, uint32_t block);
/* Takes the keys from all blocks. */
void qr_map_clear(qr_map *map);

static inline unsigned char *qr_map_hash_of(const qr_map *map, uint32_t block)
{
    return QR_LIKELY(map->stride <= QR_BLOCK_HASH_BYTES)
               ? map->blocks[block].hash
               : map->long_hashes + (size_t)block * map->stride;
}

/* len 0: it has none. */
static inline qr_key qr_map_key_of(const qr_map *map, uint32_t block)
{
    const qr_block *b = &map->blocks[block];
    return (qr_key){qr_map_hash_of(map, block), qr_block_key_len(b), b->group_id};
}

static inline qr_bucket *qr_map_home(const qr_map *map, uint32_t tag)
{
    return &map->index.all[qr_buckets_home(&map->index, tag)];
}

/* Asks for what removing the block's key will touch. */
static inline void qr_map_prefetch_remove(const qr_map *map, uint32_t block)
{
    qr_prefetch_write(qr_map_home(map, map->blocks[block].tag));
}

bool qr_map_is_valid(const qr_map *map);

/* ---- with the tag of a key in hand -------------------------------------------- */

/* From the end of the hash: joined hashes of different blocks may begin alike. */
static inline uint32_t qr_map_tag(const qr_map *map, qr_key key)
{
    uint64_t group = (uint64_t)key.group_id << 32 | key.len;
    return qr_buckets_tag(&map->index, qr_load_u64(key.hash + key.len - 8),
                          qr_load_u64(key.hash + key.len - 16) ^ group);
}

/* Whether two units are different: not 0. */
static inline uint64_t qr_unit_differs(const unsigned char *a, const unsigned char *b)
{
    return (qr_load_u64(a) ^ qr_load_u64(b)) | (qr_load_u64(a + 8) ^ qr_load_u64(b + 8));
}

static inline bool qr_same_hash(const unsigned char *a, const unsigned char *b, uint32_t len)
{
    uint64_t differ = qr_unit_differs(a, b);
    if (QR_LIKELY(len == 2 * QR_HASH_UNIT)) /* no loop for the most usual length */
        return (differ | qr_unit_differs(a + QR_HASH_UNIT, b + QR_HASH_UNIT)) == 0;
    for (uint32_t i = QR_HASH_UNIT; i < len; i += QR_HASH_UNIT)
        differ |= qr_unit_differs(a + i, b + i);
    return differ == 0;
}

/* Unit by unit: for a length that it does not know the compiler makes a string instruction, which
 * takes longer than all the rest of an insertion. */
static inline void qr_copy_hash(unsigned char *to, const unsigned char *from, uint32_t len)
{
    memcpy(to, from, QR_HASH_UNIT);
    for (uint32_t i = QR_HASH_UNIT; i < len; i += QR_HASH_UNIT)
        memcpy(to + i, from + i, QR_HASH_UNIT);
}

static inline bool qr_map_has_key(const qr_map *map, uint32_t block, qr_key key)
{
    const qr_block *b = &map->blocks[block];
    return qr_block_key_len(b) == key.len && b->group_id == key.group_id &&
           qr_same_hash(qr_map_hash_of(map, block), key.hash, key.len);
}

/* The block that a tag's home shows first; 0 when it shows none. */
static inline uint32_t qr_map_candidate(const qr_map *map, uint32_t tag)
{
    return qr_bucket_first_id(qr_map_home(map, tag), map->index.id_mask, tag);
}

/* As get: where the first look is not enough. */
uint32_t qr_map_find_anywhere(const qr_map *map, qr_key key, uint32_t tag);

static inline uint32_t qr_map_find_tagged(const qr_map *map, qr_key key, uint32_t tag)
{
    uint32_t block = qr_map_candidate(map, tag);
    if (block == 0 && QR_LIKELY(!qr_bucket_has_passed(qr_map_home(map, tag), tag)))
        return 0;
    return QR_LIKELY(qr_map_has_key(map, block, key)) ? block : qr_map_find_anywhere(map, key, tag);
}

/* first: the block that has this key already, else 0. */
static inline void qr_map_insert_after(qr_map *map, qr_key key, uint32_t tag, uint32_t block,
                                       uint32_t first)
{
    qr_block *b = &map->blocks[block];
    qr_assert(block != 0 && !qr_block_has_key(b));
    qr_assert(key.len > 0 && key.len <= map->stride && key.len % QR_HASH_UNIT == 0);
    b->tag = tag;
    b->group_id = (uint16_t)key.group_id;
    b->key_units = (uint8_t)(key.len / QR_HASH_UNIT);
    b->is_first = first == 0;
    qr_copy_hash(qr_map_hash_of(map, block), key.hash, key.len);
    if (QR_LIKELY(first == 0)) {
        b->dup_next = b->dup_prev = block;
        qr_buckets_insert(&map->index, tag, block);
        return;
    }
    uint32_t last = map->blocks[first].dup_prev;
    b->dup_next = first;
    b->dup_prev = last;
    map->blocks[last].dup_next = block;
    map->blocks[first].dup_prev = block;
}

/* The record of a block that is in no ring and not in the index gets the key of another map's,
 * whose keys are in the records and have the same tags; it is the first with this key, and the
 * caller puts it into the index. */
static inline void qr_block_take_key(qr_block *b, uint32_t block, const qr_block *from)
{
    qr_assert_internal(block != 0 && !b->mark);
    b->tag = from->tag;
    b->group_id = from->group_id;
    b->key_units = from->key_units;
    b->is_first = true;
    b->mark = false; /* as it is: so that nothing has to be read */
    b->dup_next = b->dup_prev = block;
    memcpy(b->hash, from->hash, QR_BLOCK_HASH_BYTES);
}

#endif
