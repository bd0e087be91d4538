#include "fleet.h"
#include "crew.h"
#include "output/failure.h"
#include "output/grown.h"
#include "output/progress.h"
#include "worker.h"

#include <math.h>
#include <string.h>

/* So that an interrupt is seen soon, and few events are kept. */
enum { LONGEST_WINDOW_S = 10 };

/* An event of a worker, to be put in order. */
typedef struct merged {
    const engine_event *event;
    uint32_t worker;
} merged;

typedef struct fleet {
    const fleet_settings *settings;
    fleet_result *result;
    trace_reader *reader;
    arrivals *arrivals;
    ideal_cache ideal;
    routers *routers;
    bool wants_kv;
    bool wants_blocks; /* names of the blocks of prompts */
    bool wants_loads;
    quire_hasher *hasher;
    quire_chain *chain;
    uint32_t digest_bytes;
    crew *crew;
    engine_prompt *prompts; /* of the lanes */
    engine_prompt own;      /* for names */
    replay_settings engine; /* of the workers */
    worker *workers;
    double *next_s;  /* by worker: worker_next_s, */
    double *quiet_s; /* worker_quiet_s, */
    router_load *loads;
    uint32_t *going; /* workers that advance in the window */
    uint32_t num_going;
    double until_s;
    double now_s;
    double told_s; /* the latest time that the routers know */
    merged *merged;
    uint32_t merged_capacity;
    arrival **waiting; /* in the routers */
    uint32_t num_waiting;
    uint32_t waiting_capacity;
    uint64_t num_added; /* to schedulers; */
    uint64_t num_admitted;
    uint64_t num_left_out;
} fleet;

/* ---- making it -------------------------------------------------------------- */

static int open_trace(fleet *f)
{
    const replay_settings *s = f->settings->replay;
    f->reader = trace_open(s->path, &s->trace);
    if (f->reader == NULL)
        return -1;
    f->arrivals = arrivals_open(f->reader, s->clock, s->speed > 0 ? s->speed : 1, 0);
    return f->arrivals != NULL ? 0 : fail_with("not enough memory");
}

static double prefill_s(void *context, uint32_t index, uint32_t num_cached, uint32_t num_new)
{
    const fleet *f = context;
    step_work work = {0};
    (void)index;
    step_work_add(f->engine.time, &work, num_new, num_cached);
    return time_model_step_ms(f->engine.time, &work) * 1e-3;
}

static double decode_s(void *context, uint32_t index, uint32_t num_running, uint64_t context_tokens)
{
    const fleet *f = context;
    (void)index;
    step_work work = {.num_tokens = num_running,
                      .num_requests = num_running,
                      .decode_pairs = context_tokens,
                      .kv_tokens = context_tokens};
    return time_model_step_ms(f->engine.time, &work) * 1e-3;
}

static int open_routers(fleet *f)
{
    char why[256] = "";
    routers_settings s = f->settings->routers;
    s.max_workers = f->settings->num_workers;
    s.block_size = f->engine.block_size;
    s.costs = (router_costs){.context = f, .prefill_s = prefill_s, .decode_s = decode_s};
    if (!routers_open(&s, &f->routers, why))
        return fail_with("--router: %s", why);
    f->wants_kv = router_wants_kv(f->routers);
    f->wants_blocks = s.view.knowledge.index != ROUTER_INDEX_NONE ||
                      (s.policy->needs & (ROUTER_NEEDS_ACTIVE | ROUTER_IS_ORACLE)) != 0;
    f->wants_loads = (s.policy->needs & ~(uint32_t)ROUTER_NEEDS_ACTIVE) != 0;
    return 0;
}

static int open_workers(fleet *f)
{
    uint32_t n = f->settings->num_workers;
    trace_format format = trace_reader_format(f->reader);
    f->workers = calloc(n, sizeof *f->workers);
    f->next_s = calloc(n, sizeof *f->next_s);
    f->quiet_s = calloc(n, sizeof *f->quiet_s);
    f->loads = calloc(n, sizeof *f->loads);
    f->going = calloc(n, sizeof *f->going);
    f->result->workers = calloc(n, sizeof *f->result->workers);
    f->result->routed = calloc(n, sizeof *f->result->routed);
    if (f->workers == NULL || f->next_s == NULL || f->quiet_s == NULL || f->loads == NULL ||
        f->going == NULL || f->result->workers == NULL || f->result->routed == NULL)
        return fail_with("not enough memory for %u workers", n);
    for (uint32_t i = 0; i < n; i++)
        if (worker_open(&f->workers[i], &f->engine, format, f->wants_kv) != 0)
            return -1;
    return 0;
}

