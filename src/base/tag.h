/* base/tag.h - 32 bits of a keyed hash of a key: what an index finds it by. */
#ifndef QR_BASE_TAG_H
#define QR_BASE_TAG_H

#include "base/bits.h"

/* A tag of 64 bits of a hash. The hostile build keeps 6 of them, so that every chain is long and
 * every comparison happens: 4 for the place, and 2 that indexes may look at besides. */
static inline uint32_t qr_tag_fold(uint64_t hash)
{
#ifdef QUIRE_HOSTILE
    return (uint32_t)(hash >> 60) << 28 | (uint32_t)(hash & 0x101);
#else
    return (uint32_t)(hash >> 32) ^ (uint32_t)hash;
#endif
}

/* Mixes two words with a secret into a tag. */
static inline uint32_t qr_tag_mix(const uint64_t secret[2], uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)(a ^ secret[0]) * (unsigned __int128)(b ^ secret[1]);
    return qr_tag_fold((uint64_t)p ^ (uint64_t)(p >> 64));
}

#endif
