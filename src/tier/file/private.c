#include "tier/file/private.h"

#include "base/config.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "tier/slots/known.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_DEPTH = 32, DEFAULT_THREADS = 8, DEFAULT_CHECKPOINT_MS = 30000 };
enum { ENDED_AT_ONCE = QR_AT_A_TIME(8, 1) };
enum { OPEN_MS = 10000, CLOSE_MS = 5000 };

/* ---- making ------------------------------------------------------------- */

int qr_file_private_init(void *self, const void *config, uint32_t max_jobs,
                         const quire_hooks *hooks)
{
    qr_file_private *file = self;
    (void)max_jobs;
    file->config = *(const quire_tier_file_config *)config;
    file->config.path = file->path = qr_alloc_text(file->config.path);
    file->hooks = hooks == NULL ? (quire_hooks){0} : *hooks;
    file->handle.fd = -1;
    file->handle.folder = -1;
    memcpy(file->next_fingerprint, file->config.fingerprint, QUIRE_FINGERPRINT_BYTES);
    file->open_ms = OPEN_MS;
    file->close_ms = CLOSE_MS;
    file->config.depth = (uint32_t)qr_or_default(file->config.depth, DEFAULT_DEPTH);
    file->config.threads = (uint32_t)qr_or_default(file->config.threads, DEFAULT_THREADS);
    file->config.checkpoint_ms =
        (uint32_t)qr_or_default(file->config.checkpoint_ms, DEFAULT_CHECKPOINT_MS);
    return file->path == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
}

/* Everything that the file needs while it works; see the order of pages below. */
static int take_memory(qr_file_private *file, const qr_file_layout *layout, qr_file_region *pages)
{
    uint32_t num_tasks = qr_file_tasks_count(file->config.depth);
    size_t bytes = QR_FILE_STAGING + (size_t)(num_tasks + QR_FILE_SCAN_OPS) * QR_FILE_PAGE;
    file->memory = qr_alloc(bytes + QR_FILE_PAGE, 1);
    file->task_memory = qr_alloc(num_tasks, sizeof(qr_file_task));
    file->slab.entries = qr_alloc(layout->num_slots, sizeof(qr_file_entry));
    if (file->memory == NULL || file->task_memory == NULL || file->slab.entries == NULL)
        return QUIRE_E_NOMEM;
    uintptr_t start = ((uintptr_t)file->memory + QR_FILE_PAGE - 1) / QR_FILE_PAGE * QR_FILE_PAGE;
    unsigned char *first = (unsigned char *)start;
    *pages = (qr_file_region){.memory = first, .bytes = bytes};
    file->slab.staging = first;
    file->scan.pages = first + QR_FILE_STAGING;
    qr_file_tasks_init(&file->tasks, &file->slab, file->config.depth, file->task_memory,
                       first + QR_FILE_STAGING + (size_t)QR_FILE_SCAN_OPS * QR_FILE_PAGE);
    return qr_file_slot_map_open(&file->map, layout->num_slots, file->config.policy, &file->hooks);
}

static int open_io(qr_file_private *file, const qr_file_region *regions)
{
    uint32_t max_ops = QR_FILE_TAG_TASK + 2 * qr_file_tasks_count(file->config.depth);
    int result = -ENOSYS;
    if (file->config.uring != QUIRE_OFF)
        result = qr_file_uring_open(file->handle.fd, max_ops, regions, 2, &file->hooks, &file->io);
    if (result == 0)
        return QUIRE_OK;
    if (file->config.uring == QUIRE_ON) {
        qr_say("%s: io_uring is not available: %s; allow it, or use threads", file->path,
               strerror(-result));
        return result == -ENOMEM ? QUIRE_E_NOMEM : QUIRE_E_SYSTEM;
    }
    if (file->config.uring == QUIRE_DEFAULT)
        qr_log(&file->hooks, QUIRE_LOG_WARNING,
               "file tier: io_uring is not available (%s): %u threads read and write %s",
               strerror(-result), file->config.threads, file->path);
    int status = qr_file_pool_open(file->handle.fd, file->config.threads, &file->io);
    if (status == QUIRE_E_SYSTEM)
        qr_say("%s: cannot start a thread", file->path);
    return status;
}

/* ---- opening ------------------------------------------------------------ */