static int open_names(fleet *f)
{
    if (engine_hasher(&f->engine, &f->hasher) != 0)
        return -1;
    f->digest_bytes = (uint32_t)quire_hash_digest_bytes(f->engine.hash_algo);
    size_t bytes = quire_chain_bytes(f->hasher);
    void *memory = malloc(bytes);
    if (memory == NULL || quire_chain_init(f->hasher, memory, bytes, &f->chain) != QUIRE_OK) {
        free(memory);
        return fail_with("not enough memory");
    }
    return 0;
}

static int open_crew(fleet *f)
{
    uint32_t n = f->settings->num_threads;
    uint32_t longest = f->workers[0].engine.max_model_len;
    f->crew = crew_open(n);
    f->prompts = calloc(n, sizeof *f->prompts);
    if (f->crew == NULL || f->prompts == NULL)
        return fail_with("not enough memory for --threads %u", n);
    for (uint32_t i = 0; i < n; i++)
        if (!engine_prompt_open(&f->prompts[i], longest))
            return fail_with("not enough memory for --threads %u", n);
    return engine_prompt_open(&f->own, longest) ? 0 : fail_with("not enough memory");
}

static void join_workers(fleet *f)
{
    const replay_settings *s = &f->engine;
    router_worker_info info = {.pool = ROUTER_SERVE,
                               .max_num_batched_tokens = s->sched.max_num_batched_tokens};
    for (uint32_t i = 0; i < f->settings->num_workers; i++) {
        info.num_blocks = f->workers[i].engine.num_blocks;
        f->next_s[i] = worker_next_s(&f->workers[i]);
        f->quiet_s[i] = HUGE_VAL;
        f->loads[i] = worker_load(&f->workers[i]);
        router_join(f->routers, 0, i, &info);
    }
}

static int make_all(fleet *f)
{
    f->engine = *f->settings->replay;
    if (f->settings->num_workers > 1) { /* whose files are those of one engine */
        f->engine.page = NULL;
        f->engine.snapshots = NULL;
        f->engine.why = NULL;
        f->engine.requests_csv = NULL;
        f->engine.perfetto = NULL;
        f->ideal.has_workers = true;
    }
    if (open_trace(f) != 0 || open_routers(f) != 0 || open_workers(f) != 0 || open_names(f) != 0 ||
        open_crew(f) != 0)
        return -1;
    join_workers(f);
    return 0;
}

static void unmake(fleet *f)
{
    crew_close(f->crew);
    for (uint32_t i = 0; f->workers != NULL && i < f->settings->num_workers; i++)
        worker_close(&f->workers[i]);
    for (uint32_t i = 0; f->prompts != NULL && i < f->settings->num_threads; i++)
        engine_prompt_close(&f->prompts[i]);
    for (uint32_t i = 0; i < f->num_waiting; i++)
        fleet_request_free(f->waiting[i]);
    engine_prompt_close(&f->own);
    free(f->prompts);
    free(f->workers);
    free(f->next_s);
    free(f->quiet_s);
    free(f->loads);
    free(f->going);
    free(f->merged);
    free(f->waiting);
    free(f->chain);
    quire_hasher_destroy(f->hasher);
    if (f->routers != NULL)
        routers_close(f->routers);
    ideal_free(&f->ideal);
    arrivals_close(f->arrivals);
    trace_close(f->reader);
}

/* ---- requests go to workers ---------------------------------------------------- */

/* The hashes of its whole blocks, and their names. The scheduler gets the hashes, so that no prompt
 * is hashed twice. False: no memory. */
