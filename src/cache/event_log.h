/* cache/event_log.h - events, kept until somebody takes them.
 *
 *      +--------+--------+--------+--------+--------+--------+
 *      | record | parent | hashes | blocks | record | ...    |   bytes, in the order of events
 *      +--------+--------+--------+--------+--------+--------+
 *
 * An event that does not fit is counted as lost, and so are all after it until the log is taken:
 * what is in the log has no holes.
 */
#ifndef QR_CACHE_EVENT_LOG_H
#define QR_CACHE_EVENT_LOG_H

#include "base/arena.h"

#include <quire/pool.h>

typedef struct qr_event_log {
    unsigned char *bytes;
    size_t size; /* 0: no log */
    size_t used;
    uint64_t num_lost;
} qr_event_log;

void qr_event_log_carve(qr_event_log *log, qr_arena *arena, size_t size);
void qr_event_log_add(qr_event_log *log, const quire_event *event);
/* Calls visit for each and empties the log; returns how many were lost. visit may not add. */
uint64_t qr_event_log_take(qr_event_log *log, void (*visit)(void *user, const quire_event *event),
                           void *user);

#endif
