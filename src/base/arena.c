#include "base/arena.h"

#include "base/assert.h"

#include <quire/error.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
int __sanitizer_get_ownership(const volatile void *memory); /* gcc has no header for it */
#define is_from_heap(memory) (__sanitizer_get_ownership(memory) != 0)
#else
#define is_from_heap(memory)                       ((void)(memory), false)
#define ASAN_POISON_MEMORY_REGION(memory, bytes)   ((void)(memory), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#endif

qr_arena qr_arena_plan(void)
{
    return (qr_arena){.base = NULL, .size = SIZE_MAX, .used = 0, .sealed = false};
}

qr_arena qr_arena_over(void *memory, size_t size)
{
    qr_assert((uintptr_t)memory % QUIRE_ALIGNMENT == 0);
    ASAN_UNPOISON_MEMORY_REGION(memory, size); /* where an arena was before */
    return (qr_arena){
        .base = memory, .size = size, .used = 0, .sealed = false, .has_gaps = is_from_heap(memory)};
}

qr_arena qr_arena_carve(void *memory, size_t size)
{
    qr_arena arena = qr_arena_over(memory, size);
#ifdef QUIRE_HOSTILE
    memset(memory, 0xa5, size);
#endif
    return arena;
}

void *qr_arena_take(qr_arena *arena, size_t count, size_t size)
{
    qr_assert(!arena->sealed);
    size_t bytes = qr_mul_size(count, size);
    size_t padded = qr_add_size(bytes, QUIRE_ALIGNMENT - 1);
    padded = padded == SIZE_MAX ? SIZE_MAX : padded & ~(size_t)(QUIRE_ALIGNMENT - 1);
    size_t start = arena->used;
    arena->used = qr_add_size(start, qr_add_size(padded, QR_ARENA_GAP));
    if (arena->base == NULL)
        return NULL;
    qr_assert(arena->used <= arena->size);
    if (arena->has_gaps)
        ASAN_POISON_MEMORY_REGION(arena->base + start + bytes, padded - bytes + QR_ARENA_GAP);
    return arena->base + start;
}

void qr_arena_seal(qr_arena *arena)
{
    arena->sealed = true;
}

int qr_arena_fits(const void *memory, size_t bytes, size_t needed)
{
    if (needed == 0)
        return QUIRE_E_OVERFLOW;
    if ((uintptr_t)memory % QUIRE_ALIGNMENT != 0)
        return QUIRE_E_ALIGNMENT;
    return bytes < needed ? QUIRE_E_TOO_SMALL : QUIRE_OK;
}
