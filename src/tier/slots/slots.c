#include "tier/slots/slots.h"

#include "base/hooks.h"
#include "tier/slots/keys.h"

#include "base/config.h"
#include "base/refuse.h"

/* ---- making ---------------------------------------------------------------- */

static const qr_policy *const policies[] = {
    [QUIRE_SLOTS_LRU] = &qr_policy_lru,
    [QUIRE_SLOTS_ARC] = &qr_policy_arc,
    [QUIRE_SLOTS_S3FIFO] = &qr_policy_s3fifo,
    [QUIRE_SLOTS_LOOKAHEAD] = &qr_policy_lookahead,
};

static int read_slots_config(quire_slots_config *ours, const quire_slots_config *callers)
{
    int err = qr_refuse_reading(ours, sizeof *ours, callers, "quire_slots_config");
    if (err != QUIRE_OK)
        return err;
    const qr_field fields[] = {
        {"policy", (uint32_t)ours->policy, 0, QUIRE_SLOTS_LOOKAHEAD},
        QR_FIELD(ours, num_slots, 1, QUIRE_SLOTS_MAX),
        QR_FIELD(ours, max_expected, 0, QUIRE_SLOTS_MAX),
    };
    err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    if (err != QUIRE_OK)
        return err;
    if (ours->max_expected == 0)
        ours->max_expected = ours->num_slots;
    return QUIRE_OK;
}

/* All parts; the pointers are of use only where memory is given. */
static quire_slots *carve_slots(qr_arena *arena, const quire_slots_config *config,
                                quire_slots *parts)
{
    const qr_policy *policy = policies[config->policy];
    uint64_t more = policy->num_more_nodes != NULL ? policy->num_more_nodes(config) : 0;
    memset(parts, 0, sizeof *parts);
    quire_slots *slots = qr_arena_take(arena, 1, sizeof *slots);
    parts->policy = policy;
    parts->num_slots = config->num_slots;
    parts->num_nodes = (uint32_t)(config->num_slots + more);
    parts->nodes = qr_arena_take(arena, parts->num_nodes, sizeof *parts->nodes);
    qr_buckets_carve(&parts->index, arena, parts->num_nodes);
    parts->free_slots = qr_arena_take(arena, config->num_slots, sizeof *parts->free_slots);
    parts->node_of = qr_arena_take(arena, config->num_slots, sizeof *parts->node_of);
    if (policy->carve != NULL)
        policy->carve(parts, config, arena);
    return slots;
}

static void init_slots(quire_slots *slots, const uint64_t secret[2])
{
    slots->magic = QR_SLOTS_MAGIC;
    qr_buckets_init(&slots->index, slots->num_nodes, secret);
    slots->free_nodes = QR_NIL;
    for (uint32_t i = 0; i < QR_SLOTS_LISTS; i++)
        slots->lists[i] = (qr_slots_list){.chain = QR_CHAIN_EMPTY};
    if (slots->policy->init != NULL)
        slots->policy->init(slots);
}

/* In memory that is zero; what is not used yet is not touched here. */
int quire_slots_create(const quire_slots_config *config, const quire_allocator *allocator,
                       quire_slots **slots)
{
    quire_slots_config c;
    quire_slots parts;
    qr_owner owner;
    qr_arena arena;
    qr_arena plan = qr_arena_plan();
    uint64_t secret[2];
    if (slots == NULL)
        return QUIRE_E_ARGUMENT;
    int err = read_slots_config(&c, config);
    if (err != QUIRE_OK)
        return err;
    (void)carve_slots(&plan, &c, &parts);
    err = qr_owner_begin_zeroed(&owner, allocator, &plan, &arena);
    if (err != QUIRE_OK)
        return err;
    if (qr_random_bytes(&c.hooks, secret, sizeof secret) != 0) {
        qr_owner_release(&owner);
        return QUIRE_E_RANDOM;
    }
    quire_slots *made = carve_slots(&arena, &c, &parts);
    memcpy(made, &parts, sizeof *made);
    init_slots(made, secret);
    made->owner = owner;
    *slots = made;
    return QUIRE_OK;
}

void quire_slots_destroy(quire_slots *slots)
{
    if (!qr_slots_is(slots))
        return;
    slots->magic = 0;
    qr_owner_release(&slots->owner);
}

/* ---- nodes ----------------------------------------------------------------- */

/* A key's node if it has a slot; QR_NIL. */
static inline uint32_t if_present(const quire_slots *slots, uint32_t node)
{
    return node != QR_NIL && slots->nodes[node].slot != QR_NIL ? node : QR_NIL;
}

