/* tier/peer/table.h - what an engine offers to its peers: written by its owner, read by the server.
 *
 *      owner                                         the server's thread
 *      offer ──► entry, generation odd ──► ring ──►  catch_up: index, key ──► slot
 *      withdraw ──► generation even                  find: index, then the entry itself
 *                                                    .. sends ..  is_standing: still the same?
 *
 * entry        of a slot: key, memory, length, CRC. generation grows with each change: odd, the
 *              offer stands; even, there is none. Whoever reads the entry, or its memory, reads
 *              generation before and after: if it is the same odd number, nothing was written
 *              between (a sequence lock; the owner never waits).
 * index        the server's own. A slot that was withdrawn may still be there: the generation
 *              tells.
 * ring         slots whose entry changed, each at most once (is_queued): there is always room.
 * epoch        of the identity: even, it stands. An offer belongs to the epoch it was made in.
 */
#ifndef QR_TIER_PEER_TABLE_H
#define QR_TIER_PEER_TABLE_H

#include "tier/core/spsc.h"
#include "tier/slots/index.h"

#include <stdatomic.h>

enum { QR_PEER_KEY_WORDS = sizeof(quire_tier_key) / 8, QR_PEER_PRINT_WORDS = 4 };

typedef struct qr_peer_entry {
    _Atomic uint64_t generation;
    _Atomic uint64_t key[QR_PEER_KEY_WORDS];
    _Atomic uintptr_t memory;
    _Atomic uint64_t sums; /* bytes, and the CRC above them */
    _Atomic uint64_t epoch;
    _Atomic bool has_crc;
    _Atomic bool is_queued;
} qr_peer_entry;

/* An entry, as it was read. */
typedef struct qr_peer_offer {
    uint32_t slot;
    uint32_t bytes;
    uint64_t generation;
    uint64_t epoch;
    const unsigned char *memory;
    uint32_t crc;
    bool has_crc;
    quire_tier_key key;
} qr_peer_offer;

/* The server's own, of a slot. */
typedef struct qr_peer_known {
    quire_tier_key key;
    uint32_t tag;
    uint32_t crc; /* of crc_generation; 0: not computed yet */
    uint64_t crc_generation;
    bool is_indexed;
} qr_peer_known;

typedef struct qr_peer_table {
    uint32_t max_slots;
    qr_peer_entry *entries;
    qr_spsc ring;
    _Atomic uint64_t epoch;
    _Atomic uint64_t fingerprint[QR_PEER_PRINT_WORDS];
    _Atomic uint64_t num_offered;
    qr_buckets index;
    qr_peer_known *known;
} qr_peer_table;

/* false: no memory, or no random bytes. */
bool qr_peer_table_open(qr_peer_table *table, uint32_t max_slots, const unsigned char *fingerprint,
                        const quire_hooks *hooks);
void qr_peer_table_close(qr_peer_table *table);

/* The owner's. */
void qr_peer_table_offer(qr_peer_table *table, uint32_t slot, const quire_tier_key *key,
                         const void *memory, uint32_t bytes, const uint32_t *crc);
void qr_peer_table_withdraw(qr_peer_table *table, uint32_t slot);
void qr_peer_table_set_identity(qr_peer_table *table, const unsigned char *fingerprint);

/* The server's. */
/* Whether this is the fingerprint, and its epoch. */
bool qr_peer_table_is_same(const qr_peer_table *table, const unsigned char *fingerprint,
                           uint64_t *epoch);
uint64_t qr_peer_table_epoch(const qr_peer_table *table);
/* What was offered since the last call can be found. */
void qr_peer_table_catch_up(qr_peer_table *table);
/* The offer of a key that stands, and is of this epoch. */
bool qr_peer_table_find(qr_peer_table *table, const quire_tier_key *key, uint64_t epoch,
                        qr_peer_offer *offer);
/* After reading an offer's memory: whether all that was read is its content. */
bool qr_peer_table_is_standing(const qr_peer_table *table, const qr_peer_offer *offer);
/* The CRC of an offer that had none, for the next time. */
void qr_peer_table_note_crc(qr_peer_table *table, const qr_peer_offer *offer, uint32_t crc);

#endif
