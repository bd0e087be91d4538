#include "engine.h"

#include <math.h>
#include <string.h>

static double simulated_now_s(void *user)
{
    const engine *e = user;
    return e->now_s;
}

static double simulated_compute_end_s(void *user)
{
    const engine *e = user;
    return e->free_s > e->now_s ? e->free_s : e->now_s;
}

int engine_make_tiers(engine *e, quire_sched_config *c)
{
    const replay_settings *s = e->settings;
    e->tiers = tiers_run_open(&(tiers_run_config){.settings = &s->tiers,
                                                  .sched = c,
                                                  .block_bytes = s->block_bytes,
                                                  .block_size = s->block_size,
                                                  .time = s->time,
                                                  .model = s->model,
                                                  .hash_algo = s->hash_name,
                                                  .user = e,
                                                  .now_s = simulated_now_s,
                                                  .compute_end_s = simulated_compute_end_s});
    if (e->tiers == NULL)
        return -1;
    e->num_tiers = tiers_run_num(e->tiers);
    c->connector = tiers_run_connector(e->tiers);
    return 0;
}

int engine_poll_tiers(engine *e, const flight *f, quire_model_output *output)
{
    tiers_run_pass(e->tiers, f->end_s - e->now_s);
    e->now_s = f->end_s;
    if (f->num_prefill > 0)
        tiers_run_learn(e->tiers, f->num_tokens, f->num_prefill, f->end_s - f->start_s - f->copy_s);
    return tiers_run_poll(e->tiers, f->step, output);
}

const page_tier_step *engine_look_at_tiers(engine *e, double time_s)
{
    e->num_tier_steps = e->num_tiers;
    if (e->tiers != NULL)
        memcpy(e->tier_steps, tiers_run_step(e->tiers, time_s),
               e->num_tiers * sizeof *e->tier_steps);
    if (e->settings->swap.num_blocks > 0)
        e->tier_steps[e->num_tier_steps++] = engine_swap_step(e);
    return e->num_tier_steps > 0 ? e->tier_steps : NULL;
}

/* Requests wait for tiers, or blocks are still on their way to them: when the next job ends, or if
 * it has just ended, a moment later. */
double engine_next_job_s(engine *e)
{
    enum { MOST_IDLE = 20000 };
    if (e->tiers == NULL)
        return HUGE_VAL;
    double next = tiers_run_next_s(e->tiers);
    if (next == HUGE_VAL && quire_sched_get_num_unfinished(e->sched) > 0 &&
        e->num_idle < MOST_IDLE) {
        e->num_idle++;
        next = e->now_s + 1e-3;
    }
    return next;
}

/* ---- swap ------------------------------------------------------------------ */

/* The KV of preempted requests in host memory: what the copies take, what they did.
 *
 *      step      swap-outs ──► swap-ins ──► tokens
 *      link      GPU to host    back         the same link that tiers copy over
 *
 * An engine makes the copies of a step before it computes the step's tokens (quire/step.h), so the
 * step is longer by what they take.
 */
void engine_note_swap(engine *e, const quire_snapshot *snapshot)
{
    for (uint32_t i = 0; i < snapshot->num_tiers; i++) {
        const quire_tier_usage *tier = &snapshot->tiers[i];
        if (strcmp(tier->name, "swap") != 0)
            continue;
        e->step_tokens = tier->hit_tokens - e->swap_tokens;
        e->swap_tokens = tier->hit_tokens;
    }
}

/* When copies that begin then have ended. */
static double end_of_copies(engine *e, bool is_load, uint32_t num_blocks, double from_s)
{
    const swap_settings *s = &e->settings->swap;
    if (num_blocks == 0)
        return from_s;
    if (e->tiers != NULL)
        return tiers_run_copy(e->tiers, is_load, num_blocks, from_s);
    double bytes = (double)num_blocks * (double)e->settings->block_bytes;
    return from_s + s->latency_s + bytes / s->bytes_per_s;
}

double engine_copy_swapped(engine *e, const quire_step *step, double start_s)
{
    replay_swaps *swap = &e->result->swap;
    double end_s = end_of_copies(e, false, step->num_swap_out, start_s);
    end_s = end_of_copies(e, true, step->num_swap_in, end_s); /* into blocks that became free */
    swap->out_blocks += step->num_swap_out;
    swap->in_blocks += step->num_swap_in;
    swap->kept_tokens += e->step_tokens;
    swap->copy_s += end_s - start_s;
    if (e->tiers != NULL) /* the tiers counted all that need not be computed */
        e->snapshot.num_hit_tokens -= (uint32_t)e->step_tokens;
    e->snapshot.num_external_tokens += (uint32_t)e->step_tokens;
    return end_s - start_s;
}

void engine_count_swap(engine *e, quire_req req, live *l)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (e->tiers != NULL && tiers_run_has_saved(e->tiers, req))
        return;
    if (quire_sched_get_req_info(e->sched, req, &info) != QUIRE_OK || info.num_swapped_tokens == 0)
        return;
    e->result->swap.swaps++;
    e->result->swap.requests += l->num_swaps++ == 0;
}

page_tier_step engine_swap_step(engine *e)
{
    const replay_swaps *swap = &e->result->swap;
    uint64_t total = e->settings->swap.num_blocks;
    uint64_t empty = e->snapshot.num_free_swap_blocks;
    page_tier_step *told = &e->swap_told;
    page_tier_step step = {.blocks = {.total = total, .empty = empty, .active = total - empty},
                           .in_blocks = swap->out_blocks - told->in_blocks,
                           .out_blocks = swap->in_blocks - told->out_blocks,
                           .hit_tokens = swap->kept_tokens - told->hit_tokens};
    *told = (page_tier_step){.in_blocks = swap->out_blocks,
                             .out_blocks = swap->in_blocks,
                             .hit_tokens = swap->kept_tokens};
    return step;
}
