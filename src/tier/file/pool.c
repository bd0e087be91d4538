/* tier/file/pool.c - a file read and written by threads, where io_uring is not allowed or built. */
#include "tier/file/io.h"

#include "base/memory.h"

#include <quire/error.h>

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct file_pool {
    qr_file_io io;
    qr_file_workers *workers;
    qr_file_work *ended; /* that did not fit into an answer */
    int fd;
} file_pool;

/* Until it is done, the descriptor is in result. */
static void run_op(qr_file_work *work)
{
    qr_file_op *op = qr_file_op_of(work);
    struct iovec part = {.iov_base = op->memory, .iov_len = op->bytes};
    int fd = (int)op->result;
    int flags = op->kind == QR_FILE_SYNCED ? RWF_DSYNC : 0;
    ssize_t done = op->kind == QR_FILE_READ ? preadv2(fd, &part, 1, (off_t)op->offset, 0)
                                            : pwritev2(fd, &part, 1, (off_t)op->offset, flags);
    op->result = done < 0 ? -errno : done;
}

static void pool_submit(qr_file_io *io, qr_file_op *op)
{
    file_pool *pool = (file_pool *)(void *)io;
    op->result = pool->fd; /* until it is done: all that a thread must know is in the op */
    op->generation++;
    op->work.run = run_op;
    io->num_in_flight++;
    qr_file_workers_give(pool->workers, &op->work);
}

static uint32_t pool_wait(qr_file_io *io, int wake_fd, int timeout_ms, qr_file_op **ended,
                          uint32_t capacity)
{
    file_pool *pool = (file_pool *)(void *)io;
    uint32_t n = 0;
    if (capacity == 0)
        return 0;
    if (pool->ended == NULL)
        pool->ended = qr_file_workers_wait(pool->workers, wake_fd, timeout_ms);
    while (pool->ended != NULL && n < capacity) {
        ended[n++] = qr_file_op_of(pool->ended);
        pool->ended = pool->ended->next;
    }
    io->num_in_flight -= n;
    return n;
}

static bool pool_close(qr_file_io *io, int timeout_ms)
{
    file_pool *pool = (file_pool *)(void *)io;
    if (!qr_file_workers_close(pool->workers, timeout_ms))
        return false;
    qr_free(pool);
    return true;
}

int qr_file_pool_open(int fd, uint32_t num_threads, qr_file_io **io)
{
    file_pool *pool = qr_alloc(1, sizeof *pool);
    *io = NULL;
    if (pool == NULL)
        return QUIRE_E_NOMEM;
    pool->io = (qr_file_io){
        .name = "threads", .submit = pool_submit, .wait = pool_wait, .close = pool_close};
    pool->fd = fd;
    int status = qr_file_workers_open(num_threads, &pool->workers);
    if (status != QUIRE_OK) {
        qr_free(pool);
        return status;
    }
    *io = &pool->io;
    return QUIRE_OK;
}
