/* tier/offload/carts.h - pairs of blocks on their way, many in a cart.
 *
 *      store, load   first ──► [gpu 12 13 .. | cpu 4 9 .. | crcs] ◄──► [..] ◄──► [..] ◄── last
 *
 *      all carts of a list but its last one are full; an empty list has QR_NIL for both ends
 */
#ifndef QR_TIER_OFFLOAD_CARTS_H
#define QR_TIER_OFFLOAD_CARTS_H

#include "tier/offload/offload.h"

static inline void qr_reverse(const quire_block *blocks, uint32_t n, quire_block *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = blocks[n - 1 - i];
}

void qr_carts_init(quire_offload *o);
/* Adds pairs behind the last ones. */
void qr_carts_add(quire_offload *o, uint32_t *first, uint32_t *last, const quire_block *gpu,
                  const quire_block *cpu, uint32_t n);
/* Gives back a cart that no list needs any more. */
void qr_carts_return(quire_offload *o, uint32_t cart);

#endif
