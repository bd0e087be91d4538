#include "router.h"

#include "output/grown.h"
#include "router_state.h"

#define NONE PAIR_MAP_NONE

/* ---- workers --------------------------------------------------------------- */

static void tell(routers *r, uint32_t router, router_event *event)
{
    one_router *one = &r->each[router];
    if (r->policy->notify == NULL)
        return;
    event->seen = &one->view.workers[event->worker];
    r->policy->notify(one->state, event);
}

static void tell_all(routers *r, router_event_kind kind, double now_s, uint32_t worker)
{
    for (uint32_t i = 0; i < r->settings.num_routers; i++)
        tell(r, i, &(router_event){.kind = kind, .time_s = now_s, .worker = worker});
}

/* All routers see at once who is ready. */
static void list_candidates(routers *r)
{
    const view *v = &r->each[0].view;
    memset(r->num_candidates, 0, sizeof r->num_candidates);
    for (uint32_t w = 0; w < v->num_workers; w++) {
        router_role role = v->workers[w].pool;
        if (v->workers[w].is_ready)
            r->candidates[role][r->num_candidates[role]++] = w;
    }
}

void router_join(routers *r, double now_s, uint32_t worker, const router_worker_info *info)
{
    for (uint32_t i = 0; i < r->settings.num_routers; i++)
        view_join(&r->each[i].view, now_s, worker, info);
    list_candidates(r);
    tell_all(r, ROUTER_EVENT_JOINED, now_s, worker);
    if (info->pool != ROUTER_SERVE && (r->policy->needs & ROUTER_NEEDS_REPORTS_APART))
        routers_begin_reports(r, now_s);
    r->may_retry = true;
}

void router_drain(routers *r, double now_s, uint32_t worker)
{
    (void)now_s;
    for (uint32_t i = 0; i < r->settings.num_routers; i++)
        view_drain(&r->each[i].view, worker);
    list_candidates(r);
}

void router_leave(routers *r, double now_s, uint32_t worker)
{
    if (r->truth != NULL)
        kv_feed_drop_worker(r->truth, worker);
    for (uint32_t i = 0; i < r->settings.num_routers; i++) {
        if (r->each[i].feed != NULL)
            kv_feed_drop_worker(r->each[i].feed, worker);
        view_leave(&r->each[i].view, worker);
    }
    list_candidates(r);
    tell_all(r, ROUTER_EVENT_LEFT, now_s, worker);
}

/* ---- what engines say ------------------------------------------------------ */

void router_kv_lost(routers *r, const router_kv_event *event)
{
    if (r->truth != NULL)
        (void)kv_feed_event(r->truth, event);
    for (uint32_t i = 0; i < r->settings.num_routers; i++)
        if (r->each[i].feed != NULL)
            kv_feed_lose(r->each[i].feed, event->worker);
}

bool router_wants_kv(const routers *r)
{
    return r->truth != NULL || r->each[0].feed != NULL;
}

void router_kv(routers *r, const router_kv_event *event)
{
    if (r->truth != NULL)
        (void)kv_feed_event(r->truth, event);
    for (uint32_t i = 0; i < r->settings.num_routers; i++)
        if (r->each[i].feed != NULL)
            (void)kv_feed_event(r->each[i].feed, event);
}

bool router_asks_caches(const routers *r)
{
    return r->asks_caches;
}

bool router_wants_blocks(const routers *r)
{
    return r->settings.view.knowledge.index != ROUTER_INDEX_NONE ||
           (r->policy->needs & ROUTER_NEEDS_ACTIVE) != 0;
}

double router_next_tick(const routers *r)
{
    return r->next_tick_s;
}

void router_tick(routers *r, double now_s, const router_load *loads)
{
    for (uint32_t i = 0; i < r->settings.num_routers; i++) {
        view *v = &r->each[i].view;
        view_report(v, now_s, loads);
        for (uint32_t w = 0; r->policy->notify != NULL && w < v->num_workers; w++)
            tell(r, i, &(router_event){.kind = ROUTER_EVENT_METRICS, .time_s = now_s, .worker = w});
    }
    r->next_tick_s = now_s + r->settings.view.knowledge.metrics_every_s;
    r->may_retry = true;
}

