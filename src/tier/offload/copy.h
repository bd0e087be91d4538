/* tier/offload/copy.h - stores and loads as jobs of a device.
 *
 *      load of a request, stores of a step ──► jobs of at most QR_COPIES_IN_JOB ──► device
 *                      ended when the last job has ended ◄──────────────────────────────┘
 *
 * A load that is not there in time is given up: its request computes instead, in other blocks.
 * Those of the jobs that the device still has are nobody's until it gives them back.
 *
 * What finds no free job, or a device that takes no more, is sent in a later poll. */
#ifndef QR_TIER_OFFLOAD_COPY_H
#define QR_TIER_OFFLOAD_COPY_H

#include "tier/offload/offload.h"

void qr_copy_init(quire_offload *o);
/* The point in the engine's compute behind which the copies of this step come. False: the device
 * has none, and nothing can be copied. */
bool qr_copy_mark(quire_offload *o);
/* Gives the device what it has not yet: loads first, requests wait for them. */
void qr_copy_send(quire_offload *o);
/* Takes what has ended, and gives up what is late. */
void qr_copy_poll(quire_offload *o);
/* A load begins to be due; and it has ended. */
void qr_copy_expect_load(quire_offload *o, uint32_t index);
void qr_copy_forget_load(quire_offload *o, uint32_t index);

#endif
