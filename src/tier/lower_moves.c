#include "tier/lower_parts.h"

#include "base/assert.h"
#include "tier/key.h"

void qr_lower_moves_init(qr_lower *lower)
{
    for (uint32_t i = 0; i < lower->num_moves; i++) {
        lower->moves[i] = (qr_move){.next = i + 1 < lower->num_moves ? i + 1 : QR_NIL};
        lower->moves[i].queue = QR_QUEUE_NONE;
    }
    lower->free_move = 0;
    for (uint32_t i = 0; i < lower->num_waiters; i++)
        lower->waiters[i].next = i + 1 < lower->num_waiters ? i + 1 : QR_NIL;
    lower->free_waiter = 0;
}

uint32_t qr_lower_move_find(const qr_lower *lower, const quire_tier_key *key)
{
    if (lower->num_loads == 0)
        return QR_NIL;
    return qr_lower_move_find_tag(lower, qr_slots_index_tag(&lower->index, key), key);
}

uint32_t qr_lower_move_find_tag(const qr_lower *lower, uint32_t tag, const quire_tier_key *key)
{
    qr_buckets_search search = qr_buckets_search_begin(&lower->index, tag);
    uint32_t move;
    do
        move = qr_slots_search_next(&search);
    while (move != QR_NIL && !qr_key_is_equal(&lower->moves[move].key, key));
    return move;
}

