/* tier/core/crc32c.c - CRC32C near the speed of memory.
 *
 *      |  lane a  |  lane b  |  lane c  |  lane a  | ...  | rest, in one lane |
 *
 * The instruction takes one step a cycle, but its result only after two or three: three lanes at
 * once keep it busy. A lane is as good as zeros behind it, so that
 *
 *      crc(a b c) = (crc(a) * x^(bits of b) + crc(b)) * x^(bits of c) + crc(c)
 *
 * in polynomials modulo P. The powers are constants of the three lengths that lanes have.
 */
#include <quire/tier.h>

#include "base/bits.h"
#include "tier/core/crc32c.h"

/* P, lowest power first: bit 31 is x^0. */
#define POLYNOMIAL UINT32_C(0x82f63b78)

/* ---- by a table ------------------------------------------------------------ */

/* A CRC is linear: the entry of a byte is made of the entries of its bits. */
#define ENTRY_BIT(n, bit, entry) (((n) >> (bit)&1) != 0 ? UINT32_C(entry) : 0)
#define ENTRY(n)                                                                                   \
    (ENTRY_BIT(n, 0, 0xf26b8303) ^ ENTRY_BIT(n, 1, 0xe13b70f7) ^ ENTRY_BIT(n, 2, 0xc79a971f) ^     \
     ENTRY_BIT(n, 3, 0x8ad958cf) ^ ENTRY_BIT(n, 4, 0x105ec76f) ^ ENTRY_BIT(n, 5, 0x20bd8ede) ^     \
     ENTRY_BIT(n, 6, 0x417b1dbc) ^ ENTRY_BIT(n, 7, 0x82f63b78))
#define ENTRIES_4(n)  ENTRY(n), ENTRY((n) + 1), ENTRY((n) + 2), ENTRY((n) + 3)
#define ENTRIES_16(n) ENTRIES_4(n), ENTRIES_4((n) + 4), ENTRIES_4((n) + 8), ENTRIES_4((n) + 12)
#define ENTRIES_64(n)                                                                              \
    ENTRIES_16(n), ENTRIES_16((n) + 16), ENTRIES_16((n) + 32), ENTRIES_16((n) + 48)

static const uint32_t TABLE[256] = {ENTRIES_64(0), ENTRIES_64(64), ENTRIES_64(128),
                                    ENTRIES_64(192)};

uint32_t qr_crc32c_plain(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t state = ~crc;
    for (size_t i = 0; i < bytes; i++)
        state = state >> 8 ^ TABLE[(state ^ at[i]) & 0xff];
    return ~state;
}

uint32_t qr_crc32c_copy_plain(void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
    return qr_crc32c_plain(0, from, bytes);
}

/* ---- by the instruction ---------------------------------------------------- */

#if defined(__x86_64__)
#include <nmmintrin.h>

#define WITH_INSTRUCTION __attribute__((target("sse4.2")))

bool qr_crc32c_has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

WITH_INSTRUCTION static inline uint64_t take_8(uint64_t state, uint64_t word)
{
    return _mm_crc32_u64(state, word);
}

WITH_INSTRUCTION static inline uint64_t take_1(uint64_t state, unsigned char byte)
{
    return _mm_crc32_u8((uint32_t)state, byte);
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

#define WITH_INSTRUCTION
enum { HWCAP_BIT_CRC32 = 1 << 7 };

bool qr_crc32c_has_instruction(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_BIT_CRC32) != 0;
}

/* In assembly: compilers offer the instruction only where all of the program may use it. */
static inline uint64_t take_8(uint64_t state, uint64_t word)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
    return state;
}

static inline uint64_t take_1(uint64_t state, unsigned char byte)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"((uint32_t)byte));
    return state;
}

#else
#define NO_INSTRUCTION
#endif

#ifdef NO_INSTRUCTION

bool qr_crc32c_has_instruction(void)
{
    return false;
}

uint32_t qr_crc32c_fast(uint32_t crc, const void *data, size_t bytes)
{
    return qr_crc32c_plain(crc, data, bytes);
}

static uint32_t copy_fast(unsigned char *to, const unsigned char *from, size_t bytes)
{
    return qr_crc32c_copy_plain(to, from, bytes);
}

#else

/* Bytes of a lane. */
#define LONG_LANE   ((size_t)8192)
#define MIDDLE_LANE ((size_t)2048)
#define SHORT_LANE  ((size_t)512)
#define LINE        ((size_t)64)

