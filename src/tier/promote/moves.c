#include "tier/promote/parts.h"

#include "base/assert.h"
#include "tier/core/key.h"

void qr_promote_moves_init(qr_promote *promote)
{
    for (uint32_t i = 0; i < promote->num_moves; i++) {
        promote->moves[i] = (qr_move){.link.next = i + 1 < promote->num_moves ? i + 1 : QR_NIL};
        promote->moves[i].queue = QR_QUEUE_NONE;
    }
    promote->free_move = 0;
    for (uint32_t i = 0; i < promote->num_waiters; i++)
        promote->waiters[i].next = i + 1 < promote->num_waiters ? i + 1 : QR_NIL;
    promote->free_waiter = 0;
}

uint32_t qr_promote_move_find(const qr_promote *promote, const quire_tier_key *key)
{
    if (promote->num_loads == 0)
        return QR_NIL;
    return qr_promote_move_find_tag(promote, qr_slots_index_tag(&promote->index, key), key);
}

uint32_t qr_promote_move_find_tag(const qr_promote *promote, uint32_t tag,
                                  const quire_tier_key *key)
{
    qr_buckets_search search = qr_buckets_search_begin(&promote->index, tag);
    uint32_t move;
    do
        move = qr_slots_search_next(&search);
    while (move != QR_NIL && !qr_key_is_equal(&promote->moves[move].key, key));
    return move;
}

/* There are as many as all limits together. */
static uint32_t take_move(qr_promote *promote, const quire_tier_key *key, bool is_store,
                          uint32_t tier)
{
    uint32_t move = promote->free_move;
    qr_move *m = &promote->moves[move];
    promote->free_move = m->link.next;
    m->key = *key;
    m->first_waiter = QR_NIL;
    m->block = QUIRE_NULL_BLOCK;
    m->tier = (uint8_t)tier;
    m->asked = 0;
    m->queue = QR_QUEUE_NONE;
    m->is_store = is_store;
    m->is_used = true;
    return move;
}

uint32_t qr_promote_move_new_store(qr_promote *promote, const quire_tier_key *key, uint32_t tier)
{
    if (promote->tiers[tier].num_queued >= promote->max_stores)
        return QR_NIL;
    promote->tiers[tier].num_queued++;
    return take_move(promote, key, true, tier);
}

uint32_t qr_promote_move_new_load(qr_promote *promote, const quire_tier_key *key, uint32_t tag,
                                  uint32_t tier)
{
    if (promote->num_loads >= promote->max_loads)
        return QR_NIL;
    promote->num_loads++;
    uint32_t move = take_move(promote, key, false, tier);
    promote->moves[move].tag = tag;
    qr_slots_index_insert(&promote->index, tag, move);
    return move;
}

bool qr_promote_move_await(qr_promote *promote, uint32_t move, uint32_t record, uint32_t start)
{
    uint32_t waiter = promote->free_waiter;
    if (waiter == QR_NIL)
        return false;
    qr_waiter *w = &promote->waiters[waiter];
    promote->free_waiter = w->next;
    *w = (qr_waiter){.record = record,
                     .epoch = promote->records[record].epoch,
                     .start = start,
                     .next = promote->moves[move].first_waiter};
    promote->moves[move].first_waiter = waiter;
    promote->records[record].pending++;
    return true;
}

/* The record of the first waiter that still needs it; NULL: none does. */
static qr_record *first_record(const qr_promote *promote, const qr_move *m)
{
    for (uint32_t i = m->first_waiter; i != QR_NIL; i = promote->waiters[i].next) {
        const qr_waiter *w = &promote->waiters[i];
        qr_record *r = &promote->records[w->record];
        if (r->epoch == w->epoch && w->start < r->limit)
            return r;
    }
    return NULL;
}

bool qr_promote_move_is_wanted(const qr_promote *promote, uint32_t move)
{
    return first_record(promote, &promote->moves[move]) != NULL;
}

static void tell_waiters(qr_promote *promote, qr_move *m, bool has_failed)
{
    while (m->first_waiter != QR_NIL) {
        uint32_t waiter = m->first_waiter;
        qr_waiter *w = &promote->waiters[waiter];
        qr_record *r = &promote->records[w->record];
        if (r->epoch == w->epoch) {
            qr_assert_internal(r->pending > 0);
            r->pending--;
            if (has_failed && w->start < r->limit)
                r->limit = w->start;
        }
        m->first_waiter = w->next;
        w->next = promote->free_waiter;
        promote->free_waiter = waiter;
    }
}

