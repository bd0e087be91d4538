/* cli/trace/content.h - what a content number says, token by token. */
#ifndef QUIRE_CLI_TRACE_CONTENT_H
#define QUIRE_CLI_TRACE_CONTENT_H

#include <quire/config.h>

/* A content number that no other (kind, a, b) gives, so far as 64 bits allow. Readers turn a
 * trace's block ids, or "request 17, which says nothing of its content", into contents with it. */
static inline uint64_t content_of(uint64_t kind, uint64_t a, uint64_t b)
{
    uint64_t x = kind * UINT64_C(0x9e3779b97f4a7c15) ^ a;
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) + b * UINT64_C(0xa0761d6478bd642f);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

/* The next number of a row that looks random, and is the same in every run: splitmix64. */
static inline uint64_t content_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Tokens [first, first + n) of a content: a stride through 31 bits, so that two contents agree in
 * one place at most by chance. */
static inline void content_tokens(uint64_t content, uint32_t first, uint32_t n, quire_token *out)
{
    uint32_t stride = (uint32_t)(content >> 32) | 1;
    uint32_t token = (uint32_t)content + first * stride;
    for (uint32_t i = 0; i < n; i++, token += stride)
        out[i] = (quire_token)(token & UINT32_C(0x7fffffff));
}

#endif
