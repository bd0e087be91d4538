#include "engine.h"
#include "output/grown.h"

#include <quire/cost.h>

#include <math.h>

bool engine_tell(engine *e, engine_event_kind kind, arrival *from, uint32_t num_tokens)
{
    if (!grow(&e->events, e->num_events, &e->events_capacity, UINT32_MAX, sizeof *e->events)) {
        e->no_memory = true;
        return false;
    }
    e->events[e->num_events++] =
        (engine_event){.kind = kind, .num_tokens = num_tokens, .time_s = e->now_s, .from = from};
    return true;
}

void tally_ideal(replay_result *result, const arrival *it)
{
    result->ideal_tokens += it->ideal.tokens;
    result->ideal_blocks += it->ideal.blocks;
    result->trace_blocks += it->ideal.trace_blocks;
    ideal_add_losses(&result->losses, &it->ideal.losses);
}

void tally_id_block_size(replay_result *result, const trace_request *q, bool is_first)
{
    if (is_first)
        result->id_block_size = q->id_block_size;
    else if (result->id_block_size != q->id_block_size)
        result->id_block_size = 0;
}

/* ---- one request ----------------------------------------------------------- */

void tally_admitted(engine *e, live *l, quire_step_kind kind, uint32_t num_computed, double start_s)
{
    if (kind == QUIRE_STEP_NEW) {
        l->scheduled_s = start_s;
        l->hit_tokens = num_computed;
        e->query_tokens += l->from->request.num_prompt_tokens;
        engine_tell(e, ENGINE_ADMITTED, l->from, num_computed);
    }
    if (kind == QUIRE_STEP_RESUMED) {
        e->query_tokens += l->from->request.num_prompt_tokens + l->num_generated;
        uint32_t i = l->num_preempted < REPLAY_INTERVALS ? l->num_preempted : REPLAY_INTERVALS - 1;
        if (l->num_preempted < REPLAY_INTERVALS)
            l->preempted[i].from_s = l->preempted_s;
        l->preempted[i].to_s = start_s;
        l->num_preempted++;
        uint64_t again = l->num_computed > num_computed ? l->num_computed - num_computed : 0;
        e->result->recomputed_tokens += again;
        tally_cost(e, (replay_cost){.request = live_id(l),
                                    .step = e->snapshot.step,
                                    .time_s = start_s,
                                    .tokens = again,
                                    .is_preemption = true});
    }
}

void tally_decision(void *user, const quire_decision *d)
{
    engine *e = user;
    replay_pressure *p = &e->result->pressure;
    if (d->reason == QUIRE_REASON_PRESSURE) {
        p->preemptions += d->kind == QUIRE_DECISION_PREEMPTED;
        p->held_up += d->kind == QUIRE_DECISION_NO_ROOM;
    }
    if (e->settings->why != NULL)
        engine_write_decision(e, d);
}

void tally_sources(engine *e, live *l, quire_req req, quire_step_kind kind, uint32_t num_computed)
{
    tiers_split split = tiers_run_admitted(e->tiers, req, num_computed);
    e->snapshot.num_hit_tokens += split.gpu;
    e->snapshot.num_external_tokens += num_computed - split.gpu;
    if (kind == QUIRE_STEP_NEW)
        l->split = split;
    else
        e->result->tiers.restored_tokens += num_computed - split.gpu;
}

void tally_preempted(engine *e, quire_req req)
{
    live *l = engine_live(e, req);
    e->result->preemptions++;
    l->preempted_s = e->now_s;
    if (e->settings->swap.num_blocks > 0)
        engine_count_swap(e, req, l);
}

static void count_sources(engine *e, const live *l)
{
    tiers_result *t = &e->result->tiers;
    t->gpu_hit_tokens += l->split.gpu;
    t->computed_tokens += l->from->request.num_prompt_tokens - l->hit_tokens;
    for (uint32_t i = 0; i < e->num_tiers; i++)
        t->tiers[i].hit_tokens += l->split.tiers[i];
}

