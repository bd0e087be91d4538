/* tier/slots/policy_lru.c - the one that was used longest ago goes first: vLLM 0.20.0's
 * LRUCachePolicy.
 *
 *      lists[0]   oldest ─ .. ─ newest        insert and touch: to the newest end
 *
 * A key that is being read keeps its place, and is passed over. */
#include "tier/slots/slots.h"

static void lru_insert(quire_slots *slots, uint32_t node)
{
    qr_slots_list_add(slots, 0, node);
}

static bool lru_can_evict(const quire_slots *slots, uint32_t n)
{
    return slots->lists[0].num_idle >= n;
}

static void lru_evict(quire_slots *slots, uint32_t n)
{
    qr_slots_evict_oldest(slots, 0, n);
}

static bool lru_is_valid(const quire_slots *slots)
{
    return slots->lists[0].count == slots->num_cached + slots->num_active;
}

const qr_policy qr_policy_lru = {
    .insert = lru_insert,
    .touch = qr_slots_list_renew,
    .can_evict = lru_can_evict,
    .evict = lru_evict,
    .remove = qr_slots_list_remove,
    .is_valid = lru_is_valid,
};
