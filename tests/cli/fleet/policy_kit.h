/* cli/fleet/policy_kit.h - workers and a request by hand, and what a policy chooses for them.
 *
 *      policy_world w = policy_world_of(3);
 *      w.workers[1].in_flight = 4;
 *      policy_open(&w, "lmetric");
 *      router_choice c = policy_choose(&w);
 *      policy_close(&w);
 */
#ifndef CLI_FLEET_POLICY_KIT_H
#define CLI_FLEET_POLICY_KIT_H

#include "fleet/routers/router_table.h"

enum { KIT_WORKERS = 8 };

typedef struct policy_world {
    router_spec spec;
    void *state;
    router_request request;
    router_role role;
    router_worker workers[KIT_WORKERS];
    router_hit hits[KIT_WORKERS];
    uint32_t active_hits[KIT_WORKERS];
    uint32_t candidates[KIT_WORKERS];
    uint32_t num_workers;
    uint32_t shared_hit;
    uint32_t router;
    uint32_t num_routers;
    uint64_t random;
} policy_world;

/* Ready workers of 100 blocks, a prompt of 160 tokens in blocks of 16. */
policy_world policy_world_of(uint32_t num_workers);
/* A policy with options; fails the test if the text is refused. */
void policy_open(policy_world *w, const char *spec);
void policy_close(policy_world *w);
/* A worker with blocks in GPU memory. */
void policy_hit(policy_world *w, uint32_t worker, uint32_t gpu);
router_choice policy_choose(policy_world *w);
router_ask policy_ask(policy_world *w);
/* An event of a worker; of a request if it has a number. */
void policy_tell(policy_world *w, router_event_kind kind, uint32_t worker, router_event event);

/* 0.1 ms for each new token, and 10 ns for each pair of a new and a cached one. */
double kit_prefill_s(void *context, uint32_t worker, uint32_t num_cached, uint32_t num_new);
/* 10 ms, 1 ms for each request, and 1 us for each token. */
double kit_decode_s(void *context, uint32_t worker, uint32_t num_running, uint64_t context_tokens);

#endif
