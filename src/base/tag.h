/* base/tag.h - 32 bits of a keyed hash of a key: what an index finds it by. */
#ifndef QR_BASE_TAG_H
#define QR_BASE_TAG_H

#include "base/bits.h"

/* Mixes two words with a secret into a tag. The hostile build keeps 4 bits of it, so that every
 * chain is long and every comparison happens. */
static inline uint32_t qr_tag_mix(const uint64_t secret[2], uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)(a ^ secret[0]) * (unsigned __int128)(b ^ secret[1]);
    uint64_t h = (uint64_t)p ^ (uint64_t)(p >> 64);
#ifdef QUIRE_HOSTILE
    return (uint32_t)(h >> 60) << 28;
#else
    return (uint32_t)(h >> 32) ^ (uint32_t)h;
#endif
}

#endif
