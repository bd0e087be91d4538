#include "report.h"

#include "tiers_report.h"

#include <quire/version.h>

#include <jansson.h>
#include <string.h>

const char *report_number(uint64_t n)
{
    static _Thread_local char texts[4][32];
    static _Thread_local unsigned next;
    char *end = texts[next++ % 4] + 31;
    char *at = end;
    *at = '\0';
    int digits = 0;
    do {
        if (digits > 0 && digits % 3 == 0)
            *--at = ',';
        *--at = (char)('0' + n % 10);
        n /= 10;
        digits++;
    } while (n > 0);
    return at;
}

static double share(uint64_t part, uint64_t all)
{
    return all == 0 ? 0 : (double)part / (double)all;
}

/* By the trace's own block ids where it has them. */
static double ideal_rate(const replay_result *r)
{
    return r->trace_blocks > 0 ? share(r->ideal_blocks, r->trace_blocks)
                               : share(r->ideal_tokens, r->prompt_tokens);
}

static double speed_factor(const replay_result *r)
{
    return r->wall_s > 0 ? r->simulated_s / r->wall_s : 0;
}

/* ---- for people ------------------------------------------------------------- */

static void print_latency(FILE *out, const char *name, distribution *d)
{
    fprintf(out, "  %-24s %10.1f %10.1f %10.1f %10.1f\n", name, distribution_mean(d),
            distribution_percentile(d, 0.5), distribution_percentile(d, 0.9),
            distribution_percentile(d, 0.99));
}

static void print_loss(FILE *out, const char *name, uint64_t tokens, uint64_t all)
{
    if (tokens > 0)
        fprintf(out, "    %-30s %6.2f %%  %15s tokens\n", name, 100 * share(tokens, all),
                report_number(tokens));
}

static void print_hits(FILE *out, const replay_result *r)
{
    fprintf(out, "\nPrefix cache\n");
    fprintf(out, "  hit rate        %6.2f %% of tokens, %.2f %% of blocks of %u (%s of %s)\n",
            100 * share(r->hit_tokens, r->prompt_tokens),
            100 * share(r->hit_blocks, r->query_blocks), r->block_size,
            report_number(r->hit_blocks), report_number(r->query_blocks));
    if (!r->has_ideal) {
        fprintf(out, "  ideal           not known: the trace has too many different blocks\n");
        return;
    }
    if (r->trace_blocks > 0)
        fprintf(out, "  ideal           %6.2f %% of the trace's own blocks (%s of %s)\n",
                100 * ideal_rate(r), report_number(r->ideal_blocks),
                report_number(r->trace_blocks));
    fprintf(out, "  ideal           %6.2f %% of tokens, with a cache without end; of that:\n",
            100 * share(r->ideal_tokens, r->prompt_tokens));
    const replay_losses *l = &r->losses;
    print_loss(out, "hits", r->hit_tokens - l->beyond, r->prompt_tokens);
    print_loss(out, "ends that fill no block", l->partial, r->prompt_tokens);
    print_loss(out, "last token is always computed", l->last_token, r->prompt_tokens);
    print_loss(out, "still being computed", l->not_ready, r->prompt_tokens);
    print_loss(out, "evicted before", l->evicted, r->prompt_tokens);
}

static void print_occupancy(FILE *out, const report_subject *subject, const replay_result *r)
{
    double total = r->blocks.total > 0 ? (double)r->blocks.total : 1;
    fprintf(out, "\nMemory: %s blocks", report_number(r->blocks.total));
    if (subject->bytes_per_block > 0)
        fprintf(out, ", %.1f GiB",
                (double)(r->blocks.total * subject->bytes_per_block) / (1 << 30));
    fprintf(out, "\n                       mean        most      at the end\n");
    fprintf(out, "  active          %9.1f %% %9.1f %% %13.1f %%\n", 100 * r->mean_active / total,
            100 * (double)r->most.active / total, 100 * (double)r->blocks.active / total);
    fprintf(out, "  cached          %9.1f %% %9.1f %% %13.1f %%\n", 100 * r->mean_cached / total,
            100 * (double)r->most.cached / total, 100 * (double)r->blocks.cached / total);
    fprintf(out, "  empty           %9.1f %% %9.1f %% %13.1f %%\n", 100 * r->mean_empty / total,
            100 * (double)r->most.empty / total, 100 * (double)r->blocks.empty / total);
}

enum { PRINTED_COSTS = 5 };

static void print_costs(FILE *out, const report_subject *subject, const replay_result *r)
{
    if (subject->has_why)
        fprintf(out, "  computed again since a block was evicted before its reuse: %s tokens\n",
                report_number(r->dropped_tokens));
    if (r->num_costliest == 0)
        return;
    fprintf(out, "\nCostliest decisions%s\n",
            subject->has_why          ? ""
            : subject->could_have_why ? " (preemptions; --why FILE looks at evictions too)"
                                      : " (preemptions)");
    for (uint32_t i = 0; i < r->num_costliest && i < PRINTED_COSTS; i++) {
        const replay_cost *c = &r->costliest[i];
        fprintf(out, "  %12s tokens computed again: request %s, %s (step %s, %.1f s)\n",
                report_number(c->tokens), report_number(c->request),
                c->is_preemption ? "preempted" : "its blocks were evicted before their reuse",
                report_number(c->step), c->time_s);
    }
}

