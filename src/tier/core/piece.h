/* tier/core/piece.h - the one piece of memory in which a handle lies, and where it came from. */
#ifndef QR_TIER_CORE_PIECE_H
#define QR_TIER_CORE_PIECE_H

#include <quire/memory.h>

typedef struct qr_piece {
    quire_allocator allocator; /* alloc is NULL: the library's own */
    void *memory;
    size_t bytes;
} qr_piece;

/* Zeroed and aligned to QUIRE_ALIGNMENT; NULL when there is none. piece is what release wants; it
 * may lie in the memory itself. */
void *qr_piece_take(qr_piece *piece, const quire_allocator *allocator, size_t bytes);
void qr_piece_release(const qr_piece *piece);

#endif
