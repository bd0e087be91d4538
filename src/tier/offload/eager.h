/* tier/offload/eager.h - eager stores: blocks of the requests of a step, as far as they were
 * computed before it; of steps with few tokens, those of some together.
 *
 *      in vLLM's profile, and where a group has a window, request by request; else all together
 */
#ifndef QR_TIER_OFFLOAD_EAGER_H
#define QR_TIER_OFFLOAD_EAGER_H

#include "tier/offload/round.h"

/* Nothing of the request is stored, and it has other blocks. */
void qr_eager_begin(quire_offload *o, uint32_t index);
/* In the order in which vLLM goes through a step; has_place: there is one for their event. */
void qr_eager_choose(quire_offload *o, const quire_step *step, bool has_place,
                     qr_store_round *round);
/* Those of a request that ends. */
void qr_eager_choose_last(quire_offload *o, qr_offload_req *r, qr_store_round *round);

#endif
