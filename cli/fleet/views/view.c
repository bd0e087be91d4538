#include "view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool uses_own(router_index index)
{
    return index == ROUTER_INDEX_APPROXIMATE || index == ROUTER_INDEX_BOTH;
}

static bool uses_events(router_index index)
{
    return index == ROUTER_INDEX_EVENTS || index == ROUTER_INDEX_BOTH;
}

static bool open_indexes(view *v)
{
    const router_knowledge *k = &v->settings.knows.knowledge;
    uint32_t block_size = v->settings.block_size;
    v->stride =
        k->tokens_per_block <= block_size ? 1 : (k->tokens_per_block + block_size - 1) / block_size;
    if (uses_own(k->index)) {
        uint64_t tokens = (uint64_t)v->stride * block_size;
        uint64_t blocks = k->lru_tokens == 0 ? 0 : (k->lru_tokens + tokens - 1) / tokens;
        v->own = own_blocks_open(v->settings.max_workers, k->ttl_s, blocks);
        v->own_hits = calloc(v->settings.max_workers, sizeof *v->own_hits);
        if (v->own == NULL || v->own_hits == NULL)
            return false;
    }
    if (v->settings.policy->needs & ROUTER_NEEDS_ACTIVE) {
        v->active = active_blocks_open(v->settings.max_workers);
        v->active_hits = calloc(v->settings.max_workers, sizeof *v->active_hits);
        v->apart_blocks = calloc(v->settings.max_workers, sizeof *v->apart_blocks);
        if (v->active == NULL || v->active_hits == NULL || v->apart_blocks == NULL)
            return false;
    }
    return true;
}

bool view_open(view *v, const view_settings *settings)
{
    memset(v, 0, sizeof *v);
    v->settings = *settings;
    v->reported_due_s = INFINITY;
    v->workers = calloc(settings->max_workers, sizeof *v->workers);
    v->hits = calloc(settings->max_workers, sizeof *v->hits);
    v->reported = calloc(settings->max_workers, sizeof *v->reported);
    return v->workers != NULL && v->hits != NULL && v->reported != NULL && open_indexes(v);
}

void view_close(view *v)
{
    own_blocks_close(v->own);
    active_blocks_close(v->active);
    free(v->workers);
    free(v->hits);
    free(v->active_hits);
    free(v->apart_blocks);
    free(v->own_hits);
    free(v->reported);
    memset(v, 0, sizeof *v);
}

/* ---- workers --------------------------------------------------------------- */

void view_join(view *v, double now_s, uint32_t worker, const router_worker_info *info)
{
    router_worker *w = &v->workers[worker];
    (void)now_s;
    if (worker >= v->num_workers) {
        for (uint32_t i = v->num_workers; i <= worker; i++)
            v->workers[i].load_time_s = v->workers[i].last_routed_s = -1;
        v->num_workers = worker + 1;
    }
    w->is_ready = true;
    w->pool = info->pool;
    w->num_blocks = info->num_blocks;
    w->max_num_batched_tokens = info->max_num_batched_tokens;
    w->capacity = info->capacity == 0 ? 1 : info->capacity;
    w->load = (router_load){0};
    w->load_time_s = -1;
}

void view_drain(view *v, uint32_t worker)
{
    v->workers[worker].is_ready = false;
}

void view_leave(view *v, uint32_t worker)
{
    v->workers[worker].is_ready = false;
    v->workers[worker].known_blocks = 0;
    if (v->own != NULL)
        own_blocks_drop_worker(v->own, worker);
}

/* ---- time ------------------------------------------------------------------ */

static void take_reports(view *v, double time_s, const router_load *loads)
{
    for (uint32_t w = 0; w < v->num_workers; w++) {
        v->workers[w].load = loads[w];
        v->workers[w].load_time_s = time_s;
    }
}

void view_report(view *v, double now_s, const router_load *loads)
{
    double lag_s = v->settings.knows.metrics_lag_s;
    if (lag_s <= 0) {
        take_reports(v, now_s, loads);
        return;
    }
    if (v->reported_due_s <= now_s)
        take_reports(v, v->reported_due_s - lag_s, v->reported);
    memcpy(v->reported, loads, v->num_workers * sizeof *loads);
    v->reported_due_s = now_s + lag_s;
}

void view_advance(view *v, double now_s, const router_load *loads)
{
    const uint32_t needs = ROUTER_NEEDS_REPORTS | ROUTER_NEEDS_REPORTS_APART | ROUTER_IS_ORACLE;
    if (v->own != NULL)
        own_blocks_expire(v->own, now_s);
    if (v->reported_due_s <= now_s) {
        take_reports(v, v->reported_due_s - v->settings.knows.metrics_lag_s, v->reported);
        v->reported_due_s = INFINITY;
    }
    if (v->settings.knows.knowledge.metrics_every_s <= 0 && loads != NULL &&
        (v->settings.policy->needs & needs))
        take_reports(v, now_s, loads);
}

/* ---- hits ------------------------------------------------------------------ */

/* The longer of both prefixes: what was sent lately is computed, in GPU memory. It covers blocks of
 * host memory before blocks on disk. */
static void merge_own(view *v, uint32_t worker)
{
    router_hit *hit = &v->hits[worker];
    uint32_t own = v->own_hits[worker] * v->stride;
    if (own <= hit->leading)
        return;
    uint32_t total = router_hit_blocks(hit);
    uint32_t beyond = total > own ? total - own : 0; /* blocks that it does not cover */
    uint32_t lower = hit->host + hit->disk < beyond ? hit->host + hit->disk : beyond;
    uint32_t disk = hit->disk < lower ? hit->disk : lower;
    *hit = (router_hit){(total > own ? total : own) - lower, lower - disk, disk, own};
}

