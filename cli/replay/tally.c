#include "run.h"
#include "trace/content.h"

#include <quire/cost.h>

#include <math.h>

/* ---- the infinite cache ----------------------------------------------------- */

/* What a segment is known by. A trace's own block ids stand for all that is before them; other
 * contents are chained here. */
static uint64_t segment_id(const trace_request *q, uint32_t i, uint64_t before)
{
    const trace_segment *segment = &q->prompt[i];
    if (q->id_block_size > 0)
        return segment->content;
    return content_of(before, segment->content, segment->num_tokens);
}

void tally_arrival(replay *r, live *l)
{
    const trace_request *q = &l->from->request;
    bool is_leading = true;
    bool ends_with_output = false;
    uint64_t id = 0;
    for (uint32_t i = 0; i < q->num_segments; i++) {
        id = segment_id(q, i, id);
        bool was_there = id_set_add(&r->seen, id);
        is_leading = is_leading && was_there;
        if (is_leading) {
            l->ideal_tokens += q->prompt[i].num_tokens;
            ends_with_output = id_set_has(&r->outputs, id);
        }
        if (q->id_block_size > 0) {
            l->trace_blocks++;
            l->ideal_blocks += is_leading;
        }
    }
    l->ideal_tokens -=
        ends_with_output;        /* the last token that a request generates is not computed */
    if (q->id_block_size == 0) { /* a later prompt may go on behind what this one generates */
        uint64_t output = content_of(id, q->output_content, q->num_output_tokens);
        id_set_add(&r->seen, output);
        id_set_add(&r->outputs, output);
    }
    if (r->result->requests == 0 && r->num_added == 0)
        r->result->id_block_size = q->id_block_size;
    else if (r->result->id_block_size != q->id_block_size)
        r->result->id_block_size = 0;
}

/* Of tokens [first, end) of the prompt, those of contents that were computed before. */
static uint64_t count_computed(const replay *r, const trace_request *q, uint64_t first,
                               uint64_t end)
{
    uint64_t at = 0;
    uint64_t count = 0;
    uint64_t id = 0;
    for (uint32_t i = 0; i < q->num_segments && at < end; i++) {
        uint64_t next = at + q->prompt[i].num_tokens;
        uint64_t from = at > first ? at : first;
        uint64_t to = next < end ? next : end;
        id = segment_id(q, i, id);
        if (from < to && id_set_is_computed(&r->seen, id))
            count += to - from;
        at = next;
    }
    return count;
}

/* What the ideal has and the cache had not, by reason. */
static void count_losses(const replay *r, live *l)
{
    const trace_request *q = &l->from->request;
    replay_losses *losses = &l->losses;
    uint64_t block_size = r->settings->block_size;
    uint64_t whole = l->ideal_tokens / block_size * block_size;
    losses->partial += l->ideal_tokens - whole;
    losses->partial_requests += whole < l->ideal_tokens;
    uint64_t reachable = whole;
    if (whole > 0 && whole == q->num_prompt_tokens) {
        reachable -= block_size;
        losses->last_token += block_size;
        losses->last_token_requests++;
    }
    if (l->hit_tokens >= reachable) {
        losses->beyond += l->hit_tokens - reachable;
        return;
    }
    uint64_t evicted = count_computed(r, q, l->hit_tokens, reachable);
    losses->evicted += evicted;
    losses->not_ready += reachable - l->hit_tokens - evicted;
}

static void mark_computed(replay *r, const trace_request *q)
{
    uint64_t id = 0;
    for (uint32_t i = 0; i < q->num_segments; i++) {
        id = segment_id(q, i, id);
        id_set_mark_computed(&r->seen, id);
    }
    if (q->id_block_size == 0)
        id_set_mark_computed(&r->seen, content_of(id, q->output_content, q->num_output_tokens));
}

/* ---- one request ----------------------------------------------------------- */

void tally_admitted(replay *r, live *l, quire_step_kind kind, uint32_t num_computed, double start_s)
{
    if (kind == QUIRE_STEP_NEW) {
        l->scheduled_s = start_s;
        l->hit_tokens = num_computed;
        r->query_tokens += l->from->request.num_prompt_tokens;
        count_losses(r, l);
    }
    if (kind == QUIRE_STEP_RESUMED) {
        r->query_tokens += l->from->request.num_prompt_tokens + l->num_generated;
        uint32_t i = l->num_preempted < REPLAY_INTERVALS ? l->num_preempted : REPLAY_INTERVALS - 1;
        if (l->num_preempted < REPLAY_INTERVALS)
            l->preempted[i].from_s = l->preempted_s;
        l->preempted[i].to_s = start_s;
        l->num_preempted++;
        uint64_t again = l->num_computed > num_computed ? l->num_computed - num_computed : 0;
        r->result->recomputed_tokens += again;
        tally_cost(r, (replay_cost){.request = replay_id(l),
                                    .step = r->snapshot.step,
                                    .time_s = start_s,
                                    .tokens = again,
                                    .is_preemption = true});
    }
}

