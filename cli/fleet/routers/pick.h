/* cli/fleet/routers/pick.h - the best of the candidates, and the next best.
 *
 *      pick p = pick_smallest(PICK_RANDOM);
 *      for each candidate: pick_offer(&p, ask, worker, cost);
 *      pick_choose(&p, choice);
 */
#ifndef QUIRE_CLI_FLEET_ROUTERS_PICK_H
#define QUIRE_CLI_FLEET_ROUTERS_PICK_H

#include "policy.h"

/* Which of equal candidates is the best: each with the same probability, the first offered, or the
 * last. */
typedef enum pick_tie { PICK_RANDOM, PICK_FIRST, PICK_LAST } pick_tie;

typedef struct pick {
    double sign; /* -1: the smallest is the best */
    pick_tie tie;
    uint32_t worker;
    uint32_t runner_up;
    double score;
    double runner_up_score;
    uint32_t num_equal; /* with the best score */
} pick;

static inline pick pick_largest(pick_tie tie)
{
    return (pick){1, tie, ROUTER_NONE, ROUTER_NONE, 0, 0, 0};
}

static inline pick pick_smallest(pick_tie tie)
{
    return (pick){-1, tie, ROUTER_NONE, ROUTER_NONE, 0, 0, 0};
}

static inline void pick_second(pick *p, uint32_t worker, double score)
{
    if (p->runner_up != ROUTER_NONE && p->sign * score <= p->sign * p->runner_up_score)
        return;
    p->runner_up = worker;
    p->runner_up_score = score;
}

/* The k-th of equal candidates takes the place with probability 1/k. */
static inline bool pick_replaces(pick *p, const router_ask *ask)
{
    return p->tie == PICK_LAST ||
           (p->tie == PICK_RANDOM && router_random_below(ask, p->num_equal) == 0);
}

static inline void pick_offer(pick *p, const router_ask *ask, uint32_t worker, double score)
{
    bool is_equal = p->worker != ROUTER_NONE && score == p->score;
    bool is_better = p->worker == ROUTER_NONE || p->sign * score > p->sign * p->score;
    p->num_equal = is_better ? 1 : p->num_equal + is_equal;
    if (is_better || (is_equal && pick_replaces(p, ask))) {
        if (p->worker != ROUTER_NONE)
            pick_second(p, p->worker, p->score);
        p->worker = worker;
        p->score = score;
    } else {
        pick_second(p, worker, score);
    }
}

static inline void pick_choose(const pick *p, router_choice *choice)
{
    choice->worker = p->worker;
    choice->score = p->score;
    choice->runner_up = p->runner_up;
    choice->runner_up_score = p->runner_up_score;
    choice->num_ties = p->num_equal == 0 ? 0 : p->num_equal - 1;
}

/* Tokens of the leading blocks in any tier; never more than the prompt. */
static inline uint32_t pick_hit_tokens(const router_ask *ask, uint32_t worker)
{
    uint64_t tokens = (uint64_t)router_hit_blocks(&ask->hits[worker]) * ask->request->block_size;
    return tokens < ask->request->num_prompt_tokens ? (uint32_t)tokens
                                                    : ask->request->num_prompt_tokens;
}

/* The candidate with the fewest requests in flight. */
static inline void pick_fewest(const router_ask *ask, pick_tie tie, router_choice *choice)
{
    pick p = pick_smallest(tie);
    for (uint32_t i = 0; i < ask->num_candidates; i++)
        pick_offer(&p, ask, ask->candidates[i], ask->workers[ask->candidates[i]].in_flight);
    pick_choose(&p, choice);
}

#endif