/* What decides whether it can be evicted is changed here alone. */
static void set_node(quire_slots *slots, uint32_t id, uint32_t users, bool is_ready, bool is_named)
{
    qr_slots_node *node = &slots->nodes[id];
    bool was_idle = qr_slots_is_idle(node);
    bool was_cached = node->is_ready && node->users == 0;
    node->users = users;
    node->is_ready = is_ready;
    node->is_named = is_named;
    bool is_cached = is_ready && users == 0;
    if (was_cached != is_cached) {
        slots->num_cached += is_cached ? 1U : UINT32_MAX;
        slots->num_active += is_cached ? UINT32_MAX : 1U;
    }
    if (was_idle == qr_slots_is_idle(node))
        return;
    slots->lists[node->list].num_idle += was_idle ? UINT32_MAX : 1U;
    if (slots->policy->idle_changed != NULL)
        slots->policy->idle_changed(slots, id);
}

static void publish_counts(quire_slots *slots)
{
    atomic_store_explicit(&slots->counts, (uint64_t)slots->num_active << 32 | slots->num_cached,
                          memory_order_relaxed);
}

/* ---- slots ----------------------------------------------------------------- */

static uint32_t num_free(const quire_slots *slots)
{
    return slots->num_free_slots + slots->num_slots - slots->num_fresh;
}

/* Those that were never used first, then the one that was given back last: vLLM's order. */
static uint32_t take_slot(quire_slots *slots)
{
    if (slots->num_fresh < slots->num_slots)
        return slots->num_fresh++;
    qr_assert(slots->num_free_slots > 0);
    return slots->free_slots[--slots->num_free_slots];
}

static void give_slot(quire_slots *slots, uint32_t node, uint32_t slot)
{
    slots->nodes[node].slot = slot;
    slots->node_of[slot] = node;
    slots->num_active++;
}

static QR_NOINLINE void tell_listener(const quire_slots *slots, uint32_t id, uint32_t is_there)
{
    const qr_slots_node *node = &slots->nodes[id];
    if (slots->listener != NULL && node->is_ready)
        slots->listener(slots->listener_user, node->slot, &node->key, is_there);
}

void qr_slots_tell_eviction(quire_slots *slots, uint32_t node)
{
    if (slots->evicted != NULL)
        slots->evicted[slots->num_evicted] = slots->nodes[node].key;
    tell_listener(slots, node, 0);
}

/* ---- looking --------------------------------------------------------------- */

/* Over the keys of a call; false: they are none, or these are no slots. */
static inline bool begin_walk(const quire_slots *slots, qr_key_walk *walk,
                              const quire_tier_key *keys, uint32_t n)
{
    walk->keys = keys; /* what is in it besides is written before it is read */
    walk->n = n;
    walk->chunk = QR_NIL;
    return qr_slots_is(slots) && (n == 0 || keys != NULL);
}

uint32_t quire_slots_lookup(const quire_slots *slots, const quire_tier_key *keys, uint32_t n)
{
    qr_key_walk walk;
    if (!begin_walk(slots, &walk, keys, n))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = qr_key_walk_node(slots, &walk, i);
        if (node == QR_NIL || !slots->nodes[node].is_ready)
            return i;
    }
    return n;
}

void quire_slots_lookup_each(const quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                             uint8_t *found)
{
    qr_key_walk walk;
    if (!begin_walk(slots, &walk, keys, n) || found == NULL)
        return;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = qr_key_walk_node(slots, &walk, i);
        found[i] = node != QR_NIL && slots->nodes[node].is_ready;
    }
}

int quire_slots_find(const quire_slots *slots, const quire_tier_key *key, uint32_t *slot,
                     uint32_t *is_ready)
{
    if (!qr_slots_is(slots) || key == NULL || slot == NULL)
        return QUIRE_E_ARGUMENT;
    uint32_t node = if_present(slots, qr_slots_node_of(slots, key));
    if (node == QR_NIL)
        return QUIRE_MISS;
    *slot = slots->nodes[node].slot;
    if (is_ready != NULL)
        *is_ready = slots->nodes[node].is_ready;
    return QUIRE_OK;
}

void quire_slots_touch(quire_slots *slots, const quire_tier_key *keys, uint32_t n)
{
    qr_key_walk walk;
    if (!begin_walk(slots, &walk, keys, n))
        return;
    for (uint32_t i = n; i-- > 0;) { /* the end of a prompt is older than its beginning */
        uint32_t node = qr_key_walk_node(slots, &walk, i);
        if (node != QR_NIL)
            slots->policy->touch(slots, node);
    }
}

quire_usage quire_slots_usage(const quire_slots *slots)
{
    quire_usage usage = {0, 0, 0, 0, 0};
    if (!qr_slots_is(slots))
        return usage;
    uint64_t counts = atomic_load_explicit(&slots->counts, memory_order_relaxed);
    usage.total = slots->num_slots;
    usage.cached = counts & UINT32_MAX;
    usage.active = counts >> 32;
    usage.empty = usage.total - usage.cached - usage.active;
    return usage;
}

