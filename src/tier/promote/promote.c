#include "tier/promote/parts.h"

#include "base/arena.h"
#include "base/hooks.h"
#include "base/rules.h"

enum {
    MOST_LOADS = 32768,        /* keys on their way at one time: more are not worth the memory, */
    MOST_STORES = 16384,       /* nor the cache that looking through them takes */
    MOST_JOB_BYTES = 16 << 20, /* of one job: a few of them keep a disk or a network busy */
    MOST_ROUNDS = 16,          /* a request looks for more so often */
    DEFAULT_MAX_REQUESTS = 4096
};
static const uint64_t DEFAULT_WAIT_NS = UINT64_C(5000000000);

/* ---- reading the config ------------------------------------------------------ */

static bool read_group(qr_promote *promote, const quire_cache_config *cache, uint32_t g)
{
    const quire_layer_spec *spec = &cache->groups[g].spec;
    uint64_t size = qr_block_tokens(cache, g);
    qr_promote_group *group = &promote->groups[g];
    if (size == 0 || size > UINT32_MAX || cache->max_model_len == 0)
        return false;
    group->kind = spec->kind;
    group->block_size = (uint32_t)size;
    group->max_blocks = cache->max_model_len / group->block_size;
    group->is_full = qr_is_full_kind(spec->kind);
    if (spec->kind == QUIRE_LAYER_CHUNKED_LOCAL)
        group->chunk_tokens = spec->attention_chunk_size;
    if (spec->kind == QUIRE_LAYER_SLIDING_WINDOW || spec->kind == QUIRE_LAYER_SLIDING_WINDOW_MLA) {
        uint32_t before = spec->sliding_window > 0 ? spec->sliding_window - 1 : 0;
        group->window_blocks = before / group->block_size + (before % group->block_size != 0);
        if (cache->use_eagle == QUIRE_ON)
            group->window_blocks++;
        if (group->window_blocks == 0)
            group->window_blocks = 1;
    }
    return true;
}

static bool read_groups(qr_promote *promote, const quire_cache_config *cache)
{
    if (cache->num_groups == 0 || cache->num_groups > QR_LOWER_MAX_GROUPS || cache->groups == NULL)
        return false;
    promote->num_groups = cache->num_groups;
    promote->digest_bytes = cache->digest_bytes;
    promote->hash_size = cache->hash_block_size;
    promote->alignment = 1;
    promote->count_group = QR_NIL;
    uint32_t common = 0;
    for (uint32_t g = 0; g < promote->num_groups; g++) {
        if (!read_group(promote, cache, g))
            return false;
        const qr_promote_group *group = &promote->groups[g];
        common = (uint32_t)qr_gcd(group->block_size, common);
        uint64_t both = promote->alignment / qr_gcd(promote->alignment, group->block_size);
        both *= group->block_size;
        if (both > UINT32_MAX)
            return false;
        promote->alignment = (uint32_t)both;
        if (group->is_full && promote->count_group == QR_NIL)
            promote->count_group = g;
    }
    if (promote->hash_size == 0)
        promote->hash_size = common;
    promote->is_single = promote->num_groups == 1 && promote->groups[0].is_full;
    if (promote->count_group == QR_NIL)
        promote->count_group = 0;
    for (uint32_t g = 0; g < promote->num_groups; g++) {
        qr_promote_group *group = &promote->groups[g];
        group->key_form = (qr_key_form){.joined = group->block_size / promote->hash_size,
                                        .digest_bytes = promote->digest_bytes,
                                        .by_last = qr_rules_of(cache->profile)->keys_by_last_hash};
        if (group->key_form.joined * promote->hash_size != group->block_size)
            return false;
        group->hash_len = qr_block_key_len(group->key_form);
        if (group->hash_len > promote->hash_bytes)
            promote->hash_bytes = group->hash_len;
    }
    return true;
}

