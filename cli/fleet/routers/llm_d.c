#include "llm_d.h"

#include "pick.h"
#include "policies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const prefix_scores[] = {"match-rate", "min-max", NULL};
static const char *const headrooms[] = {"least", "most", NULL};
static const char *const pickers[] = {"max-score", "weighted-random", "random", NULL};
static const char *const switches[] = {"off", "on", NULL};

#define WEIGHT(name, help, def)                                                                    \
    {                                                                                              \
        name, help, def, 0, 1e6, false, NULL                                                       \
    }
/* clang-format off */
#define OPTIONS(prefix_score)                                                                      \
    {                                                                                              \
        [LLM_D_PREFIX] = WEIGHT("prefix", "weight of the hit", 3),                                 \
        [LLM_D_QUEUE] = WEIGHT("queue", "weight of few waiting requests", 2),                      \
        [LLM_D_KV] = WEIGHT("kv", "weight of free KV memory", 2),                                  \
        [LLM_D_RUNNING] = WEIGHT("running", "weight of few running requests", 0),                  \
        [LLM_D_LOAD_AWARE] = WEIGHT("load-aware", "weight of waiting requests below "              \
                                    "queue-threshold", 0),                                         \
        [LLM_D_ACTIVE_REQUEST] = WEIGHT("active-request", "weight of few requests in flight", 0),  \
        [LLM_D_TOKEN_LOAD] = WEIGHT("token-load", "weight of few tokens in flight", 0),            \
        [LLM_D_NO_HIT_LRU] = WEIGHT("no-hit-lru", "weight, for requests without a hit, of no "     \
                                    "such request for long", 0),                                   \
        [LLM_D_SESSION] = WEIGHT("session", "weight of the session's last worker", 0),             \
        [LLM_D_LATENCY] = WEIGHT("latency", "weight of the predicted latency", 0),                 \
        [LLM_D_PREFIX_SCORE] = {"prefix-score", "hit / prompt, or spread over 0 to 1",            \
                                prefix_score, 0, 1, true, prefix_scores},                          \
        [LLM_D_HOST_WEIGHT] = {"host-weight", "min-max: of a block in host memory", 0.8, 0, 1,     \
                               false, NULL},                                                       \
        [LLM_D_DISK_WEIGHT] = {"disk-weight", "min-max: of a block on disk", 0.8, 0, 1, false,     \
                               NULL},                                                              \
        [LLM_D_QUEUE_THRESHOLD] = {"queue-threshold", "load-aware: waiting requests that score 0", \
                                   128, 1, 1e9, true, NULL},                                       \
        [LLM_D_IDLE_THRESHOLD] = {"idle-threshold", "active-request: requests that score 1", 0, 0, \
                                  1e9, true, NULL},                                                \
        [LLM_D_MAX_BUSY_SCORE] = {"max-busy-score", "active-request: largest score above "         \
                                  "idle-threshold", 1, 0, 1, false, NULL},                         \
        [LLM_D_TOKEN_THRESHOLD] = {"token-threshold", "token-load: tokens that score 0", 4194304,  \
                                   1, 1e15, true, NULL},                                           \
        [LLM_D_SLO_TTFT_MS] = {"slo-ttft-ms", "latency: limit of the TTFT; 0: no limits", 0, 0,    \
                               1e9, false, NULL},                                                  \
        [LLM_D_SLO_TPOT_MS] = {"slo-tpot-ms", "latency: limit of the TPOT; 0: no limits", 0, 0,    \
                               1e9, false, NULL},                                                  \
        [LLM_D_HEADROOM] = {"headroom", "latency: the worker nearest to its limits, or farthest",  \
                            LLM_D_LEAST, 0, 1, true, headrooms},                                   \
        [LLM_D_PICKER] = {"picker", "how a worker is chosen by its score", LLM_D_MAX_SCORE, 0, 2,  \
                          true, pickers},                                                          \
        [LLM_D_AFFINITY] = {"affinity-threshold", "keep workers with this part of the prompt, "   \
                            "if any; 0: off (0.8 where it is used)", 0, 0, 1, false, NULL},        \
        [LLM_D_EXPLORATION] = {"exploration", "probability that a filter keeps the others", 0.01,  \
                               0, 1, false, NULL},                                                 \
        [LLM_D_MAX_PENALTY_MS] = {"max-ttft-penalty-ms", "affinity-threshold does not apply if "   \
                                  "its best predicted TTFT is later by more; 0: always applies",   \
                                  5000, 0, 1e9, false, NULL},                                      \
        [LLM_D_SLO_TIER] = {"slo-headroom-tier", "keep only workers that keep slo-ttft-ms and "    \
                            "slo-tpot-ms, if any", 0, 0, 1, true, switches},                       \
        [LLM_D_NON_CACHED_TOKENS] = {"non-cached-tokens", "a prefill worker computes prompts with "\
                                     "so many uncached tokens; 0: never; -1: always", -1, -1, 1e9, \
                                     true, NULL},                                                  \
        {0}                                                                                        \
    }
