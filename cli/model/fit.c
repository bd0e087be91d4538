/* fit.c - least squares with weights, by one coefficient after the other, each cut off at 0.
 *
 *      rounds 1..8    Huber: a row beyond 1.345 spreads counts as its spread / its distance
 *      rounds 9..20   Tukey: a row beyond 4.685 spreads does not count
 *
 * The spread is 1.4826 x the median distance. A row's distance is divided by its prediction, not by
 * what was measured: else noise would make small values look important.
 */
#include "fit.h"

#include "output/distribution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 20, HUBER_ROUNDS = 8, SWEEPS = 4000 };

/* The part of a row's own size that its prediction has at least, while the fit is far off. */
static const double least_share = 0.05;

typedef struct problem {
    const fit_row *rows;
    uint32_t num_rows;
    uint32_t n;
    double scale[FIT_MAX_TERMS]; /* columns are divided by it: 0 for one without values */
    double *weights;
    double *errors; /* relative */
    double *sizes;
} problem;

double fit_predict(const fit_row *row, uint32_t n, const double *c)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += c[i] * row->x[i];
    return sum;
}

/* The middle of numbers, which are put in order. */
static double share_of(double *values, uint32_t count, double share)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof *values, compare_doubles);
    return values[(uint32_t)(share * (count - 1) + 0.5)];
}

static void find_scales(problem *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < p->num_rows; k++)
            sum += p->rows[k].x[i] * p->rows[k].x[i];
        p->scale[i] = sqrt(sum / p->num_rows);
    }
}

/* Rows divided by `base`, their predictions so far: sums of products. */
static void add_up(const problem *p, const double *base, double a[FIT_MAX_TERMS][FIT_MAX_TERMS],
                   double b[FIT_MAX_TERMS])
{
    memset(a, 0, sizeof(double[FIT_MAX_TERMS][FIT_MAX_TERMS]));
    memset(b, 0, sizeof(double[FIT_MAX_TERMS]));
    for (uint32_t k = 0; k < p->num_rows; k++) {
        double weight = p->weights[k] / (base[k] * base[k]);
        double x[FIT_MAX_TERMS];
        for (uint32_t i = 0; i < p->n; i++)
            x[i] = p->scale[i] > 0 ? p->rows[k].x[i] / p->scale[i] : 0;
        for (uint32_t i = 0; i < p->n; i++) {
            b[i] += weight * x[i] * p->rows[k].y;
            for (uint32_t j = 0; j < p->n; j++)
                a[i][j] += weight * x[i] * x[j];
        }
    }
}

/* The smallest a-norm with no coefficient below 0: each in turn to its best value. */
static void solve(const problem *p, double a[FIT_MAX_TERMS][FIT_MAX_TERMS],
                  const double b[FIT_MAX_TERMS], double *c)
{
    for (uint32_t sweep = 0; sweep < SWEEPS; sweep++) {
        double moved = 0;
        double size = 0;
        for (uint32_t i = 0; i < p->n; i++) {
            if (a[i][i] <= 0)
                continue;
            double rest = b[i];
            for (uint32_t j = 0; j < p->n; j++)
                rest -= j == i ? 0 : a[i][j] * c[j];
            double next = fmax(rest / a[i][i], 0);
            moved = fmax(moved, fabs(next - c[i]));
            size = fmax(size, next);
            c[i] = next;
        }
        if (moved <= 1e-10 * size)
            return;
    }
}

static void weigh(problem *p, const double *base, const double *c, bool is_huber)
{
    for (uint32_t k = 0; k < p->num_rows; k++) {
        double predicted = fit_predict(&p->rows[k], p->n, c);
        p->errors[k] = (p->rows[k].y - predicted) / base[k];
        p->sizes[k] = fabs(p->errors[k]);
    }
    double spread = fmax(1.4826 * share_of(p->sizes, p->num_rows, 0.5), 1e-9);
    for (uint32_t k = 0; k < p->num_rows; k++) {
        double far = fabs(p->errors[k]) / spread;
        if (is_huber)
            p->weights[k] = far <= 1.345 ? 1 : 1.345 / far;
        else
            p->weights[k] = far >= 4.685 ? 0 : pow(1 - pow(far / 4.685, 2), 2);
    }
}

static void set_base(const problem *p, const double *c, double *base, bool is_first)
{
    for (uint32_t k = 0; k < p->num_rows; k++) {
        double predicted = is_first ? 0 : fit_predict(&p->rows[k], p->n, c);
        base[k] = is_first ? p->rows[k].y : fmax(predicted, least_share * p->rows[k].y);
    }
}

