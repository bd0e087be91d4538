#include "replay/report.h"

/* ---- for people ------------------------------------------------------------- */

static void print_source(FILE *out, const char *name, uint64_t tokens, uint64_t all)
{
    fprintf(out, "  %-15s %6.2f %%  %15s tokens\n", name, 100 * report_share(tokens, all),
            report_number(tokens));
}

static void print_tier(FILE *out, const tiers_tally *t, uint64_t bytes_per_block)
{
    double total = t->total > 0 ? (double)t->total : 1;
    double gib = (double)bytes_per_block / (1 << 30);
    fprintf(out, "  %-5s %12s %9.1f %9.1f %% %9.1f %% %10.1f %10.1f\n", t->name,
            report_number(t->total), (double)t->total * gib, 100 * t->mean_cached / total,
            100 * t->mean_active / total, (double)t->in_blocks * gib, (double)t->out_blocks * gib);
}

/* What did not come, or was not put there, and why. */
static void print_decisions(FILE *out, const tiers_tally *t)
{
    if (t->skipped_tokens > 0)
        fprintf(out, "  %s: %s tokens of this tier were computed, because computing was faster\n",
                t->name, report_number(t->skipped_tokens));
    if (t->late_blocks > 0)
        fprintf(out, "  %s: %s blocks came too late\n", t->name, report_number(t->late_blocks));
    if (t->failed_blocks > 0)
        fprintf(out, "  %s: %s blocks failed\n", t->name, report_number(t->failed_blocks));
    if (t->refused_blocks > 0)
        fprintf(out, "  %s: %s blocks not admitted, or without room\n", t->name,
                report_number(t->refused_blocks));
}

void tiers_report_print(FILE *out, const replay_result *r, uint64_t bytes_per_block)
{
    const tiers_result *t = &r->tiers;
    if (t->num_tiers == 0)
        return;
    fprintf(out, "\nPrompt tokens from\n");
    print_source(out, "GPU", t->gpu_hit_tokens, r->prompt_tokens);
    for (uint32_t i = 0; i < t->num_tiers; i++)
        print_source(out, t->tiers[i].name, t->tiers[i].hit_tokens, r->prompt_tokens);
    print_source(out, "computed", t->computed_tokens, r->prompt_tokens);
    fprintf(out, "\nTiers       blocks       GiB      cached      active     in GiB    out GiB\n");
    for (uint32_t i = 0; i < t->num_tiers; i++)
        print_tier(out, &t->tiers[i], bytes_per_block);
    for (uint32_t i = 0; i < t->num_tiers; i++)
        print_decisions(out, &t->tiers[i]);
    if (t->saved_preemptions > 0)
        fprintf(out,
                "  preempted requests: saved in %s of %s preemptions; %s tokens restored and "
                "not computed again\n",
                report_number(t->saved_preemptions), report_number(r->preemptions),
                report_number(t->restored_tokens));
    if (t->failed_loads > 0)
        fprintf(out, "  loads that failed: of %s requests\n", report_number(t->failed_loads));
    if (t->wrong_blocks > 0)
        fprintf(out, "  WRONG BYTES in %s loaded blocks\n", report_number(t->wrong_blocks));
    fprintf(out, "  computing what was loaded: %.1f s; waiting for it: %.1f s; saved: %.1f s\n",
            t->recompute_s, t->wait_s, t->recompute_s - t->wait_s);
}

/* ---- for programs ------------------------------------------------------------ */

static json_t *tier_json(const tiers_tally *t, uint64_t bytes_per_block)
{
    json_t *o = json_pack("{s:s,s:o,s:o,s:o,s:o,s:f,s:f,s:f}", "tier", t->name, "blocks",
                          report_integer(t->total), "empty", report_integer(t->usage.empty),
                          "cached", report_integer(t->usage.cached), "active",
                          report_integer(t->usage.active), "mean_empty", t->mean_empty,
                          "mean_cached", t->mean_cached, "mean_active", t->mean_active);
    json_object_set_new(o, "max_active", report_integer(t->most.active));
    json_object_set_new(o, "hit_tokens", report_integer(t->hit_tokens));
    json_object_set_new(o, "in_blocks", report_integer(t->in_blocks));
    json_object_set_new(o, "out_blocks", report_integer(t->out_blocks));
    json_object_set_new(o, "in_bytes", report_integer(t->in_blocks * bytes_per_block));
    json_object_set_new(o, "out_bytes", report_integer(t->out_blocks * bytes_per_block));
    json_object_set_new(o, "skipped_tokens", report_integer(t->skipped_tokens));
    json_object_set_new(o, "late_blocks", report_integer(t->late_blocks));
    json_object_set_new(o, "failed_blocks", report_integer(t->failed_blocks));
    json_object_set_new(o, "refused_blocks", report_integer(t->refused_blocks));
    return o;
}

void tiers_report_json(json_t *report, const replay_result *r, uint64_t bytes_per_block)
{
    const tiers_result *t = &r->tiers;
    if (t->num_tiers == 0)
        return;
    json_t *list = json_array();
    json_t *hits = json_pack("{s:o}", "gpu", report_integer(t->gpu_hit_tokens));
    json_t *rates = json_pack("{s:f}", "gpu", report_share(t->gpu_hit_tokens, r->prompt_tokens));
    uint64_t loaded_tokens = 0;
    for (uint32_t i = 0; i < t->num_tiers; i++) {
        const tiers_tally *tier = &t->tiers[i];
        json_array_append_new(list, tier_json(tier, bytes_per_block));
        json_object_set_new(hits, tier->label, report_integer(tier->hit_tokens));
        json_object_set_new(rates, tier->label,
                            json_real(report_share(tier->hit_tokens, r->prompt_tokens)));
        loaded_tokens += tier->hit_tokens;
    }
    json_object_set_new(hits, "computed", report_integer(t->computed_tokens));
    json_object_set_new(report, "hits_by_tier", hits);
    json_object_set_new(report, "tier_hit_rate", rates);
    json_object_set_new(report, "tier_time",
                        json_pack("{s:o,s:f,s:f,s:f,s:o,s:o}", "loaded_tokens",
                                  report_integer(loaded_tokens), "recompute_s", t->recompute_s,
                                  "wait_s", t->wait_s, "saved_s", t->recompute_s - t->wait_s,
                                  "failed_loads", report_integer(t->failed_loads), "wrong_blocks",
                                  report_integer(t->wrong_blocks)));
    json_object_set_new(report, "tier_saves",
                        json_pack("{s:o,s:o,s:o}", "preemptions",
                                  report_integer(t->saved_preemptions), "saved_tokens",
                                  report_integer(t->saved_tokens), "restored_tokens",
                                  report_integer(t->restored_tokens)));
    json_object_set_new(report, "tiers", list);
}
