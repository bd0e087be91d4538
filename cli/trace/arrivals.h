/* cli/trace/arrivals.h - when which request of a trace comes.
 *
 *      trace ──► records ──► ahead (one record) ──► due, by time ──► arrivals_take
 *                                   │                  ^
 *                                   └─► turns, until those before them have ended
 *
 *      records    none, unless arrivals_read_on reads them before they are needed. What is wrong
 *                 with a record is found where it is needed, in either case.
 *
 *      REPLAY_CLOCK_TRACE    at the trace's times (divided by speed); turns of closed-loop sessions
 *                            think_s after the end of the turn before
 *      REPLAY_CLOCK_BURST    all at once
 *      REPLAY_CLOCK_SERIAL   each when the one before has ended
 *
 * Memory: what is due and not taken yet, the turns to come of sessions that have begun, and
 * ARRIVALS_RECORDS records.
 */
#ifndef QUIRE_CLI_TRACE_ARRIVALS_H
#define QUIRE_CLI_TRACE_ARRIVALS_H

#include "arrival_queue.h"

typedef enum replay_clock {
    REPLAY_CLOCK_TRACE,
    REPLAY_CLOCK_BURST,
    REPLAY_CLOCK_SERIAL
} replay_clock;

typedef struct arrivals arrivals;

/* That are read before they are needed, at most. */
enum { ARRIVALS_RECORDS = 64 };

/* start_s: the trace's time 0. */
arrivals *arrivals_open(trace_reader *reader, replay_clock clock, double speed, double start_s);
void arrivals_close(arrivals *a);

/* The time of the next request, HUGE_VAL: none is known to come. now_s: requests up to then are
 * read. Negative: the trace is broken (trace_error), or there is no memory (arrivals_no_memory). */
double arrivals_next_time(arrivals *a, double now_s);
/* Reads one more record before it is needed. Any thread may call it, while no other one uses the
 * arrivals or the trace. NULL: there are ARRIVALS_RECORDS already, or no more can be read. */
const arrival *arrivals_read_on(arrivals *a);
bool arrivals_may_read_on(const arrivals *a);
/* Those that were read and are not due yet, in the order of the trace. NULL: there are only i. */
const arrival *arrivals_coming(const arrivals *a, uint32_t i);
/* The next request; NULL when none is due up to now_s. The caller frees it with arrival_free. */
arrival *arrivals_take(arrivals *a, double now_s);
/* The request is back at the head: it could not be taken in yet. */
void arrivals_put_back(arrivals *a, arrival *it);
/* A request ended, so the next turn of its session gets its time. */
void arrivals_note_end(arrivals *a, const trace_request *request, double now_s);
/* The same for a request that is not served: it no longer counts as read. */
void arrivals_note_left_out(arrivals *a, const trace_request *request, double now_s);
/* Whether another request may wait for the end of this one. */
bool arrivals_may_follow(const arrivals *a, const trace_request *request);
bool arrivals_no_memory(const arrivals *a);
/* What was read of the trace so far. */
typedef struct arrivals_read {
    uint64_t requests;
    uint64_t prompt_tokens;
    uint64_t output_tokens;
    bool is_all;
} arrivals_read;

arrivals_read arrivals_get_read(const arrivals *a);
/* Requests that are due and not taken. */
uint64_t arrivals_num_due(const arrivals *a);

#endif
