/* dynamo.c - the KV router of Dynamo: declared in policies.h.
 *
 *      prefill = (active prefill tokens + prompt tokens) / block size
 *      credit  = c decay gpu + 0.75 host + 0.25 disk + m shared beyond gpu
 *      decay   = 1 / (1 + d (excess prefill blocks) / (blocks of the request))
 *      cost    = s max(0, prefill - credit) + decode blocks + a requests       the smallest is
 * chosen
 *
 * decode blocks: the different blocks that the worker's requests use, with those of this request.
 *
 * Pools: a prefill worker has no decode blocks. A decode worker has no prefill, and its requests
 * share no blocks; with conditional-disagg the credit reduces its decode blocks.
 */
#include "pick.h"
#include "policies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CREDIT,
    CREDIT_DECAY,
    PREFILL_SCALE,
    REQUEST_WEIGHT,
    HOST_WEIGHT,
    DISK_WEIGHT,
    SHARED_WEIGHT,
    TEMPERATURE,
    QUEUE_THRESHOLD,
    QUEUE_POLICY,
    CONDITIONAL,
    ISL_THRESHOLD,
    ISL_RATIO,
    BUSY_THRESHOLD,
    NUM_VALUES
};
enum { QUEUE_FCFS, QUEUE_WSPT, QUEUE_LCFS };
enum { CONDITIONAL_OFF, CONDITIONAL_ISL, CONDITIONAL_LOAD, CONDITIONAL_EITHER };

static const char *const queue_policies[] = {"fcfs", "wspt", "lcfs", NULL};
static const char *const conditionals[] = {"off", "isl-bounding", "prefill-load", "isl-or-load",
                                           NULL};

static const router_option options[] = {
    [CREDIT] = {"overlap-score-credit", "credit of a block in GPU memory", 1, 0, 1e6, false, NULL},
    [CREDIT_DECAY] = {"overlap-score-credit-decay",
                      "how fast the credit falls with prefill work above that of the idlest worker",
                      0, 0, 1e6, false, NULL},
    [PREFILL_SCALE] = {"prefill-load-scale", "weight of prefill blocks", 1, 0, 1e6, false, NULL},
    [REQUEST_WEIGHT] = {"decode-active-request-weight", "cost of each request in flight, in blocks",
                        0, 0, 1e6, false, NULL},
    [HOST_WEIGHT] = {"host-cache-hit-weight", "credit of a block in host memory", 0.75, 0, 1e6,
                     false, NULL},
    [DISK_WEIGHT] = {"disk-cache-hit-weight", "credit of a block on disk", 0.25, 0, 1e6, false,
                     NULL},
    [SHARED_WEIGHT] = {"shared-cache-multiplier",
                       "credit of a block in the shared tier and not in GPU memory", 0.5, 0, 1e6,
                       false, NULL},
    [TEMPERATURE] = {"router-temperature", "0: the smallest cost; above: random by softmax", 0, 0,
                     1e6, false, NULL},
    [QUEUE_THRESHOLD] = {"router-queue-threshold",
                         "requests wait while every worker has more prefill tokens than this part "
                         "of its max_num_batched_tokens; -1: never",
                         -1, -1, 1e6, false, NULL},
    [QUEUE_POLICY] = {"router-queue-policy", "which waiting request is next", QUEUE_FCFS, 0,
                      QUEUE_LCFS, true, queue_policies},
    [CONDITIONAL] = {"conditional-disagg", "when the decode worker computes the prompt itself",
                     CONDITIONAL_OFF, 0, CONDITIONAL_EITHER, true, conditionals},
    [ISL_THRESHOLD] = {"eff-isl-threshold", "isl-bounding: fewer uncached tokens than this", 2048,
                       0, 1e9, true, NULL},
    [ISL_RATIO] = {"eff-isl-ratio-threshold", "isl-bounding: and a smaller part of the prompt", 0.7,
                   0, 1, false, NULL},
    [BUSY_THRESHOLD] =
        {"prefill-busy-threshold",
         "prefill-load: the prefill worker has more prefill tokens than this part of "
         "its max_num_batched_tokens; -1: router-queue-threshold",
         -1, -1, 1e6, false, NULL},
    {0}};

typedef struct dynamo {
    double values[NUM_VALUES];
    double *costs; /* by candidate: for the softmax */
} dynamo;

static void close_dynamo(void *state)
{
    dynamo *d = state;
    free(d->costs);
    free(d);
}

