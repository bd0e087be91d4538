/* tier/slots/check.h - walks everything that slots have: index, nodes, lists, slots, counts.
 *
 * O(nodes), and takes no memory: every list is walked, every node looked up by its key, and the
 * numbers compared with those that are kept. */
#ifndef QR_TIER_SLOTS_CHECK_H
#define QR_TIER_SLOTS_CHECK_H

#include "tier/slots/slots.h"

bool qr_slots_is_valid(const quire_slots *slots);

#endif