/* Where blocks are no whole pages the page cache does it: O_DIRECT moves nothing else. */
static quire_switch direct_of(qr_file_private *file)
{
    if (file->config.direct != QUIRE_DEFAULT || file->config.block_bytes % QR_FILE_PAGE == 0)
        return file->config.direct;
    qr_log(&file->hooks, QUIRE_LOG_INFO,
           "file tier: %s uses the page cache: block_bytes %u is not a multiple of %d", file->path,
           file->config.block_bytes, QR_FILE_PAGE);
    return QUIRE_OFF;
}

static int open_slab(qr_file_private *file, const qr_file_want *want)
{
    qr_file_disk *disk = file->given_disk != NULL ? file->given_disk : &file->handle.disk;
    file->slab.path = file->path;
    file->slab.hooks = &file->hooks;
    file->slab.io = file->io;
    int status = qr_file_slab_open(&file->slab, want, disk);
    if (status != QUIRE_OK)
        return status;
    if (file->slab.must_scan) {
        file->map.scan = &file->scan;
        return qr_file_scan_open(&file->scan, &file->slab);
    }
    uint32_t *order = qr_alloc(want->layout.num_slots, sizeof(uint32_t));
    if (order == NULL)
        return QUIRE_E_NOMEM;
    qr_file_slot_map_take_index(&file->map, file->slab.entries, order);
    qr_free(order);
    return QUIRE_OK;
}

static int private_open(void *self, const void *memory, size_t bytes)
{
    qr_file_private *file = self;
    qr_file_want want = {
        .if_other = file->config.if_other, .pid = (uint64_t)getpid(), .timeout_ms = file->open_ms};
    qr_file_region regions[2] = {{.memory = memory, .bytes = bytes}};
    if (!qr_file_layout_plan(file->config.capacity_bytes, file->config.block_bytes, &want.layout)) {
        bool is_large = file->config.capacity_bytes / QR_FILE_PAGE > file->config.block_bytes;
        return qr_fail(QUIRE_E_CONFIG, "%s: capacity_bytes (%llu) is too %s for blocks of %u bytes",
                       file->path, (unsigned long long)file->config.capacity_bytes,
                       is_large ? "large" : "small", file->config.block_bytes);
    }
    memcpy(want.fingerprint, file->config.fingerprint, QUIRE_FINGERPRINT_BYTES);
    int status = take_memory(file, &want.layout, &regions[1]);
    if (status != QUIRE_OK)
        return status;
    if (file->given_disk == NULL) {
        file->handle.path = file->path;
        file->handle.hooks = &file->hooks;
        status = qr_file_handle_open(&file->handle, direct_of(file));
        if (status == QUIRE_OK)
            status = open_io(file, regions);
    }
    if (status == QUIRE_OK)
        status = open_slab(file, &want);
    if (status != QUIRE_OK)
        return status;
    file->checkpoint.interval_ns = (uint64_t)file->config.checkpoint_ms * 1000000;
    file->checkpoint.due_ns = qr_now_ns(&file->hooks) + file->checkpoint.interval_ns;
    file->checkpoint.epoch_saved = file->slab.super.owner.epoch;
    file->is_open = 1;
    if (file->config.uring != QUIRE_OFF && file->given_disk == NULL)
        qr_log(&file->hooks, QUIRE_LOG_INFO, "file tier: %s by %s%s", file->path, file->io->name,
               file->handle.is_direct ? ", O_DIRECT" : "");
    return QUIRE_OK;
}

/* ---- on the tier's thread ----------------------------------------------- */

static void dispatch(qr_file_private *file, qr_file_op *op)
{
    if (op->tag >= QR_FILE_TAG_TASK)
        qr_file_tasks_ended(&file->tasks, op);
    else if (op->tag >= QR_FILE_TAG_SCAN)
        qr_file_scan_ended(&file->scan, &file->slab, op);
    else
        qr_file_checkpoint_ended(&file->checkpoint, &file->slab);
}

