#include "tier/promote/costs.h"

#include <string.h>

/* Beginning must gain a tenth, stopping too: no change of mind at the border. */
static const double MARGIN = 0.1;
enum { PROBE_EVERY = 32, PROBE_BLOCKS = 16 };

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
    double factor = qr_cost_p95_factor(load);
    double gain = costs->compute.unit_ns - load->unit_ns * factor * bytes_per_token;
    double tokens = gain > 0 ? load->base_ns * factor / gain : (double)UINT32_MAX;
    return tokens < (double)UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
}
