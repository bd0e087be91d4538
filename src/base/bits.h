/* base/bits.h - small things that every room needs: hints, unaligned loads, checked sizes. */
#ifndef QR_BASE_BITS_H
#define QR_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define QR_LIKELY(x)   __builtin_expect(!!(x), 1)
#define QR_NOINLINE    __attribute__((noinline))
#define QR_INLINE      __attribute__((always_inline))
#define QR_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* A constant that says how much is done at a time: a look-ahead, a batch, a portion, a page. The
 * hostile build uses the small value, so that the small worlds of tests pass every edge of it. */
#ifdef QUIRE_HOSTILE
#define QR_AT_A_TIME(usual, hostile) (hostile)
#else
#define QR_AT_A_TIME(usual, hostile) (usual)
#endif

/* No block, no element: the id that nothing has. */
#define QR_NIL UINT32_MAX

/* Asks for the line of an address that will be used soon. An address outside all memory is
 * harmless. The empty instruction stays: to gcc a function that does nothing but fetch does
 * nothing, and calls of it are dropped. QUIRE_NO_PREFETCH leaves all of it out: then two objects
 * that differ in prefetches alone are the same (tools/mutate). */
static inline void qr_prefetch(const void *address)
{
#ifdef QUIRE_NO_PREFETCH
    (void)address;
#else
    __builtin_prefetch(address, 0, 3);
    __asm__ volatile("");
#endif
}

static inline void qr_prefetch_write(const void *address)
{
#ifdef QUIRE_NO_PREFETCH
    (void)address;
#else
    __builtin_prefetch(address, 1, 3);
    __asm__ volatile("");
#endif
}

static inline uint64_t qr_load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void qr_store_u64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline uint32_t qr_load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void qr_store_u32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

/* Everything that Quire runs on is little-endian. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "encoders and keys assume little-endian");

static inline uint64_t qr_be_u64(uint64_t v)
{
    return __builtin_bswap64(v);
}

static inline bool qr_is_pow2(uint64_t v)
{
    return v != 0 && (v & (v - 1)) == 0;
}

/* The least power of two that is not below v; v is at most 2^63. */
static inline uint64_t qr_round_up_pow2(uint64_t v)
{
    return v <= 1 ? 1 : UINT64_C(1) << (64 - __builtin_clzll(v - 1));
}

/* A row of bits, in words. */
static inline size_t qr_bit_words(uint32_t num_bits)
{
    return ((size_t)num_bits + 63) / 64;
}

static inline bool qr_bit_get(const uint64_t *bits, uint32_t i)
{
    return (bits[i >> 6] >> (i & 63) & 1) != 0;
}

static inline void qr_bit_set(uint64_t *bits, uint32_t i)
{
    bits[i >> 6] |= UINT64_C(1) << (i & 63);
}

static inline void qr_bit_clear(uint64_t *bits, uint32_t i)
{
    bits[i >> 6] &= ~(UINT64_C(1) << (i & 63));
}

/* The greatest common divisor; of 0 and b it is b. */
static inline uint64_t qr_gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* a + b and a x b, saturating at SIZE_MAX, which no allocator can give. */
static inline size_t qr_add_size(size_t a, size_t b)
{
    size_t r;
    return __builtin_add_overflow(a, b, &r) ? SIZE_MAX : r;
}

static inline size_t qr_mul_size(size_t a, size_t b)
{
    size_t r;
    return __builtin_mul_overflow(a, b, &r) ? SIZE_MAX : r;
}

#endif
