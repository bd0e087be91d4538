/* tier/offload/load.h - loads: CPU blocks to the GPU blocks that a request got for them.
 *
 *      WAITS ──build_meta──► ON_THE_WAY ──report, or the device──► ENDED ──poll──► TOLD ──update──►
 *
 * In a hybrid model a hit covers the tail of what a group has, the window, so both sides are laid
 * end to end:
 *
 *      CPU hit           [ null ][ null ][ c8 ][ c9 ]
 *      GPU blocks  [ g1 ][ null ][ null ][ g4 ][ g5 ][ g6 ]
 *                                            ^ local + external tokens end here
 */
#ifndef QR_TIER_OFFLOAD_LOAD_H
#define QR_TIER_OFFLOAD_LOAD_H

#include "tier/offload/offload.h"

/* quire_connector.update_state_after_alloc, as far as loads go. */
void qr_load_begin(quire_offload *o, quire_req req, const quire_block_span *blocks,
                   uint32_t num_external);
/* Puts the loads that wait into the meta. zeroes: the step clears blocks that it took; those of its
 * own loads may be among them, so they come after it. */
void qr_load_build(quire_offload *o, bool zeroes);
/* There is no way to load them: they are computed. */
void qr_load_refuse(quire_offload *o);
/* Whether a load of this request can be reported. */
bool qr_load_is_on_the_way(quire_offload *o, quire_req req);
void qr_load_end(quire_offload *o, uint32_t index, bool has_failed);
/* Its request has ended; false: there is no load, nothing has to be kept. */
bool qr_load_abandon(quire_offload *o, qr_offload_req *r);
/* Into the output of the update of this step. */
void qr_load_tell(quire_offload *o, uint64_t step, quire_model_output *output);
/* In that update: what was told is over. */
void qr_load_finish_told(quire_offload *o);
/* What is on the way does not count any more. */
void qr_load_drop_all(quire_offload *o);

#endif
