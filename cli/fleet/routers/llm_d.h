/* cli/fleet/routers/llm_d.h - the scorers of llm-d's endpoint picker.
 *
 *      score of a worker = sum of weight x scorer, each scorer 0 to 1          the largest is
 * chosen
 *
 * llm_d_scorers.c has one function for each scorer; llm_d.c has filters, the picker and the
 * decision on prefill workers.
 */
#ifndef QUIRE_CLI_FLEET_ROUTERS_LLM_D_H
#define QUIRE_CLI_FLEET_ROUTERS_LLM_D_H

#include "policy.h"

/* Options; the scorers' weights come first, in the order of llm_d_scorers. */
enum {
    LLM_D_PREFIX,
    LLM_D_QUEUE,
    LLM_D_KV,
    LLM_D_RUNNING,
    LLM_D_LOAD_AWARE,
    LLM_D_ACTIVE_REQUEST,
    LLM_D_TOKEN_LOAD,
    LLM_D_NO_HIT_LRU,
    LLM_D_SESSION,
    LLM_D_LATENCY,
    LLM_D_NUM_SCORERS,
    LLM_D_PREFIX_SCORE = LLM_D_NUM_SCORERS,
    LLM_D_HOST_WEIGHT,
    LLM_D_DISK_WEIGHT,
    LLM_D_QUEUE_THRESHOLD,
    LLM_D_IDLE_THRESHOLD,
    LLM_D_MAX_BUSY_SCORE,
    LLM_D_TOKEN_THRESHOLD,
    LLM_D_SLO_TTFT_MS,
    LLM_D_SLO_TPOT_MS,
    LLM_D_HEADROOM,
    LLM_D_PICKER,
    LLM_D_AFFINITY,
    LLM_D_EXPLORATION,
    LLM_D_MAX_PENALTY_MS,
    LLM_D_SLO_TIER,
    LLM_D_NON_CACHED_TOKENS,
    LLM_D_NUM_OPTIONS
};

enum { LLM_D_MATCH_RATE, LLM_D_MIN_MAX };
enum { LLM_D_LEAST, LLM_D_MOST };
enum { LLM_D_MAX_SCORE, LLM_D_WEIGHTED_RANDOM, LLM_D_RANDOM };

/* When a candidate got its last cold request. */
typedef struct llm_d_turn {
    uint64_t turn; /* 0: never */
    uint32_t position;
} llm_d_turn;

typedef struct llm_d {
    double values[LLM_D_NUM_OPTIONS];
    uint32_t max_workers;
    double *scores;       /* by position in `kept` */
    double *one;          /* of one scorer */
    uint32_t *kept;       /* candidates that the filters keep */
    uint64_t *cold_turns; /* by worker: when it got its last cold request; 0: never */
    llm_d_turn *by_turn;  /* scratch: the longest without a cold request first */
    uint64_t num_cold;
    uint32_t *sessions; /* worker of a session, by its hash; ROUTER_NONE: none yet */
} llm_d;

enum { LLM_D_SESSIONS = 1 << 16 }; /* sessions that share a hash share a worker */

/* out[i] is 0 to 1 for ask->candidates[i]. */
typedef void (*llm_d_scorer)(llm_d *state, const router_ask *ask, double *out);
extern const llm_d_scorer llm_d_scorers[LLM_D_NUM_SCORERS];

/* Predicted, by the fleet's time model. */
double llm_d_ttft_ms(const router_ask *ask, uint32_t worker);
double llm_d_tpot_ms(const router_ask *ask, uint32_t worker);
/* Whether both predictions keep the limits of the options. */
bool llm_d_meets_slo(const llm_d *state, const router_ask *ask, uint32_t worker);
bool llm_d_is_cold(const router_ask *ask);
uint32_t *llm_d_session(llm_d *state, uint64_t session);

#endif
