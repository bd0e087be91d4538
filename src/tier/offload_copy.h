/* tier/offload_copy.h - stores and loads as jobs of a device.
 *
 *      load of a request, stores of a step ──► jobs of at most QR_COPIES_IN_JOB ──► device
 *                      ended when the last job has ended ◄──────────────────────────────┘
 *
 * What finds no free job, or a device that takes no more, is sent in a later poll. */
#ifndef QR_TIER_OFFLOAD_COPY_H
#define QR_TIER_OFFLOAD_COPY_H

#include "tier/offload.h"

void qr_copy_init(quire_offload *o);
/* The point in the engine's compute behind which the copies of this step come. False: the device
 * has none, and nothing can be copied. */
bool qr_copy_mark(quire_offload *o);
/* Gives the device what it has not yet: loads first, requests wait for them. */
void qr_copy_send(quire_offload *o);
/* Takes what has ended. */
void qr_copy_poll(quire_offload *o);

#endif
