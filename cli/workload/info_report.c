/* info_report.c - a trace's figures as text and as JSON. */
#include "info.h"

#include "replay/report.h"

#include <string.h>

static double rate_of(const trace_info *info)
{
    return info->last_s > 0 && info->num_arrivals > 1
               ? (double)(info->num_arrivals - 1) / info->last_s
               : 0;
}

static double share_of(uint64_t part, double whole)
{
    return whole > 0 ? (double)part / whole : 0;
}

/* ---- text ------------------------------------------------------------------------- */

static void print_lengths(FILE *out, const char *name, distribution *d)
{
    static const double shares[] = {0.5, 0.9, 0.99, 1};
    fprintf(out, "  %-8s %10.1f", name, distribution_mean(d));
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        fprintf(out, " %10s", report_number((uint64_t)distribution_percentile(d, shares[i])));
    fprintf(out, " %16s\n", report_number((uint64_t)d->sum));
}

static void print_sessions(FILE *out, trace_info *info)
{
    distribution *t = &info->turns;
    if (t->count == 0) {
        fprintf(out, "Sessions   none\n");
        return;
    }
    fprintf(out,
            "Sessions   %s with %.2f turns on average (p50 %.0f, p90 %.0f, p99 %.0f, max %.0f)\n",
            report_number(t->count), distribution_mean(t), distribution_percentile(t, 0.5),
            distribution_percentile(t, 0.9), distribution_percentile(t, 0.99), t->max);
}

static void print_loop(FILE *out, trace_info *info)
{
    distribution *d = &info->thinks;
    if (info->num_waiting == 0) {
        fprintf(out, "Times      open loop: every request comes at its time\n");
        return;
    }
    fprintf(out,
            "Times      closed loop: %s requests wait for the end of others, and then %.2f s on "
            "average (p50 %.2f, p90 %.2f, p99 %.2f, max %.2f)\n",
            report_number(info->num_waiting), distribution_mean(d), distribution_percentile(d, 0.5),
            distribution_percentile(d, 0.9), distribution_percentile(d, 0.99), d->max);
}

static void print_contents(FILE *out, const trace_info *info)
{
    if (!info->has_contents) {
        fprintf(out, "Contents   unknown: the trace has only lengths, and prompts share nothing\n");
        return;
    }
    if (info->blocks > 0)
        fprintf(out, "Contents   ids of %u tokens: %s, %s of them different\n", info->id_block_size,
                report_number(info->blocks), report_number(info->ids.count));
    else
        fprintf(out, "Contents   known\n");
    if (!info->has_ideal) {
        fprintf(out, "Shared     not known: too many different contents\n");
        return;
    }
    fprintf(out,
            "Shared     %.2f %% of the prompt tokens came before (an infinite cache finds them)",
            100 * share_of(info->shared_tokens, info->prompts.sum));
    if (info->blocks > 0)
        fprintf(out, ", %.2f %% of the ids",
                100 * share_of(info->shared_blocks, (double)info->blocks));
    fputc('\n', out);
}

static void print_prefixes(FILE *out, const trace_info *info)
{
    if (info->num_prefixes == 0)
        return;
    fprintf(out, "\nLargest prefixes\n  %12s %12s %16s %20s\n", "tokens", "prompts", "% of prompts",
            "% of prompt tokens");
    for (uint32_t i = 0; i < info->num_prefixes; i++) {
        const shared_prefix *p = &info->prefixes[i];
        double tokens = (double)p->num_tokens * (double)p->num_prompts;
        fprintf(out, "  %12s %12s %16.2f %20.2f\n", report_number(p->num_tokens),
                report_number(p->num_prompts),
                100 * share_of(p->num_prompts, (double)info->num_requests),
                info->prompts.sum > 0 ? 100 * tokens / info->prompts.sum : 0);
    }
}