static void read_tiers(qr_promote *promote, const quire_offload_config *config)
{
    for (uint32_t t = 0; t < promote->num_tiers; t++) {
        const quire_offload_tier *from = &config->tiers[t];
        qr_promote_tier *tier = &promote->tiers[t];
        tier->tier = from->tier;
        tier->admit = from->admit;
        tier->looks_ahead = quire_tier_get_caps(from->tier)->looks_ahead != 0;
        promote->looks_ahead |= tier->looks_ahead;
        tier->is_read_only = quire_tier_get_caps(from->tier)->is_read_only != 0;
        tier->loads_unknown = quire_tier_get_caps(from->tier)->loads_unknown != 0;
        tier->deadline_ns = from->deadline_ns;
        tier->wait_ns = from->deadline_ns > 0 ? from->deadline_ns : DEFAULT_WAIT_NS;
        double unit_ns = from->bytes_per_s > 0 ? 1e9 / from->bytes_per_s : 0;
        qr_cost_init(&promote->costs.tiers[t].load, unit_ns > 0 ? (double)from->latency_ns : 0,
                     unit_ns);
        promote->costs.tiers[t].deadline_ns = (double)tier->wait_ns;
        atomic_init(&tier->counters.bytes_per_s, from->bytes_per_s > 0 ? from->bytes_per_s : 0);
        atomic_init(&tier->counters.latency_ns, promote->costs.tiers[t].load.base_ns);
    }
    qr_cost_init(&promote->costs.compute, 0, (double)config->recompute_token_ns);
    atomic_init(&promote->token_ns, (double)config->recompute_token_ns);
}

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

/* Whether it can take the CPU pool's blocks; otherwise it would refuse every single job. */
static bool is_tier_ok(const quire_offload_config *config, const quire_offload_tier *tier)
{
    if (tier->tier == NULL || tier->admit > QUIRE_ADMIT_LONG)
        return false;
    const quire_tier_caps *caps = quire_tier_get_caps(tier->tier);
    uint32_t alignment = caps->alignment > 0 ? caps->alignment : 1;
    return caps->is_simulated != 0 ||
           (config->memory != NULL && (uintptr_t)config->memory % alignment == 0 &&
            config->block_bytes > 0 && config->block_bytes % alignment == 0 &&
            config->block_bytes <= caps->max_bytes);
}

static bool read_config(qr_promote *promote, const quire_offload_config *config)
{
    memset(promote, 0, sizeof *promote);
    if (config->sched == NULL || config->num_cpu_blocks < 2 || config->num_tiers == 0 ||
        config->num_tiers > QUIRE_OFFLOAD_MAX_TIERS || config->tiers == NULL ||
        config->block_bytes > UINT32_MAX || !read_groups(promote, config->sched->cache))
        return false;
    for (uint32_t t = 0; t < config->num_tiers; t++)
        if (!is_tier_ok(config, &config->tiers[t]))
            return false;
    promote->num_tiers = config->num_tiers;
    promote->num_cpu_blocks = config->num_cpu_blocks;
    promote->rank = config->rank;
    promote->memory = config->memory;
    promote->block_bytes = config->block_bytes;
    promote->hooks = config->hooks;
    /* At most half of the CPU pool is being loaded, and no request takes more than that: the end of
     * a long prefix must not push its own beginning out, nor keep what is computed from a place. */
    uint32_t usable = config->num_cpu_blocks - 1;
    promote->max_loads = least(usable / 2 + usable % 2, MOST_LOADS);
    promote->max_loading = promote->max_loads / config->num_tiers;
    if (promote->max_loading == 0)
        promote->max_loading = 1;
    /* A tier that hangs keeps what it has: a quarter for all of them together. */
    promote->max_storing = usable / 4 / config->num_tiers;
    if (promote->max_storing == 0)
        promote->max_storing = 1;
    promote->max_stores = least(usable, MOST_STORES);
    promote->num_moves = promote->max_loads + promote->max_stores * config->num_tiers;
    promote->num_waiters = 2 * promote->max_loads;
    promote->num_records =
        config->sched->max_requests > 0 ? config->sched->max_requests : DEFAULT_MAX_REQUESTS;
    uint64_t ios =
        promote->block_bytes > 0 ? MOST_JOB_BYTES / promote->block_bytes : QR_LOWER_BATCH;
    promote->job_ios = ios == 0 ? 1 : least(ios, QR_LOWER_BATCH);
    read_tiers(promote, config);
    return true;
}

/* ---- making it --------------------------------------------------------------- */

