/* aibrix.c - policies of AIBrix: declared in policies.h. */
#include "pick.h"
#include "policies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Matched blocks of the prompt, in whole percent. */
static uint32_t match_percent(const router_ask *ask, uint32_t worker)
{
    uint32_t n = ask->request->num_blocks;
    return n == 0 ? 0 : (uint32_t)((uint64_t)router_hit_blocks(&ask->hits[worker]) * 100 / n);
}

/* ---- prefill and decode apart ---------------------------------------------- */

static uint32_t most_in_flight(const router_ask *ask)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t n = ask->workers[ask->candidates[i]].in_flight;
        most = n > most ? n : most;
    }
    return most;
}

static void choose_prefill(const router_ask *ask, router_choice *choice)
{
    double most = most_in_flight(ask);
    pick p = pick_smallest(PICK_RANDOM);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        pick_offer(&p, ask, w,
                   (100.0 - match_percent(ask, w)) * 0.1 + ask->workers[w].in_flight / most);
    }
    pick_choose(&p, choice);
    choice->reason = "prefill: unmatched percent / 10 + requests / most requests";
}

/* Generated tokens in a second, by the time model. */
static double throughput(const router_ask *ask, uint32_t worker)
{
    const router_load *load = &ask->workers[worker].load;
    if (load->running == 0)
        return 0;
    return load->running /
           ask->costs->decode_s(ask->costs->context, worker, load->running, load->context_tokens);
}

static double free_percent(const router_ask *ask, uint32_t worker)
{
    double left = 100 - 100 * ask->workers[worker].load.kv_usage;
    return left > 0.1 ? left : 0.1;
}

static void choose_decode(const router_ask *ask, router_choice *choice)
{
    double most = most_in_flight(ask);
    double most_tokens = 1;
    double most_free = 1;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        double tokens = throughput(ask, ask->candidates[i]);
        double left = free_percent(ask, ask->candidates[i]);
        most_tokens = tokens > most_tokens ? tokens : most_tokens;
        most_free = left > most_free ? left : most_free;
    }
    pick p = pick_smallest(PICK_RANDOM);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        double busy = ask->workers[w].in_flight / most + 1 - throughput(ask, w) / most_tokens;
        pick_offer(&p, ask, w, busy / (free_percent(ask, w) / most_free));
    }
    pick_choose(&p, choice);
    choice->reason = "decode: (requests + unused throughput) / free KV memory, each by the largest";
}

/* ---- aibrix-prefix --------------------------------------------------------- */

enum { IMBALANCE, DEVIATIONS, NUM_VALUES };

static const router_option options[] = {
    [IMBALANCE] = {"imbalance-abs-count",
                   "imbalanced: the most requests exceed the fewest by more than this", 8, 0, 1e9,
                   true, NULL},
    [DEVIATIONS] = {"standard-deviation-factor",
                    "a hit counts up to this many standard deviations above the mean of requests",
                    1, 0, 1e6, true, NULL},
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

typedef struct spread {
    uint32_t min;
    uint32_t max;
    double mean;
    double deviation;
} spread;

static spread spread_of(const router_ask *ask)
{
    spread s = {UINT32_MAX, 0, 0, 0};
    double squares = 0;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t n = ask->workers[ask->candidates[i]].in_flight;
        s.min = n < s.min ? n : s.min;
        s.max = n > s.max ? n : s.max;
        s.mean += n;
    }
    s.mean /= ask->num_candidates;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        double off = ask->workers[ask->candidates[i]].in_flight - s.mean;
        squares += off * off;
    }
    s.deviation = sqrt(squares / ask->num_candidates);
    return s;
}

/* The highest match, and of equal ones the fewest requests: one number orders both. */
static void choose_prefix(void *state, const router_ask *ask, router_choice *choice)
{
    const double *v = state;
    if (ask->role == ROUTER_PREFILL) {
        choose_prefill(ask, choice);
        return;
    }
    if (ask->role == ROUTER_DECODE) {
        choose_decode(ask, choice);
        return;
    }
    spread s = spread_of(ask);
    bool is_imbalanced = s.max - s.min > v[IMBALANCE];
    double limit = s.mean + v[DEVIATIONS] * s.deviation;
    pick p = pick_largest(PICK_RANDOM);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        uint32_t requests = ask->workers[w].in_flight;
        uint32_t percent = match_percent(ask, w);
        bool is_allowed = requests <= limit && (!is_imbalanced || requests == s.min);
        if (percent > 0 && is_allowed)
            pick_offer(&p, ask, w, percent + 1 - (requests + 1.0) / (s.max + 2.0));
    }
    if (p.worker != ROUTER_NONE) {
        pick_choose(&p, choice);
        choice->reason = is_imbalanced ? "imbalanced: highest match of the least loaded workers"
                                       : "highest match";
    } else {
        pick_fewest(ask, PICK_RANDOM, choice);
        choice->reason = "no match below the limit of requests: fewest requests in flight";
    }
    choice->terms[0] = match_percent(ask, choice->worker);
    choice->terms[1] = ask->workers[choice->worker].in_flight;
}

const router_policy policy_aibrix_prefix = {
    .version = ROUTER_POLICY_VERSION,
    .needs = ROUTER_NEEDS_REPORTS_APART,
    .name = "aibrix-prefix",
    .summary = "AIBrix: the highest match whose load is near the mean, else the least loaded",
    .terms = {"percent matched", "requests in flight"},
    .options = options,
    .knowledge = {.index = ROUTER_INDEX_APPROXIMATE, .metrics_every_s = 0.05},
    .open = open_values,
    .close = free,
    .choose = choose_prefix,
};

/* ---- conductor ------------------------------------------------------------- */