void qr_promote_move_end(qr_promote *promote, uint32_t move, bool has_failed)
{
    qr_move *m = &promote->moves[move];
    qr_assert_internal(m->is_used);
    if (m->queue != QR_QUEUE_NONE)
        qr_promote_queue_remove(promote, move);
    tell_waiters(promote, m, has_failed);
    if (m->is_store && has_failed) /* it may be offered again */
        promote->blocks[m->block].offered &= (uint8_t) ~(1u << m->tier);
    if (m->is_store) {
        promote->tiers[m->tier].num_queued--;
    } else {
        qr_slots_index_remove(&promote->index, m->tag, move);
        promote->num_loads--;
    }
    m->is_used = false;
    m->link.next = promote->free_move;
    promote->free_move = move;
}

/* ---- from tier to tier ----------------------------------------------------- */

/* The record begins to wait for one more tier, unless that is slower than computing. */
static bool await_tier(qr_promote *promote, qr_record *r, uint32_t t)
{
    const qr_promote_tier *tier = &promote->tiers[t];
    uint8_t bit = (uint8_t)(1u << t);
    if (((r->tiers | r->skipped_tiers) & bit) != 0)
        return (r->tiers & bit) != 0;
    double tokens = promote->groups[promote->count_group].block_size;
    uint32_t before =
        tier->queues[QR_QUEUE_LOAD].count + tier->queues[QR_QUEUE_FIND].count + tier->loads_on_time;
    double bytes = (double)(before + r->pending) * (double)promote->block_bytes;
    if (r->is_urgent && !qr_costs_try(&promote->costs, t, bytes, (double)r->pending * tokens)) {
        qr_count_add(&promote->tiers[t].counters.skipped_tokens,
                     (uint64_t)((double)r->pending * tokens));
        r->skipped_tiers |= bit;
        return false;
    }
    r->tiers |= bit;
    r->bytes = bytes;
    if (r->until_ns < r->asked_ns + tier->wait_ns)
        r->until_ns = r->asked_ns + tier->wait_ns;
    return true;
}

/* Into the queue of the next tier; false: no other tier may have it, or nobody needs it. */
static bool pass_on(qr_promote *promote, uint32_t move)
{
    qr_move *m = &promote->moves[move];
    qr_record *r = first_record(promote, m);
    for (uint32_t i = 1; r != NULL && i < promote->num_tiers; i++) {
        uint32_t t = (m->tier + i) % promote->num_tiers;
        uint8_t found = 0;
        if ((m->asked >> t & 1) != 0 || !qr_promote_is_usable(&promote->tiers[t]) ||
            quire_tier_lookup(promote->tiers[t].tier, &m->key, 1, &found) != QUIRE_OK ||
            found == 0 || !await_tier(promote, r, t))
            continue;
        m->tier = (uint8_t)t;
        if (found == 1 || promote->tiers[t].loads_unknown)
            qr_promote_move_load(promote, move);
        else
            qr_promote_queue_push(promote, move, QR_QUEUE_FIND, false);
        return true;
    }
    return false;
}

void qr_promote_move_load(qr_promote *promote, uint32_t move)
{
    const qr_move *m = &promote->moves[move];
    for (uint32_t i = m->first_waiter; i != QR_NIL; i = promote->waiters[i].next)
        promote->records[promote->waiters[i].record].load_tiers |= (uint8_t)(1u << m->tier);
    qr_promote_queue_push(promote, move, m->is_ahead ? QR_QUEUE_AHEAD : QR_QUEUE_LOAD, false);
}

void qr_promote_move_skip(qr_promote *promote, uint32_t move)
{
    const qr_move *m = &promote->moves[move];
    if (m->queue != QR_QUEUE_NONE)
        qr_promote_queue_remove(promote, move);
    if (m->is_store || !pass_on(promote, move))
        qr_promote_move_end(promote, move, true);
}

void qr_promote_move_fail(qr_promote *promote, uint32_t move)
{
    promote->moves[move].asked |= (uint8_t)(1u << promote->moves[move].tier);
    qr_promote_move_skip(promote, move);
}

/* ---- queues ---------------------------------------------------------------- */

void qr_promote_queue_push(qr_promote *promote, uint32_t move, qr_promote_queue_id queue,
                           bool is_first)
{
    qr_move *m = &promote->moves[move];
    qr_promote_queue *q = &promote->tiers[m->tier].queues[queue];
    uint32_t where = is_first ? q->chain.first : QR_NIL;
    m->queue = (uint8_t)queue;
    qr_chain_insert(&q->chain, &promote->moves->link, sizeof *m, where, move);
    q->count++;
}

void qr_promote_queue_remove(qr_promote *promote, uint32_t move)
{
    qr_move *m = &promote->moves[move];
    qr_promote_queue *q = &promote->tiers[m->tier].queues[m->queue];
    qr_chain_remove(&q->chain, &promote->moves->link, sizeof *m, move);
    q->count--;
    m->queue = QR_QUEUE_NONE;
}
