/* base/arena.h - plan, carve, seal.
 *
 *      plan                          carve                           seal
 *      base NULL: only counts        base given: hands out pieces    no more pieces
 *
 *      |<- 64 ->|                    +-------+---------+------------+-----------+
 *      used grows, nothing is        | pool  | records | keys       | index     |
 *      touched                       +-------+---------+------------+-----------+
 *                                    base    every piece starts at a multiple of 64
 *
 * A structure writes one function that takes its pieces from an arena, and runs it twice: on a
 * planning arena to learn the size, and on the real one to get the pointers. Plan and carve cannot
 * disagree.
 *
 *      used <= size; a piece lies wholly inside [base, base + used)
 */
#ifndef QR_BASE_ARENA_H
#define QR_BASE_ARENA_H

#include "base/bits.h"

#include <quire/memory.h>

/* The address sanitizer's builds leave a gap behind each piece. In memory of malloc's, neither the
 * gap nor the bytes that only fill up the last 64 of a piece may be touched: so an access past the
 * end of a piece is seen, though its neighbour lies in the same memory. */
#ifdef __SANITIZE_ADDRESS__
enum { QR_ARENA_GAP = QUIRE_ALIGNMENT };
#else
enum { QR_ARENA_GAP = 0 };
#endif

typedef struct qr_arena {
    unsigned char *base; /* NULL while planning */
    size_t size;
    size_t used; /* SIZE_MAX once a plan has overflowed */
    bool sealed;
    bool has_gaps; /* that may not be touched */
    bool is_zero;  /* what it hands out is all zero, and was perhaps never touched */
} qr_arena;

/* For counting: every take returns NULL, and used tells the size at the end. */
qr_arena qr_arena_plan(void);

/* Over memory of a planned size, aligned to QUIRE_ALIGNMENT. The hostile build fills it with a
 * pattern first, so that nobody can rely on zeros. */
qr_arena qr_arena_carve(void *memory, size_t size);
/* The same where what the memory holds counts: zeros. */
qr_arena qr_arena_over(void *memory, size_t size);

/* count elements of size bytes, aligned to QUIRE_ALIGNMENT; not initialised. */
void *qr_arena_take(qr_arena *arena, size_t count, size_t size);

/* Ends the carving; a later take is a bug of the library's. */
void qr_arena_seal(qr_arena *arena);

/* What a creation asks of memory that the caller owns: QUIRE_OK, QUIRE_E_TOO_SMALL or
 * QUIRE_E_ALIGNMENT; QUIRE_E_OVERFLOW when needed is 0, a plan larger than memory can be. */
int qr_arena_fits(const void *memory, size_t bytes, size_t needed);

#endif
