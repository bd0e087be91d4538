#include "fleet_state.h"
#include "output/failure.h"

#include <string.h>

static void add_usage(quire_usage *sum, const quire_usage *part)
{
    sum->total += part->total;
    sum->empty += part->empty;
    sum->cached += part->cached;
    sum->active += part->active;
}

/* Counts are sums; what was most is the most of all workers at their own times. */
static void add_result(replay_result *sum, const replay_result *r)
{
    sum->good_requests += r->good_requests;
    sum->prompt_tokens += r->prompt_tokens;
    sum->output_tokens += r->output_tokens;
    sum->steps += r->steps;
    sum->hit_tokens += r->hit_tokens;
    sum->hit_blocks += r->hit_blocks;
    sum->query_blocks += r->query_blocks;
    sum->ideal_tokens += r->ideal_tokens;
    sum->ideal_blocks += r->ideal_blocks;
    sum->trace_blocks += r->trace_blocks;
    ideal_add_losses(&sum->losses, &r->losses);
    sum->preemptions += r->preemptions;
    sum->recomputed_tokens += r->recomputed_tokens;
    sum->overtaking += r->overtaking;
    sum->pinned += r->pinned;
    sum->busy_s += r->busy_s;
    sum->scheduled_tokens += r->scheduled_tokens;
    sum->mean_running += r->mean_running * (double)r->steps;
    sum->mean_empty += r->mean_empty;
    sum->mean_cached += r->mean_cached;
    sum->mean_active += r->mean_active;
    add_usage(&sum->blocks, &r->blocks);
    add_usage(&sum->most, &r->most);
    sum->max_running = r->max_running > sum->max_running ? r->max_running : sum->max_running;
    sum->errors += r->errors;
    sum->truncated += r->truncated;
    sum->unfinished += r->unfinished;
    if (sum->first_error[0] == '\0')
        memcpy(sum->first_error, r->first_error, sizeof sum->first_error);
}

static int take_times(replay_result *sum, const replay_result *r)
{
    bool ok = distribution_take(&sum->ttft_ms, &r->ttft_ms) &&
              distribution_take(&sum->tpot_ms, &r->tpot_ms) &&
              distribution_take(&sum->e2e_ms, &r->e2e_ms) &&
              distribution_take(&sum->queue_ms, &r->queue_ms);
    return ok ? 0 : fail_with("not enough memory for the results");
}

/* What is the same for all workers, and for the fleet. */
static void fill_in(const fleet *f, replay_result *r)
{
    r->has_ideal = !ideal_gave_up(&f->ideal);
    r->id_block_size = f->result->total.id_block_size;
    r->has_contents = trace_has_contents(f->reader);
    r->stopped = f->result->total.stopped;
    r->is_cut_short = r->stopped != NULL;
    r->rounds = 1;
}

/* One worker: its result is that of a replay, its times with it. */
static void finish_one(fleet *f)
{
    replay_result *r = &f->workers[0].result;
    r->errors += trace_num_bad(f->reader);
    f->result->workers[0] = *r;
    f->result->total = *r;
    *r = (replay_result){0};
}

static int finish_many(fleet *f)
{
    replay_result *total = &f->result->total;
    const replay_settings *s = f->settings->replay;
    for (uint32_t i = 0; i < f->settings->num_workers; i++) {
        replay_result *r = &f->workers[i].result;
        replay_result *kept = &f->result->workers[i];
        add_result(total, r);
        if (take_times(total, r) != 0)
            return -1;
        *kept = *r;
        distribution *all[] = {&kept->ttft_ms, &kept->tpot_ms, &kept->e2e_ms, &kept->queue_ms};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
            all[k]->values = NULL;
            all[k]->bins = NULL;
        }
    }
    double steps = total->steps > 0 ? (double)total->steps : 1;
    total->mean_running /= steps;
    total->mean_tokens = (double)total->scheduled_tokens / steps;
    total->simulated_s = f->now_s;
    total->block_size = s->block_size;
    total->clock = s->clock;
    total->slo = s->slo;
    total->format = trace_reader_format(f->reader);
    total->errors += trace_num_bad(f->reader);
    fill_in(f, total);
    return 0;
}

int fleet_finish(fleet *f)
{
    uint32_t n = f->settings->num_workers;
    double end_s = 0;
    for (uint32_t i = 0; i < n; i++)
        end_s = f->workers[i].engine.now_s > end_s ? f->workers[i].engine.now_s : end_s;
    f->now_s = end_s;
    f->result->num_workers = n;
    f->result->gpus_per_worker = f->settings->gpus_per_worker;
    f->result->views = router_stats(f->routers);
    if (f->history != NULL)
        history_finish(f->history, end_s);
    f->result->has_transfers = f->handoffs != NULL;
    if (f->handoffs != NULL) {
        handoff_stats *stats = handoffs_stats(f->handoffs);
        f->result->transfers = *stats;
        *stats = (handoff_stats){0};
    }
    for (uint32_t i = 0; f->handoffs != NULL && i < n; i++)
        f->result->node_bytes[i] = handoffs_node_bytes(f->handoffs, i);
    f->result->has_shared = f->shared != NULL;
    if (f->shared != NULL)
        f->result->shared = shared_moves_finish(f->shared);
    members_finish(f);
    for (uint32_t i = 0; i < n; i++) {
        fill_in(f, &f->workers[i].result);
        worker_finish(&f->workers[i], end_s);
    }
    if (n > 1)
        return finish_many(f);
    finish_one(f);
    return 0;
}
