/* tier/slots/policy_s3fifo.c - three queues: newcomers, those used again, and a memory of who went.
 *
 *      new ──► lists[0]  small, a tenth ── used twice or more ──► [1]  main, the rest
 *                        │ else                                        │ ▲ used: once more round
 *                        ▼                                             ▼
 *              lists[2]  ghosts ── stored again ──► main              gone
 *
 * S3-FIFO (Yang and others, SOSP 2023), where a use only counts up, to three, and nothing is moved
 * by it. Most blocks are used once: they leave through the small queue and never reach the main
 * one.
 *
 * Here several are evicted in one call and some are in use. One that cannot be evicted goes to the
 * other end of its queue: it is being used. A queue is only looked at while it has an idle one, so
 * that the search ends.
 */
#include "tier/slots/slots.h"

enum { SMALL, MAIN, GHOSTS };
enum { MOST_USES = 3 };

static uint32_t small_size(uint32_t num_slots)
{
    return num_slots < 10 ? 1 : num_slots / 10;
}

static uint64_t s3_num_more_nodes(const quire_slots_config *config)
{
    return config->num_slots - small_size(config->num_slots); /* as many ghosts as main has */
}

static void s3_insert(quire_slots *slots, uint32_t node)
{
    bool is_back = slots->nodes[node].list == GHOSTS;
    if (is_back)
        qr_slots_list_remove(slots, node);
    slots->nodes[node].uses = 0;
    qr_slots_list_add(slots, is_back ? MAIN : SMALL, node);
}

static void s3_touch(quire_slots *slots, uint32_t id)
{
    qr_slots_node *node = &slots->nodes[id];
    if (node->is_ready && node->uses < MOST_USES)
        node->uses = (node->uses + 1U) & MOST_USES;
}

static bool s3_can_evict(const quire_slots *slots, uint32_t n)
{
    return (uint64_t)slots->lists[SMALL].num_idle + slots->lists[MAIN].num_idle >= n;
}

/* The oldest newcomer goes to the main queue, to the end of its own, or away. */
static bool s3_turn_small(quire_slots *slots)
{
    uint32_t node = slots->lists[SMALL].chain.first;
    bool is_idle = qr_slots_is_idle(&slots->nodes[node]);
    qr_slots_list_remove(slots, node);
    if (slots->nodes[node].uses > 1) {
        slots->nodes[node].uses = 0;
        qr_slots_list_add(slots, MAIN, node);
        return false;
    }
    if (!is_idle) {
        qr_slots_list_add(slots, SMALL, node);
        return false;
    }
    qr_slots_vacate(slots, node);
    qr_slots_remember(slots, GHOSTS, slots->num_nodes - slots->num_slots, node);
    return true;
}

static bool s3_turn_main(quire_slots *slots)
{
    uint32_t id = slots->lists[MAIN].chain.first;
    qr_slots_node *node = &slots->nodes[id];
    bool is_idle = qr_slots_is_idle(node);
    qr_slots_list_remove(slots, id);
    if (!is_idle || node->uses > 0) {
        node->uses = (node->uses - (uint32_t)is_idle) & MOST_USES;
        qr_slots_list_add(slots, MAIN, id);
        return false;
    }
    qr_slots_vacate(slots, id);
    qr_slots_forget(slots, id);
    return true;
}

static void s3_evict(quire_slots *slots, uint32_t n)
{
    const qr_slots_list *small = &slots->lists[SMALL];
    const qr_slots_list *main_queue = &slots->lists[MAIN];
    while (n > 0) {
        bool is_large = small->count >= small_size(slots->num_slots);
        bool from_small = small->num_idle > 0 && (is_large || main_queue->num_idle == 0);
        n -= from_small ? s3_turn_small(slots) : s3_turn_main(slots);
    }
}

static bool s3_is_valid(const quire_slots *slots)
{
    const qr_slots_list *lists = slots->lists;
    return lists[SMALL].count + lists[MAIN].count == slots->num_cached + slots->num_active &&
           lists[GHOSTS].count <= slots->num_nodes - slots->num_slots;
}

const qr_policy qr_policy_s3fifo = {
    .is_deepest_first = true,
    .num_more_nodes = s3_num_more_nodes,
    .insert = s3_insert,
    .touch = s3_touch,
    .can_evict = s3_can_evict,
    .evict = s3_evict,
    .remove = qr_slots_list_remove,
    .is_valid = s3_is_valid,
};
