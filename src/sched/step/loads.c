/* sched/step/loads.c - the connector's side of a request's life.
 *
 *      matched, asynchronous ──► WAITING_FOR_REMOTE_KVS ──► finished_recving ──► WAITING
 *                                        │ some blocks failed: computed tokens end before them
 *      request ends ──► still being sent ──► finished_sending ──► gone
 */
#include "sched/sched.h"

bool qr_sched_promote_loaded(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    bool has_failed = r->load == QR_LOAD_FAILED;
    if (r->load < QR_LOAD_DONE)
        return false;
    if (has_failed && r->kv.num_computed_tokens == 0) {
        qr_cache_drop(s->cache, &r->kv); /* look it up again */
    } else {
        bool is_whole = r->kv.num_computed_tokens == r->kv.num_tokens;
        bool is_cut = is_whole && /* one token must be computed */
                      (!has_failed || s->settings.rules.recomputes_last);
        /* With copies on write a block that has its key is not written to: it gets its key when
         * the token was computed, or it would be copied for it. */
        bool waits = is_cut && s->cache->max_copies > 0;
        qr_sched_cache_blocks(s, index, r->kv.num_computed_tokens - waits);
        if (has_failed && s->settings.rules.zeroes_no_loads) /* nobody has written the others */
            qr_cache_refresh(s->cache, r->kv.seq, r->kv.num_computed_tokens);
        r->kv.num_computed_tokens -= is_cut;
    }
    r->load = QR_LOAD_OPEN;
    r->load_step = 0;
    r->status = r->num_preemptions > 0 ? QUIRE_REQ_PREEMPTED : QUIRE_REQ_WAITING;
    qr_deadlock_note_holder(s, r);
    return true;
}

/* A request that has blocks and needs more before it can decode: it is in the middle of its prompt,
 * loads, or was loaded. */
static bool is_prefilling(const qr_request *r)
{
    if (r->kv.seq == 0 || qr_request_is_finished(r) || r->status == QUIRE_REQ_WAITING_FOR_STREAMING)
        return false;
    return r->status != QUIRE_REQ_RUNNING || r->is_prefill_chunk;
}

/* What the requests in the middle of their prompts lack. Where there are none, a load may take all:
 * nobody else will give blocks back. */
static uint32_t count_lacking(const quire_sched *s)
{
    uint32_t count = 0;
    const qr_link *by_age = s->table.by_age;
    uint32_t end = s->settings.max_requests;
    for (uint32_t i = by_age[end].next; i != end; i = by_age[i].next) {
        const qr_request *r = &s->table.requests[i];
        if (is_prefilling(r))
            count += qr_cache_count_remaining(s->cache, &r->kv, s->settings.num_lookahead);
    }
    return count;
}

/* vLLM adds room for the drafts of the request that loads, also where nobody else is there. */
uint32_t qr_sched_count_reserved(const quire_sched *s)
{
    if (!s->settings.rules.counts_in_flight)
        return count_lacking(s);
    uint32_t num_spec = s->settings.num_spec_tokens;
    uint32_t num_more = num_spec > 0 ? 1 + num_spec + s->settings.num_lookahead : 0;
    uint32_t count = 0;
    const qr_link *by_age = s->table.by_age;
    uint32_t end = s->settings.max_requests;
    for (uint32_t i = by_age[end].next; i != end; i = by_age[i].next) {
        const qr_request *r = &s->table.requests[i];
        if (r->is_prefilling)
            count += qr_cache_count_remaining(s->cache, &r->kv, num_more);
    }
    for (uint32_t g = 0; g < s->cache->num_groups; g++)
        if (s->cache->groups[g].spec.kind != QUIRE_LAYER_MAMBA)
            count += qr_ceil_div(num_more, s->cache->groups[g].block_size);
    return count;
}

/* ---- failed loads ---------------------------------------------------------- */

/* Marks in failed_blocks while one update looks for requests whose loads failed. */
enum qr_failed {
    QR_FAILED_LOAD = 1, /* the engine names it among invalid_blocks */
    QR_FAILED_LOST = 2  /* and a request that was looked at before will compute it again */
};

/* Sets the marks of all blocks that the engine names. */
static void mark_blocks(quire_sched *s, const quire_model_output *output, uint8_t marks)
{
    for (uint32_t i = 0; i < output->num_invalid_blocks; i++)
        s->room.failed_blocks[output->invalid_blocks[i]] = marks;
}

/* In scratch[index], beside SCRATCH_FAILED: how many tokens the step computes for the request. */
enum { SCRATCH_FAILED = 1, SCRATCH_TOKENS = 1 };

static void note_scheduled(quire_sched *s, const qr_batch *batch)
{
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
        if (index != QR_NIL)
            s->room.scratch[index] =
                (s->room.scratch[index] & SCRATCH_FAILED) | batch->num_tokens[i] << SCRATCH_TOKENS;
    }
}

