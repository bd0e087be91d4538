#include "tier/file/io.h"

#include "base/hooks.h"

#include <errno.h>

int64_t qr_file_io_run(qr_file_io *io, qr_file_op *op, int timeout_ms)
{
    uint64_t until_ns = qr_now_ns(NULL) + (uint64_t)timeout_ms * 1000000;
    qr_file_op *ended = NULL;
    io->submit(io, op);
    while (io->wait(io, -1, timeout_ms, &ended, 1) == 0) {
        uint64_t now_ns = qr_now_ns(NULL);
        if (now_ns >= until_ns)
            return -ETIMEDOUT;
        timeout_ms = (int)((until_ns - now_ns) / 1000000) + 1;
    }
    return ended == op ? op->result : -EIO;
}
