#include "report.h"

#include "verdict.h"

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

double report_ideal_rate(const replay_result *r)
{
    return r->trace_blocks > 0 ? report_share(r->ideal_blocks, r->trace_blocks)
                               : report_share(r->ideal_tokens, r->prompt_tokens);
}

double report_speed_factor(const replay_result *r)
{
    return r->wall_s > 0 ? r->simulated_s / r->wall_s : 0;
}

/* ---- the top ------------------------------------------------------------------ */

/* What an infinite cache would have found and this one did not, the largest part first. */
typedef struct loss {
    const char *name;
    uint64_t tokens;
    const char *remedy; /* NULL: none */
} loss;

enum { NUM_LOSSES = 6 };

static void list_losses(const ideal_losses *l, loss list[NUM_LOSSES])
{
    const loss all[NUM_LOSSES] = {
        {"evicted before their reuse", l->evicted,
         "more memory or a tier (--cpu-blocks) keeps them"},
        {"still being computed by another request", l->not_ready, NULL},
        {"in a last block that is not full", l->partial,
         "a smaller --block-size finds more of them"},
        {"in the last block of a prompt found whole", l->last_token, NULL},
        {"computed by another worker", l->wrong_worker,
         "a router that knows the caches finds them"},
        {"not at the worker where the router believed them", l->stale, NULL}};
    for (int i = 0; i < NUM_LOSSES; i++) {
        int at = i;
        for (; at > 0 && list[at - 1].tokens < all[i].tokens; at--)
            list[at] = list[at - 1];
        list[at] = all[i];
    }
}

/* The verdict, and the one reason that cost most. */
static void print_verdict(FILE *out, replay_result *r)
{
    loss list[NUM_LOSSES];
    fprintf(out, "%s\n", verdict_of(r).text);
    if (!r->has_contents) {
        fprintf(out, "No hit rate: the trace does not say which prompts share content, so each "
                     "prompt counts as unique\n");
        return;
    }
    list_losses(&r->losses, list);
    if (!r->has_ideal || report_share(list[0].tokens, r->prompt_tokens) < 0.001)
        return;
    fprintf(out,
            "Lost: %.1f %% of prompt tokens were computed although they had been seen; most of "
            "them were %s\n",
            100 * report_share(r->losses.evicted + r->losses.not_ready + r->losses.partial +
                                   r->losses.last_token + r->losses.wrong_worker + r->losses.stale,
                               r->prompt_tokens),
            list[0].name);
    if (list[0].remedy != NULL)
        fprintf(out, "      (%s)\n", list[0].remedy);
}

static void print_trouble(FILE *out, const replay_result *r)
{
    if (r->is_cut_short)
        fprintf(out,
                "%s: this is the report so far, with %s requests unfinished\n"
                "(prompt tokens and hits are of requests that have their first token)\n",
                r->stopped == NULL                      ? "Ended by --max-steps"
                : strcmp(r->stopped, "terminated") == 0 ? "Terminated"
                                                        : "Interrupted",
                report_number(r->unfinished));
    if (r->errors > 0)
        fprintf(out, "%s requests skipped; the first: %s\n", report_number(r->errors),
                r->first_error[0] != '\0' ? r->first_error : "an invalid record");
    if (r->truncated > 0)
        fprintf(out,
                "%s requests ended before all their tokens, by --max-model-len or the pool's "
                "size\n",
                report_number(r->truncated));
}

/* ---- hits --------------------------------------------------------------------- */

static void print_loss(FILE *out, const char *name, uint64_t tokens, uint64_t all)
{
    if (tokens > 0)
        fprintf(out, "    %-42s %6.2f %%  %15s tokens\n", name, 100 * report_share(tokens, all),
                report_number(tokens));
}

