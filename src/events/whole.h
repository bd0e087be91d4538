/* events/whole.h - the whole index as batches, for those who cannot be caught up otherwise.
 *
 *      [ AllBlocksCleared, stored 2,048 keys ] [ stored 2,048 keys ] ... [ stored the rest ]
 *
 * Who begins here and goes on with the batches after `number` has what the pool has. The stored
 * keys have no parent and no tokens: the mirror does not keep them. */
#ifndef QR_EVENTS_WHOLE_H
#define QR_EVENTS_WHOLE_H

#include "events/mirror.h"

#include "events/payload.h"
#include <quire/monitor.h>

#include <quire/wire.h>

typedef struct qr_whole {
    uint64_t number;
    uint32_t users; /* for whoever shares it */
    uint32_t num_pieces;
    qr_payload *pieces[];
} qr_whole;

typedef struct qr_whole_maker {
    quire_wire_writer *writer;
    quire_wire_hash *hashes; /* of one batch */
    uint32_t num_groups;     /* of one tier: the mirror has those of all, one after the other */
    quire_bytes mediums[QUIRE_MAX_TIERS];
    uint32_t num_tiers;
    uint32_t rank;
    uint32_t hashes_as_bytes;
    uint32_t every_copy;
} qr_whole_maker;

/* The fields behind hashes must be set. QUIRE_E_NOMEM. */
int qr_whole_maker_init(qr_whole_maker *maker, uint32_t as_maps);
void qr_whole_maker_release(qr_whole_maker *maker);

/* At least one batch, all of this number. NULL: no memory. */
qr_whole *qr_whole_make(qr_whole_maker *maker, const qr_mirror *mirror, uint64_t number,
                        double time, qr_purse *purse);
void qr_whole_destroy(qr_whole *whole);

#endif
