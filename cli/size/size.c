#include "size.h"

#include "output/progress.h"

#include <stdlib.h>
#include <string.h>

/* ---- runs ------------------------------------------------------------------------ */

uint32_t size_gpus(const size_combination *c, uint32_t workers)
{
    return workers * c->tp;
}

double size_cost(const size_combination *c, const size_run *run)
{
    return run->gpu_hours * c->price;
}

const size_run *size_find_run(const size_combination *c, uint32_t workers)
{
    for (uint32_t i = 0; i < c->search.num_tries; i++)
        if (c->runs[i].workers == workers)
            return &c->runs[i];
    return NULL;
}

int size_print_run(FILE *out, const slo_targets *targets, const size_run *run)
{
    json_t *values = json_array();
    for (uint32_t i = 0; i < targets->num; i++)
        json_array_append_new(values, json_real(run->values_ms[i]));
    json_t *object =
        json_pack("{s:o,s:I,s:f,s:f}", "values_ms", values, "refused", (json_int_t)run->refused,
                  "gpu_hours", run->gpu_hours, "hit_rate", run->hit_rate);
    int status = object == NULL ? -1 : json_dumpf(object, out, JSON_COMPACT);
    json_decref(object);
    return status;
}

/* As it was printed; numbers keep all their digits. */
static size_run read_run(const json_t *report, const slo_targets *targets)
{
    size_run run = {
        .refused = (uint64_t)json_integer_value(json_object_get(report, "refused")),
        .gpu_hours = json_number_value(json_object_get(report, "gpu_hours")),
        .hit_rate = json_number_value(json_object_get(report, "hit_rate")),
    };
    const json_t *values = json_object_get(report, "values_ms");
    run.is_enough = run.refused == 0;
    for (uint32_t i = 0; i < targets->num; i++) {
        run.values_ms[i] = json_number_value(json_array_get(values, i));
        run.is_enough = run.is_enough && run.values_ms[i] <= targets->list[i].limit_ms;
        double part = run.values_ms[i] / targets->list[i].limit_ms;
        run.worst = part > run.worst ? part : run.worst;
    }
    return run;
}

/* ---- rounds ---------------------------------------------------------------------- */

/* The tries of a round, by point of its sweep. */
typedef struct size_round {
    size *size;
    sweep points;
    uint32_t *combinations;
    uint32_t *workers;
} size_round;

static size_round *now; /* in the process of a try: its round */

static int run_point(const sweep *points, uint32_t point, FILE *out)
{
    const size_settings *s = &now->size->settings;
    return s->run(now->combinations[point], now->workers[point],
                  sweep_threads(points, s->num_jobs, UINT32_MAX), out);
}

static uint32_t count_done(const size *s)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->num_combinations; i++)
        count += s->combinations[i].state != SIZE_OPEN;
    return count;
}

static void show_round(void *user, const sweep_progress *round)
{
    const size *s = user;
    s->settings.progress(s->settings.progress_user, count_done(s), round);
}

/* The second fewest GPUs that a combination is known to need at most. */
static uint32_t second_fewest(const size *s)
{
    uint32_t fewest[2] = {UINT32_MAX, UINT32_MAX};
    for (uint32_t i = 0; i < s->num_combinations; i++) {
        const size_combination *c = &s->combinations[i];
        uint32_t best = search_best(&c->search);
        uint32_t gpus = best > 0 ? size_gpus(c, best) : UINT32_MAX;
        if (gpus < fewest[0]) {
            fewest[1] = fewest[0];
            fewest[0] = gpus;
        } else if (gpus < fewest[1]) {
            fewest[1] = gpus;
        }
    }
    return fewest[1];
}

/* Whose searches are over now, and how. */
static void end_searches(size *s)
{
    uint32_t limit = s->settings.has_prices ? UINT32_MAX : second_fewest(s);
    for (uint32_t i = 0; i < s->num_combinations; i++) {
        size_combination *c = &s->combinations[i];
        if (c->state != SIZE_OPEN)
            continue;
        if (c->search.most == 0 || search_next(&c->search) == 0)
            c->state = search_best(&c->search) > 0 ? SIZE_MET : SIZE_UNMET;
        else if (size_gpus(c, search_least(&c->search)) > limit)
            c->state = SIZE_MORE;
    }
}

