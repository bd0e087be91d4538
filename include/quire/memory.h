/* quire/memory.h - where a handle takes its memory from.
 *
 * A handle takes all of its memory at creation, in one piece, and no memory later:
 *
 *      plan    quire_pool_bytes(cfg)           computes the number of bytes from the config
 *      carve   quire_pool_create_in(mem, ...)  builds the handle in memory that the caller owns
 *      seal    from here on the handle does not allocate, lock or make system calls
 *
 * quire_pool_create(cfg, allocator, &pool) does all three with exactly one allocation.
 * quire_pool_destroy returns this memory to the same allocator. The other handles of libquire have
 * the same functions.
 *
 *      call         condition                                     returns
 *      _bytes       the config is invalid, or the size exceeds    0
 *                   a size_t
 *      _create,     the config is invalid                         QUIRE_E_CONFIG; quire_refusal
 *      _create_in                                                 names the field
 *                   the size exceeds a size_t                     QUIRE_E_OVERFLOW
 *                   a required pointer is NULL                    QUIRE_E_ARGUMENT
 *      _create      the allocator returns NULL                    QUIRE_E_NOMEM
 *      _create_in   the memory is not aligned to QUIRE_ALIGNMENT  QUIRE_E_ALIGNMENT
 *                   the memory is smaller than _bytes says        QUIRE_E_TOO_SMALL
 *
 * If a creation fails, no memory stays allocated, and the pointer to the handle is not written.
 * Memory that was given to _create_in belongs to the caller: the caller may free the memory after
 * _destroy.
 */
#ifndef QUIRE_MEMORY_H
#define QUIRE_MEMORY_H

#include "version.h"

#include <stddef.h>

/* Memory given to a _create_in call must have this alignment. */
#define QUIRE_ALIGNMENT 64

/* The caller's allocator. alloc returns NULL if there is no memory; the bytes need not be zero.
 * free gets the same bytes and alignment that alloc got. _create calls alloc and _destroy calls
 * free, on the thread that calls _create or _destroy; a _create that fails after its allocation
 * calls free too.
 *
 * If the allocator is NULL, the C library's allocator is used, and large handles ask the kernel for
 * huge pages. If alloc or free is NULL, _create returns QUIRE_E_ARGUMENT. */
typedef struct quire_allocator {
    void *user;
    void *(*alloc)(void *user, size_t bytes, size_t alignment);
    void (*free)(void *user, void *memory, size_t bytes, size_t alignment);
} quire_allocator;

#endif
