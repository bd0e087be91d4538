/* report_json.c - a report as one JSON object; docs/replay.md has its keys. */
#include "report.h"

#include "verdict.h"

#include <quire/version.h>

#include <jansson.h>

static json_t *latency(distribution *d)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f}", "mean", distribution_mean(d), "p50",
                     distribution_percentile(d, 0.5), "p90", distribution_percentile(d, 0.9), "p95",
                     distribution_percentile(d, 0.95), "p99", distribution_percentile(d, 0.99),
                     "max", d->max);
}

static json_t *losses_json(const replay_result *r)
{
    const ideal_losses *l = &r->losses;
    json_t *o =
        json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "partial_tokens", report_integer(l->partial),
                  "last_token_tokens", report_integer(l->last_token), "not_ready_tokens",
                  report_integer(l->not_ready), "evicted_tokens", report_integer(l->evicted),
                  "beyond_ideal_tokens", report_integer(l->beyond), "partial_requests",
                  report_integer(l->partial_requests), "last_token_requests",
                  report_integer(l->last_token_requests));
    if (r->id_block_size != r->block_size || r->block_size == 0)
        return o;
    /* The same in the trace's own blocks: ideal = hits + all of these. */
    uint64_t size = r->block_size;
    json_object_set_new(o, "partial_blocks", report_integer(l->partial_requests));
    json_object_set_new(o, "last_token_blocks", report_integer(l->last_token / size));
    json_object_set_new(o, "not_ready_blocks", report_integer(l->not_ready / size));
    json_object_set_new(o, "evicted_blocks", report_integer(l->evicted / size));
    return o;
}

static json_t *verdict_json(replay_result *r)
{
    verdict v = verdict_of(r);
    return json_pack("{s:s,s:s,s:f,s:f,s:o,s:o,s:f,s:f}", "state", verdict_name(v.state), "text",
                     v.text, "arrive_per_s", v.arrive_per_s, "served_per_s", v.served_per_s,
                     "arrived", report_integer(r->arrived), "waiting_at_last_arrival",
                     report_integer(r->waiting_at_last), "last_arrival_s", r->last_arrival_s,
                     "max_waiting_s", r->max_waiting_s);
}

/* Only with --slo. */
static void set_goodput(json_t *o, const replay_result *r, double seconds)
{
    if (!slo_is_set(&r->slo))
        return;
    json_object_set_new(o, "slo",
                        json_pack("{s:f,s:f,s:f}", "ttft_ms", r->slo.ttft_ms, "tpot_ms",
                                  r->slo.tpot_ms, "e2e_ms", r->slo.e2e_ms));
    json_object_set_new(o, "goodput",
                        json_pack("{s:o,s:f,s:f}", "requests", report_integer(r->good_requests),
                                  "share", report_share(r->good_requests, r->requests),
                                  "requests_per_s", (double)r->good_requests / seconds));
}

static json_t *blocks_json(const replay_result *r)
{
    json_t *most =
        json_pack("{s:o,s:o,s:o}", "empty", report_integer(r->most.empty), "cached",
                  report_integer(r->most.cached), "active", report_integer(r->most.active));
    json_t *mean = json_pack("{s:f,s:f,s:f}", "empty", r->mean_empty, "cached", r->mean_cached,
                             "active", r->mean_active);
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "total", report_integer(r->blocks.total), "empty",
                     report_integer(r->blocks.empty), "cached", report_integer(r->blocks.cached),
                     "active", report_integer(r->blocks.active), "max", most, "mean", mean);
}

static json_t *costs_json(const replay_result *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->num_costliest; i++) {
        const replay_cost *c = &r->costliest[i];
        json_array_append_new(list,
                              json_pack("{s:s,s:o,s:o,s:f,s:o}", "kind",
                                        c->is_preemption ? "preempted" : "evicted", "request",
                                        report_integer(c->request), "step", report_integer(c->step),
                                        "time_s", c->time_s, "tokens", report_integer(c->tokens)));
    }
    return list;
}

static void set_counts(json_t *o, const replay_result *r)
{
    json_object_set_new(o, "requests", report_integer(r->requests));
    json_object_set_new(o, "prompt_tokens", report_integer(r->prompt_tokens));
    json_object_set_new(o, "output_tokens", report_integer(r->output_tokens));
    json_object_set_new(o, "steps", report_integer(r->steps));
    json_object_set_new(o, "hit_tokens", report_integer(r->hit_tokens));
    json_object_set_new(o, "hit_rate", json_real(report_share(r->hit_tokens, r->prompt_tokens)));
    json_object_set_new(o, "hit_blocks", report_integer(r->hit_blocks));
    json_object_set_new(o, "query_blocks", report_integer(r->query_blocks));
    json_object_set_new(o, "has_contents", json_boolean(r->has_contents));
    json_object_set_new(o, "ideal_hit_rate",
                        r->has_ideal && r->has_contents ? json_real(report_ideal_rate(r))
                                                        : json_null());
    json_object_set_new(o, "ideal_blocks", report_integer(r->ideal_blocks));
    json_object_set_new(o, "trace_blocks", report_integer(r->trace_blocks));
    json_object_set_new(o, "ideal_tokens", report_integer(r->ideal_tokens));
    json_object_set_new(o, "reachable_tokens",
                        report_integer(r->ideal_tokens - r->losses.partial - r->losses.last_token));
    json_object_set_new(o, "losses", losses_json(r));
    json_object_set_new(o, "preemptions", report_integer(r->preemptions));
    json_object_set_new(o, "recomputed_tokens", report_integer(r->recomputed_tokens));
    json_object_set_new(o, "dropped_tokens", report_integer(r->dropped_tokens));
    json_object_set_new(o, "overtaking", report_integer(r->overtaking));
    json_object_set_new(o, "pins",
                        json_pack("{s:o,s:o,s:f}", "requests", report_integer(r->pinned),
                                  "max_blocks", report_integer(r->most_pinned), "mean_blocks",
                                  r->mean_pinned));
}

