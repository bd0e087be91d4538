#include "tier/planner/planner.h"

#include "base/config.h"
#include "base/hooks.h"
#include "base/refuse.h"

enum {
    DEFAULT_REQUESTS = 4096,
    SPARE_BATCHES = 512,
    DEFAULT_TOKENS = 2048,
    LEAST_EVENT_KEYS = 1 << 16
};

/* ---- config ---------------------------------------------------------------- */

typedef struct planner_plan {
    quire_planner_config config;
    quire_cache_config cache;
    quire_cache_config host;
    quire_sched_config sched;     /* as promotion reads it */
    quire_offload_config offload; /* likewise */
    quire_offload_tier tiers[QUIRE_TRANSFER_MAX_TIERS];
} planner_plan;

static int check_planner_config(const planner_plan *plan)
{
    const quire_planner_config *c = &plan->config;
    const qr_field fields[] = {{"cache.num_groups", plan->cache.num_groups, 1, QR_HOST_MAX_GROUPS},
                               {"cache.num_blocks", plan->cache.num_blocks, 2, QUIRE_MAX_BLOCKS},
                               {"cache.digest_bytes", plan->cache.digest_bytes, 16, 64},
                               QR_FIELD(c, num_slots, 2, QUIRE_MAX_BLOCKS),
                               QR_FIELD(c, block_bytes, 0, UINT32_MAX),
                               QR_FIELD(c, max_requests, 0, UINT32_C(1) << 24),
                               QR_FIELD(c, num_ranks, 0, QUIRE_TRANSFER_MAX_RANKS),
                               QR_FIELD(c, num_tiers, 0, QUIRE_TRANSFER_MAX_TIERS),
                               QR_FIELD(c, event_keys, 0, QUIRE_SLOTS_MAX),
                               QR_FIELD(c, learns, 0, QUIRE_OFF),
                               QR_FIELD(c, shares_loads, 0, QUIRE_OFF),
                               QR_FIELD(c, holds_loads, 0, QUIRE_OFF)};
    int err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    if (err != QUIRE_OK)
        return err;
    if (plan->cache.groups == NULL || plan->cache.enable_caching == QUIRE_OFF)
        return qr_refuse("cache.groups is NULL, or cache.enable_caching is QUIRE_OFF");
    if (c->num_tiers > 0 && c->tiers == NULL)
        return qr_refuse("tiers is NULL, but num_tiers is %u", c->num_tiers);
    for (uint32_t g = 0; g < plan->cache.num_groups; g++) {
        quire_layer_kind kind = plan->cache.groups[g].spec.kind;
        if (kind == QUIRE_LAYER_CIRCULAR_BUFFER || kind == QUIRE_LAYER_RSWA)
            return qr_refuse("cache.groups[%u]: invalid kind %d (tiers keep no blocks of circular "
                             "buffers and of R-SWA)",
                             g, (int)kind);
    }
    return QUIRE_OK;
}

static int read_planner_config(planner_plan *plan, const quire_planner_config *callers)
{
    memset(plan, 0, sizeof *plan);
    int err =
        qr_refuse_reading(&plan->config, sizeof plan->config, callers, "quire_planner_config");
    if (err == QUIRE_OK)
        err = qr_refuse_reading(&plan->cache, sizeof plan->cache, plan->config.cache,
                                "quire_cache_config");
    if (err == QUIRE_OK)
        err = check_planner_config(plan);
    if (err != QUIRE_OK)
        return err;
    quire_planner_config *c = &plan->config;
    c->max_requests = (uint32_t)qr_or_default(c->max_requests, DEFAULT_REQUESTS);
    c->num_ranks = (uint32_t)qr_or_default(c->num_ranks, 1);
    plan->host = qr_host_pool_config(&plan->cache, c->num_slots);
    plan->host.hooks = c->hooks;
    plan->host.on_event = c->on_event;
    plan->host.event_user = c->event_user;
    if (plan->host.max_num_batched_tokens == 0)
        plan->host.max_num_batched_tokens = DEFAULT_TOKENS;
    return QUIRE_OK;
}

