/* sched/step/preempt.h - running requests that give their blocks back: who, when, and how.
 *
 *      running   [ a ][ b ][ c ][ d ]     a request finds no room for its tokens: running.c
 *                                         the pool is too full: qr_sched_relieve
 *                                         the caller asks: qr_sched_preempt_asked
 *
 * The victim's KV is saved by the connector, or kept in host slots where that is cheaper (swap.c),
 * or the victim is computed again. It waits at the head of the queue.
 *
 * One request always goes on, so that requests end: the first of the running ones is never a victim
 * while others run, or with QUIRE_VICTIM_PRIORITY the most urgent one.
 */
#ifndef QR_SCHED_STEP_PREEMPT_H
#define QR_SCHED_STEP_PREEMPT_H

#include "sched/requests/request.h"

#include <quire/sched.h>

/* Takes running[place] out; the requests behind it move up. */
void qr_sched_leave_running(quire_sched *sched, uint32_t place);
/* Takes a request that is in no list off its blocks and puts it back to the waiting ones. */
void qr_sched_preempt(quire_sched *sched, uint32_t index);
/* Preempts one request of the step being made; *cursor is the place of the request that is being
 * scheduled. is_urgent: it needs room now. Returns the victim. */
/* Whether a preemption now would free blocks. */
bool qr_sched_can_preempt(quire_sched *sched);
uint32_t qr_sched_preempt_one(quire_sched *sched, uint32_t *cursor, bool is_urgent);
/* Whether memory pressure lets the request in. */
bool qr_sched_admits(const quire_sched *sched, const qr_request *r);
/* At the start of a step: preempts until the pool is used up to preempt_above at most, or one
 * request runs. */
void qr_sched_relieve(quire_sched *sched);
/* quire_sched_preempt, _offload and _resume, for a request that is there. */
int qr_sched_preempt_asked(quire_sched *sched, uint32_t index, quire_preempt_mode mode);
int qr_sched_offload(quire_sched *sched, uint32_t index);
int qr_sched_resume(quire_sched *sched, uint32_t index);

#endif