static void carve_jobs(qr_promote *promote, qr_arena *arena)
{
    size_t num_jobs = (size_t)QR_LOWER_ALL_JOBS * promote->num_tiers;
    size_t tier_ios =
        (size_t)QR_LOWER_JOBS * promote->job_ios + (size_t)QR_LOWER_FIND_JOBS * QR_LOWER_FIND_IOS;
    promote->jobs = qr_arena_take(arena, num_jobs, sizeof *promote->jobs);
    quire_tier_io *ios = qr_arena_take(arena, tier_ios * promote->num_tiers, sizeof *ios);
    uint32_t *moves = qr_arena_take(arena, tier_ios * promote->num_tiers, sizeof *moves);
    quire_block *blocks = qr_arena_take(arena, tier_ios * promote->num_tiers, sizeof *blocks);
    if (arena->base == NULL)
        return;
    size_t at = 0;
    for (size_t i = 0; i < num_jobs; i++) {
        qr_promote_job *job = &promote->jobs[i];
        job->job.ios = ios + at;
        job->moves = moves + at;
        job->blocks = blocks + at;
        at += i % QR_LOWER_ALL_JOBS < QR_LOWER_JOBS ? promote->job_ios : QR_LOWER_FIND_IOS;
    }
}

static void carve_all(qr_promote *promote, qr_arena *arena)
{
    size_t num_blocks = 0;
    promote->moves = qr_arena_take(arena, promote->num_moves, sizeof *promote->moves);
    promote->waiters = qr_arena_take(arena, promote->num_waiters, sizeof *promote->waiters);
    promote->records = qr_arena_take(arena, promote->num_records, sizeof *promote->records);
    qr_buckets_carve(&promote->index, arena, promote->max_loads);
    if (promote->hash_bytes > QUIRE_TIER_HASH_BYTES)
        promote->long_hashes = qr_arena_take(arena, promote->num_moves, promote->hash_bytes);
    promote->blocks = qr_arena_take(arena, promote->num_cpu_blocks, sizeof *promote->blocks);
    promote->has_past =
        qr_arena_take(arena, qr_bit_words(promote->num_cpu_blocks), sizeof *promote->has_past);
    promote->contents = qr_arena_take(arena, promote->num_cpu_blocks, sizeof *promote->contents);
    for (uint32_t g = 0; g < promote->num_groups; g++) {
        promote->groups[g].sources = qr_arena_take(arena, promote->groups[g].max_blocks, 1);
        num_blocks = qr_add_size(num_blocks, promote->groups[g].max_blocks);
    }
    promote->run = qr_arena_take(arena, num_blocks, 1);
    promote->expected = qr_arena_take(arena, promote->groups[promote->count_group].max_blocks,
                                      sizeof *promote->expected);
    promote->free_list = qr_arena_take(arena, promote->job_ios, sizeof *promote->free_list);
    promote->hash_scratch = qr_arena_take(arena, promote->job_ios, promote->hash_bytes);
    carve_jobs(promote, arena);
}

size_t qr_promote_bytes(const quire_offload_config *config)
{
    qr_promote promote;
    qr_arena arena = qr_arena_plan();
    if (!read_config(&promote, config))
        return 0;
    qr_arena_take(&arena, 1, sizeof promote);
    carve_all(&promote, &arena);
    return arena.used;
}

qr_promote *qr_promote_create_in(void *memory, const quire_offload_config *config, quire_cache *cpu)
{
    uint64_t secret[2];
    size_t bytes = qr_promote_bytes(config);
    if (bytes == 0 || bytes == SIZE_MAX || memory == NULL || cpu == NULL ||
        qr_random_bytes(&config->hooks, secret, sizeof secret) != 0)
        return NULL;
    qr_arena arena = qr_arena_over(memory, bytes);
    memset(memory, 0, bytes);
    qr_promote *promote = qr_arena_take(&arena, 1, sizeof *promote);
    read_config(promote, config);
    if (quire_cache_get_counts(cpu).hash_block_size != promote->hash_size)
        return NULL;
    carve_all(promote, &arena);
    promote->pool = quire_cache_get_pool(cpu);
    qr_share_init(&promote->share, config, promote->pool);
    qr_buckets_init(&promote->index, promote->num_moves, secret);
    qr_promote_moves_init(promote);
    qr_promote_jobs_init(promote);
    return promote;
}

void qr_promote_set_room(qr_promote *promote, void (*make_room)(void *user, uint32_t num_blocks),
                         void *user)
{
    promote->make_room = make_room;
    promote->room_user = user;
}

/* ---- requests that ask ------------------------------------------------------- */

