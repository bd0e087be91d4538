/* tier/file/pool.h - a file read and written by threads, where io_uring is not allowed or not
 * built.
 *
 * Slower than io_uring and the same in all else: see io.h. */
#ifndef QR_TIER_FILE_POOL_H
#define QR_TIER_FILE_POOL_H

#include "tier/file/io.h"

/* QUIRE_OK, QUIRE_E_NOMEM, QUIRE_E_SYSTEM. fd stays the caller's. */
int qr_file_pool_open(int fd, uint32_t num_threads, qr_file_io **io);

#endif
