#include "parity/vllm_offload.h"
#include "base/inner.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_GROUPS = 16, MAX_EVENTS = 1024 };

typedef enum load_state { NONE, WAITS, ON_THE_WAY, ENDED, TOLD } load_state;

/* Pairs of blocks on their way. */
typedef struct pair_list {
    quire_block *gpu;
    quire_block *cpu;
    uint32_t count;
    uint32_t capacity;
} pair_list;

typedef struct request {
    quire_req req; /* 0: none */
    quire_block *rows[MAX_GROUPS];
    uint32_t row_count[MAX_GROUPS];
    uint32_t num_stored[MAX_GROUPS]; /* the first that are done with */
    pair_list load;
    load_state state;
    bool has_ended; /* the request, while its load was on the way */
} request;

typedef struct store_event {
    uint64_t id;
    pair_list pairs; /* none: this place is free */
    uint32_t num_reports;
} store_event;

struct vllm_offload {
    quire_cache *cpu_cache;
    quire_pool *cpu;
    quire_pool *gpu;
    quire_sched *sched;
    quire_connector connector;
    bool is_lazy;
    uint32_t num_workers;
    uint32_t num_groups;
    uint32_t max_requests;
    uint32_t hash_size;
    uint32_t digest_bytes;
    uint32_t block_size[MAX_GROUPS];
    uint32_t max_blocks[MAX_GROUPS];
    uint32_t target_free;
    quire_block cursor;

    request *reqs; /* by quire_req_index */
    /* What the request that was asked about last can have. */
    quire_req match_req;
    uint32_t match_tokens;
    uint32_t match_local;
    uint32_t match_counts[MAX_GROUPS];
    quire_block *match_blocks;

    store_event events[MAX_EVENTS];
    uint32_t num_events;
    uint64_t next_event;
    uint64_t next_load_event;
    uint32_t told_events[MAX_EVENTS];
    uint32_t num_told_events;
    uint32_t *new_loads; /* by index, that wait for build_meta */
    uint32_t num_new_loads;
    uint32_t *ended_loads;
    uint32_t num_ended_loads;
    quire_req *told_reqs;

    pair_list chosen; /* of this step; the first num_taken have their users */
    uint32_t num_taken;
    uint32_t num_free;
    uint8_t *is_chosen; /* GPU blocks, in this step */
    quire_offload_meta meta;
    pair_list meta_loads;
    quire_req *meta_reqs;
};

static void *zeroed(size_t n, size_t bytes)
{
    void *memory = calloc(n, bytes);
    if (memory == NULL)
        abort();
    return memory;
}

static void add_pair(pair_list *pairs, quire_block gpu, quire_block cpu)
{
    if (pairs->count == pairs->capacity) {
        pairs->capacity = pairs->capacity == 0 ? 64 : 2 * pairs->capacity;
        pairs->gpu = realloc(pairs->gpu, pairs->capacity * sizeof *pairs->gpu);
        pairs->cpu = realloc(pairs->cpu, pairs->capacity * sizeof *pairs->cpu);
        if (pairs->gpu == NULL || pairs->cpu == NULL)
            abort();
    }
    pairs->gpu[pairs->count] = gpu;
    pairs->cpu[pairs->count++] = cpu;
}

static void free_pairs(pair_list *pairs)
{
    free(pairs->gpu);
    free(pairs->cpu);
    *pairs = (pair_list){0};
}

static request *find_request(vllm_offload *o, quire_req req)
{
    request *r = &o->reqs[quire_req_index(req)];
    return quire_req_index(req) < o->max_requests && r->req == req ? r : NULL;
}

/* ---- loads ------------------------------------------------------------------ */

