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
