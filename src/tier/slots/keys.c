#include "tier/slots/keys.h"

#include "tier/core/key.h"

static uint32_t find_node(const quire_slots *slots, uint32_t tag, const quire_tier_key *key)
{
    qr_buckets_search search = qr_buckets_search_begin(&slots->index, tag);
    uint32_t node;
    do
        node = qr_slots_search_next(&search);
    while (node != QR_NIL && QR_UNLIKELY(!qr_key_is_equal(&slots->nodes[node].key, key)));
    return node;
}

uint32_t qr_slots_node_of(const quire_slots *slots, const quire_tier_key *key)
{
    return find_node(slots, qr_slots_index_tag(&slots->index, key), key);
}

static uint32_t take_node(quire_slots *slots)
{
    uint32_t node = slots->free_nodes;
    if (node == QR_NIL) {
        qr_assert(slots->num_fresh_nodes < slots->num_nodes);
        return slots->num_fresh_nodes++;
    }
    slots->free_nodes = slots->nodes[node].link.next;
    return node;
}

uint32_t qr_slots_know_tag(quire_slots *slots, uint32_t tag, const quire_tier_key *key)
{
    uint32_t node = find_node(slots, tag, key);
    if (node != QR_NIL)
        return node;
    node = take_node(slots);
    slots->nodes[node] = (qr_slots_node){
        .key = *key, .tag = tag, .slot = QR_NIL, .list = QR_NO_LIST, .is_known = true};
    qr_slots_index_insert(&slots->index, tag, node);
    slots->num_made_known++;
    return node;
}

uint32_t qr_slots_know(quire_slots *slots, const quire_tier_key *key)
{
    return qr_slots_know_tag(slots, qr_slots_index_tag(&slots->index, key), key);
}

void qr_slots_forget(quire_slots *slots, uint32_t id)
{
    qr_slots_node *node = &slots->nodes[id];
    qr_assert(node->slot == QR_NIL && node->list == QR_NO_LIST);
    if (qr_expect_has(&slots->expect, id))
        return;
    qr_slots_index_remove(&slots->index, node->tag, id);
    node->is_known = false;
    node->link.next = slots->free_nodes;
    slots->free_nodes = id;
}

/* The first node that may have a tag. */
static inline uint32_t find_first(const qr_buckets *index, uint32_t tag)
{
    const qr_bucket *home = qr_slots_index_home(index, tag);
    uint32_t id = qr_bucket_first_id(home, index->id_mask, tag);
    if (QR_UNLIKELY(id == 0 && qr_bucket_has_passed(home, tag))) {
        qr_buckets_search search = qr_buckets_search_begin(index, tag);
        id = qr_buckets_search_next(&search);
    }
    return id - 1;
}

/* Tags first, then where they lead: by then the lines of the index have come. Most keys are at
 * their home, so that is where their node is taken from. */
static void prepare_chunk(const quire_slots *slots, qr_key_walk *walk)
{
    const qr_buckets *index = &slots->index;
    const quire_tier_key *keys = walk->keys + (size_t)walk->chunk * QR_KEYS_AHEAD;
    uint32_t left = walk->n - walk->chunk * QR_KEYS_AHEAD;
    uint32_t count = left < QR_KEYS_AHEAD ? left : QR_KEYS_AHEAD;
    for (uint32_t i = 0; i < count; i++) {
        walk->tags[i] = qr_slots_index_tag(index, &keys[i]);
        qr_prefetch(qr_slots_index_home(index, walk->tags[i]));
    }
    for (uint32_t i = 0; i < count; i++) {
        walk->nodes[i] = find_first(index, walk->tags[i]);
        if (walk->nodes[i] != QR_NIL)
            qr_prefetch_write(&slots->nodes[walk->nodes[i]]);
    }
    walk->num_made_known = slots->num_made_known;
}

uint32_t qr_key_walk_tag(const quire_slots *slots, qr_key_walk *walk, uint32_t i)
{
    if (walk->chunk != i / QR_KEYS_AHEAD) {
        walk->chunk = i / QR_KEYS_AHEAD;
        prepare_chunk(slots, walk);
    }
    return walk->tags[i % QR_KEYS_AHEAD];
}

uint32_t qr_key_walk_node(const quire_slots *slots, qr_key_walk *walk, uint32_t i)
{
    uint32_t tag = qr_key_walk_tag(slots, walk, i);
    uint32_t node = walk->nodes[i % QR_KEYS_AHEAD];
    if (node == QR_NIL && walk->num_made_known == slots->num_made_known)
        return QR_NIL;
    if (node != QR_NIL && slots->nodes[node].is_known &&
        QR_LIKELY(qr_key_is_equal(&slots->nodes[node].key, &walk->keys[i])))
        return node;
    return find_node(slots, tag, &walk->keys[i]);
}

/* ---- telling ---------------------------------------------------------------- */

void quire_slots_set_listener(quire_slots *slots, quire_slots_listener listener, void *user)
{
    if (!qr_slots_is(slots))
        return;
    slots->listener = listener;
    slots->listener_user = user;
}

const quire_tier_key *quire_slots_key_at(const quire_slots *slots, uint32_t slot)
{
    if (!qr_slots_is(slots))
        return NULL;
    uint32_t node = qr_slots_node_at(slots, slot);
    return node != QR_NIL && slots->nodes[node].is_ready ? &slots->nodes[node].key : NULL;
}