/* There are as many as all limits together. */
static uint32_t take_move(qr_lower *lower, const quire_tier_key *key, bool is_store, uint32_t tier)
{
    uint32_t move = lower->free_move;
    qr_move *m = &lower->moves[move];
    lower->free_move = m->next;
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

uint32_t qr_lower_move_new_store(qr_lower *lower, const quire_tier_key *key, uint32_t tier)
{
    if (lower->tiers[tier].num_queued >= lower->max_stores)
        return QR_NIL;
    lower->tiers[tier].num_queued++;
    return take_move(lower, key, true, tier);
}

uint32_t qr_lower_move_new_load(qr_lower *lower, const quire_tier_key *key, uint32_t tag,
                                uint32_t tier)
{
    if (lower->num_loads >= lower->max_loads)
        return QR_NIL;
    lower->num_loads++;
    uint32_t move = take_move(lower, key, false, tier);
    lower->moves[move].tag = tag;
    qr_slots_index_insert(&lower->index, tag, move);
    return move;
}

bool qr_lower_move_await(qr_lower *lower, uint32_t move, uint32_t record, uint32_t start)
{
    uint32_t waiter = lower->free_waiter;
    if (waiter == QR_NIL)
        return false;
    qr_waiter *w = &lower->waiters[waiter];
    lower->free_waiter = w->next;
    *w = (qr_waiter){.record = record,
                     .epoch = lower->records[record].epoch,
                     .start = start,
                     .next = lower->moves[move].first_waiter};
    lower->moves[move].first_waiter = waiter;
    lower->records[record].pending++;
    return true;
}

bool qr_lower_move_is_wanted(const qr_lower *lower, uint32_t move)
{
    for (uint32_t i = lower->moves[move].first_waiter; i != QR_NIL;) {
        const qr_waiter *w = &lower->waiters[i];
        const qr_record *r = &lower->records[w->record];
        if (r->epoch == w->epoch && w->start < r->limit)
            return true;
        i = w->next;
    }
    return false;
}

static void tell_waiters(qr_lower *lower, qr_move *m, bool has_failed)
{
    while (m->first_waiter != QR_NIL) {
        uint32_t waiter = m->first_waiter;
        qr_waiter *w = &lower->waiters[waiter];
        qr_record *r = &lower->records[w->record];
        if (r->epoch == w->epoch) {
            qr_assert_internal(r->pending > 0);
            r->pending--;
            if (has_failed && w->start < r->limit)
                r->limit = w->start;
        }
        m->first_waiter = w->next;
        w->next = lower->free_waiter;
        lower->free_waiter = waiter;
    }
}

void qr_lower_move_end(qr_lower *lower, uint32_t move, bool has_failed)
{
    qr_move *m = &lower->moves[move];
    qr_assert_internal(m->is_used);
    if (m->queue != QR_QUEUE_NONE)
        qr_lower_queue_remove(lower, move);
    tell_waiters(lower, m, has_failed);
    if (m->is_store && has_failed) /* it may be offered again */
        lower->blocks[m->block].offered &= (uint8_t) ~(1u << m->tier);
    if (m->is_store) {
        lower->tiers[m->tier].num_queued--;
    } else {
        qr_slots_index_remove(&lower->index, m->tag, move);
        lower->num_loads--;
    }
    m->is_used = false;
    m->next = lower->free_move;
    lower->free_move = move;
}

/* ---- from tier to tier ----------------------------------------------------- */

/* The record of the first waiter that still needs it; NULL: none does. */
static qr_record *first_record(const qr_lower *lower, const qr_move *m)
{
    for (uint32_t i = m->first_waiter; i != QR_NIL; i = lower->waiters[i].next) {
        const qr_waiter *w = &lower->waiters[i];
        qr_record *r = &lower->records[w->record];
        if (r->epoch == w->epoch && w->start < r->limit)
            return r;
    }
    return NULL;
}

/* The record begins to wait for one more tier, unless that is slower than computing. */
static bool await_tier(qr_lower *lower, qr_record *r, uint32_t t)
{
    const qr_lower_tier *tier = &lower->tiers[t];
    uint8_t bit = (uint8_t)(1u << t);
    if (((r->tiers | r->skipped_tiers) & bit) != 0)
        return (r->tiers & bit) != 0;
    double tokens = lower->groups[lower->count_group].block_size;
    uint32_t before =
        tier->queues[QR_QUEUE_LOAD].count + tier->queues[QR_QUEUE_FIND].count + tier->loads_on_time;
    double bytes = (double)(before + r->pending) * (double)lower->block_bytes;
    if (r->is_urgent && !qr_costs_try(&lower->costs, t, bytes, (double)r->pending * tokens)) {
        qr_lower_tally(&lower->tiers[t].counters.skipped_tokens,
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

static bool is_usable(const qr_lower_tier *tier)
{
    return !tier->is_stuck && !qr_lower_is_out(tier);
}

/* Into the queue of the next tier; false: no other tier may have it, or nobody needs it. */
static bool pass_on(qr_lower *lower, uint32_t move)
{
    qr_move *m = &lower->moves[move];
    qr_record *r = first_record(lower, m);
    for (uint32_t i = 1; r != NULL && i < lower->num_tiers; i++) {
        uint32_t t = (m->tier + i) % lower->num_tiers;
        uint8_t found = 0;
        if ((m->asked >> t & 1) != 0 || !is_usable(&lower->tiers[t]) ||
            quire_tier_lookup(lower->tiers[t].tier, &m->key, 1, &found) != QUIRE_OK || found == 0 ||
            !await_tier(lower, r, t))
            continue;
        m->tier = (uint8_t)t;
        if (found == 1)
            qr_lower_move_load(lower, move);
        else
            qr_lower_queue_push(lower, move, QR_QUEUE_FIND);
        return true;
    }
    return false;
}

void qr_lower_move_load(qr_lower *lower, uint32_t move)
{
    const qr_move *m = &lower->moves[move];
    for (uint32_t i = m->first_waiter; i != QR_NIL; i = lower->waiters[i].next)
        lower->records[lower->waiters[i].record].load_tiers |= (uint8_t)(1u << m->tier);
    qr_lower_queue_push(lower, move, m->is_ahead ? QR_QUEUE_AHEAD : QR_QUEUE_LOAD);
}

void qr_lower_move_skip(qr_lower *lower, uint32_t move)
{
    const qr_move *m = &lower->moves[move];
    if (m->queue != QR_QUEUE_NONE)
        qr_lower_queue_remove(lower, move);
    if (m->is_store || !pass_on(lower, move))
        qr_lower_move_end(lower, move, true);
}

void qr_lower_move_fail(qr_lower *lower, uint32_t move)
{
    lower->moves[move].asked |= (uint8_t)(1u << lower->moves[move].tier);
    qr_lower_move_skip(lower, move);
}

/* ---- queues ---------------------------------------------------------------- */

void qr_lower_queue_push(qr_lower *lower, uint32_t move, qr_lower_queue_id queue)
{
    qr_move *m = &lower->moves[move];
    qr_lower_queue *q = &lower->tiers[m->tier].queues[queue];
    m->queue = (uint8_t)queue;
    m->prev = q->last;
    m->next = QR_NIL;
    if (q->last == QR_NIL)
        q->first = move;
    else
        lower->moves[q->last].next = move;
    q->last = move;
    q->count++;
}

void qr_lower_queue_push_first(qr_lower *lower, uint32_t move, qr_lower_queue_id queue)
{
    qr_move *m = &lower->moves[move];
    qr_lower_queue *q = &lower->tiers[m->tier].queues[queue];
    m->queue = (uint8_t)queue;
    m->prev = QR_NIL;
    m->next = q->first;
    if (q->first == QR_NIL)
        q->last = move;
    else
        lower->moves[q->first].prev = move;
    q->first = move;
    q->count++;
}

void qr_lower_queue_remove(qr_lower *lower, uint32_t move)
{
    qr_move *m = &lower->moves[move];
    qr_lower_queue *q = &lower->tiers[m->tier].queues[m->queue];
    if (m->prev == QR_NIL)
        q->first = m->next;
    else
        lower->moves[m->prev].next = m->next;
    if (m->next == QR_NIL)
        q->last = m->prev;
    else
        lower->moves[m->next].prev = m->prev;
    q->count--;
    m->queue = QR_QUEUE_NONE;
}