static bool name_blocks(fleet *f, arrival *it, fleet_request *request)
{
    const replay_settings *s = &f->engine;
    uint32_t num_tokens = it->request.num_prompt_tokens;
    uint32_t num_hashes = num_tokens / s->hash_block_size;
    uint32_t num_blocks = num_tokens / s->block_size;
    uint32_t step = s->block_size / s->hash_block_size;
    size_t num_new = 0;
    if (num_tokens >= f->workers[0].engine.max_model_len)
        return true; /* no worker takes it */
    request->hashes = malloc((size_t)num_hashes * f->digest_bytes + 1);
    request->blocks = malloc(num_blocks * sizeof *request->blocks + 1);
    if (request->hashes == NULL || request->blocks == NULL)
        return false;
    engine_fill_prompt(&f->own, it);
    size_t bytes = quire_chain_bytes(f->hasher);
    if (quire_chain_init(f->hasher, f->chain, bytes, &f->chain) != QUIRE_OK ||
        quire_chain_append(f->hasher, f->chain, f->own.tokens, num_tokens, NULL, request->hashes,
                           num_hashes, &num_new) != QUIRE_OK)
        return false;
    request->num_hashes = num_hashes;
    for (uint32_t i = 0; i < num_blocks; i++)
        memcpy(&request->blocks[i],
               request->hashes + ((size_t)(i + 1) * step - 1) * f->digest_bytes,
               sizeof *request->blocks);
    return true;
}

static double router_time(fleet *f, double time_s)
{
    f->told_s = time_s > f->told_s ? time_s : f->told_s;
    return f->told_s;
}

/* It will not be served. */
static void refuse(fleet *f, arrival *it)
{
    f->result->refused++;
    f->num_left_out++;
    arrivals_note_left_out(f->arrivals, &it->request, f->now_s);
    fleet_request_free(it);
}

static int keep_waiting(fleet *f, arrival *it)
{
    f->result->waited++;
    if (!grow(&f->waiting, f->num_waiting, &f->waiting_capacity, UINT32_MAX, sizeof *f->waiting))
        return fail_with("not enough memory for the requests that wait");
    f->waiting[f->num_waiting++] = it;
    return 0;
}

static int send(fleet *f, arrival *it, const router_answer *answer)
{
    fleet_request *request = it->note;
    uint32_t w = answer->worker;
    request->worker = w;
    request->is_routed = true;
    request->believed_tokens = answer->believed_blocks * f->engine.block_size;
    f->result->routed[w]++;
    free(request->blocks);
    request->blocks = NULL;
    if (!worker_give(&f->workers[w], it))
        return fail_with("not enough memory for the requests that wait");
    f->next_s[w] = worker_next_s(&f->workers[w]);
    if (f->wants_loads)
        f->loads[w] = worker_load(&f->workers[w]);
    f->quiet_s[w] = worker_quiet_s(&f->workers[w]);
    return 0;
}

static int route(fleet *f, arrival *it)
{
    const trace_request *q = &it->request;
    fleet_request *request = it->note;
    router_answer answer;
    router_request ask = {
        .number = it->number,
        .time_s = router_time(f, f->now_s),
        .arrival_s = it->time_s,
        .session = q->session,
        .blocks = request->blocks,
        .num_blocks = request->blocks != NULL ? q->num_prompt_tokens / f->engine.block_size : 0,
        .block_size = f->engine.block_size,
        .num_prompt_tokens = q->num_prompt_tokens,
        .num_output_tokens = q->num_output_tokens,
        .priority = q->priority};
    router_choose(f->routers, &ask, f->loads, &answer);
    if (answer.action == ROUTER_ROUTE)
        return send(f, it, &answer);
    if (answer.action == ROUTER_WAIT)
        return keep_waiting(f, it);
    refuse(f, it);
    return 0;
}

/* A request has come. */
static int take_arrival(fleet *f, arrival *it)
{
    replay_result *total = &f->result->total;
    fleet_request *request = calloc(1, sizeof *request);
    if (request != NULL)
        request->has_follower = arrivals_may_follow(f->arrivals, &it->request);
    it->note = request;
    bool ok = request != NULL && (!f->wants_blocks || name_blocks(f, it, request));
    if (!ok) {
        fleet_request_free(it);
        return fail_with("not enough memory for the requests that wait");
    }
    if (total->arrived == 0)
        total->first_arrival_s = it->time_s;
    total->arrived++;
    total->last_arrival_s = it->time_s;
    total->waiting_at_last = total->arrived - f->num_left_out - f->num_admitted;
    total->ended_at_last = total->requests;
    if (total->waiting_at_last > total->max_waiting) {
        total->max_waiting = total->waiting_at_last;
        total->max_waiting_s = it->time_s;
    }
    return route(f, it);
}

