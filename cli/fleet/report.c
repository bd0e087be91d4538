#include "report.h"
#include "pools.h"

#include "members_report.h"
#include "shared_report.h"

#include <math.h>

/* ---- how even the load is ------------------------------------------------------- */

typedef struct spread {
    double least;
    double mean;
    double most;
    double variation; /* standard deviation / mean; 0: the same everywhere */
} spread;

/* Of some workers, one after the other. */
static spread spread_among(const fleet_result *f, uint32_t first, uint32_t n,
                           double (*value)(const fleet_result *f, uint32_t i))
{
    spread s = {.least = HUGE_VAL};
    double squares = 0;
    for (uint32_t i = first; i < first + n; i++) {
        double v = value(f, i);
        s.least = v < s.least ? v : s.least;
        s.most = v > s.most ? v : s.most;
        s.mean += v / n;
    }
    for (uint32_t i = first; i < first + n; i++) {
        double off = value(f, i) - s.mean;
        squares += off * off / n;
    }
    s.variation = s.mean > 0 ? sqrt(squares) / s.mean : 0;
    return s;
}

static spread spread_of(const fleet_result *f, double (*value)(const fleet_result *f, uint32_t i))
{
    return spread_among(f, 0, f->num_workers, value);
}

static double routed_of(const fleet_result *f, uint32_t i)
{
    return (double)f->routed[i];
}

static double busy_of(const fleet_result *f, uint32_t i)
{
    return f->total.simulated_s > 0 ? f->workers[i].busy_s / f->total.simulated_s : 0;
}

static double hit_rate_of(const fleet_result *f, uint32_t i)
{
    return report_share(f->workers[i].hit_tokens, f->workers[i].prompt_tokens);
}

static uint32_t first_of(const fleet_result *f, uint32_t pool)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < pool; i++)
        first += f->pools[i].num_workers;
    return first;
}

static uint32_t pool_of(const fleet_result *f, uint32_t index)
{
    uint32_t pool = 0;
    for (uint32_t end = f->pools[0].num_workers; index >= end; end += f->pools[pool].num_workers)
        pool++;
    return pool;
}

/* Share of the time that the node of a worker could have moved its bytes in. */
static double link_use_of(const fleet_result *f, uint32_t i)
{
    double most = f->pools[pool_of(f, i)].node_bytes_per_s * f->total.simulated_s;
    return most > 0 ? f->node_bytes[i] / most : 0;
}

/* ---- for people ------------------------------------------------------------------ */

static void print_spread(FILE *out, const char *name, spread s, double scale, const char *unit)
{
    fprintf(out, "  %-24s %9.1f%s %9.1f%s %9.1f%s %9.2f\n", name, s.least * scale, unit,
            s.mean * scale, unit, s.most * scale, unit, s.variation);
}

static void print_pool(FILE *out, const fleet_result *f, uint32_t pool)
{
    const fleet_pool *p = &f->pools[pool];
    uint32_t first = first_of(f, pool);
    fprintf(out, "  --pool %s: %s\n", p->options, p->gpu);
    print_spread(out, "  requests", spread_among(f, first, p->num_workers, routed_of), 1, "  ");
    print_spread(out, "  busy", spread_among(f, first, p->num_workers, busy_of), 100, " %");
    if (p->role != ROUTER_DECODE)
        print_spread(out, "  hit rate", spread_among(f, first, p->num_workers, hit_rate_of), 100,
                     " %");
    if (f->has_transfers)
        print_spread(out, "  network", spread_among(f, first, p->num_workers, link_use_of), 100,
                     " %");
}

/* Milliseconds: mean, median and 99th percentile. */
static void print_times(FILE *out, const char *name, distribution *d)
{
    fprintf(out, "  %-24s mean %.3f ms, p50 %.3f ms, p99 %.3f ms\n", name, distribution_mean(d),
            distribution_percentile(d, 0.5), distribution_percentile(d, 0.99));
}

static void print_transfers(FILE *out, fleet_result *f)
{
    handoff_stats *s = &f->transfers;
    fprintf(out, "  transfers of KV          %s of %s prompts, %.3f GB; at most %s at a time\n",
            report_number(s->transfers), report_number(s->prefills), s->moved_bytes * 1e-9,
            report_number(s->most_open));
    print_times(out, "  from start to end", &s->move_ms);
    print_times(out, "  waited for", &s->wait_ms);
    fprintf(out, "  found at their decoders  %s tokens, which did not move\n",
            report_number(s->local_tokens));
    if (s->failed > 0 || s->expired > 0)
        fprintf(out,
                "  %s transfers failed and %s leases ended; %s prompt tokens were computed "
                "again\n",
                report_number(s->failed), report_number(s->expired),
                report_number(s->recomputed_tokens));
}