/* ---- waiting requests ------------------------------------------------------ */

bool router_next_waiting(routers *r, double now_s, uint64_t *number)
{
    (void)now_s;
    return r->may_retry && wait_queue_first(&r->queue, number);
}

uint32_t router_num_waiting(const routers *r)
{
    return r->queue.num_waiting;
}

/* ---- a decision ------------------------------------------------------------ */

static router_choice choose(routers *r, uint32_t router, const router_request *request,
                            router_role role, router_ask *ask)
{
    one_router *one = &r->each[router];
    const view *v = &one->view;
    router_choice choice = {.worker = ROUTER_NONE, .runner_up = ROUTER_NONE};
    *ask = (router_ask){.request = request,
                        .role = role,
                        .candidates = r->candidates[role],
                        .num_candidates = r->num_candidates[role],
                        .workers = v->workers,
                        .num_workers = v->num_workers,
                        .hits = v->hits,
                        .active_hits = v->active_hits,
                        .shared_hit = v->shared_hit,
                        .costs = &r->settings.costs,
                        .random = &one->random,
                        .router = router,
                        .num_routers = r->settings.num_routers,
                        .prefill_worker = ROUTER_NONE};
    if (ask->num_candidates == 0) {
        choice.action = ROUTER_WAIT;
        choice.reason = "no worker is ready";
        choice.wait_order = -request->arrival_s;
        return choice;
    }
    r->policy->choose(one->state, ask, &choice);
    return choice;
}

static void find_best_hit(const routers *r, const view *v, router_role role, router_answer *answer)
{
    for (uint32_t i = 0; i < r->num_candidates[role]; i++) {
        uint32_t worker = r->candidates[role][i];
        uint32_t blocks = view_hit_blocks(v, worker);
        if (blocks > answer->best_hit_blocks) {
            answer->best_hit_blocks = blocks;
            answer->best_hit_worker = worker;
        }
    }
}

/* With pools the worker that decodes is chosen first: its hits decide whether another worker
 * computes the prompt. Without a free prefill worker the decode worker does it. */
static void decide(routers *r, uint32_t router, const router_request *request,
                   router_answer *answer)
{
    view *v = &r->each[router].view;
    router_ask ask;
    bool has_pools = r->num_candidates[ROUTER_PREFILL] + r->num_candidates[ROUTER_DECODE] > 0;
    router_role role = has_pools ? ROUTER_DECODE : ROUTER_SERVE;
    answer->choice = choose(r, router, request, role, &ask);
    answer->action = answer->choice.action;
    answer->worker = answer->choice.worker;
    if (role == ROUTER_SERVE || answer->action != ROUTER_ROUTE) {
        find_best_hit(r, v, role, answer);
        return;
    }
    bool is_apart = r->policy->disaggregates == NULL ||
                    r->policy->disaggregates(r->each[router].state, &ask, answer->worker);
    if (is_apart && r->num_candidates[ROUTER_PREFILL] > 0) {
        answer->prefill_choice = choose(r, router, request, ROUTER_PREFILL, &ask);
        answer->action = answer->prefill_choice.action;
        answer->prefill_worker = answer->prefill_choice.worker;
    }
    find_best_hit(r, v, answer->prefill_worker == ROUTER_NONE ? ROUTER_DECODE : ROUTER_PREFILL,
                  answer);
}

static flight *take_flight(routers *r, uint64_t number)
{
    uint32_t id = r->free_flight;
    if (id == NONE) {
        if (!grow(&r->flights, r->num_flights, &r->flights_room, NONE - 1, sizeof *r->flights))
            return NULL;
        id = r->num_flights;
    }
    if (!pair_map_set(&r->numbers, number, 0, id))
        return NULL;
    if (id == r->num_flights)
        r->num_flights++;
    else
        r->free_flight = r->flights[id].next_free;
    r->flights[id] = (flight){.number = number};
    return &r->flights[id];
}

