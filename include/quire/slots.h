/* quire/slots.h - which key is in which slot, and which goes when there is no room.
 *
 *      prepare_store ──► WRITING ── complete_store ──► READY ── evicted ──► free
 *                           └────── failed ──► free      │ ▲
 *                                                prepare_load, complete_load: one user more, less
 *
 * slot      a place for one block in a tier: host memory, a file. Named by its number.
 * policy    who is evicted first:
 *      LRU       the one that was used longest ago
 *      ARC       used once and used often, with the balance between them learned (as vLLM 0.20.0's
 *                kv_offload; so is LRU)
 *      S3FIFO    a small queue for newcomers, a main one for those that were used again, and a
 *                memory of who was thrown out
 *      LOOKAHEAD those that no waiting request needs, by LRU; then those whose request waits
 *                furthest behind (quire_slots_expect)
 *
 * A slot with users, being written, or named in the very call, is never evicted. A call that does
 * not return QUIRE_OK has changed nothing. Nothing is allocated after creation.
 *
 * LRU and ARC decide as vLLM 0.20.0 does, slot for slot. Where that is not what one would expect:
 *   - within one prepare_store the first key counts as the oldest, so that the beginning of a
 *     prompt goes before its end, unless the keys are touched afterwards (touch goes from the last
 *     to the first). S3FIFO and LOOKAHEAD store the last key first.
 *   - ARC answers QUIRE_NO_SPACE when T1 is below its target and nothing in T2 can be evicted,
 *     although there may be enough in T1. The others always find what can be evicted.
 *   - ARC learns from every touch of a key that it remembers, also when nothing is stored then: a
 *     request that is asked about again and again moves the target each time.
 * A key named twice in one prepare_store counts twice when room is made; it gets one slot (vLLM
 * gives it two, and loses the first).
 *
 * Costs: O(1) for a key, LOOKAHEAD O(log num_slots); and for prepare_store one step for each slot
 * in use that stands among those that go.
 *
 * Threads: one.
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
    /* LOOKAHEAD: keys that waiting requests need, at one time, each counted for each of them;
     * 0 = num_slots */
    uint32_t max_expected;
    quire_hooks hooks; /* random bytes, at creation */
} quire_slots_config;

#define QUIRE_SLOTS_CONFIG_INIT QUIRE_SIZED_INIT(quire_slots_config)

QUIRE_API size_t quire_slots_bytes(const quire_slots_config *config);
QUIRE_API int quire_slots_create_in(void *memory, size_t bytes, const quire_slots_config *config,
                                    quire_slots **slots);
QUIRE_API int quire_slots_create(const quire_slots_config *config, const quire_allocator *allocator,
                                 quire_slots **slots);
QUIRE_API void quire_slots_destroy(quire_slots *slots);

/* ---- looking --------------------------------------------------------------- */

/* How many keys from the first on are READY. */
QUIRE_API uint32_t quire_slots_lookup(const quire_slots *slots, const quire_tier_key *keys,
                                      uint32_t n);
/* Which of them are READY, wherever in the list: found[i] is 1 or 0. */
QUIRE_API void quire_slots_lookup_each(const quire_slots *slots, const quire_tier_key *keys,
                                       uint32_t n, uint8_t *found);
/* The slot of a key, READY or not (is_ready may be NULL); QUIRE_MISS. */
QUIRE_API int quire_slots_find(const quire_slots *slots, const quire_tier_key *key, uint32_t *slot,
                               uint32_t *is_ready);
/* They were used: in the order of a request's blocks, all in one call, once for each use (S3FIFO
 * counts). Keys that are not there are passed over (ARC learns from those that it remembers). One
 * that is being written counts as new, not as used again. */
QUIRE_API void quire_slots_touch(quire_slots *slots, const quire_tier_key *keys, uint32_t n);

/* ---- loading --------------------------------------------------------------- */

