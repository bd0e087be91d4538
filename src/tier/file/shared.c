/* tier/file/shared.c - a shared directory as a tier.
 *
 *      scheduler's thread   known: keys that were seen here     FIND, LOAD, STORE, REMOVE
 *      tier's thread        queue ─► tasks ─► workers ─► dir.h
 *
 * What this process has seen in the directory it knows without asking; what others stored it finds
 * by FIND. What it knows may be gone: then a load is a miss, and it knows that. */
#include "base/config.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "tier/file/dir.h"
#include "tier/file/private.h"
#include "tier/file/queue.h"
#include "tier/file/workers.h"
#include "tier/slots/known.h"

#include <string.h>
#include <unistd.h>

enum {
    SHARED_THREADS = 8,
    SHARED_CLOSE_MS = 1500,
    LEFTOVER_S = 3600,
    MOST_KNOWN = 1 << 20,
    SWEEP_PART = 8 /* a group is swept when so large a part of it is new */
};

typedef struct shared_task {
    qr_file_work work;
    struct qr_file_shared *shared;
    quire_tier_job *job;
    uint32_t io;
    quire_tier_status status;
    struct shared_task *next;
} shared_task;

typedef struct qr_file_shared {
    quire_slots *known; /* first, see known.h: the scheduler's thread */
    quire_tier_file_config config;
    quire_hooks hooks;
    char *path;
    qr_file_dir dir;
    qr_file_workers *workers;
    int next_fd; /* the folder of the next identity; -1: none */
    unsigned char next_fingerprint[QUIRE_FINGERPRINT_BYTES];
    _Atomic uint32_t num_identities;      /* asked for, */
    _Atomic uint32_t num_identities_done; /* and taken by the tier's thread */
    qr_file_queue queue;
    shared_task *tasks;
    shared_task *free;
    uint32_t num_busy;
    qr_file_work sweep; /* one at a time */
    uint32_t sweep_group;
    bool is_sweeping;
    uint32_t num_swept_first;            /* groups, of the first round after opening */
    uint32_t num_stored[QR_FILE_LEAVES]; /* by group, since it was swept */
} qr_file_shared;

/* ---- another identity ---------------------------------------------------- */

static bool has_next_identity(const qr_file_shared *shared)
{
    return atomic_load_explicit(&shared->num_identities, memory_order_acquire) !=
           atomic_load_explicit(&shared->num_identities_done, memory_order_relaxed);
}

/* On the tier's thread, when nothing uses the folder of the identity before. */
static void take_next_identity(qr_file_shared *shared)
{
    if (!has_next_identity(shared) || shared->is_sweeping || shared->num_busy > 0)
        return;
    close(shared->dir.fd);
    shared->dir.fd = shared->next_fd;
    shared->next_fd = -1;
    memcpy(shared->dir.fingerprint, shared->next_fingerprint, QUIRE_FINGERPRINT_BYTES);
    shared->num_swept_first = 0; /* all groups are swept again, which also resets num_stored */
    atomic_fetch_add_explicit(&shared->num_identities_done, 1, memory_order_release);
}

/* ---- opening and closing ------------------------------------------------ */

static int init_shared(void *self, const void *config, uint32_t max_jobs, const quire_hooks *hooks)
{
    qr_file_shared *shared = self;
    (void)max_jobs;
    shared->config = *(const quire_tier_file_config *)config;
    shared->config.path = shared->path = qr_alloc_text(shared->config.path);
    shared->hooks = hooks == NULL ? (quire_hooks){0} : *hooks;
    shared->dir.fd = -1;
    shared->next_fd = -1;
    shared->config.threads = (uint32_t)qr_or_default(shared->config.threads, SHARED_THREADS);
    shared->config.leftover_s = (uint32_t)qr_or_default(shared->config.leftover_s, LEFTOVER_S);
    return shared->path == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
}

static int open_known(qr_file_shared *shared)
{
    uint64_t num_files =
        shared->config.capacity_bytes / ((uint64_t)shared->config.block_bytes + QR_FILE_PAGE);
    uint32_t num_keys = num_files > MOST_KNOWN ? MOST_KNOWN : (uint32_t)num_files;
    return qr_known_open(num_keys < 1 ? 1 : num_keys, &shared->hooks, &shared->known);
}

