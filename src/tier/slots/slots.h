/* tier/slots/slots.h - keys, slots and lists, as quire/slots.h describes them.
 *
 *      index ── key ──► node ── slot ──► a place in the tier
 *                        │ prev, next
 *      lists   [0]  oldest ─ .. ─ newest        what they mean is the policy's
 * (tier/slots/policy.h)
 *              [1]  oldest ─ .. ─ newest
 *
 * node      what is known of one key. With a slot: it is there, or being written. Without: it is
 *           remembered, as ARC and S3-FIFO do with what they evicted, or expected (LOOKAHEAD).
 * idle      READY, without users, not named in the call at hand: can be evicted. Lists count their
 *           idle nodes, so that whether enough can be evicted is known before anything is changed.
 *
 *      num_slots = slots never given out + free ones + nodes with a slot
 *      nodes with a slot = cached + in use (being written, or with users)
 */
#ifndef QR_TIER_SLOTS_SLOTS_H
#define QR_TIER_SLOTS_SLOTS_H

#include "base/memory.h"
#include "tier/slots/expect.h"
#include "tier/slots/index.h"
#include "tier/slots/policy.h"

#include "base/assert.h"
#include "base/list.h"

#include <quire/slots.h>

#include <stdatomic.h>

#define QR_SLOTS_MAGIC UINT32_C(0x51534c54)

enum { QR_SLOTS_LISTS = 4, QR_NO_LIST = QR_SLOTS_LISTS };

typedef struct qr_slots_node {
    qr_link link; /* in its list; of a free node: the next free one */
    quire_tier_key key;
    uint32_t tag;          /* of the key, to take it out of the index */
    uint32_t slot;         /* QR_NIL: none */
    uint32_t users;        /* of a READY one */
    uint32_t list : 3;     /* QR_NO_LIST: in none */
    uint32_t uses : 2;     /* S3-FIFO */
    uint32_t is_known : 1; /* else the node is free */
    uint32_t is_ready : 1;
    uint32_t is_named : 1; /* in the call at hand */
} qr_slots_node;

_Static_assert(sizeof(qr_slots_node) == 64, "a node is one cache line");

typedef struct qr_slots_list {
    qr_chain chain; /* from the oldest to the newest */
    uint32_t count;
    uint32_t num_idle;
} qr_slots_list;

struct quire_slots {
    uint32_t magic;
    const qr_policy *policy;
    uint32_t num_slots;
    uint32_t num_nodes;

    qr_slots_node *nodes;
    uint32_t free_nodes;      /* a chain of those that were used before; QR_NIL: none */
    uint64_t num_made_known;  /* since the start: a key may have a node that had none before */
    uint32_t num_fresh_nodes; /* nodes [0, num_fresh_nodes) were used at some time */
    qr_buckets index;
    qr_slots_list lists[QR_SLOTS_LISTS];

    uint32_t *node_of;    /* of each slot; where that has another slot, or none: nobody's */
    uint32_t *free_slots; /* given back, the last one is taken first */
    uint32_t num_free_slots;
    uint32_t num_fresh; /* slots [0, num_fresh) were given out at some time */

    uint32_t num_cached; /* READY, without users */
    uint32_t num_active;
    _Atomic uint64_t counts; /* active << 32 | cached, for other threads */

    quire_slots_listener listener; /* NULL: none */
    void *listener_user;

    quire_tier_key *evicted; /* of the call at hand */
    bool tells_evictions;    /* somebody listens, or evicted is given */
    uint32_t num_evicted;

    double target;    /* ARC: how large T1 should be */
    qr_expect expect; /* LOOKAHEAD */

    qr_owner owner; /* without memory: the caller's own */
};

static inline bool qr_slots_is_idle(const qr_slots_node *node)
{
    return node->is_ready && node->users == 0 && !node->is_named && node->slot != QR_NIL;
}

static inline bool qr_slots_is(const quire_slots *slots)
{
    return slots != NULL && slots->magic == QR_SLOTS_MAGIC;
}

/* The node that has a slot; QR_NIL. */
static inline uint32_t qr_slots_node_at(const quire_slots *slots, uint32_t slot)
{
    if (slot >= slots->num_fresh)
        return QR_NIL;
    uint32_t node = slots->node_of[slot];
    return slots->nodes[node].slot == slot ? node : QR_NIL;
}

