/* quire/memory.h - where a handle takes its memory from.
 *
 * A handle takes all of its memory at creation, in one piece, and no memory later:
 *
 *      plan    quire_pool_create(cfg, allocator, &pool) computes the number of bytes from cfg,
 *      carve   takes them once, and builds the pool there
 *      seal    from here on the handle does not allocate, lock or make system calls
 *
 * The allocator is NULL (the C library's allocator), a pair of functions, or one piece of memory
 * that the caller owns:
 *
 *      size_t bytes = quire_pool_bytes(&cfg);
 *      quire_allocator mine = quire_allocator_fixed(memory, bytes);
 *      quire_pool_create(&cfg, &mine, &pool);
 *
 * quire_pool_destroy returns the memory to the allocator. Memory that the caller owns stays with
 * the caller, who may free it after _destroy. The other handles have the same functions.
 *
 *      call      condition                                     returns
 *      _bytes    the config is invalid, or the size exceeds    0
 *                a size_t
 *      _create   the config is invalid                         QUIRE_E_CONFIG; quire_refusal names
 *                                                              the field
 *                the size exceeds a size_t                     QUIRE_E_OVERFLOW
 *                a required pointer is NULL                    QUIRE_E_ARGUMENT
 *                the allocator returns NULL                    QUIRE_E_NOMEM
 *                the memory is not aligned to QUIRE_ALIGNMENT  QUIRE_E_ALIGNMENT
 *                the memory is smaller than _bytes says        QUIRE_E_TOO_SMALL
 *
 * If a creation fails, no memory stays allocated, and the pointer to the handle is not written.
 */
#ifndef QUIRE_MEMORY_H
#define QUIRE_MEMORY_H

#include "version.h"

#include <stddef.h>

/* Memory that a handle is built in must have this alignment. */
#define QUIRE_ALIGNMENT 64

/* The caller's allocator. alloc returns NULL if there is no memory; the bytes need not be zero.
 * free gets the same bytes and alignment that alloc got. _create calls alloc and _destroy calls
 * free, on the thread that calls _create or _destroy; a _create that fails after its allocation
 * calls free too.
 *
 * If memory is not NULL, the handle is built there, and alloc and free are not called. If memory is
 * NULL, and alloc or free is NULL too, _create returns QUIRE_E_ARGUMENT.
 *
 * If the allocator is NULL, the C library's allocator is used, and large handles ask the kernel for
 * huge pages. */
typedef struct quire_allocator { /* final */
    void *user;
    void *(*alloc)(void *user, size_t bytes, size_t alignment);
    void (*free)(void *user, void *memory, size_t bytes, size_t alignment);
    void *memory; /* for one handle at a time */
    size_t bytes; /* of memory */
} quire_allocator;

/* An allocator for one handle: a piece of memory that the caller owns. */
static inline quire_allocator quire_allocator_fixed(void *memory, size_t bytes)
{
    quire_allocator fixed = {NULL, NULL, NULL, memory, bytes};
    return fixed;
}

/* An allocator that has no memory, and writes to *bytes how much _create asks for: the functions
 * _bytes use it. */
static inline void *quire_allocator_note_bytes(void *user, size_t bytes, size_t alignment)
{
    (void)alignment;
    *(size_t *)user = bytes;
    return NULL;
}
static inline void quire_allocator_free_nothing(void *user, void *memory, size_t bytes,
                                                size_t alignment)
{
    (void)user, (void)memory, (void)bytes, (void)alignment;
}
static inline quire_allocator quire_allocator_measure(size_t *bytes)
{
    quire_allocator measure = {bytes, quire_allocator_note_bytes, quire_allocator_free_nothing,
                               NULL, 0};
    return measure;
}

#endif
