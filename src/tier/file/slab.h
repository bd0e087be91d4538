/* tier/file/slab.h - the private file as the tier's thread sees it: what lies in each slot.
 *
 *      disk     super A|B     index A|B       heads of slots
 *                  │             │ the newest valid    │ only where no index is valid (scan.h)
 *                  ▼             ▼                     ▼
 *      memory   super         entries[slot] = key, bytes, crc ──► index, from time to time
 *
 * An entry that comes from an index is believed once its head was read (QR_FILE_CHECKED): the slot
 * may have been written again after that index. What this process wrote it knows.
 *
 * Threads: the one that opens, then the tier's. */
#ifndef QR_TIER_FILE_SLAB_H
#define QR_TIER_FILE_SLAB_H

#include "base/bits.h"
#include "base/hooks.h"
#include "tier/file/format.h"
#include "tier/file/io.h"

#include <quire/tier_file.h>

enum {
    QR_FILE_CHECKED = 1, /* extra of an entry in memory */
    QR_FILE_STAGING = QR_AT_A_TIME(256 << 10, QR_FILE_PAGE),
    QR_FILE_TAG_SLAB = 0,
    QR_FILE_TAG_SCAN = 1,
    QR_FILE_SCAN_OPS = QR_AT_A_TIME(32, 2),
    QR_FILE_TAG_TASK = QR_FILE_TAG_SCAN + QR_FILE_SCAN_OPS
};

/* What lies below the io: the file's own size. A test's disk has its own. */
typedef struct qr_file_disk {
    void *user;
    uint64_t bytes; /* that it has now */
    /* Both say what is wrong; QUIRE_OK or QUIRE_E_SYSTEM. */
    int (*empty)(void *user);
    int (*reserve)(void *user, uint64_t bytes);
} qr_file_disk;

typedef struct qr_file_want {
    qr_file_layout layout;
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    quire_tier_file_other if_other;
    uint64_t pid;
    int timeout_ms; /* of each op while opening */
} qr_file_want;

typedef struct qr_file_slab {
    const char *path; /* in messages */
    const quire_hooks *hooks;
    qr_file_io *io;
    qr_file_layout layout;
    qr_file_super super;
    qr_file_entry *entries;
    uint64_t num_changes; /* of entries */
    uint64_t next_seq;
    uint64_t index_seq;     /* of the newest index that is valid; 0: none is */
    qr_file_op op;          /* for super and index; tag QR_FILE_TAG_SLAB */
    unsigned char *staging; /* for op: QR_FILE_STAGING bytes, on a page */
    bool must_scan;         /* no index was valid: the heads must tell */
} qr_file_slab;

/* slab: path, hooks, io, entries (zeroed, want->layout.num_slots) and staging are set. Finds out
 * what the file is, makes it where it is none yet, reads its index. QUIRE_E_SYSTEM,
 * QUIRE_E_CORRUPT. */
int qr_file_slab_open(qr_file_slab *slab, const qr_file_want *want, qr_file_disk *disk);

/* What a head page says of its slot; false: nothing that is of this file, or of another key than
 * the entry's, where one is given. */
bool qr_file_slab_judge(const qr_file_slab *slab, const void *page, uint32_t slot,
                        const quire_tier_key *key, qr_file_entry *entry);

/* "PATH: cannot WHAT: ..." */
int qr_file_fail(const char *path, const char *what, int error);

/* ---- a checkpoint: the index on disk, brought up to date from time to time ----
 *
 *      supers (after a reset) ─► entries, piece by piece ─► page: from here on it counts
 *
 * One op at a time, each on the device before the next, beside everything else. Blocks need not be
 * on the device: were they lost, heads and CRCs would tell. Index A and B take turns: the one that
 * counts is never written. Pieces may be of different times, since what an index says of a slot is
 * compared with the slot's head; where a key is in two entries the newer one counts. */

typedef enum qr_file_stage {
    QR_FILE_IDLE = 0,
    QR_FILE_SUPER,
    QR_FILE_ENTRIES,
    QR_FILE_INDEX
} qr_file_stage;

typedef struct qr_file_checkpoint {
    qr_file_stage stage;
    uint64_t interval_ns;
    uint64_t due_ns;
    uint64_t num_changes; /* of the slab, when it was begun */
    uint64_t num_saved;   /* and when the one that counts was */
    uint64_t at;          /* bytes of entries written */
    uint32_t crc;         /* of them */
    uint64_t epoch_saved; /* that the supers say; another one: they are written first */
    uint64_t epoch;       /* that they will say */
    uint32_t num_supers;  /* of the two, that were written */
    bool has_failed;      /* said in the log, once */
    uint32_t num_failed;
} qr_file_checkpoint;

/* Begins one if it is due and there is something new. */
void qr_file_checkpoint_turn(qr_file_checkpoint *checkpoint, qr_file_slab *slab, uint64_t now_ns);
/* The slab's op has ended: goes on. */
void qr_file_checkpoint_ended(qr_file_checkpoint *checkpoint, qr_file_slab *slab);
/* Whether there is something that the disk does not know. */
bool qr_file_checkpoint_is_needed(const qr_file_checkpoint *checkpoint, const qr_file_slab *slab);

#endif
