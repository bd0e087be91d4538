/* tier/slots_index.h - from keys to nodes, by open addressing; the keys live with their owner.
 *
 *      tag = 32 bits of a keyed hash of the 40 bytes         home(tag) = tag x capacity >> 32
 *
 *      entries   [ .. | 3f 7 | 40 2 | 40 9 | 41 5 | .. | .. ]      8 bytes each: tag, node + 1
 *                              home   +1     +2
 *
 * Equal tags need not be equal keys: the owner compares. Linear probing; a removal moves later
 * entries back instead of leaving a mark. A quarter is used, so that most searches end where they
 * begin: the processor guesses wrongly at each step of the others. The hash has a secret: hashes of
 * blocks may be chosen by those who write prompts, and must not be aimed at one place.
 *
 *      used <= capacity / 4;  between an entry's home and its place there is no empty one
 */
#ifndef QR_TIER_SLOTS_INDEX_H
#define QR_TIER_SLOTS_INDEX_H

#include "base/bits.h"

#include <quire/tier.h>

_Static_assert(sizeof(quire_tier_key) == 40, "a key is five words, without padding");

typedef struct qr_slots_entry {
    uint32_t tag;
    uint32_t node_plus_1; /* 0: empty */
} qr_slots_entry;

typedef struct qr_slots_index {
    qr_slots_entry *entries;
    uint32_t capacity;
    uint32_t used;
    uint64_t secret[2];
} qr_slots_index;

/* How many entries so many nodes need. */
uint32_t qr_slots_index_capacity(uint64_t max_nodes);
/* Over memory for capacity entries, all zero: empty. */
void qr_slots_index_init(qr_slots_index *index, void *memory, uint32_t capacity,
                         const uint64_t secret[2]);
uint32_t qr_slots_index_tag(const qr_slots_index *index, const quire_tier_key *key);
/* Adds a node that is not in it. */
void qr_slots_index_insert(qr_slots_index *index, uint32_t tag, uint32_t node);
/* Takes out a node that is there under this tag. */
void qr_slots_index_remove(qr_slots_index *index, uint32_t tag, uint32_t node);
/* Whether every entry can be reached from its home; O(capacity). */
bool qr_slots_index_is_valid(const qr_slots_index *index);

static inline uint32_t qr_slots_index_home(const qr_slots_index *index, uint32_t tag)
{
    return (uint32_t)(((uint64_t)tag * index->capacity) >> 32);
}

static inline uint32_t qr_slots_index_after(const qr_slots_index *index, uint32_t at)
{
    return QR_UNLIKELY(at + 1 == index->capacity) ? 0 : at + 1;
}

#endif
