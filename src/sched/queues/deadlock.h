/* sched/queues/deadlock.h - requests that wait, hold blocks and keep each other from running.
 *
 *      a loaded  [####......]      a and b hold half of the blocks that they need, and c finds no
 *      b loading [####......]      free block: no request runs, and nothing would ever change
 *
 * The cure: one of them releases its blocks, and is computed or loaded again later. The deadlock is
 * active from then on until a request has one token more, or ends. While it is active, loads take
 * turns, so that the released blocks are not taken by many loads that wait for each other again:
 *
 *      a load begins only if no request runs and no waiting request holds blocks;
 *      a request that has released its blocks waits until all others have had their turn.
 *
 * So each request has the pool for itself once in a round, and a request that can run at all runs.
 * A session that waits for input is idle: it releases its blocks first, and takes no turn.
 */
#ifndef QR_SCHED_QUEUES_DEADLOCK_H
#define QR_SCHED_QUEUES_DEADLOCK_H

#include "sched/requests/request.h"

typedef struct qr_deadlock {
    uint32_t num_holders[QR_HOLDS_IDLE + 1]; /* requests of each qr_holder kind but the first */
    uint32_t is_active;
    uint64_t round; /* of turns; never 0 */
} qr_deadlock;

/* The status or the row of the request has changed: counts the request anew. */
void qr_deadlock_note_holder(quire_sched *sched, qr_request *r);
/* Before the waiting requests are looked at. */
void qr_deadlock_begin_round(quire_sched *sched);
/* Whether the request may begin a load now. */
bool qr_deadlock_may_load(quire_sched *sched, const qr_request *r);
/* A request has begun a load, runs, or has lost its blocks. */
void qr_deadlock_note_change(quire_sched *sched);
/* After the waiting requests were looked at: if all that could begin a load have had their turn, a
 * new round begins. */
void qr_deadlock_end_round(quire_sched *sched);
/* Takes the blocks of a request that waits; the request is computed again. False if no waiting
 * request holds blocks. */
bool qr_deadlock_take_blocks(quire_sched *sched);
/* A request has one token more, or has ended: the deadlock is over. */
void qr_deadlock_end(quire_sched *sched);

/* The walker's part: whether the counts are right. */
bool qr_deadlock_is_valid(const quire_sched *sched);

#endif
