/* group/fresh.h - blocks that were taken since they were last asked for: their pages are to be
 * zeroed.
 *
 *      ids     [ 12 ][ 40 ][ 41 ][ 12 ]        in the order taken; a block given back and taken
 *      groups  [  0 ][  0 ][  2 ][  2 ]        again is there twice
 *
 * The list holds twice the pool. When nobody drains it, second mentions are dropped to make room;
 * after that at least half of it is free, so this costs O(1) for each block.
 */
#ifndef QR_GROUP_FRESH_H
#define QR_GROUP_FRESH_H

#include "block/pool.h"

typedef struct qr_fresh {
    uint32_t *ids;
    uint16_t *groups;
    uint32_t *sorted; /* where take puts them */
    uint32_t count;
    uint32_t capacity; /* 0: not tracked */
} qr_fresh;

void qr_fresh_carve(qr_fresh *fresh, qr_arena *arena, uint32_t num_blocks);
void qr_fresh_add(qr_fresh *fresh, quire_pool *pool, uint32_t group, const uint32_t *ids,
                  uint32_t n);
/* All of them, group by group, into `sorted`; returns how many. */
uint32_t qr_fresh_take(qr_fresh *fresh, uint32_t num_groups);

#endif