/* A tenth matters where a clock sets the pace, as in quire serve. */
static void print_speed(FILE *out, const replay_result *r)
{
    double factor = speed_factor(r);
    fprintf(out, ", replayed in %.2f s: ", r->wall_s);
    if (factor < 9.95)
        fprintf(out, "%.1f times as fast", factor);
    else
        fprintf(out, "%s times as fast", report_number((uint64_t)(factor + 0.5)));
}

void report_print(FILE *out, const report_subject *subject, replay_result *r)
{
    fprintf(out, "%s (%s)", subject->trace, trace_format_name(r->format));
    if (subject->model != NULL && subject->gpu != NULL)
        fprintf(out, ", %s on %s", subject->model, subject->gpu);
    fprintf(out, "\n%s requests, %s prompt tokens, %s output tokens; %s steps\n",
            report_number(r->requests), report_number(r->prompt_tokens),
            report_number(r->output_tokens), report_number(r->steps));
    fprintf(out, "%.1f s of service", r->simulated_s);
    if (!subject->is_deterministic)
        print_speed(out, r);
    fprintf(out, "\n");
    if (r->is_cut_short)
        fprintf(out,
                "%s: this is the report so far, with %s requests unfinished\n"
                "(prompt tokens and hits are of those that have their first token)\n",
                r->stopped == NULL                      ? "Ended by --max-steps"
                : strcmp(r->stopped, "terminated") == 0 ? "Terminated"
                                                        : "Interrupted",
                report_number(r->unfinished));
    if (r->errors > 0)
        fprintf(out, "%s left out; the first: %s\n", report_number(r->errors),
                r->first_error[0] != '\0' ? r->first_error : "a broken record");
    print_hits(out, r);
    fprintf(out, "\nLatency (ms)                   mean        p50        p90        p99\n");
    print_latency(out, "time to first token", &r->ttft_ms);
    print_latency(out, "time per output token", &r->tpot_ms);
    print_latency(out, "end to end", &r->e2e_ms);
    print_latency(out, "in the queue", &r->queue_ms);
    double seconds = r->simulated_s > 0 ? r->simulated_s : 1;
    fprintf(out, "\nThroughput: %.2f requests/s, %s prompt tokens/s, %s output tokens/s\n",
            (double)r->requests / seconds,
            report_number((uint64_t)((double)r->prompt_tokens / seconds)),
            report_number((uint64_t)((double)r->output_tokens / seconds)));
    fprintf(out, "Steps: %.1f requests and %.0f tokens in the mean; %s ran and %s waited at most;",
            r->mean_running, r->mean_tokens, report_number(r->max_running),
            report_number(r->max_waiting));
    fprintf(out, " busy %.1f %% of the time\n", 100 * r->busy_s / seconds);
    print_occupancy(out, subject, r);
    tiers_report_print(out, r, subject->bytes_per_block);
    fprintf(out, "\nPreemptions: %s, with %s tokens computed again\n",
            report_number(r->preemptions), report_number(r->recomputed_tokens));
    if (r->truncated > 0)
        fprintf(
            out,
            "Ended by --max-model-len or the pool's size before all their tokens: %s requests\n",
            report_number(r->truncated));
    print_costs(out, subject, r);
}

/* ---- for programs ------------------------------------------------------------ */

static json_t *latency(distribution *d)
{
    return json_pack("{s:f,s:f,s:f,s:f}", "mean", distribution_mean(d), "p50",
                     distribution_percentile(d, 0.5), "p90", distribution_percentile(d, 0.9), "p99",
                     distribution_percentile(d, 0.99));
}

static json_t *integer(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *losses_json(const replay_result *r)
{
    const replay_losses *l = &r->losses;
    json_t *o = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "partial_tokens", integer(l->partial), "last_token_tokens",
        integer(l->last_token), "not_ready_tokens", integer(l->not_ready), "evicted_tokens",
        integer(l->evicted), "beyond_ideal_tokens", integer(l->beyond), "partial_requests",
        integer(l->partial_requests), "last_token_requests", integer(l->last_token_requests));
    if (r->id_block_size != r->block_size || r->block_size == 0)
        return o;
    /* The same in the trace's own blocks: ideal = hits + all of these. */
    uint64_t size = r->block_size;
    json_object_set_new(o, "partial_blocks", integer(l->partial_requests));
    json_object_set_new(o, "last_token_blocks", integer(l->last_token / size));
    json_object_set_new(o, "not_ready_blocks", integer(l->not_ready / size));
    json_object_set_new(o, "evicted_blocks", integer(l->evicted / size));
    return o;
}

