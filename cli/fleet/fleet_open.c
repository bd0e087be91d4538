#include "fleet_state.h"
#include "output/failure.h"

#include <math.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

/* A worker may use little of its memory, and there are many workers: in huge pages all of it would
 * be touched. */
static void use_small_pages(void)
{
#ifdef PR_SET_THP_DISABLE
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* without it: more memory, the same results */
#endif
}

static int open_trace(fleet *f)
{
    const replay_settings *s = f->settings->replay;
    f->reader = replay_open_trace(s);
    if (f->reader == NULL)
        return -1;
    f->arrivals = arrivals_open(f->reader, s->clock, s->speed > 0 ? s->speed : 1, 0);
    return f->arrivals != NULL ? 0 : fail_with("not enough memory");
}

static double prefill_s(void *context, uint32_t index, uint32_t num_cached, uint32_t num_new)
{
    const fleet *f = context;
    const time_model *time = f->engines[f->pool_of[index]].time;
    step_work work = {0};
    step_work_add(time, &work, num_new, num_cached);
    return time_model_step_ms(time, &work) * 1e-3;
}

static double decode_s(void *context, uint32_t index, uint32_t num_running, uint64_t context_tokens)
{
    const fleet *f = context;
    step_work work = {.num_tokens = num_running,
                      .num_requests = num_running,
                      .decode_pairs = context_tokens,
                      .kv_tokens = context_tokens};
    return time_model_step_ms(f->engines[f->pool_of[index]].time, &work) * 1e-3;
}

/* As if no other transfer shared the way. */
static double transfer_s(void *context, uint32_t from, uint32_t to, uint32_t num_blocks)
{
    const fleet *f = context;
    const transfer_settings *s = &f->settings->transfers;
    const fleet_pool *p = &f->pools[f->pool_of[from]];
    double rate = fmin(p->node_bytes_per_s, f->pools[f->pool_of[to]].node_bytes_per_s);
    rate = s->pair_bytes_per_s > 0 ? fmin(rate, s->pair_bytes_per_s) : rate;
    rate = s->fabric_bytes_per_s > 0 ? fmin(rate, s->fabric_bytes_per_s) : rate;
    return s->latency_s + num_blocks * p->block_bytes / rate;
}

static int open_routers(fleet *f)
{
    char why[256] = "";
    routers_settings s = f->settings->routers;
    s.max_workers = f->settings->num_workers;
    s.block_size = f->engine.block_size;
    s.costs = (router_costs){.context = f, .prefill_s = prefill_s, .decode_s = decode_s};
    if (f->pools[0].role != ROUTER_SERVE)
        s.costs.transfer_s = transfer_s;
    s.exact_hits = fleet_exact_hits;
    s.view.has_losses =
        f->settings->failures != NULL && failures_lose_events(f->settings->failures);
    s.exact_context = f;
    if (!routers_open(&s, &f->routers, why))
        return fail_with("--router: %s", why);
    f->wants_kv = router_wants_kv(f->routers);
    f->wants_blocks = router_wants_blocks(f->routers) || f->history != NULL;
    f->wants_loads = (s.policy->needs & ~(uint32_t)(ROUTER_NEEDS_ACTIVE | ROUTER_IS_BLIND)) != 0;
    return 0;
}

