/* swap.c - the KV of preempted requests in host memory: what the copies take, what they did.
 *
 *      step      swap-outs ──► swap-ins ──► tokens
 *      link      GPU to host    back         the same link that tiers copy over
 *
 * An engine makes the copies of a step before it computes the step's tokens (quire/step.h), so the
 * step is longer by what they take.
 */
#include "run.h"

#include <string.h>

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
