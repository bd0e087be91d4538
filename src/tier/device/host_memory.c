/* tier/device/host_memory.c - large memory for slots, as the kernel gives it best.
 *
 *      reserved huge pages (vm.nr_hugepages) ─ none ─► transparent ones (madvise) ─► ordinary ones
 *      then: prefer a node, leave it out of core dumps, let every page be there, lock it
 *
 * What the config demands (ON) and the kernel refuses is an error with a sentence; what it only
 * prefers is left out, and get_info tells.
 */
#include <quire/device.h>

#include "base/config.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_NODES = 1024, BITS_OF_LONG = 8 * sizeof(unsigned long) };
#define HUGE_BYTES (UINT64_C(2) << 20)
#define HUGE_FLAGS (MAP_HUGETLB | 21 << 26) /* of 2^21 bytes */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct quire_host_memory {
    quire_host_memory_info info;
    void *map; /* where the kernel put it: data is aligned in it */
    size_t map_bytes;
};

/* ---- pages ----------------------------------------------------------------- */

static uint64_t round_to_pages(uint64_t bytes, uint64_t page_bytes)
{
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

static int map_huge(quire_host_memory *m, uint64_t bytes)
{
    size_t all = (size_t)round_to_pages(bytes, HUGE_BYTES);
    m->map = qr_pages_map(all, HUGE_FLAGS);
    if (m->map == NULL)
        return QUIRE_E_NOMEM;
    m->map_bytes = all;
    m->info.data = m->map;
    m->info.bytes = all;
    m->info.page_bytes = HUGE_BYTES;
    m->info.is_huge = 1;
    return QUIRE_OK;
}

/* A transparent huge page must begin at a multiple of its size: there is one more to cut from. */
static int map_ordinary(quire_host_memory *m, uint64_t bytes, bool is_transparent)
{
    uint64_t page_bytes = is_transparent ? HUGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t used = round_to_pages(bytes, page_bytes);
    size_t all = (size_t)(is_transparent ? used + HUGE_BYTES : used);
    m->map = qr_pages_map(all, MAP_NORESERVE);
    if (m->map == NULL)
        return QUIRE_E_NOMEM;
    size_t beyond = (uintptr_t)m->map % page_bytes;
    m->map_bytes = all;
    m->info.data = (unsigned char *)m->map + (beyond == 0 ? 0 : page_bytes - beyond);
    m->info.bytes = used;
    m->info.page_bytes = page_bytes;
    if (is_transparent)
        m->info.is_transparent = madvise(m->info.data, (size_t)used, MADV_HUGEPAGE) == 0;
    return QUIRE_OK;
}

static int map_pages(quire_host_memory *m, const quire_host_memory_config *config)
{
    int status = QUIRE_E_NOMEM;
    if (config->hugepages != QUIRE_OFF)
        status = map_huge(m, config->bytes);
    if (status != QUIRE_OK && config->hugepages == QUIRE_ON)
        return qr_fail(QUIRE_E_NOMEM,
                       "%llu huge pages of 2 MiB are not available: reserve them (sysctl "
                       "vm.nr_hugepages=%llu), or leave hugepages at its default",
                       (unsigned long long)((config->bytes + HUGE_BYTES - 1) / HUGE_BYTES),
                       (unsigned long long)((config->bytes + HUGE_BYTES - 1) / HUGE_BYTES));
    if (status != QUIRE_OK)
        status = map_ordinary(m, config->bytes,
                              config->hugepages != QUIRE_OFF && config->bytes >= HUGE_BYTES);
    if (status != QUIRE_OK)
        qr_say("cannot map %llu bytes of host memory: raise the limits of the process (ulimit -v, "
               "its cgroup), or use fewer slots",
               (unsigned long long)config->bytes);
    return status;
}

/* ---- where it lies --------------------------------------------------------- */

/* By the system call itself: the library that wraps it is not everywhere. */
static int place_pages(quire_host_memory *m, const quire_host_memory_config *config)
{
    unsigned long mask[MOST_NODES / BITS_OF_LONG] = {0};
    uint32_t node = config->numa_node;
    if (config->dump != QUIRE_ON)
        (void)madvise(m->info.data, (size_t)m->info.bytes, MADV_DONTDUMP);
    if (config->bind != QUIRE_ON)
        return QUIRE_OK;
    mask[node / BITS_OF_LONG] = 1UL << node % BITS_OF_LONG;
    if (syscall(SYS_mbind, m->info.data, (unsigned long)m->info.bytes, MPOL_PREFERRED, mask,
                MOST_NODES + 1UL, 0UL) != 0) /* the kernel counts one less */
        return qr_fail(
            QUIRE_E_SYSTEM,
            "cannot bind memory to node %u (%s): see /sys/devices/system/node, or leave bind off",
            node, errno == ENOSYS ? "the kernel has no NUMA support" : "node not found");
    m->info.is_bound = 1;
    return QUIRE_OK;
}

/* ---- that it is there ------------------------------------------------------ */

/* The kernel says when there is not enough; where it is too old to be asked, each page is
 * touched. */
static int let_pages_be_there(quire_host_memory *m)
{
    if (madvise(m->info.data, (size_t)m->info.bytes, MADV_POPULATE_WRITE) != 0) {
        if (errno != EINVAL)
            return qr_fail(
                QUIRE_E_NOMEM,
                "cannot map all %llu bytes of host memory: add memory to the machine or the "
                "cgroup, or use fewer slots",
                (unsigned long long)m->info.bytes);
        volatile unsigned char *at = m->info.data;
        uint64_t step = (uint64_t)sysconf(_SC_PAGESIZE);
        for (uint64_t i = 0; i < m->info.bytes; i += step)
            at[i] = 0;
    }
    m->info.is_prefaulted = 1;
    return QUIRE_OK;
}

static int lock_pages(quire_host_memory *m)
{
    if (mlock(m->info.data, (size_t)m->info.bytes) != 0)
        return qr_fail(
            QUIRE_E_SYSTEM,
            "cannot lock %llu bytes of host memory: raise the limit (ulimit -l), or leave lock off",
            (unsigned long long)m->info.bytes);
    m->info.is_locked = 1;
    m->info.is_prefaulted = 1;
    return QUIRE_OK;
}

/* ---- opening --------------------------------------------------------------- */

static int check_memory_config(const quire_host_memory_config *config)
{
    if (config->bytes == 0 || config->bytes > SIZE_MAX / 2)
        return qr_fail(QUIRE_E_CONFIG, "invalid bytes %llu of host memory (expected 1..%llu)",
                       (unsigned long long)config->bytes, (unsigned long long)(SIZE_MAX / 2));
    if (config->hugepages > QUIRE_OFF || config->prefault > QUIRE_OFF || config->lock > QUIRE_OFF ||
        config->bind > QUIRE_OFF || config->dump > QUIRE_OFF || config->numa_node >= MOST_NODES)
        return qr_fail(
            QUIRE_E_CONFIG,
            "invalid switch of host memory (expected QUIRE_ON, QUIRE_OFF or 0), or numa_node is "
            "above 1,023");
    return QUIRE_OK;
}

static int open_memory(quire_host_memory *m, const quire_host_memory_config *config)
{
    int status = map_pages(m, config);
    if (status == QUIRE_OK)
        status = place_pages(m, config);
    if (status == QUIRE_OK && config->prefault != QUIRE_OFF)
        status = let_pages_be_there(m);
    if (status == QUIRE_OK && config->lock == QUIRE_ON)
        status = lock_pages(m);
    return status;
}

static void log_memory(const quire_hooks *hooks, const quire_host_memory_info *info)
{
    const char *kind = info->is_huge != 0          ? "reserved huge pages"
                       : info->is_transparent != 0 ? "transparent huge pages, if available"
                                                   : "ordinary pages";
    qr_log(hooks, QUIRE_LOG_INFO, "host memory: %llu bytes in %s%s%s",
           (unsigned long long)info->bytes, kind, info->is_locked != 0 ? ", locked" : "",
           info->is_bound != 0 ? ", on one NUMA node" : "");
}

QUIRE_API int quire_host_memory_open(const quire_host_memory_config *callers,
                                     quire_host_memory **memory)
{
    qr_refuse_clear();
    quire_host_memory_config config;
    int status =
        memory == NULL ? QUIRE_E_ARGUMENT : qr_config_read(&config, sizeof config, callers);
    if (status != QUIRE_OK)
        return qr_fail(status, "host memory's config: %s", quire_strerror(status));
    status = check_memory_config(&config);
    if (status != QUIRE_OK)
        return status;
    quire_host_memory *m = qr_alloc(1, sizeof *m);
    if (m == NULL)
        return qr_fail(QUIRE_E_NOMEM, "host memory: %s", quire_strerror(QUIRE_E_NOMEM));
    status = open_memory(m, &config);
    if (status != QUIRE_OK) {
        quire_host_memory_close(m);
        return status;
    }
    log_memory(&config.hooks, &m->info);
    *memory = m;
    return QUIRE_OK;
}

QUIRE_API void quire_host_memory_close(quire_host_memory *memory)
{
    if (memory == NULL)
        return;
    qr_pages_unmap(memory->map, memory->map_bytes);
    qr_free(memory);
}

QUIRE_API const quire_host_memory_info *quire_host_memory_get_info(const quire_host_memory *memory)
{
    return memory == NULL ? NULL : &memory->info;
}
