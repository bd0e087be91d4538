/* sched/queues/prefix.h - which waiting request is admitted next: one whose prefix is in the pool.
 *
 *      waiting   [ a ][ b ][ c ][ d ] | ...     the window: the first requests of the queue
 *      in pool     0    2    9    4             c finds most blocks: c is admitted before a and b
 *
 * A block can be found from the step on that computes it. So after c was admitted, requests that
 * begin as c does find its blocks, and follow c in the same step.
 *
 * The bound. Each request counts what was admitted since it began to wait, in requests and in
 * tokens that were to be computed:
 *
 *      in turn     by the order of the queue: FCFS would make the request wait for it too
 *      overtaken   requests of the window behind it that were admitted before it
 *
 * A request is overtaken only while, in both units, overtaken < (patience - 1) x in turn. Then it
 * is a barrier: no request behind it is chosen. So when it is admitted
 *
 *      requests    overtaken <= (patience - 1) x in turn
 *      tokens      overtaken <  (patience - 1) x in turn + the longest request
 *
 * which the walker checks for all requests that wait. Barriers too are requests that were preempted
 * or have blocks, and with PRIORITY the end of the head's priority. During a deadlock
 * (deadlock.h) requests are admitted in the order of the queue.
 *
 * How much a request finds is an estimate: a block that is in the pool mostly has those before it
 * there too, since the end of a prefix is evicted first. The number is kept, and two lookups say
 * that it still holds. Admission looks all blocks up.
 */
#ifndef QR_SCHED_QUEUES_PREFIX_H
#define QR_SCHED_QUEUES_PREFIX_H

#include "base/arena.h"

#include <quire/sched.h>

enum { QR_PREFIX_PATIENCE = 4 };
/* More are never admitted; times patience they are still a number. */
#define QR_PREFIX_MOST (UINT64_MAX >> 10)

typedef struct qr_turns {
    uint64_t tokens;
    uint64_t requests;
} qr_turns;

/* Of one request that waits. */
typedef struct qr_prefix_wait {
    qr_turns came;      /* what had been admitted when it began to wait */
    qr_turns overtaken; /* admitted since, although behind it */
    uint32_t num_found; /* blocks of its prefix that were in the pool */
} qr_prefix_wait;

typedef struct qr_prefix {
    uint32_t window; /* 0: requests are admitted in the order of the queue */
    uint32_t patience;
    uint32_t num;            /* requests of the window in this choice, */
    uint32_t chosen;         /* the place of the one chosen; 0: the head */
    uint32_t *reqs;          /* in the order of the queue */
    uint32_t *nearest;       /* room to find them in a heap */
    uint32_t num_overtaking; /* requests that were admitted before others, in this step */
    qr_turns admitted;       /* since the scheduler was made */
    qr_prefix_wait *waits;   /* of each request */
} qr_prefix;

void qr_prefix_carve(qr_prefix *prefix, qr_arena *arena, const quire_sched_config *config);
void qr_prefix_init(qr_prefix *prefix, const quire_sched_config *config);

/* The request begins to wait. */
void qr_prefix_enter(quire_sched *sched, uint32_t index);
/* The request of `waiting` that is tried next; there is one. */
uint32_t qr_prefix_choose(quire_sched *sched);
/* A request was admitted: the one chosen, where is_chosen. */
void qr_prefix_admitted(quire_sched *sched, uint32_t index, uint32_t num_tokens, bool is_chosen);
bool qr_prefix_is_valid(const quire_sched *sched);

#endif