void tally_decision(void *user, const quire_decision *d)
{
    replay *r = user;
    replay_pressure *p = &r->result->pressure;
    if (d->reason == QUIRE_REASON_PRESSURE) {
        p->preemptions += d->kind == QUIRE_DECISION_PREEMPTED;
        p->held_up += d->kind == QUIRE_DECISION_NO_ROOM;
    }
    if (r->settings->why != NULL)
        replay_write_decision(r, d);
}

void tally_sources(replay *r, live *l, quire_req req, quire_step_kind kind, uint32_t num_computed)
{
    tiers_split split = tiers_run_admitted(r->tiers, req, num_computed);
    r->snapshot.num_hit_tokens += split.gpu;
    r->snapshot.num_external_tokens += num_computed - split.gpu;
    if (kind == QUIRE_STEP_NEW)
        l->split = split;
    else
        r->result->tiers.restored_tokens += num_computed - split.gpu;
}

void tally_preempted(replay *r, quire_req req)
{
    live *l = replay_live(r, req);
    r->result->preemptions++;
    l->preempted_s = r->now_s;
    if (r->settings->swap.num_blocks > 0)
        replay_count_swap(r, req, l);
}

static void count_sources(replay *r, const live *l)
{
    tiers_result *t = &r->result->tiers;
    t->gpu_hit_tokens += l->split.gpu;
    t->computed_tokens += l->from->request.num_prompt_tokens - l->hit_tokens;
    for (uint32_t i = 0; i < r->num_tiers; i++)
        t->tiers[i].hit_tokens += l->split.tiers[i];
}

void tally_first_token(replay *r, live *l)
{
    uint32_t block_size = r->settings->block_size;
    const trace_request *q = &l->from->request;
    replay_result *result = r->result;
    l->first_token_s = r->now_s;
    result->prompt_tokens += q->num_prompt_tokens;
    result->hit_tokens += l->hit_tokens;
    result->hit_blocks += l->hit_tokens / block_size;
    result->query_blocks += (q->num_prompt_tokens + block_size - 1) / block_size;
    result->ideal_tokens += l->ideal_tokens;
    result->ideal_blocks += l->ideal_blocks;
    result->trace_blocks += l->trace_blocks;
    for (size_t i = 0; i < sizeof l->losses / sizeof(uint64_t); i++) /* nothing but counts */
        ((uint64_t *)&result->losses)[i] += ((const uint64_t *)&l->losses)[i];
    if (r->tiers != NULL)
        count_sources(r, l);
    distribution_add(&result->ttft_ms, (r->now_s - l->from->time_s) * 1e3);
    distribution_add(&result->queue_ms, (l->scheduled_s - l->from->time_s) * 1e3);
    mark_computed(r, q);
}

double tally_tpot_ms(const live *l, double end_s)
{
    return l->num_generated > 1 ? (end_s - l->first_token_s) * 1e3 / (l->num_generated - 1) : -1;
}

bool tally_is_good(const replay *r, const live *l, double end_s)
{
    return slo_is_met(&r->settings->slo, (l->first_token_s - l->from->time_s) * 1e3,
                      tally_tpot_ms(l, end_s), (end_s - l->from->time_s) * 1e3);
}

void tally_end(replay *r, live *l)
{
    replay_result *result = r->result;
    result->requests++;
    result->good_requests += tally_is_good(r, l, r->now_s);
    bool is_cut = l->num_generated < l->output_tokens; /* by the model's length, or the pool's */
    result->truncated += is_cut;
    distribution_add(&result->e2e_ms, (r->now_s - l->from->time_s) * 1e3);
    if (l->num_generated > 1)
        distribution_add(&result->tpot_ms, tally_tpot_ms(l, r->now_s));
    replay_write_request(r, l, r->now_s, is_cut ? PAGE_END_LENGTH : PAGE_END_STOP);
}

/* The costliest stay, in order; of equals the first. */
void tally_cost(replay *r, replay_cost cost)
{
    replay_result *result = r->result;
    uint32_t n = result->num_costliest;
    if (cost.tokens == 0)
        return;
    if (n == REPLAY_COSTLIEST && cost.tokens <= result->costliest[n - 1].tokens)
        return;
    uint32_t i = n < REPLAY_COSTLIEST ? n : REPLAY_COSTLIEST - 1;
    for (; i > 0 && result->costliest[i - 1].tokens < cost.tokens; i--)
        result->costliest[i] = result->costliest[i - 1];
    result->costliest[i] = cost;
    result->num_costliest = n < REPLAY_COSTLIEST ? n + 1 : REPLAY_COSTLIEST;
}

/* ---- steps ----------------------------------------------------------------- */

/* What there was lasted until then; now there are these blocks. */
static void tally_usage(replay *r, double until_s, const quire_usage *now)
{
    double duration = until_s - r->last_usage_s;
    (void)tiers_usage_step(&r->pool, duration, now, 0, 0);
    r->sum_pinned += (double)r->num_pinned * duration;
    r->sum_swapped += (double)r->num_swapped * duration;
    r->last_usage_s = until_s;
}

