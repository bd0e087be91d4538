/* plan/buckets.h - which layers share block tables, as vLLM 0.32 decides.
 *
 *      all layers merge into one spec?      one group                                ONE_SPEC
 *      all of one type, pages differ?       one group                                ONE_TYPE
 *      blocks outermost, pages differ?      plan/packed.h                            PACKED
 *      pages can be made one size?          buckets of layers that merge, cut into   PAGES
 *                                           groups of equal length
 *      latent layers beside windows?        windows keep all tokens: one group       ONE_TYPE
 *
 * Layers of hidden states are then groups of their own (plan/hidden.h).
 *
 * Pages become one size by more tokens in a block where the size divides the largest; Mamba pages,
 * and attention pages that do not divide it, are padded. Latent pages are not.
 */
#ifndef QR_PLAN_BUCKETS_H
#define QR_PLAN_BUCKETS_H

#include "plan/plan.h"

/* As qr_plan_make_groups (plan/groups.h), for plans by_layout. */
int qr_plan_make_buckets(quire_plan *plan, bool hybrid);

#endif