static json_t *blocks_json(const replay_result *r)
{
    json_t *most = json_pack("{s:o,s:o,s:o}", "empty", integer(r->most.empty), "cached",
                             integer(r->most.cached), "active", integer(r->most.active));
    json_t *mean = json_pack("{s:f,s:f,s:f}", "empty", r->mean_empty, "cached", r->mean_cached,
                             "active", r->mean_active);
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "total", integer(r->blocks.total), "empty",
                     integer(r->blocks.empty), "cached", integer(r->blocks.cached), "active",
                     integer(r->blocks.active), "max", most, "mean", mean);
}

static json_t *costs_json(const replay_result *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->num_costliest; i++) {
        const replay_cost *c = &r->costliest[i];
        json_array_append_new(list, json_pack("{s:s,s:o,s:o,s:f,s:o}", "kind",
                                              c->is_preemption ? "preempted" : "evicted", "request",
                                              integer(c->request), "step", integer(c->step),
                                              "time_s", c->time_s, "tokens", integer(c->tokens)));
    }
    return list;
}

static void set_counts(json_t *o, const replay_result *r)
{
    json_object_set_new(o, "requests", integer(r->requests));
    json_object_set_new(o, "prompt_tokens", integer(r->prompt_tokens));
    json_object_set_new(o, "output_tokens", integer(r->output_tokens));
    json_object_set_new(o, "steps", integer(r->steps));
    json_object_set_new(o, "hit_tokens", integer(r->hit_tokens));
    json_object_set_new(o, "hit_rate", json_real(share(r->hit_tokens, r->prompt_tokens)));
    json_object_set_new(o, "hit_blocks", integer(r->hit_blocks));
    json_object_set_new(o, "query_blocks", integer(r->query_blocks));
    json_object_set_new(o, "ideal_hit_rate", r->has_ideal ? json_real(ideal_rate(r)) : json_null());
    json_object_set_new(o, "ideal_blocks", integer(r->ideal_blocks));
    json_object_set_new(o, "trace_blocks", integer(r->trace_blocks));
    json_object_set_new(o, "ideal_tokens", integer(r->ideal_tokens));
    json_object_set_new(o, "losses", losses_json(r));
    json_object_set_new(o, "preemptions", integer(r->preemptions));
    json_object_set_new(o, "recomputed_tokens", integer(r->recomputed_tokens));
    json_object_set_new(o, "dropped_tokens", integer(r->dropped_tokens));
}

char *report_json(const report_subject *subject, replay_result *r)
{
    json_t *o = json_object();
    double seconds = r->simulated_s > 0 ? r->simulated_s : 1;
    double wall_s = subject->is_deterministic ? 0 : r->wall_s;
    json_object_set_new(o, "trace", json_string(subject->trace));
    json_object_set_new(o, "format", json_string(trace_format_name(r->format)));
    set_counts(o, r);
    json_object_set_new(o, "ttft_ms", latency(&r->ttft_ms));
    json_object_set_new(o, "tpot_ms", latency(&r->tpot_ms));
    json_object_set_new(o, "e2e_ms", latency(&r->e2e_ms));
    json_object_set_new(o, "queue_ms", latency(&r->queue_ms));
    json_object_set_new(o, "simulated_s", json_real(r->simulated_s));
    json_object_set_new(o, "busy_s", json_real(r->busy_s));
    json_object_set_new(o, "wall_s", json_real(wall_s));
    json_object_set_new(o, "speed_factor", json_real(wall_s > 0 ? speed_factor(r) : 0));
    json_object_set_new(o, "requests_per_s", json_real((double)r->requests / seconds));
    json_object_set_new(o, "output_tokens_per_s", json_real((double)r->output_tokens / seconds));
    json_object_set_new(o, "prompt_tokens_per_s", json_real((double)r->prompt_tokens / seconds));
    json_object_set_new(o, "blocks", blocks_json(r));
    json_object_set_new(o, "block_size", integer(r->block_size));
    json_object_set_new(o, "bytes_per_block", integer(subject->bytes_per_block));
    json_object_set_new(o, "mean_running", json_real(r->mean_running));
    json_object_set_new(o, "mean_step_tokens", json_real(r->mean_tokens));
    json_object_set_new(o, "max_running", integer(r->max_running));
    json_object_set_new(o, "max_waiting", integer(r->max_waiting));
    json_object_set_new(o, "truncated", integer(r->truncated));
    json_object_set_new(o, "ended_by",
                        json_string(r->stopped != NULL ? r->stopped
                                    : r->is_cut_short  ? "max_steps"
                                                       : "trace"));
    json_object_set_new(o, "unfinished", integer(r->unfinished));
    json_object_set_new(o, "costliest", costs_json(r));
    tiers_report_json(o, r, subject->bytes_per_block);
    json_object_set_new(o, "errors", integer(r->errors));
    json_object_set_new(o, "quire_version", json_string(quire_version_string()));
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(o);
    return text;
}
