/* cli/curve/ghosts.h - copies of a block that only larger pools hold.
 *
 * A prompt's last token is always computed. So where a prompt ends with its last block full and
 * that block is cached, the block is computed again and the pool holds it twice; later requests
 * find the copy that was cached first.
 *
 *      top                                       pools that hold D1: D1 moves to the top, D2
 *       |   D2  copy                             stays and is of no use any more: a ghost
 *       |   ..               a request uses D    pools that hold D2 alone: D2 moves
 *       |   D1  cached first                     smaller pools: D is computed, on top
 *
 * So at D2's place there is something in the pools that held D1, and nothing in smaller ones. A
 * ghost is a place and the smallest pool that it counts in. A block with b elements above it is in
 * a pool of n blocks
 *
 *      if b + (ghosts above it that count in n) < n
 *
 * and then in all larger ones: a pool of n + 1 blocks always holds what a pool of n holds, in the
 * same order, and one element more (whatever a request moves in both, the one element more stays
 * one, though it may become another). Ghosts are rare, so they stand in a plain list by position,
 * and a lookup below any of them costs time proportional to their number.
 */
#ifndef QUIRE_CLI_CURVE_GHOSTS_H
#define QUIRE_CLI_CURVE_GHOSTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct curve_ghost {
    uint32_t position;
    uint32_t min_blocks; /* the smallest pool that it counts in */
} curve_ghost;

typedef struct curve_ghosts {
    curve_ghost *list; /* by position */
    uint32_t num_ghosts;
    uint32_t room;
} curve_ghosts;

/* All zero is empty. */
void curve_ghosts_free(curve_ghosts *ghosts);
/* False: no memory. */
bool curve_ghosts_add(curve_ghosts *ghosts, curve_ghost ghost);
/* The smallest pool that holds the block at a position with so many elements above it. */
uint32_t curve_ghosts_min_blocks(const curve_ghosts *ghosts, uint32_t position, uint32_t num_above);

#endif
