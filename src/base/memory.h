/* base/memory.h - the default allocator: the only place in the library that asks the system for
 * memory. */
#ifndef QR_BASE_MEMORY_H
#define QR_BASE_MEMORY_H

#include <quire/memory.h>

/* The C library's, with huge pages asked for where the memory is large. */
quire_allocator qr_allocator_default(void);

/* Who gets a handle's memory back. It lives inside that memory; all zero when the caller owns it.
 */
typedef struct qr_owner {
    quire_allocator allocator;
    void *memory;
    size_t bytes;
} qr_owner;

/* One piece for one handle, from the caller's allocator or, when that is NULL, the C library's.
 * QUIRE_E_NOMEM; QUIRE_E_OVERFLOW for 0 bytes; QUIRE_E_ARGUMENT for half an allocator. */
int qr_owner_take(qr_owner *owner, const quire_allocator *allocator, size_t bytes);
void qr_owner_release(const qr_owner *owner);

/* Overwrites memory in a way that the compiler does not remove, for secrets. */
void qr_memory_wipe(void *memory, size_t bytes);

#endif
