/* quire/memory.h - where a handle's memory comes from.
 *
 * A handle takes all of its memory when it is created, in one piece, and never again:
 *
 *      plan    quire_pool_bytes(cfg)           how much, computed from the config
 *      carve   quire_pool_create_in(mem, ...)  build it inside memory that the caller owns
 *      seal    from here on the handle does not allocate, lock or call the system
 *
 * quire_pool_create(cfg, allocator, &pool) does the three in one call, with exactly one allocation,
 * which quire_pool_destroy gives back to the same allocator.
 *
 * _bytes gives 0 for a config that is not valid (then the create calls return QUIRE_E_CONFIG) or
 * whose size does not fit in a size_t (QUIRE_E_OVERFLOW).
 */
#ifndef QUIRE_MEMORY_H
#define QUIRE_MEMORY_H

#include "version.h"

#include <stddef.h>

/* Memory given to a _create_in call must have this alignment. */
#define QUIRE_ALIGNMENT 64

/* The caller's allocator. alloc returns NULL when there is no memory; the bytes need not be zero.
 * free gets the same bytes and alignment as alloc did. Both are called only by _create and
 * _destroy, on the thread that calls those. Wherever an allocator is asked for, NULL means the C
 * library's, with huge pages asked for where a handle is large; one of the two functions alone is
 * QUIRE_E_ARGUMENT. */
typedef struct quire_allocator {
    void *user;
    void *(*alloc)(void *user, size_t bytes, size_t alignment);
    void (*free)(void *user, void *memory, size_t bytes, size_t alignment);
} quire_allocator;

#endif
