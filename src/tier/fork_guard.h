/* tier/fork_guard.h - whether this is still the process that opened a tier.
 *
 * A fork copies memory and descriptors but not threads: in the child a tier would wait for a thread
 * that is not there, and write into the parent's file or connection. A page that the kernel empties
 * in a child says which of the two this is, without a call. */
#ifndef QR_TIER_FORK_GUARD_H
#define QR_TIER_FORK_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct qr_fork_guard {
    _Atomic unsigned *page; /* NULL: where the kernel does not do that, it is asked each time */
    size_t page_bytes;
    pid_t pid;
} qr_fork_guard;

void qr_fork_guard_init(qr_fork_guard *guard);
void qr_fork_guard_release(qr_fork_guard *guard);
bool qr_fork_guard_is_child(const qr_fork_guard *guard);

#endif
