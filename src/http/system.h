/* http/system.h - memory and clocks of libquire_http: the only place in it that asks the system for
 * either. What is taken is bounded by the limits of the config, and may be refused (NULL). */
#ifndef QR_HTTP_SYSTEM_H
#define QR_HTTP_SYSTEM_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed. */
void *qr_http_alloc(size_t bytes);
void *qr_http_realloc(void *memory, size_t bytes);
void qr_http_free(void *memory);

uint64_t qr_http_now_ns(void); /* monotonic */
double qr_http_unix_time(void);

#endif