/* What each bit of a CRC becomes behind so many bytes: x^(8 * bytes + 31 - bit) modulo P. */
static const uint32_t BEHIND_LONG[32] = {
    0xe040e0ac, 0xc56db7a9, 0x8f3719a3, 0x1b8245b7, 0x37048b6e, 0x6e0916dc, 0xdc122db8, 0xbdc82d81,
    0x7e7c2df3, 0xfcf85be6, 0xfc1cc13d, 0xfdd5f48b, 0xfe479fe7, 0xf963493f, 0xf72ae48f, 0xebb9bfef,
    0xd29f092f, 0xa0d264af, 0x4448bfaf, 0x88917f5e, 0x14ce884d, 0x299d109a, 0x533a2134, 0xa6744268,
    0x4904f221, 0x9209e442, 0x21ffbe75, 0x43ff7cea, 0x87fef9d4, 0x0a118559, 0x14230ab2, 0x28461564};
static const uint32_t BEHIND_MIDDLE[32] = {
    0xf7506984, 0xeb4ca5f9, 0xd3753d03, 0xa3060cf7, 0x43e06f1f, 0x87c0de3e, 0x0a6dca8d, 0x14db951a,
    0x29b72a34, 0x536e5468, 0xa6dca8d0, 0x48552751, 0x90aa4ea2, 0x24b8ebb5, 0x4971d76a, 0x92e3aed4,
    0x202b2b59, 0x405656b2, 0x80acad64, 0x04b52c39, 0x096a5872, 0x12d4b0e4, 0x25a961c8, 0x4b52c390,
    0x96a58720, 0x28a778b1, 0x514ef162, 0xa29de2c4, 0x40d7b379, 0x81af66f2, 0x06b2bb15, 0x0d65762a};
static const uint32_t BEHIND_SHORT[32] = {
    0xbd6f81f8, 0x7f337501, 0xfe66ea02, 0xf921a2f5, 0xf7af331b, 0xeab210c7, 0xd088577f, 0xa4fcd80f,
    0x4c15c6ef, 0x982b8dde, 0x35bb6d4d, 0x6b76da9a, 0xd6edb534, 0xa8371c99, 0x55824fc3, 0xab049f86,
    0x53e549fd, 0xa7ca93fa, 0x4a795105, 0x94f2a20a, 0x2c0932e5, 0x581265ca, 0xb024cb94, 0x65a5e1d9,
    0xcb4bc3b2, 0x937bf195, 0x231b95db, 0x46372bb6, 0x8c6e576c, 0x1d30d829, 0x3a61b052, 0x74c360a4};

/* In 64 bits, though the upper half is always 0: each step would begin with a cut otherwise. */
typedef struct crc_lanes {
    uint64_t a;
    uint64_t b;
    uint64_t c;
} crc_lanes;

/* A CRC behind the bytes of a lane. No step waits for the one before. */
static inline uint32_t put_behind(uint32_t crc, const uint32_t behind[32])
{
    uint32_t moved = 0;
    for (uint32_t i = 0; i < 32; i++)
        moved ^= behind[i] & (0U - (crc >> i & 1U));
    return moved;
}

/* A line of each lane. */
WITH_INSTRUCTION static inline crc_lanes take_lines(crc_lanes s, const unsigned char *from,
                                                    size_t lane)
{
    for (size_t i = 0; i < LINE; i += 8) {
        s.a = take_8(s.a, qr_load_u64(from + i));
        s.b = take_8(s.b, qr_load_u64(from + lane + i));
        s.c = take_8(s.c, qr_load_u64(from + 2 * lane + i));
    }
    return s;
}

static inline uint64_t join_lanes(crc_lanes s, const uint32_t behind[32])
{
    return put_behind(put_behind((uint32_t)s.a, behind) ^ (uint32_t)s.b, behind) ^ s.c;
}

WITH_INSTRUCTION static inline uint64_t take_lanes(uint64_t state, const unsigned char *from,
                                                   size_t lane, const uint32_t behind[32])
{
    crc_lanes s = {.a = state};
    for (size_t i = 0; i < lane; i += LINE)
        s = take_lines(s, from + i, lane);
    return join_lanes(s, behind);
}

WITH_INSTRUCTION static inline uint64_t take_rest(uint64_t state, const unsigned char *from,
                                                  size_t bytes)
{
    for (; bytes >= 8; bytes -= 8, from += 8)
        state = take_8(state, qr_load_u64(from));
    for (; bytes > 0; bytes--, from++)
        state = take_1(state, *from);
    return state;
}

