/* parity/stream.h - numbers that both languages draw: splitmix64, tokens of a class, digests.
 *
 * A recording names a class and a seed instead of listing tokens. recorder.py has the same, and
 * README.md the table of classes.
 */
#ifndef PARITY_STREAM_H
#define PARITY_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t stream_next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* count bytes, each word little-endian; what is left of the last word is dropped. */
static inline void stream_bytes(uint64_t *state, unsigned char *out, size_t count)
{
    for (size_t i = 0; i < count; i += 8) {
        uint64_t word = stream_next(state);
        for (size_t byte = i; byte < count && byte < i + 8; byte++, word >>= 8)
            out[byte] = (unsigned char)word;
    }
}

/* The stand-in for a block hash. */
static inline void stream_digest(uint32_t family, uint32_t depth, unsigned char *out, size_t size)
{
    uint64_t state = (uint64_t)family << 32 | depth;
    stream_bytes(&state, out, size);
}

/* The values at which an encoding of integers changes its form; the first NUM_EDGES fit 32 bits. */
enum { NUM_EDGES = 28, NUM_WIDE_EDGES = 46 };
static const int64_t stream_edges[NUM_WIDE_EDGES] = {0,
                                                     1,
                                                     23,
                                                     24,
                                                     127,
                                                     128,
                                                     255,
                                                     256,
                                                     32767,
                                                     32768,
                                                     65535,
                                                     65536,
                                                     16777216,
                                                     2147483647,
                                                     -1,
                                                     -2,
                                                     -24,
                                                     -25,
                                                     -128,
                                                     -129,
                                                     -255,
                                                     -256,
                                                     -257,
                                                     -32768,
                                                     -32769,
                                                     -65536,
                                                     -65537,
                                                     INT32_MIN,
                                                     2147483648,
                                                     4294967295,
                                                     4294967296,
                                                     549755813887,
                                                     549755813888,
                                                     INT64_C(1) << 47,
                                                     (INT64_C(1) << 55) - 1,
                                                     INT64_C(1) << 55,
                                                     INT64_C(1) << 62,
                                                     INT64_MAX,
                                                     -2147483649,
                                                     -4294967296,
                                                     -4294967297,
                                                     -(INT64_C(1) << 39),
                                                     -(INT64_C(1) << 39) - 1,
                                                     -(INT64_C(1) << 55),
                                                     -(INT64_C(1) << 62),
                                                     INT64_MIN};

static inline int64_t stream_token(char kind, uint64_t x)
{
    switch (kind) {
    case 'b':
        return (int64_t)(x & 0xff);
    case 'h':
        return (int64_t)(x & 0xffff);
    case 'w':
        return (int64_t)(x & 0x7fffffff);
    case 's':
        return (int64_t)((x & 0xffffffff) ^ 0x80000000) - INT64_C(0x80000000);
    case 'm': {
        int64_t value = (int64_t)((x & 0x7fffffff) >> ((x >> 32) & 31));
        return ((x >> 40) & 7) == 0 ? -1 - value : value;
    }
    case 'e':
        return stream_edges[x % NUM_EDGES];
    case 'l': {
        int64_t value = (int64_t)((x >> 1) >> (x & 63));
        return ((x >> 6) & 1) != 0 ? -1 - value : value;
    }
    case 'E':
        return stream_edges[x % NUM_WIDE_EDGES];
    default: /* 'z' */
        return 0;
    }
}

#endif