static int on_matched(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                      uint32_t *is_async)
{
    vllm_offload *o = user;
    quire_block_span spans[MAX_GROUPS];
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    const void *hashes = NULL;
    uint32_t num_hashes = 0;
    uint32_t num_hit = 0;
    uint32_t skipped = num_local / o->hash_size;
    *num_external = *is_async = 0;
    o->match_req = 0;
    if (quire_sched_get_req_info(o->sched, req, &info) != QUIRE_OK ||
        quire_sched_get_hashes(o->sched, req, UINT32_MAX, &hashes, &num_hashes) != QUIRE_OK ||
        num_hashes <= skipped || info.num_tokens <= num_local + 1)
        return QUIRE_OK;
    quire_cache_request rest = {.num_tokens = info.num_tokens - num_local,
                                .hashes = (const char *)hashes + (size_t)skipped * o->digest_bytes,
                                .num_hashes = num_hashes - skipped};
    if (quire_cache_get_computed_blocks(o->cpu_cache, &rest, spans, &num_hit) != QUIRE_OK ||
        num_hit == 0)
        return QUIRE_OK;
    uint32_t n = 0;
    for (uint32_t g = 0; g < o->num_groups; g++) {
        o->match_counts[g] = spans[g].count;
        for (uint32_t i = 0; i < spans[g].count; i++)
            o->match_blocks[n++] = spans[g].ids[i];
    }
    o->match_req = req;
    o->match_tokens = *num_external = num_hit;
    o->match_local = num_local;
    *is_async = 1;
    return QUIRE_OK;
}

/* A hit covers the tail of what a group has: both sides are laid end to end. */
static void begin_load(vllm_offload *o, request *r, const quire_block_span *blocks)
{
    uint32_t total = o->match_local + o->match_tokens;
    const quire_block *cpu = o->match_blocks;
    r->load.count = 0;
    for (uint32_t g = 0; g < o->num_groups; cpu += o->match_counts[g++]) {
        uint32_t first = (total + o->block_size[g] - 1) / o->block_size[g] - o->match_counts[g];
        for (uint32_t i = 0; i < o->match_counts[g]; i++) {
            bool has_place = first + i < blocks[g].count;
            quire_block gpu = has_place ? blocks[g].ids[first + i] : QUIRE_NULL_BLOCK;
            if (cpu[i] != QUIRE_NULL_BLOCK && gpu != QUIRE_NULL_BLOCK)
                add_pair(&r->load, gpu, cpu[i]);
        }
    }
    quire_pool_touch(o->cpu, r->load.cpu, r->load.count);
    quire_pool_touch(o->gpu, r->load.gpu, r->load.count);
    o->match_req = 0;
    r->has_ended = false;
    r->state = WAITS;
    o->new_loads[o->num_new_loads++] = (uint32_t)(r - o->reqs);
}

static void begin_rows(vllm_offload *o, request *r)
{
    memset(r->row_count, 0, o->num_groups * sizeof *r->row_count);
    memset(r->num_stored, 0, o->num_groups * sizeof *r->num_stored);
}

static void on_alloc(void *user, quire_req req, const quire_block_span *blocks,
                     uint32_t num_external)
{
    vllm_offload *o = user;
    request *r = &o->reqs[quire_req_index(req)];
    if (r->req != req) {
        r->req = req;
        begin_rows(o, r);
    }
    if (num_external == 0)
        return;
    if (o->match_req != req || o->match_tokens != num_external)
        abort(); /* the scheduler waits for tokens that nobody promised */
    begin_load(o, r, blocks);
}

static void build_loads(vllm_offload *o)
{
    o->meta_loads.count = 0;
    for (uint32_t i = 0; i < o->num_new_loads; i++) {
        request *r = &o->reqs[o->new_loads[i]];
        for (uint32_t k = 0; k < r->load.count; k++)
            add_pair(&o->meta_loads, r->load.gpu[k], r->load.cpu[k]);
        o->meta_reqs[i] = r->req;
        r->state = ON_THE_WAY;
    }
    o->meta.load_gpu = o->meta_loads.gpu;
    o->meta.load_cpu = o->meta_loads.cpu;
    o->meta.num_loads = o->meta_loads.count;
    o->meta.num_load_reqs = o->num_new_loads;
    if (o->num_new_loads > 0)
        o->meta.load_event = o->next_load_event++;
    o->num_new_loads = 0;
}