enum { PREFIX_A, PREFIX_B, PREFILL_A, PREFILL_EXPONENT, PREFILL_C, PRESSURE, PENALTY, NUM_COSTS };

static const router_option conductor_options[] = {
    [PREFIX_A] = {"prefix-ms-per-token", "time of a matched token", 0.005, 0, 1e6, false, NULL},
    [PREFIX_B] = {"prefix-ms", "time of any match", 1, 0, 1e6, false, NULL},
    [PREFILL_A] = {"prefill-ms-factor", "time of unmatched tokens: factor", 0.001, 0, 1e6, false,
                   NULL},
    [PREFILL_EXPONENT] = {"prefill-exponent", "time of unmatched tokens: exponent", 1.5, 0, 10,
                          false, NULL},
    [PREFILL_C] = {"prefill-ms", "time of any unmatched tokens", 5, 0, 1e6, false, NULL},
    [PRESSURE] = {"kv-pressure", "decode: KV usage above which the penalty applies", 0.9, 0, 1,
                  false, NULL},
    [PENALTY] = {"kv-penalty", "decode: factor on the time between tokens", 1.5, 0, 1e6, false,
                 NULL},
    {0}};

enum { UNKNOWN_PROMPT = 512 }; /* tokens of a prefill before any was seen */

typedef struct prefills {
    double sum_ms;
    uint64_t count;
} prefills;

typedef struct conductor {
    double values[NUM_COSTS];
    const router_costs *costs; /* of the last decision */
    prefills workers[];
} conductor;

static bool open_conductor(const double *values, uint32_t max_workers, void **state, char why[256])
{
    conductor *c = calloc(1, sizeof *c + max_workers * sizeof *c->workers);
    (void)why;
    *state = c;
    if (c == NULL)
        return false;
    memcpy(c->values, values, sizeof c->values);
    return true;
}

static double prefix_ms(const double *v, double tokens)
{
    return tokens <= 0 ? 0 : v[PREFIX_A] * tokens + v[PREFIX_B];
}

static double prefill_ms(const double *v, double tokens)
{
    return tokens <= 0 ? 0 : v[PREFILL_A] * pow(tokens, v[PREFILL_EXPONENT]) + v[PREFILL_C];
}

static double queue_ms(const conductor *c, const router_ask *ask, uint32_t worker)
{
    const prefills *p = &c->workers[worker];
    double mean_ms =
        p->count == 0 ? prefill_ms(c->values, UNKNOWN_PROMPT) : p->sum_ms / (double)p->count;
    return ask->workers[worker].in_flight * mean_ms;
}

static double hit_ms(const conductor *c, const router_ask *ask, uint32_t worker)
{
    return prefix_ms(c->values, pick_hit_tokens(ask, worker));
}

static double miss_ms(const conductor *c, const router_ask *ask, uint32_t worker)
{
    return prefill_ms(c->values, ask->request->num_prompt_tokens - pick_hit_tokens(ask, worker));
}

/* The time between tokens with one request more, from the reported throughput. */
static double decode_ms(const conductor *c, const router_ask *ask, uint32_t worker)
{
    double tokens = throughput(ask, worker);
    double running = ask->workers[worker].in_flight > 1 ? ask->workers[worker].in_flight : 1;
    double ms = (tokens > 0 ? 1000 / tokens : 20) * (1 + 1 / running);
    bool is_full = ask->workers[worker].load.kv_usage > c->values[PRESSURE];
    return is_full ? ms * c->values[PENALTY] : ms;
}

static void choose_conductor(void *state, const router_ask *ask, router_choice *choice)
{
    conductor *c = state;
    pick p = pick_smallest(PICK_RANDOM);
    c->costs = ask->costs;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        double ms = ask->role == ROUTER_DECODE
                        ? decode_ms(c, ask, w)
                        : queue_ms(c, ask, w) + hit_ms(c, ask, w) + miss_ms(c, ask, w);
        pick_offer(&p, ask, w, ms);
    }
    pick_choose(&p, choice);
    if (ask->role == ROUTER_DECODE) {
        choice->terms[0] = choice->score;
        choice->reason = "decode: time between tokens with one request more";
        return;
    }
    choice->terms[0] = queue_ms(c, ask, choice->worker);
    choice->terms[1] = hit_ms(c, ask, choice->worker);
    choice->terms[2] = miss_ms(c, ask, choice->worker);
}

/* What the engine reports as its mean prefill time: computing the tokens that were not found. */
static void notify_conductor(void *state, const router_event *event)
{
    conductor *c = state;
    prefills *p = &c->workers[event->worker];
    if (event->kind == ROUTER_EVENT_JOINED)
        *p = (prefills){0};
    if (event->kind != ROUTER_EVENT_FIRST_TOKEN || c->costs == NULL)
        return;
    uint32_t cached = event->num_cached_tokens < event->num_prompt_tokens
                          ? event->num_cached_tokens
                          : event->num_prompt_tokens;
    p->sum_ms += 1000 * c->costs->prefill_s(c->costs->context, event->worker, cached,
                                            event->num_prompt_tokens - cached);
    p->count++;
}

const router_policy policy_conductor = {
    .version = ROUTER_POLICY_VERSION,
    .needs = ROUTER_NEEDS_REPORTS_APART,
    .name = "conductor",
    .summary = "AIBrix's conductor: the smallest sum of queue, prefix and prefill times",
    .is_cost = true,
    .terms = {"ms in the queue", "ms for the hit", "ms for the rest"},
    .options = conductor_options,
    .knowledge = {.index = ROUTER_INDEX_APPROXIMATE, .metrics_every_s = 0.05},
    .open = open_conductor,
    .close = free,
    .choose = choose_conductor,
    .notify = notify_conductor,
};
