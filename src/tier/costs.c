#include "tier/costs.h"

#include <math.h>
#include <string.h>

/* A sample moves its class by a quarter; a class not seen for 22 samples counts a tenth. */
static const double CLASS_STEP = 0.25;
static const double CLASS_DECAY = 0.9;
/* 2.5 mean deviations: p95 of an exponential, p97 of a normal distribution. One outlier counts as
 * at most four times the line. */
static const double SPREAD_STEP = 0.1;
static const double SPREAD_MOST = 3;
static const double SPREAD_P95 = 2.5;
/* Beginning must gain a tenth, stopping too: no change of mind at the border. */
static const double MARGIN = 0.1;
enum { PROBE_EVERY = 32, PROBE_BLOCKS = 16 };

void qr_cost_init(qr_cost *cost, double base_ns, double unit_ns)
{
    memset(cost, 0, sizeof *cost);
    cost->base_ns = base_ns;
    cost->unit_ns = unit_ns;
    cost->is_known = base_ns > 0 || unit_ns > 0;
    cost->has_prior = cost->is_known;
    cost->most_units = HUGE_VAL;
}

static uint32_t class_of(double units)
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
static void fit(qr_cost *cost)
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

void qr_cost_learn(qr_cost *cost, double units, double ns)
{
    if (!(units > 0) || !(ns >= 0))
        return;
    if (ns < 1)
        ns = 1;
    if (cost->is_known) {
        double line = qr_cost_ns(cost, units);
        double off = ns > line ? ns - line : line - ns;
        off = off < SPREAD_MOST * line ? off / line : SPREAD_MOST;
        cost->spread += SPREAD_STEP * (off - cost->spread);
    }
    for (uint32_t i = 0; i < QR_COST_CLASSES; i++)
        cost->classes[i].weight *= CLASS_DECAY;
    uint32_t class = class_of(units);
    double step = cost->classes[class].units > 0 ? CLASS_STEP : 1;
    cost->classes[class].units += step * (units - cost->classes[class].units);
    cost->classes[class].ns += step * (ns - cost->classes[class].ns);
    cost->classes[class].weight += 1;
    fit(cost);
    cost->is_known = true;
}

double qr_cost_ns(const qr_cost *cost, double units)
{
    return cost->base_ns + cost->unit_ns * (units < cost->most_units ? units : cost->most_units);
}

static double p95_factor(const qr_cost *cost)
{
    return 1 + SPREAD_P95 * cost->spread;
}

double qr_cost_p95_ns(const qr_cost *cost, double units)
{
    return qr_cost_ns(cost, units) * p95_factor(cost);
}

/* ---- load or compute ------------------------------------------------------- */

static double load_ns(const qr_costs *costs, uint32_t tier, double bytes)
{
    if (!costs->tiers[tier].load.is_known)
        return 0;
    return qr_cost_p95_ns(&costs->tiers[tier].load, bytes);
}

static double with_margin(const qr_costs *costs, uint32_t tier, double ns)
{
    return ns * (costs->tiers[tier].has_paid ? 1 - MARGIN : 1 + MARGIN);
}

static bool is_too_late(const qr_costs *costs, uint32_t tier, double ns)
{
    return ns > costs->tiers[tier].deadline_ns;
}

/* The end of the run that ends soonest: loading and then computing what is behind. */
static uint32_t find_split(const qr_costs *costs, const qr_cost_run *run)
{
    double token_ns = costs->compute.is_known ? costs->compute.unit_ns : 0;
    double bytes[QR_COSTS_MAX_TIERS];
    memcpy(bytes, run->queued_bytes, sizeof bytes);
    bool is_free = run->is_covered || !costs->compute.is_known;
    double slowest = 0;
    double best = (double)run->num_blocks * run->block_tokens * token_ns;
    uint32_t split = 0;
    for (uint32_t i = 0; i < run->num_blocks; i++) {
        uint32_t tier = run->sources[i];
        if (tier < QR_COSTS_MAX_TIERS) {
            bytes[tier] += run->block_bytes;
            double ns = load_ns(costs, tier, bytes[tier]);
            if (is_too_late(costs, tier, ns))
                break;
            ns = with_margin(costs, tier, ns);
            slowest = ns > slowest ? ns : slowest;
        }
        double left = (double)(run->num_blocks - i - 1) * run->block_tokens * token_ns;
        double total = is_free ? left : slowest + left;
        if (total <= best) {
            best = total;
            split = i + 1;
        }
    }
    return split;
}

uint32_t qr_costs_split(qr_costs *costs, const qr_cost_run *run)
{
    uint32_t split = find_split(costs, run);
    bool was_seen[QR_COSTS_MAX_TIERS] = {false};
    for (uint32_t i = 0; i < run->num_blocks; i++) {
        uint32_t tier = run->sources[i];
        if (tier >= QR_COSTS_MAX_TIERS || was_seen[tier])
            continue;
        was_seen[tier] = true;
        bool is_loaded = i < split;
        if (!run->is_covered)
            costs->tiers[tier].has_paid = is_loaded;
        costs->tiers[tier].num_skips = is_loaded ? 0 : costs->tiers[tier].num_skips + 1;
        if (costs->tiers[tier].num_skips < PROBE_EVERY)
            continue;
        costs->tiers[tier].num_skips = 0;
        split = run->num_blocks - i < PROBE_BLOCKS ? run->num_blocks : i + PROBE_BLOCKS;
    }
    return split;
}

bool qr_costs_pays(const qr_costs *costs, uint32_t tier, double bytes, double tokens)
{
    double ns = load_ns(costs, tier, bytes);
    if (is_too_late(costs, tier, ns))
        return false;
    return !costs->compute.is_known ||
           with_margin(costs, tier, ns) <= tokens * costs->compute.unit_ns;
}

bool qr_costs_try(qr_costs *costs, uint32_t tier, double bytes, double tokens)
{
    bool pays = qr_costs_pays(costs, tier, bytes, tokens);
    bool is_tried = pays || costs->tiers[tier].num_skips + 1 >= PROBE_EVERY;
    costs->tiers[tier].has_paid = pays;
    costs->tiers[tier].num_skips = is_tried ? 0 : costs->tiers[tier].num_skips + 1;
    return is_tried;
}

uint32_t qr_costs_least_tokens(const qr_costs *costs, uint32_t tier, double bytes_per_token)
{
    const qr_cost *load = &costs->tiers[tier].load;
    if (!load->is_known || !costs->compute.is_known)
        return 0;
    double factor = p95_factor(load);
    double gain = costs->compute.unit_ns - load->unit_ns * factor * bytes_per_token;
    double tokens = gain > 0 ? load->base_ns * factor / gain : (double)UINT32_MAX;
    return tokens < (double)UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
}