static void end_load(vllm_offload *o, request *r)
{
    r->state = ENDED;
    o->ended_loads[o->num_ended_loads++] = (uint32_t)(r - o->reqs);
}

static int on_finished(void *user, quire_req req, const quire_block_span *blocks)
{
    vllm_offload *o = user;
    request *r = find_request(o, req);
    uint32_t kept = 0;
    (void)blocks;
    if (o->match_req == req)
        o->match_req = 0;
    if (r == NULL)
        return 0;
    r->has_ended = true;
    if (r->state == NONE)
        r->req = 0;
    if (r->state != WAITS)
        return 0;
    for (uint32_t i = 0; i < o->num_new_loads; i++) /* nobody has begun it */
        if (&o->reqs[o->new_loads[i]] != r)
            o->new_loads[kept++] = o->new_loads[i];
    o->num_new_loads = kept;
    end_load(o, r);
    return 0;
}

/* First to last: a prefix is evicted before its tail. */
static void finish_load(vllm_offload *o, request *r)
{
    quire_pool_free_blocks(o->cpu, r->load.cpu, r->load.count);
    quire_pool_free_blocks(o->gpu, r->load.gpu, r->load.count);
    r->load.count = 0;
    r->state = NONE;
    if (r->has_ended)
        r->req = 0;
}

/* ---- stores ----------------------------------------------------------------- */

static void choose(vllm_offload *o, quire_block gpu)
{
    add_pair(&o->chosen, gpu, QUIRE_NULL_BLOCK);
    o->num_free--;
}

/* CPU blocks for what was chosen, and a user more for both. */
static void take_chosen(vllm_offload *o)
{
    uint32_t n = o->chosen.count - o->num_taken;
    quire_block *gpu = o->chosen.gpu + o->num_taken;
    if (n == 0)
        return;
    if (quire_pool_get_new_blocks(o->cpu, n, o->chosen.cpu + o->num_taken) != QUIRE_OK ||
        quire_pool_touch(o->gpu, gpu, n) != QUIRE_OK)
        abort();
    for (uint32_t i = 0; i < n; i++)
        o->is_chosen[gpu[i]] = 1;
    o->num_taken = o->chosen.count;
}

/* The cursor goes on from the block that was looked at last, wherever that is by now. */
static void choose_lazy(vllm_offload *o)
{
    quire_block_info info;
    uint32_t limit = o->num_free;
    if (o->cursor != QUIRE_NULL_BLOCK &&
        quire_pool_get_block(o->gpu, o->cursor, &info) == QUIRE_OK && info.ref_cnt > 0)
        o->cursor = QUIRE_NULL_BLOCK;
    quire_block node = quire_pool_get_next_free(o->gpu, o->cursor);
    for (uint32_t covered = 0;
         node != QUIRE_NULL_BLOCK && covered < o->target_free && o->chosen.count < limit;
         covered++) {
        o->cursor = node;
        quire_block found;
        quire_pool_find_same(o->cpu, o->gpu, &node, 1, &found);
        if (found == QUIRE_NULL_BLOCK && !o->is_chosen[node])
            choose(o, node);
        node = quire_pool_get_next_free(o->gpu, node);
    }
    take_chosen(o);
}

/* How many of count blocks are computed. A request that was preempted has fewer tokens than it has
 * placeholders of steps in flight; vLLM cuts the list at a negative number then, which in Python is
 * counted from its end. */
static uint32_t num_ready(int64_t confirmed, uint32_t block_size, uint32_t count)
{
    if (confirmed >= 0)
        return (uint64_t)confirmed / block_size < count ? (uint32_t)confirmed / block_size : count;
    uint32_t missing = (uint32_t)((block_size - 1 - confirmed) / block_size);
    return missing < count ? count - missing : 0;
}