void report_print_hits(FILE *out, const replay_result *r)
{
    loss list[NUM_LOSSES];
    if (!r->has_contents)
        return;
    fprintf(out, "\nPrefix cache\n");
    fprintf(out, "  hit rate        %6.2f %% of tokens, %.2f %% of blocks of %u (%s of %s)\n",
            100 * report_share(r->hit_tokens, r->prompt_tokens),
            100 * report_share(r->hit_blocks, r->query_blocks), r->block_size,
            report_number(r->hit_blocks), report_number(r->query_blocks));
    if (!r->has_ideal) {
        fprintf(out, "  ideal           unknown: the trace has too many different blocks\n");
        return;
    }
    if (r->trace_blocks > 0)
        fprintf(out, "  ideal           %6.2f %% of the trace's own blocks (%s of %s)\n",
                100 * report_ideal_rate(r), report_number(r->ideal_blocks),
                report_number(r->trace_blocks));
    /* An infinite pool finds whole blocks, and one token of a prompt is always computed. */
    uint64_t lost = r->losses.partial + r->losses.last_token;
    fprintf(out,
            "  reachable       %6.2f %% of tokens: whole blocks, the last token computed, as an "
            "infinite pool\n",
            100 * report_share(r->ideal_tokens - lost, r->prompt_tokens));
    fprintf(out, "  ideal           %6.2f %% of tokens, with an infinite cache; of that:\n",
            100 * report_share(r->ideal_tokens, r->prompt_tokens));
    print_loss(out, "hits", r->hit_tokens - r->losses.beyond, r->prompt_tokens);
    list_losses(&r->losses, list);
    for (int i = 0; i < NUM_LOSSES; i++)
        print_loss(out, list[i].name, list[i].tokens, r->prompt_tokens);
}

/* ---- time --------------------------------------------------------------------- */

static void print_latency(FILE *out, const char *name, distribution *d)
{
    fprintf(out, "  %-24s %10s %10s %10s %10s %10s\n", name, verdict_time(distribution_mean(d)),
            verdict_time(distribution_percentile(d, 0.5)),
            verdict_time(distribution_percentile(d, 0.9)),
            verdict_time(distribution_percentile(d, 0.95)),
            verdict_time(distribution_percentile(d, 0.99)));
}

static void print_limit(FILE *out, const char *name, double ms, bool *is_first)
{
    if (ms <= 0)
        return;
    fprintf(out, "%s%s <= %s", *is_first ? "" : ", ", name, verdict_time(ms));
    *is_first = false;
}

static void print_goodput(FILE *out, const replay_result *r, double seconds)
{
    bool is_first = true;
    if (!slo_is_set(&r->slo))
        return;
    fprintf(out, "Goodput: %.2f requests/s, %.2f %% (%s of %s requests keep ",
            (double)r->good_requests / seconds, 100 * report_share(r->good_requests, r->requests),
            report_number(r->good_requests), report_number(r->requests));
    print_limit(out, "ttft", r->slo.ttft_ms, &is_first);
    print_limit(out, "tpot", r->slo.tpot_ms, &is_first);
    print_limit(out, "e2e", r->slo.e2e_ms, &is_first);
    fprintf(out, ")\n");
}

void report_print_times(FILE *out, replay_result *r)
{
    double seconds = r->simulated_s > 0 ? r->simulated_s : 1;
    fprintf(out, "\nLatency                         mean        p50        p90        p95        "
                 "p99\n");
    print_latency(out, "time to first token", &r->ttft_ms);
    print_latency(out, "time per output token", &r->tpot_ms);
    print_latency(out, "end to end", &r->e2e_ms);
    print_latency(out, "in the queue", &r->queue_ms);
    fprintf(out, "\nThroughput: %.2f requests/s, %s prompt tokens/s, %s output tokens/s\n",
            (double)r->requests / seconds,
            report_number((uint64_t)((double)r->prompt_tokens / seconds)),
            report_number((uint64_t)((double)r->output_tokens / seconds)));
    print_goodput(out, r, seconds);
    fprintf(out, "Steps: %.1f requests and %.0f tokens on average; at most %s ran and %s waited;",
            r->mean_running, r->mean_tokens, report_number(r->max_running),
            report_number(r->max_waiting));
    fprintf(out, " busy %.1f %% of the time\n", 100 * r->busy_s / seconds);
}

/* ---- memory ------------------------------------------------------------------- */

static void print_occupancy(FILE *out, const report_subject *subject, const replay_result *r)
{
    double total = r->blocks.total > 0 ? (double)r->blocks.total : 1;
    fprintf(out, "\nMemory: %s blocks and the null block", report_number(r->blocks.total));
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
        fprintf(out, "  %12s tokens computed again: request %s, %s (step %s, %s)\n",
                report_number(c->tokens), report_number(c->request),
                c->is_preemption ? "preempted" : "its blocks were evicted before their reuse",
                report_number(c->step), verdict_time(1e3 * c->time_s));
    }
}

