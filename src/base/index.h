/* base/index.h - an index from 32-bit tags to ids, by open addressing; the keys live with their
 * owner.
 *
 *      tag 0x40.. ----+         home(tag) = tag x capacity >> 32: tags in order lie in order
 *                     v
 *      slots   [ .. | 3f 7 | 40 2 | 40 9 | 41 5 | .. | .. ]      8 bytes each: tag, id
 *                            home   +1     +2
 *
 * A tag is 32 bits of a keyed hash of the real key. Equal tags need not be equal keys: the owner
 * compares. An id is in at most one slot. Id 0 marks an empty slot, so id 0 cannot be stored.
 *
 * Linear probing; a removal moves later entries back instead of leaving a mark, so a table that has
 * run for a year is as fast as a new one. At most half of the slots are used.
 *
 *      used <= capacity / 2;  between an entry's home and its slot there is no empty slot
 */
#ifndef QR_BASE_INDEX_H
#define QR_BASE_INDEX_H

#include "base/arena.h"
#include "base/assert.h"
#include "base/tag.h"

typedef struct qr_slot {
    uint32_t tag;
    uint32_t id; /* 0: empty */
} qr_slot;

typedef struct qr_index {
    qr_slot *slots;
    uint32_t capacity;
    uint32_t used;
    uint64_t secret[2]; /* keys the hash, so that nobody outside can aim at one slot */
} qr_index;

/* Takes the memory for max_entries entries. */
void qr_index_carve(qr_index *index, qr_arena *arena, uint32_t max_entries);
/* Empties it; the secret is drawn by the owner. */
void qr_index_init(qr_index *index, uint64_t secret0, uint64_t secret1);
void qr_index_clear(qr_index *index);

static inline uint32_t qr_index_home(const qr_index *index, uint32_t tag)
{
    return (uint32_t)(((uint64_t)tag * index->capacity) >> 32);
}

static inline uint32_t qr_index_after(const qr_index *index, uint32_t slot)
{
    return QR_UNLIKELY(slot + 1 == index->capacity) ? 0 : slot + 1;
}

static inline uint32_t qr_index_tag(const qr_index *index, uint64_t a, uint64_t b)
{
    return qr_tag_mix(index->secret, a, b);
}

/* Adds an id that is not in the index. */
void qr_index_insert(qr_index *index, uint32_t tag, uint32_t id);
/* The slot of an id that is in the index under this tag, else QR_NIL. */
uint32_t qr_index_find_id(const qr_index *index, uint32_t tag, uint32_t id);
/* Empties a used slot and closes the gap. */
void qr_index_remove_at(qr_index *index, uint32_t slot);
/* Checks that every entry can be reached from its home; O(capacity). */
bool qr_index_is_valid(const qr_index *index);

#endif
