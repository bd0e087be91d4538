#include "base/memory.h"

#include <quire/error.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* From this size on, memory is aligned to huge pages and the kernel is asked for them: a pool of
 * millions of blocks is looked up at random, and would otherwise miss the TLB at every step. */
static const size_t HUGE_PAGE_BYTES = (size_t)2 << 20;

static size_t round_up_size(size_t bytes, size_t alignment)
{
    return bytes > SIZE_MAX - alignment ? SIZE_MAX : (bytes + alignment - 1) & ~(alignment - 1);
}

static void *default_alloc(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    if (bytes < 2 * HUGE_PAGE_BYTES)
        return aligned_alloc(alignment, round_up_size(bytes, alignment));
    void *memory = aligned_alloc(HUGE_PAGE_BYTES, round_up_size(bytes, HUGE_PAGE_BYTES));
#ifdef MADV_HUGEPAGE
    if (memory != NULL)
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* advice: without it, slower but right */
#endif
    return memory;
}

static void default_free(void *user, void *memory, size_t bytes, size_t alignment)
{
    (void)user;
    (void)bytes;
    (void)alignment;
    free(memory);
}

quire_allocator qr_allocator_default(void)
{
    return (quire_allocator){.user = NULL, .alloc = default_alloc, .free = default_free};
}

int qr_owner_take(qr_owner *owner, const quire_allocator *allocator, size_t bytes)
{
    if (bytes == 0) /* what _bytes gives for a plan that is larger than memory can be */
        return QUIRE_E_OVERFLOW;
    if (allocator != NULL && (allocator->alloc == NULL || allocator->free == NULL))
        return QUIRE_E_ARGUMENT;
    owner->allocator = allocator != NULL ? *allocator : qr_allocator_default();
    owner->bytes = bytes;
    owner->memory = owner->allocator.alloc(owner->allocator.user, bytes, QUIRE_ALIGNMENT);
    return owner->memory == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
}

void qr_owner_release(const qr_owner *owner)
{
    qr_owner copy = *owner; /* the original goes with the memory */
    if (copy.memory != NULL)
        copy.allocator.free(copy.allocator.user, copy.memory, copy.bytes, QUIRE_ALIGNMENT);
}

void qr_memory_wipe(void *memory, size_t bytes)
{
    explicit_bzero(memory, bytes);
}
