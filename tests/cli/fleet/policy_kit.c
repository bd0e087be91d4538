#include "policy_kit.h"

#include "base/unit.h"

double kit_prefill_s(void *context, uint32_t worker, uint32_t num_cached, uint32_t num_new)
{
    (void)context;
    (void)worker;
    return num_new * 1e-4 + (double)num_cached * num_new * 1e-8;
}

double kit_decode_s(void *context, uint32_t worker, uint32_t num_running, uint64_t context_tokens)
{
    (void)context;
    (void)worker;
    return 0.01 + num_running * 1e-3 + (double)context_tokens * 1e-6;
}

static const router_costs costs = {.prefill_s = kit_prefill_s, .decode_s = kit_decode_s};

policy_world policy_world_of(uint32_t num_workers)
{
    policy_world w = {.num_workers = num_workers, .num_routers = 1, .random = 1};
    w.request.num_prompt_tokens = 160;
    w.request.block_size = 16;
    w.request.num_blocks = 10;
    w.request.time_s = 10;
    for (uint32_t i = 0; i < num_workers; i++)
        w.workers[i] = (router_worker){.is_ready = true,
                                       .num_blocks = 100,
                                       .max_num_batched_tokens = 8192,
                                       .capacity = 1,
                                       .last_routed_s = -1};
    return w;
}

void policy_open(policy_world *w, const char *spec)
{
    char why[ROUTER_WHY_BYTES] = "";
    if (!router_spec_read(spec, &w->spec, why))
        fail_msg("%s: %s", spec, why);
    if (w->spec.policy->open != NULL)
        assert_true(w->spec.policy->open(w->spec.values, KIT_WORKERS, &w->state, why));
}

void policy_close(policy_world *w)
{
    if (w->spec.policy->close != NULL)
        w->spec.policy->close(w->state);
    router_spec_free(&w->spec);
}

void policy_hit(policy_world *w, uint32_t worker, uint32_t gpu)
{
    w->hits[worker] = (router_hit){.gpu = gpu, .leading = gpu};
}

router_ask policy_ask(policy_world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->num_workers; i++)
        if (w->workers[i].is_ready)
            w->candidates[n++] = i;
    return (router_ask){.request = &w->request,
                        .role = w->role,
                        .candidates = w->candidates,
                        .num_candidates = n,
                        .workers = w->workers,
                        .num_workers = w->num_workers,
                        .hits = w->hits,
                        .active_hits = w->active_hits,
                        .shared_hit = w->shared_hit,
                        .costs = &costs,
                        .random = &w->random,
                        .router = w->router,
                        .num_routers = w->num_routers,
                        .prefill_worker = ROUTER_NONE};
}

router_choice policy_choose(policy_world *w)
{
    router_ask ask = policy_ask(w);
    router_choice choice = {.worker = ROUTER_NONE, .runner_up = ROUTER_NONE};
    w->spec.policy->choose(w->state, &ask, &choice);
    if (choice.action == ROUTER_ROUTE)
        assert_true(choice.worker < w->num_workers && w->workers[choice.worker].is_ready);
    return choice;
}

void policy_tell(policy_world *w, router_event_kind kind, uint32_t worker, router_event event)
{
    event.kind = kind;
    event.worker = worker;
    event.seen = &w->workers[worker];
    w->spec.policy->notify(w->state, &event);
}
