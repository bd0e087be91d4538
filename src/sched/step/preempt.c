#include "sched/step/preempt.h"

#include "sched/sched.h"

/* ---- giving blocks back ------------------------------------------------------ */

void qr_sched_leave_running(quire_sched *s, uint32_t place)
{
    s->queues.num_running--;
    memmove(&s->queues.running[place], &s->queues.running[place + 1],
            (s->queues.num_running - place) * sizeof *s->queues.running);
}

void qr_sched_preempt(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    qr_assert(r->status == QUIRE_REQ_RUNNING);
    qr_sched_cache_end(s, index);
    qr_fence_drop(s, r);
    if (r->num_features > 0)
        qr_encoder_free(&s->encoder, r->features, r->num_features);
    r->status = QUIRE_REQ_PREEMPTED;
    r->kv.num_computed_tokens = 0;
    r->num_drafts = 0;
    r->load_step = 0;
    r->is_prefilling = false;
    if (s->settings.rules.delivers_stale) {
        r->drops_stale =
            s->partners.connector.requires_kv_delivery != 0 || (r->drops_stale && r->num_stale > 0);
        r->num_stale = r->num_in_flight;
        r->num_placeholders = 0;
        r->is_plain = r->is_plain && r->num_stale == 0;
    } else if ((s->settings.quirks & QR_QUIRK(STALE_OUTPUTS)) == 0 && s->flight.num_batches > 0) {
        r->num_placeholders = 0;
        qr_request_void_steps(r, s->flight.step);
    }
    r->num_preemptions++;
    r->kv.was_preempted = 1;
    if (s->watch.monitor != NULL)
        qr_metrics_add(&s->watch.monitor->metrics, QR_METRIC_PREEMPTIONS, 0, 1);
    qr_waiting_prepend(&s->queues.waiting, index);
    if (s->ahead.max > 0) /* before the blocks that it gave back are taken */
        qr_lookahead_add(s, index);
}

/* ---- the victim -------------------------------------------------------------- */

/* The place in running of the largest (priority, arrival time). Of equals it is the largest id, as
 * in the queues: if it were the first of them, two that need each other's blocks could be preempted
 * in turns, for ever. */
static uint32_t find_least_urgent(const quire_sched *s)
{
    uint32_t worst = 0;
    bool takes_first = (s->settings.quirks & QR_QUIRK(PRIORITY_TIES)) != 0;
    for (uint32_t i = 1; i < s->queues.num_running; i++) {
        const qr_waiter *a = &s->table.waiters[s->queues.running[worst]];
        const qr_waiter *b = &s->table.waiters[s->queues.running[i]];
        bool is_equal = b->priority == a->priority && b->arrival_time == a->arrival_time;
        if (qr_waiter_before(a, b) && !(is_equal && takes_first))
            worst = i;
    }
    return worst;
}

/* The place of the request that was in no step for the longest time, of equals the last. */
static uint32_t find_least_recent(const quire_sched *s)
{
    uint32_t oldest = s->queues.num_running - 1;
    for (uint32_t i = oldest; i-- > 1;)
        if (s->table.requests[s->queues.running[i]].last_step <
            s->table.requests[s->queues.running[oldest]].last_step)
            oldest = i;
    return oldest;
}

/* The caller's choice among all but the first. */
static uint32_t ask_for_victim(quire_sched *s)
{
    uint32_t num = s->queues.num_running - 1;
    for (uint32_t i = 0; i < num; i++)
        s->room.req_scratch[i] = qr_sched_req_of(s, s->queues.running[i + 1]);
    uint32_t chosen = s->settings.choose_victim(s->settings.victim_user, s->room.req_scratch, num);
    return chosen < num ? chosen + 1 : num;
}