static void print_workers(FILE *out, fleet_result *f, const char *router)
{
    const replay_result *t = &f->total;
    fprintf(out, "\nWorkers: %s, router %s\n", report_number(f->num_workers), router);
    fprintf(out, "                              least       mean       most  variation\n");
    if (f->num_pools == 0) {
        print_spread(out, "requests", spread_of(f, routed_of), 1, "  ");
        print_spread(out, "busy", spread_of(f, busy_of), 100, " %");
        print_spread(out, "hit rate", spread_of(f, hit_rate_of), 100, " %");
    }
    for (uint32_t i = 0; i < f->num_pools; i++)
        print_pool(out, f, i);
    if (f->has_transfers)
        print_transfers(out, f);
    if (f->believed_tokens > 0)
        fprintf(out, "  the router believed in   %.2f %% of tokens, and %.2f %% were found\n",
                100 * report_share(f->believed_tokens, t->prompt_tokens),
                100 * report_share(t->hit_tokens, t->prompt_tokens));
    if (f->waited > 0 || f->refused > 0)
        fprintf(out, "  %s times a request had to wait in the router; %s were refused\n",
                report_number(f->waited), report_number(f->refused));
}

static uint32_t gpus_of(const fleet_result *f, uint32_t index)
{
    return f->num_pools > 0 ? f->pools[pool_of(f, index)].gpus_per_worker : f->gpus_per_worker;
}

static uint64_t num_gpus(const fleet_result *f)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->num_workers; i++)
        n += gpus_of(f, i);
    return n;
}

/* Of its GPU hours, those in steps. */
static double busy_gpu_hours(const fleet_result *f)
{
    double busy_s = 0;
    for (uint32_t i = 0; i < f->num_workers; i++)
        busy_s += f->workers[i].busy_s * gpus_of(f, i);
    return busy_s / 3600;
}

static void print_rest(FILE *out, const fleet_result *f, const replay_result *t)
{
    fprintf(out,
            "\nMemory: %s blocks of all workers; %.1f %% active and %.1f %% cached on average\n",
            report_number(t->blocks.total), 100 * t->mean_active / (double)t->blocks.total,
            100 * t->mean_cached / (double)t->blocks.total);
    fprintf(out, "Preemptions: %s, with %s tokens computed again\n", report_number(t->preemptions),
            report_number(t->recomputed_tokens));
    fprintf(out, "Cost: %.2f GPU hours of %s GPUs; %.2f of them in steps", f->members.gpu_hours,
            report_number(num_gpus(f)), busy_gpu_hours(f));
    if (f->members.cost > 0)
        fprintf(out, "; price %.2f", f->members.cost);
    fprintf(out, "\n");
}

void fleet_report_print(FILE *out, const report_subject *subject, const char *router,
                        fleet_result *f)
{
    if (f->num_workers == 1) {
        report_print(out, subject, &f->total);
        shared_report_print(out, f);
        return;
    }
    replay_result whole = f->total; /* busy is told as a share of the time of one engine */
    whole.busy_s /= f->num_workers;
    report_print_head(out, subject, &whole);
    report_print_hits(out, &whole);
    report_print_times(out, &whole);
    print_workers(out, f, router);
    shared_report_print(out, f);
    members_report_print(out, &f->members);
    print_rest(out, f, &whole);
}

/* ---- for programs ------------------------------------------------------------------ */

static json_t *spread_json(spread s)
{
    return json_pack("{s:f,s:f,s:f,s:f}", "min", s.least, "mean", s.mean, "max", s.most,
                     "variation", s.variation);
}

static json_t *worker_json(const fleet_result *f, uint32_t i)
{
    const replay_result *r = &f->workers[i];
    json_t *o = json_object();
    json_object_set_new(o, "worker", report_integer(i));
    if (f->num_pools > 0)
        json_object_set_new(o, "pool", report_integer(pool_of(f, i)));
    if (f->has_transfers) {
        json_object_set_new(o, "network_bytes", json_real(f->node_bytes[i]));
        json_object_set_new(o, "network_use", json_real(link_use_of(f, i)));
    }
    json_object_set_new(o, "routed", report_integer(f->routed[i]));
    json_object_set_new(o, "requests", report_integer(r->requests));
    json_object_set_new(o, "prompt_tokens", report_integer(r->prompt_tokens));
    json_object_set_new(o, "output_tokens", report_integer(r->output_tokens));
    json_object_set_new(o, "hit_tokens", report_integer(r->hit_tokens));
    if (f->has_shared)
        json_object_set_new(o, "shared_hit_tokens", report_integer(f->shared_hits[i]));
    json_object_set_new(o, "hit_rate", json_real(hit_rate_of(f, i)));
    json_object_set_new(o, "steps", report_integer(r->steps));
    json_object_set_new(o, "busy_s", json_real(r->busy_s));
    json_object_set_new(o, "preemptions", report_integer(r->preemptions));
    json_object_set_new(o, "max_running", report_integer(r->max_running));
    json_object_set_new(o, "max_waiting", report_integer(r->max_waiting));
    json_object_set_new(o, "mean_active_blocks", json_real(r->mean_active));
    json_object_set_new(o, "mean_cached_blocks", json_real(r->mean_cached));
    json_object_set_new(o, "unfinished", report_integer(r->unfinished));
    json_object_set_new(o, "active_blocks_at_end", report_integer(r->blocks.active));
    return o;
}

