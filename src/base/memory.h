/* base/memory.h - the only place that asks the system for memory, so that tests can let it run out.
 *
 * The core takes one piece for each handle, when the handle is made. The libraries beside it take
 * memory when a tier, a publisher or a server is opened, and in threads of their own; never in a
 * step of the scheduler. */
#ifndef QR_BASE_MEMORY_H
#define QR_BASE_MEMORY_H

#include "base/arena.h"

#include <quire/memory.h>

/* The C library's, with huge pages asked for where the memory is large. */
quire_allocator qr_allocator_default(void);

/* Who gets a handle's memory back. It lives inside that memory; its allocator is all zero when the
 * caller owns the memory. */
typedef struct qr_owner {
    quire_allocator allocator;
    void *memory;
    size_t bytes;
} qr_owner;

/* One piece for one handle, from the caller's allocator or, when that is NULL, the C library's.
 * QUIRE_E_NOMEM; QUIRE_E_OVERFLOW for 0 and SIZE_MAX bytes; QUIRE_E_ARGUMENT for half an allocator;
 * and as qr_arena_fits for memory that the caller owns. */
int qr_owner_take(qr_owner *owner, const quire_allocator *allocator, size_t bytes);
/* The same, as an arena as large as the plan. */
int qr_owner_begin(qr_owner *owner, const quire_allocator *allocator, const qr_arena *plan,
                   qr_arena *arena);
/* The same, zeroed, and what was never used is never touched. The arena may begin later than
 * owner->memory. */
int qr_owner_begin_zeroed(qr_owner *owner, const quire_allocator *allocator, const qr_arena *plan,
                          qr_arena *arena);
/* The same as begin; a large piece from the system is zeroed, what was never used is never touched
 * there, and arena->is_zero says so. */
int qr_owner_begin_fresh(qr_owner *owner, const quire_allocator *allocator, const qr_arena *plan,
                         qr_arena *arena);
/* That alone; its base is NULL when there is no memory. */
qr_arena qr_owner_carve(qr_owner *owner, const quire_allocator *allocator, size_t bytes);
void qr_owner_release(const qr_owner *owner);

/* NULL when there is none, or for 0 bytes. The first is zeroed. */
void *qr_alloc(size_t count, size_t bytes);
void *qr_alloc_raw(size_t bytes);
/* Zeroed, for what is looked up at random: in huge pages where it is large, so that a step does not
 * miss the TLB. */
void *qr_alloc_large(size_t bytes);
/* The old memory stays when there is none. */
void *qr_realloc(void *memory, size_t bytes);
/* A copy of a text; NULL when there is none. */
char *qr_alloc_text(const char *text);
void qr_free(void *memory);

/* Pages of their own, zeroed; flags as mmap's, MAP_HUGETLB say. NULL when there are none. */
void *qr_pages_map(size_t bytes, int flags);
void qr_pages_unmap(void *memory, size_t bytes);

/* Overwrites memory in a way that the compiler does not remove, for secrets. */
void qr_memory_wipe(void *memory, size_t bytes);

#endif
