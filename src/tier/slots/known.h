/* tier/slots/known.h - which keys of a tier that is shared this engine has seen there.
 *
 *      DONE of STORE, LOAD, FIND            ──► known
 *      MISSING, WRONG; DONE of REMOVE       ──► not known any more
 *      more keys than there is room for     ──► the one that was not used for longest goes
 *
 * What is known may be gone meanwhile, by others' hands: then a load is a miss, and that is known
 * from then on.
 *
 * Threads: the scheduler's. */
#ifndef QR_TIER_SLOTS_KNOWN_H
#define QR_TIER_SLOTS_KNOWN_H

#include <quire/slots.h>

#include <stdbool.h>

/* The slots of so many keys; QUIRE_E_NOMEM, QUIRE_E_RANDOM, QUIRE_E_CONFIG. */
int qr_known_open(uint32_t num_keys, const quire_hooks *hooks, quire_slots **known);
/* After a job has ended; NULL is fine. */
void qr_known_finish(quire_slots *known, const quire_tier_job *job);

/* Of quire_tier_ops: self begins with a quire_slots *, which may be NULL. */
void qr_known_finish_job(void *self, quire_tier_job *job);
void qr_known_touch_keys(void *self, const quire_tier_key *keys, uint32_t n);
quire_usage qr_known_get_usage(void *self);
quire_slots *qr_known_get_slots(void *self);

#endif
