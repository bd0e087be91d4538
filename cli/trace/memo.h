/* cli/trace/memo.h - what a reader remembers by name: sessions, and requests that others wait for.
 *
 * A trace may have a hundred million sessions and not say which one was the last turn. So the memo
 * has a limit; beyond it whoever was not heard of for longest is forgotten, and counts as new when
 * it comes back.
 *
 *      heads[hash] ─► entry ─► entry        newest ◄─► ... ◄─► oldest: the one that goes
 */
#ifndef QUIRE_CLI_TRACE_MEMO_H
#define QUIRE_CLI_TRACE_MEMO_H

#include "trace.h"

enum { TRACE_MEMO_ENTRIES = 1 << 20, TRACE_MEMO_SEGMENTS = 1 << 24 };

typedef struct trace_known {
    uint64_t key;
    uint64_t session;
    uint32_t turn;     /* how many turns it had */
    uint64_t number;   /* of its last request */
    double time_s;     /* of its last request */
    double recorded_s; /* the same as the trace has it; NAN: it does not say */
    /* what was said in it so far, where later turns go on from there */
    trace_segment *said;
    uint32_t num_said;
    uint32_t said_room;
    /* the memo's own */
    uint32_t chain;
    uint32_t newer;
    uint32_t older;
} trace_known;

typedef struct trace_memo {
    trace_known *entries; /* [0] is none: the two ends of the list meet in it */
    uint32_t num_entries;
    uint32_t room;
    uint32_t max_entries;
    uint32_t unused; /* forgotten ones, by chain */
    uint32_t *heads;
    uint32_t num_heads; /* a power of two */
    uint64_t num_segments;
} trace_memo;

bool trace_memo_begin(trace_memo *memo, uint32_t max_entries);
void trace_memo_end(trace_memo *memo);
/* NULL: not known. */
trace_known *trace_memo_find(trace_memo *memo, uint64_t key);
/* A new one, all zero but its key; valid until the next call. NULL: no memory. */
trace_known *trace_memo_add(trace_memo *memo, uint64_t key);
/* That of the key, or a new one. */
trace_known *trace_memo_get(trace_memo *memo, uint64_t key);
/* Notes number and time of a request under its name; name 0: it has none. False: no memory. */
bool trace_memo_note(trace_memo *memo, uint64_t name, const trace_request *request);
/* Names of requests become their numbers; *time_s is the last of their times. False: there is none
 * of that name. */
bool trace_memo_number(trace_memo *memo, uint64_t *names, uint32_t n, double *time_s);
void trace_memo_forget(trace_memo *memo, trace_known *known);
/* Notes these as what was said so far by one that was just found or added. False: no memory, or
 * more than TRACE_MEMO_SEGMENTS. */
bool trace_memo_say(trace_memo *memo, trace_known *known, const trace_segment *segments,
                    uint32_t num_segments);

#endif