void info_print(FILE *out, trace_info *info)
{
    fprintf(out, "Trace      %s (%s)\n", info->trace, trace_format_name(info->format));
    if (info->num_bad > 0)
        fprintf(out, "Invalid    %s records skipped\n", report_number(info->num_bad));
    fprintf(out, "Requests   %s", report_number(info->num_requests));
    if (info->num_arrivals < info->num_requests)
        fprintf(out, "; %s arrivals", report_number(info->num_arrivals));
    fprintf(out, " in %.3f s: %.4g a second, %s in the busiest minute\n", info->last_s,
            rate_of(info), report_number(info->most_in_minute));
    print_loop(out, info);
    print_sessions(out, info);
    if (info->num_priorities > 0)
        fprintf(out, "Priority   %s requests have one\n", report_number(info->num_priorities));
    if (info->num_pins > 0)
        fprintf(out, "Pins       %s requests have one\n", report_number(info->num_pins));
    print_contents(out, info);
    fprintf(out, "\nTokens    %10s %10s %10s %10s %10s %16s\n", "mean", "p50", "p90", "p99", "max",
            "sum");
    print_lengths(out, "prompt", &info->prompts);
    print_lengths(out, "output", &info->outputs);
    print_prefixes(out, info);
}

/* ---- JSON ------------------------------------------------------------------------- */

static json_t *distribution_json(distribution *d)
{
    if (d->count == 0)
        return json_null();
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "count", (json_int_t)d->count, "mean",
                     distribution_mean(d), "p50", distribution_percentile(d, 0.5), "p90",
                     distribution_percentile(d, 0.9), "p99", distribution_percentile(d, 0.99),
                     "max", d->max);
}

static json_t *prefixes_json(const trace_info *info)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < info->num_prefixes; i++)
        json_array_append_new(list, json_pack("{s:I, s:I}", "tokens",
                                              (json_int_t)info->prefixes[i].num_tokens, "prompts",
                                              (json_int_t)info->prefixes[i].num_prompts));
    return list;
}

static json_t *count_json(bool is_known, uint64_t count)
{
    return is_known ? json_integer((json_int_t)count) : json_null();
}

json_t *info_json(trace_info *info)
{
    json_t *root = json_object();
    json_object_set_new(root, "trace", json_string(info->trace));
    json_object_set_new(root, "format", json_string(trace_format_name(info->format)));
    json_object_set_new(root, "invalid_records", json_integer((json_int_t)info->num_bad));
    json_object_set_new(root, "requests", json_integer((json_int_t)info->num_requests));
    json_object_set_new(root, "arrivals", json_integer((json_int_t)info->num_arrivals));
    json_object_set_new(root, "waiting_requests", json_integer((json_int_t)info->num_waiting));
    json_object_set_new(root, "span_s", json_real(info->last_s));
    json_object_set_new(root, "arrivals_per_s", json_real(rate_of(info)));
    json_object_set_new(root, "most_arrivals_in_a_minute",
                        json_integer((json_int_t)info->most_in_minute));
    json_object_set_new(root, "prompt_tokens", json_integer((json_int_t)info->prompts.sum));
    json_object_set_new(root, "output_tokens", json_integer((json_int_t)info->outputs.sum));
    json_object_set_new(root, "prompt_length", distribution_json(&info->prompts));
    json_object_set_new(root, "output_length", distribution_json(&info->outputs));
    json_object_set_new(root, "turns", distribution_json(&info->turns));
    json_object_set_new(root, "think_s", distribution_json(&info->thinks));
    json_object_set_new(root, "requests_with_priority",
                        json_integer((json_int_t)info->num_priorities));
    json_object_set_new(root, "requests_with_pin", json_integer((json_int_t)info->num_pins));
    json_object_set_new(root, "contents", json_string(info->has_contents ? "known" : "unknown"));
    json_object_set_new(root, "id_block_size", count_json(info->blocks > 0, info->id_block_size));
    json_object_set_new(root, "ids", count_json(info->blocks > 0, info->blocks));
    json_object_set_new(root, "different_ids", count_json(info->blocks > 0, info->ids.count));
    json_object_set_new(root, "shared_ids",
                        count_json(info->blocks > 0 && info->has_ideal, info->shared_blocks));
    json_object_set_new(root, "shared_tokens", count_json(info->has_ideal, info->shared_tokens));
    json_object_set_new(root, "shared_share",
                        info->has_ideal
                            ? json_real(share_of(info->shared_tokens, info->prompts.sum))
                            : json_null());
    json_object_set_new(root, "prefixes", prefixes_json(info));
    return root;
}