/* False when the CPU pool is full. */
static bool scan_group(vllm_offload *o, request *r, uint32_t g, int64_t confirmed)
{
    uint32_t end = num_ready(confirmed, o->block_size[g], r->row_count[g]);
    for (; r->num_stored[g] < end; r->num_stored[g]++) {
        quire_block block = r->rows[g][r->num_stored[g]];
        quire_block found;
        if (block == QUIRE_NULL_BLOCK)
            continue;
        quire_pool_find_same(o->cpu, o->gpu, &block, 1, &found);
        if (found == UINT32_MAX) /* it has no key yet */
            return true;
        if (found != QUIRE_NULL_BLOCK || o->is_chosen[block])
            continue;
        if (o->num_free == 0)
            return false;
        choose(o, block);
    }
    return true;
}

static void scan_request(vllm_offload *o, request *r)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    if (quire_sched_get_req_info(o->sched, r->req, &info) != QUIRE_OK)
        return;
    int64_t confirmed = (int64_t)info.num_computed_tokens - info.num_output_placeholders;
    for (uint32_t g = 0; g < o->num_groups; g++)
        if (!scan_group(o, r, g, confirmed))
            break;
    take_chosen(o);
}

/* More blocks than a longest request has are never looked at. */
static void add_blocks(vllm_offload *o, request *r, const quire_block_span *blocks)
{
    for (uint32_t g = 0; g < o->num_groups; g++)
        for (uint32_t i = 0; i < blocks[g].count && r->row_count[g] < o->max_blocks[g]; i++)
            r->rows[g][r->row_count[g]++] = blocks[g].ids[i];
}

static void scan_kind(vllm_offload *o, const quire_step *step, uint8_t kind, bool has_place)
{
    for (uint32_t i = 0; i < step->num_reqs; i++) {
        request *r = find_request(o, step->reqs[i]);
        if (step->kinds[i] != kind || r == NULL)
            continue;
        if (kind == QUIRE_STEP_RESUMED)
            begin_rows(o, r);
        add_blocks(o, r, &step->blocks[(size_t)i * o->num_groups]);
        if (has_place)
            scan_request(o, r);
    }
}

/* In the order in which vLLM goes through a step. */
static void choose_eager(vllm_offload *o, const quire_step *step, bool has_place)
{
    scan_kind(o, step, QUIRE_STEP_NEW, has_place);
    scan_kind(o, step, QUIRE_STEP_RUNNING, has_place);
    scan_kind(o, step, QUIRE_STEP_RESUMED, has_place);
}

static void *on_build_meta(void *user, const quire_step *step)
{
    vllm_offload *o = user;
    store_event *event = &o->events[o->next_event % MAX_EVENTS];
    bool has_place = event->pairs.count == 0;
    o->match_req = 0;
    o->meta = (quire_offload_meta){.load_event = QUIRE_OFFLOAD_NO_EVENT,
                                   .load_reqs = o->meta_reqs,
                                   .store_event = QUIRE_OFFLOAD_NO_EVENT,
                                   .need_flush = step->num_preempted > 0};
    o->chosen.count = o->num_taken = 0;
    o->num_free = quire_pool_get_num_free_blocks(o->cpu);
    if (!o->is_lazy)
        choose_eager(o, step, has_place);
    else if (has_place)
        choose_lazy(o);
    for (uint32_t i = 0; i < o->chosen.count; i++) {
        add_pair(&event->pairs, o->chosen.gpu[i], o->chosen.cpu[i]);
        o->is_chosen[o->chosen.gpu[i]] = 0;
    }
    if (o->chosen.count > 0) {
        o->meta.store_gpu = o->chosen.gpu;
        o->meta.store_cpu = o->chosen.cpu;
        o->meta.num_stores = o->chosen.count;
        event->id = o->meta.store_event = o->next_event++;
        event->num_reports = 0;
        o->num_events++;
    }
    build_loads(o);
    return &o->meta;
}