/* Everything that was stored before is of another epoch from now on. */
static void do_resets(qr_file_private *file)
{
    uint32_t asked = atomic_load_explicit(&file->num_resets, memory_order_acquire);
    if (asked == atomic_load_explicit(&file->num_resets_done, memory_order_relaxed))
        return;
    atomic_store_explicit(&file->num_resets_done, asked, memory_order_release);
    file->num_failed_before = file->checkpoint.num_failed;
    file->tasks.stamp = asked + 1;
    file->scan.is_stopped = true;
    file->slab.super.owner.epoch++;
    memcpy(file->slab.super.owner.fingerprint, file->next_fingerprint, QUIRE_FINGERPRINT_BYTES);
    memset(file->slab.entries, 0, (size_t)file->slab.layout.num_slots * sizeof(qr_file_entry));
    file->slab.num_changes++;
    file->checkpoint.due_ns = 0;
}

/* Tells the scheduler what became of the last reset. */
static void note_saved(qr_file_private *file)
{
    uint32_t done = atomic_load_explicit(&file->num_resets_done, memory_order_relaxed);
    if (file->checkpoint.epoch_saved == file->slab.super.owner.epoch)
        atomic_store_explicit(&file->num_resets_saved, done, memory_order_release);
    else if (file->checkpoint.num_failed != file->num_failed_before)
        atomic_store_explicit(&file->num_resets_failed, done, memory_order_release);
}

static int wait_ms(const qr_file_private *file, int timeout_ms, uint64_t now_ns)
{
    if (file->tasks.ended != NULL)
        return 0;
    if (file->checkpoint.stage != QR_FILE_IDLE ||
        !qr_file_checkpoint_is_needed(&file->checkpoint, &file->slab))
        return timeout_ms;
    uint64_t left_ms =
        file->checkpoint.due_ns <= now_ns ? 1 : (file->checkpoint.due_ns - now_ns) / 1000000 + 1;
    return timeout_ms < 0 || left_ms < (uint64_t)timeout_ms ? (int)left_ms : timeout_ms;
}

static void private_begin(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    qr_file_private *file = self;
    do_resets(file);
    qr_file_tasks_begin(&file->tasks, job);
    qr_file_tasks_pump(&file->tasks, ends);
}

static void private_turn(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    qr_file_private *file = self;
    qr_file_op *ended[ENDED_AT_ONCE];
    uint64_t now_ns = qr_now_ns(&file->hooks);
    do_resets(file);
    /* Until a scan is over an index would know less than the heads do. */
    if (qr_file_scan_is_over(&file->scan, &file->slab) && file->scan.num_left == 0)
        qr_file_checkpoint_turn(&file->checkpoint, &file->slab, now_ns);
    qr_file_scan_turn(&file->scan, &file->slab);
    qr_file_tasks_pump(&file->tasks, ends);
    int ms = wait_ms(file, timeout_ms, now_ns);
    uint32_t n = file->io->wait(file->io, wake_fd, ms, ended, ENDED_AT_ONCE);
    for (uint32_t i = 0; i < n; i++)
        dispatch(file, ended[i]);
    qr_file_tasks_pump(&file->tasks, ends);
    file->io->wait(file->io, -1, 0, NULL, 0); /* the device works while the bytes are checked */
    qr_file_tasks_check(&file->tasks, ends);
    file->io->wait(file->io, -1, 0, NULL, 0); /* heads of what was stored */
    note_saved(file);
}

static void private_cancel(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    qr_file_private *file = self;
    qr_file_tasks_cancel(&file->tasks, ends, job);
}

/* ---- on the scheduler's thread ------------------------------------------ */

static void private_caps(void *self, quire_tier_caps *caps)
{
    const qr_file_private *file = self;
    *caps = (quire_tier_caps){.alignment = file->handle.is_direct ? QR_FILE_PAGE : 1,
                              .max_bytes = file->config.block_bytes,
                              .is_persistent = 1,
                              .checks_crc = 1,
                              .looks_ahead = file->config.policy == QUIRE_SLOTS_LOOKAHEAD,
                              .capacity_bytes = (uint64_t)file->slab.layout.num_slots *
                                                file->slab.layout.block_bytes};
}

static void private_expect(void *self, uint64_t request, uint64_t order, const quire_tier_key *keys,
                           uint32_t n)
{
    qr_file_private *file = self;
    (void)quire_slots_expect(file->map.slots, request, order, keys, n);
}

static int private_reset(void *self)
{
    qr_file_private *file = self;
    qr_file_slot_map_reset(&file->map);
    atomic_fetch_add_explicit(&file->num_resets, 1, memory_order_release);
    return QUIRE_OK;
}

