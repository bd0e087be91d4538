/* tier/slots/index.h - from keys to nodes, in buckets of one cache line (base/buckets.h); the keys
 * live with their owner.
 *
 *      key ── tag ──► bucket | marks | entries |    id = node + 1
 *             32 bits of a keyed hash of the 40 bytes
 *
 * Equal tags need not be equal keys: the owner compares. The hash has a secret: hashes of blocks
 * may be chosen by those who write prompts, and must not be aimed at one place.
 */
#ifndef QR_TIER_SLOTS_INDEX_H
#define QR_TIER_SLOTS_INDEX_H

#include "base/buckets.h"

#include <quire/tier.h>

/* Adds a node that is not in it. */
static inline void qr_slots_index_insert(qr_buckets *index, uint32_t tag, uint32_t node)
{
    qr_buckets_insert(index, tag, node + 1);
}

/* Takes out a node that is there under this tag. */
static inline void qr_slots_index_remove(qr_buckets *index, uint32_t tag, uint32_t node)
{
    qr_buckets_remove(index, tag, node + 1);
}

static inline uint64_t qr_fold_words(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint32_t qr_slots_index_tag(const qr_buckets *index, const quire_tier_key *key)
{
    uint64_t w[5];
    memcpy(w, key, sizeof w);
    uint64_t a = index->secret[0];
    uint64_t b = index->secret[1];
    uint64_t h = qr_fold_words(w[0] ^ a, w[1] ^ b) ^ qr_fold_words(w[2] ^ b, w[3] ^ ~a);
    return qr_tag_fold(qr_fold_words(h ^ a, w[4] ^ ~b));
}

static inline qr_bucket *qr_slots_index_home(const qr_buckets *index, uint32_t tag)
{
    return &index->all[qr_buckets_home(index, tag)];
}

/* The nodes that may have a tag, one after the other:
 *      qr_buckets_search s = qr_buckets_search_begin(index, tag);
 *      while ((node = qr_slots_search_next(&s)) != QR_NIL) ... */
static inline uint32_t qr_slots_search_next(qr_buckets_search *s)
{
    return qr_buckets_search_next(s) - 1;
}

/* For walkers: how far from its home a node is that is there under this tag. */
static inline uint32_t qr_slots_index_distance(const qr_buckets *index, uint32_t tag, uint32_t node)
{
    uint64_t place = qr_buckets_find_id(index, tag, node + 1);
    return place == QR_NO_PLACE ? 0 : qr_buckets_distance(index, tag, place);
}

#endif
