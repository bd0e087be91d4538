/* sgl.c - policies of SGLang's gateway: declared in policies.h. Its tree of texts is an approximate
 * index here, in tokens instead of characters. */
#include "pick.h"
#include "policies.h"

#include <stdlib.h>
#include <string.h>

/* ---- cache-aware ----------------------------------------------------------- */

enum { CACHE_THRESHOLD, BALANCE_ABS, BALANCE_REL, KEEP_AFFINITY, NUM_VALUES };

static const char *const switches[] = {"off", "on", NULL};
static const router_option cache_aware_options[] = {
    [CACHE_THRESHOLD] = {"cache-threshold",
                         "part of the prompt that the longest hit must exceed to decide", 0.3, 0, 1,
                         false, NULL},
    [BALANCE_ABS] = {"balance-abs-threshold",
                     "imbalanced: the largest load exceeds the smallest by more than this", 64, 0,
                     1e9, true, NULL},
    [BALANCE_REL] = {"balance-rel-threshold", "imbalanced: and by more than this factor", 1.5, 0,
                     1e6, false, NULL},
    [KEEP_AFFINITY] = {"keep-affinity",
                       "imbalanced: the longest hit among workers whose load is at most the "
                       "smallest + balance-abs-threshold",
                       0, 0, 1, true, switches},
    {0}};

static bool open_values(const double *values, uint32_t max_workers, void **state, char why[256])
{
    double *copy = malloc(NUM_VALUES * sizeof *copy);
    (void)max_workers;
    (void)why;
    if (copy != NULL)
        memcpy(copy, values, NUM_VALUES * sizeof *copy);
    *state = copy;
    return copy != NULL;
}

/* The longest hit of workers whose load is at most max_load. */
static pick longest_hit(const router_ask *ask, uint32_t max_load)
{
    pick p = pick_largest(PICK_RANDOM);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        if (ask->workers[w].in_flight <= max_load)
            pick_offer(&p, ask, w, pick_hit_tokens(ask, w));
    }
    return p;
}

static void choose_cache_aware(void *state, const router_ask *ask, router_choice *choice)
{
    const double *v = state;
    uint32_t min = UINT32_MAX;
    uint32_t max = 0;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t load = ask->workers[ask->candidates[i]].in_flight;
        min = load < min ? load : min;
        max = load > max ? load : max;
    }
    bool is_imbalanced = max - min > v[BALANCE_ABS] && max > v[BALANCE_REL] * min;
    uint32_t max_load = max;
    if (is_imbalanced)
        max_load = v[KEEP_AFFINITY] > 0 ? min + (uint32_t)v[BALANCE_ABS] : min;
    pick best = longest_hit(ask, max_load);
    bool is_hit = best.score / ask->request->num_prompt_tokens > v[CACHE_THRESHOLD];
    if (is_hit && (!is_imbalanced || v[KEEP_AFFINITY] > 0)) {
        pick_choose(&best, choice);
        choice->reason =
            is_imbalanced ? "imbalanced: longest hit of the less loaded workers" : "longest hit";
    } else {
        pick_fewest(ask, PICK_RANDOM, choice);
        choice->reason = is_imbalanced ? "imbalanced: fewest requests in flight"
                                       : "no hit above cache-threshold: fewest requests in flight";
    }
    choice->terms[0] = pick_hit_tokens(ask, choice->worker);
    choice->terms[1] = ask->workers[choice->worker].in_flight;
}

const router_policy policy_sgl_cache_aware = {
    .version = ROUTER_POLICY_VERSION,
    .name = "sgl-cache-aware",
    .summary = "SGLang's gateway: the longest hit while loads are balanced, else the least loaded",
    .terms = {"hit tokens", "requests in flight"},
    .options = cache_aware_options,
    .knowledge = {.index = ROUTER_INDEX_APPROXIMATE, .lru_tokens = UINT64_C(1) << 24},
    .open = open_values,
    .close = free,
    .choose = choose_cache_aware,
};

/* ---- lmetric --------------------------------------------------------------- */

static void choose_lmetric(void *state, const router_ask *ask, router_choice *choice)
{
    uint32_t prompt = ask->request->num_prompt_tokens;
    uint32_t best_load = 0;
    (void)state;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        uint32_t load = ask->workers[w].in_flight;
        double score = (double)(prompt - pick_hit_tokens(ask, w)) * (load + 1.0);
        bool is_equal = choice->worker != ROUTER_NONE && score == choice->score;
        /* Equal scores and equal loads have equal work: the first worker stays. */
        if (choice->worker == ROUTER_NONE || score < choice->score ||
            (is_equal && load < best_load)) {
            choice->runner_up = choice->worker;
            choice->runner_up_score = choice->score;
            choice->worker = w;
            choice->score = score;
            best_load = load;
        } else if (choice->runner_up == ROUTER_NONE || score < choice->runner_up_score) {
            choice->runner_up = w;
            choice->runner_up_score = score;
        }
    }
    choice->terms[0] = prompt - pick_hit_tokens(ask, choice->worker);
    choice->terms[1] = best_load + 1.0;
}

const router_policy policy_lmetric = {
    .version = ROUTER_POLICY_VERSION,
    .name = "lmetric",
    .summary = "uncached prompt tokens times the requests in flight with this one, the smallest",
    .is_cost = true,
    .terms = {"uncached tokens", "requests with this one"},
    .knowledge = {.index = ROUTER_INDEX_APPROXIMATE, .lru_tokens = UINT64_C(1) << 24},
    .choose = choose_lmetric,
};