static uint32_t choose_victim(quire_sched *s)
{
    if (s->queues.num_running == 1)
        return 0;
    if (s->settings.choose_victim != NULL)
        return ask_for_victim(s);
    switch (s->settings.victim) {
    case QUIRE_VICTIM_PRIORITY:
        return find_least_urgent(s);
    case QUIRE_VICTIM_LRU:
        return find_least_recent(s);
    default:
        return s->queues.num_running - 1;
    }
}

/* ---- in a step ---------------------------------------------------------------- */

void qr_sched_forget_from(quire_sched *s, const qr_request *r, uint32_t token)
{
    qr_cache_get_blocks(s->cache, r->kv.seq, s->room.spans);
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        uint32_t first = token / s->cache->groups[g].block_size;
        quire_block_span blocks = s->room.spans[g];
        if (first < blocks.count)
            qr_cache_evict(s->cache, blocks.ids + first, blocks.count - first);
    }
}

/* Takes a request that was scheduled already out of the step. */
static void unschedule(quire_sched *s, uint32_t place)
{
    qr_step_builder *b = &s->builder;
    const qr_request *r = &s->table.requests[quire_req_index(b->reqs[place])];
    bool stays = (s->settings.quirks & QR_QUIRK(UNENCODED_STAYS)) != 0;
    for (uint32_t i = 0; i < b->encoder_count[place]; i++) {
        uint32_t input = b->encoder_found[b->encoder_first[place] + i];
        b->encoder_budget += r->features[input].num_embeds;
        if (!stays)
            qr_encoder_forget(&s->encoder, r->features, r->num_features, input);
    }
    if (!stays) /* what got its key in the step being made will not be computed in it */
        qr_sched_forget_from(s, r, r->kv.num_computed_tokens);
    qr_step_remove(s, place);
}

bool qr_sched_can_preempt(quire_sched *s)
{
    const quire_connector *c = &s->partners.connector;
    if (!s->settings.rules.fences_blocks)
        return true;
    if (c->has_pending_block_frees != NULL && c->has_pending_block_frees(c->user) != 0)
        return false;
    return !s->fences.is_on ||
           qr_fence_is_open(s, &s->table.requests[s->queues.running[choose_victim(s)]]);
}

uint32_t qr_sched_preempt_one(quire_sched *s, uint32_t *cursor, bool is_urgent)
{
    uint32_t place = choose_victim(s);
    uint32_t victim = s->queues.running[place];
    bool was_scheduled = false;
    if (s->settings.can_unschedule) {
        uint32_t in_step = qr_step_find(s, qr_sched_req_of(s, victim));
        was_scheduled = in_step != QR_NIL;
        if (was_scheduled)
            unschedule(s, in_step);
    }
    qr_sched_leave_running(s, place);
    bool skips = (s->settings.quirks & QR_QUIRK(PRIORITY_SKIP)) != 0;
    if (was_scheduled || (place < *cursor && !skips))
        (*cursor)--;
    qr_swap_out(s, victim, is_urgent);
    qr_sched_preempt(s, victim);
    s->builder.preempted[s->builder.num_asked + s->builder.num_preempted++] =
        qr_sched_req_of(s, victim);
    return victim;
}

/* ---- pressure ------------------------------------------------------------------ */

bool qr_sched_admits(const quire_sched *s, const qr_request *r)
{
    double level = qr_pool_level(s->cache->pool);
    bool has_blocks = r->kv.seq != 0; /* it was loaded, or is a session that goes on */
    return s->queues.num_running == 0 ||
           (has_blocks ? level <= s->cache->preempt_above : level < s->cache->admit_below);
}

void qr_sched_relieve(quire_sched *s)
{
    uint32_t cursor = 0;
    while (s->queues.num_running > 1 && qr_pool_level(s->cache->pool) > s->cache->preempt_above) {
        uint32_t victim = qr_sched_preempt_one(s, &cursor, false);
        qr_observer_tell(&s->observer, (quire_decision){.kind = QUIRE_DECISION_PREEMPTED,
                                                        .reason = QUIRE_REASON_PRESSURE,
                                                        .req = qr_sched_req_of(s, victim)});
    }
}

