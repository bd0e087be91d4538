/* tier/offload/plan.c - how much memory, and for what. */
#include "tier/offload/offload.h"

#include "base/config.h"
#include "base/refuse.h"
#include "base/rules.h"

#define DEFAULT_DEADLINE_NS UINT64_C(30000000000)

enum {
    DEFAULT_EVENTS = 64,
    DEFAULT_BACKLOG = 256,
    DEFAULT_REQUESTS = 4096,
    DEFAULT_TOKENS = 2048,
    NUM_JOBS = 64
};

/* ---- the config ------------------------------------------------------------ */

static void plan_cpu_cache(qr_offload_plan *plan)
{
    plan->cpu = qr_host_pool_config(plan->sched.cache, plan->config.num_cpu_blocks);
    plan->cpu.max_num_batched_tokens = plan->sched.max_num_batched_tokens;
    plan->cpu.profile = plan->sched.profile; /* keys are those of the scheduler */
    plan->cpu.hooks = plan->config.hooks;
}

static int check_offload_config(const qr_offload_plan *plan)
{
    const quire_offload_config *c = &plan->config;
    const quire_cache_config *cache = plan->sched.cache;
    const qr_field fields[] = {
        {"sched.cache.num_groups", cache->num_groups, 1, QR_OFFLOAD_MAX_GROUPS},
        QR_FIELD(c, num_tiers, 0, QUIRE_OFFLOAD_MAX_TIERS),
        QR_FIELD(c, mode, 0, QUIRE_OFFLOAD_LAZY),
        QR_FIELD(c, learns, 0, QUIRE_OFF),
        QR_FIELD(c, max_events, 0, UINT32_C(1) << 20),
    };
    if (cache->enable_caching == QUIRE_OFF || plan->sched.hasher == NULL)
        return qr_refuse("an offload needs sched.hasher and prefix caching "
                         "(sched.cache.enable_caching is not QUIRE_OFF)");
    if (cache->groups == NULL)
        return qr_refuse("sched.cache.groups is NULL");
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        quire_layer_kind kind = cache->groups[g].spec.kind;
        if (kind == QUIRE_LAYER_CIRCULAR_BUFFER || kind == QUIRE_LAYER_RSWA)
            return qr_refuse("sched.cache.groups[%u]: invalid kind %d (tiers keep no blocks of "
                             "circular buffers and of R-SWA)",
                             g, (int)kind);
    }
    if (c->num_tiers > 0 && c->tiers == NULL)
        return qr_refuse("tiers is NULL, but num_tiers is %u", c->num_tiers);
    int err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    if (err == QUIRE_OK && !qr_share_fits(c))
        err = qr_refuse("peer_server needs memory, and block_bytes that its config allows "
                        "(block_bytes is %llu)",
                        (unsigned long long)c->block_bytes);
    return err;
}

int qr_offload_read_plan(qr_offload_plan *plan, const quire_offload_config *callers)
{
    memset(plan, 0, sizeof *plan);
    int err =
        qr_refuse_reading(&plan->config, sizeof plan->config, callers, "quire_offload_config");
    if (err == QUIRE_OK)
        err = qr_refuse_reading(&plan->sched, sizeof plan->sched, plan->config.sched,
                                "quire_sched_config");
    if (err == QUIRE_OK)
        err = qr_refuse_reading(&plan->sched_cache, sizeof plan->sched_cache, plan->sched.cache,
                                "quire_cache_config");
    plan->sched.cache = &plan->sched_cache;
    plan->sched_cache.profile = plan->sched.profile;
    plan->config.sched = &plan->sched;
    if (err == QUIRE_OK)
        err = check_offload_config(plan);
    if (err != QUIRE_OK)
        return err;
    quire_offload_config *c = &plan->config;
    c->max_events = c->max_events == 0 ? DEFAULT_EVENTS : c->max_events;
    c->num_workers = c->num_workers == 0 ? 1 : c->num_workers;
    c->backlog = c->backlog == 0 ? DEFAULT_BACKLOG : c->backlog;
    quire_sched_config *s = &plan->sched;
    s->max_requests = s->max_requests == 0 ? DEFAULT_REQUESTS : s->max_requests;
    s->max_num_batched_tokens =
        s->max_num_batched_tokens == 0 ? DEFAULT_TOKENS : s->max_num_batched_tokens;
    if (plan->sched_cache.digest_bytes == 0)
        plan->sched_cache.digest_bytes = quire_hasher_get_info(s->hasher).digest_bytes;
    plan_cpu_cache(plan);
    plan->cpu_bytes = quire_cache_bytes(&plan->cpu);
    if (plan->cpu_bytes == 0)
        return QUIRE_E_CONFIG;
    plan->lower_bytes = c->num_tiers > 0 ? qr_promote_bytes(c) : 0;
    return QUIRE_OK;
}

/* ---- making ---------------------------------------------------------------- */

