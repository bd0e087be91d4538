/* base/hooks.h - the world outside: clock, random bytes, log; and how a sized config is read. */
#ifndef QR_BASE_HOOKS_H
#define QR_BASE_HOOKS_H

#include "base/bits.h"

#include <quire/config.h>

uint64_t qr_now_ns(const quire_hooks *hooks);
/* Since 1970; without a hook. */
double qr_wall_seconds(void);
/* QUIRE_OK or QUIRE_E_RANDOM. */
int qr_random_bytes(const quire_hooks *hooks, void *out, size_t bytes);
/* Does nothing without a log hook. */
void qr_log(const quire_hooks *hooks, quire_log_level level, const char *message);

/* Copies the caller's config of its own size over a zeroed one of ours. A caller's that is shorter
 * leaves our newer fields at zero, their default; one that is longer must be zero past our end,
 * since we would ignore what it asks. QUIRE_OK, QUIRE_E_ARGUMENT for NULL, QUIRE_E_CONFIG. */
int qr_config_read(void *ours, size_t our_size, const void *callers);

/* Whether all bits are quirks that this library has. */
bool qr_quirks_known(uint64_t quirks);
/* The quirks in force. */
uint64_t qr_quirks(quire_profile profile, uint64_t on, uint64_t off);

#endif
