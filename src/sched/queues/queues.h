/* sched/queues/queues.h - the running requests, and the queues of waiting requests.
 *
 *      add ─► waiting ─► running ─► ended         preempted: back to the head of waiting
 *                ▲ │ held up
 *                │ ▼
 *              skipped
 *
 * With the rule holders_first, `skipped` has the requests that hold blocks and `waiting` the others:
 * held up or not, a request keeps its place there.
 *
 * A request that has not ended runs or is in one queue. step_skipped is empty between calls. */
#ifndef QR_SCHED_QUEUES_QUEUES_H
#define QR_SCHED_QUEUES_QUEUES_H

#include "sched/queues/waiting.h"

typedef struct qr_queues {
    uint32_t *running;
    uint32_t num_running;
    qr_waiting waiting;
    qr_waiting skipped;      /* held up: grammar, load, adapter, connector */
    qr_waiting step_skipped; /* held up in this step: joined to skipped at its end */
    qr_waiting step_waiting; /* holders_first: held up in this step, without blocks */
    uint32_t num_waiting_for_streaming;
    uint32_t num_deferred; /* holders_first: those with is_deferred */
} qr_queues;

/* Puts a request that is in no queue into the one its status asks for. */
void qr_sched_enqueue(quire_sched *sched, uint32_t index);
/* Takes a request out of its queue, if it is in one. */
void qr_sched_dequeue(quire_sched *sched, uint32_t index);
/* A request that is in no queue was held up in this step. */
void qr_sched_skip(quire_sched *sched, uint32_t index);
/* The request runs, or has ended: it is held up no longer. */
void qr_sched_undefer(quire_sched *sched, uint32_t index);

#endif
