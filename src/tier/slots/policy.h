/* tier/slots/policy.h - who is evicted first: one file for each policy, behind these calls.
 *
 *      tier/slots/slots.c                                 policy
 *      a key gets a slot         ── insert ──►      into a list
 *      it was used               ── touch ──►       to another place
 *      room is needed            ── can_evict ──►   yes or no, and nothing is changed
 *                                ── evict ──►       calls qr_slots_vacate for each that goes
 *      its store failed          ── remove ──►      out of its list, not remembered
 */
#ifndef QR_TIER_SLOTS_POLICY_H
#define QR_TIER_SLOTS_POLICY_H

#include "base/arena.h"

#include <quire/slots.h>

typedef struct qr_policy {
    /* Within a call the deepest key is stored first: it is then the first to go. vLLM's go the
     * other way, and rely on the touch that follows. */
    bool is_deepest_first;
    uint64_t (*num_more_nodes)(const quire_slots_config *config); /* than slots; NULL: 0 */
    /* Takes its own memory, in counting too; NULL: none. */
    void (*carve)(quire_slots *slots, const quire_slots_config *config, qr_arena *arena);
    void (*init)(quire_slots *slots); /* in memory that is zero; NULL: nothing to do */
    void (*insert)(quire_slots *slots, uint32_t node);
    void (*touch)(quire_slots *slots, uint32_t node); /* with a slot or not */
    bool (*can_evict)(const quire_slots *slots, uint32_t n);
    void (*evict)(quire_slots *slots, uint32_t n);
    void (*remove)(quire_slots *slots, uint32_t node);
    void (*idle_changed)(quire_slots *slots, uint32_t node); /* NULL: nothing to do */
    bool (*is_valid)(const quire_slots *slots);
} qr_policy;

extern const qr_policy qr_policy_lru;
extern const qr_policy qr_policy_arc;
extern const qr_policy qr_policy_s3fifo;
extern const qr_policy qr_policy_lookahead;

/* LOOKAHEAD: the request waits for nothing any more; the request, which waits for nothing, waits
 * for these keys. */
void qr_slots_unexpect(quire_slots *slots, uint64_t request);
int qr_slots_expect(quire_slots *slots, uint64_t request, uint64_t order,
                    const quire_tier_key *keys, uint32_t n);

#endif