static int open_workers(fleet *f)
{
    uint32_t n = f->settings->num_workers;
    worker_config config = {.format = trace_reader_format(f->reader),
                            .has_kv = f->wants_kv || f->history != NULL,
                            .is_layered = f->settings->transfers.mode == TRANSFER_LAYERS,
                            .least_latency_s = f->settings->transfers.latency_s,
                            .is_lean = n > 1 && !f->settings->gives_all};
    if (f->settings->shared != NULL)
        config.least_latency_s = f->settings->shared->latency_s;
    f->workers = calloc(n, sizeof *f->workers);
    f->next_s = calloc(n, sizeof *f->next_s);
    f->quiet_s = calloc(n, sizeof *f->quiet_s);
    f->loads = calloc(n, sizeof *f->loads);
    f->reports = calloc(n, sizeof *f->reports);
    f->going = calloc(n, sizeof *f->going);
    f->known = router_asks_caches(f->routers) ? calloc(n, sizeof *f->known) : NULL;
    f->result->workers = calloc(n, sizeof *f->result->workers);
    f->result->routed = calloc(n, sizeof *f->result->routed);
    if (f->workers == NULL || f->next_s == NULL || f->quiet_s == NULL || f->loads == NULL ||
        f->reports == NULL || f->going == NULL || f->result->workers == NULL ||
        f->result->routed == NULL || (router_asks_caches(f->routers) && f->known == NULL))
        return fail_with("not enough memory for %u workers", n);
    for (uint32_t i = 0; i < n; i++) {
        config.role = f->pools[f->pool_of[i]].role;
        config.known = f->known != NULL ? &f->known[i] : NULL;
        config.places = shared_moves_places(f->shared, i);
        if (worker_open(&f->workers[i], &f->engines[f->pool_of[i]], &config) != 0)
            return -1;
        if (f->known != NULL && !hits_open(&f->known[i], f->workers[i].engine.num_blocks))
            return fail_with("not enough memory for %u workers", n);
        uint32_t longest = f->workers[i].engine.max_model_len;
        f->max_model_len = longest > f->max_model_len ? longest : f->max_model_len;
    }
    return 0;
}

/* Before the workers, which look into it. */
static int open_shared(fleet *f)
{
    const fleet_settings *s = f->settings;
    if (s->shared == NULL)
        return 0;
    f->shared = shared_moves_open(s->shared, s->shared_block_bytes, s->num_workers);
    f->result->shared_hits = calloc(s->num_workers, sizeof *f->result->shared_hits);
    if (f->shared != NULL && f->result->shared_hits == NULL)
        fail_with("not enough memory for %u workers", s->num_workers);
    return f->shared != NULL && f->result->shared_hits != NULL ? 0 : -1;
}

static int bind_shared(fleet *f)
{
    bool ok = f->shared == NULL || shared_moves_bind(f->shared, f->workers);
    return ok ? 0 : fail_with("not enough memory for the transfers of the shared tier");
}

static int open_handoffs(fleet *f)
{
    uint32_t n = f->settings->num_workers;
    if (f->pools[0].role == ROUTER_SERVE)
        return 0;
    handoff_node *nodes = calloc(n, sizeof *nodes);
    f->result->node_bytes = calloc(n, sizeof *f->result->node_bytes);
    for (uint32_t i = 0; nodes != NULL && i < n; i++) {
        const fleet_pool *p = &f->pools[f->pool_of[i]];
        nodes[i] = (handoff_node){.worker = &f->workers[i],
                                  .role = p->role,
                                  .bytes_per_s = p->node_bytes_per_s,
                                  .block_bytes = p->block_bytes,
                                  .num_layers = p->num_layers,
                                  .block_size = p->replay->block_size};
    }
    if (nodes != NULL && f->result->node_bytes != NULL)
        f->handoffs = handoffs_open(&f->settings->transfers, nodes, n);
    free(nodes);
    return f->handoffs != NULL ? 0 : fail_with("not enough memory for the transfers");
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
    uint32_t longest = f->max_model_len;
    f->crew = crew_open(n);
    f->prompts = calloc(n, sizeof *f->prompts);
    if (f->crew == NULL || f->prompts == NULL)
        return fail_with("not enough memory for --threads %u", n);
    for (uint32_t i = 0; i < n; i++)
        if (!engine_prompt_open(&f->prompts[i], longest))
            return fail_with("not enough memory for --threads %u", n);
    fleet_hashed *h = &f->hashed;
    _Static_assert(ARRIVALS_RECORDS <= 64, "coming_places has a bit for each");
    h->count = n > 1 ? ARRIVALS_RECORDS : 1;
    h->hash_bytes = (size_t)longest / f->engine.hash_block_size * f->digest_bytes + 1;
    h->num_names = longest / f->engine.block_size + 1;
    h->hashes = malloc(h->count * h->hash_bytes);
    h->names = malloc(h->count * h->num_names * sizeof *h->names);
    h->of = calloc(h->count, sizeof *h->of);
    bool has_memory = h->hashes != NULL && h->names != NULL && h->of != NULL;
    return has_memory && engine_prompt_open(&f->own, longest) ? 0 : fail_with("not enough memory");
}

