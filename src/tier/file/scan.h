/* tier/file/scan.h - the heads of all slots, read one after the other: the way back when no index
 * is valid.
 *
 *      the tier's thread: batches of heads ──► found[slot] ──► num_found ──► the scheduler's thread
 *
 * Of two heads with one key the older is as good as none: were it kept, it would be found in the
 * next life, after the newer one has gone. table tells: slot + 1 of each key so far, by open
 * addressing.
 *
 * Goes on beside the tier's work. found is written once, before num_found says so; entries of the
 * slab are the tier's own from then on. Until all is read nothing is stored: a store would not know
 * which slots are free. */
#ifndef QR_TIER_FILE_SCAN_H
#define QR_TIER_FILE_SCAN_H

#include "tier/file/slab.h"

#include <stdatomic.h>

typedef struct qr_file_scan {
    qr_file_entry *found;       /* NULL: no scan */
    _Atomic uint32_t num_found; /* slots read; all: the scan is over */
    uint32_t *table;            /* of table_size, a power of two above twice the slots */
    uint32_t table_size;
    uint64_t seed; /* of its places */
    uint32_t next;
    uint32_t num_left; /* ops of the batch that have not ended */
    uint32_t num_blocks;
    uint32_t num_told; /* quarters, in the log */
    bool is_stopped;   /* nothing is found any more: the file was reset */
    unsigned char *pages;
    qr_file_op ops[QR_FILE_SCAN_OPS];
} qr_file_scan;

/* Begins one, if pages (QR_FILE_SCAN_OPS of them) are set. QUIRE_E_NOMEM, QUIRE_E_RANDOM. */
int qr_file_scan_open(qr_file_scan *scan, const qr_file_slab *slab);
void qr_file_scan_close(qr_file_scan *scan);
/* Reads the next heads, if the last ones are there. */
void qr_file_scan_turn(qr_file_scan *scan, qr_file_slab *slab);
/* One of its ops has ended. */
void qr_file_scan_ended(qr_file_scan *scan, qr_file_slab *slab, qr_file_op *op);
bool qr_file_scan_is_over(const qr_file_scan *scan, const qr_file_slab *slab);

#endif
