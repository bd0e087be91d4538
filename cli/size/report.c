/* report.c - the answer of a search: a table of combinations, the command that checks the answer,
 * and why one worker fewer does not do. */
#include "size.h"

#include "replay/report.h"
#include "replay/verdict.h"

#include <stdlib.h>
#include <string.h>

static const char *const STATES[] = {"open", "met", "unmet", "more", "failed", "stopped"};

/* ---- texts ------------------------------------------------------------------------ */

/* A word of a command line, quoted if a shell would change it. */
static void print_word(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_=./,:+%@";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word != '\0'; word++)
        fputs(*word == '\'' ? "'\\''" : (char[2]){*word, '\0'}, out);
    fputc('\'', out);
}

static void print_option(FILE *out, const option *opt, const char *value)
{
    if (opt->kind == OPTION_SWITCH) {
        fprintf(out, " --%s%s", strcmp(value, "on") == 0 ? "" : "no-", opt->name);
        return;
    }
    fprintf(out, " --%s ", opt->name);
    print_word(out, value);
}

/* The command that runs such a fleet; to be freed. NULL: no memory. */
static char *command_of(const size *s, uint32_t combination, uint32_t workers)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL)
        return NULL;
    fprintf(out, "quire fleet --workers %u", workers);
    for (uint32_t i = 0; i < s->grid->num_axes; i++)
        print_option(out, s->grid->axes[i].option, sweep_value(s->grid, combination, i));
    for (uint32_t i = 0; i < s->settings.num_traces; i++) {
        fputc(' ', out);
        print_word(out, s->settings.traces[i]);
    }
    return fclose(out) == 0 ? text : NULL;
}

/* "3 GPUs", "1 GPU". */
static void print_gpus(FILE *out, uint32_t gpus)
{
    fprintf(out, "%s GPU%s", report_number(gpus), gpus == 1 ? "" : "s");
}

static void print_workers(FILE *out, uint32_t workers)
{
    fprintf(out, "%s worker%s", report_number(workers), workers == 1 ? "" : "s");
}

/* The limits that a run breaks: "ttft_p99 is 3.4 s (at most 2.0 s)". */
static void print_broken(FILE *out, const size *s, const size_run *run)
{
    const char *comma = "";
    for (uint32_t i = 0; i < s->settings.slo.num; i++) {
        const slo_target *t = &s->settings.slo.list[i];
        if (run->values_ms[i] <= t->limit_ms)
            continue;
        fprintf(out, "%s%s is %s (at most %s)", comma, t->name, verdict_time(run->values_ms[i]),
                verdict_time(t->limit_ms));
        comma = ", ";
    }
    if (run->refused > 0)
        fprintf(out, "%sthe router refuses %s requests", comma, report_number(run->refused));
}

/* What a combination has of the axes that vary: "gpu H100, tp 2". */
static void print_combination(FILE *out, const size *s, uint32_t combination)
{
    char text[512];
    sweep_plot_series(s->grid, s->grid->num_axes, combination, text, sizeof text);
    if (text[0] != '\0')
        fprintf(out, ", %s", text);
}

/* ---- the table --------------------------------------------------------------------- */

static int axis_width(const sweep *grid, uint32_t axis)
{
    size_t width = strlen(grid->axes[axis].option->name);
    for (uint32_t i = 0; i < grid->axes[axis].list.num_values; i++) {
        size_t length = strlen(grid->axes[axis].list.values[i]);
        width = length > width ? length : width;
    }
    return (int)width;
}

static void print_head(FILE *out, const size *s)
{
    for (uint32_t a = 0; a < s->grid->num_axes; a++)
        if (sweep_varies(s->grid, a))
            fprintf(out, "%*s ", axis_width(s->grid, a), s->grid->axes[a].option->name);
    fprintf(out, "%8s %8s", "workers", "GPUs");
    for (uint32_t i = 0; i < s->settings.slo.num; i++)
        fprintf(out, " %10s", s->settings.slo.list[i].name);
    fprintf(out, " %8s %10s%s\n", "hit %", "GPU-hours",
            s->settings.has_prices ? "       cost" : "");
}

/* Why a combination has no row of numbers. */
static void print_state(FILE *out, const size *s, const size_combination *c)
{
    uint32_t least = search_least(&c->search);
    if (c->state == SIZE_FAILED)
        fprintf(out, "  %s\n", c->error != NULL ? c->error : "failed");
    else if (c->search.most == 0)
        fprintf(out, "  a worker has %u GPUs, more than --max-gpus %u\n", c->tp,
                s->settings.max_gpus);
    else if (c->state == SIZE_UNMET)
        fprintf(out, "  not with %u workers (--max-gpus %u)\n", c->search.most,
                s->settings.max_gpus);
    else if (c->state == SIZE_MORE)
        fprintf(out, "  %u GPUs or more\n", size_gpus(c, least));
    else
        fprintf(out, "  interrupted\n");
}

