/* obs/tiers.h - how full each tier is, in a record that any thread reads whole (obs/versions.h).
 *
 *      of a version: total = empty + cached + active + null blocks, for each tier
 */
#ifndef QR_OBS_TIERS_H
#define QR_OBS_TIERS_H

#include "obs/versions.h"

#include <quire/observe.h>

enum { QR_TIER_NAME_BYTES = 32, QR_TIER_WORDS = 14 };

typedef struct qr_tiers {
    uint32_t count; /* set by the first version */
    char names[QUIRE_MAX_TIERS][QR_TIER_NAME_BYTES];
    char mediums[QUIRE_MAX_TIERS][QR_TIER_NAME_BYTES];
    qr_versions versions;
    _Atomic uint64_t words[QR_VERSIONS][QUIRE_MAX_TIERS][QR_TIER_WORDS];
} qr_tiers;

void qr_tiers_init(qr_tiers *tiers);
/* The first call says how many there are and what their names are: one that is there already gets a
 * number behind it. Later calls change the numbers alone. */
void qr_tiers_set(qr_tiers *tiers, const quire_tier_usage *now, uint32_t count);
/* Any thread; returns how many there are, writes at most `capacity`. */
uint32_t qr_tiers_get(const qr_tiers *tiers, quire_tier_usage *out, uint32_t capacity);

#endif
