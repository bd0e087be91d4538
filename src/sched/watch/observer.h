/* sched/watch/observer.h - why a step is as it is.
 *
 *      evicted  ──► ghosts: 64 bits of its key, in a table that forgets what is overwritten
 *      admitted ──► the blocks behind its hit: how many are ghosts? They were dropped before reuse
 *
 * Nothing here decides anything. Without on_decision there is no table and nothing is told.
 */
#ifndef QR_SCHED_WATCH_OBSERVER_H
#define QR_SCHED_WATCH_OBSERVER_H

#include "base/arena.h"

#include <quire/sched.h>

typedef struct qr_observer {
    void (*on_snapshot)(void *user, const quire_snapshot *snapshot);
    void (*on_decision)(void *user, const quire_decision *decision);
    void *user;
    quire_hooks hooks;                                      /* the clock */
    void (*on_event)(void *user, const quire_event *event); /* the caller's own */
    void *event_user;
    uint64_t *ghosts; /* 0: none */
    uint32_t num_ghosts;
    uint64_t step;
    quire_req taker; /* for whom blocks are being taken, or get their keys */
    uint32_t num_hit_tokens;
    uint32_t num_external_tokens;
    uint32_t num_query_tokens;
    uint64_t sum_hit_tokens; /* of all steps that were told */
    uint64_t sum_swapped_out;
    uint64_t sum_swapped_in;
    uint64_t sum_swapped_tokens; /* that came back */
} qr_observer;

void qr_observer_carve(qr_observer *observer, qr_arena *arena, uint32_t num_ghosts);

/* Between cache and caller: notes what is evicted, and passes the event on. */
void qr_observer_take_event(void *user, const quire_event *event);

void qr_observer_tell(const qr_observer *observer, quire_decision decision);

/* How many of n hashes of len bytes, which begin stride bytes apart, were evicted and not cached
 * again since. */
uint32_t qr_observer_count_ghosts(const qr_observer *observer, const unsigned char *hashes,
                                  uint32_t len, uint32_t stride, uint32_t n);

#endif
