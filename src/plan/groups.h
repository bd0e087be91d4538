/* plan/groups.h - which layers share block tables.
 *
 *      all layers merge into one spec?         one group                              ONE_SPEC
 *      all of one kind, pages differ?          one group                              ONE_TYPE
 *      latent layers with windows?             plan_tuples.h                          TUPLES
 *      else                                    enlarge blocks until pages are one     PAGES
 *                                              size, then groups of equal length
 */
#ifndef QR_PLAN_GROUPS_H
#define QR_PLAN_GROUPS_H

#include "plan/plan.h"

/* From plan->order and plan->specs to plan->groups and plan->shape. With hybrid off, window and
 * chunked layers become full ones first. QUIRE_OK or QUIRE_E_MIXED. */
int qr_plan_make_groups(quire_plan *plan, bool hybrid);

/* Whether all layers are of one type: they need the same number of blocks for the same tokens. */
bool qr_plan_same_type(const quire_plan *plan, qr_layers layers);

/* Starts a group at the end of the list; its layers follow those of the group before. */
qr_plan_group *qr_plan_add_group(quire_plan *plan);

#endif