static int route_arrivals(fleet *f)
{
    for (;;) {
        arrival *it = arrivals_take(f->arrivals, f->now_s);
        if (it == NULL)
            break;
        if (take_arrival(f, it) != 0)
            return -1;
    }
    if (arrivals_no_memory(f->arrivals))
        return fail_with("not enough memory for the requests that wait");
    return 0;
}

/* Requests that wait in the routers, and may now go. */
static int route_waiting(fleet *f)
{
    uint64_t number;
    while (f->num_waiting > 0 &&
           router_next_waiting(f->routers, router_time(f, f->now_s), &number)) {
        uint32_t i = 0;
        while (i < f->num_waiting && f->waiting[i]->number != number)
            i++;
        if (i == f->num_waiting)
            return fail_with("the router asks for request %llu, which does not wait",
                             (unsigned long long)number + 1);
        arrival *it = f->waiting[i];
        memmove(&f->waiting[i], &f->waiting[i + 1], (--f->num_waiting - i) * sizeof *f->waiting);
        if (route(f, it) != 0)
            return -1;
    }
    return 0;
}

/* ---- what happened in a window --------------------------------------------------- */

/* Some of a prompt was found, and some was computed: what an infinite cache had found of it. */
static void count_ideal(replay_result *result, const arrival *it)
{
    result->ideal_tokens += it->ideal.tokens;
    result->ideal_blocks += it->ideal.blocks;
    result->trace_blocks += it->ideal.trace_blocks;
    ideal_add_losses(&result->losses, &it->ideal.losses);
}

static void note_id_block_size(replay_result *total, const trace_request *q, bool is_first)
{
    if (is_first)
        total->id_block_size = q->id_block_size;
    else if (total->id_block_size != q->id_block_size)
        total->id_block_size = 0;
}

static void write_row(fleet *f, const arrival *it, const engine_event *end)
{
    const trace_request *q = &it->request;
    const fleet_request *request = it->note;
    FILE *out = f->settings->requests_csv;
    char tpot[32] = "";
    if (out == NULL || f->settings->num_workers == 1) /* one engine writes its own */
        return;
    if (end->num_tokens > 1)
        snprintf(tpot, sizeof tpot, "%.3f",
                 (end->time_s - request->first_token_s) * 1e3 / (end->num_tokens - 1));
    fprintf(out, "%llu,%llu,%llu,%u,%u,%.6f,%.6f,%.6f,%.6f,%u,%u,%u,%u,%.3f,%s,%.3f\n",
            (unsigned long long)it->number + 1, (unsigned long long)q->line,
            (unsigned long long)q->session, q->turn, request->worker, it->time_s,
            request->scheduled_s, request->first_token_s, end->time_s, q->num_prompt_tokens,
            end->num_tokens, request->hit_tokens, request->believed_tokens,
            (request->first_token_s - it->time_s) * 1e3, tpot, (end->time_s - it->time_s) * 1e3);
}

static void note_first_token(fleet *f, worker *w, arrival *it, const engine_event *event)
{
    fleet_request *request = it->note;
    request->first_token_s = event->time_s;
    f->result->believed_tokens += request->believed_tokens;
    count_ideal(w->engine.result, it);
    ideal_computed(&f->ideal, &it->request, request->worker);
    router_first_token(f->routers, router_time(f, event->time_s), it->number, request->hit_tokens);
}

static void note_admitted(fleet *f, arrival *it, const engine_event *event)
{
    fleet_request *request = it->note;
    f->num_admitted++;
    request->scheduled_s = event->time_s;
    request->hit_tokens = event->num_tokens;
    ideal_admitted(
        &f->ideal, &it->request,
        &(ideal_hit){.tokens = event->num_tokens,
                     .block_size = f->engine.block_size,
                     .worker = request->worker,
                     .believed_tokens = f->ideal.has_workers ? request->believed_tokens : 0},
        &it->ideal);
}

