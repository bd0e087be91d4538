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

static void advise_huge(void *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* advice: without it, slower but right */
#else
    (void)memory;
    (void)bytes;
#endif
}

static void *default_alloc(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    if (bytes < 2 * HUGE_PAGE_BYTES)
        return aligned_alloc(alignment, round_up_size(bytes, alignment));
    void *memory = aligned_alloc(HUGE_PAGE_BYTES, round_up_size(bytes, HUGE_PAGE_BYTES));
    if (memory != NULL)
        advise_huge(memory, bytes);
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
    if (bytes == 0 || bytes == SIZE_MAX) /* a plan that is larger than memory can be */
        return QUIRE_E_OVERFLOW;
    if (allocator != NULL && allocator->memory != NULL) {
        *owner = (qr_owner){.memory = allocator->memory, .bytes = bytes};
        return qr_arena_fits(allocator->memory, allocator->bytes, bytes);
    }
    if (allocator != NULL && (allocator->alloc == NULL || allocator->free == NULL))
        return QUIRE_E_ARGUMENT;
    owner->allocator = allocator != NULL ? *allocator : qr_allocator_default();
    owner->bytes = bytes;
    owner->memory = owner->allocator.alloc(owner->allocator.user, bytes, QUIRE_ALIGNMENT);
    return owner->memory == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
}

int qr_owner_begin(qr_owner *owner, const quire_allocator *allocator, const qr_arena *plan,
                   qr_arena *arena)
{
    int err = qr_owner_take(owner, allocator, plan->used);
    if (err == QUIRE_OK)
        *arena = qr_arena_carve(owner->memory, owner->bytes);
    return err;
}

int qr_owner_begin_zeroed(qr_owner *owner, const quire_allocator *allocator, const qr_arena *plan,
                          qr_arena *arena)
{
    size_t bytes = plan->used;
    if (allocator != NULL || bytes == 0 || bytes == SIZE_MAX) {
        int err = qr_owner_take(owner, allocator, bytes);
        if (err == QUIRE_OK)
            *arena = qr_arena_over(memset(owner->memory, 0, bytes), bytes);
        return err;
    }
    *owner = (qr_owner){.allocator = qr_allocator_default(),
                        .bytes = qr_add_size(bytes, QUIRE_ALIGNMENT)};
    owner->memory = qr_alloc_large(owner->bytes);
    if (owner->memory == NULL)
        return QUIRE_E_NOMEM;
    size_t beyond = (uintptr_t)owner->memory % QUIRE_ALIGNMENT;
    unsigned char *first = owner->memory;
    *arena = qr_arena_over(first + (beyond == 0 ? 0 : QUIRE_ALIGNMENT - beyond), bytes);
    return QUIRE_OK;
}

#ifndef QUIRE_HOSTILE
static void unmap(void *user, void *memory, size_t bytes, size_t alignment)
{
    (void)user;
    (void)alignment;
    qr_pages_unmap(memory, bytes);
}
#endif

/* Mapped, so that it is new even where the C library has memory to use again. The hostile build has
 * its pattern there instead. */
int qr_owner_begin_fresh(qr_owner *owner, const quire_allocator *allocator, const qr_arena *plan,
                         qr_arena *arena)
{
#ifndef QUIRE_HOSTILE
    bool is_large = plan->used >= 2 * HUGE_PAGE_BYTES && plan->used <= SIZE_MAX / 2;
    if (allocator == NULL && is_large) {
        void *memory = qr_pages_map(plan->used, 0);
        if (memory == NULL)
            return QUIRE_E_NOMEM;
        advise_huge(memory, plan->used);
        *owner = (qr_owner){.allocator = {.free = unmap}, .memory = memory, .bytes = plan->used};
        *arena = qr_arena_over(memory, plan->used);
        arena->is_zero = true;
        return QUIRE_OK;
    }
#endif
    return qr_owner_begin(owner, allocator, plan, arena);
}

qr_arena qr_owner_carve(qr_owner *owner, const quire_allocator *allocator, size_t bytes)
{
    qr_arena arena = {.used = bytes};
    return qr_owner_begin_zeroed(owner, allocator, &arena, &arena) == QUIRE_OK ? arena
                                                                               : qr_arena_plan();
}

void qr_owner_release(const qr_owner *owner)
{
    qr_owner copy = *owner; /* the original goes with the memory */
    if (copy.memory != NULL && copy.allocator.free != NULL)
        copy.allocator.free(copy.allocator.user, copy.memory, copy.bytes, QUIRE_ALIGNMENT);
}

void *qr_alloc(size_t count, size_t bytes)
{
    return count == 0 || bytes == 0 ? NULL : calloc(count, bytes);
}

void *qr_alloc_raw(size_t bytes)
{
    return bytes == 0 ? NULL : malloc(bytes);
}

void *qr_alloc_large(size_t bytes)
{
    if (bytes < 2 * HUGE_PAGE_BYTES || bytes > SIZE_MAX - HUGE_PAGE_BYTES)
        return qr_alloc(1, bytes);
    unsigned char *memory = calloc(1, bytes); /* fresh pages: what is never used is never touched */
    if (memory == NULL)
        return NULL;
    size_t before = (HUGE_PAGE_BYTES - (uintptr_t)memory % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    advise_huge(memory + before, (bytes - before) & ~(HUGE_PAGE_BYTES - 1));
    return memory;
}

void *qr_realloc(void *memory, size_t bytes)
{
    return bytes == 0 ? NULL : realloc(memory, bytes);
}

char *qr_alloc_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = qr_alloc_raw(bytes);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

void qr_free(void *memory)
{
    free(memory);
}

void *qr_pages_map(size_t bytes, int flags)
{
    int all = MAP_PRIVATE | MAP_ANONYMOUS | flags;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, all, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void qr_pages_unmap(void *memory, size_t bytes)
{
    if (memory != NULL)
        (void)munmap(memory, bytes);
}

void qr_memory_wipe(void *memory, size_t bytes)
{
    explicit_bzero(memory, bytes);
}