/* Promotion reads what it needs from an offload's config. */
static void plan_promote(planner_plan *plan, const quire_transfer *transfer)
{
    const quire_planner_config *c = &plan->config;
    plan->sched = (quire_sched_config)QUIRE_SCHED_CONFIG_INIT;
    plan->sched.cache = &plan->cache;
    plan->sched.max_requests = c->max_requests;
    plan->offload = (quire_offload_config)QUIRE_OFFLOAD_CONFIG_INIT;
    plan->offload.sched = &plan->sched;
    plan->offload.num_cpu_blocks = c->num_slots;
    plan->offload.block_bytes = c->block_bytes;
    plan->offload.recompute_token_ns = c->recompute_token_ns;
    plan->offload.hooks = c->hooks;
    plan->offload.tiers = plan->tiers;
    plan->offload.num_tiers = c->num_tiers;
    for (uint32_t i = 0; i < c->num_tiers; i++)
        plan->tiers[i] = (quire_offload_tier){.tier = quire_transfer_get_tier(transfer, i),
                                              .admit = c->tiers[i].admit,
                                              .deadline_ns = c->tiers[i].tier.deadline_ns,
                                              .bytes_per_s = c->tiers[i].bytes_per_s,
                                              .latency_ns = c->tiers[i].latency_ns};
}

/* ---- making ---------------------------------------------------------------- */

static quire_planner *carve_planner(qr_arena *arena, const planner_plan *plan, quire_planner *p)
{
    const quire_planner_config *c = &plan->config;
    quire_planner *made = qr_arena_take(arena, 1, sizeof *made);
    memset(p, 0, sizeof *p);
    p->num_gpu = plan->cache.num_blocks;
    p->num_slots = c->num_slots;
    p->max_requests = c->max_requests;
    for (uint32_t g = 0; g < plan->cache.num_groups; g++)
        p->row_blocks +=
            (uint32_t)(plan->cache.max_model_len / qr_block_tokens(&plan->cache, g) + 1);
    p->num_batches = SPARE_BATCHES + 2 * (p->num_gpu / QR_BATCH_COPIES) +
                     2 * (p->row_blocks / QR_BATCH_COPIES + plan->cache.num_groups + 1);
    size_t num_copies = (size_t)p->num_batches * QR_BATCH_COPIES;
    uint32_t scratch = p->row_blocks > QR_BATCH_COPIES ? p->row_blocks : QR_BATCH_COPIES;
    p->match.blocks = qr_arena_take(arena, p->row_blocks, sizeof *p->match.blocks);
    p->reqs = qr_arena_take(arena, p->max_requests, sizeof *p->reqs);
    p->num_stored =
        qr_arena_take(arena, (size_t)p->max_requests * plan->cache.num_groups, sizeof(uint32_t));
    p->batches = qr_arena_take(arena, p->num_batches, sizeof *p->batches);
    p->slots = qr_arena_take(arena, p->num_slots, sizeof *p->slots);
    p->held = qr_arena_take(arena, num_copies, sizeof *p->held);
    p->released = qr_arena_take(arena, 2 * num_copies, sizeof *p->released);
    p->loaded = qr_arena_take(arena, p->max_requests, sizeof *p->loaded);
    p->failed = qr_arena_take(arena, p->max_requests, sizeof *p->failed);
    p->failed_blocks = qr_arena_take(arena, num_copies, sizeof *p->failed_blocks);
    p->ended = qr_arena_take(arena, p->max_requests, sizeof *p->ended);
    p->scratch = qr_arena_take(arena, scratch, sizeof *p->scratch);
    p->scratch2 = qr_arena_take(arena, scratch, sizeof *p->scratch2);
    p->refs = qr_arena_take(arena, p->num_slots, sizeof *p->refs);
    return made;
}

/* For what comes from a tier: what was only told gives way. */
static void make_room(void *user, uint32_t num_blocks)
{
    quire_planner *p = user;
    if (quire_pool_get_num_free_blocks(p->host.pool) < num_blocks)
        qr_planner_release_match(p);
}

