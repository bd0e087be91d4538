/* sched/step/fence.h - blocks that go back to the pool when the steps in flight have ended.
 *
 * A connector that loads writes to blocks at any time. A step in flight may still write to the
 * blocks of a request that has ended or was preempted. So those blocks wait behind a fence: the
 * last step that was scheduled then.
 *
 *      rows      [ a | 7 ][ b | 7 ][ c | 8 ]        processed 7: a and b go back, c waits
 *
 * Blocks of copies wait for the step that makes them. Steps without tokens do not count: they write
 * nothing. vLLM #45357. */
#ifndef QR_SCHED_STEP_FENCE_H
#define QR_SCHED_STEP_FENCE_H

#include "base/arena.h"
#include "sched/requests/request.h"

typedef struct qr_fenced_row {
    quire_seq seq; /* 0: copies */
    uint32_t num_copies;
    uint64_t fence;
} qr_fenced_row;

typedef struct qr_fences {
    bool is_on;
    uint64_t scheduled; /* steps with tokens */
    uint64_t processed;
    qr_fenced_row *rows; /* a ring, in order */
    uint32_t max_rows;
    uint32_t max_seqs; /* rows of requests, at most */
    uint32_t first;
    uint32_t num_rows;
    uint32_t num_seqs; /* of them, those of requests */
} qr_fences;

/* Rows that wait at most: those of all requests of the steps in flight. 0: fences are off. */
uint32_t qr_fences_most(const quire_sched_config *config);
/* Whether no step in flight may write to the request's blocks. */
bool qr_fence_is_open(const quire_sched *sched, const qr_request *r);
/* Gives the request's blocks back, now or when the steps in flight have ended. */
void qr_fence_drop(quire_sched *sched, qr_request *r);
/* The cache's copies that were told go into the step being made; their blocks are released now, or
 * when the step has ended. */
void qr_fence_copies(quire_sched *sched, uint32_t num_copies);
/* A step with tokens has ended. */
void qr_fence_processed(quire_sched *sched);
/* If no step is in flight, all fences are open: steps that were forgotten do not count. */
void qr_fence_settle(quire_sched *sched);

#endif