void tally_first_token(engine *e, live *l)
{
    uint32_t block_size = e->settings->block_size;
    const trace_request *q = &l->from->request;
    replay_result *result = e->result;
    bool is_again = l->from->first_token_s > 0; /* after a crash: it had one before */
    l->first_token_s = is_again ? l->from->first_token_s : e->now_s;
    if (l->from->part != ARRIVAL_DECODE && !l->from->is_counted) {
        result->prompt_tokens += q->num_prompt_tokens;
        result->hit_tokens += l->hit_tokens;
        result->hit_blocks += l->hit_tokens / block_size;
        result->query_blocks += (q->num_prompt_tokens + block_size - 1) / block_size;
        distribution_add(&result->queue_ms, (l->scheduled_s - l->from->time_s) * 1e3);
    }
    if (e->tiers != NULL && !is_again)
        count_sources(e, l);
    if (l->from->part != ARRIVAL_PREFILL && !is_again)
        distribution_add(&result->ttft_ms, (e->now_s - l->from->time_s) * 1e3);
    engine_tell(e, ENGINE_FIRST_TOKEN, l->from, l->hit_tokens);
}

double tally_tpot_ms(const live *l, double end_s)
{
    return l->num_generated > 1 ? (end_s - l->first_token_s) * 1e3 / (l->num_generated - 1) : -1;
}

bool tally_is_good(const engine *e, const live *l, double end_s)
{
    return slo_is_met(&e->settings->slo, (l->first_token_s - l->from->time_s) * 1e3,
                      tally_tpot_ms(l, end_s), (end_s - l->from->time_s) * 1e3);
}

static void show_request(const engine *e, const live *l)
{
    const replay_probe *probe = e->settings->probe;
    const replay_request_seen seen = {.number = l->from->number,
                                      .arrival_s = l->from->time_s,
                                      .first_s = l->first_token_s,
                                      .end_s = e->now_s,
                                      .num_generated = l->num_generated,
                                      .hit_tokens = l->hit_tokens,
                                      .num_preempted = l->num_preempted};
    if (probe != NULL)
        probe->request(probe->user, &seen);
}

void tally_end(engine *e, live *l)
{
    replay_result *result = e->result;
    result->requests++;
    if (l->from->part == ARRIVAL_PREFILL)
        return;
    result->good_requests += tally_is_good(e, l, e->now_s);
    bool is_cut = l->num_generated < l->output_tokens; /* by the model's length, or the pool's */
    result->truncated += is_cut;
    distribution_add(&result->e2e_ms, (e->now_s - l->from->time_s) * 1e3);
    if (l->num_generated > 1)
        distribution_add(&result->tpot_ms, tally_tpot_ms(l, e->now_s));
    show_request(e, l);
    engine_write_request(e, l, e->now_s, is_cut ? PAGE_END_LENGTH : PAGE_END_STOP);
}

