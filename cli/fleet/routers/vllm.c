/* vllm.c - kv_aware of vllm-project/router, and vLLM's own balancer of data parallel ranks:
 * declared in policies.h. */
#include "pick.h"
#include "policies.h"

#include <stdlib.h>

/* ---- kv-aware: no load in it, while any worker has a hit ------------------- */

static void choose_kv_aware(void *state, const router_ask *ask, router_choice *choice)
{
    (void)state;
    pick p = pick_largest(PICK_LAST);
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        pick_offer(&p, ask, ask->candidates[i], router_hit_blocks(&ask->hits[ask->candidates[i]]));
    if (p.score > 0) {
        pick_choose(&p, choice);
        choice->reason = "longest hit";
    } else {
        pick_fewest(ask, PICK_FIRST, choice);
        choice->reason = "no hit: fewest requests in flight";
    }
    choice->terms[0] = router_hit_blocks(&ask->hits[choice->worker]);
    choice->terms[1] = ask->workers[choice->worker].in_flight;
}

const router_policy policy_vllm_kv_aware = {
    .version = ROUTER_POLICY_VERSION,
    .name = "vllm-kv-aware",
    .summary = "vLLM router's kv_aware: the longest hit whatever the load, else the least loaded",
    .terms = {"hit blocks", "requests in flight"},
    .knowledge = {.index = ROUTER_INDEX_BOTH, .ttl_s = 2},
    .choose = choose_kv_aware,
};

/* ---- data parallel ranks --------------------------------------------------- */

enum { WAITING_WEIGHT };

static const router_option dp_options[] = {
    [WAITING_WEIGHT] = {"waiting-weight", "running requests that one waiting request counts as", 4,
                        0, 1e6, false, NULL},
    {0}};

/* Requests sent since the last report count as waiting, once for each router of the fleet: every
 * router expects the others to send as many. */
typedef struct dp {
    double waiting_weight;
    uint32_t sent[]; /* by worker */
} dp;

static bool open_dp(const double *values, uint32_t max_workers, void **state, char why[256])
{
    dp *d = calloc(1, sizeof *d + max_workers * sizeof *d->sent);
    (void)why;
    *state = d;
    if (d == NULL)
        return false;
    d->waiting_weight = values[WAITING_WEIGHT];
    return true;
}

/* Routers begin at different workers, so that they do not agree on the first of equal ones. */
static void choose_dp(void *state, const router_ask *ask, router_choice *choice)
{
    dp *d = state;
    uint32_t n = ask->num_candidates;
    uint32_t start = (uint32_t)((uint64_t)n * ask->router / ask->num_routers);
    pick p = pick_smallest(PICK_FIRST);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = ask->candidates[(start + i) % n];
        const router_load *load = &ask->workers[w].load;
        double waiting = load->waiting + (double)d->sent[w] * ask->num_routers;
        pick_offer(&p, ask, w, waiting * d->waiting_weight + load->running);
    }
    pick_choose(&p, choice);
    choice->terms[1] = ask->workers[choice->worker].load.running;
    choice->terms[0] = choice->score - choice->terms[1];
    d->sent[choice->worker]++;
}

static void notify_dp(void *state, const router_event *event)
{
    dp *d = state;
    bool is_fresh = event->kind == ROUTER_EVENT_METRICS || event->kind == ROUTER_EVENT_JOINED;
    if (is_fresh)
        d->sent[event->worker] = 0;
}

const router_policy policy_vllm_dp = {
    .version = ROUTER_POLICY_VERSION,
    .needs = ROUTER_NEEDS_REPORTS,
    .name = "vllm-dp",
    .summary = "vLLM's balancer of data parallel ranks: 4 waiting + running, as last reported",
    .is_cost = true,
    .terms = {"for waiting", "running"},
    .options = dp_options,
    .knowledge = {.metrics_every_s = 0.1},
    .open = open_dp,
    .close = free,
    .choose = choose_dp,
    .notify = notify_dp,
};