static void send(routers *r, const router_request *request, router_answer *answer)
{
    view *v = &r->each[answer->router].view;
    flight *f = take_flight(r, request->number);
    bool is_apart = answer->prefill_worker != ROUTER_NONE;
    if (f == NULL) {
        answer->action = ROUTER_REFUSE;
        answer->choice.reason = "out of memory";
        return;
    }
    answer->believed_blocks =
        view_hit_blocks(v, is_apart ? answer->prefill_worker : answer->worker);
    uint64_t cached = (uint64_t)answer->believed_blocks * r->settings.block_size;
    f->num_cached_tokens =
        cached < request->num_prompt_tokens ? (uint32_t)cached : request->num_prompt_tokens;
    f->router = answer->router;
    f->routed_s = request->time_s;
    f->prefill_work = answer->prefill_choice.work;
    f->serve_work = answer->choice.work;
    if (is_apart)
        f->prefill =
            view_begin(v, request->time_s, answer->prefill_worker, ROUTER_PREFILL, request);
    /* A worker of the decode pool that computes the prompt itself serves. */
    f->serve = view_begin(v, request->time_s, answer->worker,
                          is_apart ? ROUTER_DECODE : ROUTER_SERVE, request);
    router_event event = {.kind = ROUTER_EVENT_ROUTED,
                          .time_s = request->time_s,
                          .worker = answer->worker,
                          .request = request,
                          .number = request->number,
                          .role = is_apart ? ROUTER_DECODE : ROUTER_SERVE,
                          .num_cached_tokens = f->num_cached_tokens,
                          .num_prompt_tokens = request->num_prompt_tokens,
                          .routed_s = request->time_s,
                          .work = answer->choice.work};
    if (is_apart) {
        router_event prefill = event;
        prefill.worker = answer->prefill_worker;
        prefill.role = ROUTER_PREFILL;
        prefill.work = answer->prefill_choice.work;
        tell(r, answer->router, &prefill);
    }
    tell(r, answer->router, &event);
}

void router_choose(routers *r, const router_request *request, const router_load *loads,
                   router_answer *answer)
{
    uint32_t waits_in = wait_queue_router(&r->queue, request->number);
    uint32_t router = waits_in != NONE ? waits_in : r->turn;
    one_router *one = &r->each[router];
    if (waits_in == NONE)
        r->turn = (r->turn + 1) % r->settings.num_routers;
    *answer = (router_answer){.router = router,
                              .worker = ROUTER_NONE,
                              .prefill_worker = ROUTER_NONE,
                              .best_hit_worker = ROUTER_NONE};
    answer->prefill_choice.worker = answer->prefill_choice.runner_up = ROUTER_NONE;
    if (one->feed != NULL)
        (void)kv_feed_advance(one->feed, request->time_s);
    view_advance(&one->view, request->time_s, loads);
    view_look(&one->view, request);
    decide(r, router, request, answer);
    if (answer->action == ROUTER_ROUTE)
        send(r, request, answer);
    if (answer->action == ROUTER_WAIT) {
        const router_choice *c = answer->prefill_choice.action == ROUTER_WAIT
                                     ? &answer->prefill_choice
                                     : &answer->choice;
        r->may_retry = false;
        if (!wait_queue_add(&r->queue, request->number, router, c->wait_order))
            answer->action = ROUTER_REFUSE;
    }
    if (answer->action != ROUTER_WAIT)
        wait_queue_remove(&r->queue, request->number);
    if (answer->action != ROUTER_ROUTE)
        answer->worker = answer->prefill_worker = ROUTER_NONE;
}

/* ---- answers of the workers --------------------------------------------------------------------
 * */

static flight *find_flight(routers *r, uint64_t number)
{
    uint32_t id = pair_map_get(&r->numbers, number, 0);
    return id == NONE ? NULL : &r->flights[id];
}