/* A tenth matters where a clock sets the pace, as in quire serve. */
static void print_speed(FILE *out, const replay_result *r)
{
    double factor = report_speed_factor(r);
    fprintf(out, ", replayed in %.2f s: ", r->wall_s);
    if (factor < 9.95)
        fprintf(out, "%.1f times as fast", factor);
    else
        fprintf(out, "%s times as fast", report_number((uint64_t)(factor + 0.5)));
}

/* What --swap-blocks did, and how the scheduler decided. */
static void print_swap(FILE *out, const report_subject *subject, const replay_result *r)
{
    const replay_swaps *s = &r->swap;
    double gib = (double)subject->bytes_per_block / (1 << 30);
    if (s->settings.num_blocks == 0)
        return;
    fprintf(out, "Swapped to host memory: %s of the preemptions, of %s requests\n",
            report_number(s->swaps), report_number(s->requests));
    fprintf(out, "  blocks          %s out (%.2f GiB), %s back (%.2f GiB); the copies took %s\n",
            report_number(s->out_blocks), (double)s->out_blocks * gib, report_number(s->in_blocks),
            (double)s->in_blocks * gib, verdict_time(1e3 * s->copy_s));
    fprintf(out, "  tokens          %s restored and not computed again\n",
            report_number(s->kept_tokens));
    fprintf(out, "  host memory     %.0f of %s blocks on average, %s at most\n", s->mean_blocks,
            report_number(s->settings.num_blocks), report_number(s->most_blocks));
    fprintf(out,
            "  swap pays       if 2 x (%.1f us + blocks x %.1f us) is less than tokens x %.1f us\n",
            (double)s->settings.setup_ns * 1e-3, (double)s->settings.block_ns * 1e-3,
            (double)s->settings.token_ns * 1e-3);
}

/* What --watermark and --preempt-above did. */
static void print_pressure(FILE *out, const replay_result *r)
{
    const replay_pressure *p = &r->pressure;
    double total = r->blocks.total > 0 ? (double)r->blocks.total : 1;
    if (p->settings.watermark > 0)
        fprintf(out, "Watermark: %s blocks free after each admission; the fewest free were %s\n",
                report_number(p->watermark_blocks),
                report_number(r->blocks.total - r->most.active));
    if (p->settings.preempt_above > 0)
        fprintf(out,
                "Pressure: %s preemptions above %g of the pool; in %s steps a request was not "
                "admitted for it\n  (%.3f of the pool in use on average, %.3f at most)\n",
                report_number(p->preemptions), p->settings.preempt_above, report_number(p->held_up),
                r->mean_active / total, (double)r->most.active / total);
}

/* What --prefix-window and --pin-ttl did. */
static void print_choices(FILE *out, const replay_result *r)
{
    if (r->overtaking > 0)
        fprintf(out, "Admitted before others of the queue, for their prefix: %s requests\n",
                report_number(r->overtaking));
    if (r->pinned > 0)
        fprintf(out, "Pinned after their end: %s requests; %.0f blocks on average, %s at most\n",
                report_number(r->pinned), r->mean_pinned, report_number(r->most_pinned));
}

void report_print_head(FILE *out, const report_subject *subject, replay_result *r)
{
    fprintf(out, "%s (%s)", subject->trace, trace_format_name(r->format));
    if (subject->model != NULL && subject->gpu != NULL)
        fprintf(out, ", %s on %s", subject->model, subject->gpu);
    fprintf(out, "\n%s requests, %s prompt tokens, %s output tokens; %s steps\n",
            report_number(r->requests), report_number(r->prompt_tokens),
            report_number(r->output_tokens), report_number(r->steps));
    fprintf(out, "%s of service", verdict_time(1e3 * r->simulated_s));
    if (!subject->is_deterministic)
        print_speed(out, r);
    fprintf(out, "\n");
    print_trouble(out, r);
    fprintf(out, "\n");
    print_verdict(out, r);
}

void report_print(FILE *out, const report_subject *subject, replay_result *r)
{
    report_print_head(out, subject, r);
    report_print_hits(out, r);
    report_print_times(out, r);
    print_occupancy(out, subject, r);
    tiers_report_print(out, r, subject->bytes_per_block);
    fprintf(out, "\nPreemptions: %s, with %s tokens computed again\n",
            report_number(r->preemptions), report_number(r->recomputed_tokens));
    print_pressure(out, r);
    print_swap(out, subject, r);
    print_choices(out, r);
    print_costs(out, subject, r);
}
