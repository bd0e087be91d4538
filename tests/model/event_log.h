/* model/event_log.h - events written down as bytes, so that two lists of them compare with memcmp.
 *
 *      event --> [kind group counts ...][parent][blocks][hashes] --> appended to bytes[0 .. len)
 *
 * Only what quire/pool.h says about a kind is written: a REMOVED has no parent, a CLEARED has
 * nothing but its kind. Pointers are followed, because they are valid during the call only.
 */
#ifndef MODEL_EVENT_LOG_H
#define MODEL_EVENT_LOG_H

#include <quire/pool.h>
#include <stdbool.h>

#define EVENT_LOG_BYTES 8192

typedef struct event_log {
    size_t len; /* above EVENT_LOG_BYTES: it did not fit, and no comparison can succeed */
    uint32_t num_events;
    unsigned char bytes[EVENT_LOG_BYTES];
} event_log;

void event_log_clear(event_log *log);
/* The on_event hook; user is the log. */
void event_log_add(void *user, const quire_event *event);
/* Forgets the events past a length that was read earlier: the model rolls back with it. */
void event_log_truncate(event_log *log, size_t len, uint32_t num_events);
bool event_log_equal(const event_log *a, const event_log *b);
void event_log_print(const char *name, const event_log *log);

#endif
