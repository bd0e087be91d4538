#include "tier/lower_parts.h"

#include "base/assert.h"
#include "tier/key.h"

void qr_flights_init(qr_lower *lower)
{
    for (uint32_t i = 0; i < lower->num_flights; i++) {
        lower->flights[i] = (qr_flight){.next = i + 1 < lower->num_flights ? i + 1 : QR_NIL};
        lower->flights[i].queue = QR_QUEUE_NONE;
    }
    lower->free_flight = 0;
    for (uint32_t i = 0; i < lower->num_waiters; i++)
        lower->waiters[i].next = i + 1 < lower->num_waiters ? i + 1 : QR_NIL;
    lower->free_waiter = 0;
}

/* Loads are found by their key alone, stores by their tier too. */
static uint32_t flight_tag(const qr_lower *lower, const quire_tier_key *key, bool is_store,
                           uint32_t tier)
{
    uint32_t tag = qr_slots_index_tag(&lower->index, key);
    return is_store ? tag ^ (UINT32_C(0x9e3779b1) * (tier + 1)) : tag;
}

static bool is_flight(const qr_flight *f, const quire_tier_key *key, bool is_store, uint32_t tier)
{
    return f->is_store == is_store && (!is_store || f->tier == tier) &&
           qr_key_is_equal(&f->key, key);
}

uint32_t qr_flight_find(const qr_lower *lower, const quire_tier_key *key, bool is_store,
                        uint32_t tier)
{
    if ((is_store ? lower->num_stores : lower->num_loads) == 0)
        return QR_NIL;
    const qr_slots_index *index = &lower->index;
    uint32_t tag = flight_tag(lower, key, is_store, tier);
    uint32_t at = qr_slots_index_home(index, tag);
    for (; index->entries[at].node_plus_1 != 0; at = qr_slots_index_after(index, at)) {
        if (index->entries[at].tag != tag)
            continue;
        uint32_t flight = index->entries[at].node_plus_1 - 1;
        if (is_flight(&lower->flights[flight], key, is_store, tier))
            return flight;
    }
    return QR_NIL;
}

uint32_t qr_flight_new(qr_lower *lower, const quire_tier_key *key, bool is_store, uint32_t tier)
{
    uint32_t *count = is_store ? &lower->num_stores : &lower->num_loads;
    if (*count >= (is_store ? lower->max_stores : lower->max_loads))
        return QR_NIL;
    uint32_t flight = lower->free_flight;
    qr_assert(flight != QR_NIL); /* as many as both limits together */
    qr_flight *f = &lower->flights[flight];
    lower->free_flight = f->next;
    f->key = *key;
    f->tag = flight_tag(lower, key, is_store, tier);
    f->first_waiter = QR_NIL;
    f->block = QUIRE_NULL_BLOCK;
    f->tier = (uint8_t)tier;
    f->queue = QR_QUEUE_NONE;
    f->is_store = is_store;
    f->is_used = true;
    qr_slots_index_insert(&lower->index, f->tag, flight);
    (*count)++;
    return flight;
}

bool qr_flight_await(qr_lower *lower, uint32_t flight, uint32_t record, uint32_t start)
{
    uint32_t waiter = lower->free_waiter;
    if (waiter == QR_NIL)
        return false;
    qr_waiter *w = &lower->waiters[waiter];
    lower->free_waiter = w->next;
    *w = (qr_waiter){.record = record,
                     .epoch = lower->records[record].epoch,
                     .start = start,
                     .next = lower->flights[flight].first_waiter};
    lower->flights[flight].first_waiter = waiter;
    lower->records[record].pending++;
    return true;
}

bool qr_flight_is_wanted(const qr_lower *lower, uint32_t flight)
{
    for (uint32_t i = lower->flights[flight].first_waiter; i != QR_NIL;) {
        const qr_waiter *w = &lower->waiters[i];
        const qr_record *r = &lower->records[w->record];
        if (r->epoch == w->epoch && w->start < r->limit)
            return true;
        i = w->next;
    }
    return false;
}

static void tell_waiters(qr_lower *lower, qr_flight *f, bool has_failed)
{
    while (f->first_waiter != QR_NIL) {
        uint32_t waiter = f->first_waiter;
        qr_waiter *w = &lower->waiters[waiter];
        qr_record *r = &lower->records[w->record];
        if (r->epoch == w->epoch) {
            qr_assert_internal(r->pending > 0);
            r->pending--;
            if (has_failed && w->start < r->limit)
                r->limit = w->start;
        }
        f->first_waiter = w->next;
        w->next = lower->free_waiter;
        lower->free_waiter = waiter;
    }
}

void qr_flight_end(qr_lower *lower, uint32_t flight, bool has_failed)
{
    qr_flight *f = &lower->flights[flight];
    qr_assert_internal(f->is_used);
    if (f->queue != QR_QUEUE_NONE)
        qr_queue_remove(lower, flight);
    tell_waiters(lower, f, has_failed);
    qr_slots_index_remove(&lower->index, f->tag, flight);
    (*(f->is_store ? &lower->num_stores : &lower->num_loads))--;
    f->is_used = false;
    f->next = lower->free_flight;
    lower->free_flight = flight;
}

/* ---- queues ---------------------------------------------------------------- */

void qr_queue_push(qr_lower *lower, uint32_t flight, qr_lower_queue_id queue)
{
    qr_flight *f = &lower->flights[flight];
    qr_lower_queue *q = &lower->tiers[f->tier].queues[queue];
    f->queue = (uint8_t)queue;
    f->prev = q->last;
    f->next = QR_NIL;
    if (q->last == QR_NIL)
        q->first = flight;
    else
        lower->flights[q->last].next = flight;
    q->last = flight;
    q->count++;
}

void qr_queue_push_first(qr_lower *lower, uint32_t flight, qr_lower_queue_id queue)
{
    qr_flight *f = &lower->flights[flight];
    qr_lower_queue *q = &lower->tiers[f->tier].queues[queue];
    f->queue = (uint8_t)queue;
    f->prev = QR_NIL;
    f->next = q->first;
    if (q->first == QR_NIL)
        q->last = flight;
    else
        lower->flights[q->first].prev = flight;
    q->first = flight;
    q->count++;
}

void qr_queue_remove(qr_lower *lower, uint32_t flight)
{
    qr_flight *f = &lower->flights[flight];
    qr_lower_queue *q = &lower->tiers[f->tier].queues[f->queue];
    if (f->prev == QR_NIL)
        q->first = f->next;
    else
        lower->flights[f->prev].next = f->next;
    if (f->next == QR_NIL)
        q->last = f->prev;
    else
        lower->flights[f->next].prev = f->prev;
    q->count--;
    f->queue = QR_QUEUE_NONE;
}
