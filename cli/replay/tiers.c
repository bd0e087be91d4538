#include "run.h"

#include <math.h>
#include <string.h>

static double simulated_now_s(void *user)
{
    const replay *r = user;
    return r->now_s;
}

static double simulated_compute_end_s(void *user)
{
    const replay *r = user;
    return r->free_s > r->now_s ? r->free_s : r->now_s;
}

int replay_make_tiers(replay *r, quire_sched_config *c)
{
    const replay_settings *s = r->settings;
    r->tiers = tiers_run_open(&(tiers_run_config){.settings = &s->tiers,
                                                  .sched = c,
                                                  .block_bytes = s->block_bytes,
                                                  .block_size = s->block_size,
                                                  .time = s->time,
                                                  .model = s->model,
                                                  .hash_algo = s->hash_name,
                                                  .user = r,
                                                  .now_s = simulated_now_s,
                                                  .compute_end_s = simulated_compute_end_s});
    if (r->tiers == NULL)
        return -1;
    r->num_tiers = tiers_run_num(r->tiers);
    c->connector = tiers_run_connector(r->tiers);
    return 0;
}

int replay_poll_tiers(replay *r, const flight *f, quire_model_output *output)
{
    tiers_run_pass(r->tiers, f->end_s - r->now_s);
    r->now_s = f->end_s;
    if (f->num_prefill > 0)
        tiers_run_learn(r->tiers, f->num_tokens, f->num_prefill, f->end_s - f->start_s - f->copy_s);
    return tiers_run_poll(r->tiers, f->step, output);
}

const page_tier_step *replay_look_at_tiers(replay *r, double time_s)
{
    r->num_tier_steps = r->num_tiers;
    if (r->tiers != NULL)
        memcpy(r->tier_steps, tiers_run_step(r->tiers, time_s),
               r->num_tiers * sizeof *r->tier_steps);
    if (r->settings->swap.num_blocks > 0)
        r->tier_steps[r->num_tier_steps++] = replay_swap_step(r);
    return r->num_tier_steps > 0 ? r->tier_steps : NULL;
}

double replay_next_job_s(replay *r)
{
    enum { MOST_IDLE = 20000 };
    if (r->tiers == NULL)
        return HUGE_VAL;
    double next = tiers_run_next_s(r->tiers);
    if (next == HUGE_VAL && quire_sched_get_num_unfinished(r->sched) > 0 &&
        r->num_idle < MOST_IDLE) {
        r->num_idle++;
        next = r->now_s + 1e-3;
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
void replay_note_swap(replay *r, const quire_snapshot *snapshot)
{
    for (uint32_t i = 0; i < snapshot->num_tiers; i++) {
        const quire_tier_usage *tier = &snapshot->tiers[i];
        if (strcmp(tier->name, "swap") != 0)
            continue;
        r->step_tokens = tier->hit_tokens - r->swap_tokens;
        r->swap_tokens = tier->hit_tokens;
    }
}

/* When copies that begin then have ended. */
static double end_of_copies(replay *r, bool is_load, uint32_t num_blocks, double from_s)
{
    const swap_settings *s = &r->settings->swap;
    if (num_blocks == 0)
        return from_s;
    if (r->tiers != NULL)
        return tiers_run_copy(r->tiers, is_load, num_blocks, from_s);
    double bytes = (double)num_blocks * (double)r->settings->block_bytes;
    return from_s + s->latency_s + bytes / s->bytes_per_s;
}

double replay_copy_swapped(replay *r, const quire_step *step, double start_s)
{
    replay_swaps *swap = &r->result->swap;
    double end_s = end_of_copies(r, false, step->num_swap_out, start_s);
    end_s = end_of_copies(r, true, step->num_swap_in, end_s); /* into blocks that became free */
    swap->out_blocks += step->num_swap_out;
    swap->in_blocks += step->num_swap_in;
    swap->kept_tokens += r->step_tokens;
    swap->copy_s += end_s - start_s;
    if (r->tiers != NULL) /* the tiers counted all that need not be computed */
        r->snapshot.num_hit_tokens -= (uint32_t)r->step_tokens;
    r->snapshot.num_external_tokens += (uint32_t)r->step_tokens;
    return end_s - start_s;
}

void replay_count_swap(replay *r, quire_req req, live *l)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (r->tiers != NULL && tiers_run_has_saved(r->tiers, req))
        return;
    if (quire_sched_get_req_info(r->sched, req, &info) != QUIRE_OK || info.num_swapped_tokens == 0)
        return;
    r->result->swap.swaps++;
    r->result->swap.requests += l->num_swaps++ == 0;
}

page_tier_step replay_swap_step(replay *r)
{
    const replay_swaps *swap = &r->result->swap;
    uint64_t total = r->settings->swap.num_blocks;
    uint64_t empty = r->snapshot.num_free_swap_blocks;
    page_tier_step *told = &r->swap_told;
    page_tier_step step = {.blocks = {.total = total, .empty = empty, .active = total - empty},
                           .in_blocks = swap->out_blocks - told->in_blocks,
                           .out_blocks = swap->in_blocks - told->out_blocks,
                           .hit_tokens = swap->kept_tokens - told->hit_tokens};
    *told = (page_tier_step){.in_blocks = swap->out_blocks,
                             .out_blocks = swap->in_blocks,
                             .hit_tokens = swap->kept_tokens};
    return step;
}