/* The thread reads the fingerprint: not while it has a reset before it. */
static int private_set_identity(void *self, const unsigned char *fingerprint)
{
    qr_file_private *file = self;
    if (atomic_load_explicit(&file->num_resets_done, memory_order_acquire) !=
        atomic_load_explicit(&file->num_resets, memory_order_relaxed))
        return QUIRE_BUSY;
    memcpy(file->next_fingerprint, fingerprint, QUIRE_FINGERPRINT_BYTES);
    return private_reset(self);
}

static int private_is_settled(void *self)
{
    qr_file_private *file = self;
    uint32_t asked = atomic_load_explicit(&file->num_resets, memory_order_relaxed);
    if (atomic_load_explicit(&file->num_resets_saved, memory_order_acquire) == asked)
        return 1;
    bool has_failed = atomic_load_explicit(&file->num_resets_failed, memory_order_acquire) == asked;
    return has_failed ? -1 : 0;
}

/* ---- closing ------------------------------------------------------------ */

/* As long as something ends it is worth waiting: there is only so much to do. */
static void drain(qr_file_private *file)
{
    qr_file_op *ended[ENDED_AT_ONCE];
    uint64_t most_ns = (uint64_t)file->close_ms * 1000000;
    uint64_t until_ns = qr_now_ns(NULL) + most_ns;
    while (file->io->num_in_flight > 0 && qr_now_ns(NULL) < until_ns) {
        uint32_t n = file->io->wait(file->io, -1, 10, ended, ENDED_AT_ONCE);
        if (n > 0)
            until_ns = qr_now_ns(NULL) + most_ns;
        for (uint32_t i = 0; i < n; i++)
            if (ended[i]->tag < QR_FILE_TAG_TASK)
                dispatch(file, ended[i]);
    }
}

/* What is under way, then the last checkpoint, as far as there is time. What the device does not
 * end stays lent to it. */
static bool settle(qr_file_private *file)
{
    do_resets(file);
    bool is_whole = file->scan.found == NULL || file->scan.is_stopped ||
                    atomic_load(&file->scan.num_found) == file->slab.layout.num_slots;
    file->scan.is_stopped = true;
    drain(file);
    if (is_whole && file->io->num_in_flight == 0)
        qr_file_checkpoint_turn(&file->checkpoint, &file->slab, UINT64_MAX);
    drain(file);
    return file->io->num_in_flight == 0;
}

static void private_close(void *self)
{
    qr_file_private *file = self;
    bool is_settled = file->io == NULL || !file->is_open || settle(file);
    if (file->io != NULL && !file->io->close(file->io, is_settled ? file->close_ms : 0)) {
        qr_log(&file->hooks, QUIRE_LOG_ERROR,
               "file tier: %s does not end its I/O; its memory stays allocated", file->path);
        return;
    }
    qr_file_handle_close(&file->handle, !file->is_open);
    qr_file_slot_map_close(&file->map);
    qr_file_scan_close(&file->scan);
    qr_free(file->slab.entries);
    qr_free(file->task_memory);
    qr_free(file->memory);
    qr_free(file->path);
    qr_free(file);
}

const quire_tier_ops qr_file_private_ops = {.abi = 1,
                                            .size = sizeof(quire_tier_ops),
                                            .name = "file",
                                            .medium = "DISK",
                                            .open = private_open,
                                            .close = private_close,
                                            .caps = private_caps,
                                            .prepare = qr_file_slot_map_prepare,
                                            .finish = qr_file_slot_map_finish,
                                            .lookup = qr_file_slot_map_lookup,
                                            .touch = qr_known_touch_keys,
                                            .expect = private_expect,
                                            .reset = private_reset,
                                            .set_identity = private_set_identity,
                                            .is_settled = private_is_settled,
                                            .usage = qr_known_get_usage,
                                            .slots = qr_known_get_slots,
                                            .begin = private_begin,
                                            .turn = private_turn,
                                            .cancel = private_cancel};

const qr_tier_kind qr_file_private_kind = {.ops = &qr_file_private_ops,
                                           .config_bytes = sizeof(quire_tier_file_config),
                                           .self_bytes = sizeof(qr_file_private),
                                           .check = qr_file_check_config,
                                           .init = qr_file_private_init};
