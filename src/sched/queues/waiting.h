/* sched/queues/waiting.h - requests that wait, in the order in which they will be served.
 *
 *      FCFS       a ring of links: add at the tail, pop and prepend at the head, remove anywhere
 *      PRIORITY   a heap: smallest (priority, arrival time, id) first; there is no front to prepend
 *                 to. A request knows its place, so that removing it is O(log n)
 *      swapped    those whose KV is kept in host memory come first, with PRIORITY among equals
 *
 * What a queue goes by does not change while a request is in it.
 *
 * A request is in at most one queue; `waiters` is shared by all queues of a scheduler, one for each
 * request, and a queue's sentinel (FCFS) is one of its own behind them.
 */
#ifndef QR_SCHED_QUEUES_WAITING_H
#define QR_SCHED_QUEUES_WAITING_H

#include "base/arena.h"
#include "base/list.h"

#include <quire/sched.h>

typedef struct qr_waiter {
    qr_link link; /* FCFS; first, as base/list.h asks */
    union {
        int64_t order;  /* FCFS: of two in one queue the smaller is served first */
        uint32_t place; /* PRIORITY: in the heap */
    };
    int32_t priority;
    uint16_t queue;   /* number of the queue it is in, 0: none */
    bool is_swapped;  /* its KV is kept: before others (FCFS), before others of its priority */
    bool is_deferred; /* holders_first: it was held up since it began to wait */
    double arrival_time;
    quire_bytes id;
} qr_waiter;

typedef struct qr_waiting {
    qr_waiter *waiters;
    uint32_t *heap; /* PRIORITY */
    uint32_t sentinel;
    uint16_t number; /* 1, 2, ... */
    uint32_t count;
    quire_policy policy;
    int64_t first_order; /* FCFS: all in the queue are between them */
    int64_t last_order;
} qr_waiting;

/* heap has room for all requests. */
void qr_waiting_init(qr_waiting *queue, qr_waiter *waiters, uint32_t *heap, uint32_t sentinel,
                     uint16_t number, quire_policy policy);
void qr_waiting_add(qr_waiting *queue, uint32_t req);
/* Before all others, but behind swapped ones unless it is one itself. */
void qr_waiting_prepend(qr_waiting *queue, uint32_t req);
/* The next to be served; there is one. */
uint32_t qr_waiting_peek(const qr_waiting *queue);
void qr_waiting_remove(qr_waiting *queue, uint32_t req);
/* Puts all of `other` before the rest, in their order; other is empty afterwards. */
void qr_waiting_prepend_all(qr_waiting *queue, qr_waiting *other);

/* Lists the first requests of the queue in order of service, at most `most`; returns how many.
 * nearest has room for one more. Costs O(most), with PRIORITY O(most log most). */
uint32_t qr_waiting_first(const qr_waiting *queue, uint32_t *reqs, uint32_t most,
                          uint32_t *nearest);

/* Whether a is served before b by PRIORITY. */
bool qr_waiter_before(const qr_waiter *a, const qr_waiter *b);

/* Lists all requests of the queue in order of service; reqs has room for them. Returns the count.
 * Costs O(n), with PRIORITY O(n log n). */
uint32_t qr_waiting_list(const qr_waiting *queue, uint32_t *reqs);

bool qr_waiting_is_valid(const qr_waiting *queue);

#endif