static int open_tasks(qr_file_shared *shared)
{
    uint32_t num_tasks = shared->config.threads * 2;
    shared->tasks = qr_alloc(num_tasks, sizeof(shared_task));
    if (shared->tasks == NULL)
        return QUIRE_E_NOMEM;
    for (uint32_t i = 0; i < num_tasks; i++) {
        shared->tasks[i].shared = shared;
        shared->tasks[i].next = shared->free;
        shared->free = &shared->tasks[i];
    }
    return qr_file_workers_open(shared->config.threads, &shared->workers);
}

static int shared_open(void *self, const void *memory, size_t bytes)
{
    qr_file_shared *shared = self;
    (void)memory;
    (void)bytes;
    shared->dir.hooks = &shared->hooks;
    shared->dir.capacity_bytes = shared->config.capacity_bytes;
    shared->dir.block_bytes = shared->config.block_bytes;
    shared->dir.leftover_ns = (int64_t)shared->config.leftover_s * 1000000000;
    memcpy(shared->dir.fingerprint, shared->config.fingerprint, QUIRE_FINGERPRINT_BYTES);
    int status = qr_file_dir_open(&shared->dir, shared->path);
    if (status == QUIRE_OK)
        status = open_known(shared);
    if (status != QUIRE_OK)
        return status;
    status = open_tasks(shared);
    if (status == QUIRE_E_SYSTEM)
        qr_say("%s: cannot start a thread", shared->path);
    return status;
}

static void shared_close(void *self)
{
    qr_file_shared *shared = self;
    if (!qr_file_workers_close(shared->workers, SHARED_CLOSE_MS)) {
        qr_log(&shared->hooks, QUIRE_LOG_ERROR,
               "file tier: %s does not end its I/O; its memory stays allocated", shared->path);
        return;
    }
    qr_file_dir_close(&shared->dir);
    if (shared->next_fd >= 0)
        close(shared->next_fd);
    quire_slots_destroy(shared->known);
    qr_free(shared->tasks);
    qr_free(shared->path);
    qr_free(shared);
}

static void shared_caps(void *self, quire_tier_caps *caps)
{
    const qr_file_shared *shared = self;
    *caps = (quire_tier_caps){.alignment = 1,
                              .max_bytes = shared->config.block_bytes,
                              .is_persistent = 1,
                              .is_shared = 1,
                              .checks_crc = 1,
                              .capacity_bytes = shared->config.capacity_bytes};
}

/* ---- on the scheduler's thread ------------------------------------------ */

/* What sweeps of this process have removed. A block that was stored again meanwhile is forgotten
 * too, and found again by FIND. */
static void forget_swept(qr_file_shared *shared)
{
    quire_tier_key key;
    while (qr_file_swept_take(&shared->dir.swept, &key))
        (void)quire_slots_remove(shared->known, &key);
}

static void shared_finish(void *self, quire_tier_job *job)
{
    qr_file_shared *shared = self;
    qr_known_finish(shared->known, job);
    forget_swept(shared);
}

static void shared_lookup(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found)
{
    qr_file_shared *shared = self;
    forget_swept(shared);
    quire_slots_lookup_each(shared->known, keys, n, found);
    for (uint32_t i = 0; i < n; i++)
        found[i] = found[i] ? 1 : 2;
}

/* The blocks of the identity before stay: others may use them. */
static int shared_set_identity(void *self, const unsigned char *fingerprint)
{
    qr_file_shared *shared = self;
    if (has_next_identity(shared))
        return QUIRE_BUSY;
    int fd = qr_file_dir_open_folder(shared->path, fingerprint);
    if (fd < 0) {
        qr_log(&shared->hooks, QUIRE_LOG_ERROR, "file tier: %s", quire_refusal());
        return QUIRE_E_SYSTEM;
    }
    (void)quire_slots_reset(shared->known);
    shared->next_fd = fd;
    memcpy(shared->next_fingerprint, fingerprint, QUIRE_FINGERPRINT_BYTES);
    atomic_fetch_add_explicit(&shared->num_identities, 1, memory_order_release);
    return QUIRE_OK;
}

static int shared_is_settled(void *self)
{
    qr_file_shared *shared = self;
    return atomic_load_explicit(&shared->num_identities_done, memory_order_acquire) ==
           atomic_load_explicit(&shared->num_identities, memory_order_relaxed);
}

/* ---- on a worker -------------------------------------------------------- */