/* The name of a block of the approximate index is that of the last block in it. */
static const uint64_t *first_of(const view *v, const router_request *request)
{
    return request->num_blocks < v->stride ? NULL : request->blocks + (v->stride - 1);
}

static uint32_t at_most(uint32_t n, uint32_t most)
{
    return most > 0 && most < n ? most : n;
}

static void look_at_events(view *v, const router_request *request, uint32_t n)
{
    const kv_feed *feed = v->settings.feed;
    const block_index *tiers[3] = {kv_feed_tier(feed, ROUTER_GPU), kv_feed_tier(feed, ROUTER_HOST),
                                   kv_feed_tier(feed, ROUTER_DISK)};
    const block_index *shared = kv_feed_tier(feed, ROUTER_SHARED);
    block_index_walk(tiers, request->blocks, n, 1, v->hits);
    if (block_index_pairs(shared) > 0)
        block_index_leading(shared, request->blocks, n, 1, &v->shared_hit);
}

static void count_known(view *v)
{
    const block_index *index = NULL;
    if (v->own != NULL)
        index = own_blocks_index(v->own);
    else if (v->settings.feed != NULL)
        index = kv_feed_tier(v->settings.feed, ROUTER_GPU);
    for (uint32_t w = 0; w < v->num_workers && index != NULL; w++)
        v->workers[w].known_blocks = block_index_pairs_of(index, w);
}

void view_look(view *v, const router_request *request)
{
    const router_knowledge *k = &v->settings.knows.knowledge;
    v->shared_hit = 0;
    if (uses_events(k->index) && v->settings.feed != NULL) {
        look_at_events(v, request, at_most(request->num_blocks, k->max_blocks));
    } else {
        memset(v->hits, 0, v->settings.max_workers * sizeof *v->hits);
        if (v->settings.exact_hits != NULL)
            v->settings.exact_hits(v->settings.exact_context, request, v->hits);
    }
    if (v->own != NULL) {
        uint32_t n = at_most(request->num_blocks / v->stride, k->max_blocks);
        block_index_leading(own_blocks_index(v->own), first_of(v, request), n, v->stride,
                            v->own_hits);
        for (uint32_t w = 0; w < v->num_workers; w++)
            merge_own(v, w);
    }
    if (v->active != NULL)
        active_blocks_leading(v->active, request->blocks, request->num_blocks, v->active_hits);
    count_known(v);
}

/* ---- requests -------------------------------------------------------------- */

static uint32_t uncached_tokens(const view *v, uint32_t worker, const router_request *request)
{
    uint64_t cached = (uint64_t)view_hit_blocks(v, worker) * v->settings.block_size;
    return cached >= request->num_prompt_tokens ? 0 : request->num_prompt_tokens - (uint32_t)cached;
}

static void count_active(view *v, uint32_t worker)
{
    v->workers[worker].active_blocks =
        active_blocks_of(v->active, worker) + v->apart_blocks[worker];
}

static void begin_active(view *v, view_flight *flight, router_role role,
                         const router_request *request)
{
    if (role == ROUTER_DECODE) {
        flight->num_apart_blocks = request->num_blocks;
        v->apart_blocks[flight->worker] += request->num_blocks;
    } else {
        flight->last_block =
            active_blocks_begin(v->active, flight->worker, request->blocks, request->num_blocks);
    }
    count_active(v, flight->worker);
}

view_flight view_begin(view *v, double now_s, uint32_t worker, router_role role,
                       const router_request *request)
{
    router_worker *w = &v->workers[worker];
    view_flight flight = {.is_open = true,
                          .in_prefill = role != ROUTER_DECODE,
                          .worker = worker,
                          .last_block = ACTIVE_NONE,
                          .num_prompt_tokens = request->num_prompt_tokens};
    w->in_flight++;
    w->in_flight_tokens += request->num_prompt_tokens;
    w->num_routed++;
    w->last_routed_s = now_s;
    if (flight.in_prefill) {
        flight.num_prefill_tokens = uncached_tokens(v, worker, request);
        w->in_prefill++;
        w->prefill_tokens += flight.num_prefill_tokens;
    }
    if (v->active != NULL)
        begin_active(v, &flight, role, request);
    if (v->own != NULL) {
        uint32_t n =
            at_most(request->num_blocks / v->stride, v->settings.knows.knowledge.max_blocks);
        (void)own_blocks_touch(v->own, now_s, worker, first_of(v, request), n, v->stride);
    }
    return flight;
}

void view_first_token(view *v, view_flight *flight)
{
    if (!flight->is_open || !flight->in_prefill)
        return;
    flight->in_prefill = false;
    v->workers[flight->worker].in_prefill--;
    v->workers[flight->worker].prefill_tokens -= flight->num_prefill_tokens;
}

void view_output(view *v, view_flight *flight, uint32_t num_output_tokens)
{
    if (!flight->is_open)
        return;
    router_worker *w = &v->workers[flight->worker];
    w->in_flight_tokens += num_output_tokens;
    w->in_flight_tokens -= flight->num_output_tokens;
    flight->num_output_tokens = num_output_tokens;
}

void view_end(view *v, view_flight *flight)
{
    if (!flight->is_open)
        return;
    view_first_token(v, flight);
    router_worker *w = &v->workers[flight->worker];
    w->in_flight--;
    w->in_flight_tokens -= (uint64_t)flight->num_prompt_tokens + flight->num_output_tokens;
    if (v->active != NULL) {
        active_blocks_end(v->active, flight->worker, flight->last_block);
        v->apart_blocks[flight->worker] -= flight->num_apart_blocks;
        count_active(v, flight->worker);
    }
    flight->is_open = false;
}
