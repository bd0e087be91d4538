/* cli/curve_ghosts.h - copies of a block that only pools of some sizes hold.
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
 * So at D2's place there is something in pools of some sizes and nothing in the others, and the
 * stack is no longer the same for all sizes. A ghost is a place and the sizes at which it counts:
 * [from, to) blocks. A block with b elements above it is then in a pool of n blocks
 *
 *      if b + (ghosts above it that count at n) < n
 *
 * which may hold for n and not for n + 1. Ghosts are rare, so they stand in a plain list by
 * position, and a lookup below any of them costs time proportional to their number.
 */
#ifndef QUIRE_CLI_CURVE_GHOSTS_H
#define QUIRE_CLI_CURVE_GHOSTS_H

#include <stdbool.h>
#include <stdint.h>

#define CURVE_ANY_SIZE UINT32_MAX

/* Sizes [from, to) of a pool. */
typedef struct curve_range {
    uint32_t from;
    uint32_t to; /* CURVE_ANY_SIZE: without end */
} curve_range;

/* Disjoint, in order. */
typedef struct curve_sizes {
    curve_range *ranges;
    uint32_t num_ranges;
    uint32_t room;
} curve_sizes;

typedef struct curve_ghost {
    uint32_t position;
    curve_range sizes;
} curve_ghost;

/* A size from which on one ghost more or one less counts. */
typedef struct curve_edge {
    uint32_t size;
    int32_t change;
} curve_edge;

typedef struct curve_ghosts {
    curve_ghost *list; /* by position */
    uint32_t num_ghosts;
    uint32_t room;
    curve_edge *edges; /* while asking */
    uint64_t edges_room;
} curve_ghosts;

/* All zero is empty, for both. */
void curve_ghosts_free(curve_ghosts *ghosts);
void curve_sizes_free(curve_sizes *sizes);

/* One ghost for each of the ranges. False: no memory; so are those below. */
bool curve_ghosts_add(curve_ghosts *ghosts, uint32_t position, const curve_sizes *sizes);
/* The sizes of pools that hold the block at a position with so many elements above it. */
bool curve_ghosts_sizes(curve_ghosts *ghosts, uint32_t position, uint32_t num_above,
                        curve_sizes *sizes);

#endif