router_worker_info fleet_worker_info(const fleet *f, uint32_t index)
{
    enum { USUAL_PROMPT = 2048 };
    const fleet_pool *p = &f->pools[f->pool_of[index]];
    void *context = (void *)(uintptr_t)f;
    return (router_worker_info){.pool = p->role,
                                .num_blocks = f->workers[index].engine.num_blocks,
                                .max_num_batched_tokens = p->replay->sched.max_num_batched_tokens,
                                .capacity = prefill_s(context, 0, 0, USUAL_PROMPT) /
                                            prefill_s(context, index, 0, USUAL_PROMPT)};
}

/* The settings of the engines, and which worker has which. */
static int list_pools(fleet *f)
{
    const fleet_settings *s = f->settings;
    f->one_pool =
        (fleet_pool){.role = ROUTER_SERVE, .num_workers = s->num_workers, .replay = s->replay};
    f->pools = s->pools != NULL ? s->pools : &f->one_pool;
    f->num_pools = s->pools != NULL ? s->num_pools : 1;
    f->engines = calloc(f->num_pools, sizeof *f->engines);
    f->pool_of = calloc(s->num_workers, sizeof *f->pool_of);
    if (f->engines == NULL || f->pool_of == NULL)
        return fail_with("not enough memory for %u workers", s->num_workers);
    for (uint32_t i = 0, w = 0; i < f->num_pools; i++) {
        f->engines[i] = *f->pools[i].replay;
        if (s->num_workers > 1) { /* whose files are those of one engine */
            f->engines[i].page = NULL;
            f->engines[i].snapshots = NULL;
            f->engines[i].why = NULL;
            f->engines[i].requests_csv = NULL;
            f->engines[i].perfetto = NULL;
        }
        for (uint32_t k = 0; k < f->pools[i].num_workers; k++)
            f->pool_of[w++] = i;
    }
    f->engine = f->engines[0];
    f->ideal.has_workers = s->num_workers > 1;
    f->history = s->num_workers > 1 ? s->history : NULL;
    f->result->pools = s->pools;
    f->result->num_pools = s->num_pools;
    return 0;
}

int fleet_make(fleet *f)
{
    if (f->settings->num_workers > 1)
        use_small_pages();
    if (list_pools(f) != 0 || open_trace(f) != 0 || open_routers(f) != 0 || open_shared(f) != 0 ||
        open_workers(f) != 0 || bind_shared(f) != 0 || open_handoffs(f) != 0 ||
        open_names(f) != 0 || open_crew(f) != 0)
        return -1;
    return members_open(f);
}

void fleet_unmake(fleet *f)
{
    crew_close(f->crew);
    for (uint32_t i = 0; f->workers != NULL && i < f->settings->num_workers; i++)
        worker_close(&f->workers[i]);
    for (uint32_t i = 0; f->prompts != NULL && i < f->settings->num_threads; i++)
        engine_prompt_close(&f->prompts[i]);
    for (uint32_t i = 0; i < f->num_waiting; i++)
        fleet_request_free(f->waiting[i]);
    handoffs_close(f->handoffs);
    shared_moves_close(f->shared);
    members_close(f);
    engine_prompt_close(&f->own);
    free(f->engines);
    free(f->pool_of);
    free(f->prompts);
    free(f->workers);
    free(f->next_s);
    free(f->quiet_s);
    free(f->loads);
    free(f->reports);
    free(f->going);
    free(f->merged);
    free(f->asks);
    free(f->waiting);
    free(f->hashed.hashes);
    free(f->hashed.names);
    free(f->hashed.of);
    for (uint32_t i = 0; f->known != NULL && i < f->settings->num_workers; i++)
        hits_close(&f->known[i]);
    free(f->known);
    free(f->chain);
    quire_hasher_destroy(f->hasher);
    if (f->routers != NULL)
        routers_close(f->routers);
    ideal_free(&f->ideal);
    arrivals_close(f->arrivals);
    trace_close(f->reader);
}
