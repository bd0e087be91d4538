/* tier/slots/policy_lookahead.c - LRU, but what waiting requests need goes last.
 *
 *      lists[0]  nobody waits for them     oldest ─ .. ─ newest       these go first
 *      lists[1]  expected                  the one that is needed last on top of a heap
 *
 * The scheduler knows its queue, so the next use of many blocks is no guess. Those that no waiting
 * request needs have the furthest next use, if any; among the others it is known. Of one request's
 * blocks the deepest go first: without the earlier ones they are of no use. What is no longer
 * expected was just used, or its request was aborted: it becomes the newest of those that nobody
 * waits for.
 */
#include "tier/slots/slots.h"

enum { UNEXPECTED, EXPECTED };

static uint64_t ahead_num_more_nodes(const quire_slots_config *config)
{
    return config->max_expected;
}

static void ahead_carve(quire_slots *slots, const quire_slots_config *config, qr_arena *arena)
{
    qr_expect_carve(&slots->expect, slots->num_slots, slots->num_nodes, config->max_expected,
                    arena);
}

static void ahead_init(quire_slots *slots)
{
    qr_expect_init(&slots->expect, slots->num_nodes, slots->index.secret);
}

static void ahead_insert(quire_slots *slots, uint32_t node)
{
    qr_slots_list_add(slots, qr_expect_has(&slots->expect, node) ? EXPECTED : UNEXPECTED, node);
}

static void ahead_touch(quire_slots *slots, uint32_t node)
{
    if (slots->nodes[node].list == UNEXPECTED)
        qr_slots_list_renew(slots, node);
}

static bool ahead_can_evict(const quire_slots *slots, uint32_t n)
{
    uint64_t num_idle = (uint64_t)slots->lists[UNEXPECTED].num_idle;
    return num_idle + slots->lists[EXPECTED].num_idle >= n;
}

static void ahead_remove(quire_slots *slots, uint32_t node)
{
    qr_slots_list_remove(slots, node);
    if (slots->expect.nodes[node].heap_at != QR_NIL)
        qr_expect_heap_remove(&slots->expect, node);
}

static void ahead_evict(quire_slots *slots, uint32_t n)
{
    uint32_t num_idle = slots->lists[UNEXPECTED].num_idle;
    uint32_t unexpected = n < num_idle ? n : num_idle;
    qr_slots_evict_oldest(slots, UNEXPECTED, unexpected);
    n -= unexpected;
    for (; n > 0; n--) {
        uint32_t node = qr_expect_top(&slots->expect);
        ahead_remove(slots, node);
        qr_slots_vacate(slots, node);
    }
}

static void ahead_idle_changed(quire_slots *slots, uint32_t node)
{
    if (slots->nodes[node].list != EXPECTED)
        return;
    if (qr_slots_is_idle(&slots->nodes[node]))
        qr_expect_heap_add(&slots->expect, node);
    else
        qr_expect_heap_remove(&slots->expect, node);
}

static bool ahead_is_valid(const quire_slots *slots)
{
    for (uint32_t i = 0; i < slots->num_nodes; i++) {
        const qr_slots_node *node = &slots->nodes[i];
        bool is_expected = qr_expect_has(&slots->expect, i);
        bool in_heap = slots->expect.nodes[i].heap_at != QR_NIL;
        bool has_slot = node->is_known && node->slot != QR_NIL;
        if (has_slot && node->list != (is_expected ? EXPECTED : UNEXPECTED))
            return false;
        if (in_heap != (has_slot && is_expected && qr_slots_is_idle(node)))
            return false;
        if (!has_slot && node->is_known != is_expected)
            return false;
    }
    return qr_expect_is_valid(&slots->expect, slots->num_nodes);
}

const qr_policy qr_policy_lookahead = {
    .is_deepest_first = true,
    .num_more_nodes = ahead_num_more_nodes,
    .carve = ahead_carve,
    .init = ahead_init,
    .insert = ahead_insert,
    .touch = ahead_touch,
    .can_evict = ahead_can_evict,
    .evict = ahead_evict,
    .remove = ahead_remove,
    .idle_changed = ahead_idle_changed,
    .is_valid = ahead_is_valid,
};

/* ---- expecting ------------------------------------------------------------- */

/* A request waits for this key from now on, maybe sooner than others do. */
static void now_expected(quire_slots *slots, uint32_t id)
{
    const qr_slots_node *node = &slots->nodes[id];
    if (node->slot == QR_NIL)
        return;
    if (node->list == UNEXPECTED) {
        qr_slots_list_remove(slots, id);
        qr_slots_list_add(slots, EXPECTED, id);
        if (qr_slots_is_idle(node))
            qr_expect_heap_add(&slots->expect, id);
    } else if (slots->expect.nodes[id].heap_at != QR_NIL) {
        qr_expect_heap_move(&slots->expect, id);
    }
}

/* A request does not wait for this key any more; others may. */
static void less_expected(quire_slots *slots, uint32_t id)
{
    bool has_slot = slots->nodes[id].slot != QR_NIL;
    if (qr_expect_has(&slots->expect, id)) {
        if (slots->expect.nodes[id].heap_at != QR_NIL)
            qr_expect_heap_move(&slots->expect, id);
    } else if (has_slot) {
        ahead_remove(slots, id);
        qr_slots_list_add(slots, UNEXPECTED, id);
    } else {
        qr_slots_forget(slots, id);
    }
}

void qr_slots_unexpect(quire_slots *slots, uint64_t request)
{
    qr_expect *expect = &slots->expect;
    uint32_t entry = qr_expect_find(expect, request);
    if (entry == QR_NIL)
        return;
    while (expect->requests[entry].last != QR_NIL)
        less_expected(slots, qr_expect_drop_last(expect, entry));
    qr_expect_close(expect, entry);
}

int qr_slots_expect(quire_slots *slots, uint64_t request, uint64_t order,
                    const quire_tier_key *keys, uint32_t n)
{
    qr_expect *expect = &slots->expect;
    uint32_t room = expect->max_expected - expect->num_records;
    uint32_t taken = n < room ? n : room;
    if (taken > 0) {
        uint32_t entry = qr_expect_open(expect, request, order);
        for (uint32_t i = 0; i < taken; i++) {
            uint32_t node = qr_slots_know(slots, &keys[i]);
            qr_expect_add(expect, entry, node, i);
            now_expected(slots, node);
        }
    }
    return taken == n ? QUIRE_OK : QUIRE_FULL;
}

int quire_slots_expect(quire_slots *slots, uint64_t request, uint64_t order,
                       const quire_tier_key *keys, uint32_t n)
{
    if (!qr_slots_is(slots) || (n > 0 && keys == NULL))
        return QUIRE_E_ARGUMENT;
    if (slots->policy != &qr_policy_lookahead)
        return QUIRE_E_DISABLED;
    qr_slots_unexpect(slots, request);
    return qr_slots_expect(slots, request, order, keys, n);
}
