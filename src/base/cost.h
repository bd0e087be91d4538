/* base/cost.h - what a job costs, as a line that is learned from what jobs took.
 *
 *      ns   │          _ - '
 *           │    _ - '  .            base + unit x units: bytes, blocks or tokens
 *      base ┤- '                     slow jobs are above it: p95
 *           └────────────── units
 *
 * line      through the means of size classes (powers of four); a class counts less the longer ago
 *           it was seen, so that the line follows changes and large jobs are not outvoted by small
 *           ones.
 * p95       the line and 2.5 mean deviations: below it are about 19 of 20.
 *
 * Pure: no clock, no memory. Here alone: the library of tiers has none of the core's functions.
 */
#ifndef QR_BASE_COST_H
#define QR_BASE_COST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { QR_COST_CLASSES = 24 };

typedef struct qr_cost {
    struct {
        double weight;
        double units;
        double ns;
    } classes[QR_COST_CLASSES];
    double base_ns;
    double unit_ns;
    double spread;     /* mean deviation, as a part of the line */
    double most_units; /* larger ones are not known to take longer */
    bool is_known;
    bool has_prior; /* was given to begin with */
} qr_cost;

/* A sample moves its class by a quarter; a class not seen for 22 samples counts a tenth. */
static const double QR_COST_CLASS_STEP = 0.25;
static const double QR_COST_CLASS_DECAY = 0.9;
/* 2.5 mean deviations: p95 of an exponential, p97 of a normal distribution. One outlier counts as
 * at most four times the line. */
static const double QR_COST_SPREAD_STEP = 0.1;
static const double QR_COST_SPREAD_MOST = 3;
static const double QR_COST_SPREAD_P95 = 2.5;

/* To begin with; both 0: not known. */
static inline void qr_cost_init(qr_cost *cost, double base_ns, double unit_ns)
{
    memset(cost, 0, sizeof *cost);
    cost->base_ns = base_ns;
    cost->unit_ns = unit_ns;
    cost->is_known = base_ns > 0 || unit_ns > 0;
    cost->has_prior = cost->is_known;
    cost->most_units = HUGE_VAL;
}

static inline uint32_t qr_cost_class_of(double units)
{
    uint32_t class = 0;
    double limit = 2;
    while (limit <= units && class < QR_COST_CLASSES * 2 - 1) {
        limit *= 2;
        class ++;
    }
    return class / 2;
}

/* The line through the classes, by weighted least squares. */
static inline void qr_cost_fit(qr_cost *cost)
{
    double weight = 0;
    double units = 0;
    double ns = 0;
    for (uint32_t i = 0; i < QR_COST_CLASSES; i++) {
        weight += cost->classes[i].weight;
        units += cost->classes[i].weight * cost->classes[i].units;
        ns += cost->classes[i].weight * cost->classes[i].ns;
    }
    units /= weight;
    ns /= weight;
    double var = 0;
    double cov = 0;
    for (uint32_t i = 0; i < QR_COST_CLASSES; i++) {
        double d = cost->classes[i].units - units;
        var += cost->classes[i].weight * d * d;
        cov += cost->classes[i].weight * d * (cost->classes[i].ns - ns);
    }
    bool is_line = var > 1e-3 * weight * units * units;
    if (is_line) {
        double slope = cov / var;
        slope = slope < 0 ? 0 : slope;
        cost->base_ns = ns - slope * units;
    }
    /* One size alone says nothing about the base: it stays, as far as there is room for it. And
     * nothing about larger sizes: those are not known to take longer, and are tried. */
    cost->most_units = is_line || cost->has_prior ? HUGE_VAL : units;
    if (cost->base_ns < 0)
        cost->base_ns = 0;
    if (cost->base_ns > ns)
        cost->base_ns = ns;
    cost->unit_ns = (ns - cost->base_ns) / units;
}

static inline double qr_cost_ns(const qr_cost *cost, double units)
{
    return cost->base_ns + cost->unit_ns * (units < cost->most_units ? units : cost->most_units);
}

/* So many bytes or tokens, all that was before them in the queue included, took so long. */
static inline void qr_cost_learn(qr_cost *cost, double units, double ns)
{
    if (!(units > 0) || !(ns >= 0))
        return;
    if (ns < 1)
        ns = 1;
    if (cost->is_known) {
        double line = qr_cost_ns(cost, units);
        double off = ns > line ? ns - line : line - ns;
        off = off < QR_COST_SPREAD_MOST * line ? off / line : QR_COST_SPREAD_MOST;
        cost->spread += QR_COST_SPREAD_STEP * (off - cost->spread);
    }
    for (uint32_t i = 0; i < QR_COST_CLASSES; i++)
        cost->classes[i].weight *= QR_COST_CLASS_DECAY;
    uint32_t class = qr_cost_class_of(units);
    double step = cost->classes[class].units > 0 ? QR_COST_CLASS_STEP : 1;
    cost->classes[class].units += step * (units - cost->classes[class].units);
    cost->classes[class].ns += step * (ns - cost->classes[class].ns);
    cost->classes[class].weight += 1;
    qr_cost_fit(cost);
    cost->is_known = true;
}

/* p95 as a multiple of the line. */
static inline double qr_cost_p95_factor(const qr_cost *cost)
{
    return 1 + QR_COST_SPREAD_P95 * cost->spread;
}

static inline double qr_cost_p95_ns(const qr_cost *cost, double units)
{
    return qr_cost_ns(cost, units) * qr_cost_p95_factor(cost);
}

#endif