/* The node of a key, with a slot or not; QR_NIL. */
uint32_t qr_slots_node_of(const quire_slots *slots, const quire_tier_key *key);
/* The same, with a new node where there is none. */
uint32_t qr_slots_know(quire_slots *slots, const quire_tier_key *key);

/* Tells the caller and the listener that the node's key is evicted. */
void qr_slots_tell_eviction(quire_slots *slots, uint32_t node);

/* The node has no slot any more; it was in no list. */
static inline void qr_slots_give_back(quire_slots *slots, uint32_t id)
{
    qr_slots_node *node = &slots->nodes[id];
    bool is_cached = node->is_ready && node->users == 0;
    slots->num_cached -= is_cached;
    slots->num_active -= !is_cached;
    slots->free_slots[slots->num_free_slots++] = node->slot;
    node->slot = QR_NIL;
    node->is_ready = false;
    node->users = 0;
}

/* The slot goes to the free ones, its key to those that were evicted. The policy has taken the node
 * out of its list, and then remembers or forgets it. */
static inline void qr_slots_vacate(quire_slots *slots, uint32_t node)
{
    if (slots->tells_evictions)
        qr_slots_tell_eviction(slots, node);
    slots->num_evicted++;
    qr_slots_give_back(slots, node);
}

/* A node without slot, in no list: its key is not known any more, unless it is expected. */
void qr_slots_forget(quire_slots *slots, uint32_t id);

/* ---- lists ----------------------------------------------------------------- */

static inline void qr_slots_list_add(quire_slots *slots, uint32_t which, uint32_t id)
{
    qr_slots_list *list = &slots->lists[which];
    qr_slots_node *node = &slots->nodes[id];
    qr_assert_internal(node->list == QR_NO_LIST);
    node->list = which & 7;
    qr_chain_insert(&list->chain, &slots->nodes->link, sizeof *node, QR_NIL, id);
    list->count++;
    list->num_idle += qr_slots_is_idle(node);
}

static inline void qr_slots_list_remove(quire_slots *slots, uint32_t id)
{
    qr_slots_node *node = &slots->nodes[id];
    qr_assert_internal(node->list < QR_SLOTS_LISTS);
    qr_slots_list *list = &slots->lists[node->list];
    qr_chain_remove(&list->chain, &slots->nodes->link, sizeof *node, id);
    list->count--;
    list->num_idle -= qr_slots_is_idle(node);
    node->list = QR_NO_LIST;
}

static inline void qr_slots_list_renew(quire_slots *slots, uint32_t id)
{
    uint32_t which = slots->nodes[id].list;
    qr_slots_list_remove(slots, id);
    qr_slots_list_add(slots, which, id);
}

/* A node without a slot stays known in a list of at most so many: the oldest there is forgotten. */
static inline void qr_slots_remember(quire_slots *slots, uint32_t which, uint32_t most, uint32_t id)
{
    qr_slots_list_add(slots, which, id);
    if (slots->lists[which].count <= most)
        return;
    uint32_t oldest = slots->lists[which].chain.first;
    qr_slots_list_remove(slots, oldest);
    qr_slots_forget(slots, oldest);
}

/* From a node on, the first that can be evicted. There is one. What the one behind it needs when it
 * goes is asked for already. */
static inline uint32_t qr_slots_next_idle(const quire_slots *slots, uint32_t id)
{
    while (!qr_slots_is_idle(&slots->nodes[id]))
        id = slots->nodes[id].link.next;
    uint32_t next = slots->nodes[id].link.next;
    if (next != QR_NIL)
        qr_prefetch_write(qr_slots_index_home(&slots->index, slots->nodes[next].tag));
    return id;
}

/* The n oldest of a list that can be evicted go, and are not remembered. There are so many. */
static inline void qr_slots_evict_oldest(quire_slots *slots, uint32_t which, uint32_t n)
{
    uint32_t at = slots->lists[which].chain.first;
    for (; n > 0; n--) {
        uint32_t node = qr_slots_next_idle(slots, at);
        at = slots->nodes[node].link.next;
        qr_slots_list_remove(slots, node);
        qr_slots_vacate(slots, node);
        qr_slots_forget(slots, node);
    }
}

#endif
