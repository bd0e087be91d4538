/* tier/file/uring.c - a file read and written through io_uring.
 *
 * The file is registered, and so is the memory that is known to be used again and again: the system
 * then neither looks it up nor pins it for each op. Where it refuses to register (a limit on locked
 * memory), the ring works without. */
#include "tier/file/io.h"

#include <errno.h>
#include <sys/uio.h>

#ifndef QUIRE_URING

int qr_file_uring_open(int fd, uint32_t max_ops, const qr_file_region *regions,
                       uint32_t num_regions, const quire_hooks *hooks, qr_file_io **io)
{
    (void)fd;
    (void)max_ops;
    (void)regions;
    (void)num_regions;
    (void)hooks;
    *io = NULL;
    return -ENOSYS;
}

#else

#include "base/hooks.h"
#include "base/memory.h"

#include <liburing.h>
#include <poll.h>
#include <string.h>

enum {
    MAX_BUFFERS = 1024,
    BUFFER_BYTES = 1 << 30, /* the most that the system registers as one */
    MAX_REGIONS = 4
};

#define WAKE_DATA UINT64_MAX /* of the poll on wake_fd; no op has this tag */

typedef struct known_region {
    const unsigned char *start;
    size_t bytes;
    uint32_t first_buffer;
} known_region;

typedef struct file_uring {
    qr_file_io io;
    struct io_uring ring;
    qr_file_op **ops;      /* in flight, by tag */
    qr_file_work *refused; /* no room in the ring: ends with -EAGAIN */
    uint32_t max_ops;
    int fd;
    int polled_fd; /* -1: no poll is in flight */
    bool has_file;
    uint32_t num_regions;
    known_region regions[MAX_REGIONS];
} file_uring;

/* ---- submitting --------------------------------------------------------- */

static struct io_uring_sqe *take_sqe(file_uring *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (sqe != NULL)
        return sqe;
    io_uring_submit(&uring->ring);
    return io_uring_get_sqe(&uring->ring);
}

/* The registered buffer that the op's memory is in; -1: none, or it lies across two. */
static int buffer_of(const file_uring *uring, const qr_file_op *op)
{
    const unsigned char *start = op->memory;
    for (uint32_t i = 0; i < uring->num_regions; i++) {
        const known_region *region = &uring->regions[i];
        if (start < region->start || start >= region->start + region->bytes)
            continue;
        size_t from = (size_t)(start - region->start);
        size_t last = from + op->bytes - 1;
        if (last >= region->bytes || from / BUFFER_BYTES != last / BUFFER_BYTES)
            return -1;
        return (int)(region->first_buffer + from / BUFFER_BYTES);
    }
    return -1;
}

static void prepare_sqe(file_uring *uring, struct io_uring_sqe *sqe, qr_file_op *op)
{
    int fd = uring->has_file ? 0 : uring->fd;
    int buffer = buffer_of(uring, op);
    if (op->kind == QR_FILE_READ && buffer >= 0)
        io_uring_prep_read_fixed(sqe, fd, op->memory, op->bytes, op->offset, buffer);
    else if (op->kind == QR_FILE_READ)
        io_uring_prep_read(sqe, fd, op->memory, op->bytes, op->offset);
    else if (buffer >= 0)
        io_uring_prep_write_fixed(sqe, fd, op->memory, op->bytes, op->offset, buffer);
    else
        io_uring_prep_write(sqe, fd, op->memory, op->bytes, op->offset);
    if (op->kind == QR_FILE_SYNCED)
        sqe->rw_flags = RWF_DSYNC;
    if (uring->has_file)
        sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = (uint64_t)op->generation << 32 | op->tag;
}

static void uring_submit(qr_file_io *io, qr_file_op *op)
{
    file_uring *uring = (file_uring *)(void *)io;
    struct io_uring_sqe *sqe = take_sqe(uring);
    op->generation++;
    io->num_in_flight++;
    if (sqe == NULL) {
        op->result = -EAGAIN;
        op->work.next = uring->refused;
        uring->refused = &op->work;
        return;
    }
    uring->ops[op->tag] = op;
    prepare_sqe(uring, sqe, op);
}

/* ---- waiting ------------------------------------------------------------ */

static void arm_poll(file_uring *uring, int wake_fd)
{
    if (wake_fd < 0 || uring->polled_fd == wake_fd)
        return;
    struct io_uring_sqe *sqe = take_sqe(uring);
    if (sqe == NULL)
        return;
    io_uring_prep_poll_add(sqe, wake_fd, POLLIN);
    sqe->user_data = WAKE_DATA;
    uring->polled_fd = wake_fd;
}

/* The op that a report is about; NULL for one that nobody waits for. */
static qr_file_op *match_report(file_uring *uring, const struct io_uring_cqe *cqe)
{
    uint32_t tag = (uint32_t)cqe->user_data;
    if (cqe->user_data == WAKE_DATA) {
        uring->polled_fd = -1;
        return NULL;
    }
    qr_file_op *op = tag < uring->max_ops ? uring->ops[tag] : NULL;
    if (op == NULL || op->generation != cqe->user_data >> 32)
        return NULL;
    uring->ops[tag] = NULL;
    op->result = cqe->res;
    return op;
}