/* ---- when the caller asks ------------------------------------------------------ */

static uint32_t running_place(const quire_sched *s, uint32_t index)
{
    uint32_t place = 0;
    while (s->queues.running[place] != index)
        place++;
    return place;
}

/* QUIRE_OK when the blocks of the request can be taken from it now. */
static int can_lose_blocks(const qr_request *r)
{
    if (qr_request_is_finished(r) || r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS)
        return QUIRE_BUSY;
    return r->kv.seq != 0 ? QUIRE_OK : QUIRE_MISS;
}

/* A request that waits with blocks: it was loaded, or is a session between two inputs. */
static void empty_waiting(quire_sched *s, uint32_t index, bool swaps)
{
    qr_request *r = &s->table.requests[index];
    uint32_t queue = s->table.waiters[index].queue;
    qr_sched_cache_end(s, index);
    if (swaps) { /* it will be served before others */
        qr_sched_dequeue(s, index);
        qr_swap_asked(s, index);
    }
    qr_fence_drop(s, r); /* steps of a session's last turn may be in flight */
    r->kv.num_computed_tokens = 0;
    qr_deadlock_note_holder(s, r);
    if (swaps)
        qr_waiting_prepend(
            queue == s->queues.waiting.number ? &s->queues.waiting : &s->queues.skipped, index);
}

static void empty_running(quire_sched *s, uint32_t index, bool swaps)
{
    qr_sched_leave_running(s, running_place(s, index));
    if (swaps)
        qr_swap_asked(s, index);
    qr_sched_preempt(s, index);
    s->ended.asked[s->ended.num_asked++] = qr_sched_req_of(s, index);
}

static void take_blocks_of(quire_sched *s, uint32_t index, bool swaps)
{
    if (s->table.requests[index].status == QUIRE_REQ_RUNNING)
        empty_running(s, index, swaps);
    else
        empty_waiting(s, index, swaps);
    qr_observer_tell(&s->observer, (quire_decision){.kind = QUIRE_DECISION_PREEMPTED,
                                                    .reason = QUIRE_REASON_ASKED,
                                                    .req = qr_sched_req_of(s, index)});
    qr_assert_expensive(qr_sched_is_valid(s));
}

int qr_sched_preempt_asked(quire_sched *s, uint32_t index, quire_preempt_mode mode)
{
    int err = can_lose_blocks(&s->table.requests[index]);
    if (err != QUIRE_OK)
        return err;
    int swaps = mode == QUIRE_PREEMPT_RECOMPUTE ? QUIRE_MISS : qr_swap_prepare(s, index);
    if (mode == QUIRE_PREEMPT_SWAP && swaps != QUIRE_OK)
        return swaps;
    bool has_saved = s->table.requests[index].num_hosted > 0;
    bool is_cheaper = mode == QUIRE_PREEMPT_SWAP || qr_swap_pays(s, index);
    take_blocks_of(s, index, swaps == QUIRE_OK && is_cheaper && !has_saved);
    return QUIRE_OK;
}

int qr_sched_offload(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    int err = can_lose_blocks(r);
    if (err == QUIRE_BUSY || !qr_swap_is_on(s))
        return err == QUIRE_BUSY ? err : QUIRE_E_DISABLED;
    int swaps = err == QUIRE_OK ? qr_swap_prepare(s, index) : QUIRE_MISS;
    if (swaps == QUIRE_FULL || swaps == QUIRE_BUSY)
        return swaps;
    if (err == QUIRE_OK)
        take_blocks_of(s, index, swaps == QUIRE_OK && r->num_hosted == 0);
    r->is_offloaded = true;
    return QUIRE_OK;
}

int qr_sched_resume(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    if (!r->is_offloaded)
        return QUIRE_MISS;
    r->is_offloaded = false;
    return QUIRE_OK;
}
