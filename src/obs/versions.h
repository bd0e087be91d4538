/* obs/versions.h - a record that one thread writes and any thread reads whole.
 *
 *      writer ──► [version 5] [version 6] [version 7] [version 4, being written]
 *                                          ▲ visible
 *
 * The writer writes a new version beside the last ones and then makes it visible. A reader copies
 * the visible version, and takes another one when it was overwritten meanwhile: three versions
 * later. The writer never waits. The owner keeps the words: QR_VERSIONS places of them.
 */
#ifndef QR_OBS_VERSIONS_H
#define QR_OBS_VERSIONS_H

#include "obs/feed.h"

enum { QR_VERSIONS = 4 };

typedef struct qr_versions {
    _Alignas(64) _Atomic uint64_t claimed; /* versions that were begun, and */
    _Atomic uint64_t visible;              /* those that can be seen */
} qr_versions;

static inline void qr_versions_init(qr_versions *versions)
{
    atomic_init(&versions->claimed, 0);
    atomic_init(&versions->visible, 0);
}

/* The place where the next version is to be written. One that was begun and not ended is begun
 * again. */
static inline uint32_t qr_versions_begin(qr_versions *versions)
{
    uint64_t visible = atomic_load_explicit(&versions->visible, memory_order_relaxed);
    atomic_store_explicit(&versions->claimed, visible + 1, memory_order_relaxed);
    qr_feed_fence_after_claim();
    return (uint32_t)(visible % QR_VERSIONS);
}

static inline void qr_versions_end(qr_versions *versions)
{
    uint64_t visible = atomic_load_explicit(&versions->visible, memory_order_relaxed);
    atomic_store_explicit(&versions->visible, visible + 1, memory_order_release);
}

/* ---- reading --------------------------------------------------------------- */

/* How many versions can be seen. The last one is at place (seen - 1) % QR_VERSIONS. */
static inline uint64_t qr_versions_seen(const qr_versions *versions)
{
    return atomic_load_explicit(&versions->visible, memory_order_acquire);
}

/* After the copy: false when the last one of `seen` was overwritten meanwhile. */
static inline bool qr_versions_is_whole(const qr_versions *versions, uint64_t seen)
{
    qr_feed_fence_before_check();
    uint64_t claimed = atomic_load_explicit(&versions->claimed, memory_order_relaxed);
    return claimed - seen < QR_VERSIONS;
}

#endif
