/* tier/offload/store.h - stores: which blocks, and what becomes of them.
 *
 *      eager   blocks of the requests of a step, as far as they were computed before it
 *      lazy    the head of the engine's free queue: what will be evicted next
 *
 *      chosen ──► CPU block taken, GPU block kept ──► copied ──► the CPU block gets the key
 *                                                        └─ failed, reset: it stays empty
 */
#ifndef QR_TIER_OFFLOAD_STORE_H
#define QR_TIER_OFFLOAD_STORE_H

#include "tier/offload/offload.h"

/* quire_connector.update_state_after_alloc, as far as stores go. */
void qr_store_note_alloc(quire_offload *o, quire_req req, const quire_block_span *blocks);
/* Chooses the stores of a step, and puts them into the meta. */
void qr_store_build(quire_offload *o, const quire_step *step);
/* The request ends: its last full blocks. */
void qr_store_last_blocks(quire_offload *o, qr_offload_req *r);
/* The request loses its blocks, and comes back: all full blocks of its first num_tokens tokens that
 * the CPU pool lacks; none if the request has more blocks than half of that pool. is_urgent: half
 * of its blocks at least are free at once. Returns how many of its first tokens are in the CPU
 * pool, or on their way to it. */
uint32_t qr_store_preempted(quire_offload *o, qr_offload_req *r, const quire_block_span *blocks,
                            uint32_t num_tokens, bool is_urgent);

#endif
