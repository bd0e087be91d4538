#include "tier/core/piece.h"

#include "base/bits.h"
#include "base/memory.h"

void *qr_piece_take(qr_piece *piece, const quire_allocator *allocator, size_t bytes)
{
    *piece = (qr_piece){.bytes = bytes};
    if (allocator != NULL) {
        piece->allocator = *allocator;
        piece->memory = allocator->alloc(allocator->user, bytes, QUIRE_ALIGNMENT);
        return piece->memory == NULL ? NULL : memset(piece->memory, 0, bytes);
    }
    piece->bytes = qr_add_size(bytes, QUIRE_ALIGNMENT);
    piece->memory = qr_alloc_large(piece->bytes);
    if (piece->memory == NULL)
        return NULL;
    size_t beyond = (uintptr_t)piece->memory % QUIRE_ALIGNMENT;
    return (unsigned char *)piece->memory + (beyond == 0 ? 0 : QUIRE_ALIGNMENT - beyond);
}

void qr_piece_release(const qr_piece *piece)
{
    qr_piece own = *piece; /* it may lie in there */
    if (own.allocator.alloc == NULL)
        qr_free(own.memory);
    else
        own.allocator.free(own.allocator.user, own.memory, own.bytes, QUIRE_ALIGNMENT);
}
