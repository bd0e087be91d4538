/* tier/file/workers.h - a few threads that do what may take long.
 *
 *      give ──► waiting ──► a thread: run(work) ──► ended ──► wait
 *
 * For calls that have no other way of not waiting: reading files where there is no io_uring, and
 * everything that opens, links or lists. A thread that hangs in the system holds up its own work
 * alone.
 *
 * Threads: give, wait and close belong to one thread; run is called on any of the workers. */
#ifndef QR_TIER_FILE_WORKERS_H
#define QR_TIER_FILE_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct qr_file_work {
    void (*run)(struct qr_file_work *work);
    struct qr_file_work *next;
} qr_file_work;

typedef struct qr_file_workers qr_file_workers;

/* QUIRE_OK, QUIRE_E_NOMEM, QUIRE_E_SYSTEM. */
int qr_file_workers_open(uint32_t num_threads, qr_file_workers **out);
void qr_file_workers_give(qr_file_workers *workers, qr_file_work *work);
/* All that ended, a list, the first that ended first; NULL: none did in timeout_ms (-1: for ever),
 * or wake_fd (-1: none) can be read. */
qr_file_work *qr_file_workers_wait(qr_file_workers *workers, int wake_fd, int timeout_ms);
/* What waits is not begun any more. false: a thread did not come back in timeout_ms; then all stays
 * where it is. NULL is fine. */
bool qr_file_workers_close(qr_file_workers *workers, int timeout_ms);

#endif
