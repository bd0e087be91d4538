#include "tier/fork_guard.h"

#include "tier/system.h"

#include <sys/mman.h>
#include <unistd.h>

void qr_fork_guard_init(qr_fork_guard *guard)
{
    guard->pid = getpid();
    guard->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    guard->page = qr_tier_map(guard->page_bytes, 0);
    if (guard->page == NULL)
        return;
    if (madvise((void *)guard->page, guard->page_bytes, MADV_WIPEONFORK) == 0)
        atomic_store_explicit(guard->page, 1, memory_order_relaxed);
    else
        qr_fork_guard_release(guard);
}

void qr_fork_guard_release(qr_fork_guard *guard)
{
    qr_tier_unmap((void *)guard->page, guard->page_bytes);
    guard->page = NULL;
}

bool qr_fork_guard_is_child(const qr_fork_guard *guard)
{
    return guard->page != NULL ? atomic_load_explicit(guard->page, memory_order_relaxed) == 0
                               : guard->pid != getpid();
}