/* Where only some blocks of a group get keys: how late they do. With caches_to_alignment keys are
 * given up to a multiple of all block sizes, and with drafts a block later. Else full blocks get
 * them at once. */
static void set_late_blocks(quire_offload *o, const quire_cache_config *cache,
                            const qr_rules *rules)
{
    uint64_t alignment = 1;
    for (uint32_t g = 0; g < o->num_groups; g++) {
        uint64_t size = o->groups[g].block_size;
        alignment = alignment / qr_gcd(alignment, size) * size;
        if (alignment > UINT32_MAX)
            alignment = UINT32_MAX; /* more tokens than a request has */
    }
    for (uint32_t g = 0; g < o->num_groups; g++) {
        o->groups[g].has_gaps = !qr_is_full_kind(cache->groups[g].spec.kind);
        if (o->groups[g].has_gaps && rules->caches_to_alignment)
            o->groups[g].num_keyed_later = (uint32_t)(alignment / o->groups[g].block_size) + 2;
    }
}

static void set_groups(quire_offload *o, const qr_offload_plan *plan)
{
    const quire_cache_config *cache = plan->sched.cache;
    uint32_t target = 0;
    o->num_groups = cache->num_groups;
    o->row_blocks = 0;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const quire_layer_spec *spec = &cache->groups[g].spec;
        uint32_t tokens = plan->sched.max_num_batched_tokens;
        uint32_t size = (uint32_t)qr_block_tokens(cache, g);
        bool is_window = spec->kind == QUIRE_LAYER_SLIDING_WINDOW ||
                         spec->kind == QUIRE_LAYER_SLIDING_WINDOW_MLA;
        o->groups[g] = (qr_offload_group){.block_size = size,
                                          .max_blocks = cache->max_model_len / size + 1,
                                          .row_start = o->row_blocks};
        o->row_blocks += o->groups[g].max_blocks;
        o->has_windows |= !qr_is_full_kind(spec->kind);
        o->has_pins |= spec->kind == QUIRE_LAYER_SINK_FULL;
        if (spec->kind == QUIRE_LAYER_MAMBA)
            target += 2;
        else if (is_window)
            target += (spec->sliding_window + size - 1) / size + 1;
        else
            target += (tokens + size - 1) / size;
    }
    const qr_rules *rules = qr_rules_of(plan->sched.profile);
    if (rules->retains_boundaries)
        set_late_blocks(o, cache, rules);
    o->target_free = 2 * target; /* twice what a step takes */
}

/* Stores may hold so many blocks of the engine that the longest request still has room, should they
 * never end; but not so few that nothing can be stored where such a request takes all of them. */
static uint32_t most_stores(const quire_offload *o)
{
    uint32_t most = o->num_gpu > o->row_blocks ? o->num_gpu - o->row_blocks : 0;
    most = most < o->num_gpu / 2 ? most : o->num_gpu / 2;
    return most > o->num_gpu / 8 + 1 ? most : o->num_gpu / 8 + 1;
}

/* Numbers first, then all parts; the pointers are of use only where memory is given. */
static void set_numbers(quire_offload *o, const qr_offload_plan *plan)
{
    const quire_offload_config *c = &plan->config;
    memset(o, 0, sizeof *o);
    set_groups(o, plan);
    o->is_lazy = c->mode == QUIRE_OFFLOAD_LAZY;
    o->has_device = c->device != NULL;
    o->looks_ahead = c->lookahead != QUIRE_OFF;
    o->times.most_decode = plan->sched.num_spec_tokens + 1;
    o->num_cpu = c->num_cpu_blocks;
    o->num_gpu = plan->sched.cache->num_blocks;
    o->max_requests = plan->sched.max_requests;
    o->num_workers = o->has_device ? 1 : c->num_workers;
    o->num_places = (uint32_t)qr_round_up_pow2(c->max_events);
    o->num_jobs = o->has_device ? NUM_JOBS : 0;
    o->backlog = o->looks_ahead ? c->backlog : 0;
    o->num_batches = plan->sched.max_batches == 0 ? 2 : plan->sched.max_batches;
    o->look_tokens = plan->sched.max_num_batched_tokens / 8;
    o->most_stores = most_stores(o);
    if (o->target_free > o->num_cpu / 2) /* more would evict one another there */
        o->target_free = o->num_cpu / 2;
    o->has_mark = true;
    o->walked_at = 0 - (uint64_t)o->target_free; /* the first walk is due */
    o->walk_first = o->walk_next = 1;
    o->has_pins |= plan->sched.max_pins > 0 || plan->sched.lookahead > 0;
    o->has_rows = !o->is_lazy && o->has_windows;
    o->deadline_ns = c->load_deadline_ns == 0 ? DEFAULT_DEADLINE_NS : c->load_deadline_ns;
    o->hooks = c->hooks;
}