static void forget_scheduled(quire_sched *s, const qr_batch *batch)
{
    for (uint32_t i = 0; i < batch->num_reqs; i++) {
        uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
        if (index != QR_NIL)
            s->room.scratch[index] &= SCRATCH_FAILED;
    }
}

/* Cuts the computed tokens of a request before its first failed block; a block that a request
 * before it lost already will be computed by that one. True when it has lost any. */
static bool cut_at_failed(quire_sched *s, uint32_t index, bool evict)
{
    qr_request *r = &s->table.requests[index];
    uint32_t block_size = s->cache->groups[0].block_size;
    uint32_t scheduled = s->room.scratch[index] >> SCRATCH_TOKENS;
    uint32_t computed =
        r->kv.num_computed_tokens > scheduled ? r->kv.num_computed_tokens - scheduled : 0;
    qr_cache_get_blocks(s->cache, r->kv.seq, s->room.spans);
    quire_block_span blocks = s->room.spans[0];
    uint32_t end = qr_ceil_div(computed, block_size);
    end = end < blocks.count ? end : blocks.count;
    bool is_affected = false;
    bool is_cut = false;
    for (uint32_t i = 0; i < end; i++) {
        uint8_t *marks = &s->room.failed_blocks[blocks.ids[i]];
        if (*marks == 0)
            continue;
        is_affected = true;
        if ((*marks & QR_FAILED_LOST) != 0)
            continue;
        *marks |= QR_FAILED_LOST;
        if (is_cut)
            continue;
        is_cut = true;
        r->kv.num_computed_tokens = i * block_size;
        if (evict && s->settings.fails_on_load_error)
            qr_cache_evict(s->cache, blocks.ids + i, blocks.count - i);
    }
    if (is_affected && !is_cut)
        r->kv.num_computed_tokens = computed;
    return is_affected;
}

/* Lists the request behind num_failed others, unless it is listed; returns how many there are. */
static uint32_t mark_failed(quire_sched *s, uint32_t index, uint32_t num_failed)
{
    if ((s->room.scratch[index] & SCRATCH_FAILED) != 0)
        return num_failed;
    s->room.scratch[index] |= SCRATCH_FAILED;
    s->room.req_scratch[num_failed] = qr_sched_req_of(s, index);
    return num_failed + 1;
}

/* Whether a load into a block of the request failed, in any group: then the connector is not asked
 * for it again. */
static bool has_failed_block(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    bool has_failed = false;
    qr_cache_get_blocks(s->cache, r->kv.seq, s->room.spans);
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        uint32_t end = qr_ceil_div(r->load_end, s->cache->groups[g].block_size);
        for (uint32_t i = 0; i < end && i < s->room.spans[g].count && !has_failed; i++)
            has_failed = s->room.failed_blocks[s->room.spans[g].ids[i]] != 0;
    }
    r->has_failed_load |= has_failed;
    return has_failed;
}

/* After a load failed, what was computed behind its blocks, in this step or in others that are in
 * flight, is worth nothing, and a window may need blocks that are gone. */
void qr_sched_begin_again(quire_sched *s, const uint32_t *has_failed)
{
    for (uint32_t i = s->queues.num_running; i-- > 0;) { /* the last first: they keep their order */
        uint32_t index = s->queues.running[i];
        if (has_failed[index] == 0)
            continue;
        qr_sched_leave_running(s, i);
        qr_sched_preempt(s, index);
        qr_request_void_steps(&s->table.requests[index], s->flight.step);
        s->table.requests[index].num_placeholders = 0;
    }
}

static void note_failed_load(qr_request *r)
{
    r->load = r->load < QR_LOAD_DONE ? QR_LOAD_FAILING : QR_LOAD_FAILED;
}

/* Loads that failed, by the default's rule: requests that were loading into such a block, in this
 * step or for some time, end, or begin again without the connector. Nobody else has seen those
 * blocks, since they get their keys when the load is known to have come; and a block that has found
 * another owner since the step was scheduled is not that one's loss. */
static uint32_t fail_loads(quire_sched *s, const qr_batch *batch, uint32_t num_failed)
{
    uint32_t n = qr_waiting_list(&s->queues.skipped, s->room.order);
    for (uint32_t i = 0; i < n; i++) {
        qr_request *r = &s->table.requests[s->room.order[i]];
        if (r->status != QUIRE_REQ_WAITING_FOR_REMOTE_KVS || r->load_step > batch->step ||
            !has_failed_block(s, s->room.order[i]))
            continue;
        note_failed_load(r);
        r->kv.num_computed_tokens = 0;
        if (s->settings.fails_on_load_error)
            num_failed = mark_failed(s, s->room.order[i], num_failed);
    }
    for (uint32_t i = 0; i < s->queues.num_running; i++)
        if (s->table.requests[s->queues.running[i]].load_step == batch->step &&
            has_failed_block(s, s->queues.running[i]))
            num_failed = mark_failed(s, s->queues.running[i], num_failed);
    if (!s->settings.fails_on_load_error)
        qr_sched_begin_again(s, s->room.scratch);
    return num_failed;
}

