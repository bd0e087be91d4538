/* tier/offload/protect.h - what waiting requests will need is evicted last.
 *
 *      waiting   r1   r2   r3   r4  ...   the first `backlog` of them
 *                 │    │    │
 *                 ▼    ▼    ▼
 *      CPU blocks with a user more each: they are not in the free queue
 *
 * A request is looked up once, when it comes into view. Its blocks are free again when it is
 * admitted or ends; and when there is no other room, those of the last in the queue go first. */
#ifndef QR_TIER_OFFLOAD_PROTECT_H
#define QR_TIER_OFFLOAD_PROTECT_H

#include "tier/offload/offload.h"

void qr_protect_init(quire_offload *o);
/* Looks at the queue, when it may have changed. Not inside callbacks. */
void qr_protect_look(quire_offload *o);
/* The request was admitted, or has ended. */
void qr_protect_release(quire_offload *o, quire_req req);
void qr_protect_release_all(quire_offload *o);
/* How many blocks of a request are protected; 0 where it is out of view. */
uint32_t qr_protect_count(const quire_offload *o, quire_req req);
/* They, in order, so many; of a request in view. */
void qr_protect_list(const quire_offload *o, quire_req req, quire_block *blocks);
/* From `first` on they keep their user, who is the caller's now. */
void qr_protect_hand_over(quire_offload *o, quire_req req, uint32_t first);
/* The last in the queue gives its blocks up; false: nobody has any. */
bool qr_protect_give_way(quire_offload *o);

#endif