static int make_promote(quire_planner *p, planner_plan *plan)
{
    if (plan->config.num_tiers == 0)
        return QUIRE_OK;
    plan_promote(plan, p->transfer);
    size_t bytes = qr_promote_bytes(&plan->offload);
    if (bytes == 0)
        return qr_refuse("the tiers cannot be used: blocks of another size are hashed, or "
                         "cache.max_model_len is 0");
    int err = qr_owner_take(&p->promote_owner, NULL, bytes);
    if (err != QUIRE_OK)
        return err;
    p->promote = qr_promote_create_in(p->promote_owner.memory, &plan->offload, p->host.cache);
    if (p->promote == NULL)
        return qr_fail(QUIRE_E_RANDOM, "%s", quire_strerror(QUIRE_E_RANDOM));
    qr_promote_set_room(p->promote, make_room, p);
    return QUIRE_OK;
}

static int open_transfer(quire_planner *p, const quire_planner_config *c)
{
    quire_transfer_config config = QUIRE_TRANSFER_CONFIG_INIT;
    quire_transfer_tier tiers[QUIRE_TRANSFER_MAX_TIERS];
    for (uint32_t i = 0; i < c->num_tiers; i++)
        tiers[i] = c->tiers[i].tier;
    config.num_ranks = c->num_ranks;
    config.num_tiers = c->num_tiers;
    config.tiers = tiers;
    config.hooks = c->hooks;
    if (c->on_tier_event != NULL)
        config.event_keys = (uint32_t)qr_or_default(
            c->event_keys, c->num_slots > LEAST_EVENT_KEYS ? c->num_slots : LEAST_EVENT_KEYS);
    int err = quire_transfer_open(&config, NULL, &p->transfer);
    p->device = quire_transfer_device(p->transfer);
    if (err == QUIRE_OK)
        qr_planner_watch_tiers(p, c);
    return err;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static int init_planner(quire_planner *p, planner_plan *plan)
{
    const quire_planner_config *c = &plan->config;
    quire_cache *cache = NULL;
    memset(p->reqs, 0, p->max_requests * sizeof *p->reqs);
    memset(p->slots, 0, p->num_slots * sizeof *p->slots);
    p->free_req = QR_NIL;
    for (uint32_t i = p->max_requests; i-- > 0;) {
        p->reqs[i].next_free = p->free_req;
        p->reqs[i].first_batch = QR_NIL;
        p->free_req = i;
    }
    qr_planner_init_batches(p);
    p->hooks = c->hooks;
    p->learns = c->learns != QUIRE_OFF && c->num_tiers > 0;
    p->shares_loads = c->shares_loads != QUIRE_OFF;
    p->holds_loads = c->holds_loads != QUIRE_OFF;
    p->times.most_decode = 1;
    p->most_storing = least(p->num_gpu / 4 + 1, p->num_slots / 2);
    p->most_ending = least(p->num_gpu - p->num_gpu / 4, p->num_slots / 2);
    int err = quire_cache_create(&plan->host, NULL, &cache);
    if (err != QUIRE_OK)
        return err;
    qr_host_pool_init(&p->host, &plan->host, cache);
    err = open_transfer(p, c);
    return err == QUIRE_OK ? make_promote(p, plan) : err;
}

QUIRE_API int quire_planner_create(const quire_planner_config *callers, quire_planner **planner)
{
    planner_plan plan;
    quire_planner parts;
    qr_arena size = qr_arena_plan();
    qr_arena arena;
    qr_owner owner;
    if (planner == NULL)
        return QUIRE_E_ARGUMENT;
    int err = read_planner_config(&plan, callers);
    if (err != QUIRE_OK)
        return err;
    (void)carve_planner(&size, &plan, &parts);
    err = qr_owner_begin(&owner, NULL, &size, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_planner *made = carve_planner(&arena, &plan, &parts);
    *made = parts;
    made->owner = owner;
    made->magic = QR_PLANNER_MAGIC;
    err = init_planner(made, &plan);
    if (err != QUIRE_OK) {
        quire_planner_destroy(made);
        return err;
    }
    *planner = made;
    return QUIRE_OK;
}

static bool is_planner(const quire_planner *p)
{
    return p != NULL && p->magic == QR_PLANNER_MAGIC;
}

QUIRE_API void quire_planner_destroy(quire_planner *planner)
{
    if (!is_planner(planner))
        return;
    planner->magic = 0;
    quire_transfer_close(planner->transfer);
    quire_cache_destroy(planner->host.cache);
    if (planner->promote_owner.memory != NULL)
        qr_owner_release(&planner->promote_owner);
    qr_owner_release(&planner->owner);
}

/* ---- requests -------------------------------------------------------------- */

QUIRE_API int quire_planner_add(quire_planner *planner, quire_req *req)
{
    if (!is_planner(planner) || req == NULL)
        return QUIRE_E_ARGUMENT;
    uint32_t index = planner->free_req;
    if (index == QR_NIL)
        return QUIRE_FULL;
    qr_planner_req *r = &planner->reqs[index];
    planner->free_req = r->next_free;
    uint32_t generation = r->generation + 1;
    *r = (qr_planner_req){.req = (quire_req)generation << 32 | (index + 1),
                          .generation = generation,
                          .first_batch = QR_NIL};
    memset(&planner->num_stored[(size_t)index * planner->host.num_groups], 0,
           planner->host.num_groups * sizeof *planner->num_stored);
    *req = r->req;
    return QUIRE_OK;
}

void qr_planner_free_req(quire_planner *p, qr_planner_req *r)
{
    r->req = 0;
    r->has_ended = false;
    r->next_free = p->free_req;
    p->free_req = (uint32_t)(r - p->reqs);
}

static int find_req(quire_planner *p, quire_req req, qr_planner_req **r)
{
    if (!is_planner(p))
        return QUIRE_E_ARGUMENT;
    *r = qr_planner_find(p, req);
    return *r == NULL ? QUIRE_E_UNKNOWN_REQ : QUIRE_OK;
}

static int find_request(quire_planner *p, const quire_planner_request *request, qr_planner_req **r)
{
    if (request == NULL || (request->num_hashes > 0 && request->hashes == NULL) ||
        request->is_last > 1 || request->unused != 0)
        return QUIRE_E_ARGUMENT;
    return find_req(p, request->req, r);
}

QUIRE_API int quire_planner_match(quire_planner *planner, const quire_planner_request *request,
                                  uint32_t num_local, uint32_t *num_external)
{
    qr_planner_req *r;
    int err = find_request(planner, request, &r);
    if (err != QUIRE_OK || num_external == NULL)
        return err != QUIRE_OK ? err : QUIRE_E_ARGUMENT;
    return qr_planner_match_request(planner, r, request, num_local, num_external);
}

QUIRE_API int quire_planner_prefetch(quire_planner *planner, const quire_planner_request *request,
                                     uint32_t num_local)
{
    qr_planner_req *r;
    quire_block_span spans[QR_HOST_MAX_GROUPS];
    int err = find_request(planner, request, &r);
    if (err != QUIRE_OK || planner->promote == NULL)
        return err;
    uint32_t num_hit =
        qr_host_pool_find(&planner->host, request->hashes, request->num_hashes, request->num_tokens,
                          num_local, planner->num_storing > 0, spans);
    qr_promote_request ask = {.req = r->req,
                              .hashes = request->hashes,
                              .num_hashes = request->num_hashes,
                              .num_tokens = request->num_tokens,
                              .num_local = num_local,
                              .num_found = num_local + num_hit};
    qr_promote_prefetch(planner->promote, &ask);
    return QUIRE_OK;
}

QUIRE_API int quire_planner_allocated(quire_planner *planner, quire_req req,
                                      const quire_block_span *blocks, uint32_t num_external)
{
    qr_planner_req *r;
    int err = find_req(planner, req, &r);
    if (err != QUIRE_OK || blocks == NULL)
        return err != QUIRE_OK ? err : QUIRE_E_ARGUMENT;
    if (num_external > 0 && r->load != QR_PLANNER_NO_LOAD)
        return QUIRE_E_ARGUMENT;
    if (planner->promote != NULL)
        qr_promote_forget(planner->promote, req);
    if (num_external > 0)
        qr_planner_begin_load(planner, r, blocks, num_external);
    return QUIRE_OK;
}

QUIRE_API int quire_planner_computed(quire_planner *planner, const quire_planner_request *request,
                                     const quire_block_span *blocks, uint32_t num_computed)
{
    qr_planner_req *r;
    int err = find_request(planner, request, &r);
    if (err != QUIRE_OK || blocks == NULL)
        return err != QUIRE_OK ? err : QUIRE_E_ARGUMENT;
    bool is_done = r->load != QR_PLANNER_NO_LOAD || /* its blocks have nothing yet */
                   qr_planner_store(planner, r, request, blocks, num_computed);
    return is_done ? QUIRE_OK : QUIRE_RETRY;
}

QUIRE_API int quire_planner_preempted(quire_planner *planner, quire_req req)
{
    qr_planner_req *r;
    int err = find_req(planner, req, &r);
    if (err != QUIRE_OK)
        return err;
    uint32_t *num_stored =
        &planner->num_stored[(size_t)quire_req_index(req) * planner->host.num_groups];
    memset(num_stored, 0, planner->host.num_groups * sizeof *num_stored);
    return QUIRE_OK;
}

QUIRE_API int quire_planner_finished(quire_planner *planner, quire_req req)
{
    qr_planner_req *r;
    int err = find_req(planner, req, &r);
    if (err != QUIRE_OK)
        return err;
    if (planner->match.req == req)
        qr_planner_release_match(planner);
    if (planner->promote != NULL)
        qr_promote_forget(planner->promote, req);
    if (r->load == QR_PLANNER_LOADING)
        qr_planner_unqueue_load(planner, quire_req_index(req));
    if (r->load == QR_PLANNER_NO_LOAD)
        qr_planner_free_req(planner, r);
    else
        r->has_ended = true; /* it is told when its load has ended */
    return QUIRE_OK;
}

/* ---- a step ---------------------------------------------------------------- */

QUIRE_API int quire_planner_take_held(quire_planner *planner, const quire_block **blocks,
                                      uint32_t *num_blocks)
{
    if (!is_planner(planner) || blocks == NULL || num_blocks == NULL)
        return QUIRE_E_ARGUMENT;
    *blocks = planner->held;
    *num_blocks = planner->is_held_taken ? 0 : planner->num_held;
    planner->is_held_taken = true;
    return QUIRE_OK;
}

QUIRE_API int quire_planner_plan(quire_planner *planner, uint64_t step, uint32_t num_tokens,
                                 uint32_t num_reqs, quire_planner_out *out)
{
    if (!is_planner(planner) || out == NULL)
        return QUIRE_E_ARGUMENT;
    if (planner->learns)
        qr_step_times_begin(&planner->times, step, num_tokens, num_reqs, &planner->hooks);
    qr_planner_send(planner);
    *out = (quire_planner_out){0};
    (void)quire_planner_take_held(planner, &out->held, &out->num_held);
    return quire_transfer_take_plan(planner->transfer, &out->plan);
}

/* Requests that go on store what they have computed once more. */
static void forget_stored(quire_planner *p)
{
    memset(p->num_stored, 0, (size_t)p->max_requests * p->host.num_groups * sizeof *p->num_stored);
}

/* What is in flight does not count when it ends. */
static void forget_host(quire_planner *p)
{
    qr_planner_release_match(p);
    qr_planner_drop_stores(p);
    for (uint32_t i = 0; i < p->max_requests; i++)
        if (p->reqs[i].load != QR_PLANNER_NO_LOAD)
            p->reqs[i].has_failed = true;
    forget_stored(p);
    for (quire_block block = 1; block < p->num_slots; block++) {
        (void)quire_pool_evict_blocks(p->host.pool, &block, 1);
        if (p->promote != NULL)
            qr_promote_forget_content(p->promote, &block, 1);
    }
}

QUIRE_API int quire_planner_report(quire_planner *planner, quire_bytes report)
{
    if (!is_planner(planner))
        return QUIRE_E_ARGUMENT;
    int err = quire_transfer_give_report(planner->transfer, report);
    if (err == QUIRE_LOST)
        forget_host(planner);
    return err;
}

static void learn_step(quire_planner *p, uint64_t step)
{
    uint32_t num_tokens;
    uint64_t ns = qr_step_times_end(&p->times, step, &p->hooks, &num_tokens);
    if (ns > 0)
        qr_promote_learn(p->promote, num_tokens, ns);
}

/* What was released since the last results comes first. */
static void forget_told(quire_planner *p)
{
    p->num_released -= p->num_told_released;
    memmove(p->released, p->released + p->num_told_released, p->num_released * sizeof *p->released);
    p->num_told_released = 0;
}

QUIRE_API int quire_planner_get_results(quire_planner *planner, uint64_t step,
                                        quire_planner_results *results)
{
    if (!is_planner(planner) || results == NULL)
        return QUIRE_E_ARGUMENT;
    forget_told(planner);
    if (planner->learns)
        learn_step(planner, step);
    qr_planner_poll(planner);
    if (planner->promote != NULL)
        qr_promote_poll(planner->promote);
    qr_planner_tell_loads(planner);
    planner->num_told_released = planner->num_released;
    *results = (quire_planner_results){.loaded = planner->loaded,
                                       .num_loaded = planner->num_loaded,
                                       .failed = planner->failed,
                                       .num_failed = planner->num_failed,
                                       .failed_blocks = planner->failed_blocks,
                                       .num_failed_blocks = planner->num_failed_blocks,
                                       .released = planner->released,
                                       .num_released = planner->num_released};
    return QUIRE_OK;
}

QUIRE_API int quire_planner_has_pending(const quire_planner *planner)
{
    if (!is_planner(planner))
        return 0;
    return planner->num_free_batches < planner->num_batches || planner->num_ended > 0 ||
           (planner->promote != NULL && qr_promote_has_pending(planner->promote));
}

QUIRE_API int quire_planner_drop_stores(quire_planner *planner, const quire_block **released,
                                        uint32_t *num_released)
{
    if (!is_planner(planner) || released == NULL || num_released == NULL)
        return QUIRE_E_ARGUMENT;
    forget_told(planner);
    qr_planner_drop_stores(planner);
    forget_stored(planner);
    for (uint32_t i = 0; i < planner->num_batches; i++)
        if (planner->batches[i].is_used && planner->batches[i].is_dropped)
            qr_planner_release(planner, &planner->batches[i]);
    planner->num_told_released = planner->num_released;
    *released = planner->released;
    *num_released = planner->num_released;
    return QUIRE_OK;
}

/* ---- identity -------------------------------------------------------------- */

QUIRE_API int quire_planner_reset(quire_planner *planner)
{
    if (!is_planner(planner))
        return QUIRE_E_ARGUMENT;
    forget_host(planner);
    return planner->promote == NULL ? QUIRE_OK : qr_promote_reset(planner->promote);
}

QUIRE_API int quire_planner_set_identity(quire_planner *planner, const unsigned char *fingerprint)
{
    if (!is_planner(planner) || fingerprint == NULL)
        return QUIRE_E_ARGUMENT;
    forget_host(planner);
    return planner->promote == NULL ? QUIRE_OK
                                    : qr_promote_set_identity_soon(planner->promote, fingerprint);
}

/* ---- looking --------------------------------------------------------------- */

QUIRE_API int quire_planner_get_stats(const quire_planner *planner, quire_offload_stats *stats)
{
    if (!is_planner(planner))
        return QUIRE_E_ARGUMENT;
    const qr_planner_counters *c = &planner->counters;
    quire_offload_stats own = {.cpu = quire_pool_get_usage(planner->host.pool),
                               .stored_blocks = qr_count_get(&c->stored_blocks),
                               .loaded_blocks = qr_count_get(&c->loaded_blocks),
                               .failed_loads = qr_count_get(&c->failed_loads),
                               .failed_stores = qr_count_get(&c->failed_stores),
                               .no_room = qr_count_get(&c->no_room),
                               .hit_tokens = qr_count_get(&c->hit_tokens),
                               .stores_in_flight = qr_count_get(&c->stores_in_flight),
                               .loads_in_flight = qr_count_get(&c->loads_in_flight)};
    if (planner->promote != NULL)
        qr_promote_add_stats(planner->promote, &own);
    return qr_struct_out(stats, &own, sizeof own);
}

QUIRE_API int quire_planner_get_transfer_stats(const quire_planner *planner,
                                               quire_transfer_stats *stats)
{
    return is_planner(planner) ? quire_transfer_get_stats(planner->transfer, stats)
                               : QUIRE_E_ARGUMENT;
}

QUIRE_API int quire_planner_check(const quire_planner *planner)
{
    return is_planner(planner) ? qr_planner_check(planner) : QUIRE_E_ARGUMENT;
}
