/* tier/offload/tiers.h - how full the CPU pool and the tiers below it are, for the monitor.
 *
 *      connector.get_tiers ──► "host", then each quire_tier by its label
 */
#ifndef QR_TIER_OFFLOAD_TIERS_H
#define QR_TIER_OFFLOAD_TIERS_H

#include "tier/offload/offload.h"

/* quire_connector.get_tiers; user is the offload. */
uint32_t qr_offload_get_tiers(void *user, quire_tier_usage *tiers, uint32_t capacity);

#endif
