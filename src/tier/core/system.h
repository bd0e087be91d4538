/* tier/core/system.h - what this library asks of the system: memory, a clock, random bytes.
 *
 * The one place that asks for memory, so that tests can let it run out. Nothing here is called in a
 * step of the scheduler: memory is taken when a tier, an offload or a device is opened. */
#ifndef QR_TIER_CORE_SYSTEM_H
#define QR_TIER_CORE_SYSTEM_H

#include <quire/config.h>
#include <quire/memory.h>

#include <stddef.h>
#include <stdint.h>

/* NULL when there is none, or for 0 bytes. Zeroed. */
void *qr_tier_alloc(size_t count, size_t bytes);
/* The same, for what is looked up at random: in huge pages where it is large, so that a step does
 * not miss the TLB. */
void *qr_tier_alloc_large(size_t bytes);
void qr_tier_free(void *memory);

/* Pages of their own, zeroed; flags as mmap's, MAP_HUGETLB say. NULL when there are none. */
void *qr_tier_map(size_t bytes, int flags);
void qr_tier_unmap(void *memory, size_t bytes);

/* Of the hook, or of a clock that never goes back. */
uint64_t qr_tier_now_ns(const quire_hooks *hooks);
/* Bytes that nobody can guess: 0, or -1 where the system has none. */
int qr_tier_random(const quire_hooks *hooks, void *out, size_t bytes);

/* Writes a sentence where there is room for one. */
void qr_tier_say(char *message, size_t message_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* To the log hook, where there is one. */
void qr_tier_log(const quire_hooks *hooks, quire_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
