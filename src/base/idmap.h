/* base/idmap.h - from a caller's id (a u64 or a string) to a number of ours, for instance a
 * request's slot.
 *
 *      "req-17" --> index --> 3        keys[3] = "req-17": a value names its own place for the key
 *
 * The key of value v is copied to place v, so the map never points into a caller's memory, and
 * there is nothing to allocate: values are 0 .. max_entries - 1, each in use at most once.
 *
 *      one value, one key;  find(key of v) = v for every v in the map
 */
#ifndef QR_BASE_IDMAP_H
#define QR_BASE_IDMAP_H

#include "base/arena.h"
#include "base/buckets.h"

typedef struct qr_idmap {
    qr_buckets index; /* of value + 1, since the index cannot hold 0 */
    unsigned char *keys;
    uint32_t *key_lens; /* 0: value not in the map; else length + 1 */
    uint32_t max_entries;
    uint32_t max_key_len;
} qr_idmap;

void qr_idmap_carve(qr_idmap *map, qr_arena *arena, uint32_t max_entries, uint32_t max_key_len);
void qr_idmap_init(qr_idmap *map, uint64_t secret0, uint64_t secret1);

/* QUIRE_OK; QUIRE_E_RANGE for a value or a length out of range; QUIRE_E_ARGUMENT when the key or
 * the value is already there. */
int qr_idmap_insert(qr_idmap *map, const void *key, uint32_t len, uint32_t value);
/* The value, else QR_NIL. */
uint32_t qr_idmap_find(const qr_idmap *map, const void *key, uint32_t len);
/* Takes out a value; false when it is not there. */
bool qr_idmap_remove(qr_idmap *map, uint32_t value);

/* The key of a value that is in the map. */
static inline const void *qr_idmap_key(const qr_idmap *map, uint32_t value)
{
    return map->keys + (size_t)value * map->max_key_len;
}

#endif
