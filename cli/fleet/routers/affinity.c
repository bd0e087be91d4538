/* affinity.c - loadaware of vLLM's production stack, and Ray Serve's prefix router: declared in
 * policies.h. */
#include "pick.h"
#include "policies.h"

#include <stdlib.h>
#include <string.h>

/* ---- production-loadaware -------------------------------------------------- */

static const router_option loadaware_options[] = {
    {"beta", "hits of a whole prompt that a load of twice the mean costs", 1, 0, 1e6, false, NULL},
    {0}};

static bool open_beta(const double *values, uint32_t max_workers, void **state, char why[256])
{
    double *beta = malloc(sizeof *beta);
    (void)max_workers;
    (void)why;
    if (beta != NULL)
        *beta = values[0];
    *state = beta;
    return beta != NULL;
}

static void choose_loadaware(void *state, const router_ask *ask, router_choice *choice)
{
    double beta = *(const double *)state;
    double sum = 0;
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        sum += ask->workers[ask->candidates[i]].in_flight;
    double mean = sum / ask->num_candidates;
    double scale = mean > 1 ? mean : 1;
    pick p = pick_largest(PICK_RANDOM);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        double match = (double)pick_hit_tokens(ask, w) / ask->request->num_prompt_tokens;
        pick_offer(&p, ask, w, match - beta * (ask->workers[w].in_flight - mean) / scale);
    }
    pick_choose(&p, choice);
    choice->terms[0] =
        (double)pick_hit_tokens(ask, choice->worker) / ask->request->num_prompt_tokens;
    choice->terms[1] = choice->score - choice->terms[0];
}

const router_policy policy_production_loadaware = {
    .version = ROUTER_POLICY_VERSION,
    .name = "production-loadaware",
    .summary = "production stack's loadaware: matched part of the prompt minus load above the mean",
    .terms = {"of the prompt matched", "for load"},
    .options = loadaware_options,
    .knowledge = {.index = ROUTER_INDEX_EVENTS},
    .open = open_beta,
    .close = free,
    .choose = choose_loadaware,
};

/* ---- ray-prefix ------------------------------------------------------------ */

enum { IMBALANCED, MATCH_RATE, NUM_RAY_VALUES };

static const router_option ray_options[] = {
    [IMBALANCED] = {"imbalanced-threshold",
                    "imbalanced: the longest queue exceeds the shortest by more than this", 10, 0,
                    1e9, true, NULL},
    [MATCH_RATE] = {"match-rate-threshold", "part of the prompt that the longest hit must have",
                    0.1, 0, 1, false, NULL},
    {0}};

static bool open_ray(const double *values, uint32_t max_workers, void **state, char why[256])
{
    double *copy = malloc(NUM_RAY_VALUES * sizeof *copy);
    (void)max_workers;
    (void)why;
    if (copy != NULL)
        memcpy(copy, values, NUM_RAY_VALUES * sizeof *copy);
    *state = copy;
    return copy != NULL;
}

/* Of the workers whose `value` is `wanted`, the one with the shortest queue. */
static void choose_among(const router_ask *ask, bool by_hit, uint64_t wanted, router_choice *choice)
{
    pick p = pick_smallest(PICK_RANDOM);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        uint64_t value = by_hit ? pick_hit_tokens(ask, w) : ask->workers[w].known_blocks;
        if (value == wanted)
            pick_offer(&p, ask, w, ask->workers[w].in_flight);
    }
    pick_choose(&p, choice);
}

static void choose_ray(void *state, const router_ask *ask, router_choice *choice)
{
    const double *v = state;
    uint32_t min = UINT32_MAX;
    uint32_t max = 0;
    uint32_t longest = 0;
    uint64_t smallest = UINT64_MAX;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        uint32_t load = ask->workers[w].in_flight;
        uint32_t hit = pick_hit_tokens(ask, w);
        min = load < min ? load : min;
        max = load > max ? load : max;
        longest = hit > longest ? hit : longest;
        smallest =
            ask->workers[w].known_blocks < smallest ? ask->workers[w].known_blocks : smallest;
    }
    if (max - min > v[IMBALANCED]) {
        policy_power_of_two.choose(NULL, ask, choice);
        choice->reason = "imbalanced: the better of two random workers";
    } else if ((double)longest / ask->request->num_prompt_tokens >= v[MATCH_RATE]) {
        choose_among(ask, true, longest, choice);
        choice->reason = "longest hit";
    } else {
        choose_among(ask, false, smallest, choice);
        choice->reason = "no hit of match-rate-threshold: the smallest tree";
    }
    choice->terms[0] = pick_hit_tokens(ask, choice->worker);
    choice->terms[1] = ask->workers[choice->worker].in_flight;
}

const router_policy policy_ray_prefix = {
    .version = ROUTER_POLICY_VERSION,
    .name = "ray-prefix",
    .summary = "Ray Serve: the longest hit while queues are balanced, else the better of two",
    .terms = {"hit tokens", "requests in flight"},
    .options = ray_options,
    .knowledge = {.index = ROUTER_INDEX_APPROXIMATE},
    .open = open_ray,
    .close = free,
    .choose = choose_ray,
};
