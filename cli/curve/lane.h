/* cli/curve/lane.h - one pass over requests, hits for pools of all sizes: LRU stack distances.
 *
 * Requests come one at a time. Between two of them all blocks of a pool are in its free queue, and
 * the queue, read from its tail, is a stack: a request takes the blocks it finds out of it, evicts
 * from the bottom what it needs beyond, and at its end puts all its blocks on top, its last block
 * first:
 *
 *      request A B C        request A B X          a pool of 4 blocks   of 5
 *
 *       A  <- top            A                            A               A
 *       B                    B                            B               B
 *       C                    X                            X               X
 *       ...                  C                            C               C
 *                            ...                                          ...
 *
 * A pool of n blocks holds the n topmost elements of one and the same stack: a block with b
 * elements above it is found in pools of b + 1 blocks or more. Whether a request has a block in a
 * pool of n or must compute it, it ends up in the same place.
 *
 * A request finds leading blocks only: those up to the first that is missing. But whoever used a
 * block used its parent as well and put the parent above it; from there it can only have moved up.
 * So if a block is in a pool its parent is too, and counting blocks that are present counts leading
 * runs. (Copies, the one exception to "the same stack", leave ghosts.)
 *
 * Elements of the stack are full blocks, by identity. A part-filled last block is never found. At
 * the end of its request it goes to the head of the queue, where the next request takes it first.
 * So it is in no stack, but while its request ran it had taken a place: a pool of n blocks holds
 * the n - 1 topmost elements after such a request. Of all requests since a block was used, the last
 * one decides: each request takes a new block. Where that block is full, it stands above all
 * others, in the place that a part-filled block of the request before had.
 */
#ifndef QUIRE_CLI_CURVE_LANE_H
#define QUIRE_CLI_CURVE_LANE_H

#include "belady.h"
#include "stack_distance.h"

/* ---- blocks by their identity ---------------------------------------------- */

/* Where they stand in the stack, who used them last. Open addressing, 16 bytes a block, at most 3/4
 * full; nothing is ever taken out. A block that the pool holds several times has an entry for each.
 */
#define CURVE_NOWHERE UINT32_MAX

typedef struct curve_entry {
    uint64_t key;            /* 0: free */
    uint32_t position;       /* CURVE_NOWHERE: new, or no longer in the stack */
    uint32_t last_user : 31; /* number of the request that held it last */
    uint32_t has_more : 1;   /* the entry of the next key is in the stack too */
} curve_entry;

typedef struct curve_table {
    curve_entry *entries;
    uint64_t num_slots;
    uint64_t num_used;
} curve_table;

/* ---- copies of a block that only larger pools hold ------------------------- */

/* A prompt's last token is always computed. So where a prompt ends with its last block full and
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
 * and a lookup below any of them costs time proportional to their number. */
typedef struct curve_ghost {
    uint32_t position;
    uint32_t min_blocks; /* the smallest pool that it counts in */
} curve_ghost;

typedef struct curve_ghosts {
    curve_ghost *list; /* by position */
    uint32_t num_ghosts;
    uint32_t room;
} curve_ghosts;

/* False: no memory. */
bool curve_ghosts_add(curve_ghosts *ghosts, curve_ghost ghost);
/* The smallest pool that holds the block at a position with so many elements above it. */
uint32_t curve_ghosts_min_blocks(const curve_ghosts *ghosts, uint32_t position, uint32_t num_above);

/* ---- lanes ----------------------------------------------------------------- */

/* A request, or the part of it that is sampled. Keys are not 0, of different blocks different. */
typedef struct curve_blocks {
    const uint64_t *keys; /* of full blocks, from the first on */
    uint32_t num_lookups; /* the first of them that are looked up */
    uint32_t num_full;
    uint32_t num_held; /* full ones and others */
} curve_blocks;

typedef struct curve_lane {
    stack_distance stack;
    curve_table table;
    curve_ghosts ghosts;
    belady_log belady;
    bool has_belady;
    uint64_t *hits; /* by pool size: what it adds to the size before; finished: the hits */
    uint64_t hits_room;
    uint64_t num_lookups;
    uint64_t num_distinct; /* blocks that an unlimited pool would use, copies apart */
    uint32_t num_others;   /* of the last request: blocks that are not full */
    uint32_t most_others;
    curve_entry **entries; /* of the request at hand */
    uint64_t entries_room;
    curve_ghosts leaving; /* ghosts that the request at hand leaves */
} curve_lane;

/* All zero is an empty lane, without Belady's bound. */
void curve_lane_free(curve_lane *lane);
/* False: no memory, or more elements than 32 bits count. */
bool curve_lane_add(curve_lane *lane, const curve_blocks *blocks);
/* After the last request. */
void curve_lane_finish(curve_lane *lane);
/* Blocks found in a pool of num_blocks. */
uint64_t curve_lane_hits(const curve_lane *lane, uint64_t num_blocks);

#endif
