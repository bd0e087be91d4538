/* oracle.c - the policy that knows all: declared in policies.h.
 *
 *      TTFT = prefill of all prompt tokens that wait or are being computed
 *           + prefill of this prompt behind its real hit
 *           + a decode step of the running requests                  the smallest is chosen
 *
 * Its index and its loads are exact and current. It does not know the future: it is the bound of
 * policies that choose by the predicted TTFT of the request at hand.
 */
#include "pick.h"
#include "policies.h"

static double queue_s(const router_ask *ask, uint32_t worker)
{
    const router_load *load = &ask->workers[worker].load;
    uint64_t tokens = load->prefill_tokens;
    uint32_t most = tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
    return ask->costs->prefill_s(ask->costs->context, worker, 0, most);
}

static double prompt_s(const router_ask *ask, uint32_t worker)
{
    uint32_t hit = pick_hit_tokens(ask, worker);
    return ask->costs->prefill_s(ask->costs->context, worker, hit,
                                 ask->request->num_prompt_tokens - hit);
}

static double step_s(const router_ask *ask, uint32_t worker)
{
    const router_load *load = &ask->workers[worker].load;
    return ask->costs->decode_s(ask->costs->context, worker, load->running + 1,
                                load->context_tokens + ask->request->num_prompt_tokens);
}

static void choose_oracle(void *state, const router_ask *ask, router_choice *choice)
{
    (void)state;
    pick p = pick_smallest(PICK_RANDOM);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        double ttft_s = step_s(ask, w);
        if (ask->role != ROUTER_DECODE)
            ttft_s += queue_s(ask, w) + prompt_s(ask, w);
        pick_offer(&p, ask, w, ttft_s);
    }
    pick_choose(&p, choice);
    choice->terms[0] = ask->role == ROUTER_DECODE ? 0 : queue_s(ask, choice->worker);
    choice->terms[1] = ask->role == ROUTER_DECODE ? 0 : prompt_s(ask, choice->worker);
    choice->terms[2] = step_s(ask, choice->worker);
}

const router_policy policy_oracle = {
    .version = ROUTER_POLICY_VERSION,
    .needs = ROUTER_IS_ORACLE,
    .name = "oracle",
    .summary = "knows every cache and queue: the smallest predicted TTFT; the bound for the others",
    .is_cost = true,
    .terms = {"s in the queue", "s for the prompt", "s for a step"},
    .knowledge = {.index = ROUTER_INDEX_EVENTS},
    .choose = choose_oracle,
};