/* The sum of the predictions becomes that of the rows, without rows that are far away. */
static void keep_sum(const fit_row *rows, uint32_t num_rows, uint32_t n, double *c)
{
    double measured = 0;
    double predicted = 0;
    for (uint32_t k = 0; k < num_rows; k++) {
        double value = fit_predict(&rows[k], n, c);
        if (rows[k].y > FIT_FAR * value || value > FIT_FAR * rows[k].y)
            continue;
        measured += rows[k].y;
        predicted += value;
    }
    for (uint32_t i = 0; i < n && predicted > 0; i++)
        c[i] *= measured / predicted;
}

static void run_rounds(problem *p, double *base, double *c)
{
    double a[FIT_MAX_TERMS][FIT_MAX_TERMS];
    double b[FIT_MAX_TERMS];
    double scaled[FIT_MAX_TERMS] = {0};
    for (uint32_t k = 0; k < p->num_rows; k++)
        p->weights[k] = 1;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        set_base(p, c, base, round == 0);
        if (round > 0)
            weigh(p, base, c, round <= HUBER_ROUNDS);
        add_up(p, base, a, b);
        solve(p, a, b, scaled);
        for (uint32_t i = 0; i < p->n; i++)
            c[i] = p->scale[i] > 0 ? scaled[i] / p->scale[i] : 0;
    }
}

bool fit_nonnegative(const fit_row *rows, uint32_t num_rows, uint32_t num_terms, double *c)
{
    problem p = {.rows = rows, .num_rows = num_rows, .n = num_terms};
    memset(c, 0, num_terms * sizeof *c);
    double *memory = num_rows > 0 ? malloc(4 * (size_t)num_rows * sizeof *memory) : NULL;
    if (memory == NULL)
        return false;
    p.weights = memory;
    p.errors = memory + num_rows;
    p.sizes = memory + 2 * (size_t)num_rows;
    find_scales(&p);
    run_rounds(&p, memory + 3 * (size_t)num_rows, c);
    keep_sum(rows, num_rows, num_terms, c);
    free(memory);
    return true;
}

/* ---- a machine whose speed changes --------------------------------------------- */

enum { LEVEL_ROUNDS = 10 };

/* Rows without what those of a run have in common. */
static void level_rows(const fit_row *rows, uint32_t num_rows, uint32_t n, const double *c,
                       fit_row *level)
{
    double ratios[2 * FIT_RUN];
    uint32_t end;
    for (uint32_t first = 0; first < num_rows; first = end) {
        end = num_rows - first < 2 * FIT_RUN ? num_rows : first + FIT_RUN;
        for (uint32_t k = first; k < end; k++)
            ratios[k - first] = rows[k].y / fmax(fit_predict(&rows[k], n, c), 1e-300);
        double middle = share_of(ratios, end - first, 0.5);
        for (uint32_t k = first; k < end && middle > 0; k++)
            level[k].y = rows[k].y / middle;
    }
}

bool fit_level(const fit_row *rows, uint32_t num_rows, uint32_t num_terms, double *c)
{
    bool ok = fit_nonnegative(rows, num_rows, num_terms, c);
    fit_row *level = ok ? malloc(num_rows * sizeof *level) : NULL;
    if (level == NULL)
        return false;
    memcpy(level, rows, num_rows * sizeof *level);
    for (uint32_t round = 0; ok && round < LEVEL_ROUNDS; round++) {
        level_rows(rows, num_rows, num_terms, c, level);
        ok = fit_nonnegative(level, num_rows, num_terms, c);
    }
    keep_sum(rows, num_rows, num_terms, c);
    free(level);
    return ok;
}

/* ---- errors ----------------------------------------------------------------------- */

fit_errors fit_compare(const fit_row *rows, uint32_t num_rows, uint32_t num_terms, const double *c)
{
    fit_errors errors = {0};
    double *sizes = num_rows > 0 ? malloc(num_rows * sizeof *sizes) : NULL;
    double predicted = 0;
    double measured = 0;
    if (sizes == NULL)
        return errors;
    for (uint32_t k = 0; k < num_rows; k++) {
        double value = fit_predict(&rows[k], num_terms, c);
        sizes[k] = fabs(value / rows[k].y - 1);
        predicted += value;
        measured += rows[k].y;
    }
    errors.num_rows = num_rows;
    errors.median = share_of(sizes, num_rows, 0.5);
    errors.p90 = share_of(sizes, num_rows, 0.9);
    errors.sum = predicted / measured - 1;
    free(sizes);
    return errors;
}