static bool open_dynamo(const double *values, uint32_t max_workers, void **state, char why[256])
{
    dynamo *d = calloc(1, sizeof *d);
    (void)why;
    if (d == NULL)
        return false;
    memcpy(d->values, values, sizeof d->values);
    d->costs = calloc(max_workers, sizeof *d->costs);
    *state = d;
    if (d->costs == NULL) {
        close_dynamo(d);
        return false;
    }
    return true;
}

/* ---- cost ------------------------------------------------------------------ */

static uint64_t min_prefill_tokens(const router_ask *ask)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint64_t tokens = ask->workers[ask->candidates[i]].prefill_tokens;
        least = tokens < least ? tokens : least;
    }
    return least;
}

static double credit_blocks(const double *v, const router_ask *ask, uint32_t worker,
                            uint64_t min_tokens)
{
    const router_request *request = ask->request;
    const router_hit *hit = &ask->hits[worker];
    uint64_t tokens = ask->workers[worker].prefill_tokens;
    double excess = (double)(tokens > min_tokens ? tokens - min_tokens : 0) / request->block_size;
    double blocks = ceil((double)request->num_prompt_tokens / request->block_size);
    double decay = 1 / (1 + v[CREDIT_DECAY] * excess / blocks);
    uint32_t beyond = ask->shared_hit > hit->leading ? ask->shared_hit - hit->leading : 0;
    return v[CREDIT] * decay * hit->leading + v[HOST_WEIGHT] * hit->host +
           v[DISK_WEIGHT] * hit->disk + v[SHARED_WEIGHT] * beyond;
}

static double decode_blocks(const double *v, const router_ask *ask, uint32_t worker)
{
    const router_worker *w = &ask->workers[worker];
    double blocks = (double)w->active_blocks + ask->request->num_blocks;
    if (ask->role == ROUTER_PREFILL)
        return 0;
    if (ask->role == ROUTER_SERVE)
        return blocks - ask->active_hits[worker];
    if (v[CONDITIONAL] == CONDITIONAL_OFF || v[CREDIT] <= 0)
        return blocks;
    double left = blocks - credit_blocks(v, ask, worker, w->prefill_tokens); /* no decay */
    return left > 0 ? left : 0;
}

static double prefill_cost(const double *v, const router_ask *ask, uint32_t worker,
                           uint64_t min_tokens)
{
    const router_request *request = ask->request;
    if (ask->role == ROUTER_DECODE)
        return 0;
    double tokens = (double)ask->workers[worker].prefill_tokens + request->num_prompt_tokens;
    double left = tokens / request->block_size - credit_blocks(v, ask, worker, min_tokens);
    return v[PREFILL_SCALE] * (left > 0 ? left : 0);
}

static double cost_of(const double *v, const router_ask *ask, uint32_t worker, uint64_t min_tokens)
{
    return prefill_cost(v, ask, worker, min_tokens) + decode_blocks(v, ask, worker) +
           v[REQUEST_WEIGHT] * ask->workers[worker].in_flight;
}

/* ---- the queue ------------------------------------------------------------- */

static bool is_busy(const router_worker *w, double threshold)
{
    return (double)w->prefill_tokens > threshold * w->max_num_batched_tokens;
}

static bool all_are_busy(const router_ask *ask, double threshold)
{
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        if (!is_busy(&ask->workers[ask->candidates[i]], threshold))
            return false;
    return true;
}

/* vLLM's priorities: a negative one is more urgent than usual. */
static double queue_order(int policy, const router_ask *ask)
{
    const router_request *request = ask->request;
    double jump = request->priority < 0 ? -(double)request->priority : 0;
    uint32_t cached = 0;
    if (policy == QUEUE_FCFS)
        return jump - request->arrival_s;
    if (policy == QUEUE_LCFS)
        return jump + request->arrival_s;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t tokens = pick_hit_tokens(ask, ask->candidates[i]);
        cached = tokens > cached ? tokens : cached;
    }
    uint32_t uncached = request->num_prompt_tokens - cached;
    return (1 + jump) / (uncached > 1 ? uncached : 1);
}

/* ---- the choice ------------------------------------------------------------ */

/* A worker with probability exp(-(cost - min) / ((max - min) T)), normed. */
static uint32_t sample(const double *costs, const router_ask *ask, double temperature)
{
    uint32_t n = ask->num_candidates;
    double min = INFINITY;
    double max = -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        min = costs[i] < min ? costs[i] : min;
        max = costs[i] > max ? costs[i] : max;
    }
    double scale = max > min ? 1 / ((max - min) * temperature) : 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(-(costs[i] - min) * scale);
    double left = router_random_unit(ask) * sum;
    for (uint32_t i = 0; i < n; i++) {
        left -= exp(-(costs[i] - min) * scale);
        if (left <= 0)
            return i;
    }
    return n - 1;
}

