/* `quire` that writes what its routers are told and what they decide, for a router of others to
 * decide the same again: test_dynamo_router.py.
 *
 *      QUIRE_FLEET_HISTORY=FILE fleet_history fleet --router dynamo-kv ... TRACE
 *
 * Each line of FILE is a JSON object, in the order of the calls:
 *
 *      stored, removed     worker, blocks
 *      asked               request, tokens, blocks; role, and the worker that dynamo-kv chose for
 *                          it; by worker: hit, active_hits, prefill_tokens, active_blocks,
 *                          in_flight, cost. A prefill worker is chosen after the decode worker.
 *      first, done         request
 *
 * The linker puts the functions below in the place of those of cli/fleet/routers/router.h (--wrap).
 * Decisions are those of `quire fleet`: each call goes on to the real function. dynamo.c is
 * included for the costs of the workers that were not chosen.
 */
#define policy_dynamo_kv policy_of_this_file
#include "fleet/routers/dynamo.c"
#undef policy_dynamo_kv
#include "fleet/routers/router_state.h"

#include <inttypes.h>
#include <stdio.h>

void __real_router_kv(routers *r, const router_kv_event *event);
void __real_router_choose(routers *r, const router_request *request, const router_load *loads,
                          router_answer *answer);
void __real_router_first_token(routers *r, double now_s, uint64_t number, uint32_t num_cached);
void __real_router_done(routers *r, double now_s, uint64_t number, uint32_t num_output_tokens,
                        bool was_aborted);
bool __wrap_router_wants_kv(const routers *r);
void __wrap_router_kv(routers *r, const router_kv_event *event);
void __wrap_router_choose(routers *r, const router_request *request, const router_load *loads,
                          router_answer *answer);
void __wrap_router_first_token(routers *r, double now_s, uint64_t number, uint32_t num_cached);
void __wrap_router_done(routers *r, double now_s, uint64_t number, uint32_t num_output_tokens,
                        bool was_aborted);

static FILE *history;

static FILE *out(void)
{
    const char *path = getenv("QUIRE_FLEET_HISTORY");
    if (history == NULL)
        history = fopen(path != NULL ? path : "", "w");
    if (history == NULL) {
        fprintf(stderr, "QUIRE_FLEET_HISTORY names no file that can be written\n");
        exit(2);
    }
    return history;
}

static void print_blocks(const uint64_t *blocks, uint32_t n)
{
    fputs(",\"blocks\":[", out());
    for (uint32_t i = 0; i < n; i++)
        fprintf(out(), "%s%" PRIu64, i > 0 ? "," : "", blocks[i]);
    fputs("]", out());
}

/* The routers look into the caches; the events are collected all the same. */
bool __wrap_router_wants_kv(const routers *r)
{
    (void)r;
    return true;
}

void __wrap_router_kv(routers *r, const router_kv_event *event)
{
    if (event->tier != ROUTER_GPU || event->kind == ROUTER_KV_CLEARED) {
        fprintf(stderr, "only blocks that are stored in and removed from GPU memory are known\n");
        exit(2);
    }
    fprintf(out(), "{\"kind\":\"%s\",\"worker\":%u",
            event->kind == ROUTER_KV_STORED ? "stored" : "removed", event->worker);
    print_blocks(event->blocks, event->num_blocks);
    fputs("}\n", out());
    __real_router_kv(r, event);
}

/* What the router has seen of each candidate. */
static void print_workers(const routers *r, const router_ask *ask)
{
    const dynamo *d = r->each[0].state;
    uint64_t min_tokens = min_prefill_tokens(ask);
    fputs(",\"workers\":[", out());
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        const router_worker *worker = &ask->workers[w];
        fprintf(out(),
                "%s{\"worker\":%u,\"hit\":%u,\"active_hits\":%u,\"prefill_tokens\":%" PRIu64
                ",\"active_blocks\":%" PRIu64 ",\"in_flight\":%u,\"cost\":%.17g}",
                i > 0 ? "," : "", w, router_hit_blocks(&ask->hits[w]), ask->active_hits[w],
                worker->prefill_tokens, worker->active_blocks, worker->in_flight,
                cost_of(d->values, ask, w, min_tokens));
    }
    fputs("]}\n", out());
}

/* Hits are as they were when the router decided; workers are from before it counted the request. */
static void print_asked(const routers *r, const router_request *request, router_role role,
                        const router_worker *before, uint32_t chosen)
{
    static const char *const names[] = {"serve", "prefill", "decode"};
    const view *v = &r->each[0].view;
    router_ask ask = {.request = request,
                      .role = role,
                      .candidates = r->candidates[role],
                      .num_candidates = r->num_candidates[role],
                      .workers = before,
                      .num_workers = v->num_workers,
                      .hits = v->hits,
                      .active_hits = v->active_hits};
    fprintf(out(),
            "{\"kind\":\"asked\",\"role\":\"%s\",\"request\":%" PRIu64
            ",\"tokens\":%u,\"worker\":%u",
            names[role], request->number, request->num_prompt_tokens, chosen);
    print_blocks(request->blocks, request->num_blocks);
    print_workers(r, &ask);
}

static void check_fleet(const routers *r)
{
    if (r->settings.num_routers == 1 && strcmp(r->policy->name, "dynamo-kv") == 0)
        return;
    fprintf(stderr, "needs --router dynamo-kv and --routers 1\n");
    exit(2);
}

void __wrap_router_choose(routers *r, const router_request *request, const router_load *loads,
                          router_answer *answer)
{
    size_t bytes = r->settings.max_workers * sizeof(router_worker);
    router_worker *before = malloc(bytes);
    check_fleet(r);
    if (before == NULL) {
        fprintf(stderr, "not enough memory\n");
        exit(2);
    }
    memcpy(before, r->each[0].view.workers, bytes);
    __real_router_choose(r, request, loads, answer);
    bool is_apart = answer->prefill_worker != ROUTER_NONE;
    if (answer->action == ROUTER_ROUTE)
        print_asked(r, request, is_apart ? ROUTER_DECODE : ROUTER_SERVE, before, answer->worker);
    if (answer->action == ROUTER_ROUTE && is_apart)
        print_asked(r, request, ROUTER_PREFILL, before, answer->prefill_worker);
    free(before);
}

static void print_answered(const char *kind, uint64_t number)
{
    fprintf(out(), "{\"kind\":\"%s\",\"request\":%" PRIu64 "}\n", kind, number);
}

void __wrap_router_first_token(routers *r, double now_s, uint64_t number, uint32_t num_cached)
{
    print_answered("first", number);
    __real_router_first_token(r, now_s, number, num_cached);
}

void __wrap_router_done(routers *r, double now_s, uint64_t number, uint32_t num_output_tokens,
                        bool was_aborted)
{
    print_answered("done", number);
    __real_router_done(r, now_s, number, num_output_tokens, was_aborted);
}
