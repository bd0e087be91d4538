/* tier/core/tier.h - the scheduler's side of a tier: what is in flight, since when, and the
 * breaker.
 *
 *      free slots ── submit ──► runner ──► ended ──┐
 *           ▲                     (its thread)     ├── poll ──► the caller
 *           └──────────────────────────────────────┘
 *                    ready: all ios had a status after prepare, the thread never saw them
 *
 *      num_free + jobs_in_flight == max_jobs
 */
#ifndef QR_TIER_CORE_TIER_H
#define QR_TIER_CORE_TIER_H

#include "base/fork_guard.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "tier/core/breaker.h"
#include "tier/core/runner.h"

#include <quire/slots.h>

enum { QR_TIER_OPS = 5, QR_TIER_STATUSES = 8, QR_TIER_LABEL_BYTES = 64 };

/* One writer, the scheduler's thread; read by any. */
typedef struct qr_tier_counts {
    _Atomic uint64_t health;
    _Atomic uint64_t jobs;
    _Atomic uint64_t jobs_in_flight;
    _Atomic uint64_t bytes_in_flight;
    _Atomic uint64_t bytes_late;
    _Atomic uint64_t keys[QR_TIER_OPS][QR_TIER_STATUSES];
    _Atomic uint64_t bytes_loaded;
    _Atomic uint64_t bytes_stored;
    _Atomic uint64_t late;
    _Atomic uint64_t breaker_opened;
} qr_tier_counts;

struct quire_tier {
    qr_runner runner;
    qr_breaker breaker;
    qr_fork_guard guard;
    quire_hooks hooks;
    char label[QR_TIER_LABEL_BYTES];
    char medium[QR_TIER_LABEL_BYTES];
    uint64_t max_bytes;
    uint64_t deadline_ns;
    uint64_t close_ns;
    bool is_inline;
    bool is_closing;
    qr_spsc ready;
    uint32_t *free_slots;
    uint32_t num_free;
    uint64_t earliest_due_ns; /* of those in flight that are not late, or before it */
    quire_slots **watcher;    /* where it has the slots; NULL: none listens */
    qr_tier_counts counts;
    qr_owner owner; /* where all of this lies */
};

/* A job that came back: finished, counted, its slot free. */
quire_tier_job *qr_tier_take_back(quire_tier *tier, uint32_t slot);
/* The next slot that came back; false: none. */
bool qr_tier_next_ended(quire_tier *tier, uint32_t *slot);

/* Of its ops; NULL: none. */
static inline quire_slots *qr_tier_slots(const quire_tier *tier)
{
    const quire_tier_ops *ops = &tier->runner.ops;
    return ops->slots == NULL ? NULL : ops->slots(tier->runner.self);
}

/* Listens to its slots, which are put into *slots; NULL is put there when the tier is closed
 * before the listener ends. */
static inline void qr_tier_watch(quire_tier *tier, quire_slots **slots,
                                 quire_slots_listener listener, void *user)
{
    *slots = qr_tier_slots(tier);
    tier->watcher = *slots == NULL ? NULL : slots;
    quire_slots_set_listener(*slots, listener, user);
}

static inline void qr_tier_unwatch(quire_tier *tier)
{
    if (tier->watcher == NULL)
        return;
    quire_slots_set_listener(*tier->watcher, NULL, NULL);
    *tier->watcher = NULL;
    tier->watcher = NULL;
}

/* As quire_tier_reset, without waiting. */
int qr_tier_forget(quire_tier *tier);

/* A kind of tier: how its own part is made of a config. */
typedef struct qr_tier_kind {
    const quire_tier_ops *ops;
    size_t config_bytes;
    size_t self_bytes;
    int (*check)(const void *config);
    /* self is zeroed; if init fails, ops->close ends it. */
    int (*init)(void *self, const void *config, uint32_t max_jobs, const quire_hooks *hooks);
} qr_tier_kind;

/* Makes the part: quire_tier_redis_create and others. An error has a message. */
int qr_tier_make(const qr_tier_kind *kind, const void *config, uint32_t max_jobs,
                 const quire_hooks *hooks, void **self);
/* Makes the part and opens a tier around it: quire_tier_redis_open and others. *self is set with
 * *tier alone; NULL is fine. */
int qr_tier_open_with(const qr_tier_kind *kind, const void *config, const quire_tier_config *common,
                      const quire_allocator *allocator, quire_tier **tier, void **self);

/* quire_tier_NAME_ops, quire_tier_NAME_create and quire_tier_NAME_open, where ops and kind are. */
#define QR_TIER_CALLS(name)                                                                        \
    QUIRE_API const quire_tier_ops *quire_tier_##name##_ops(void)                                  \
    {                                                                                              \
        return &ops;                                                                               \
    }                                                                                              \
                                                                                                   \
    QUIRE_API int quire_tier_##name##_create(const quire_tier_##name##_config *config,             \
                                             uint32_t max_jobs, const quire_hooks *hooks,          \
                                             quire_tier_##name **out)                              \
    {                                                                                              \
        void *self;                                                                                \
        if (out == NULL)                                                                           \
            return QUIRE_E_ARGUMENT;                                                               \
        int status = qr_tier_make(&kind, config, max_jobs, hooks, &self);                          \
        *out = self;                                                                               \
        return status;                                                                             \
    }                                                                                              \
                                                                                                   \
    QUIRE_API int quire_tier_##name##_open(                                                        \
        const quire_tier_##name##_config *config, const quire_tier_config *common,                 \
        const quire_allocator *allocator, quire_tier **tier, quire_tier_##name **out)              \
    {                                                                                              \
        void *self;                                                                                \
        int status = qr_tier_open_with(&kind, config, common, allocator, tier, &self);             \
        if (out != NULL)                                                                           \
            *out = self;                                                                           \
        return status;                                                                             \
    }

#endif
