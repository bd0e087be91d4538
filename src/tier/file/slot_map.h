/* tier/file/slot_map.h - the private file as the scheduler's thread sees it: which key is in which
 * slot.
 *
 *      key ──► quire_slots ──► slot ──► known[slot].place ──► where it lies in the file
 *
 * quire_slots hands out numbers as it likes; what was found in the file lies where it lies. place
 * is a permutation between the two, turned when something found is taken in.
 *
 * doomed    a key whose block is wrong, or that is to go: nobody finds it any more, and it is
 *           removed when its last user has gone.
 *
 * Threads: the scheduler's. */
#ifndef QR_TIER_FILE_SLOT_MAP_H
#define QR_TIER_FILE_SLOT_MAP_H

#include "tier/file/scan.h"

#include <quire/slots.h>

/* In io->place, set by the tier's thread: the key is to be forgotten. */
#define QR_FILE_FORGET (UINT64_C(1) << 63)

typedef struct qr_file_known {
    quire_tier_key key;
    uint32_t place;
    uint32_t bytes;
    bool is_doomed;
} qr_file_known;

typedef struct qr_file_slot_map {
    quire_slots *slots; /* first, see known.h */
    uint32_t num_slots;
    qr_file_known *known; /* by slot */
    uint32_t *slot_at;    /* by place: slot_at[known[s].place] == s */
    uint32_t num_doomed;
    uint32_t num_resets; /* io->generation of what was prepared since, less 1 */
    uint32_t num_taken;  /* of what a scan found */
    qr_file_scan *scan;  /* NULL: none */
} qr_file_slot_map;

/* QUIRE_E_NOMEM or what quire_slots_create says; closed by the caller, also after an error. */
int qr_file_slot_map_open(qr_file_slot_map *map, uint32_t num_slots, quire_slots_policy policy,
                          const quire_hooks *hooks);
void qr_file_slot_map_close(qr_file_slot_map *map);

/* What an index said, the oldest first. Of two entries with one key the older is cleared: it would
 * be found in the next life, after the newer one has gone. memory: num_slots x 4 bytes, for the
 * order. */
void qr_file_slot_map_take_index(qr_file_slot_map *map, qr_file_entry *entries, uint32_t *memory);

/* As quire_tier_ops has them: self begins with the map. */
void qr_file_slot_map_prepare(void *self, quire_tier_job *job);
void qr_file_slot_map_finish(void *self, quire_tier_job *job);
void qr_file_slot_map_lookup(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found);
void qr_file_slot_map_reset(qr_file_slot_map *map);

#endif