/* One user more for each; all must be READY, else QUIRE_MISS. */
QUIRE_API int quire_slots_prepare_load(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                                       uint32_t *slot_ids);
/* One user less for each. QUIRE_MISS, QUIRE_E_DOUBLE_FREE for one without users. */
QUIRE_API int quire_slots_complete_load(quire_slots *slots, const quire_tier_key *keys, uint32_t n);
/* The same, without a search, by the slots that prepare_load gave to this user. */
QUIRE_API int quire_slots_end_load(quire_slots *slots, const uint32_t *slot_ids, uint32_t n);

/* ---- storing --------------------------------------------------------------- */

/* Slots for those keys that have none. is_new[i]: this call gave it one; slot_ids[i]: its slot, new
 * or not. evicted, where not NULL, gets the keys that had to go, *num_evicted of them, at most n.
 * QUIRE_NO_SPACE when not enough can be evicted; the arrays then say nothing. */
QUIRE_API int quire_slots_prepare_store(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                                        uint32_t *slot_ids, uint8_t *is_new,
                                        quire_tier_key *evicted, uint32_t *num_evicted);
/* Those that are being written are READY now, or, where is_good is 0, gone; others are passed
 * over. */
QUIRE_API int quire_slots_complete_store(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                                         uint32_t is_good);
/* The same, without a search, by the slots that prepare_store gave to this writer. */
QUIRE_API int quire_slots_end_store(quire_slots *slots, const uint32_t *slot_ids, uint32_t n,
                                    uint32_t is_good);
/* Forgets a key that has no users and is not being written: QUIRE_BUSY, QUIRE_MISS. */
QUIRE_API int quire_slots_remove(quire_slots *slots, const quire_tier_key *key);
/* Forgets all of these, and what policies have learned; returns how many stay since they are in
 * use. What is expected stays expected. */
QUIRE_API uint32_t quire_slots_reset(quire_slots *slots);
/* After a start: this key is in this slot, READY, the newest of all. In ascending order of slots,
 * and before anything was stored: QUIRE_E_RANGE else; QUIRE_E_DUPLICATE for a key that is there. */
QUIRE_API int quire_slots_restore(quire_slots *slots, const quire_tier_key *key, uint32_t slot);

/* ---- telling --------------------------------------------------------------- */

/* Called when a key has become READY in a slot (is_there 1), and when a READY key goes (0):
 * evicted, removed or reset. On the thread of the call that does it, in the order in which it
 * happens. It must not change the slots. */
typedef void (*quire_slots_listener)(void *user, uint32_t slot, const quire_tier_key *key,
                                     uint32_t is_there);
/* One listener; NULL: none. What is READY already is not told: see quire_slots_key_at. */
QUIRE_API void quire_slots_set_listener(quire_slots *slots, quire_slots_listener listener,
                                        void *user);
/* The key that is READY in a slot, valid until the next change; NULL: none is. */
QUIRE_API const quire_tier_key *quire_slots_key_at(const quire_slots *slots, uint32_t slot);

/* ---- looking ahead --------------------------------------------------------- */

/* LOOKAHEAD: a request that waits will use these keys, at this place in the queue (smaller:
 * sooner); they need not be there yet. The same request again replaces what was said; n = 0: it no
 * longer waits, and what it alone waited for counts as used now. QUIRE_FULL past max_expected: the
 * rest of its keys is then not expected. QUIRE_E_DISABLED with other policies. */
QUIRE_API int quire_slots_expect(quire_slots *slots, uint64_t request, uint64_t order,
                                 const quire_tier_key *keys, uint32_t n);

/* ---- all of them ----------------------------------------------------------- */

/* cached: READY, without users; active: with users, or being written. Any thread. */
QUIRE_API quire_usage quire_slots_usage(const quire_slots *slots);
/* Walks everything: QUIRE_OK or QUIRE_E_CORRUPT. */
QUIRE_API int quire_slots_check(const quire_slots *slots);

#ifdef __cplusplus
}
#endif
#endif