/* clang-format on */

static const router_option options[] = OPTIONS(LLM_D_MATCH_RATE);
static const router_option precise_options[] = OPTIONS(LLM_D_MIN_MAX);

static void close_llm_d(void *state)
{
    llm_d *l = state;
    free(l->scores);
    free(l->one);
    free(l->kept);
    free(l->cold_turns);
    free(l->by_turn);
    free(l->sessions);
    free(l);
}

static bool open_llm_d(const double *values, uint32_t max_workers, void **state, char why[256])
{
    llm_d *l = calloc(1, sizeof *l);
    (void)why;
    if (l == NULL)
        return false;
    memcpy(l->values, values, sizeof l->values);
    l->max_workers = max_workers;
    l->scores = calloc(max_workers, sizeof *l->scores);
    l->one = calloc(max_workers, sizeof *l->one);
    l->kept = calloc(max_workers, sizeof *l->kept);
    l->cold_turns = calloc(max_workers, sizeof *l->cold_turns);
    l->by_turn = calloc(max_workers, sizeof *l->by_turn);
    l->sessions = malloc(LLM_D_SESSIONS * sizeof *l->sessions);
    *state = l;
    if (l->scores == NULL || l->one == NULL || l->kept == NULL || l->cold_turns == NULL ||
        l->by_turn == NULL || l->sessions == NULL) {
        close_llm_d(l);
        return false;
    }
    memset(l->sessions, 0xff, LLM_D_SESSIONS * sizeof *l->sessions);
    return true;
}

/* ---- filters --------------------------------------------------------------- */

static double hit_rate(const router_ask *ask, uint32_t worker)
{
    uint32_t n = ask->request->num_blocks;
    return n == 0 ? 0 : (double)router_hit_blocks(&ask->hits[worker]) / n;
}

/* Keeps candidates whose mark is `wanted`; marks are in one[]. */
static void keep(llm_d *l, router_ask *ask, double wanted)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        if (l->one[i] == wanted)
            l->kept[n++] = ask->candidates[i];
    ask->candidates = l->kept;
    ask->num_candidates = n;
}

static bool is_too_late(const llm_d *l, const router_ask *ask)
{
    double near = INFINITY;
    double far = INFINITY;
    if (l->values[LLM_D_MAX_PENALTY_MS] == 0)
        return false;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        double ms = llm_d_ttft_ms(ask, ask->candidates[i]);
        if (l->one[i] > 0)
            near = ms < near ? ms : near;
        else
            far = ms < far ? ms : far;
    }
    return near - far > l->values[LLM_D_MAX_PENALTY_MS];
}

static void filter_affinity(llm_d *l, router_ask *ask)
{
    uint32_t num_near = 0;
    if (ask->num_candidates <= 1 || l->values[LLM_D_AFFINITY] <= 0 ||
        router_random_unit(ask) < l->values[LLM_D_EXPLORATION])
        return;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        l->one[i] = hit_rate(ask, ask->candidates[i]) >= l->values[LLM_D_AFFINITY];
        num_near += l->one[i] > 0;
    }
    if (num_near == 0 || (num_near < ask->num_candidates && is_too_late(l, ask)))
        return;
    keep(l, ask, 1);
}

static void filter_slo(llm_d *l, router_ask *ask)
{
    uint32_t num_good = 0;
    if (ask->num_candidates <= 1 || l->values[LLM_D_SLO_TIER] == 0)
        return;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        l->one[i] = llm_d_meets_slo(l, ask, ask->candidates[i]);
        num_good += l->one[i] > 0;
    }
    if (num_good == 0 || num_good == ask->num_candidates)
        return;
    keep(l, ask, router_random_unit(ask) < l->values[LLM_D_EXPLORATION] ? 0 : 1);
}

/* ---- pickers --------------------------------------------------------------- */

/* The largest of random^(1 / score): a worker with twice the score is chosen twice as often. */
static void pick_weighted(const llm_d *l, const router_ask *ask, router_choice *choice)
{
    double best = -1;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        double u = router_random_unit(ask);
        double key = l->scores[i] <= 0 ? 0 : pow(u > 0 ? u : 1e-10, 1 / l->scores[i]);
        if (key <= best)
            continue;
        best = key;
        choice->worker = ask->candidates[i];
        choice->score = l->scores[i];
    }
    choice->reason = "drawn by score";
}