/* Its record, NULL for a request that the scheduler cannot have. */
static qr_record *record_of(qr_promote *promote, quire_req req)
{
    uint32_t index = quire_req_index(req);
    if (req == 0 || index >= promote->num_records)
        return NULL;
    qr_record *r = &promote->records[index];
    if (r->req != req) {
        qr_promote_plan_unexpect(promote, r);
        *r = (qr_record){.req = req, .epoch = r->epoch + 1, .limit = UINT32_MAX};
    }
    return r;
}

/* It waits for nothing any more; what is on the way for it is not its own. */
static bool stop_waiting(qr_record *r, qr_ask_state state)
{
    r->epoch++;
    r->pending = 0;
    r->state = (uint8_t)state;
    return false;
}

/* It is not tried again, also not after a preemption. */
static bool give_up(qr_record *r, const qr_promote_request *request)
{
    if (request->num_found < r->limit)
        r->limit = request->num_found;
    return stop_waiting(r, QR_ASK_DONE);
}

static void set_deadline(qr_promote *promote, qr_record *r)
{
    uint64_t most = 0;
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        if ((r->tiers >> t & 1) != 0 && promote->tiers[t].wait_ns > most)
            most = promote->tiers[t].wait_ns;
    r->asked_ns = qr_now_ns(&promote->hooks);
    r->until_ns = r->asked_ns + most;
}

/* What a request waits for costs what it waits: with the steps that pass until somebody looks. */
static void learn_wait(qr_promote *promote, const qr_record *r)
{
    if (!qr_is_pow2(r->load_tiers) || !r->is_urgent || r->bytes <= 0)
        return;
    uint32_t t = (uint32_t)__builtin_ctz(r->load_tiers);
    qr_cost *cost = &promote->costs.tiers[t].load;
    qr_promote_counters *counters = &promote->tiers[t].counters;
    qr_cost_learn(cost, r->bytes, (double)(qr_now_ns(&promote->hooks) - r->start_ns));
    atomic_store_explicit(&counters->bytes_per_s, cost->unit_ns > 0 ? 1e9 / cost->unit_ns : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&counters->latency_ns, cost->base_ns, memory_order_relaxed);
}

/* With several tiers nobody knows which of them it was that took so long. */
static void start_clock(qr_promote *promote, qr_record *r)
{
    r->start_ns = qr_now_ns(&promote->hooks);
    r->start_limit = r->limit;
    r->bytes = 0;
    if (!qr_is_pow2(r->tiers))
        return;
    const qr_promote_tier *tier = &promote->tiers[__builtin_ctz(r->tiers)];
    uint32_t blocks =
        tier->queues[QR_QUEUE_LOAD].count + tier->queues[QR_QUEUE_FIND].count + tier->loads_on_time;
    r->bytes = (double)blocks * (double)promote->block_bytes;
}

static bool begin_round(qr_promote *promote, const qr_promote_request *request, qr_record *r)
{
    if (r->rounds >= MOST_ROUNDS)
        return stop_waiting(r, QR_ASK_DONE);
    if (r->rounds++ == 0 && !r->is_expected)
        qr_promote_plan_expect(promote, request);
    r->tiers = 0;
    r->load_tiers = 0;
    r->skipped_tiers = 0;
    if (qr_promote_plan_fetch(promote, request, quire_req_index(request->req)) == 0)
        return stop_waiting(r, QR_ASK_DONE);
    if (r->is_urgent && r->rounds == 1)
        set_deadline(promote, r);
    r->state = QR_ASK_WAITING;
    start_clock(promote, r);
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        if ((r->tiers >> t & 1) != 0)
            qr_promote_jobs_pump(promote, t);
    return true;
}

/* What was begun ahead of time is needed now: whether it is worth waiting for. */
static bool become_urgent(qr_promote *promote, const qr_promote_request *request, qr_record *r)
{
    uint32_t tokens = promote->groups[promote->count_group].block_size;
    r->is_urgent = true;
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        if ((r->tiers >> t & 1) != 0 &&
            !qr_costs_pays(&promote->costs, t, (double)r->pending * (double)promote->block_bytes,
                           (double)r->pending * tokens))
            return give_up(r, request);
    set_deadline(promote, r);
    qr_promote_plan_hurry(promote, request);
    start_clock(promote, r);
    return true;
}