void router_first_token(routers *r, double now_s, uint64_t number, uint32_t num_cached_tokens)
{
    flight *f = find_flight(r, number);
    if (f == NULL)
        return;
    view *v = &r->each[f->router].view;
    bool is_apart = f->prefill.is_open;
    view_flight *first = is_apart ? &f->prefill : &f->serve;
    router_event event = {.kind = ROUTER_EVENT_FIRST_TOKEN,
                          .time_s = now_s,
                          .worker = first->worker,
                          .number = number,
                          .role = is_apart ? ROUTER_PREFILL : ROUTER_SERVE,
                          .num_cached_tokens = num_cached_tokens,
                          .num_prompt_tokens = first->num_prompt_tokens,
                          .routed_s = f->routed_s,
                          .work = is_apart ? f->prefill_work : f->serve_work,
                          .first_token_s = now_s};
    view_first_token(v, first);
    if (is_apart)
        view_end(v, &f->prefill);
    f->first_token_s = now_s;
    r->may_retry = true;
    tell(r, f->router, &event);
}

void router_output(routers *r, double now_s, uint64_t number, uint32_t num_output_tokens)
{
    flight *f = find_flight(r, number);
    (void)now_s;
    if (f != NULL)
        view_output(&r->each[f->router].view, &f->serve, num_output_tokens);
}

/* A prefill that ends without a first token. */
static void end_prefill(routers *r, flight *f, router_event_kind kind, double now_s)
{
    router_event event = {.kind = kind,
                          .time_s = now_s,
                          .worker = f->prefill.worker,
                          .number = f->number,
                          .role = ROUTER_PREFILL,
                          .num_cached_tokens = f->num_cached_tokens,
                          .num_prompt_tokens = f->prefill.num_prompt_tokens,
                          .routed_s = f->routed_s,
                          .work = f->prefill_work,
                          .first_token_s = f->first_token_s};
    view_end(&r->each[f->router].view, &f->prefill);
    tell(r, f->router, &event);
}

void router_prefill_lost(routers *r, double now_s, uint64_t number)
{
    flight *f = find_flight(r, number);
    if (f == NULL || !f->prefill.is_open)
        return;
    end_prefill(r, f, ROUTER_EVENT_ABORTED, now_s);
    r->may_retry = true;
}

void router_done(routers *r, double now_s, uint64_t number, uint32_t num_output_tokens,
                 bool was_aborted)
{
    flight *f = find_flight(r, number);
    wait_queue_remove(&r->queue, number);
    if (f == NULL)
        return;
    view *v = &r->each[f->router].view;
    router_event event = {.kind = was_aborted ? ROUTER_EVENT_ABORTED : ROUTER_EVENT_DONE,
                          .time_s = now_s,
                          .worker = f->serve.worker,
                          .number = number,
                          .role = ROUTER_SERVE,
                          .num_cached_tokens = f->num_cached_tokens,
                          .num_prompt_tokens = f->serve.num_prompt_tokens,
                          .num_output_tokens = num_output_tokens,
                          .routed_s = f->routed_s,
                          .work = f->serve_work,
                          .first_token_s = f->first_token_s};
    if (f->prefill.is_open) /* aborted before its prompt was computed */
        end_prefill(r, f, event.kind, now_s);
    view_end(v, &f->serve);
    pair_map_remove(&r->numbers, number, 0);
    f->next_free = r->free_flight;
    r->free_flight = (uint32_t)(f - r->flights);
    r->may_retry = true;
    tell(r, f->router, &event);
}

const router_policy *routers_policy(const routers *r)
{
    return r->policy;
}

const router_worker *router_workers(const routers *r, uint32_t index)
{
    return r->each[index].view.workers;
}

/* Events are counted as the routers hear them; an exact index is shared and counts once. */
router_view_stats router_stats(const routers *r)
{
    router_view_stats stats = {0};
    if (r->truth != NULL)
        kv_feed_count_index(r->truth, &stats);
    if (r->truth != NULL && r->each[0].feed == NULL)
        kv_feed_count_events(r->truth, &stats);
    for (uint32_t i = 0; i < r->settings.num_routers; i++) {
        const view *v = &r->each[i].view;
        if (r->each[i].feed != NULL) {
            kv_feed_count_index(r->each[i].feed, &stats);
            kv_feed_count_events(r->each[i].feed, &stats);
        }
        if (v->own != NULL) {
            stats.index_blocks += block_index_pairs(own_blocks_index(v->own));
            stats.index_bytes += own_blocks_bytes(v->own);
        }
        if (v->active != NULL)
            stats.index_bytes += active_blocks_bytes(v->active);
    }
    return stats;
}
