/* tier/slots/policy_arc.c - used once and used often, with the balance learned: vLLM 0.20.0's
 * ARCCachePolicy.
 *
 *      lists[0]  T1  used once    ── touch ──► [1]  T2  used often
 *            │ evicted                          │ evicted
 *      lists[2]  B1  remembered               [3]  B2  remembered        at most num_slots each
 *
 *      touch of one in B1: T1 was too small, target += max(1, B2 / B1)
 *      touch of one in B2: T2 was too small, target -= max(1, B1 / B2)
 *      evict: from T1 while it has target or more, else from T2
 *
 * Everything is vLLM's, its rounding too. One that is being written was not used again by a touch:
 * it stays in T1. T1 below its target is never evicted from, so that there may be no room although
 * T1 has idle ones: said in quire/slots.h.
 */
#include "tier/slots/slots.h"

enum { T1, T2, B1, B2 };

static uint64_t arc_num_more_nodes(const quire_slots_config *config)
{
    return 2 * (uint64_t)config->num_slots;
}

static void arc_insert(quire_slots *slots, uint32_t node)
{
    if (slots->nodes[node].list != QR_NO_LIST)
        qr_slots_list_remove(slots, node);
    qr_slots_list_add(slots, T1, node);
}

static double arc_delta(const quire_slots *slots, uint32_t mine, uint32_t other)
{
    double delta = (double)slots->lists[other].count / (double)slots->lists[mine].count;
    return delta > 1 ? delta : 1;
}

static void arc_touch(quire_slots *slots, uint32_t node)
{
    double capacity = (double)slots->num_slots;
    double *target = &slots->target;
    switch (slots->nodes[node].list) {
    case T1:
        qr_slots_list_remove(slots, node);
        qr_slots_list_add(slots, slots->nodes[node].is_ready ? T2 : T1, node);
        return;
    case B1:
        *target += arc_delta(slots, B1, B2);
        *target = *target < capacity ? *target : capacity;
        break;
    case B2:
        *target -= arc_delta(slots, B2, B1);
        *target = *target > 0 ? *target : 0;
        break;
    default:
        break;
    }
    qr_slots_list_renew(slots, node);
}

/* Whether the next one goes from T1; the caller knows how many are left in both. */
static bool arc_takes_t1(const quire_slots *slots, uint32_t t1_size, uint32_t t1_idle)
{
    return t1_idle > 0 && t1_size >= (uint32_t)slots->target;
}

static bool arc_can_evict(const quire_slots *slots, uint32_t n)
{
    uint32_t t1_size = slots->lists[T1].count;
    uint32_t t1_idle = slots->lists[T1].num_idle;
    uint32_t t2_idle = slots->lists[T2].num_idle;
    if (n > (uint64_t)t1_idle + t2_idle)
        return false;
    for (; n > 0; n--) {
        if (arc_takes_t1(slots, t1_size, t1_idle)) {
            t1_size--;
            t1_idle--;
        } else if (t2_idle-- == 0) {
            return false;
        }
    }
    return true;
}

static void arc_evict(quire_slots *slots, uint32_t n)
{
    uint32_t at[2] = {slots->lists[T1].chain.first, slots->lists[T2].chain.first};
    for (; n > 0; n--) {
        uint32_t t1_size = slots->lists[T1].count;
        uint32_t from = arc_takes_t1(slots, t1_size, slots->lists[T1].num_idle) ? T1 : T2;
        uint32_t node = qr_slots_next_idle(slots, at[from]);
        at[from] = slots->nodes[node].link.next;
        qr_slots_list_remove(slots, node);
        qr_slots_vacate(slots, node);
        qr_slots_remember(slots, from == T1 ? B1 : B2, slots->num_slots, node);
    }
}

static bool arc_is_valid(const quire_slots *slots)
{
    const qr_slots_list *lists = slots->lists;
    return lists[T1].count + lists[T2].count == slots->num_cached + slots->num_active &&
           lists[B1].count <= slots->num_slots && lists[B2].count <= slots->num_slots &&
           slots->target >= 0 && slots->target <= (double)slots->num_slots;
}

const qr_policy qr_policy_arc = {
    .num_more_nodes = arc_num_more_nodes,
    .insert = arc_insert,
    .touch = arc_touch,
    .can_evict = arc_can_evict,
    .evict = arc_evict,
    .remove = qr_slots_list_remove,
    .is_valid = arc_is_valid,
};
