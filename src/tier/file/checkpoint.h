/* tier/file/checkpoint.h - the index on disk, brought up to date from time to time.
 *
 *      supers (after a reset) ─► entries, piece by piece ─► page: from here on it counts
 *
 * One op at a time, each on the device before the next, beside everything else. Blocks need not be
 * on the device: were they lost, heads and CRCs would tell. Index A and B take turns: the one that
 * counts is never written. Pieces may be of different times, since what an index says of a slot is
 * compared with the slot's head; where a key is in two entries the newer one counts. */
#ifndef QR_TIER_FILE_CHECKPOINT_H
#define QR_TIER_FILE_CHECKPOINT_H

#include "tier/file/slab.h"

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
    uint32_t num_done;
} qr_file_checkpoint;

/* Begins one if it is due and there is something new. */
void qr_file_checkpoint_turn(qr_file_checkpoint *checkpoint, qr_file_slab *slab, uint64_t now_ns);
/* The slab's op has ended: goes on. */
void qr_file_checkpoint_ended(qr_file_checkpoint *checkpoint, qr_file_slab *slab);
/* Whether there is something that the disk does not know. */
bool qr_file_checkpoint_is_needed(const qr_file_checkpoint *checkpoint, const qr_file_slab *slab);

#endif