/* The costliest stay, in order; of equals the first. */
void tally_cost(engine *e, replay_cost cost)
{
    replay_result *result = e->result;
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
static void tally_usage(engine *e, double until_s, const quire_usage *now)
{
    double duration = until_s - e->last_usage_s;
    (void)tiers_usage_step(&e->pool, duration, now, 0, 0);
    e->sum_pinned += (double)e->num_pinned * duration;
    e->sum_swapped += (double)e->num_swapped * duration;
    e->last_usage_s = until_s;
}

void tally_crash(engine *e, double time_s)
{
    quire_usage none = e->pool.now;
    none.empty += none.cached + none.active;
    none.cached = none.active = 0;
    tally_usage(e, fmax(time_s, e->last_usage_s), &none);
    e->num_pinned = e->num_swapped = 0;
    for (uint32_t i = 0; i < e->num_flights; i++) { /* which the GPU did not finish */
        const flight *f = &e->flights[(e->first_flight + i) % REPLAY_BATCHES];
        if (f->num_tokens > 0)
            e->result->busy_s -= f->end_s - fmax(time_s, f->start_s);
    }
}

/* Requests came since the step before: what the queue is at the last of them. */
static void tally_arrived(engine *e, double now_s)
{
    replay_result *result = e->result;
    uint64_t arrived = e->num_added + e->num_outside;
    if (arrived == result->arrived)
        return;
    if (result->arrived == 0)
        result->first_arrival_s = now_s;
    result->arrived = arrived;
    result->last_arrival_s = now_s;
    result->waiting_at_last = e->snapshot.num_waiting;
    result->ended_at_last = result->requests;
}

static void show_step(const engine *e, double start_s, double end_s)
{
    const replay_probe *probe = e->settings->probe;
    const replay_step_seen seen = {.start_s = start_s,
                                   .end_s = end_s,
                                   .num_tokens = e->snapshot.num_tokens,
                                   .running = e->snapshot.num_running,
                                   .waiting = e->snapshot.num_waiting};
    probe->step(probe->user, &seen);
}

void tally_step(engine *e, double start_s, double end_s)
{
    replay_result *result = e->result;
    const quire_snapshot *s = &e->snapshot;
    tally_usage(e, start_s, &s->blocks);
    e->num_pinned = s->num_pinned_blocks;
    e->num_swapped = e->settings->swap.num_blocks - s->num_free_swap_blocks;
    result->swap.most_blocks = larger_of(result->swap.most_blocks, e->num_swapped);
    result->most_pinned = larger_of(result->most_pinned, s->num_pinned_blocks);
    result->overtaking += s->num_overtaking;
    if (s->num_waiting > result->max_waiting) {
        result->max_waiting = s->num_waiting;
        result->max_waiting_s = start_s;
    }
    tally_arrived(e, start_s);
    result->max_running = (uint32_t)larger_of(result->max_running, s->num_running);
    if (s->num_tokens == 0)
        return;
    if (e->settings->probe != NULL)
        show_step(e, start_s, end_s);
    if (e->tiers != NULL || e->settings->swap.num_blocks > 0)
        engine_look_at_tiers(e, start_s);
    result->steps++;
    result->busy_s += end_s - start_s;
    result->scheduled_tokens += s->num_tokens;
    result->mean_running += s->num_scheduled; /* a sum until the end */
}

void tally_finish(engine *e)
{
    replay_result *result = e->result;
    tally_usage(e, e->now_s, &e->pool.now);
    result->most = e->pool.most;
    result->simulated_s = e->now_s;
    double duration = e->now_s > 0 ? e->now_s : 1;
    result->mean_empty = e->pool.sum_empty / duration;
    result->mean_cached = e->pool.sum_cached / duration;
    result->mean_active = e->pool.sum_active / duration;
    result->mean_pinned = e->sum_pinned / duration;
    result->swap.mean_blocks = e->sum_swapped / duration;
    result->swap.settings = e->settings->swap;
    result->pressure.settings = e->settings->pressure;
    result->pressure.watermark_blocks =
        quire_cost_watermark_blocks(e->num_blocks, e->settings->pressure.watermark);
    double steps = result->steps > 0 ? (double)result->steps : 1;
    result->mean_running /= steps;
    result->mean_tokens = (double)result->scheduled_tokens / steps;
    if (e->tiers != NULL)
        tiers_run_finish(e->tiers, e->now_s, &result->tiers);
    result->blocks = quire_sched_get_usage(e->sched);
    result->blocks.total -= result->blocks.null_blocks; /* nobody can use it */
    result->block_size = e->settings->block_size;
    result->clock = e->settings->clock;
    result->slo = e->settings->slo;
    result->unfinished = quire_sched_get_num_unfinished(e->sched);
    result->unfinished += e->num_outside;
    result->is_cut_short = result->is_cut_short || result->stopped != NULL;
}
