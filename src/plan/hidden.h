/* plan/hidden.h - layers of hidden states, which vLLM 0.32 keeps out of the groups of attention
 * layers: each is a group of its own.
 *
 *      packed        the layer as it is
 *      pages of one  as many tokens in a block as the page holds, of the divisors of all block
 *      size          sizes; if the page does not hold one token, all blocks grow first
 */
#ifndef QR_PLAN_HIDDEN_H
#define QR_PLAN_HIDDEN_H

#include "plan/plan.h"

/* Takes these layers out of plan->order; they stay valid behind its end. */
qr_layers qr_plan_set_hidden_aside(quire_plan *plan);

/* Add their groups behind the others. QUIRE_OK or QUIRE_E_MIXED. */
void qr_plan_add_hidden_packed(quire_plan *plan, qr_layers hidden);
int qr_plan_add_hidden_pages(quire_plan *plan, qr_layers hidden);

#endif
