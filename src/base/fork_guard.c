#include "base/fork_guard.h"

#include "base/memory.h"

#include <sys/mman.h>

/* NULL when there is no memory, or when the kernel cannot clear a page in a child. */
static _Atomic uint32_t *shared_page(void)
{
    static _Atomic(_Atomic uint32_t *) shared;
    _Atomic uint32_t *page = atomic_load(&shared);
    if (page != NULL)
        return page;
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *made = qr_pages_map(bytes, 0);
    if (made == NULL)
        return NULL;
    bool is_first = madvise(made, bytes, MADV_WIPEONFORK) == 0 &&
                    atomic_compare_exchange_strong(&shared, &page, made);
    if (is_first)
        return made;
    qr_pages_unmap(made, bytes);
    return page;
}

void qr_fork_guard_init(qr_fork_guard *guard)
{
    static _Atomic uint32_t last_number;
    _Atomic uint32_t *page = shared_page();
    *guard = (qr_fork_guard){.page = page, .pid = getpid()};
    if (page == NULL)
        return;
    uint32_t number = atomic_fetch_add(&last_number, 1) + 1;
    if (atomic_compare_exchange_strong(page, &guard->number, number))
        guard->number = number; /* else the number that the page has is there now */
}
