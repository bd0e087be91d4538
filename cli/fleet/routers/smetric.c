/* smetric.c - smetric of vllm-project/router: declared in policies.h.
 *
 *      work    = n + n (L - n/2) / crossover        n uncached of L prompt tokens
 *      queued  = work of the worker without a first token + work
 *      score   = queued, times the requests in flight if the worker also decodes; the smallest
 *
 * A later turn of a session stays with the longest hit, if the hit exceeds hit-ratio of the turn
 * before and the worker meets the limit of the TTFT, or no worker does. The rate of a worker, in
 * work a second, is learned from first tokens: the 0.9 quantile of the last 64, from the eighth on.
 */
#include "pick.h"
#include "policies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HIT_RATIO, SLACK, SLO_S, SLO_S_PER_1K, CROSSOVER, RATE, NUM_VALUES };
enum { RATE_WINDOW = 64, RATE_MIN_SAMPLES = 8 };
static const double RATE_QUANTILE = 0.9;

static const router_option options[] = {
    [HIT_RATIO] = {"hit-ratio", "part of the turn before that a worker must have to keep a session",
                   0.5, 0, 1, false, NULL},
    [SLACK] = {"slack", "factor on the limit of the TTFT", 1, 0, 1e6, false, NULL},
    [SLO_S] = {"ttft-slo-secs", "limit of the TTFT, in seconds", 1, 0, 1e6, false, NULL},
    [SLO_S_PER_1K] = {"ttft-slo-secs-per-1k-tokens", "and for each 1,000 prompt tokens", 0.0625, 0,
                      1e6, false, NULL},
    [CROSSOVER] = {"attention-crossover-tokens",
                   "context at which attention costs as much as the other layers; 0: attention is "
                   "free",
                   0, 0, 1e9, false, NULL},
    [RATE] = {"prefill-rate", "work of a worker in a second, in tokens; 0: learned", 0, 0, 1e12,
              false, NULL},
    {0}};

typedef struct worker_state {
    double pending; /* work without a first token */
    double rate;    /* 0: not known yet */
    uint32_t num_samples;
    double samples[RATE_WINDOW]; /* a ring */
} worker_state;

typedef struct smetric {
    double values[NUM_VALUES];
    uint32_t turn;
    worker_state workers[];
} smetric;

static bool open_smetric(const double *values, uint32_t max_workers, void **state, char why[256])
{
    smetric *s = calloc(1, sizeof *s + max_workers * sizeof *s->workers);
    (void)why;
    *state = s;
    if (s == NULL)
        return false;
    memcpy(s->values, values, sizeof s->values);
    return true;
}

static double work_of(const double *v, uint32_t prompt, uint32_t hit)
{
    double n = prompt - hit;
    double attention = v[CROSSOVER] > 0 ? n * (prompt - n / 2) / v[CROSSOVER] : 0;
    return ceil(n + attention);
}

static bool meets_slo(const smetric *s, const router_ask *ask, uint32_t worker, double queued)
{
    const double *v = s->values;
    double rate = v[RATE] > 0 ? v[RATE] : s->workers[worker].rate;
    double limit_s =
        v[SLACK] * (v[SLO_S] + v[SLO_S_PER_1K] * ask->request->num_prompt_tokens / 1000);
    return rate == 0 || queued / rate <= limit_s;
}

static void choose_smetric(void *state, const router_ask *ask, router_choice *choice)
{
    smetric *s = state;
    const router_request *request = ask->request;
    uint32_t n = ask->num_candidates;
    uint32_t start = s->turn++ % n;
    bool any_meets = false;
    pick least = pick_smallest(PICK_FIRST);
    pick longest = pick_largest(PICK_FIRST);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = ask->candidates[(start + i) % n];
        uint32_t hit = pick_hit_tokens(ask, w);
        double queued = s->workers[w].pending + work_of(s->values, request->num_prompt_tokens, hit);
        double score = queued;
        if (ask->role == ROUTER_SERVE)
            score = queued * ask->workers[w].in_flight;
        if (ask->role == ROUTER_DECODE)
            score = ask->workers[w].in_flight;
        any_meets = any_meets || meets_slo(s, ask, w, queued);
        pick_offer(&least, ask, w, score);
        pick_offer(&longest, ask, w, hit);
    }
    double queued = s->workers[longest.worker].pending +
                    work_of(s->values, request->num_prompt_tokens, (uint32_t)longest.score);
    bool stays = request->num_history_tokens > 0 && ask->role != ROUTER_DECODE &&
                 longest.score > s->values[HIT_RATIO] * request->num_history_tokens &&
                 (!any_meets || meets_slo(s, ask, longest.worker, queued));
    pick_choose(stays ? &longest : &least, choice);
    choice->reason = stays ? "the session stays with its longest hit" : "least queued work";
    uint32_t hit = pick_hit_tokens(ask, choice->worker);
    choice->work =
        ask->role == ROUTER_DECODE ? 0 : work_of(s->values, request->num_prompt_tokens, hit);
    choice->terms[0] = s->workers[choice->worker].pending;
    choice->terms[1] = choice->work;
    choice->terms[2] = ask->workers[choice->worker].in_flight;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void learn(worker_state *w, double rate)
{
    double sorted[RATE_WINDOW];
    w->samples[w->num_samples++ % RATE_WINDOW] = rate;
    uint32_t n = w->num_samples < RATE_WINDOW ? w->num_samples : RATE_WINDOW;
    if (n < RATE_MIN_SAMPLES)
        return;
    memcpy(sorted, w->samples, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_value);
    w->rate = sorted[(uint32_t)round((n - 1) * RATE_QUANTILE)];
}

static void notify_smetric(void *state, const router_event *event)
{
    smetric *s = state;
    worker_state *w = &s->workers[event->worker];
    bool is_unanswered = event->kind == ROUTER_EVENT_ABORTED && event->first_token_s == 0;
    if (event->kind == ROUTER_EVENT_ROUTED)
        w->pending += event->work;
    if (event->kind == ROUTER_EVENT_FIRST_TOKEN || is_unanswered)
        w->pending -= event->work;
    if (event->kind == ROUTER_EVENT_FIRST_TOKEN && event->work > 0 &&
        event->time_s > event->routed_s)
        learn(w, event->work / (event->time_s - event->routed_s));
    if (event->kind == ROUTER_EVENT_JOINED)
        w->num_samples = 0, w->rate = 0;
}

const router_policy policy_smetric = {
    .version = ROUTER_POLICY_VERSION,
    .name = "smetric",
    .summary =
        "vLLM router's smetric: least queued prefill work; sessions stay while the TTFT allows",
    .terms = {"pending work", "its work", "requests in flight"},
    .options = options,
    .knowledge = {.index = ROUTER_INDEX_APPROXIMATE, .lru_tokens = UINT64_C(1) << 24},
    .open = open_smetric,
    .close = free,
    .choose = choose_smetric,
    .notify = notify_smetric,
};
