/* plan/placement.h - where vLLM 0.32 puts the layers of a worker: one allocation for all, in the
 * order that a layout names.
 *
 *      layers outermost     group 0   | A: block 0, block 1, ... | B: block 0, block 1, ... |
 *                           group 1   | C: block 0, block 1, ... | D: ...                   |
 *      blocks outermost     group 0   | block 0: A B, padding    | block 1: A B, padding    | ...
 *                           group 1   | block 0: C   D           | ...
 *
 * The groups lie over each other, since a block belongs to one group at a time.
 *
 *      bytes of a block     of the group with most: the sum of the pages of its layers here
 *      blocks               memory / bytes of a block
 *      one request          bytes of a block x sum of the groups' most pages; the null block must
 *                           fit beside it
 */
#ifndef QR_PLAN_PLACEMENT_H
#define QR_PLAN_PLACEMENT_H

#include "plan/plan.h"

bool qr_layout_has_blocks_outermost(quire_kv_layout layout);

/* Bytes of a block on a worker; and of one request of max_model_len tokens. */
uint64_t qr_placement_block_bytes(const quire_plan *plan, const qr_plan_share *share);
uint64_t qr_placement_needed_bytes(const quire_plan *plan, const qr_plan_share *share,
                                   uint32_t max_model_len);
/* Requests of the maximum length that num_blocks hold on this worker. */
double qr_placement_concurrency(const quire_plan *plan, const qr_plan_share *share);

/* Fills the share's tensors, when num_blocks is known. QUIRE_OK, or QUIRE_E_MIXED and a sentence:
 * the layout cannot hold these pages. */
int qr_placement_make_tensors(const quire_plan *plan, qr_plan_share *share);

#endif