bool qr_promote_ask(qr_promote *promote, const qr_promote_request *request)
{
    qr_record *r = record_of(promote, request->req);
    if (r == NULL)
        return false;
    if (r->state == QR_ASK_DONE && r->is_urgent)
        return false;
    bool is_waiting = r->state == QR_ASK_WAITING;
    bool is_late = r->is_urgent && r->rounds > 0 && qr_now_ns(&promote->hooks) > r->until_ns;
    if (is_waiting && (is_late || (r->pending == 0 && r->limit == r->start_limit)))
        learn_wait(promote, r);
    if (is_late)
        return give_up(r, request);
    if (is_waiting && r->pending > 0)
        return r->is_urgent || become_urgent(promote, request, r);
    if (!r->is_urgent) { /* what came ahead of time may be gone again */
        r->is_urgent = true;
        r->rounds = 0;
    }
    return begin_round(promote, request, r);
}

void qr_promote_prefetch(qr_promote *promote, const qr_promote_request *request)
{
    qr_record *r = record_of(promote, request->req);
    if (r != NULL && r->state == QR_ASK_IDLE)
        begin_round(promote, request, r);
}

bool qr_promote_needs_all(const qr_promote *promote)
{
    return !promote->is_single || promote->looks_ahead;
}

void qr_promote_forget(qr_promote *promote, quire_req req)
{
    uint32_t index = quire_req_index(req);
    if (req == 0 || index >= promote->num_records || promote->records[index].req != req)
        return;
    qr_record *r = &promote->records[index];
    qr_promote_plan_unexpect(promote, r);
    stop_waiting(r, QR_ASK_IDLE);
    r->is_urgent = false;
    r->rounds = 0;
    r->num_taken = 0;
}

/* ---- the rest ---------------------------------------------------------------- */

static bool has_jobs(const qr_promote_tier *tier)
{
    return tier->num_on_time + tier->num_late > 0;
}

static void set_next_identity(qr_promote *promote)
{
    promote->has_next_identity = false;
    if (qr_promote_set_identity(promote, promote->next_identity) != QUIRE_OK)
        qr_log(&promote->hooks, QUIRE_LOG_ERROR,
               "a tier has not got its new identity, and is not used: %s", quire_refusal());
}

void qr_promote_poll(qr_promote *promote)
{
    for (uint32_t t = 0; t < promote->num_tiers; t++) {
        if (has_jobs(&promote->tiers[t]))
            qr_promote_jobs_poll(promote, t);
        if (qr_promote_is_waiting(&promote->tiers[t]))
            qr_promote_jobs_pump(promote, t);
    }
    if (promote->has_next_identity && qr_promote_is_idle(promote))
        set_next_identity(promote);
}

void qr_promote_learn(qr_promote *promote, uint32_t num_tokens, uint64_t ns)
{
    qr_cost_learn(&promote->costs.compute, num_tokens, (double)ns);
    atomic_store_explicit(&promote->token_ns, promote->costs.compute.unit_ns, memory_order_relaxed);
}

/* Whatever is on the way, and whatever tiers have, does not count any more. */
static void forget_all(qr_promote *promote)
{
    for (uint32_t i = 0; i < promote->num_records; i++)
        if (promote->records[i].state != QR_ASK_IDLE)
            stop_waiting(&promote->records[i], QR_ASK_IDLE);
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        qr_promote_jobs_drop(promote, t);
    for (uint32_t i = 0; i < promote->num_cpu_blocks; i++)
        promote->blocks[i].origin = promote->blocks[i].offered = 0;
}

bool qr_promote_can_reset(const qr_promote *promote)
{
    for (uint32_t t = 0; t < promote->num_tiers; t++) {
        const quire_tier_caps *caps = quire_tier_get_caps(promote->tiers[t].tier);
        if (caps->is_shared != 0 && caps->is_persistent != 0)
            return false;
    }
    return true;
}

int qr_promote_reset(qr_promote *promote)
{
    int status = QUIRE_OK;
    if (!qr_promote_can_reset(promote))
        return QUIRE_E_IDENTITY;
    forget_all(promote);
    for (uint32_t t = 0; t < promote->num_tiers; t++) {
        int err = quire_tier_reset(promote->tiers[t].tier);
        status = status == QUIRE_OK ? err : status;
    }
    return status;
}

