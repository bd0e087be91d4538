/* events/publish/snapshot.h - the whole index as batches, for a subscriber that missed too much.
 *
 *      [ AllBlocksCleared, stored 2,048 keys ] [ stored 2,048 keys ] ... [ stored the rest ]
 *
 * Who begins here and goes on with the batches after `number` has what the pool has. The stored
 * keys have no parent and no tokens: the mirror does not keep them. */
#ifndef QR_EVENTS_PUBLISH_SNAPSHOT_H
#define QR_EVENTS_PUBLISH_SNAPSHOT_H

#include "events/publish/mirror.h"

#include "events/payload.h"
#include <quire/monitor.h>

#include <quire/wire.h>

typedef struct qr_snapshot {
    uint64_t number;
    uint32_t users; /* for whoever shares it */
    uint32_t num_pieces;
    qr_payload *pieces[];
} qr_snapshot;

typedef struct qr_snapshot_maker {
    quire_wire_writer *writer;
    quire_wire_hash *hashes; /* of one batch */
    uint32_t num_groups;     /* of one tier: the mirror has those of all, one after the other */
    quire_bytes mediums[QUIRE_MAX_TIERS];
    uint32_t num_tiers;
    uint32_t rank;
    uint32_t hashes_as_bytes;
    uint32_t every_copy;
    const quire_monitor_info *specs; /* see qr_feed_wire */
} qr_snapshot_maker;

/* The fields behind hashes must be set. QUIRE_E_NOMEM. */
int qr_snapshot_maker_init(qr_snapshot_maker *maker, uint32_t as_maps);
void qr_snapshot_maker_release(qr_snapshot_maker *maker);

/* At least one batch, all of this number. NULL: no memory. */
qr_snapshot *qr_snapshot_make(qr_snapshot_maker *maker, const qr_mirror *mirror, uint64_t number,
                              double time, qr_budget *budget);
void qr_snapshot_destroy(qr_snapshot *whole);

#endif