static void take_event(fleet *f, worker *w, const engine_event *event)
{
    arrival *it = event->from;
    const trace_request *q = &it->request;
    replay_result *total = &f->result->total;
    switch (event->kind) {
    case ENGINE_ADDED:
        note_id_block_size(total, q, f->num_added++ == 0);
        ideal_arrived(&f->ideal, q, &it->ideal);
        return;
    case ENGINE_ADMITTED:
        note_admitted(f, it, event);
        return;
    case ENGINE_FIRST_TOKEN:
        note_first_token(f, w, it, event);
        return;
    case ENGINE_LEFT_OUT:
        f->num_left_out++;
        router_done(f->routers, router_time(f, event->time_s), it->number, 0, true);
        arrivals_note_left_out(f->arrivals, q, event->time_s);
        break;
    case ENGINE_ENDED:
        total->requests++;
        router_done(f->routers, router_time(f, event->time_s), it->number, event->num_tokens,
                    false);
        write_row(f, it, event);
        arrivals_note_end(f->arrivals, q, event->time_s);
        break;
    }
    fleet_request_free(it);
}

static void tell_kv(fleet *f, uint32_t index)
{
    const worker *w = &f->workers[index];
    for (uint32_t i = 0; i < w->num_kv; i++)
        router_kv(f->routers, &(router_kv_event){.time_s = w->kv[i].time_s,
                                                 .worker = index,
                                                 .tier = ROUTER_GPU,
                                                 .kind = w->kv[i].kind,
                                                 .blocks = w->names + w->kv[i].first,
                                                 .num_blocks = w->kv[i].count});
}

/* By time, then by worker; those of one worker stay in their order, which is that of memory. */
static int compare_merged(const void *a, const void *b)
{
    const merged *x = a;
    const merged *y = b;
    if (x->event->time_s != y->event->time_s)
        return x->event->time_s < y->event->time_s ? -1 : 1;
    if (x->worker != y->worker)
        return x->worker < y->worker ? -1 : 1;
    return x->event < y->event ? -1 : x->event > y->event;
}

static int merge(fleet *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->num_going; i++) {
        worker *w = &f->workers[f->going[i]];
        if (w->status != 0)
            return fail_with("%s", w->why);
        tell_kv(f, f->going[i]);
        for (uint32_t k = 0; k < w->engine.num_events; k++) {
            if (!grow(&f->merged, n, &f->merged_capacity, UINT32_MAX, sizeof *f->merged))
                return fail_with("not enough memory");
            f->merged[n++] = (merged){.event = &w->engine.events[k], .worker = f->going[i]};
        }
    }
    if (f->num_going > 1)
        qsort(f->merged, n, sizeof *f->merged, compare_merged);
    for (uint32_t i = 0; i < n; i++)
        take_event(f, &f->workers[f->merged[i].worker], f->merged[i].event);
    for (uint32_t i = 0; i < f->num_going; i++)
        worker_taken(&f->workers[f->going[i]]);
    return 0;
}

/* ---- windows --------------------------------------------------------------------- */

static void advance(void *user, uint32_t i, uint32_t lane)
{
    fleet *f = user;
    uint32_t index = f->going[i];
    worker *w = &f->workers[index];
    worker_advance(w, f->until_s, &f->prompts[lane]);
    f->next_s[index] = worker_next_s(w);
    f->quiet_s[index] = worker_quiet_s(w);
    if (f->wants_loads)
        f->loads[index] = worker_load(w);
}

static double least_of(const double *values, uint32_t n)
{
    double least = HUGE_VAL;
    for (uint32_t i = 0; i < n; i++)
        least = values[i] < least ? values[i] : least;
    return least;
}

/* Workers that have something to do up to then. */
static void find_going(fleet *f)
{
    f->num_going = 0;
    for (uint32_t i = 0; i < f->settings->num_workers; i++)
        if (f->next_s[i] < f->until_s ||
            (f->next_s[i] == f->until_s && f->workers[i].engine.phase == ENGINE_END))
            f->going[f->num_going++] = i;
}

/* When the first worker stopped, before the end of the window, because a request left out or ended
 * that another one waits for; HUGE_VAL: none did. */
static double first_stop_s(const fleet *f)
{
    double first_s = HUGE_VAL;
    for (uint32_t i = 0; i < f->num_going; i++) {
        const worker *w = &f->workers[f->going[i]];
        if (w->stops && w->engine.now_s < first_s)
            first_s = w->engine.now_s;
    }
    return first_s;
}

