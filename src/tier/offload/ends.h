/* tier/offload/ends.h - stores that ended: the CPU blocks get their keys, and nobody holds the GPU
 * blocks any more. */
#ifndef QR_TIER_OFFLOAD_ENDS_H
#define QR_TIER_OFFLOAD_ENDS_H

#include "tier/offload/offload.h"

/* The event of a number that is on the way; NULL: there is none. */
qr_offload_event *qr_store_event(quire_offload *o, uint64_t id);
/* So many reports more, to be looked at in the update. */
void qr_store_report(quire_offload *o, qr_offload_event *event, uint32_t num_reports);
void qr_store_finish_told(quire_offload *o);
void qr_store_drop_all(quire_offload *o);
/* Whether stores are past their deadline: then none is begun before they have ended. They keep
 * their blocks, which a copy may still read; plan.c says how many that can be. */
void qr_store_note_late(quire_offload *o);
/* The device refused all of an event in the step that made it: as if nothing had been chosen, also
 * in the engine's free queue. */
void qr_store_undo(quire_offload *o, qr_offload_event *event);

#endif
