/* plan/packed.h - groups of a model with several page sizes, in a layout with blocks outermost: the
 * layers of a group lie side by side in a block, each with a page of its own size.
 *
 *      buckets   layers of one type
 *                    a b a b a b     balanced: as many layers of each size; 3 repeats of (a b)
 *                    c c c c         5 of one size is 5 repeats
 *                    d d e           not balanced: one group, whole
 *      groups    balanced buckets are cut into groups of about as many repeats
 *                buckets of states (Mamba, circular buffers; windows, where nothing is cut) are cut
 *                until a group fits into the block that the other groups need
 */
#ifndef QR_PLAN_PACKED_H
#define QR_PLAN_PACKED_H

#include "plan/plan.h"

/* Whether the layout and the pages call for it. */
bool qr_plan_packs(const quire_plan *plan);
/* QUIRE_OK or QUIRE_E_MIXED. A group may lack layers of its bucket: vLLM then fails behind the
 * checks of memory. */
int qr_plan_group_packed(quire_plan *plan);

#endif