static json_t *pool_json(const fleet_result *f, uint32_t i)
{
    const fleet_pool *p = &f->pools[i];
    json_t *o = json_object();
    json_object_set_new(o, "pool", json_string(p->options));
    json_object_set_new(o, "role", json_string(pool_roles[p->role]));
    json_object_set_new(o, "num_workers", report_integer(p->num_workers));
    json_object_set_new(o, "gpu", json_string(p->gpu));
    json_object_set_new(o, "block_bytes", json_real(p->block_bytes));
    json_object_set_new(o, "busy",
                        spread_json(spread_among(f, first_of(f, i), p->num_workers, busy_of)));
    return o;
}

static json_t *times_json(distribution *d)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f}", "mean", distribution_mean(d), "p50",
                     distribution_percentile(d, 0.5), "p90", distribution_percentile(d, 0.9), "p99",
                     distribution_percentile(d, 0.99), "max", d->max);
}

static json_t *transfers_json(fleet_result *f)
{
    handoff_stats *s = &f->transfers;
    json_t *o = json_object();
    json_object_set_new(o, "prefills", report_integer(s->prefills));
    json_object_set_new(o, "transfers", report_integer(s->transfers));
    json_object_set_new(o, "failed", report_integer(s->failed));
    json_object_set_new(o, "cancelled", report_integer(s->cancelled));
    json_object_set_new(o, "expired_leases", report_integer(s->expired));
    json_object_set_new(o, "needless", report_integer(s->needless));
    json_object_set_new(o, "moved_blocks", report_integer(s->moved_blocks));
    json_object_set_new(o, "moved_bytes", json_real(s->moved_bytes));
    json_object_set_new(o, "local_tokens", report_integer(s->local_tokens));
    json_object_set_new(o, "recomputed_tokens", report_integer(s->recomputed_tokens));
    json_object_set_new(o, "max_open", report_integer(s->most_open));
    json_object_set_new(o, "move_ms", times_json(&s->move_ms));
    json_object_set_new(o, "wait_ms", times_json(&s->wait_ms));
    return o;
}

static json_t *fleet_json(fleet_result *f, const char *router)
{
    const router_view_stats *v = &f->views;
    json_t *o = json_object();
    json_t *workers = json_array();
    for (uint32_t i = 0; i < f->num_workers; i++)
        json_array_append_new(workers, worker_json(f, i));
    json_object_set_new(o, "num_workers", report_integer(f->num_workers));
    json_object_set_new(o, "router", json_string(router));
    json_object_set_new(o, "believed_tokens", report_integer(f->believed_tokens));
    json_object_set_new(o, "refused", report_integer(f->refused));
    json_object_set_new(o, "waited", report_integer(f->waited));
    json_object_set_new(o, "spread",
                        json_pack("{s:o,s:o,s:o}", "requests", spread_json(spread_of(f, routed_of)),
                                  "busy", spread_json(spread_of(f, busy_of)), "hit_rate",
                                  spread_json(spread_of(f, hit_rate_of))));
    json_object_set_new(o, "cost",
                        json_pack("{s:o,s:f,s:f,s:f}", "gpus", report_integer(num_gpus(f)),
                                  "gpu_hours", f->members.gpu_hours, "busy_gpu_hours",
                                  busy_gpu_hours(f), "price", f->members.cost));
    json_object_set_new(o, "views",
                        json_pack("{s:o,s:o,s:o,s:o}", "kv_batches", report_integer(v->kv_batches),
                                  "lost_batches", report_integer(v->kv_lost), "gaps",
                                  report_integer(v->gaps), "resyncs", report_integer(v->resyncs)));
    json_t *pools = json_array();
    for (uint32_t i = 0; i < f->num_pools; i++)
        json_array_append_new(pools, pool_json(f, i));
    json_object_set_new(o, "pools", pools);
    if (f->has_transfers)
        json_object_set_new(o, "transfers", transfers_json(f));
    shared_report_json(o, f);
    json_object_set_new(o, "workers", workers);
    members_report_json(o, &f->members);
    return o;
}

json_t *fleet_report_tree(const report_subject *subject, const char *router, fleet_result *f,
                          json_t *past)
{
    json_t *o = report_tree(subject, &f->total);
    if (f->num_workers > 1) {
        const ideal_losses *l = &f->total.losses;
        json_t *losses = json_object_get(o, "losses");
        json_object_set_new(losses, "wrong_worker_tokens", report_integer(l->wrong_worker));
        json_object_set_new(losses, "stale_view_tokens", report_integer(l->stale));
        json_t *fleet = fleet_json(f, router);
        if (past != NULL)
            json_object_set_new(fleet, "history", past);
        json_object_set_new(o, "fleet", fleet);
    } else if (f->has_shared) {
        json_t *fleet = json_object();
        shared_report_json(fleet, f);
        json_object_set_new(o, "fleet", fleet);
    }
    return o;
}

char *fleet_report_json(const report_subject *subject, const char *router, fleet_result *result)
{
    json_t *tree = fleet_report_tree(subject, router, result, NULL);
    char *text = json_dumps(tree, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(tree);
    return text;
}