static void print_row(FILE *out, const size *s, uint32_t combination)
{
    const size_combination *c = &s->combinations[combination];
    for (uint32_t a = 0; a < s->grid->num_axes; a++)
        if (sweep_varies(s->grid, a))
            fprintf(out, "%*s ", axis_width(s->grid, a), sweep_value(s->grid, combination, a));
    if (c->state != SIZE_MET) {
        print_state(out, s, c);
        return;
    }
    uint32_t best = search_best(&c->search);
    const size_run *run = size_find_run(c, best);
    fprintf(out, "%8u %8u", best, size_gpus(c, best));
    for (uint32_t i = 0; i < s->settings.slo.num; i++)
        fprintf(out, " %10s", verdict_time(run->values_ms[i]));
    fprintf(out, " %8.2f %10.3f", 100 * run->hit_rate, run->gpu_hours);
    if (s->settings.has_prices)
        fprintf(out, " %10.2f", size_cost(c, run));
    fputc('\n', out);
}

/* ---- the answer -------------------------------------------------------------------- */

/* The run with the most GPUs below the answer's, of all combinations; of equal ones the nearest to
 * the SLO. NULL: there is none. */
static const size_run *find_fewer(const size *s, uint32_t gpus, uint32_t *combination)
{
    const size_run *found = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->num_combinations; i++) {
        const size_combination *c = &s->combinations[i];
        for (uint32_t k = 0; k < c->search.num_tries; k++) {
            const size_run *run = &c->runs[k];
            uint32_t of_run = size_gpus(c, run->workers);
            if (run->is_enough || of_run >= gpus || of_run < most ||
                (found != NULL && of_run == most && run->worst >= found->worst))
                continue;
            found = run;
            most = of_run;
            *combination = i;
        }
    }
    return found;
}

/* Why fewer GPUs do not do: one worker fewer, or where there is one alone, another combination. */
static void print_fewer(FILE *out, const size *s, uint32_t combination)
{
    const size_combination *c = &s->combinations[combination];
    uint32_t best = search_best(&c->search);
    uint32_t other = combination;
    const size_run *fewer =
        best > 1 ? size_find_run(c, best - 1) : find_fewer(s, size_gpus(c, best), &other);
    if (fewer == NULL) {
        fprintf(out, "  fewer       a fleet has at least 1 worker\n");
        return;
    }
    fprintf(out, "  fewer       with ");
    print_gpus(out, size_gpus(&s->combinations[other], fewer->workers));
    fprintf(out, " (");
    print_workers(out, fewer->workers);
    if (other != combination)
        print_combination(out, s, other);
    fprintf(out, ") ");
    print_broken(out, s, fewer);
    fputc('\n', out);
}

/* The tries that contradict "more is better". */
static void print_order(FILE *out, const size *s, uint32_t combination)
{
    const size_combination *c = &s->combinations[combination];
    uint32_t best = search_best(&c->search);
    const char *comma = "";
    if (search_is_monotone(&c->search))
        return;
    fprintf(out, "  note        more workers are not always better here: with ");
    for (uint32_t w = best + 1; w <= c->search.most; w++) {
        const size_run *run = size_find_run(c, w);
        if (run == NULL || run->is_enough)
            continue;
        fprintf(out, "%s%u", comma, w);
        comma = ", ";
    }
    fprintf(out, " the SLO is not met");
    if (best > 2)
        fprintf(out, "; a number below %u that was not tried may be enough", best);
    fputc('\n', out);
}

static void print_choice(FILE *out, const size *s, const char *title, uint32_t combination)
{
    const size_combination *c = &s->combinations[combination];
    uint32_t best = search_best(&c->search);
    char *line = command_of(s, combination, best);
    fprintf(out, "\n%s: ", title);
    print_gpus(out, size_gpus(c, best));
    fprintf(out, ", ");
    print_workers(out, best);
    print_combination(out, s, combination);
    fprintf(out, "\n  run         %s\n", line != NULL ? line : "");
    print_fewer(out, s, combination);
    print_order(out, s, combination);
    free(line);
}

/* If it is neither of the two that are shown. */
static void print_cheapest(FILE *out, const size *s, const uint32_t *order, uint32_t num)
{
    uint32_t cheapest = order[0];
    double least = 0;
    for (uint32_t i = 0; i < num && s->settings.has_prices; i++) {
        const size_combination *c = &s->combinations[order[i]];
        double cost = size_cost(c, size_find_run(c, search_best(&c->search)));
        if (i == 0 || cost < least) {
            least = cost;
            cheapest = order[i];
        }
    }
    if (cheapest != order[0])
        print_choice(out, s, "Lowest cost", cheapest);
}

static void print_nearest(FILE *out, const size *s)
{
    uint32_t combination = 0;
    const size_run *run = size_nearest(s, &combination);
    if (run == NULL || run->is_enough)
        return;
    if (s->stopped != NULL)
        fprintf(out, "\nNo fleet that ran keeps the SLO. The nearest is ");
    else
        fprintf(out, "\nNo fleet of at most %u GPUs keeps the SLO. The nearest is ",
                s->settings.max_gpus);
    print_workers(out, run->workers);
    print_combination(out, s, combination);
    fprintf(out, ":\n  ");
    print_broken(out, s, run);
    fputc('\n', out);
}

