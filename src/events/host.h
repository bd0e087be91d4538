/* events/host.h - what this library asks of its host: memory, and a clock for deadlines.
 *
 * The core takes its memory at creation and never again. Here batches come and go, in the threads
 * of the publisher and of its readers, never in the scheduler's. This is the one place that asks
 * for it, so that tests can let it run out. */
#ifndef QR_EVENTS_HOST_H
#define QR_EVENTS_HOST_H

#include <stddef.h>
#include <stdint.h>

/* NULL when there is none, or for 0 bytes. */
void *qr_host_alloc(size_t bytes);
void *qr_host_alloc_zeroed(size_t count, size_t bytes);
/* The old memory stays when there is none. */
void *qr_host_realloc(void *memory, size_t bytes);
void qr_host_free(void *memory);

/* Milliseconds of a clock that never goes back. */
uint64_t qr_host_now_ms(void);
/* Seconds since 1970. */
double qr_host_wall_s(void);

/* Bytes that nobody can guess: 0, or -1 where the system has none. */
int qr_host_random(void *out, size_t bytes);

/* Writes a sentence where there is room for one. */
void qr_host_say(char *message, size_t message_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
