/* tier/file/io.h - reading and writing a file without waiting for it.
 *
 *      submit(op) ──► io_uring (uring.c), threads (pool.c), or a test's faulty disk
 *      wait()     ◄── ops that ended: result is their bytes, or -errno
 *
 * An op belongs to the io from submit until wait gives it back, and so does its memory. One that
 * the device never ends is never given back: then close says so and frees nothing. Each op has a
 * tag of its own, and a generation that counts its uses: what a device reports is matched with
 * both, so that a late or doubled report never counts for another use of the same op.
 *
 * Threads: one. */
#ifndef QR_TIER_FILE_IO_H
#define QR_TIER_FILE_IO_H

#include "tier/file/workers.h"

#include <quire/config.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum qr_file_op_kind {
    QR_FILE_READ = 1,
    QR_FILE_WRITE = 2,
    QR_FILE_SYNCED = 3 /* a write that is on the device when it has ended; others need not be */
} qr_file_op_kind;

typedef struct qr_file_op {
    qr_file_op_kind kind;
    uint32_t bytes;
    void *memory;
    uint64_t offset;
    int64_t result; /* bytes, fewer than asked for too; -errno */
    uint32_t tag;   /* below the io's max_ops */
    uint32_t generation;
    qr_file_work work; /* where threads do it */
} qr_file_op;

static inline qr_file_op *qr_file_op_of(qr_file_work *work)
{
    return (qr_file_op *)(void *)((char *)work - offsetof(qr_file_op, work));
}

typedef struct qr_file_io {
    const char *name;
    void (*submit)(struct qr_file_io *io, qr_file_op *op);
    /* Starts what was submitted; gives up to capacity ops that ended, and waits for the first of
     * them at most timeout_ms (-1: for ever) or until wake_fd (-1: none) can be read. */
    uint32_t (*wait)(struct qr_file_io *io, int wake_fd, int timeout_ms, qr_file_op **ended,
                     uint32_t capacity);
    /* false: ops are in flight even after timeout_ms; nothing was freed. */
    bool (*close)(struct qr_file_io *io, int timeout_ms);
    uint32_t num_in_flight;
} qr_file_io;

typedef struct qr_file_region {
    const void *memory;
    size_t bytes;
} qr_file_region;

/* uring.c, with the memory that will be used again and again. 0, or -errno: -ENOSYS when it was not
 * built; then threads do. fd stays the caller's. */
int qr_file_uring_open(int fd, uint32_t max_ops, const qr_file_region *regions,
                       uint32_t num_regions, const quire_hooks *hooks, qr_file_io **io);
/* pool.c: slower, and the same in all else. QUIRE_OK, QUIRE_E_NOMEM, QUIRE_E_SYSTEM. */
int qr_file_pool_open(int fd, uint32_t num_threads, qr_file_io **io);

#endif
