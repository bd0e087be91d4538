#include "results.h"

#include "output/distribution.h"
#include "output/json_print.h"

#include <stdlib.h>

double gpu_rounds_median(const gpu_rounds *rounds)
{
    gpu_rounds sorted = *rounds;
    if (rounds->count == 0)
        return 0;
    qsort(sorted.values, sorted.count, sizeof *sorted.values, compare_doubles);
    return sorted.values[sorted.count / 2];
}

double gpu_results_add(gpu_results *results, const char *name, const char *unit, uint64_t piece,
                       const gpu_rounds *rounds, double limit, double goal)
{
    if (results->count == GPU_MOST_RESULTS || rounds->count == 0)
        return 0;
    gpu_rounds sorted = *rounds;
    gpu_result *r = &results->all[results->count++];
    qsort(sorted.values, sorted.count, sizeof *sorted.values, compare_doubles);
    *r = (gpu_result){.unit = unit, .piece = piece, .limit = limit, .goal = goal};
    (void)snprintf(r->name, sizeof r->name, "%s", name);
    r->median = sorted.values[sorted.count / 2];
    r->low = sorted.values[0];
    r->high = sorted.values[sorted.count - 1];
    r->rounds = sorted.count;
    r->section = results->section;
    r->is_first = results->count == 1 || results->all[results->count - 2].section != r->section;
    if (goal <= 0)
        r->is_met = true;
    else if (limit > 0)
        r->is_met = 100 * r->median >= goal * limit;
    else
        r->is_met = r->median < goal;
    return r->median;
}

bool gpu_results_are_met(const gpu_results *results)
{
    for (uint32_t i = 0; i < results->count; i++)
        if (!results->all[i].is_met)
            return false;
    return true;
}

static void format_piece(uint64_t piece, char *text, size_t bytes)
{
    if (piece == 0)
        (void)snprintf(text, bytes, "%s", "");
    else if (piece % (1 << 20) == 0)
        (void)snprintf(text, bytes, "%llu MiB", (unsigned long long)piece >> 20);
    else if (piece % (1 << 10) == 0)
        (void)snprintf(text, bytes, "%llu KiB", (unsigned long long)piece >> 10);
    else
        (void)snprintf(text, bytes, "%llu B", (unsigned long long)piece);
}

static void print_row(const gpu_result *r, FILE *out)
{
    char piece[32];
    format_piece(r->piece, piece, sizeof piece);
    (void)fprintf(out, "  %-48s %8s %9.2f %-4s (%.2f to %.2f, %u rounds)", r->name, piece,
                  r->median, r->unit, r->low, r->high, r->rounds);
    if (r->limit > 0)
        (void)fprintf(out, "  %5.1f %% of %.1f", 100 * r->median / r->limit, r->limit);
    if (r->goal > 0)
        (void)fprintf(out, "  %s %g: %s", r->limit > 0 ? "goal" : "goal below", r->goal,
                      r->is_met ? "met" : "NOT MET");
    (void)fputc('\n', out);
}

void gpu_results_print(const gpu_results *results, FILE *out)
{
    for (uint32_t i = 0; i < results->count; i++) {
        if (results->all[i].is_first)
            (void)fprintf(out, "%s%s\n", i == 0 ? "" : "\n", results->all[i].section);
        print_row(&results->all[i], out);
    }
}

void gpu_results_print_json(const gpu_results *results, FILE *out)
{
    (void)fputs("\"results\":[", out);
    for (uint32_t i = 0; i < results->count; i++) {
        const gpu_result *r = &results->all[i];
        (void)fputs(i == 0 ? "\n{\"section\":" : ",\n{\"section\":", out);
        json_print_text(out, r->section);
        (void)fputs(",\"name\":", out);
        json_print_text(out, r->name);
        (void)fprintf(out,
                      ",\"unit\":\"%s\",\"piece\":%llu,\"median\":%.4f,\"low\":%.4f,\"high\":%.4f,"
                      "\"rounds\":%u,\"limit\":%.4f,\"goal\":%.2f,\"met\":%s}",
                      r->unit, (unsigned long long)r->piece, r->median, r->low, r->high, r->rounds,
                      r->limit, r->goal, r->is_met ? "true" : "false");
    }
    (void)fputs("]", out);
}