static void pick_worker(const llm_d *l, const router_ask *ask, router_choice *choice)
{
    pick p = pick_largest(PICK_RANDOM);
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        pick_offer(&p, ask, ask->candidates[i], l->scores[i]);
    bool any = p.score > 0;
    if (l->values[LLM_D_PICKER] == LLM_D_WEIGHTED_RANDOM && any) {
        pick_weighted(l, ask, choice);
        return;
    }
    if (l->values[LLM_D_PICKER] != LLM_D_MAX_SCORE) {
        uint32_t i = router_random_below(ask, ask->num_candidates);
        choice->worker = ask->candidates[i];
        choice->score = l->scores[i];
        choice->reason = "drawn at random";
        return;
    }
    pick_choose(&p, choice);
}

/* ---- the choice ------------------------------------------------------------ */

enum { TERM_PREFIX, TERM_QUEUE, TERM_KV, TERM_OTHERS };

static void explain(llm_d *l, const router_ask *ask, router_choice *choice)
{
    uint32_t at = 0;
    while (ask->candidates[at] != choice->worker)
        at++;
    choice->terms[TERM_OTHERS] = choice->score;
    for (uint32_t s = LLM_D_PREFIX; s <= LLM_D_KV; s++) {
        if (l->values[s] == 0)
            continue;
        llm_d_scorers[s](l, ask, l->one);
        choice->terms[s] = l->values[s] * l->one[at];
        choice->terms[TERM_OTHERS] -= choice->terms[s];
    }
}

static void choose_llm_d(void *state, const router_ask *asked, router_choice *choice)
{
    llm_d *l = state;
    router_ask ask = *asked;
    filter_affinity(l, &ask);
    filter_slo(l, &ask);
    memset(l->scores, 0, ask.num_candidates * sizeof *l->scores);
    for (uint32_t s = 0; s < LLM_D_NUM_SCORERS; s++) {
        if (l->values[s] == 0)
            continue;
        llm_d_scorers[s](l, &ask, l->one);
        for (uint32_t i = 0; i < ask.num_candidates; i++)
            l->scores[i] += l->values[s] * l->one[i];
    }
    pick_worker(l, &ask, choice);
    explain(l, &ask, choice);
    if (l->values[LLM_D_NO_HIT_LRU] > 0 && llm_d_is_cold(&ask))
        l->cold_turns[choice->worker] = ++l->num_cold;
    if (ask.request->session != 0)
        *llm_d_session(l, ask.request->session) = choice->worker;
}

static void notify_llm_d(void *state, const router_event *event)
{
    llm_d *l = state;
    if (event->kind == ROUTER_EVENT_JOINED)
        l->cold_turns[event->worker] = 0;
}

static bool disaggregates(void *state, const router_ask *ask, uint32_t decode_worker)
{
    double least = ((const llm_d *)state)->values[LLM_D_NON_CACHED_TOKENS];
    uint32_t uncached = ask->request->num_prompt_tokens - pick_hit_tokens(ask, decode_worker);
    return least < 0 || (least > 0 && uncached >= least);
}

const router_policy policy_llm_d = {
    .version = ROUTER_POLICY_VERSION,
    .needs = ROUTER_NEEDS_REPORTS,
    .name = "llm-d",
    .summary = "llm-d's scheduler with its approximate index: a weighted sum of scorers",
    .terms = {"prefix", "queue", "KV memory", "other scorers"},
    .options = options,
    .knowledge = {.index = ROUTER_INDEX_APPROXIMATE,
                  .lru_tokens = 31250 * 16,
                  .tokens_per_block = 16,
                  .max_blocks = 256,
                  .metrics_every_s = 0.05},
    .open = open_llm_d,
    .close = close_llm_d,
    .choose = choose_llm_d,
    .notify = notify_llm_d,
    .disaggregates = disaggregates,
};

const router_policy policy_llm_d_precise = {
    .version = ROUTER_POLICY_VERSION,
    .needs = ROUTER_NEEDS_REPORTS,
    .name = "llm-d-precise",
    .summary = "llm-d's scheduler with the precise prefix scorer, by KV events",
    .terms = {"prefix", "queue", "KV memory", "other scorers"},
    .options = precise_options,
    .knowledge = {.index = ROUTER_INDEX_EVENTS, .metrics_every_s = 0.05},
    .open = open_llm_d,
    .close = close_llm_d,
    .choose = choose_llm_d,
    .notify = notify_llm_d,
    .disaggregates = disaggregates,
};