/* Only with --watermark, and with --preempt-above. */
static void set_pressure(json_t *o, const replay_result *r)
{
    const replay_pressure *p = &r->pressure;
    if (p->settings.watermark > 0)
        json_object_set_new(o, "watermark",
                            json_pack("{s:o,s:o}", "blocks", report_integer(p->watermark_blocks),
                                      "min_free_blocks",
                                      report_integer(r->blocks.total - r->most.active)));
    if (p->settings.preempt_above > 0)
        json_object_set_new(
            o, "pressure",
            json_pack("{s:f,s:f,s:o,s:o,s:f,s:f}", "admit_below",
                      pressure_admit_below(&p->settings), "preempt_above",
                      p->settings.preempt_above, "preemptions", report_integer(p->preemptions),
                      "held_up", report_integer(p->held_up), "mean_level",
                      r->blocks.total > 0 ? r->mean_active / (double)r->blocks.total : 0.0,
                      "max_level", report_share(r->most.active, r->blocks.total)));
}

/* Only with --swap-blocks or --swap-memory. */
static void set_swap(json_t *o, const replay_swaps *s, uint64_t bytes_per_block)
{
    if (s->settings.num_blocks == 0)
        return;
    json_t *swap = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "blocks", report_integer(s->settings.num_blocks), "swaps",
        report_integer(s->swaps), "requests", report_integer(s->requests), "out_blocks",
        report_integer(s->out_blocks), "in_blocks", report_integer(s->in_blocks), "out_bytes",
        report_integer(s->out_blocks * bytes_per_block), "in_bytes",
        report_integer(s->in_blocks * bytes_per_block));
    json_object_set_new(swap, "kept_tokens", report_integer(s->kept_tokens));
    json_object_set_new(swap, "copy_s", json_real(s->copy_s));
    json_object_set_new(swap, "max_blocks", report_integer(s->most_blocks));
    json_object_set_new(swap, "mean_blocks", json_real(s->mean_blocks));
    json_object_set_new(swap, "setup_us", json_real((double)s->settings.setup_ns * 1e-3));
    json_object_set_new(swap, "block_us", json_real((double)s->settings.block_ns * 1e-3));
    json_object_set_new(swap, "token_us", json_real((double)s->settings.token_ns * 1e-3));
    json_object_set_new(o, "swap", swap);
}

json_t *report_tree(const report_subject *subject, replay_result *r)
{
    json_t *o = json_object();
    double seconds = r->simulated_s > 0 ? r->simulated_s : 1;
    double wall_s = subject->is_deterministic ? 0 : r->wall_s;
    json_object_set_new(o, "trace", json_string(subject->trace));
    json_object_set_new(o, "format", json_string(trace_format_name(r->format)));
    json_object_set_new(o, "model", subject->model != NULL ? json_string(subject->model) : NULL);
    json_object_set_new(o, "gpu", subject->gpu != NULL ? json_string(subject->gpu) : NULL);
    json_object_set_new(o, "verdict", verdict_json(r));
    set_counts(o, r);
    json_object_set_new(o, "ttft_ms", latency(&r->ttft_ms));
    json_object_set_new(o, "tpot_ms", latency(&r->tpot_ms));
    json_object_set_new(o, "e2e_ms", latency(&r->e2e_ms));
    json_object_set_new(o, "queue_ms", latency(&r->queue_ms));
    json_object_set_new(o, "simulated_s", json_real(r->simulated_s));
    json_object_set_new(o, "busy_s", json_real(r->busy_s));
    json_object_set_new(o, "wall_s", json_real(wall_s));
    json_object_set_new(o, "speed_factor", json_real(wall_s > 0 ? report_speed_factor(r) : 0));
    json_object_set_new(o, "requests_per_s", json_real((double)r->requests / seconds));
    json_object_set_new(o, "output_tokens_per_s", json_real((double)r->output_tokens / seconds));
    json_object_set_new(o, "prompt_tokens_per_s", json_real((double)r->prompt_tokens / seconds));
    set_goodput(o, r, seconds);
    json_object_set_new(o, "blocks", blocks_json(r));
    json_object_set_new(o, "block_size", report_integer(r->block_size));
    json_object_set_new(o, "bytes_per_block", report_integer(subject->bytes_per_block));
    json_object_set_new(o, "mean_running", json_real(r->mean_running));
    json_object_set_new(o, "mean_step_tokens", json_real(r->mean_tokens));
    json_object_set_new(o, "max_running", report_integer(r->max_running));
    json_object_set_new(o, "max_waiting", report_integer(r->max_waiting));
    json_object_set_new(o, "truncated", report_integer(r->truncated));
    json_object_set_new(o, "ended_by",
                        json_string(r->stopped != NULL ? r->stopped
                                    : r->is_cut_short  ? "max_steps"
                                                       : "trace"));
    json_object_set_new(o, "unfinished", report_integer(r->unfinished));
    json_object_set_new(o, "costliest", costs_json(r));
    tiers_report_json(o, r, subject->bytes_per_block);
    set_pressure(o, r);
    set_swap(o, &r->swap, subject->bytes_per_block);
    json_object_set_new(o, "errors", report_integer(r->errors));
    json_object_set_new(o, "quire_version", json_string(quire_version_string()));
    if (subject->made_by != NULL)
        json_object_set(o, "made_by", subject->made_by);
    return o;
}

char *report_json(const report_subject *subject, replay_result *r)
{
    json_t *o = report_tree(subject, r);
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(o);
    return text;
}