WITH_INSTRUCTION uint32_t qr_crc32c_fast(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    uint64_t state = ~crc;
    for (; bytes >= 3 * LONG_LANE; bytes -= 3 * LONG_LANE, from += 3 * LONG_LANE)
        state = take_lanes(state, from, LONG_LANE, BEHIND_LONG);
    for (; bytes >= 3 * MIDDLE_LANE; bytes -= 3 * MIDDLE_LANE, from += 3 * MIDDLE_LANE)
        state = take_lanes(state, from, MIDDLE_LANE, BEHIND_MIDDLE);
    for (; bytes >= 3 * SHORT_LANE; bytes -= 3 * SHORT_LANE, from += 3 * SHORT_LANE)
        state = take_lanes(state, from, SHORT_LANE, BEHIND_SHORT);
    return ~(uint32_t)take_rest(state, from, bytes);
}

/* ---- and copied ------------------------------------------------------------ */

#if defined(__x86_64__)

#define CHUNK (3 * LONG_LANE)

/* A line of the cache, past the caches: whoever reads a slot next is a disk or a network, and the
 * line need not be read before it is written. */
static inline void pass_line(unsigned char *to, const unsigned char *from)
{
    for (size_t i = 0; i < LINE; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

/* As take_lanes; each line is copied while it is near. */
WITH_INSTRUCTION static inline uint64_t copy_lanes(uint64_t state, unsigned char *to,
                                                   const unsigned char *from)
{
    crc_lanes s = {.a = state};
    for (size_t i = 0; i < LONG_LANE; i += LINE) {
        s = take_lines(s, from + i, LONG_LANE);
        pass_line(to + i, from + i);
        pass_line(to + LONG_LANE + i, from + LONG_LANE + i);
        pass_line(to + 2 * LONG_LANE + i, from + 2 * LONG_LANE + i);
    }
    return join_lanes(s, BEHIND_LONG);
}

WITH_INSTRUCTION static uint64_t copy_chunks(uint64_t state, unsigned char *to,
                                             const unsigned char *from, size_t num_chunks)
{
    for (; num_chunks > 0; num_chunks--, to += CHUNK, from += CHUNK)
        state = copy_lanes(state, to, from);
    _mm_sfence(); /* such lines come in no order otherwise */
    return state;
}

static inline bool can_copy_chunks(const unsigned char *to)
{
    return (uintptr_t)to % 16 == 0;
}

#else

#define CHUNK (3 * MIDDLE_LANE)

/* Three lines of a chunk, from its first to its last: the processor sees that whole lines are
 * written in a row, and does not read them before. */
static inline void copy_lines(unsigned char *to, const unsigned char *from)
{
    memcpy(to, from, LINE);
    memcpy(to + LINE, from + LINE, LINE);
    memcpy(to + 2 * LINE, from + 2 * LINE, LINE);
}

/* A chunk is copied while the lanes of the one before, which is near still, are taken. */
WITH_INSTRUCTION static uint64_t copy_chunks(uint64_t state, unsigned char *to,
                                             const unsigned char *from, size_t num_chunks)
{
    if (num_chunks == 0)
        return state;
    memcpy(to, from, CHUNK);
    for (; num_chunks > 1; num_chunks--, to += CHUNK, from += CHUNK) {
        crc_lanes s = {.a = state};
        for (size_t i = 0; i < MIDDLE_LANE; i += LINE) {
            s = take_lines(s, from + i, MIDDLE_LANE);
            copy_lines(to + CHUNK + 3 * i, from + CHUNK + 3 * i);
        }
        state = join_lanes(s, BEHIND_MIDDLE);
    }
    return take_lanes(state, from, MIDDLE_LANE, BEHIND_MIDDLE);
}

static inline bool can_copy_chunks(const unsigned char *to)
{
    (void)to;
    return true;
}

#endif

WITH_INSTRUCTION static uint32_t copy_fast(unsigned char *to, const unsigned char *from,
                                           size_t bytes)
{
    uint64_t state = ~UINT32_C(0);
    if (can_copy_chunks(to)) {
        size_t num_chunks = bytes / CHUNK;
        state = copy_chunks(state, to, from, num_chunks);
        to += num_chunks * CHUNK;
        from += num_chunks * CHUNK;
        bytes %= CHUNK;
    }
    if (bytes > 0)
        memcpy(to, from, bytes);
    return qr_crc32c_fast(~(uint32_t)state, from, bytes);
}

#endif

uint32_t qr_crc32c_copy(void *to, const void *from, size_t bytes)
{
    return qr_crc32c_has_instruction() ? copy_fast(to, from, bytes)
                                       : qr_crc32c_copy_plain(to, from, bytes);
}

QUIRE_API uint32_t quire_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return qr_crc32c_has_instruction() ? qr_crc32c_fast(crc, data, bytes)
                                       : qr_crc32c_plain(crc, data, bytes);
}