static uint32_t take_reports(file_uring *uring, qr_file_op **ended, uint32_t capacity)
{
    struct io_uring_cqe *cqe;
    uint32_t n = 0;
    while (uring->refused != NULL && n < capacity) {
        ended[n++] = qr_file_op_of(uring->refused);
        uring->refused = uring->refused->next;
    }
    while (n < capacity && io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        qr_file_op *op = match_report(uring, cqe);
        io_uring_cqe_seen(&uring->ring, cqe);
        if (op != NULL)
            ended[n++] = op;
    }
    uring->io.num_in_flight -= n;
    return n;
}

static uint32_t uring_wait(qr_file_io *io, int wake_fd, int timeout_ms, qr_file_op **ended,
                           uint32_t capacity)
{
    file_uring *uring = (file_uring *)(void *)io;
    struct io_uring_cqe *cqe;
    if (capacity == 0 || timeout_ms == 0 || uring->refused != NULL ||
        io_uring_cq_ready(&uring->ring) > 0) {
        if (io_uring_sq_ready(&uring->ring) > 0)
            io_uring_submit(&uring->ring);
        return capacity == 0 ? 0 : take_reports(uring, ended, capacity);
    }
    arm_poll(uring, wake_fd);
    if (timeout_ms < 0) {
        io_uring_submit_and_wait(&uring->ring, 1);
    } else {
        struct __kernel_timespec time = {.tv_sec = timeout_ms / 1000,
                                         .tv_nsec = (long long)(timeout_ms % 1000) * 1000000};
        io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, &time, NULL);
    }
    return take_reports(uring, ended, capacity);
}

/* ---- opening and closing ------------------------------------------------ */

static bool uring_close(qr_file_io *io, int timeout_ms)
{
    file_uring *uring = (file_uring *)(void *)io;
    uint64_t until_ns = qr_now_ns(NULL) + (uint64_t)timeout_ms * 1000000;
    qr_file_op *ended[16];
    while (io->num_in_flight > 0) {
        uring_wait(io, -1, 10, ended, 16);
        if (io->num_in_flight > 0 && qr_now_ns(NULL) >= until_ns)
            return false;
    }
    io_uring_queue_exit(&uring->ring);
    qr_free(uring->ops);
    qr_free(uring);
    return true;
}

static void register_regions(file_uring *uring, const qr_file_region *regions, uint32_t num_regions,
                             const quire_hooks *hooks)
{
    struct iovec buffers[MAX_BUFFERS];
    uint32_t n = 0;
    for (uint32_t i = 0; i < num_regions && i < MAX_REGIONS; i++) {
        if (regions[i].memory == NULL || regions[i].bytes == 0)
            continue;
        uring->regions[uring->num_regions++] = (known_region){
            .start = regions[i].memory, .bytes = regions[i].bytes, .first_buffer = n};
        for (size_t at = 0; at < regions[i].bytes && n < MAX_BUFFERS; at += BUFFER_BYTES, n++) {
            size_t left = regions[i].bytes - at;
            const unsigned char *start = regions[i].memory;
            buffers[n] = (struct iovec){.iov_base = (void *)(uintptr_t)(start + at),
                                        .iov_len = left < BUFFER_BYTES ? left : BUFFER_BYTES};
        }
        known_region *last = &uring->regions[uring->num_regions - 1];
        size_t most = (size_t)(n - last->first_buffer) * BUFFER_BYTES;
        last->bytes = last->bytes < most ? last->bytes : most;
    }
    int result = n == 0 ? 0 : io_uring_register_buffers(&uring->ring, buffers, n);
    if (result < 0) {
        uring->num_regions = 0;
        qr_log(hooks, QUIRE_LOG_INFO,
               "file tier: memory is not registered with io_uring (%s); a little slower",
               strerror(-result));
    }
}

/* Reports need not interrupt this thread: it looks for them anyway. Older systems know no such
 * choice. */
static int init_ring(struct io_uring *ring, uint32_t num_entries)
{
    int result = io_uring_queue_init(num_entries, ring,
                                     IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
    return result == -EINVAL ? io_uring_queue_init(num_entries, ring, 0) : result;
}

int qr_file_uring_open(int fd, uint32_t max_ops, const qr_file_region *regions,
                       uint32_t num_regions, const quire_hooks *hooks, qr_file_io **io)
{
    file_uring *uring = qr_alloc(1, sizeof *uring);
    *io = NULL;
    if (uring == NULL)
        return -ENOMEM;
    uring->io = (qr_file_io){
        .name = "io_uring", .submit = uring_submit, .wait = uring_wait, .close = uring_close};
    uring->fd = fd;
    uring->polled_fd = -1;
    uring->max_ops = max_ops;
    uring->ops = qr_alloc(max_ops, sizeof(qr_file_op *));
    int result = uring->ops == NULL ? -ENOMEM : init_ring(&uring->ring, max_ops + 2);
    if (result < 0) {
        qr_free(uring->ops);
        qr_free(uring);
        return result;
    }
    uring->has_file = io_uring_register_files(&uring->ring, &fd, 1) == 0;
    register_regions(uring, regions, num_regions, hooks);
    *io = &uring->io;
    return 0;
}

#endif