/* Requests came since the step before: what the queue is at the last of them. */
static void tally_arrived(replay *r, double now_s)
{
    replay_result *result = r->result;
    uint64_t arrived = r->num_added + arrivals_num_due(r->arrivals);
    if (arrived == result->arrived)
        return;
    if (result->arrived == 0)
        result->first_arrival_s = now_s;
    result->arrived = arrived;
    result->last_arrival_s = now_s;
    result->waiting_at_last = r->snapshot.num_waiting;
    result->ended_at_last = result->requests;
}

void tally_step(replay *r, double start_s, double end_s)
{
    replay_result *result = r->result;
    const quire_snapshot *s = &r->snapshot;
    tally_usage(r, start_s, &s->blocks);
    r->num_pinned = s->num_pinned_blocks;
    r->num_swapped = r->settings->swap.num_blocks - s->num_free_swap_blocks;
    result->swap.most_blocks = larger_of(result->swap.most_blocks, r->num_swapped);
    result->most_pinned = larger_of(result->most_pinned, s->num_pinned_blocks);
    result->overtaking += s->num_overtaking;
    if (s->num_waiting > result->max_waiting) {
        result->max_waiting = s->num_waiting;
        result->max_waiting_s = start_s;
    }
    tally_arrived(r, start_s);
    result->max_running = (uint32_t)larger_of(result->max_running, s->num_running);
    if (s->num_tokens == 0)
        return;
    if (r->tiers != NULL || r->settings->swap.num_blocks > 0)
        replay_look_at_tiers(r, start_s);
    result->steps++;
    result->busy_s += end_s - start_s;
    result->scheduled_tokens += s->num_tokens;
    result->mean_running += s->num_scheduled; /* a sum until the end */
}

void tally_finish(replay *r)
{
    replay_result *result = r->result;
    tally_usage(r, r->now_s, &r->pool.now);
    result->most = r->pool.most;
    result->simulated_s = r->now_s;
    double duration = r->now_s > 0 ? r->now_s : 1;
    result->mean_empty = r->pool.sum_empty / duration;
    result->mean_cached = r->pool.sum_cached / duration;
    result->mean_active = r->pool.sum_active / duration;
    result->mean_pinned = r->sum_pinned / duration;
    result->swap.mean_blocks = r->sum_swapped / duration;
    result->swap.settings = r->settings->swap;
    result->pressure.settings = r->settings->pressure;
    result->pressure.watermark_blocks =
        quire_cost_watermark_blocks(r->num_blocks, r->settings->pressure.watermark);
    double steps = result->steps > 0 ? (double)result->steps : 1;
    result->mean_running /= steps;
    result->mean_tokens = (double)result->scheduled_tokens / steps;
    if (r->tiers != NULL)
        tiers_run_finish(r->tiers, r->now_s, &result->tiers);
    result->blocks = quire_sched_get_usage(r->sched);
    result->blocks.total -= result->blocks.null_blocks; /* nobody can use it */
    result->has_ideal = !r->seen.gave_up;
    result->block_size = r->settings->block_size;
    result->clock = r->settings->clock;
    result->slo = r->settings->slo;
    result->unfinished = quire_sched_get_num_unfinished(r->sched);
    if (r->arrivals != NULL)
        result->unfinished += arrivals_num_due(r->arrivals);
    result->is_cut_short = result->is_cut_short || result->stopped != NULL;
    if (r->reader != NULL) { /* a trace that could not be opened again has none */
        result->errors += trace_num_bad(r->reader);
        result->has_contents = trace_has_contents(r->reader);
    }
}

/* ---- how far it is --------------------------------------------------------- */

/* The work of a replay, in prompt tokens: a token that is generated costs as much as so many that
 * are hashed and looked up. */
enum { OUTPUT_WEIGHT = 30 };

static double work_of(uint64_t prompt_tokens, uint64_t output_tokens)
{
    return (double)prompt_tokens + OUTPUT_WEIGHT * (double)output_tokens;
}

/* How much of the trace was read, 0 to 1; 0: not known. */
static double share_read(const replay *r, const arrivals_read *read)
{
    uint64_t size = trace_size(r->reader);
    uint64_t limit = r->settings->trace.max_requests;
    double share = size > 0 ? (double)trace_position(r->reader) / (double)size : 0;
    double of_limit = limit > 0 ? (double)read->requests / (double)limit : 0;
    if (read->is_all)
        return 1;
    return fmin(fmax(share, of_limit), 1);
}

replay_progress tally_progress(const replay *r)
{
    const replay_result *result = r->result;
    arrivals_read read = arrivals_get_read(r->arrivals);
    double part = share_read(r, &read);
    replay_progress p = {.simulated_s = r->now_s, .num_requests = result->requests, .share = -1};
    double total = work_of(read.prompt_tokens, read.output_tokens);
    if (part > 0 && total > 0) {
        p.total_requests = (uint64_t)((double)read.requests / part + 0.5);
        p.share = part * work_of(result->prompt_tokens, result->output_tokens) / total;
    }
    if (r->settings->max_steps > 0)
        p.share = fmax(p.share, (double)result->steps / (double)r->settings->max_steps);
    return p;
}
