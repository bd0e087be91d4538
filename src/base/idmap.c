#include "base/idmap.h"

#include <quire/error.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void qr_idmap_carve(qr_idmap *map, qr_arena *arena, uint32_t max_entries, uint32_t max_key_len)
{
    map->max_entries = max_entries;
    map->max_key_len = max_key_len;
    qr_buckets_carve(&map->index, arena, max_entries);
    map->keys = qr_arena_take(arena, max_entries, max_key_len);
    map->key_lens = qr_arena_take(arena, max_entries, sizeof *map->key_lens);
}

void qr_idmap_init(qr_idmap *map, uint64_t secret0, uint64_t secret1)
{
    qr_buckets_init(&map->index, map->max_entries, (const uint64_t[]){secret0, secret1});
    qr_buckets_clear(&map->index);
    memset(map->key_lens, 0, (size_t)map->max_entries * sizeof *map->key_lens);
}

static uint32_t key_tag(const qr_idmap *map, const void *key, uint32_t len)
{
    if (len == sizeof(uint64_t))
        return qr_buckets_tag(&map->index, qr_load_u64(key), len);
    XXH128_hash_t h = XXH3_128bits_withSeed(key, len, map->index.secret[0]);
    return qr_buckets_tag(&map->index, h.low64, h.high64);
}

static unsigned char *key_of(const qr_idmap *map, uint32_t value)
{
    return map->keys + (size_t)value * map->max_key_len;
}

uint32_t qr_idmap_find(const qr_idmap *map, const void *key, uint32_t len)
{
    qr_buckets_search search = qr_buckets_search_begin(&map->index, key_tag(map, key, len));
    uint32_t id;
    while ((id = qr_buckets_search_next(&search)) != 0)
        if (map->key_lens[id - 1] == len + 1 && memcmp(key_of(map, id - 1), key, len) == 0)
            return id - 1;
    return QR_NIL;
}

int qr_idmap_insert(qr_idmap *map, const void *key, uint32_t len, uint32_t value)
{
    if (value >= map->max_entries || len > map->max_key_len)
        return QUIRE_E_RANGE;
    if (map->key_lens[value] != 0 || qr_idmap_find(map, key, len) != QR_NIL)
        return QUIRE_E_ARGUMENT;
    memcpy(key_of(map, value), key, len);
    map->key_lens[value] = len + 1;
    qr_buckets_insert(&map->index, key_tag(map, key, len), value + 1);
    return QUIRE_OK;
}

bool qr_idmap_remove(qr_idmap *map, uint32_t value)
{
    if (value >= map->max_entries || map->key_lens[value] == 0)
        return false;
    uint32_t tag = key_tag(map, key_of(map, value), map->key_lens[value] - 1);
    qr_buckets_remove(&map->index, tag, value + 1);
    map->key_lens[value] = 0;
    return true;
}