/* ---- loading --------------------------------------------------------------- */

/* One user more or less; QUIRE_OK, or why not. */
static int add_user(quire_slots *slots, uint32_t node)
{
    if (node == QR_NIL || !slots->nodes[node].is_ready)
        return QUIRE_MISS;
    if (slots->nodes[node].users == UINT32_MAX)
        return QUIRE_E_OVERFLOW;
    set_node(slots, node, slots->nodes[node].users + 1, true, false);
    return QUIRE_OK;
}

static int drop_user(quire_slots *slots, uint32_t node)
{
    if (node == QR_NIL || slots->nodes[node].slot == QR_NIL)
        return QUIRE_MISS;
    if (slots->nodes[node].users == 0)
        return QUIRE_E_DOUBLE_FREE;
    set_node(slots, node, slots->nodes[node].users - 1, true, false);
    return QUIRE_OK;
}

int quire_slots_prepare_load(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                             uint32_t *slot_ids)
{
    qr_key_walk walk;
    if (!begin_walk(slots, &walk, keys, n) || (n > 0 && slot_ids == NULL))
        return QUIRE_E_ARGUMENT;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = qr_key_walk_node(slots, &walk, i);
        int status = add_user(slots, node);
        if (status != QUIRE_OK) {
            while (i-- > 0)
                (void)drop_user(slots, qr_key_walk_node(slots, &walk, i));
            return status;
        }
        slot_ids[i] = slots->nodes[node].slot;
    }
    publish_counts(slots);
    return QUIRE_OK;
}

int quire_slots_end_load(quire_slots *slots, const uint32_t *slot_ids, uint32_t n)
{
    if (!qr_slots_is(slots) || (n > 0 && slot_ids == NULL))
        return QUIRE_E_ARGUMENT;
    for (uint32_t i = 0; i < n; i++) {
        int status = drop_user(slots, qr_slots_node_at(slots, slot_ids[i]));
        if (status != QUIRE_OK) {
            while (i-- > 0)
                (void)add_user(slots, qr_slots_node_at(slots, slot_ids[i]));
            return status;
        }
    }
    publish_counts(slots);
    return QUIRE_OK;
}

int quire_slots_complete_load(quire_slots *slots, const quire_tier_key *keys, uint32_t n)
{
    qr_key_walk walk;
    if (!begin_walk(slots, &walk, keys, n))
        return QUIRE_E_ARGUMENT;
    for (uint32_t i = 0; i < n; i++) {
        int status = drop_user(slots, qr_key_walk_node(slots, &walk, i));
        if (status != QUIRE_OK) {
            while (i-- > 0)
                (void)add_user(slots, qr_key_walk_node(slots, &walk, i));
            return status;
        }
    }
    publish_counts(slots);
    return QUIRE_OK;
}

/* ---- storing --------------------------------------------------------------- */

/* Those that are there already must stay: they cannot be evicted until the names are taken off. */
static uint32_t name_present(quire_slots *slots, qr_key_walk *walk, uint32_t *slot_ids,
                             uint8_t *is_new)
{
    uint32_t num_missing = 0;
    for (uint32_t i = 0; i < walk->n; i++) {
        uint32_t node = if_present(slots, qr_key_walk_node(slots, walk, i));
        is_new[i] = node == QR_NIL;
        num_missing += is_new[i];
        if (node == QR_NIL)
            continue;
        slot_ids[i] = slots->nodes[node].slot;
        set_node(slots, node, slots->nodes[node].users, slots->nodes[node].is_ready, true);
    }
    return num_missing;
}

static void unname_all(quire_slots *slots, qr_key_walk *walk)
{
    for (uint32_t i = 0; i < walk->n; i++) {
        uint32_t node = if_present(slots, qr_key_walk_node(slots, walk, i));
        if (node != QR_NIL)
            set_node(slots, node, slots->nodes[node].users, slots->nodes[node].is_ready, false);
    }
}

static void give_slots(quire_slots *slots, qr_key_walk *walk, uint32_t *slot_ids, uint8_t *is_new)
{
    bool is_deepest_first = slots->policy->is_deepest_first;
    for (uint32_t i = 0; i < walk->n; i++) {
        if (!is_new[i])
            continue;
        uint32_t tag = qr_key_walk_tag(slots, walk, i);
        uint32_t node = qr_slots_know_tag(slots, tag, &walk->keys[i]);
        is_new[i] = slots->nodes[node].slot == QR_NIL; /* else it was named before */
        if (is_new[i]) {
            give_slot(slots, node, take_slot(slots));
            if (!is_deepest_first)
                slots->policy->insert(slots, node);
        }
        slot_ids[i] = slots->nodes[node].slot;
    }
    for (uint32_t i = is_deepest_first ? walk->n : 0; i-- > 0;)
        if (is_new[i])
            slots->policy->insert(slots, slots->node_of[slot_ids[i]]);
}