void qr_sched_confirm_loads(quire_sched *s, const qr_batch *batch)
{
    for (uint32_t i = 0; batch->loads && i < batch->num_reqs; i++) {
        uint32_t index = qr_sched_index_of(s, batch->reqs[i]);
        qr_request *r = index == QR_NIL ? NULL : &s->table.requests[index];
        if (r == NULL || r->load_step != batch->step || r->has_failed_load)
            continue;
        r->load_step = 0;
        uint32_t certain = qr_request_certain_tokens(r);
        if (s->hasher == NULL)
            continue;
        qr_sched_cache_blocks(s, index, certain < r->kv.num_tokens ? certain : r->kv.num_tokens);
    }
}

/* vLLM's rule, which is for one group: whoever has a failed block computes it again. */
static uint32_t cut_all_failed(quire_sched *s, const qr_batch *batch,
                               const quire_model_output *output, uint32_t num_failed)
{
    uint32_t n = qr_waiting_list(&s->queues.skipped, s->room.order);
    note_scheduled(s, batch);
    for (uint32_t i = 0; i < n; i++) {
        qr_request *r = &s->table.requests[s->room.order[i]];
        if (r->status != QUIRE_REQ_WAITING_FOR_REMOTE_KVS ||
            !cut_at_failed(s, s->room.order[i], false))
            continue;
        if (s->settings.fails_on_load_error)
            num_failed = mark_failed(s, s->room.order[i], num_failed);
        else
            note_failed_load(r);
    }
    mark_blocks(s, output, QR_FAILED_LOAD); /* what one that waits has lost, one that runs loses */
    for (uint32_t i = 0; i < s->queues.num_running; i++)
        if (cut_at_failed(s, s->queues.running[i], true))
            num_failed = mark_failed(s, s->queues.running[i], num_failed);
    forget_scheduled(s, batch);
    return num_failed;
}

/* Requests whose loads failed as a whole. */
static uint32_t fail_whole_loads(quire_sched *s, const quire_model_output *output)
{
    uint32_t num_failed = 0;
    for (uint32_t i = 0; i < output->num_failed_recving; i++) {
        uint32_t index = qr_sched_index_of(s, output->failed_recving[i]);
        qr_request *r = index == QR_NIL ? NULL : &s->table.requests[index];
        if (r == NULL || r->status != QUIRE_REQ_WAITING_FOR_REMOTE_KVS)
            continue;
        if (s->settings.fails_on_load_error) {
            num_failed = mark_failed(s, index, num_failed);
            continue;
        }
        r->kv.num_computed_tokens = 0;
        r->has_failed_load = (s->settings.quirks & QR_QUIRK(FAILED_BLOCKS_STAY)) == 0;
        note_failed_load(r);
    }
    return num_failed;
}

qr_failed_reqs qr_sched_fail_blocks(quire_sched *s, const qr_batch *batch,
                                    const quire_model_output *output)
{
    memset(s->room.scratch, 0, (size_t)s->settings.max_requests * sizeof *s->room.scratch);
    uint32_t num_failed = fail_whole_loads(s, output);
    mark_blocks(s, output, QR_FAILED_LOAD);
    if (output->num_invalid_blocks == 0)
        ;
    else if ((s->settings.quirks & QR_QUIRK(FAILED_BLOCKS_STAY)) == 0)
        num_failed = fail_loads(s, batch, num_failed);
    else if (s->cache->num_groups == 1)
        num_failed = cut_all_failed(s, batch, output, num_failed);
    mark_blocks(s, output, 0);
    return (qr_failed_reqs){num_failed, s->room.req_scratch,
                            num_failed > 0 ? s->room.scratch : NULL};
}

/* ---- transfers that ended -------------------------------------------------- */

void qr_sched_note_transfers(quire_sched *s, const quire_model_output *output)
{
    for (uint32_t i = 0; i < output->num_finished_recving; i++) {
        uint32_t index = qr_sched_index_of(s, output->finished_recving[i]);
        if (index == QR_NIL)
            continue;
        qr_request *r = &s->table.requests[index];
        if (r->status == QUIRE_REQ_WAITING_FOR_REMOTE_KVS)
            r->load =
                r->load == QR_LOAD_OPEN || r->load == QR_LOAD_DONE ? QR_LOAD_DONE : QR_LOAD_FAILED;
        else
            r->load = QR_LOAD_OPEN;
        if (qr_request_is_finished(r) && !r->awaits_sending)
            qr_sched_free_blocks(s, index);
    }
    for (uint32_t i = 0; i < output->num_finished_sending; i++) {
        uint32_t index = qr_sched_index_of(s, output->finished_sending[i]);
        if (index == QR_NIL || !qr_request_is_finished(&s->table.requests[index]))
            continue;
        s->table.requests[index].awaits_sending = false;
        if (s->table.requests[index].load != QR_LOAD_LEFT)
            qr_sched_free_blocks(s, index);
    }
}
