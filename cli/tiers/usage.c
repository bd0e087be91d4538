#include "usage.h"

static uint64_t larger_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

page_tier_step tiers_usage_step(tiers_usage *u, double seconds, const quire_usage *now, uint64_t in,
                                uint64_t out)
{
    page_tier_step step = {.blocks = *now,
                           .in_blocks = in - u->num_in,
                           .out_blocks = out - u->num_out,
                           .hit_tokens = u->hit_tokens};
    u->sum_empty += (double)u->now.empty * seconds;
    u->sum_cached += (double)u->now.cached * seconds;
    u->sum_active += (double)u->now.active * seconds;
    u->now = *now;
    u->most.empty = larger_of(u->most.empty, now->empty);
    u->most.cached = larger_of(u->most.cached, now->cached);
    u->most.active = larger_of(u->most.active, now->active);
    u->num_in = in;
    u->num_out = out;
    u->hit_tokens = 0;
    return step;
}

void tiers_usage_fill(const tiers_usage *u, double seconds, tiers_tally *tally)
{
    double duration = seconds > 0 ? seconds : 1;
    tally->total = u->now.empty + u->now.cached + u->now.active;
    tally->usage = u->now;
    tally->most = u->most;
    tally->mean_empty = u->sum_empty / duration;
    tally->mean_cached = u->sum_cached / duration;
    tally->mean_active = u->sum_active / duration;
    tally->in_blocks = u->num_in;
    tally->out_blocks = u->num_out;
}
