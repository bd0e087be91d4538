/* tier/crc32c.c - CRC32C near the speed of memory.
 *
 *      |  lane a  |  lane b  |  lane c  |  lane a  | ...  | rest, in one lane |
 *
 * The instruction takes one step a cycle, but its result only after two or three: three lanes at
 * once keep it busy. A lane is as good as zeros behind it, so that
 *
 *      crc(a b c) = crc(a) * x^(bits of b and c) + crc(b) * x^(bits of c) + crc(c)
 *
 * in polynomials modulo P. The powers are constants of the three lengths that lanes have.
 */
#include <quire/tier.h>

#include "base/bits.h"
#include "tier/crc32c.h"

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

static uint32_t copy_plain(unsigned char *to, const unsigned char *from, size_t bytes)
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
    return copy_plain(to, from, bytes);
}

#else

/* Bytes of a lane, x^(8 * bytes) and x^(16 * bytes) modulo P. */
#define LONG_LANE    ((size_t)8192)
#define MIDDLE_LANE  ((size_t)2048)
#define SHORT_LANE   ((size_t)512)
#define LINE         ((size_t)64)
#define LONG_ONCE    UINT32_C(0x28461564)
#define LONG_TWICE   UINT32_C(0xbf455269)
#define MIDDLE_ONCE  UINT32_C(0x0d65762a)
#define MIDDLE_TWICE UINT32_C(0x35d73a62)
#define SHORT_ONCE   UINT32_C(0x74c360a4)
#define SHORT_TWICE  UINT32_C(0xe4172b16)

/* In 64 bits, though the upper half is always 0: each step would begin with a cut otherwise. */
typedef struct crc_lanes {
    uint64_t a;
    uint64_t b;
    uint64_t c;
} crc_lanes;

/* a * b modulo P. */
static inline uint32_t crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 31; i >= 0; i--) {
        product ^= a & (0U - (b >> i & 1U));
        a = a >> 1 ^ (POLYNOMIAL & (0U - (a & 1U)));
    }
    return product;
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

static inline uint64_t join_lanes(crc_lanes s, uint32_t once, uint32_t twice)
{
    return crc_multiply((uint32_t)s.a, twice) ^ crc_multiply((uint32_t)s.b, once) ^ s.c;
}

WITH_INSTRUCTION static inline uint64_t take_lanes(uint64_t state, const unsigned char *from,
                                                   size_t lane, uint32_t once, uint32_t twice)
{
    crc_lanes s = {.a = state};
    for (size_t i = 0; i < lane; i += LINE)
        s = take_lines(s, from + i, lane);
    return join_lanes(s, once, twice);
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
        state = take_lanes(state, from, LONG_LANE, LONG_ONCE, LONG_TWICE);
    for (; bytes >= 3 * MIDDLE_LANE; bytes -= 3 * MIDDLE_LANE, from += 3 * MIDDLE_LANE)
        state = take_lanes(state, from, MIDDLE_LANE, MIDDLE_ONCE, MIDDLE_TWICE);
    for (; bytes >= 3 * SHORT_LANE; bytes -= 3 * SHORT_LANE, from += 3 * SHORT_LANE)
        state = take_lanes(state, from, SHORT_LANE, SHORT_ONCE, SHORT_TWICE);
    return ~(uint32_t)take_rest(state, from, bytes);
}

/* ---- and copied ------------------------------------------------------------ */

/* A line of the cache, past the caches where it is aligned: whoever reads a slot next is a disk or
 * a network, and the line need not be read before it is written. */
#if defined(__x86_64__)

static inline void pass_line(unsigned char *to, const unsigned char *from)
{
    for (size_t i = 0; i < LINE; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

static inline bool can_pass_lines(const unsigned char *to)
{
    return (uintptr_t)to % 16 == 0;
}

/* Such lines come in no order otherwise. */
static inline void end_of_lines(void)
{
    _mm_sfence();
}

#else

static inline void pass_line(unsigned char *to, const unsigned char *from)
{
    memcpy(to, from, LINE);
}

static inline bool can_pass_lines(const unsigned char *to)
{
    (void)to;
    return true;
}

static inline void end_of_lines(void)
{
}

#endif

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
    return join_lanes(s, LONG_ONCE, LONG_TWICE);
}

WITH_INSTRUCTION static uint32_t copy_fast(unsigned char *to, const unsigned char *from,
                                           size_t bytes)
{
    uint64_t state = ~UINT32_C(0);
    if (can_pass_lines(to)) {
        for (; bytes >= 3 * LONG_LANE;
             bytes -= 3 * LONG_LANE, to += 3 * LONG_LANE, from += 3 * LONG_LANE)
            state = copy_lanes(state, to, from);
        end_of_lines();
    }
    if (bytes > 0)
        memcpy(to, from, bytes);
    return qr_crc32c_fast(~(uint32_t)state, from, bytes);
}

#endif

uint32_t qr_crc32c_copy(void *to, const void *from, size_t bytes)
{
    return qr_crc32c_has_instruction() ? copy_fast(to, from, bytes) : copy_plain(to, from, bytes);
}

QUIRE_API uint32_t quire_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return qr_crc32c_has_instruction() ? qr_crc32c_fast(crc, data, bytes)
                                       : qr_crc32c_plain(crc, data, bytes);
}