/* First to last: the head of a prompt is evicted before what is behind it. */
static void finish_event(vllm_offload *o, store_event *event)
{
    pair_list *pairs = &event->pairs;
    inner_cache_same(o->cpu, pairs->cpu, o->gpu, pairs->gpu, pairs->count);
    quire_pool_free_blocks(o->cpu, pairs->cpu, pairs->count);
    quire_pool_free_blocks(o->gpu, pairs->gpu, pairs->count);
    pairs->count = 0;
    o->num_events--;
}

/* ---- reports ---------------------------------------------------------------- */

bool vllm_offload_tell(vllm_offload *o, const quire_offload_report *report)
{
    for (uint32_t i = 0; i < report->num_loaded; i++) {
        request *r = find_request(o, report->loaded[i]);
        if (r == NULL || r->state != ON_THE_WAY)
            return false;
        end_load(o, r);
    }
    for (uint32_t i = 0; i < report->num_stored; i++) {
        store_event *event = &o->events[report->stored_events[i] % MAX_EVENTS];
        if (event->pairs.count == 0 || event->id != report->stored_events[i])
            return false;
        event->num_reports += report->stored_counts[i];
        o->told_events[o->num_told_events++] = (uint32_t)(event - o->events);
    }
    return true;
}

void vllm_offload_poll(vllm_offload *o, quire_model_output *output)
{
    for (uint32_t i = 0; i < o->num_ended_loads; i++) {
        request *r = &o->reqs[o->ended_loads[i]];
        r->state = TOLD;
        o->told_reqs[i] = r->req;
    }
    output->finished_recving = o->told_reqs;
    output->num_finished_recving = o->num_ended_loads;
}

static void on_update(void *user)
{
    vllm_offload *o = user;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < o->num_ended_loads; i++) {
        request *r = &o->reqs[o->ended_loads[i]];
        if (r->state == TOLD)
            finish_load(o, r);
        else
            o->ended_loads[kept++] = o->ended_loads[i];
    }
    o->num_ended_loads = kept;
    for (uint32_t i = 0; i < o->num_told_events; i++) {
        store_event *event = &o->events[o->told_events[i]];
        if (event->pairs.count > 0 && event->num_reports >= o->num_workers)
            finish_event(o, event);
    }
    o->num_told_events = 0;
}

/* vLLM's connector cannot be reset. */
static int on_reset(void *user)
{
    (void)user;
    return 1;
}

/* ---- making ----------------------------------------------------------------- */

static bool make_cpu_cache(vllm_offload *o, const quire_sched_config *sched, uint32_t num_blocks)
{
    quire_cache_config cpu = *sched->cache;
    cpu.num_blocks = num_blocks;
    cpu.max_requests = 1;
    cpu.max_num_batched_tokens = sched->max_num_batched_tokens;
    cpu.use_eagle = QUIRE_OFF;
    cpu.log_stats = QUIRE_OFF;
    cpu.track_new_blocks = QUIRE_OFF;
    cpu.profile = QUIRE_PROFILE_VLLM_0_20;
    cpu.watermark = 0;
    cpu.max_copies = 0;
    cpu.num_host_blocks = 0;
    cpu.event_log_bytes = 0;
    cpu.on_event = NULL;
    o->digest_bytes = cpu.digest_bytes == 0 ? 32 : cpu.digest_bytes;
    return quire_cache_create(&cpu, NULL, &o->cpu_cache) == QUIRE_OK;
}

