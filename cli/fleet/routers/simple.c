/* simple.c - policies that do not look at prefixes: declared in policies.h. */
#include "pick.h"
#include "policies.h"

#include <stdlib.h>

/* ---- round-robin: in turn, for each role ----------------------------------- */

typedef struct round_robin {
    uint32_t next[3]; /* by role: the next worker is this one, or the first behind it */
} round_robin;

static bool open_round_robin(const double *values, uint32_t max_workers, void **state,
                             char why[256])
{
    (void)values;
    (void)max_workers;
    (void)why;
    *state = calloc(1, sizeof(round_robin));
    return *state != NULL;
}

static void choose_round_robin(void *state, const router_ask *ask, router_choice *choice)
{
    uint32_t *next = &((round_robin *)state)->next[ask->role];
    choice->worker = ask->candidates[0];
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        if (ask->candidates[i] >= *next) {
            choice->worker = ask->candidates[i];
            break;
        }
    }
    *next = choice->worker + 1;
}

const router_policy policy_round_robin = {
    .version = ROUTER_POLICY_VERSION,
    .needs = ROUTER_IS_BLIND,
    .name = "round-robin",
    .summary = "each worker in turn",
    .open = open_round_robin,
    .close = free,
    .choose = choose_round_robin,
};

/* ---- random ---------------------------------------------------------------- */

static void choose_random(void *state, const router_ask *ask, router_choice *choice)
{
    (void)state;
    choice->worker = ask->candidates[router_random_below(ask, ask->num_candidates)];
}

const router_policy policy_random = {
    .version = ROUTER_POLICY_VERSION,
    .needs = ROUTER_IS_BLIND,
    .name = "random",
    .summary = "each worker with the same probability",
    .choose = choose_random,
};

/* ---- least-loaded ---------------------------------------------------------- */

enum { BY_REQUESTS, BY_TOKENS, BY_PREFILL };

static const char *const load_names[] = {"requests", "tokens", "prefill-tokens", NULL};
static const router_option least_loaded_options[] = {
    {"by",
     "what is counted of the requests in flight: requests, tokens, or prompt tokens that are "
     "not computed yet",
     BY_REQUESTS, 0, BY_PREFILL, true, load_names},
    {0}};

static bool open_least_loaded(const double *values, uint32_t max_workers, void **state,
                              char why[256])
{
    (void)max_workers;
    (void)why;
    double *by = malloc(sizeof *by);
    if (by != NULL)
        *by = values[0];
    *state = by;
    return by != NULL;
}

static double load_by(int by, const router_worker *w)
{
    switch (by) {
    case BY_TOKENS:
        return (double)w->in_flight_tokens;
    case BY_PREFILL:
        return (double)w->prefill_tokens;
    default:
        return w->in_flight;
    }
}

static void choose_least_loaded(void *state, const router_ask *ask, router_choice *choice)
{
    int by = (int)*(const double *)state;
    pick p = pick_smallest(PICK_RANDOM);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        const router_worker *w = &ask->workers[ask->candidates[i]];
        pick_offer(&p, ask, ask->candidates[i], load_by(by, w) / w->capacity);
    }
    pick_choose(&p, choice);
    choice->terms[0] = choice->score;
}

const router_policy policy_least_loaded = {
    .version = ROUTER_POLICY_VERSION,
    .name = "least-loaded",
    .summary = "the worker with the smallest load, divided by its relative speed",
    .is_cost = true,
    .terms = {"load"},
    .options = least_loaded_options,
    .open = open_least_loaded,
    .close = free,
    .choose = choose_least_loaded,
};

/* ---- power-of-two ---------------------------------------------------------- */

static void choose_power_of_two(void *state, const router_ask *ask, router_choice *choice)
{
    (void)state;
    uint32_t n = ask->num_candidates;
    uint32_t i = router_random_below(ask, n);
    choice->worker = ask->candidates[i];
    if (n == 1)
        return;
    uint32_t j = router_random_below(ask, n - 1);
    uint32_t other = ask->candidates[j < i ? j : j + 1];
    uint32_t load = ask->workers[choice->worker].in_flight;
    uint32_t other_load = ask->workers[other].in_flight;
    bool is_other = other_load < load;
    choice->runner_up = is_other ? choice->worker : other;
    choice->runner_up_score = is_other ? load : other_load;
    choice->worker = is_other ? other : choice->worker;
    choice->score = choice->terms[0] = is_other ? other_load : load;
    choice->num_ties = load == other_load;
}

const router_policy policy_power_of_two = {
    .version = ROUTER_POLICY_VERSION,
    .name = "power-of-two",
    .summary = "two workers at random, then the one with fewer requests in flight",
    .is_cost = true,
    .terms = {"requests in flight"},
    .choose = choose_power_of_two,
};

/* ---- session ----------------------------------------------------------------------------------
 * */

/* Every pair of a session and a worker has a random weight; the heaviest worker serves. If a worker
 * leaves, only its own sessions move. */
static uint64_t weight_of(uint64_t session, uint32_t worker)
{
    uint64_t z = (session + 1) * UINT64_C(0x9e3779b97f4a7c15) + worker;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void choose_session(void *state, const router_ask *ask, router_choice *choice)
{
    (void)state;
    if (ask->request->session == 0) {
        pick_fewest(ask, PICK_RANDOM, choice);
        choice->reason = "no session: fewest requests in flight";
        return;
    }
    uint64_t heaviest = 0;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint64_t weight = weight_of(ask->request->session, ask->candidates[i]);
        if (i == 0 || weight > heaviest) {
            heaviest = weight;
            choice->worker = ask->candidates[i];
        }
    }
    choice->reason = "the worker of its session";
}

const router_policy policy_session = {
    .version = ROUTER_POLICY_VERSION,
    .name = "session",
    .summary = "all requests of a session to one worker, by a hash of both",
    .choose = choose_session,
};
