/* obs/tiers.h - how full each tier is, in a record that any thread reads whole.
 *
 *      writer ──► [version 5] [version 6] [version 7] [version 4, being written]
 *                                          ▲ visible
 *
 * One thread writes a new version beside the last ones and then makes it visible. A reader copies
 * the visible version, and takes another one when it was overwritten meanwhile: three versions
 * later. The writer never waits.
 *
 *      of a version: total = empty + cached + active + null blocks, for each tier
 */
#ifndef QR_OBS_TIERS_H
#define QR_OBS_TIERS_H

#include <quire/observe.h>

#include <stdatomic.h>

enum { QR_TIER_NAME_BYTES = 32, QR_TIER_WORDS = 14, QR_TIER_VERSIONS = 4 };

typedef struct qr_tiers {
    uint32_t count; /* set by the first version */
    char names[QUIRE_MAX_TIERS][QR_TIER_NAME_BYTES];
    char mediums[QUIRE_MAX_TIERS][QR_TIER_NAME_BYTES];
    _Alignas(64) _Atomic uint64_t claimed; /* versions that were begun, and */
    _Atomic uint64_t visible;              /* those that can be seen */
    _Atomic uint64_t words[QR_TIER_VERSIONS][QUIRE_MAX_TIERS][QR_TIER_WORDS];
} qr_tiers;

void qr_tiers_init(qr_tiers *tiers);
/* The first call says how many there are and what their names are: one that is there already gets a
 * number behind it. Later calls change the numbers alone. */
void qr_tiers_set(qr_tiers *tiers, const quire_tier_usage *now, uint32_t count);
/* Any thread; returns how many there are, writes at most `capacity`. */
uint32_t qr_tiers_get(const qr_tiers *tiers, quire_tier_usage *out, uint32_t capacity);

#endif
