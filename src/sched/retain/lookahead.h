/* sched/retain/lookahead.h - blocks that waiting requests will find, kept back from eviction.
 *
 *      waiting   [ a ][ b ][ c ][ d ] ...     the first `max` that were looked at have an entry:
 *                  │    │    │                a row of the blocks that are their hit now
 *      free queue  others ... | a's b's c's   kept back: only the others are taken
 *
 * When the others do not suffice, rows give blocks up: the row of the request that is served last
 * first, and of a row the deepest block first. So a block is never evicted while a row names it,
 * and rows name what they were made for. (A block whose key was taken away, after a failed load or
 * by evict_blocks, stays in its row; it is kept back for nothing if it is cached again.)
 *
 * A preempted request gets its entry at once, before its blocks can be taken. An entry ends when
 * its request is admitted or ends. What is computed meanwhile makes some hits longer: a few entries
 * are looked at again in each step.
 *
 * While the rows name a quarter of the pool, no further request gets an entry, except the head of
 * the queue and a preempted request.
 */
#ifndef QR_SCHED_RETAIN_LOOKAHEAD_H
#define QR_SCHED_RETAIN_LOOKAHEAD_H

#include "base/arena.h"

#include <quire/sched.h>

typedef struct qr_ahead {
    uint32_t index; /* of the request */
    uint32_t num_blocks;
    uint32_t num_tokens; /* of the hit */
} qr_ahead;

typedef struct qr_lookahead {
    uint32_t max; /* 0: nobody is looked at */
    uint32_t row_blocks;
    uint32_t num;
    uint32_t last;       /* the request that was looked at last; QR_NIL: none */
    uint32_t turn;       /* of entries that are looked at again */
    uint32_t furthest;   /* the entry that gives up blocks; QR_NIL: must be searched */
    uint64_t num_listed; /* blocks in all rows, each counted once for each row */
    qr_ahead *entries;   /* num of them, in no order */
    quire_block *rows;   /* max x row_blocks */
    quire_block *spare;
    uint32_t *entry_of; /* of each request; QR_NIL: none */
    uint16_t *wanted;   /* of each block, for the free queue */
} qr_lookahead;

void qr_lookahead_carve(qr_lookahead *ahead, qr_arena *arena, const quire_sched_config *config);
void qr_lookahead_init(quire_sched *sched, const quire_sched_config *config);

/* Before a step: some more of those that wait. */
void qr_lookahead_turn(quire_sched *sched);
/* A request that waits gets an entry; when there are too many, instead of the furthest. Returns how
 * many blocks it has found. */
uint32_t qr_lookahead_add(quire_sched *sched, uint32_t index);
/* The request waits no longer. */
void qr_lookahead_drop(quire_sched *sched, uint32_t index);
void qr_lookahead_drop_all(quire_sched *sched);
bool qr_lookahead_is_valid(const quire_sched *sched);

#endif
