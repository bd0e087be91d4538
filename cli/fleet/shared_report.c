#include "shared_report.h"

#include "replay/report.h"

void shared_report_print(FILE *out, fleet_result *f)
{
    shared_stats *s = &f->shared;
    const shared_tier_counts *t = &s->tier;
    uint64_t hits = f->total.hit_tokens;
    if (!f->has_shared)
        return;
    fprintf(out, "\n%s: %s blocks of %s bytes\n",
            s->is_peers ? "Host memory of all workers" : "Shared tier", report_number(t->places),
            report_number(s->block_bytes));
    fprintf(out, "  hits                     %9.2f %% of tokens; %.2f %% were in the GPU\n",
            100 * report_share(f->shared_tokens, f->total.prompt_tokens),
            100 * report_share(hits - f->shared_tokens, f->total.prompt_tokens));
    if (s->is_peers)
        fprintf(out, "  of other workers         %9.2f %% of tokens\n",
                100 * report_share(f->peer_tokens, f->total.prompt_tokens));
    fprintf(out, "  loads                    %9s of %s blocks, %.3f GB; at most %s at a time\n",
            report_number(s->loads), report_number(s->loaded_blocks), s->load_bytes * 1e-9,
            report_number(s->most_loads));
    fprintf(out, "  waited for               mean %.3f ms, p50 %.3f ms, p99 %.3f ms\n",
            distribution_mean(&s->load_ms), distribution_percentile(&s->load_ms, 0.5),
            distribution_percentile(&s->load_ms, 0.99));
    fprintf(out, "  stores                   %9s of %s blocks, %.3f GB\n", report_number(s->stores),
            report_number(t->stores), s->store_bytes * 1e-9);
    fprintf(out, "  evicted                  %9s blocks; %s are stored\n",
            report_number(t->evicted), report_number(t->stored));
    if (t->refused > 0)
        fprintf(out, "  not stored               %9s blocks: no place, or an outage\n",
                report_number(t->refused));
    if (s->outages > 0)
        fprintf(
            out,
            "  outages                  %9s: %s loads and %s blocks of stores failed, %s blocks "
            "lost\n",
            report_number(s->outages), report_number(s->failed_loads), report_number(t->failed),
            report_number(t->lost));
}

static json_t *times_json(distribution *d)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f}", "mean", distribution_mean(d), "p50",
                     distribution_percentile(d, 0.5), "p90", distribution_percentile(d, 0.9), "p99",
                     distribution_percentile(d, 0.99), "max", d->max);
}

void shared_report_json(json_t *fleet, fleet_result *f)
{
    shared_stats *s = &f->shared;
    const shared_tier_counts *t = &s->tier;
    if (!f->has_shared)
        return;
    json_t *o = json_object();
    json_object_set_new(o, "blocks", report_integer(t->places));
    json_object_set_new(o, "block_bytes", report_integer(s->block_bytes));
    json_object_set_new(o, "hit_tokens", report_integer(f->shared_tokens));
    if (s->is_peers) {
        json_object_set_new(o, "peer_hit_tokens", report_integer(f->peer_tokens));
        json_object_set_new(o, "peer_blocks", report_integer(s->peer_blocks));
    }
    json_object_set_new(o, "loads", report_integer(s->loads));
    json_object_set_new(o, "failed_loads", report_integer(s->failed_loads));
    json_object_set_new(o, "loaded_blocks", report_integer(s->loaded_blocks));
    json_object_set_new(o, "failed_blocks", report_integer(s->failed_blocks));
    json_object_set_new(o, "loaded_bytes", json_real(s->load_bytes));
    json_object_set_new(o, "max_loads", report_integer(s->most_loads));
    json_object_set_new(o, "load_ms", times_json(&s->load_ms));
    json_object_set_new(o, "stores", report_integer(s->stores));
    json_object_set_new(o, "stored_blocks", report_integer(t->stores));
    json_object_set_new(o, "failed_stored_blocks", report_integer(t->failed));
    json_object_set_new(o, "stored_bytes", json_real(s->store_bytes));
    json_object_set_new(o, "evicted_blocks", report_integer(t->evicted));
    json_object_set_new(o, "refused_blocks", report_integer(t->refused));
    json_object_set_new(o, "lost_blocks", report_integer(t->lost));
    json_object_set_new(o, "blocks_at_end", report_integer(t->stored));
    json_object_set_new(o, "outages", report_integer(s->outages));
    json_object_set_new(fleet, s->is_peers ? "peer_memory" : "shared_tier", o);
}
