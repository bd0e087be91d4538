/* obs/versions.h - records that one thread writes and any thread reads whole.
 *
 *      writer ──► [version 5] [version 6] [version 7] [version 4, being written]
 *                                          ▲ visible
 *
 * The writer writes a new version beside the last ones and then makes it visible. A reader copies a
 * visible version, and takes another one when it was overwritten meanwhile. The writer never waits.
 * The owner keeps the words: version n is at place n % places. A record of which the last version
 * alone is read has QR_VERSIONS places.
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

/* The number of the version that is to be written. One that was begun and not ended is begun
 * again. */
static inline uint64_t qr_versions_begin(qr_versions *versions)
{
    uint64_t visible = atomic_load_explicit(&versions->visible, memory_order_relaxed);
    atomic_store_explicit(&versions->claimed, visible + 1, memory_order_relaxed);
    qr_feed_fence_after_claim();
    return visible;
}

static inline void qr_versions_end(qr_versions *versions)
{
    uint64_t visible = atomic_load_explicit(&versions->visible, memory_order_relaxed);
    atomic_store_explicit(&versions->visible, visible + 1, memory_order_release);
}

/* ---- reading --------------------------------------------------------------- */

/* How many versions can be seen: the last one is number seen - 1. */
static inline uint64_t qr_versions_seen(const qr_versions *versions)
{
    return atomic_load_explicit(&versions->visible, memory_order_acquire);
}

/* After the copy of a version: false when it was overwritten meanwhile. */
static inline bool qr_versions_is_whole(const qr_versions *versions, uint64_t number,
                                        uint64_t places)
{
    qr_feed_fence_before_check();
    uint64_t claimed = atomic_load_explicit(&versions->claimed, memory_order_relaxed);
    return claimed - number <= places;
}

#endif
