/* plan/block_sizes.h - the scheduler's block size, and the tokens under one hash.
 *
 *                          vLLM 0.20                        vLLM 0.32
 *      one group           its block size x all ranks       its block size x decode ranks
 *      several             least common multiple; no ranks  the same; blocks of attention groups
 *                                                           grow with the decode ranks
 *      hash, several       greatest common divisor          the same; Mamba not in align mode: the
 *                                                           scheduler's block size
 */
#ifndef QR_PLAN_BLOCK_SIZES_H
#define QR_PLAN_BLOCK_SIZES_H

#include "plan/plan.h"

/* Sets plan->block_size and plan->hash_block_size; p->block_size is known. QUIRE_OK, QUIRE_E_CONFIG
 * or QUIRE_E_RANGE. */
int qr_plan_resolve_block_sizes(quire_plan *plan, const quire_plan_params *p);

#endif
