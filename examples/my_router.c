/* my_router.c - a routing policy of one's own, for `quire fleet`.
 *
 *      cc -shared -fPIC -I cli/fleet/routers -o my_router.so examples/my_router.c
 *      quire fleet --workers 8 --router ./my_router.so:weight=0.5 TRACE
 *
 * The cost of a worker is the part of the prompt that it would compute, plus `weight` for each
 * request in flight. Of equal workers the first one is chosen.
 */
#include <policy.h>

#include <stdlib.h>

static const router_option options[] = {
    {"weight", "cost of a request in flight, in whole prompts", 0.25, 0, 100, false, NULL}, {0}};

static bool open_state(const double *values, uint32_t max_workers, void **state, char why[256])
{
    double *weight = malloc(sizeof *weight);
    (void)max_workers;
    (void)why;
    if (weight != NULL)
        *weight = values[0];
    *state = weight;
    return weight != NULL;
}

static void choose(void *state, const router_ask *ask, router_choice *choice)
{
    double weight = *(const double *)state;
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        double hit_tokens = (double)router_hit_blocks(&ask->hits[w]) * ask->request->block_size;
        double uncached = 1 - hit_tokens / ask->request->num_prompt_tokens;
        double requests = weight * ask->workers[w].in_flight;
        if (choice->worker != ROUTER_NONE && uncached + requests >= choice->score)
            continue;
        choice->worker = w;
        choice->score = uncached + requests;
        choice->terms[0] = uncached;
        choice->terms[1] = requests;
    }
}

const router_policy quire_router_policy = {
    .version = ROUTER_POLICY_VERSION,
    .name = "my-router",
    .summary = "the uncached part of the prompt, plus a weight for each request in flight",
    .is_cost = true,
    .terms = {"of the prompt uncached", "for requests"},
    .options = options,
    .knowledge = {.index = ROUTER_INDEX_EVENTS},
    .open = open_state,
    .close = free,
    .choose = choose,
};
