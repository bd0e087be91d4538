/* tier/peer/hints.h - which blocks a peer has, as its KV events tell.
 *
 *      events ── hear ──► [ tag, count | 0 | tag, count | .. ] ◄── lookup, in a step
 *                         open addressing, at most half full
 *
 * tag     48 bits of a block's hash, keyed. Two hashes with one tag are one hint.
 * count   how often the hash was stored and not removed: groups and copies together.
 * whole   what was heard is all that the peer has. Otherwise the peer is asked about every key.
 *
 * One thread hears, another looks. Neither waits: an entry is one atomic word, and a look at an
 * entry that is being moved may miss it. A hint that is wrong costs a question, or tokens that are
 * computed; never a wrong block, since the peer itself says what it has.
 */
#ifndef QR_TIER_PEER_HINTS_H
#define QR_TIER_PEER_HINTS_H

#include <quire/tier.h>

#include <stdatomic.h>
#include <stdbool.h>

enum { QR_PEER_MAX_HINTS = 1 << 26 };

typedef struct qr_peer_hints {
    _Atomic uint64_t *entries; /* NULL: there are none, and all keys are asked about */
    uint32_t mask;
    uint32_t most;
    _Atomic uint32_t num;
    uint64_t seed;
    _Atomic bool is_whole;
} qr_peer_hints;

/* QUIRE_OK also for 0, QUIRE_E_NOMEM; seed: a number that peers cannot guess. */
int qr_peer_hints_open(qr_peer_hints *hints, uint32_t max_hints, uint64_t seed);
void qr_peer_hints_close(qr_peer_hints *hints);

/* The thread that hears. */
/* QUIRE_FULL: there is no room, and what is known is no longer whole. */
int qr_peer_hints_add(qr_peer_hints *hints, quire_bytes hash);
void qr_peer_hints_remove(qr_peer_hints *hints, quire_bytes hash);
void qr_peer_hints_clear(qr_peer_hints *hints);

static inline void qr_peer_hints_set_whole(qr_peer_hints *hints, bool is_whole)
{
    atomic_store_explicit(&hints->is_whole, is_whole, memory_order_release);
}

/* Any thread: found[i] as quire_tier_ops.lookup has it. Returns how many keys the peer need not be
 * asked about. */
uint32_t qr_peer_hints_lookup(const qr_peer_hints *hints, const quire_tier_key *keys, uint32_t n,
                              uint8_t *found);

#endif
