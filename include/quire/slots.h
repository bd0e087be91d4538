/* quire/slots.h - which key is in which slot, and which key is evicted when the slots are full.
 *
 *      prepare_store ──► WRITING ── complete_store ──► READY ── evicted ──► free
 *                           └────── failed ──► free      │ ▲
 *                                                prepare_load, complete_load: adds, removes a user
 *
 * slot      room for one block in a tier: host memory, a file. Named by its number.
 * policy    which key is evicted first:
 *      LRU       the key that was used longest ago
 *      ARC       keys used once and keys used often, with a learned balance between them (as in
 *                vLLM 0.20.0's kv_offload; so is LRU)
 *      S3FIFO    a small queue for new keys, a main queue for keys that were used again, and a list
 *                of evicted keys
 *      LOOKAHEAD keys that no waiting request needs, by LRU; then the keys of the request that
 *                waits furthest behind (quire_slots_expect)
 *
 * A slot that has users, is being written, or is named in the same call is never evicted. A call
 * that does not return QUIRE_OK has changed nothing. Nothing is allocated after creation.
 *
 * LRU and ARC decide like vLLM 0.20.0, slot for slot. This has consequences that one would not
 * expect:
 *   - Within one prepare_store the first key counts as the oldest, so that the start of a prompt is
 *     evicted before its end, unless the keys are touched afterwards (touch goes from the last key
 *     to the first). S3FIFO and LOOKAHEAD store the last key first.
 *   - ARC returns QUIRE_NO_SPACE if T1 is below its target and no key of T2 can be evicted, even if
 *     T1 has enough keys to evict. The other policies always find the keys that can be evicted.
 *   - ARC learns from every touch of a key that it remembers, also if nothing is stored then: a
 *     request that is asked about again and again moves the target each time.
 * A key that is named twice in one prepare_store counts twice when room is made; it gets one slot
 * (vLLM gives it two slots and loses the first).
 *
 * Cost: O(1) for a key, LOOKAHEAD O(log num_slots); prepare_store also makes one step for each slot
 * in use among the evicted slots.
 *
 * Threads: one thread. If a required pointer is NULL, a call returns QUIRE_E_ARGUMENT.
 */
#ifndef QUIRE_SLOTS_H
#define QUIRE_SLOTS_H

#include "config.h"
#include "error.h"
#include "memory.h"
#include "pool.h"
#include "tier.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_slots quire_slots;

typedef enum quire_slots_policy {
    QUIRE_SLOTS_LRU = 0,
    QUIRE_SLOTS_ARC = 1,
    QUIRE_SLOTS_S3FIFO = 2,
    QUIRE_SLOTS_LOOKAHEAD = 3
} quire_slots_policy;

#define QUIRE_SLOTS_MAX (UINT32_C(1) << 28)

typedef struct quire_slots_config {
    size_t size;
    uint32_t num_slots; /* 1 to QUIRE_SLOTS_MAX */
    quire_slots_policy policy;
    /* LOOKAHEAD: the most keys that waiting requests need at a time; a key counts once for each
     * request. 0 = num_slots. */
    uint32_t max_expected;
    quire_hooks hooks; /* for random bytes at creation */
} quire_slots_config;

#define QUIRE_SLOTS_CONFIG_INIT QUIRE_SIZED_INIT(quire_slots_config)

/* Create slots: see quire/memory.h. QUIRE_E_RANDOM if the random hook fails. */
QUIRE_API int quire_slots_create(const quire_slots_config *config, const quire_allocator *allocator,
                                 quire_slots **slots);
static inline size_t quire_slots_bytes(const quire_slots_config *config)
{
    size_t bytes = 0;
    quire_slots *none;
    quire_allocator measure = quire_allocator_measure(&bytes);
    (void)quire_slots_create(config, &measure, &none);
    return bytes;
}
QUIRE_API void quire_slots_destroy(quire_slots *slots);

/* ---- looking --------------------------------------------------------------- */

/* Returns how many keys, from the first on, are READY. */
QUIRE_API uint32_t quire_slots_lookup(const quire_slots *slots, const quire_tier_key *keys,
                                      uint32_t n);
/* Sets found[i] to 1 if keys[i] is READY, otherwise to 0. */
QUIRE_API void quire_slots_lookup_each(const quire_slots *slots, const quire_tier_key *keys,
                                       uint32_t n, uint8_t *found);
/* Finds the slot of a key, READY or not (is_ready may be NULL). QUIRE_MISS if the key has no slot.
 */