static void run_task(qr_file_work *work)
{
    shared_task *task = (shared_task *)(void *)work;
    task->status = qr_file_dir_do(&task->shared->dir, task->job->op, &task->job->ios[task->io]);
}

static void run_sweep(qr_file_work *work)
{
    qr_file_shared *shared = (void *)((char *)work - offsetof(qr_file_shared, sweep));
    (void)qr_file_dir_sweep(&shared->dir, shared->sweep_group);
}

/* ---- on the tier's thread ----------------------------------------------- */

/* The group with the most new files, if these are enough for a sweep; else num_groups. */
static uint32_t fullest_group(const qr_file_shared *shared, uint32_t num_groups)
{
    uint32_t most = shared->dir.files_per_group / SWEEP_PART;
    uint32_t fullest = num_groups;
    for (uint32_t group = 0; group < num_groups; group++)
        if (shared->num_stored[group] > most) {
            most = shared->num_stored[group];
            fullest = group;
        }
    return fullest;
}

static void pump_sweeps(qr_file_shared *shared)
{
    if (shared->is_sweeping || has_next_identity(shared))
        return;
    uint32_t num_groups = qr_file_dir_groups(&shared->dir);
    uint32_t group = fullest_group(shared, num_groups);
    if (group == num_groups && shared->num_swept_first < num_groups)
        group = shared->num_swept_first++;
    if (group == num_groups)
        return;
    shared->num_stored[group] = 0;
    shared->sweep_group = group;
    shared->is_sweeping = true;
    shared->sweep.run = run_sweep;
    qr_file_workers_give(shared->workers, &shared->sweep);
}

static void pump_tasks(qr_file_shared *shared)
{
    quire_tier_job *job;
    uint32_t io;
    if (has_next_identity(shared)) /* jobs are of that one: none was in flight when it came */
        return;
    while (shared->free != NULL && qr_file_queue_take(&shared->queue, &job, &io)) {
        shared_task *task = shared->free;
        shared->free = task->next;
        task->job = job;
        task->io = io;
        task->work.run = run_task;
        shared->num_busy++;
        qr_file_workers_give(shared->workers, &task->work);
    }
}

static void end_shared_task(qr_file_shared *shared, quire_tier_ends *ends, shared_task *task)
{
    quire_tier_job *job = task->job;
    uint32_t group = qr_file_dir_group_of(&shared->dir, &job->ios[task->io].key);
    if (job->op == QUIRE_TIER_STORE && task->status == QUIRE_TIER_DONE)
        shared->num_stored[group]++;
    task->next = shared->free;
    shared->free = task;
    shared->num_busy--;
    ends->end(ends, job, task->io, task->status);
}

static void shared_begin(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    qr_file_shared *shared = self;
    (void)ends;
    take_next_identity(shared);
    qr_file_queue_add(&shared->queue, job);
    pump_tasks(shared);
}

static void shared_turn(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    qr_file_shared *shared = self;
    take_next_identity(shared);
    pump_sweeps(shared);
    pump_tasks(shared);
    qr_file_work *ended = qr_file_workers_wait(shared->workers, wake_fd, timeout_ms);
    while (ended != NULL) {
        qr_file_work *next = ended->next;
        if (ended == &shared->sweep)
            shared->is_sweeping = false;
        else
            end_shared_task(shared, ends, (shared_task *)(void *)ended);
        ended = next;
    }
    pump_tasks(shared);
}

static void shared_cancel(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    qr_file_shared *shared = self;
    (void)qr_file_queue_cancel(&shared->queue, ends, job);
}

static const quire_tier_ops ops = {.abi = 1,
                                   .size = sizeof(quire_tier_ops),
                                   .name = "directory",
                                   .medium = "DISK",
                                   .open = shared_open,
                                   .close = shared_close,
                                   .caps = shared_caps,
                                   .finish = shared_finish,
                                   .lookup = shared_lookup,
                                   .touch = qr_known_touch_keys,
                                   .set_identity = shared_set_identity,
                                   .is_settled = shared_is_settled,
                                   .usage = qr_known_get_usage,
                                   .slots = qr_known_get_slots,
                                   .begin = shared_begin,
                                   .turn = shared_turn,
                                   .cancel = shared_cancel};

const qr_tier_kind qr_file_shared_kind = {.ops = &ops,
                                          .config_bytes = sizeof(quire_tier_file_config),
                                          .self_bytes = sizeof(qr_file_shared),
                                          .check = qr_file_check_config,
                                          .init = init_shared};
