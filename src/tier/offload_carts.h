/* tier/offload_carts.h - pairs of blocks on their way, as many in a cart as lie in one line of
 * memory.
 *
 *      store, load   first ──► [gpu 12 cpu 4, gpu 13 cpu 9, ..] ──► [..] ──► [..] last
 *
 *      all carts of a list but its last one are full; an empty list has QR_NIL for both ends
 */
#ifndef QR_TIER_OFFLOAD_CARTS_H
#define QR_TIER_OFFLOAD_CARTS_H

#include "tier/offload.h"

void qr_carts_init(quire_offload *o);
/* Adds pairs behind the last ones. */
void qr_carts_add(quire_offload *o, uint32_t *first, uint32_t *last, const quire_block *gpu,
                  const quire_block *cpu, uint32_t n);
/* Gives a cart back; adds its pairs to *n of each kind. Returns the next one. */
uint32_t qr_carts_empty(quire_offload *o, uint32_t cart, quire_block *gpu, quire_block *cpu,
                        uint32_t *n);

#endif
