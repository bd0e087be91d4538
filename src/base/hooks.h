/* base/hooks.h - the world outside: clock, random bytes and log.
 * The hooks may be NULL: then what the system has. */
#ifndef QR_BASE_HOOKS_H
#define QR_BASE_HOOKS_H

#include "base/bits.h"
#include "base/config.h"

#include <quire/config.h>

uint64_t qr_now_ns(const quire_hooks *hooks);
/* Milliseconds of the system's clock that never goes back. */
static inline uint64_t qr_now_ms(void)
{
    return qr_now_ns(NULL) / 1000000;
}
/* Since 1970; without a hook. */
double qr_wall_seconds(void);
/* QUIRE_OK or QUIRE_E_RANDOM. */
int qr_random_bytes(const quire_hooks *hooks, void *out, size_t bytes);
/* Does nothing without a log hook. */
void qr_log(const quire_hooks *hooks, quire_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