/* Room for those that have no slot: others are evicted, but none that the call names. False: there
 * is not enough. */
static bool make_room(quire_slots *slots, qr_key_walk *walk, uint32_t *slot_ids, uint8_t *is_new)
{
    uint32_t num_missing = name_present(slots, walk, slot_ids, is_new);
    uint32_t num_to_evict = num_missing > num_free(slots) ? num_missing - num_free(slots) : 0;
    bool can = num_to_evict == 0 || slots->policy->can_evict(slots, num_to_evict);
    if (can && num_to_evict > 0)
        slots->policy->evict(slots, num_to_evict);
    if (num_missing < walk->n)
        unname_all(slots, walk);
    return can;
}

int quire_slots_prepare_store(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                              uint32_t *slot_ids, uint8_t *is_new, quire_tier_key *evicted,
                              uint32_t *num_evicted)
{
    qr_key_walk walk;
    if (!begin_walk(slots, &walk, keys, n) || (n > 0 && (slot_ids == NULL || is_new == NULL)))
        return QUIRE_E_ARGUMENT;
    slots->evicted = evicted;
    slots->tells_evictions = evicted != NULL || slots->listener != NULL;
    slots->num_evicted = 0;
    if (n > num_free(slots)) {
        if (!make_room(slots, &walk, slot_ids, is_new))
            return QUIRE_NO_SPACE;
    } else if (n > 0) {
        memset(is_new, 1, n); /* as far as anybody knows: nobody has to go for them */
    }
    if (num_evicted != NULL)
        *num_evicted = slots->num_evicted;
    give_slots(slots, &walk, slot_ids, is_new);
    publish_counts(slots);
    return QUIRE_OK;
}

/* The key is not there any more, and nobody remembers that it was. */
static void drop_node(quire_slots *slots, uint32_t node)
{
    slots->policy->remove(slots, node);
    tell_listener(slots, node, 0);
    qr_slots_give_back(slots, node);
    qr_slots_forget(slots, node);
}

/* What was being written is there, or is not; others are passed over. */
static inline void end_writing(quire_slots *slots, uint32_t node, bool is_good, bool has_listener)
{
    if (node == QR_NIL || slots->nodes[node].is_ready)
        return;
    if (!is_good) {
        drop_node(slots, node);
        return;
    }
    set_node(slots, node, 0, true, false);
    if (has_listener)
        tell_listener(slots, node, 1);
}

int quire_slots_end_store(quire_slots *slots, const uint32_t *slot_ids, uint32_t n,
                          uint32_t is_good)
{
    if (!qr_slots_is(slots) || (n > 0 && slot_ids == NULL))
        return QUIRE_E_ARGUMENT;
    bool has_listener = slots->listener != NULL;
    for (uint32_t i = 0; i < n; i++)
        end_writing(slots, qr_slots_node_at(slots, slot_ids[i]), is_good != 0, has_listener);
    publish_counts(slots);
    return QUIRE_OK;
}

int quire_slots_complete_store(quire_slots *slots, const quire_tier_key *keys, uint32_t n,
                               uint32_t is_good)
{
    qr_key_walk walk;
    if (!begin_walk(slots, &walk, keys, n))
        return QUIRE_E_ARGUMENT;
    bool has_listener = slots->listener != NULL;
    for (uint32_t i = 0; i < n; i++)
        end_writing(slots, if_present(slots, qr_key_walk_node(slots, &walk, i)), is_good != 0,
                    has_listener);
    publish_counts(slots);
    return QUIRE_OK;
}

int quire_slots_remove(quire_slots *slots, const quire_tier_key *key)
{
    if (!qr_slots_is(slots) || key == NULL)
        return QUIRE_E_ARGUMENT;
    uint32_t node = if_present(slots, qr_slots_node_of(slots, key));
    if (node == QR_NIL)
        return QUIRE_MISS;
    if (!qr_slots_is_idle(&slots->nodes[node]))
        return QUIRE_BUSY;
    drop_node(slots, node);
    publish_counts(slots);
    return QUIRE_OK;
}

uint32_t quire_slots_reset(quire_slots *slots)
{
    if (!qr_slots_is(slots))
        return 0;
    for (uint32_t list = 0; list < QR_SLOTS_LISTS; list++) {
        uint32_t next;
        for (uint32_t node = slots->lists[list].chain.first; node != QR_NIL; node = next) {
            next = slots->nodes[node].link.next;
            if (qr_slots_is_idle(&slots->nodes[node])) {
                drop_node(slots, node);
            } else if (slots->nodes[node].slot == QR_NIL) {
                qr_slots_list_remove(slots, node);
                qr_slots_forget(slots, node);
            }
        }
    }
    slots->target = 0;
    publish_counts(slots);
    return slots->num_active;
}
