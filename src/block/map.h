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
void qr_map_init(qr_map *map, qr_block *blocks, uint64_t secret0, uint64_t secret1);

/* The block that was cached first under this key, else 0 (the null block is never cached). */
uint32_t qr_map_get(const qr_map *map, qr_key key);
/* For each of count keys that lie len bytes apart: as get, up to the first miss; returns how many
 * hit. */
uint32_t qr_map_get_run(const qr_map *map, qr_key first, uint32_t count, uint32_t *out,
                        uint32_t out_stride);
/* Gives a block without a key this key, as the last of its ring. */
void qr_map_insert(qr_map *map, qr_key key, uint32_t block);
/* For n blocks and keys that lie len bytes apart; null blocks are passed over. */
void qr_map_insert_run(qr_map *map, qr_key first, const uint32_t *blocks, uint32_t n);
/* For n blocks of another map: the block here with the same key, 0 where there is none, QR_NIL
 * where that one has no key. */
void qr_map_find_same(const qr_map *map, const qr_map *other, const uint32_t *others, uint32_t n,
                      uint32_t *out);
/* blocks[i] gets the key of others[i], if that has one. */
void qr_map_insert_same(qr_map *map, const uint32_t *blocks, const qr_map *other,
                        const uint32_t *others, uint32_t n);
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

#endif
