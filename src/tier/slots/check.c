/* tier/slots/check.c - walks everything that slots have: index, nodes, lists, slots, counts.
 *
 * O(nodes), and takes no memory: every list is walked, every node looked up by its key, and the
 * numbers compared with those that are kept. */
#include "tier/slots/slots.h"

static bool list_is_valid(const quire_slots *slots, uint32_t which)
{
    const qr_slots_list *list = &slots->lists[which];
    uint32_t count = 0;
    uint32_t num_idle = 0;
    uint32_t prev = QR_NIL;
    for (uint32_t id = list->chain.first; id != QR_NIL; id = slots->nodes[id].link.next) {
        if (id >= slots->num_fresh_nodes || ++count > list->count)
            return false;
        const qr_slots_node *node = &slots->nodes[id];
        if (node->link.prev != prev || node->list != which || !node->is_known)
            return false;
        num_idle += qr_slots_is_idle(node);
        prev = id;
    }
    return list->chain.last == prev && list->count == count && list->num_idle == num_idle;
}

/* Found by its key; a user or READY only with a slot; one with a slot is in a list. */
static bool node_is_valid(const quire_slots *slots, uint32_t id)
{
    const qr_slots_node *node = &slots->nodes[id];
    if (qr_slots_node_of(slots, &node->key) != id || node->is_named)
        return false;
    if (node->slot == QR_NIL)
        return !node->is_ready && node->users == 0;
    return node->slot < slots->num_fresh && slots->node_of[node->slot] == id &&
           node->list < QR_SLOTS_LISTS && (node->is_ready || node->users == 0);
}

static bool nodes_are_valid(const quire_slots *slots)
{
    uint32_t num_known = 0;
    uint32_t num_listed = 0;
    uint32_t num_cached = 0;
    uint32_t num_active = 0;
    uint64_t distances = 0;
    uint64_t sum_passed;
    if (!qr_buckets_is_valid(&slots->index, &sum_passed))
        return false;
    for (uint32_t id = 0; id < slots->num_fresh_nodes; id++) {
        const qr_slots_node *node = &slots->nodes[id];
        if (!node->is_known)
            continue;
        if (!node_is_valid(slots, id))
            return false;
        bool is_cached = node->is_ready && node->users == 0;
        num_known++;
        distances += qr_slots_index_distance(&slots->index, node->tag, id);
        num_listed += node->list < QR_SLOTS_LISTS;
        num_cached += is_cached;
        num_active += node->slot != QR_NIL && !is_cached;
    }
    for (uint32_t i = 0; i < QR_SLOTS_LISTS; i++)
        num_listed -= slots->lists[i].count;
    return num_known == slots->index.used && distances == sum_passed && num_listed == 0 &&
           num_cached == slots->num_cached && num_active == slots->num_active;
}

static bool free_nodes_are_valid(const quire_slots *slots)
{
    uint32_t count = 0;
    for (uint32_t id = slots->free_nodes; id != QR_NIL; id = slots->nodes[id].link.next) {
        if (id >= slots->num_fresh_nodes || slots->nodes[id].is_known || ++count > slots->num_nodes)
            return false;
    }
    return count + slots->index.used == slots->num_fresh_nodes;
}

/* Every slot that was given out is free or has one node. Sums stand for sets: no memory is taken
 * here to mark them. */
static bool places_are_valid(const quire_slots *slots)
{
    uint64_t sum = 0;
    uint64_t squares = 0;
    for (uint32_t i = 0; i < slots->num_free_slots; i++) {
        sum += slots->free_slots[i];
        squares += (uint64_t)slots->free_slots[i] * slots->free_slots[i];
    }
    for (uint32_t id = 0; id < slots->num_fresh_nodes; id++) {
        uint64_t slot = slots->nodes[id].slot;
        bool has_slot = slots->nodes[id].is_known && slot != QR_NIL;
        sum += has_slot ? slot : 0;
        squares += has_slot ? slot * slot : 0;
    }
    for (uint64_t slot = 0; slot < slots->num_fresh; slot++) {
        sum -= slot;
        squares -= slot * slot;
    }
    return sum == 0 && squares == 0 &&
           slots->num_free_slots + slots->num_cached + slots->num_active == slots->num_fresh;
}

int quire_slots_check(const quire_slots *slots)
{
    if (!qr_slots_is(slots))
        return QUIRE_E_ARGUMENT;
    for (uint32_t i = 0; i < QR_SLOTS_LISTS; i++)
        if (!list_is_valid(slots, i))
            return QUIRE_E_CORRUPT;
    bool is_valid = slots->num_fresh <= slots->num_slots &&
                    slots->num_fresh_nodes <= slots->num_nodes && nodes_are_valid(slots) &&
                    free_nodes_are_valid(slots) && places_are_valid(slots) &&
                    slots->policy->is_valid(slots);
    return is_valid ? QUIRE_OK : QUIRE_E_CORRUPT;
}
