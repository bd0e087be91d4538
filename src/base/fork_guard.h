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
 * The question is one load from memory. The handles of one source file share one page.
 */
#ifndef QR_BASE_FORK_GUARD_H
#define QR_BASE_FORK_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct qr_fork_guard {
    const _Atomic uint32_t *page; /* NULL: this kernel does not clear pages; getpid is asked */
    uint32_t number;
    pid_t pid;
} qr_fork_guard;

/* NULL when there is no memory, or when the kernel cannot clear a page in a child. */
static inline _Atomic uint32_t *qr_fork_guard_page(void)
{
    static _Atomic(_Atomic uint32_t *) shared;
    _Atomic uint32_t *page = atomic_load(&shared);
    if (page != NULL)
        return page;
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    bool is_first = madvise(made, bytes, MADV_WIPEONFORK) == 0 &&
                    atomic_compare_exchange_strong(&shared, &page, made);
    if (is_first)
        return made;
    (void)munmap(made, bytes);
    return page;
}

static inline void qr_fork_guard_init(qr_fork_guard *guard)
{
    static _Atomic uint32_t last_number;
    _Atomic uint32_t *page = qr_fork_guard_page();
    *guard = (qr_fork_guard){.page = page, .pid = getpid()};
    if (page == NULL)
        return;
    uint32_t number = atomic_fetch_add(&last_number, 1) + 1;
    if (atomic_compare_exchange_strong(page, &guard->number, number))
        guard->number = number; /* else the number that the page has is there now */
}

static inline bool qr_fork_guard_is_child(const qr_fork_guard *guard)
{
    return guard->page != NULL
               ? atomic_load_explicit(guard->page, memory_order_relaxed) != guard->number
               : guard->pid != getpid();
}

#endif