static void choose_dynamo(void *state, const router_ask *ask, router_choice *choice)
{
    dynamo *d = state;
    const double *v = d->values;
    bool may_wait = v[QUEUE_THRESHOLD] >= 0 && ask->role != ROUTER_DECODE;
    if (may_wait && all_are_busy(ask, v[QUEUE_THRESHOLD])) {
        choice->action = ROUTER_WAIT;
        choice->wait_order = queue_order((int)v[QUEUE_POLICY], ask);
        choice->reason = "every worker has more prefill tokens than router-queue-threshold allows";
        return;
    }
    uint64_t min_tokens = min_prefill_tokens(ask);
    pick p = pick_smallest(PICK_RANDOM);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        d->costs[i] = cost_of(v, ask, ask->candidates[i], min_tokens);
        if (v[TEMPERATURE] == 0)
            pick_offer(&p, ask, ask->candidates[i], d->costs[i]);
    }
    pick_choose(&p, choice);
    if (v[TEMPERATURE] > 0) {
        uint32_t i = sample(d->costs, ask, v[TEMPERATURE]);
        choice->worker = ask->candidates[i];
        choice->score = d->costs[i];
        choice->reason = "drawn by router-temperature";
    }
    choice->terms[0] = prefill_cost(v, ask, choice->worker, min_tokens);
    choice->terms[1] = decode_blocks(v, ask, choice->worker);
    choice->terms[2] = v[REQUEST_WEIGHT] * ask->workers[choice->worker].in_flight;
}

/* ---- conditional disaggregation
 * ------------------------------------------------------------------ */

static bool is_short(const double *v, const router_ask *ask, uint32_t worker)
{
    uint32_t prompt = ask->request->num_prompt_tokens;
    uint32_t uncached = prompt - pick_hit_tokens(ask, worker);
    return uncached < v[ISL_THRESHOLD] && (double)uncached / prompt < v[ISL_RATIO];
}

/* The prefill worker that would be chosen; the first one of equal costs. */
static bool is_prefill_busy(const double *v, const router_ask *ask)
{
    double threshold = v[BUSY_THRESHOLD] >= 0 ? v[BUSY_THRESHOLD] : v[QUEUE_THRESHOLD];
    router_ask prefill = *ask;
    uint64_t min_tokens = UINT64_MAX;
    prefill.role = ROUTER_PREFILL;
    for (uint32_t w = 0; w < ask->num_workers; w++)
        if (ask->workers[w].is_ready && ask->workers[w].pool == ROUTER_PREFILL &&
            ask->workers[w].prefill_tokens < min_tokens)
            min_tokens = ask->workers[w].prefill_tokens;
    pick p = pick_smallest(PICK_FIRST);
    for (uint32_t w = 0; w < ask->num_workers; w++)
        if (ask->workers[w].is_ready && ask->workers[w].pool == ROUTER_PREFILL)
            pick_offer(&p, ask, w, cost_of(v, &prefill, w, min_tokens));
    return threshold >= 0 && p.worker != ROUTER_NONE && is_busy(&ask->workers[p.worker], threshold);
}

static bool disaggregates(void *state, const router_ask *ask, uint32_t decode_worker)
{
    const double *v = ((const dynamo *)state)->values;
    int kind = (int)v[CONDITIONAL];
    bool by_isl = kind == CONDITIONAL_ISL || kind == CONDITIONAL_EITHER;
    bool by_load = kind == CONDITIONAL_LOAD || kind == CONDITIONAL_EITHER;
    return !(by_isl && is_short(v, ask, decode_worker)) && !(by_load && is_prefill_busy(v, ask));
}

const router_policy policy_dynamo_kv = {
    .version = ROUTER_POLICY_VERSION,
    .needs = ROUTER_NEEDS_ACTIVE,
    .name = "dynamo-kv",
    .summary = "Dynamo's KV router: uncached prefill blocks and decode blocks in one cost",
    .is_cost = true,
    .terms = {"prefill blocks", "decode blocks", "for requests"},
    .options = options,
    .knowledge = {.index = ROUTER_INDEX_EVENTS},
    .open = open_dynamo,
    .close = close_dynamo,
    .choose = choose_dynamo,
    .disaggregates = disaggregates,
};