/* The next window: 1 when there was one; 0: it is over. */
static int go(fleet *f)
{
    uint32_t n = f->settings->num_workers;
    if (route_arrivals(f) != 0 || route_waiting(f) != 0)
        return -1;
    double next_s = arrivals_next_time(f->arrivals, f->now_s);
    double quiet_s = least_of(f->quiet_s, n);
    double busy_s = least_of(f->next_s, n);
    if (next_s < 0)
        return fail_with("%s", trace_error(f->reader));
    bool is_over = next_s == HUGE_VAL && busy_s == HUGE_VAL;
    if (is_over)
        return f->num_waiting == 0 ? 0
                                   : fail_with("%u requests wait in the router, and no worker "
                                               "has any",
                                               f->num_waiting);
    double tick_s = router_next_tick(f->routers);
    double until_s = next_s < quiet_s ? next_s : quiet_s;
    until_s = tick_s < until_s ? tick_s : until_s;
    double soon_s = (busy_s > f->now_s ? busy_s : f->now_s) + LONGEST_WINDOW_S;
    until_s = soon_s < until_s ? soon_s : until_s; /* HUGE_VAL stays, if all are idle */
    f->until_s = until_s > f->now_s ? until_s : f->now_s;
    find_going(f);
    if (f->num_going == 0 && f->until_s <= f->now_s && tick_s > f->now_s)
        return fail_with("the fleet cannot continue at %.6f s", f->now_s);
    crew_run(f->crew, f->num_going, advance, f);
    f->result->num_windows++;
    double stopped_s = first_stop_s(f);
    if (merge(f) != 0)
        return -1;
    if (f->until_s < HUGE_VAL)
        f->now_s = f->until_s;
    f->now_s = stopped_s < f->now_s ? stopped_s : f->now_s;
    if (tick_s <= f->now_s)
        router_tick(f->routers, router_time(f, f->now_s), f->loads);
    return 1;
}

static void tell_progress(const fleet *f, double *told_at)
{
    const replay_settings *s = f->settings->replay;
    double now = progress_clock();
    if (s->progress == NULL || now < *told_at + 0.1)
        return;
    *told_at = now;
    arrivals_read read = arrivals_get_read(f->arrivals);
    uint64_t size = trace_size(f->reader);
    double part = read.is_all ? 1 : size > 0 ? (double)trace_position(f->reader) / (double)size : 0;
    replay_progress p = {
        .simulated_s = f->now_s, .num_requests = f->result->total.requests, .share = -1};
    if (part > 0 && read.requests > 0) {
        p.total_requests = (uint64_t)((double)read.requests / part + 0.5);
        p.share = (double)p.num_requests / (double)p.total_requests;
    }
    s->progress(s->progress_user, &p);
}

static int run_all(fleet *f)
{
    const replay_settings *s = f->settings->replay;
    double told_at = progress_clock();
    int status = 1;
    while (status > 0) {
        f->result->total.stopped = s->stop != NULL ? s->stop() : NULL;
        if (f->result->total.stopped != NULL)
            return 0;
        status = go(f);
        tell_progress(f, &told_at);
    }
    return status;
}

/* ---- the end ----------------------------------------------------------------------- */

static void add_usage(quire_usage *sum, const quire_usage *part)
{
    sum->total += part->total;
    sum->empty += part->empty;
    sum->cached += part->cached;
    sum->active += part->active;
}

/* Counts are sums; what was most is the most of all workers at their own times. */
static void add_result(replay_result *sum, const replay_result *r)
{
    sum->good_requests += r->good_requests;
    sum->prompt_tokens += r->prompt_tokens;
    sum->output_tokens += r->output_tokens;
    sum->steps += r->steps;
    sum->hit_tokens += r->hit_tokens;
    sum->hit_blocks += r->hit_blocks;
    sum->query_blocks += r->query_blocks;
    sum->ideal_tokens += r->ideal_tokens;
    sum->ideal_blocks += r->ideal_blocks;
    sum->trace_blocks += r->trace_blocks;
    ideal_add_losses(&sum->losses, &r->losses);
    sum->preemptions += r->preemptions;
    sum->recomputed_tokens += r->recomputed_tokens;
    sum->overtaking += r->overtaking;
    sum->pinned += r->pinned;
    sum->busy_s += r->busy_s;
    sum->scheduled_tokens += r->scheduled_tokens;
    sum->mean_running += r->mean_running * (double)r->steps;
    sum->mean_empty += r->mean_empty;
    sum->mean_cached += r->mean_cached;
    sum->mean_active += r->mean_active;
    add_usage(&sum->blocks, &r->blocks);
    add_usage(&sum->most, &r->most);
    sum->max_running = r->max_running > sum->max_running ? r->max_running : sum->max_running;
    sum->errors += r->errors;
    sum->truncated += r->truncated;
    sum->unfinished += r->unfinished;
    if (sum->first_error[0] == '\0')
        memcpy(sum->first_error, r->first_error, sizeof sum->first_error);
}

