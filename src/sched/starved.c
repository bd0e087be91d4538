/* sched/starved.c - requests that have blocks, do not run, and wait for more.
 *
 *      a loaded  [####......]      a and b have half of what they need, c finds no room for itself:
 *      b loading [####......]      nobody runs, and nothing will change
 *
 * So one of them gives its blocks up, and is computed or loaded again. What it gave up is not for
 * many loads at once, which would wait with it, round and round. The scheduler is starved from then
 * on until some request has a token more, or ends, and meanwhile loads take turns:
 *
 *      a load begins only where nobody runs and nobody has blocks;
 *      one that has given way waits until all others have had their turn.
 *
 * So each of them has the pool for itself once in a round, and one that can run at all runs. A
 * session that waits for its user is not at work: it gives way first, and takes nobody's turn.
 */
#include "sched/sched.h"

/* ---- who has blocks ---------------------------------------------------------- */

/* A request that has blocks and does not run. */
static inline bool is_holder(const qr_request *r)
{
    return r->is_in_use && r->kv.seq != 0 && r->status != QUIRE_REQ_RUNNING &&
           !qr_request_is_finished(r);
}

static uint32_t count_holders(const quire_sched *s, bool with_sessions)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->max_requests; i++) {
        const qr_request *r = &s->requests[i];
        n += is_holder(r) && (with_sessions || r->status != QUIRE_REQ_WAITING_FOR_STREAMING);
    }
    return n;
}

/* Whether as many requests as may have blocks and do not run. Sequences that are no request's do
 * not count: so there may be fewer than it seems. */
static bool is_loading_most(quire_sched *s)
{
    qr_step_builder *b = &s->builder;
    if (s->cache->num_seqs < s->num_running + s->max_loading)
        return false;
    if (!b->knows_holders)
        b->num_holders = count_holders(s, true);
    b->knows_holders = true;
    return b->num_holders >= s->max_loading;
}

/* ---- loads ------------------------------------------------------------------- */

void qr_starved_begin(quire_sched *s)
{
    qr_step_builder *b = &s->builder;
    b->knows_holders = false;
    b->has_passed_turn = false;
    b->is_turn_free = s->is_starved && s->num_running == 0 && count_holders(s, false) == 0;
}

bool qr_starved_may_load(quire_sched *s, const qr_request *r)
{
    qr_step_builder *b = &s->builder;
    if (is_loading_most(s))
        return false;
    if (QR_LIKELY(!s->is_starved))
        return true;
    b->has_passed_turn |= b->is_turn_free && r->has_given_way;
    return b->is_turn_free && !r->has_given_way;
}

void qr_starved_note_change(quire_sched *s)
{
    s->builder.knows_holders = false;
    s->builder.is_turn_free = false;
}

/* ---- giving way -------------------------------------------------------------- */

/* The last of a queue that has blocks and no load in flight, or QR_NIL. */
static uint32_t last_with_blocks(const quire_sched *s, const qr_waiting *queue, bool is_session)
{
    uint32_t n = qr_waiting_list(queue, s->order, s->max_requests);
    while (n-- > 0) {
        const qr_request *r = &s->requests[s->order[n]];
        bool is_loading = r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS && !r->has_finished_recving;
        bool is_idle = r->status == QUIRE_REQ_WAITING_FOR_STREAMING;
        if (r->kv.seq != 0 && !is_loading && is_idle == is_session)
            return s->order[n];
    }
    return QR_NIL;
}

static uint32_t choose_giver(const quire_sched *s)
{
    uint32_t index = QR_NIL;
    for (uint32_t pass = 0; pass < 2 && index == QR_NIL; pass++) {
        index = last_with_blocks(s, &s->waiting, pass == 0);
        if (index == QR_NIL)
            index = last_with_blocks(s, &s->skipped, pass == 0);
    }
    return index;
}

bool qr_starved_take_blocks(quire_sched *s)
{
    if ((s->quirks & QUIRE_QUIRK(HOPELESS_WAITS)) != 0)
        return false;
    uint32_t index = choose_giver(s);
    if (index == QR_NIL)
        return false;
    qr_request *r = &s->requests[index];
    if (r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS)
        qr_sched_promote_loaded(s, index);
    quire_cache_free(s->cache, &r->kv);
    r->kv.num_computed_tokens = 0;
    r->has_given_way = true;
    s->is_starved = true;
    return true;
}

static void forget_turns(quire_sched *s)
{
    for (uint32_t i = 0; i < s->max_requests; i++)
        s->requests[i].has_given_way = false;
}

void qr_starved_end_round(quire_sched *s)
{
    if (s->builder.has_passed_turn && s->builder.is_turn_free)
        forget_turns(s);
}

void qr_starved_end(quire_sched *s)
{
    s->is_starved = false;
    forget_turns(s);
}
