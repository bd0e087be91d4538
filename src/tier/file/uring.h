/* tier/file/uring.h - a file read and written through io_uring.
 *
 * The file is registered, and so is the memory that is known to be used again and again: the system
 * then neither looks it up nor pins it for each op. Where it refuses to register (a limit on locked
 * memory), the ring works without. */
#ifndef QR_TIER_FILE_URING_H
#define QR_TIER_FILE_URING_H

#include "tier/file/io.h"

#include <quire/config.h>

#include <stddef.h>

typedef struct qr_file_region {
    const void *memory;
    size_t bytes;
} qr_file_region;

/* 0, or -errno: -ENOSYS when it was not built; then threads do. fd stays the caller's. */
int qr_file_uring_open(int fd, uint32_t max_ops, const qr_file_region *regions,
                       uint32_t num_regions, const quire_hooks *hooks, qr_file_io **io);

#endif
