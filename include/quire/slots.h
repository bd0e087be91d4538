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
 *      S3FIFO    a small queue for newcomers, a main one for those that were used again, and a memory
 *                of who was thrown out
 *      LOOKAHEAD those that no waiting request needs, by LRU; then those whose request waits furthest
 *                behind (quire_slots_expect)
 *
 * A slot with users, being written, or named in the very call, is never evicted. A call that does not
 * return QUIRE_OK has changed nothing. Nothing is allocated after creation.
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

typedef struct quire_slots_config {
    size_t size;
    uint32_t num_slots;
    quire_slots_policy policy;
    uint32_t
        max_expected; /* LOOKAHEAD: keys that waiting requests need, at one time; 0 = num_slots */
    quire_hooks hooks;
} quire_slots_config;

#define QUIRE_SLOTS_CONFIG_INIT                                                                    \
    {                                                                                              \
        .size = sizeof(quire_slots_config)                                                         \
    }

QUIRE_API size_t quire_slots_bytes(const quire_slots_config *config);
QUIRE_API int quire_slots_create_in(void *memory, size_t bytes, const quire_slots_config *config,
                                    quire_slots **slots);
QUIRE_API int quire_slots_create(const quire_slots_config *config, const quire_allocator *allocator,
                                 quire_slots **slots);
QUIRE_API void quire_slots_destroy(quire_slots *slots);

/* How many keys from the first on are READY. */
QUIRE_API uint32_t quire_slots_lookup(const quire_slots *slots, const quire_tier_key *keys,
                                      uint32_t n);
/* The slot of a key, READY or not; QUIRE_MISS. */
QUIRE_API int quire_slots_find(const quire_slots *slots, const quire_tier_key *key, uint32_t *slot,
                               uint32_t *is_ready);
/* They were used: in the order of a request's blocks. */
QUIRE_API void quire_slots_touch(quire_slots *slots, const quire_tier_key *keys, uint32_t n);

/* One user more for each; all must be READY, else QUIRE_MISS. */
QUIRE_API int quire_slots_prepare_load(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                                       uint32_t *slot_ids);
QUIRE_API int quire_slots_complete_load(quire_slots *slots, const quire_tier_key *keys, uint32_t n);

/* Slots for those keys that have none. is_new[i], slot_ids[i] for each key (slot_ids of others are
 * not set); evicted, where not NULL, gets the keys that had to go, *num_evicted of them, at most n.
 * QUIRE_NO_SPACE when not enough can be evicted. */
QUIRE_API int quire_slots_prepare_store(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                                        uint32_t *slot_ids, uint8_t *is_new,
                                        quire_tier_key *evicted, uint32_t *num_evicted);
QUIRE_API int quire_slots_complete_store(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                                         uint32_t is_good);
/* Forgets a key that has no users: QUIRE_BUSY, QUIRE_MISS. */
QUIRE_API int quire_slots_remove(quire_slots *slots, const quire_tier_key *key);

/* LOOKAHEAD: a request that waits will use these keys, at this place in the queue (smaller: sooner).
 * The same request again replaces what was said; n = 0: it no longer waits. QUIRE_FULL past
 * max_expected: the rest of its keys is then not expected. */
QUIRE_API int quire_slots_expect(quire_slots *slots, uint64_t request, uint64_t order,
                                 const quire_tier_key *keys, uint32_t n);

QUIRE_API quire_usage quire_slots_usage(const quire_slots *slots); /* any thread */
QUIRE_API int quire_slots_check(const quire_slots *slots);

#ifdef __cplusplus
}
#endif
#endif
