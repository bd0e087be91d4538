/* tier/core/key.h - keys in tables of this library: equal or not, and a number to place them by. */
#ifndef QR_TIER_CORE_KEY_H
#define QR_TIER_CORE_KEY_H

#include <quire/tier.h>

#include "base/bits.h"

/* Compared and hashed as bytes. */
_Static_assert(sizeof(quire_tier_key) == QUIRE_TIER_HASH_BYTES + 8, "a key has no padding");

/* Five words at once: there is mostly one comparison in a search, and it is mostly true. */
static inline bool qr_key_is_equal(const quire_tier_key *a, const quire_tier_key *b)
{
    uint64_t x[5];
    uint64_t y[5];
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4])) == 0;
}

/* Where the key goes in a table. The seed is the table's secret: a hash is no secret where requests
 * choose their tokens and the algorithm is fast, and long chains would slow down a step. */
static inline uint64_t qr_key_place(const quire_tier_key *key, uint64_t seed)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t place = seed;
    for (size_t i = 0; i < sizeof *key; i += 8) {
        place ^= qr_load_u64(bytes + i);
        place *= UINT64_C(0x9e3779b97f4a7c15);
        place ^= place >> 29 ^ seed;
    }
    place *= UINT64_C(0xbf58476d1ce4e5b9);
    return place ^ place >> 32;
}

/* As quire_tier_key_of, for the usual lengths at once; key is there. */
static inline void qr_key_make(quire_bytes hash, uint32_t group, uint32_t rank, quire_tier_key *key)
{
    enum { HALF = QUIRE_TIER_HASH_BYTES / 2 };
    if (QR_LIKELY(hash.len == HALF && hash.data != NULL)) {
        memcpy(key->hash, hash.data, HALF);
        memset(key->hash + HALF, 0, HALF);
    } else if (QR_LIKELY(hash.len == QUIRE_TIER_HASH_BYTES && hash.data != NULL)) {
        memcpy(key->hash, hash.data, QUIRE_TIER_HASH_BYTES);
    } else {
        quire_tier_key_of(hash, group, rank, key);
        return;
    }
    key->group = group;
    key->rank = rank;
}

#endif