static int take_times(replay_result *sum, const replay_result *r)
{
    bool ok = distribution_take(&sum->ttft_ms, &r->ttft_ms) &&
              distribution_take(&sum->tpot_ms, &r->tpot_ms) &&
              distribution_take(&sum->e2e_ms, &r->e2e_ms) &&
              distribution_take(&sum->queue_ms, &r->queue_ms);
    return ok ? 0 : fail_with("not enough memory for the results");
}

/* What is the same for all workers, and for the fleet. */
static void fill_in(const fleet *f, replay_result *r)
{
    r->has_ideal = !ideal_gave_up(&f->ideal);
    r->id_block_size = f->result->total.id_block_size;
    r->has_contents = trace_has_contents(f->reader);
    r->stopped = f->result->total.stopped;
    r->is_cut_short = r->stopped != NULL;
    r->rounds = 1;
}

/* One worker: its result is that of a replay, its times with it. */
static void finish_one(fleet *f)
{
    replay_result *r = &f->workers[0].result;
    r->errors += trace_num_bad(f->reader);
    f->result->workers[0] = *r;
    f->result->total = *r;
    *r = (replay_result){0};
}

static int finish_many(fleet *f)
{
    replay_result *total = &f->result->total;
    const replay_settings *s = f->settings->replay;
    for (uint32_t i = 0; i < f->settings->num_workers; i++) {
        replay_result *r = &f->workers[i].result;
        replay_result *kept = &f->result->workers[i];
        add_result(total, r);
        if (take_times(total, r) != 0)
            return -1;
        *kept = *r;
        distribution *all[] = {&kept->ttft_ms, &kept->tpot_ms, &kept->e2e_ms, &kept->queue_ms};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
            all[k]->values = NULL;
            all[k]->bins = NULL;
        }
    }
    double steps = total->steps > 0 ? (double)total->steps : 1;
    total->mean_running /= steps;
    total->mean_tokens = (double)total->scheduled_tokens / steps;
    total->simulated_s = f->now_s;
    total->block_size = s->block_size;
    total->clock = s->clock;
    total->slo = s->slo;
    total->format = trace_reader_format(f->reader);
    total->errors += trace_num_bad(f->reader);
    fill_in(f, total);
    return 0;
}

static int finish(fleet *f)
{
    uint32_t n = f->settings->num_workers;
    double end_s = 0;
    for (uint32_t i = 0; i < n; i++)
        end_s = f->workers[i].engine.now_s > end_s ? f->workers[i].engine.now_s : end_s;
    f->now_s = end_s;
    f->result->num_workers = n;
    f->result->views = router_stats(f->routers);
    for (uint32_t i = 0; i < n; i++) {
        fill_in(f, &f->workers[i].result);
        worker_finish(&f->workers[i], end_s);
    }
    if (n > 1)
        return finish_many(f);
    finish_one(f);
    return 0;
}

int fleet_run(const fleet_settings *settings, fleet_result *result)
{
    fleet *f = calloc(1, sizeof *f);
    double start = progress_clock();
    *result = (fleet_result){0};
    if (f == NULL)
        return fail_with("not enough memory");
    f->settings = settings;
    f->result = result;
    int status = make_all(f);
    bool has_files = status == 0 && settings->num_workers == 1;
    if (has_files)
        engine_write_heads(&f->workers[0].engine);
    if (status == 0 && settings->requests_csv != NULL && settings->num_workers > 1)
        fputs("request,line,session,turn,worker,arrival_s,scheduled_s,first_token_s,end_s,"
              "prompt_tokens,output_tokens,hit_tokens,believed_tokens,ttft_ms,tpot_ms,e2e_ms\n",
              settings->requests_csv);
    if (status == 0)
        status = run_all(f);
    if (status == 0)
        status = finish(f);
    if (has_files)
        engine_write_tails(&f->workers[0].engine);
    result->total.wall_s = progress_clock() - start;
    unmake(f);
    free(f);
    return status;
}

void fleet_result_free(fleet_result *result)
{
    replay_result_free(&result->total);
    free(result->workers);
    free(result->routed);
}
