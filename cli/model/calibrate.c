/* calibrate.c - a simplex (Nelder and Mead) over the logarithms of the constants.
 *
 *         worst                     eight points in seven dimensions; the worst is mirrored at the
 *          / \        try here      middle of the others, further if that is good, less far if
 *         /   \  ····►  o           it is not; or all move towards the best
 *        o-----o
 *
 * Logarithms, because rates are compared by ratio and none may fall to 0. What is made small is the
 * mean square of the relative errors, and a little for moving away from the start.
 */
#include "calibrate.h"

#include "output/distribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIMENSIONS = 7, POINTS = DIMENSIONS + 1, RESTARTS = 12, MOVES = 600 };

/* Weight of the start: a constant that moves by a factor of e costs as much as 0.4 % more error on
 * all steps. */
static const double pull = 1.6e-5;

typedef struct fit {
    const steps_file *file;
    gpu gpu;
    uint32_t tp;
    quire_cache_dtype cache_dtype;
    double start[DIMENSIONS];
    double *ms;
} fit;

typedef struct simplex_point {
    double at[DIMENSIONS];
    double cost;
} simplex_point;

void steps_predict(const steps_file *file, const gpu *g, uint32_t tp, quire_cache_dtype cache_dtype,
                   double *ms)
{
    time_model model = {0};
    for (uint32_t s = 0; s < file->num_shapes; s++) {
        time_model_init(&model, &file->shapes[s], g, tp, cache_dtype);
        for (uint32_t i = 0; i < file->num_steps; i++) {
            if (file->steps[i].shape != s)
                continue;
            step_work work = steps_work(&model, &file->steps[i]);
            ms[i] = time_model_step_ms(&model, &work);
        }
    }
}

step_errors steps_compare(const steps_file *file, const double *ms)
{
    step_errors errors = {0};
    double *sizes = malloc(file->num_steps * sizeof *sizes);
    for (uint32_t i = 0; sizes && i < file->num_steps; i++) {
        const measured_step *step = &file->steps[i];
        if (step->ms <= 0)
            continue;
        double error = fabs(ms[i] / step->ms - 1);
        if (errors.num_steps == 0 || error > errors.worst) {
            errors.worst = error;
            errors.worst_line = step->line;
        }
        sizes[errors.num_steps++] = error;
    }
    if (errors.num_steps > 0) {
        uint32_t half = errors.num_steps / 2;
        qsort(sizes, errors.num_steps, sizeof *sizes, compare_doubles);
        errors.median =
            errors.num_steps % 2 == 1 ? sizes[half] : (sizes[half - 1] + sizes[half]) / 2;
    }
    free(sizes);
    return errors;
}

/* ---- the cost of a point -------------------------------------------------- */

static void set_constants(fit *f, const double at[DIMENSIONS])
{
    for (uint32_t i = 0; i < DIMENSIONS; i++)
        *gpu_constant(&f->gpu.constants, i) = exp(at[i]);
    if (f->gpu.constants.softness < 1)
        f->gpu.constants.softness = 1;
}

static double cost_of(fit *f, const double at[DIMENSIONS])
{
    double sum = 0;
    double moved = 0;
    uint32_t measured = 0;
    set_constants(f, at);
    steps_predict(f->file, &f->gpu, f->tp, f->cache_dtype, f->ms);
    for (uint32_t i = 0; i < f->file->num_steps; i++) {
        if (f->file->steps[i].ms <= 0)
            continue;
        double error = log(f->ms[i] / f->file->steps[i].ms);
        sum += error * error;
        measured++;
    }
    for (uint32_t i = 0; i < DIMENSIONS; i++)
        moved += (at[i] - f->start[i]) * (at[i] - f->start[i]);
    double cost = sum / measured + pull * moved;
    return isfinite(cost) ? cost : HUGE_VAL;
}

/* ---- the simplex ----------------------------------------------------------- */

static int by_cost(const void *a, const void *b)
{
    return compare_doubles(&((const simplex_point *)a)->cost, &((const simplex_point *)b)->cost);
}

/* The point so far from the worst: 2 is its mirror image, 1 the middle of the others. */
static simplex_point try_point(fit *f, const simplex_point points[POINTS], double how_far)
{
    simplex_point next;
    for (int d = 0; d < DIMENSIONS; d++) {
        double middle = 0;
        for (int i = 0; i < POINTS - 1; i++)
            middle += points[i].at[d] / (POINTS - 1);
        next.at[d] = points[POINTS - 1].at[d] + how_far * (middle - points[POINTS - 1].at[d]);
    }
    next.cost = cost_of(f, next.at);
    return next;
}

static void shrink(fit *f, simplex_point points[POINTS])
{
    for (int i = 1; i < POINTS; i++) {
        for (int d = 0; d < DIMENSIONS; d++)
            points[i].at[d] = (points[0].at[d] + points[i].at[d]) / 2;
        points[i].cost = cost_of(f, points[i].at);
    }
}

static void move_worst(fit *f, simplex_point points[POINTS])
{
    simplex_point mirrored = try_point(f, points, 2);
    simplex_point *worst = &points[POINTS - 1];
    if (mirrored.cost < points[0].cost) {
        simplex_point further = try_point(f, points, 3);
        *worst = further.cost < mirrored.cost ? further : mirrored;
    } else if (mirrored.cost < points[POINTS - 2].cost) {
        *worst = mirrored;
    } else {
        simplex_point nearer = try_point(f, points, mirrored.cost < worst->cost ? 1.5 : 0.5);
        if (nearer.cost < worst->cost && nearer.cost <= mirrored.cost)
            *worst = nearer;
        else
            shrink(f, points);
    }
    qsort(points, POINTS, sizeof *points, by_cost);
}

static void search(fit *f, double at[DIMENSIONS])
{
    simplex_point points[POINTS];
    double size = 0.2;
    for (int restart = 0; restart < RESTARTS; restart++) {
        for (int i = 0; i < POINTS; i++) {
            memcpy(points[i].at, at, sizeof points[i].at);
            if (i > 0)
                points[i].at[i - 1] += restart % 2 == 0 ? size : -size;
            points[i].cost = cost_of(f, points[i].at);
        }
        qsort(points, POINTS, sizeof *points, by_cost);
        for (int i = 0; i < MOVES; i++)
            move_worst(f, points);
        memcpy(at, points[0].at, sizeof points[0].at);
        size *= 0.7;
    }
}

bool calibrate(const steps_file *file, gpu *g, uint32_t tp, quire_cache_dtype cache_dtype)
{
    fit f = {.file = file, .gpu = *g, .tp = tp, .cache_dtype = cache_dtype};
    double at[DIMENSIONS];
    bool is_measured = false;
    for (uint32_t i = 0; i < file->num_steps; i++)
        is_measured = is_measured || file->steps[i].ms > 0;
    f.ms = is_measured ? malloc(file->num_steps * sizeof *f.ms) : NULL;
    if (!f.ms)
        return false;
    for (uint32_t i = 0; i < DIMENSIONS; i++) {
        double value = *gpu_constant(&f.gpu.constants, i);
        f.start[i] = log(value > 1e-6 ? value : 1e-6);
    }
    memcpy(at, f.start, sizeof at);
    search(&f, at);
    set_constants(&f, at);
    g->constants = f.gpu.constants;
    free(f.ms);
    return true;
}