QUIRE_API int quire_slots_find(const quire_slots *slots, const quire_tier_key *key, uint32_t *slot,
                               uint32_t *is_ready);
/* The keys were used. Pass all keys of a request in one call, in the order of its blocks, once for
 * each use (S3FIFO counts uses). Keys without a slot are skipped (ARC learns from the keys that it
 * remembers). A key that is being written counts as new, not as used again. */
QUIRE_API void quire_slots_touch(quire_slots *slots, const quire_tier_key *keys, uint32_t n);

/* ---- loading --------------------------------------------------------------- */

/* Adds one user to each key, and writes their slots. QUIRE_MISS if a key is not READY,
 * QUIRE_E_OVERFLOW if a key has too many users. */
QUIRE_API int quire_slots_prepare_load(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                                       uint32_t *slot_ids);
/* Removes one user from each key. QUIRE_MISS if a key has no slot, QUIRE_E_DOUBLE_FREE if a key has
 * no users. */
QUIRE_API int quire_slots_complete_load(quire_slots *slots, const quire_tier_key *keys, uint32_t n);
/* Like complete_load, without a search, for the slots that prepare_load gave to this user. */
QUIRE_API int quire_slots_end_load(quire_slots *slots, const uint32_t *slot_ids, uint32_t n);

/* ---- storing --------------------------------------------------------------- */

/* Gives a slot to each key that has none. is_new[i]: 1 if this call gave the key its slot;
 * slot_ids[i]: its slot. evicted, if not NULL, gets the evicted keys, *num_evicted of them, at most
 * n. QUIRE_NO_SPACE if not enough keys can be evicted; the arrays are then undefined. */
QUIRE_API int quire_slots_prepare_store(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                                        uint32_t *slot_ids, uint8_t *is_new,
                                        quire_tier_key *evicted, uint32_t *num_evicted);
/* Ends a store: keys that are being written become READY, or, if is_good is 0, lose their slots.
 * Other keys are skipped. */
QUIRE_API int quire_slots_complete_store(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                                         uint32_t is_good);
/* Like complete_store, without a search, for the slots that prepare_store gave to this writer. */
QUIRE_API int quire_slots_end_store(quire_slots *slots, const uint32_t *slot_ids, uint32_t n,
                                    uint32_t is_good);
/* Removes a key. QUIRE_BUSY if it has users or is being written, QUIRE_MISS if it has no slot. */
QUIRE_API int quire_slots_remove(quire_slots *slots, const quire_tier_key *key);
/* Removes all keys that have no users and are not being written, and what policies have learned.
 * Returns the number of keys that stay because they are in use. Expected keys stay expected. */
QUIRE_API uint32_t quire_slots_reset(quire_slots *slots);

/* ---- telling --------------------------------------------------------------- */

/* Called when a key becomes READY in a slot (is_there 1), and when a READY key is evicted, removed
 * or reset (is_there 0): on the thread of the call that does it, in order. The listener must not
 * change the slots. */
typedef void (*quire_slots_listener)(void *user, uint32_t slot, const quire_tier_key *key,
                                     uint32_t is_there);
/* Sets the one listener; NULL: no listener. Keys that are already READY are not reported: see
 * quire_slots_key_at. */
QUIRE_API void quire_slots_set_listener(quire_slots *slots, quire_slots_listener listener,
                                        void *user);
/* The READY key of a slot, valid until the slots change; NULL if the slot has no READY key. */
QUIRE_API const quire_tier_key *quire_slots_key_at(const quire_slots *slots, uint32_t slot);

/* ---- looking ahead --------------------------------------------------------- */

/* LOOKAHEAD: a waiting request will use these keys; order is its position in the queue (a smaller
 * order is sooner). The keys need not have slots yet. A second call for the same request replaces
 * its keys. n = 0: the request no longer waits, and the keys that only it needed count as used now.
 * QUIRE_FULL past max_expected: the remaining keys are not expected. QUIRE_E_DISABLED with other
 * policies. */
QUIRE_API int quire_slots_expect(quire_slots *slots, uint64_t request, uint64_t order,
                                 const quire_tier_key *keys, uint32_t n);

/* ---- all of them ----------------------------------------------------------- */

/* cached: READY, without users; active: with users, or being written. Any thread. */
QUIRE_API quire_usage quire_slots_usage(const quire_slots *slots);
/* Walks all slots and checks every invariant. Returns QUIRE_OK or QUIRE_E_CORRUPT. */
QUIRE_API int quire_slots_check(const quire_slots *slots);

#ifdef __cplusplus
}
#endif
#endif