/* Twice what a step takes. */
static void set_groups(vllm_offload *o, const quire_sched_config *sched)
{
    uint32_t target = 0;
    o->num_groups = sched->cache->num_groups;
    for (uint32_t g = 0; g < o->num_groups; g++) {
        const quire_layer_spec *spec = &sched->cache->groups[g].spec;
        uint32_t size = spec->block_size;
        o->block_size[g] = size;
        o->max_blocks[g] = sched->cache->max_model_len / size + 1;
        if (spec->kind == QUIRE_LAYER_MAMBA)
            target += 2;
        else if (spec->kind == QUIRE_LAYER_SLIDING_WINDOW ||
                 spec->kind == QUIRE_LAYER_SLIDING_WINDOW_MLA)
            target += (spec->sliding_window + size - 1) / size + 1;
        else
            target += (sched->max_num_batched_tokens + size - 1) / size;
    }
    o->target_free = 2 * target;
}

vllm_offload *vllm_offload_create(const quire_sched_config *sched, quire_sched *bound,
                                  uint32_t num_cpu_blocks, bool is_lazy, uint32_t num_workers)
{
    vllm_offload *o = zeroed(1, sizeof *o);
    uint32_t n = sched->max_requests;
    uint32_t row_blocks = 0;
    if (n == 0 || sched->cache->num_groups > MAX_GROUPS ||
        !make_cpu_cache(o, sched, num_cpu_blocks)) {
        free(o);
        return NULL;
    }
    set_groups(o, sched);
    o->sched = bound;
    o->gpu = quire_cache_get_pool(quire_sched_get_cache(bound));
    o->cpu = quire_cache_get_pool(o->cpu_cache);
    o->hash_size = quire_cache_get_counts(o->cpu_cache).hash_block_size;
    o->is_lazy = is_lazy;
    o->num_workers = num_workers;
    o->max_requests = n;
    o->reqs = zeroed(n, sizeof *o->reqs);
    o->new_loads = zeroed(n, sizeof *o->new_loads);
    o->ended_loads = zeroed(n, sizeof *o->ended_loads);
    o->told_reqs = zeroed(n, sizeof *o->told_reqs);
    o->meta_reqs = zeroed(n, sizeof *o->meta_reqs);
    o->is_chosen = zeroed(sched->cache->num_blocks, 1);
    for (uint32_t g = 0; g < o->num_groups; g++) {
        row_blocks += o->max_blocks[g];
        for (uint32_t i = 0; i < n; i++)
            o->reqs[i].rows[g] = zeroed(o->max_blocks[g], sizeof(quire_block));
    }
    o->match_blocks = zeroed(row_blocks, sizeof *o->match_blocks);
    o->connector = (quire_connector){.size = sizeof(quire_connector),
                                     .user = o,
                                     .get_num_new_matched_tokens = on_matched,
                                     .update_state_after_alloc = on_alloc,
                                     .build_meta = on_build_meta,
                                     .request_finished = on_finished,
                                     .reset_cache = on_reset,
                                     .update_output = on_update};
    return o;
}

void vllm_offload_destroy(vllm_offload *o)
{
    if (o == NULL)
        return;
    for (uint32_t i = 0; i < o->max_requests; i++) {
        free_pairs(&o->reqs[i].load);
        for (uint32_t g = 0; g < o->num_groups; g++)
            free(o->reqs[i].rows[g]);
    }
    for (uint32_t i = 0; i < MAX_EVENTS; i++)
        free_pairs(&o->events[i].pairs);
    free_pairs(&o->chosen);
    free_pairs(&o->meta_loads);
    quire_cache_destroy(o->cpu_cache);
    free(o->reqs);
    free(o->new_loads);
    free(o->ended_loads);
    free(o->told_reqs);
    free(o->meta_reqs);
    free(o->is_chosen);
    free(o->match_blocks);
    free(o);
}

const quire_connector *vllm_offload_connector(vllm_offload *o)
{
    return &o->connector;
}

quire_cache *vllm_offload_cache(vllm_offload *o)
{
    return o->cpu_cache;
}

bool vllm_offload_has_pending(const vllm_offload *o)
{
    return o->num_events > 0;
}
