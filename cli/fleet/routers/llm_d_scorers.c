#include "llm_d.h"
#include "pick.h"

#include <math.h>
#include <stdlib.h>

/* ---- prefix ---------------------------------------------------------------- */

static double match_rate(const router_ask *ask, uint32_t worker)
{
    uint32_t n = ask->request->num_blocks;
    return n == 0 ? 0 : (double)router_hit_blocks(&ask->hits[worker]) / n;
}

/* Blocks by the weight of their tier, then spread over 0 to 1. */
static void score_min_max(const llm_d *state, const router_ask *ask, double *out)
{
    double min = INFINITY;
    double max = -INFINITY;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        const router_hit *hit = &ask->hits[ask->candidates[i]];
        out[i] = hit->gpu + state->values[LLM_D_HOST_WEIGHT] * hit->host +
                 state->values[LLM_D_DISK_WEIGHT] * hit->disk;
        min = out[i] < min ? out[i] : min;
        max = out[i] > max ? out[i] : max;
    }
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        out[i] = max == min ? 1 : (out[i] - min) / (max - min);
}

static void score_prefix(llm_d *state, const router_ask *ask, double *out)
{
    if (state->values[LLM_D_PREFIX_SCORE] == LLM_D_MIN_MAX) {
        score_min_max(state, ask, out);
        return;
    }
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        out[i] = match_rate(ask, ask->candidates[i]);
}

/* ---- reported loads -------------------------------------------------------- */

/* out holds counts: the largest becomes 0, the smallest 1. */
static void turn_around(const router_ask *ask, double *out)
{
    double min = INFINITY;
    double max = -INFINITY;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        min = out[i] < min ? out[i] : min;
        max = out[i] > max ? out[i] : max;
    }
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        out[i] = max == min ? 1 : (max - out[i]) / (max - min);
}

static void score_queue(llm_d *state, const router_ask *ask, double *out)
{
    (void)state;
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        out[i] = ask->workers[ask->candidates[i]].load.waiting;
    turn_around(ask, out);
}

static void score_running(llm_d *state, const router_ask *ask, double *out)
{
    (void)state;
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        out[i] = ask->workers[ask->candidates[i]].load.running;
    turn_around(ask, out);
}

static void score_kv(llm_d *state, const router_ask *ask, double *out)
{
    (void)state;
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        out[i] = 1 - ask->workers[ask->candidates[i]].load.kv_usage;
}

static void score_load_aware(llm_d *state, const router_ask *ask, double *out)
{
    double most = state->values[LLM_D_QUEUE_THRESHOLD];
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        double waiting = ask->workers[ask->candidates[i]].load.waiting;
        out[i] = 0.5 * (1 - (waiting < most ? waiting : most) / most);
    }
}

/* ---- own requests ---------------------------------------------------------- */

static void score_active_request(llm_d *state, const router_ask *ask, double *out)
{
    double most = 0;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        double n = ask->workers[ask->candidates[i]].in_flight;
        most = n > most ? n : most;
    }
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        double n = ask->workers[ask->candidates[i]].in_flight;
        bool is_idle = n <= state->values[LLM_D_IDLE_THRESHOLD];
        out[i] = is_idle ? 1 : (most - n) / most * state->values[LLM_D_MAX_BUSY_SCORE];
    }
}

static void score_token_load(llm_d *state, const router_ask *ask, double *out)
{
    double most = state->values[LLM_D_TOKEN_THRESHOLD];
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        double tokens = (double)ask->workers[ask->candidates[i]].in_flight_tokens;
        out[i] = 1 - (tokens < most ? tokens : most) / most;
    }
}

/* ---- cold requests --------------------------------------------------------- */

bool llm_d_is_cold(const router_ask *ask)
{
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        if (router_hit_blocks(&ask->hits[ask->candidates[i]]) > 0)
            return false;
    return true;
}

static int by_turn(const void *a, const void *b)
{
    const llm_d_turn *x = a;
    const llm_d_turn *y = b;
    if (x->turn != y->turn)
        return x->turn < y->turn ? -1 : 1;
    return x->position < y->position ? -1 : 1;
}

/* Workers without a cold request come first, in their order; then the oldest cold request. */
static void score_no_hit_lru(llm_d *state, const router_ask *ask, double *out)
{
    uint32_t n = ask->num_candidates;
    bool is_cold = llm_d_is_cold(ask);
    for (uint32_t i = 0; i < n; i++)
        out[i] = is_cold ? 1 : 0.5;
    if (!is_cold || n == 1)
        return;
    for (uint32_t i = 0; i < n; i++)
        state->by_turn[i] = (llm_d_turn){state->cold_turns[ask->candidates[i]], i};
    qsort(state->by_turn, n, sizeof *state->by_turn, by_turn);
    for (uint32_t rank = 0; rank < n; rank++)
        out[state->by_turn[rank].position] = 1 - (double)rank / (n - 1);
}

/* ---- sessions -------------------------------------------------------------- */

uint32_t *llm_d_session(llm_d *state, uint64_t session)
{
    uint64_t mixed = session * UINT64_C(0x9e3779b97f4a7c15);
    return &state->sessions[mixed >> 48];
}

static void score_session(llm_d *state, const router_ask *ask, double *out)
{
    uint64_t session = ask->request->session;
    uint32_t worker = session == 0 ? ROUTER_NONE : *llm_d_session(state, session);
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        out[i] = ask->candidates[i] == worker;
}