static void take_results(size_round *r)
{
    size *s = r->size;
    for (uint32_t i = 0; i < r->points.num_points; i++) {
        size_combination *c = &s->combinations[r->combinations[i]];
        sweep_point *point = &r->points.points[i];
        if (point->report != NULL) {
            size_run run = read_run(point->report, &s->settings.slo);
            run.workers = r->workers[i];
            c->runs[c->search.num_tries] = run;
            search_add(&c->search, run.workers, run.is_enough);
            s->num_runs++;
        } else if (r->points.stopped == NULL) {
            c->state = SIZE_FAILED;
            c->error = point->error;
            point->error = NULL;
        }
    }
}

static int run_round(size_round *r)
{
    size *s = r->size;
    sweep_settings settings = {.num_jobs = s->settings.num_jobs,
                               .run = run_point,
                               .progress = s->settings.progress != NULL ? show_round : NULL,
                               .progress_user = s,
                               .stop = s->settings.stop};
    r->points = (sweep){.trace = s->grid->trace};
    uint32_t num = 0;
    for (uint32_t i = 0; i < s->num_combinations; i++)
        if (s->combinations[i].state == SIZE_OPEN) {
            r->combinations[num] = i;
            r->workers[num++] = search_next(&s->combinations[i].search);
        }
    r->points.points = calloc(num, sizeof *r->points.points);
    r->points.num_points = num;
    now = r;
    int status = sweep_run_points(&r->points, &settings);
    take_results(r);
    s->stopped = r->points.stopped;
    sweep_free_points(&r->points);
    return status;
}

int size_search(size *s)
{
    uint32_t n = s->num_combinations;
    double start_s = progress_clock();
    size_round r = {.size = s,
                    .combinations = calloc(n, sizeof *r.combinations),
                    .workers = calloc(n, sizeof *r.workers)};
    int status = r.combinations != NULL && r.workers != NULL ? 0 : -1;
    for (uint32_t i = 0; i < n; i++)
        s->combinations[i].search.most = s->settings.max_gpus / s->combinations[i].tp;
    end_searches(s);
    while (status == 0 && s->stopped == NULL && count_done(s) < n) {
        status = run_round(&r);
        end_searches(s);
    }
    for (uint32_t i = 0; i < n; i++)
        if (s->combinations[i].state == SIZE_OPEN)
            s->combinations[i].state = SIZE_STOPPED;
    free(r.combinations);
    free(r.workers);
    s->wall_s = progress_clock() - start_s;
    return status;
}

/* ---- answers --------------------------------------------------------------------- */

/* Whether a is the better one. */
static bool is_better(const size_combination *a, const size_combination *b)
{
    uint32_t best[2] = {search_best(&a->search), search_best(&b->search)};
    const size_run *x = size_find_run(a, best[0]);
    const size_run *y = size_find_run(b, best[1]);
    if (size_gpus(a, best[0]) != size_gpus(b, best[1]))
        return size_gpus(a, best[0]) < size_gpus(b, best[1]);
    if (size_cost(a, x) != size_cost(b, y))
        return size_cost(a, x) < size_cost(b, y);
    return x->worst < y->worst;
}

uint32_t size_order(const size *s, uint32_t *order)
{
    uint32_t num = 0;
    for (uint32_t i = 0; i < s->num_combinations; i++) {
        if (s->combinations[i].state != SIZE_MET)
            continue;
        uint32_t at = num++;
        for (; at > 0 && is_better(&s->combinations[i], &s->combinations[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return num;
}

/* A run that refuses requests is farther than any that does not. */
const size_run *size_nearest(const size *s, uint32_t *combination)
{
    const size_run *nearest = NULL;
    for (uint32_t i = 0; i < s->num_combinations; i++) {
        const size_combination *c = &s->combinations[i];
        for (uint32_t k = 0; k < c->search.num_tries; k++) {
            const size_run *run = &c->runs[k];
            bool is_nearer = nearest == NULL || run->refused < nearest->refused ||
                             (run->refused == nearest->refused && run->worst < nearest->worst);
            if (is_nearer) {
                nearest = run;
                *combination = i;
            }
        }
    }
    return nearest;
}

bool size_open(size *s, sweep *grid, const size_settings *settings)
{
    *s = (size){.grid = grid, .settings = *settings, .num_combinations = 1};
    for (uint32_t i = 0; i < grid->num_axes; i++)
        s->num_combinations *= grid->axes[i].list.num_values;
    s->combinations = calloc(s->num_combinations, sizeof *s->combinations);
    return s->combinations != NULL;
}

void size_close(size *s)
{
    for (uint32_t i = 0; s->combinations != NULL && i < s->num_combinations; i++)
        free(s->combinations[i].error);
    free(s->combinations);
}
