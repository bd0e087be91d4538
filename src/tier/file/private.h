/* tier/file/private.h - the private file as a tier: the parts, put together.
 *
 *      scheduler's thread   map ── place of each io ──► job ──► tasks, checkpoint, scan   tier's
 *                                                                    │  slab               thread
 *                                                                    ▼
 *                                                        io: io_uring or threads ──► the file
 */
#ifndef QR_TIER_FILE_PRIVATE_H
#define QR_TIER_FILE_PRIVATE_H

#include "tier/core/tier.h"
#include "tier/file/open.h"
#include "tier/file/slot_map.h"
#include "tier/file/tasks.h"

typedef struct qr_file_private {
    qr_file_slot_map map; /* first: it is also the self of ops */
    quire_tier_file_config config;
    quire_hooks hooks;
    char *path;
    qr_file_handle handle;
    qr_file_io *io;
    qr_file_slab slab;
    qr_file_tasks tasks;
    qr_file_checkpoint checkpoint;
    qr_file_scan scan;
    unsigned char next_fingerprint[QUIRE_FINGERPRINT_BYTES]; /* with the next reset */
    _Atomic uint32_t num_resets;                             /* asked for, */
    _Atomic uint32_t num_resets_done;                        /* begun on the tier's thread, */
    _Atomic uint32_t num_resets_saved;                       /* on the device, */
    _Atomic uint32_t num_resets_failed;                      /* or not */
    uint32_t num_failed_before; /* checkpoints, when the last reset was begun */
    uint32_t is_open;
    int open_ms;  /* the longest that an op may take while opening */
    int close_ms; /* that closing waits for an op */
    void *memory; /* of pages, before they are aligned */
    qr_file_task *task_memory;
    qr_file_disk *given_disk; /* a test's, with io: no file is opened */
} qr_file_private;

extern const quire_tier_ops qr_file_private_ops;

extern const qr_tier_kind qr_file_private_kind;
extern const qr_tier_kind qr_file_shared_kind; /* shared.c: a directory instead of the file */

/* As qr_tier_kind has it. The path is copied. */
int qr_file_private_init(void *self, const void *config, uint32_t max_jobs,
                         const quire_hooks *hooks);

#endif