void size_report_print(FILE *out, const size *s, bool is_deterministic)
{
    fprintf(out, "%s: the fewest GPUs for", s->grid->trace);
    for (uint32_t i = 0; i < s->settings.slo.num; i++)
        fprintf(out, "%s %s at most %s", i == 0 ? "" : ",", s->settings.slo.list[i].name,
                verdict_time(s->settings.slo.list[i].limit_ms));
    fprintf(out, "\n\n");
    print_head(out, s);
    for (uint32_t i = 0; i < s->num_combinations; i++)
        print_row(out, s, i);
    uint32_t *order = calloc(s->num_combinations, sizeof *order);
    uint32_t num = order != NULL ? size_order(s, order) : 0;
    if (num > 0)
        print_choice(out, s, "Answer", order[0]);
    if (num > 1)
        print_choice(out, s, "Runner-up", order[1]);
    if (num > 0)
        print_cheapest(out, s, order, num);
    else
        print_nearest(out, s);
    fprintf(out, "\n%s fleets ran", report_number(s->num_runs));
    if (!is_deterministic)
        fprintf(out, ", in %s", verdict_time(s->wall_s * 1e3));
    fputc('\n', out);
    free(order);
}

/* ---- JSON -------------------------------------------------------------------------- */

static json_t *run_object(const size *s, const size_combination *c, const size_run *run)
{
    json_t *values = json_object();
    for (uint32_t i = 0; i < s->settings.slo.num; i++)
        json_object_set_new(values, s->settings.slo.list[i].name, json_real(run->values_ms[i]));
    json_t *object =
        json_pack("{s:o,s:o,s:b,s:o,s:o,s:f,s:f}", "workers", report_integer(run->workers), "gpus",
                  report_integer(size_gpus(c, run->workers)), "is_met", run->is_enough, "values_ms",
                  values, "refused", report_integer(run->refused), "hit_rate", run->hit_rate,
                  "gpu_hours", run->gpu_hours);
    if (s->settings.has_prices)
        json_object_set_new(object, "cost", json_real(size_cost(c, run)));
    return object;
}

static json_t *combination_object(const size *s, uint32_t combination)
{
    const size_combination *c = &s->combinations[combination];
    uint32_t best = search_best(&c->search);
    json_t *options = json_object();
    json_t *runs = json_array();
    for (uint32_t i = 0; i < s->grid->num_axes; i++)
        json_object_set_new(options, s->grid->axes[i].option->name,
                            json_string(sweep_value(s->grid, combination, i)));
    for (uint32_t i = 0; i < c->search.num_tries; i++)
        json_array_append_new(runs, run_object(s, c, &c->runs[i]));
    json_t *object = json_pack("{s:o,s:s,s:b,s:o}", "options", options, "state", STATES[c->state],
                               "is_monotone", search_is_monotone(&c->search), "runs", runs);
    if (c->state == SIZE_MET) {
        char *line = command_of(s, combination, best);
        json_object_set_new(object, "workers", report_integer(best));
        json_object_set_new(object, "gpus", report_integer(size_gpus(c, best)));
        json_object_set_new(object, "command", json_string(line));
        free(line);
    } else if (c->state == SIZE_MORE) {
        json_object_set_new(object, "min_gpus",
                            report_integer(size_gpus(c, search_least(&c->search))));
    } else if (c->state == SIZE_FAILED) {
        json_object_set_new(object, "error", json_string(c->error));
    }
    return object;
}

static json_t *slo_object(const size *s)
{
    json_t *limits = json_object();
    for (uint32_t i = 0; i < s->settings.slo.num; i++)
        json_object_set_new(limits, s->settings.slo.list[i].name,
                            json_real(s->settings.slo.list[i].limit_ms));
    return limits;
}

bool size_report_json(FILE *out, const size *s, bool is_deterministic)
{
    uint32_t *order = calloc(s->num_combinations, sizeof *order);
    uint32_t num = order != NULL ? size_order(s, order) : 0;
    uint32_t nearest = 0;
    bool has_nearest = num == 0 && size_nearest(s, &nearest) != NULL;
    json_t *combinations = json_array();
    for (uint32_t i = 0; i < s->num_combinations; i++)
        json_array_append_new(combinations, combination_object(s, i));
    json_t *object = json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:O}", "trace", s->grid->trace,
                               "ended_by", s->stopped != NULL ? s->stopped : "trace", "slo_ms",
                               slo_object(s), "combinations", combinations, "answer",
                               num > 0 ? report_integer(order[0]) : json_null(), "runner_up",
                               num > 1 ? report_integer(order[1]) : json_null(), "nearest",
                               has_nearest ? report_integer(nearest) : json_null(), "fleets",
                               report_integer(s->num_runs), "made_by", s->grid->made_by);
    if (object != NULL && !is_deterministic)
        json_object_set_new(object, "wall_s", json_real(s->wall_s));
    bool ok =
        object != NULL && json_dumpf(object, out, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) == 0;
    fputc('\n', out);
    json_decref(object);
    free(order);
    return ok;
}