/* ---- predicted latency ------------------------------------------------------------------------
 * */

double llm_d_ttft_ms(const router_ask *ask, uint32_t worker)
{
    const router_costs *costs = ask->costs;
    uint64_t queued = ask->workers[worker].load.prefill_tokens;
    uint32_t hit = pick_hit_tokens(ask, worker);
    uint32_t most = queued < UINT32_MAX ? (uint32_t)queued : UINT32_MAX;
    return 1000 *
           (costs->prefill_s(costs->context, worker, 0, most) +
            costs->prefill_s(costs->context, worker, hit, ask->request->num_prompt_tokens - hit));
}

double llm_d_tpot_ms(const router_ask *ask, uint32_t worker)
{
    const router_load *load = &ask->workers[worker].load;
    return 1000 * ask->costs->decode_s(ask->costs->context, worker, load->running + 1,
                                       load->context_tokens + ask->request->num_prompt_tokens);
}

bool llm_d_meets_slo(const llm_d *state, const router_ask *ask, uint32_t worker)
{
    return llm_d_ttft_ms(ask, worker) <= state->values[LLM_D_SLO_TTFT_MS] &&
           llm_d_tpot_ms(ask, worker) <= state->values[LLM_D_SLO_TPOT_MS];
}

/* How far the predictions are from the limits, 0 nearest to 1 farthest, of the workers of one kind:
 * kind 0 keeps both limits, 1 misses only the TPOT, 2 only the TTFT, 3 both. */
typedef struct distances {
    double min[2];
    double max[2];
} distances;

static uint32_t kind_of(const llm_d *state, const router_ask *ask, uint32_t worker)
{
    uint32_t late = llm_d_ttft_ms(ask, worker) > state->values[LLM_D_SLO_TTFT_MS];
    uint32_t slow = llm_d_tpot_ms(ask, worker) > state->values[LLM_D_SLO_TPOT_MS];
    return 2 * late + slow;
}

static void distance_of(const llm_d *state, const router_ask *ask, uint32_t worker, double *of)
{
    of[0] = fabs(state->values[LLM_D_SLO_TTFT_MS] - llm_d_ttft_ms(ask, worker));
    of[1] = fabs(state->values[LLM_D_SLO_TPOT_MS] - llm_d_tpot_ms(ask, worker));
}

static double place_of(const distances *d, const double *of)
{
    static const double weights[2] = {0.8, 0.2};
    double sum = 0;
    double weight = 0;
    for (uint32_t k = 0; k < 2; k++) {
        double range = d->max[k] - d->min[k];
        if (range <= 1e-9)
            continue;
        sum += weights[k] * (of[k] - d->min[k]) / range;
        weight += weights[k];
    }
    return weight == 0 ? 0.5 : sum / weight;
}

/* Only workers of the best kind have a score: those that miss limits, the idle ones if any is idle,
 * else those that miss the least. */
static void score_by_limits(llm_d *state, const router_ask *ask, double *out)
{
    uint32_t best = 4;
    bool any_idle = false;
    distances d = {{INFINITY, INFINITY}, {-INFINITY, -INFINITY}};
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t kind = kind_of(state, ask, ask->candidates[i]);
        best = kind < best ? kind : best;
        any_idle = any_idle || ask->workers[ask->candidates[i]].in_flight == 0;
    }
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        double of[2];
        bool is_in =
            best > 0 && any_idle ? ask->workers[w].in_flight == 0 : kind_of(state, ask, w) == best;
        out[i] = is_in ? 1 : 0;
        distance_of(state, ask, w, of);
        for (uint32_t k = 0; k < 2 && is_in; k++) {
            d.min[k] = of[k] < d.min[k] ? of[k] : d.min[k];
            d.max[k] = of[k] > d.max[k] ? of[k] : d.max[k];
        }
    }
    bool is_least = best > 0 || state->values[LLM_D_HEADROOM] == LLM_D_LEAST;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        double of[2];
        if (out[i] == 0)
            continue;
        distance_of(state, ask, ask->candidates[i], of);
        double place = place_of(&d, of);
        out[i] = 0.02 + 0.98 * (is_least ? 1 - place : place);
    }
}

/* Without limits: KV usage, queue and prefix, one third each. */
static void score_latency(llm_d *state, const router_ask *ask, double *out)
{
    if (state->values[LLM_D_SLO_TTFT_MS] > 0 && state->values[LLM_D_SLO_TPOT_MS] > 0) {
        score_by_limits(state, ask, out);
        return;
    }
    score_queue(state, ask, out);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        out[i] = (out[i] + 1 - ask->workers[w].load.kv_usage + match_rate(ask, w)) / 3;
    }
}

const llm_d_scorer llm_d_scorers[LLM_D_NUM_SCORERS] = {
    [LLM_D_PREFIX] = score_prefix,
    [LLM_D_QUEUE] = score_queue,
    [LLM_D_KV] = score_kv,
    [LLM_D_RUNNING] = score_running,
    [LLM_D_LOAD_AWARE] = score_load_aware,
    [LLM_D_ACTIVE_REQUEST] = score_active_request,
    [LLM_D_TOKEN_LOAD] = score_token_load,
    [LLM_D_NO_HIT_LRU] = score_no_hit_lru,
    [LLM_D_SESSION] = score_session,
    [LLM_D_LATENCY] = score_latency,
};
