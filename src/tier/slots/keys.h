/* tier/slots/keys.h - the nodes of keys: found, made known, forgotten; one or all of a call.
 *
 *      keys    | 64 of them | 64 | 64 | ..     the places of a chunk in the index, then its nodes,
 *                ▲ at hand                     are asked for before the first is looked at: the
 *                                              waits for memory overlap
 */
#ifndef QR_TIER_SLOTS_KEYS_H
#define QR_TIER_SLOTS_KEYS_H

#include "tier/slots/slots.h"

enum { QR_KEYS_AHEAD = QR_AT_A_TIME(64, 2) };

/* Over the keys of a call, forth or back. */
typedef struct qr_key_walk {
    const quire_tier_key *keys;
    uint32_t n;
    uint32_t chunk; /* whose tags these are */
    uint32_t tags[QR_KEYS_AHEAD];
    uint32_t nodes[QR_KEYS_AHEAD]; /* those that they led to then; QR_NIL: to none, as long as */
    uint64_t num_made_known;       /* no node is made known */
} qr_key_walk;

uint32_t qr_key_walk_tag(const quire_slots *slots, qr_key_walk *walk, uint32_t i);
/* The node of key i, with a slot or not; QR_NIL. */
uint32_t qr_key_walk_node(const quire_slots *slots, qr_key_walk *walk, uint32_t i);

/* The node of a key with this tag, a new one where there is none. */
uint32_t qr_slots_know_tag(quire_slots *slots, uint32_t tag, const quire_tier_key *key);

#endif