int qr_promote_set_identity(qr_promote *promote, const unsigned char *fingerprint)
{
    int status = QUIRE_OK;
    if (!qr_promote_is_idle(promote))
        return QUIRE_BUSY;
    forget_all(promote);
    for (uint32_t t = 0; t < promote->num_tiers; t++) {
        int err = quire_tier_set_identity(promote->tiers[t].tier, fingerprint);
        promote->tiers[t].is_void = err != QUIRE_OK;
        status = status == QUIRE_OK ? err : status;
    }
    return status;
}

int qr_promote_set_identity_soon(qr_promote *promote, const unsigned char *fingerprint)
{
    if (qr_promote_is_idle(promote)) {
        promote->has_next_identity = false;
        return qr_promote_set_identity(promote, fingerprint);
    }
    forget_all(promote);
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        promote->tiers[t].is_void = true;
    memcpy(promote->next_identity, fingerprint, QUIRE_FINGERPRINT_BYTES);
    promote->has_next_identity = true;
    return QUIRE_OK;
}

bool qr_promote_has_pending(const qr_promote *promote)
{
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        if (promote->tiers[t].num_on_time > 0 || qr_promote_is_waiting(&promote->tiers[t]))
            return true;
    return false;
}

bool qr_promote_is_idle(const qr_promote *promote)
{
    for (uint32_t t = 0; t < promote->num_tiers; t++)
        if (has_jobs(&promote->tiers[t]))
            return false;
    return true;
}

void qr_promote_add_stats(const qr_promote *promote, quire_offload_stats *stats)
{
    for (uint32_t t = 0; t < promote->num_tiers; t++) {
        const qr_promote_counters *c = &promote->tiers[t].counters;
#define QR_X(name) stats->tiers[t].name += qr_count_get(&c->name);
        QR_PROMOTE_COUNTS(QR_X)
#undef QR_X
        stats->tiers[t].bytes_per_s = atomic_load_explicit(&c->bytes_per_s, memory_order_relaxed);
        stats->tiers[t].latency_ns = atomic_load_explicit(&c->latency_ns, memory_order_relaxed);
    }
    stats->recompute_token_ns = atomic_load_explicit(&promote->token_ns, memory_order_relaxed);
}

static uint64_t count_failed(const quire_tier_stats *stats)
{
    const uint64_t *loads = stats->keys[QUIRE_TIER_LOAD];
    const uint64_t *stores = stats->keys[QUIRE_TIER_STORE];
    return loads[QUIRE_TIER_WRONG] + loads[QUIRE_TIER_FAILED] + stores[QUIRE_TIER_WRONG] +
           stores[QUIRE_TIER_FAILED];
}

/* Where the tier does not say: those of its blocks. */
static uint64_t used_bytes(const qr_promote *promote, const quire_tier_stats *stats)
{
    uint64_t num_blocks = stats->usage.cached + stats->usage.active;
    if (stats->space.used_bytes > 0)
        return stats->space.used_bytes;
    bool is_known = stats->usage.total > 0 && promote->block_bytes > 0;
    return is_known ? num_blocks * promote->block_bytes : QUIRE_UNKNOWN_BYTES;
}

uint32_t qr_promote_get_tiers(const qr_promote *promote, quire_tier_usage *tiers, uint32_t capacity)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < promote->num_tiers && n < capacity; t++) {
        const qr_promote_tier *tier = &promote->tiers[t];
        quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
        (void)quire_tier_get_stats(tier->tier, &stats);
        tiers[n++] = (quire_tier_usage){
            .name = quire_tier_label(tier->tier),
            .medium = quire_tier_medium(tier->tier),
            .blocks = stats.usage,
            .stored_blocks = stats.keys[QUIRE_TIER_STORE][QUIRE_TIER_DONE],
            .loaded_blocks = stats.keys[QUIRE_TIER_LOAD][QUIRE_TIER_DONE],
            .hit_tokens = qr_count_get(&tier->counters.hit_tokens),
            .stored_bytes = stats.bytes_stored,
            .loaded_bytes = stats.bytes_loaded,
            .failed_blocks = count_failed(&stats),
            .used_bytes = used_bytes(promote, &stats),
            .capacity_bytes =
                stats.space.capacity_bytes > 0 ? stats.space.capacity_bytes : QUIRE_UNKNOWN_BYTES};
    }
    return n;
}
