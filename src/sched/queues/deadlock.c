/* sched/queues/deadlock.c - see deadlock.h. */
#include "sched/sched.h"

/* ---- who has blocks ---------------------------------------------------------- */

static uint8_t holder_kind(const qr_request *r)
{
    bool holds = r->is_in_use && r->kv.seq != 0 && r->status != QUIRE_REQ_RUNNING &&
                 !qr_request_is_finished(r);
    bool is_idle = r->status == QUIRE_REQ_WAITING_FOR_STREAMING;
    return !holds ? QR_HOLDS_NOTHING : is_idle ? QR_HOLDS_IDLE : QR_HOLDS_BLOCKS;
}

void qr_deadlock_note_holder(quire_sched *s, qr_request *r)
{
    uint8_t kind = holder_kind(r);
    if (kind == r->holder)
        return;
    s->deadlock.num_holders[r->holder]--;
    s->deadlock.num_holders[kind]++;
    r->holder = kind;
}

bool qr_deadlock_is_valid(const quire_sched *s)
{
    uint32_t counts[QR_HOLDS_IDLE + 1] = {0};
    for (uint32_t i = 0; i < s->settings.max_requests; i++) {
        const qr_request *r = &s->table.requests[i];
        if (r->holder != holder_kind(r) || r->gave_way_in > s->deadlock.round)
            return false;
        counts[r->holder]++;
    }
    return s->deadlock.round > 0 &&
           counts[QR_HOLDS_BLOCKS] == s->deadlock.num_holders[QR_HOLDS_BLOCKS] &&
           counts[QR_HOLDS_IDLE] == s->deadlock.num_holders[QR_HOLDS_IDLE];
}

static bool has_given_way(const quire_sched *s, const qr_request *r)
{
    return r->gave_way_in == s->deadlock.round;
}

/* ---- loads ------------------------------------------------------------------- */

void qr_deadlock_begin_round(quire_sched *s)
{
    qr_step_builder *b = &s->builder;
    b->has_passed_turn = false;
    b->is_turn_free = s->deadlock.is_active && s->queues.num_running == 0 &&
                      s->deadlock.num_holders[QR_HOLDS_BLOCKS] == 0;
}

bool qr_deadlock_may_load(quire_sched *s, const qr_request *r)
{
    qr_step_builder *b = &s->builder;
    /* The others: with LOAD_ASKED_AGAIN the request may have blocks already. */
    uint32_t num_holders =
        s->deadlock.num_holders[QR_HOLDS_BLOCKS] - (r->holder == QR_HOLDS_BLOCKS);
    if ((s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) != 0)
        num_holders += s->deadlock.num_holders[QR_HOLDS_IDLE]; /* which never give way */
    if (num_holders >= s->settings.max_loading)
        return false;
    if (QR_LIKELY(!s->deadlock.is_active))
        return true;
    b->has_passed_turn |= b->is_turn_free && has_given_way(s, r);
    return b->is_turn_free && !has_given_way(s, r);
}

void qr_deadlock_note_change(quire_sched *s)
{
    s->builder.is_turn_free = false;
}

/* ---- giving way -------------------------------------------------------------- */

/* Whether a request that waits can give up its blocks: a load in flight still writes to them. */
static bool can_give(const qr_request *r, uint8_t holder)
{
    return r->holder == holder && !qr_request_is_loading(r);
}

/* The request of a queue that can give up its blocks and is served last, or QR_NIL. */
static uint32_t last_with_blocks(const quire_sched *s, const qr_waiting *queue, uint8_t holder)
{
    uint32_t last = QR_NIL;
    if (queue->policy == QUIRE_POLICY_PRIORITY) {
        for (uint32_t i = 0; i < queue->count; i++) {
            uint32_t at = queue->heap[i];
            if (can_give(&s->table.requests[at], holder) &&
                (last == QR_NIL ||
                 qr_waiter_before(&s->table.waiters[last], &s->table.waiters[at])))
                last = at;
        }
        return last;
    }
    uint32_t at = s->table.waiters[queue->sentinel].link.prev;
    while (at != queue->sentinel && !can_give(&s->table.requests[at], holder))
        at = s->table.waiters[at].link.prev;
    return at == queue->sentinel ? QR_NIL : at;
}

static uint32_t choose_giver(const quire_sched *s)
{
    static const uint8_t ORDER[] = {QR_HOLDS_IDLE, QR_HOLDS_BLOCKS};
    uint32_t index = QR_NIL;
    for (uint32_t pass = 0; pass < 2 && index == QR_NIL; pass++) {
        if (s->deadlock.num_holders[ORDER[pass]] == 0)
            continue;
        index = last_with_blocks(s, &s->queues.waiting, ORDER[pass]);
        if (index == QR_NIL)
            index = last_with_blocks(s, &s->queues.skipped, ORDER[pass]);
    }
    return index;
}

bool qr_deadlock_take_blocks(quire_sched *s)
{
    if ((s->settings.quirks & QR_QUIRK(HOPELESS_WAITS)) != 0)
        return false;
    uint32_t index = choose_giver(s);
    if (index == QR_NIL)
        return false;
    qr_request *r = &s->table.requests[index];
    if (r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS)
        qr_sched_promote_loaded(s, index);
    qr_cache_drop(s->cache, &r->kv);
    r->kv.num_computed_tokens = 0;
    r->gave_way_in = s->deadlock.round;
    qr_deadlock_note_holder(s, r);
    s->deadlock.is_active = true;
    return true;
}

void qr_deadlock_end_round(quire_sched *s)
{
    if (s->builder.has_passed_turn && s->builder.is_turn_free)
        s->deadlock.round++;
}

void qr_deadlock_end(quire_sched *s)
{
    s->deadlock.is_active = false;
    s->deadlock.round++;
}
