/* base/fork_guard.h - whether this is still the process that made a handle.
 *
 * A fork copies memory and descriptors, but not threads. A handle that has a thread, a file, a
 * socket or a connection belongs to the process that made it: in the child of a fork it would wait
 * for a thread that does not exist there, or write into the parent's descriptors.
 *
 *      parent   page: 7   handle: 7         the page's number is the handle's: not a child
 *      child    page: 0   handle: 7         the kernel clears the page in a child
 *               page: 8   handle: 7 and 8   the child has made a handle of its own
 *
 * The question is one load from memory. All handles share one page.
 */
#ifndef QR_BASE_FORK_GUARD_H
#define QR_BASE_FORK_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct qr_fork_guard {
    const _Atomic uint32_t *page; /* NULL: this kernel does not clear pages; getpid is asked */
    uint32_t number;
    pid_t pid;
} qr_fork_guard;

void qr_fork_guard_init(qr_fork_guard *guard);

static inline bool qr_fork_guard_is_child(const qr_fork_guard *guard)
{
    return guard->page != NULL
               ? atomic_load_explicit(guard->page, memory_order_relaxed) != guard->number
               : guard->pid != getpid();
}

#endif