static void carve_stores(quire_offload *o, qr_arena *arena)
{
    size_t words = qr_bit_words(o->num_gpu);
    size_t num_rows = o->has_rows ? o->max_requests : 0;
    o->rows = qr_arena_take(arena, qr_mul_size(num_rows, o->row_blocks), sizeof *o->rows);
    o->row_count = qr_arena_take(arena, num_rows * o->num_groups, sizeof *o->row_count);
    o->num_stored =
        qr_arena_take(arena, (size_t)o->max_requests * o->num_groups, sizeof *o->num_stored);
    o->walked = qr_arena_take(arena, o->is_lazy ? o->target_free : 0, sizeof *o->walked);
    o->next_ready = qr_arena_take(arena, o->max_requests, sizeof *o->next_ready);
    o->listed = qr_arena_take(arena, o->is_lazy ? 0 : o->max_requests, sizeof *o->listed);
    o->due = qr_arena_take(arena, o->is_lazy ? 0 : o->max_requests, sizeof *o->due);
    o->is_storing = qr_arena_take(arena, words, sizeof *o->is_storing);
    o->is_used = qr_arena_take(arena, words, sizeof *o->is_used);
    o->seen = qr_arena_take(arena, o->is_lazy ? o->num_gpu : 0, sizeof *o->seen);
    o->events = qr_arena_take(arena, o->num_places, sizeof *o->events);
    o->told_events = qr_arena_take(arena, o->num_places, sizeof *o->told_events);
    o->unsent_events = qr_arena_take(arena, o->num_places, sizeof *o->unsent_events);
}

static void carve_loads(quire_offload *o, qr_arena *arena)
{
    uint32_t n = o->max_requests;
    /* A GPU block is in one load at most, a CPU block in one store; and of each load, of each event
     * and of what is kept one batch need not be full. */
    uint64_t full = (uint64_t)o->num_gpu / QR_TRANSFER_PAIRS + o->num_cpu / QR_TRANSFER_PAIRS;
    o->num_transfers = (uint32_t)(full + n + o->num_places + 1);
    o->transfers = qr_arena_take(arena, o->num_transfers, sizeof *o->transfers);
    o->reqs = qr_arena_take(arena, n, sizeof *o->reqs);
    o->new_loads = qr_arena_take(arena, n, sizeof *o->new_loads);
    o->ended_loads = qr_arena_take(arena, n, sizeof *o->ended_loads);
    o->sending = qr_arena_take(arena, n, sizeof *o->sending);
    o->told_reqs = qr_arena_take(arena, n, sizeof *o->told_reqs);
    o->invalid_blocks = qr_arena_take(arena, o->num_gpu, sizeof *o->invalid_blocks);
}

static void carve_rest(quire_offload *o, qr_arena *arena)
{
    uint32_t scratch = o->row_blocks > QR_COPIES_IN_JOB ? o->row_blocks : QR_COPIES_IN_JOB;
    o->jobs = qr_arena_take(arena, o->num_jobs, sizeof *o->jobs);
    o->num_nodes = o->looks_ahead ? o->num_cpu / QR_NODE_BLOCKS + o->backlog : 0;
    o->nodes = qr_arena_take(arena, o->num_nodes, sizeof *o->nodes);
    o->expected = qr_arena_take(arena, o->backlog, sizeof *o->expected);
    o->queue = qr_arena_take(arena, o->backlog, sizeof *o->queue);
    o->match.blocks = qr_arena_take(arena, o->row_blocks, sizeof *o->match.blocks);
    o->meta_store_gpu = qr_arena_take(arena, o->num_cpu, sizeof *o->meta_store_gpu);
    o->meta_store_cpu = qr_arena_take(arena, o->num_cpu, sizeof *o->meta_store_cpu);
    o->meta_load_gpu = qr_arena_take(arena, o->num_gpu, sizeof *o->meta_load_gpu);
    o->meta_load_cpu = qr_arena_take(arena, o->num_gpu, sizeof *o->meta_load_cpu);
    o->meta_reqs = qr_arena_take(arena, o->max_requests, sizeof *o->meta_reqs);
    o->scratch = qr_arena_take(arena, scratch, sizeof *o->scratch);
    o->scratch2 = qr_arena_take(arena, scratch, sizeof *o->scratch2);
    o->refs = qr_arena_take(arena, (size_t)o->num_cpu + o->num_gpu, sizeof *o->refs);
    o->check_queue = qr_arena_take(arena, o->max_requests, sizeof *o->check_queue);
}

quire_offload *qr_offload_carve(qr_arena *arena, const qr_offload_plan *plan, quire_offload *o,
                                void **cpu, void **promote)
{
    set_numbers(o, plan);
    quire_offload *made = qr_arena_take(arena, 1, sizeof *made);
    carve_stores(o, arena);
    carve_loads(o, arena);
    carve_rest(o, arena);
    *cpu = qr_arena_take(arena, plan->cpu_bytes, 1);
    *promote = qr_arena_take(arena, plan->lower_bytes, 1);
    return made;
}
