#include "report.h"

#include "members_report.h"

#include <math.h>

/* ---- how even the load is ------------------------------------------------------- */

typedef struct spread {
    double least;
    double mean;
    double most;
    double variation; /* standard deviation / mean; 0: the same everywhere */
} spread;

static spread spread_of(const fleet_result *f, double (*value)(const fleet_result *f, uint32_t i))
{
    spread s = {.least = HUGE_VAL};
    double squares = 0;
    for (uint32_t i = 0; i < f->num_workers; i++) {
        double v = value(f, i);
        s.least = v < s.least ? v : s.least;
        s.most = v > s.most ? v : s.most;
        s.mean += v / f->num_workers;
    }
    for (uint32_t i = 0; i < f->num_workers; i++) {
        double off = value(f, i) - s.mean;
        squares += off * off / f->num_workers;
    }
    s.variation = s.mean > 0 ? sqrt(squares) / s.mean : 0;
    return s;
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

/* ---- for people ------------------------------------------------------------------ */

static void print_spread(FILE *out, const char *name, spread s, double scale, const char *unit)
{
    fprintf(out, "  %-24s %9.1f%s %9.1f%s %9.1f%s %9.2f\n", name, s.least * scale, unit,
            s.mean * scale, unit, s.most * scale, unit, s.variation);
}

static void print_workers(FILE *out, const fleet_result *f, const char *router)
{
    const replay_result *t = &f->total;
    fprintf(out, "\nWorkers: %s, router %s\n", report_number(f->num_workers), router);
    fprintf(out, "                              least       mean       most  variation\n");
    print_spread(out, "requests", spread_of(f, routed_of), 1, "  ");
    print_spread(out, "busy", spread_of(f, busy_of), 100, " %");
    print_spread(out, "hit rate", spread_of(f, hit_rate_of), 100, " %");
    if (f->believed_tokens > 0)
        fprintf(out, "  the router believed in   %.2f %% of tokens, and %.2f %% were found\n",
                100 * report_share(f->believed_tokens, t->prompt_tokens),
                100 * report_share(t->hit_tokens, t->prompt_tokens));
    if (f->waited > 0 || f->refused > 0)
        fprintf(out, "  %s times a request had to wait in the router; %s were refused\n",
                report_number(f->waited), report_number(f->refused));
}

static void print_rest(FILE *out, const replay_result *t)
{
    fprintf(out,
            "\nMemory: %s blocks of all workers; %.1f %% active and %.1f %% cached on average\n",
            report_number(t->blocks.total), 100 * t->mean_active / (double)t->blocks.total,
            100 * t->mean_cached / (double)t->blocks.total);
    fprintf(out, "Preemptions: %s, with %s tokens computed again\n", report_number(t->preemptions),
            report_number(t->recomputed_tokens));
}

void fleet_report_print(FILE *out, const report_subject *subject, const char *router,
                        fleet_result *f)
{
    if (f->num_workers == 1) {
        report_print(out, subject, &f->total);
        return;
    }
    replay_result whole = f->total; /* busy is told as a share of the time of one engine */
    whole.busy_s /= f->num_workers;
    report_print_head(out, subject, &whole);
    report_print_hits(out, &whole);
    report_print_times(out, &whole);
    print_workers(out, f, router);
    members_report_print(out, &f->members);
    print_rest(out, &whole);
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
    json_object_set_new(o, "routed", report_integer(f->routed[i]));
    json_object_set_new(o, "requests", report_integer(r->requests));
    json_object_set_new(o, "prompt_tokens", report_integer(r->prompt_tokens));
    json_object_set_new(o, "output_tokens", report_integer(r->output_tokens));
    json_object_set_new(o, "hit_tokens", report_integer(r->hit_tokens));
    json_object_set_new(o, "hit_rate", json_real(hit_rate_of(f, i)));
    json_object_set_new(o, "steps", report_integer(r->steps));
    json_object_set_new(o, "busy_s", json_real(r->busy_s));
    json_object_set_new(o, "preemptions", report_integer(r->preemptions));
    json_object_set_new(o, "max_running", report_integer(r->max_running));
    json_object_set_new(o, "max_waiting", report_integer(r->max_waiting));
    json_object_set_new(o, "mean_active_blocks", json_real(r->mean_active));
    json_object_set_new(o, "mean_cached_blocks", json_real(r->mean_cached));
    json_object_set_new(o, "unfinished", report_integer(r->unfinished));
    return o;
}

static json_t *fleet_json(const fleet_result *f, const char *router)
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
    json_object_set_new(o, "views",
                        json_pack("{s:o,s:o,s:o,s:o}", "kv_batches", report_integer(v->kv_batches),
                                  "lost_batches", report_integer(v->kv_lost), "gaps",
                                  report_integer(v->gaps), "resyncs", report_integer(v->resyncs)));
    json_object_set_new(o, "workers", workers);
    members_report_json(o, &f->members);
    return o;
}

char *fleet_report_json(const report_subject *subject, const char *router, fleet_result *f)
{
    json_t *o = report_tree(subject, &f->total);
    if (f->num_workers > 1) {
        const ideal_losses *l = &f->total.losses;
        json_t *losses = json_object_get(o, "losses");
        json_object_set_new(losses, "wrong_worker_tokens", report_integer(l->wrong_worker));
        json_object_set_new(losses, "stale_view_tokens", report_integer(l->stale));
        json_object_set_new(o, "fleet", fleet_json(f, router));
    }
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(o);
    return text;
}
