#include "tier/worker/worker.h"

#include "base/config.h"
#include "base/hooks.h"
#include "base/refuse.h"

enum { DEFAULT_WAITING_STORES = 64 };
#define MOST_STORE_BYTES (UINT64_C(1) << 30)

/* ---- config ---------------------------------------------------------------- */

static int check_tier(const quire_worker_config *c, uint32_t i)
{
    const quire_worker_tier *tier = &c->tiers[i];
    if (tier->tier == NULL || tier->unused != 0)
        return qr_refuse("tiers[%u]: tier is NULL, or unused is not 0", i);
    const quire_tier_caps *caps = quire_tier_get_caps(tier->tier);
    uint32_t alignment = caps->alignment > 0 ? caps->alignment : 1;
    if (caps->is_simulated != 0)
        return QUIRE_OK;
    if (c->block_bytes > caps->max_bytes || c->block_bytes % alignment != 0 ||
        (uintptr_t)c->memory % alignment != 0)
        return qr_refuse("tiers[%u]: memory and block_bytes (%llu) must be multiples of %u, and "
                         "block_bytes at most %u",
                         i, (unsigned long long)c->block_bytes, alignment, caps->max_bytes);
    return QUIRE_OK;
}

static int read_worker_config(quire_worker_config *c, const quire_worker_config *callers)
{
    int err = qr_refuse_reading(c, sizeof *c, callers, "quire_worker_config");
    if (err != QUIRE_OK)
        return err;
    c->num_ranks = (uint32_t)qr_or_default(c->num_ranks, 1);
    const qr_field fields[] = {QR_FIELD(c, num_ranks, 1, QUIRE_TRANSFER_MAX_RANKS),
                               {"rank", c->rank, 0, c->num_ranks - 1},
                               QR_FIELD(c, stores, 0, QUIRE_OFF),
                               QR_FIELD(c, block_bytes, 1, UINT32_MAX),
                               QR_FIELD(c, num_slots, 2, QUIRE_MAX_BLOCKS),
                               QR_FIELD(c, num_tiers, 0, QUIRE_TRANSFER_MAX_TIERS),
                               QR_FIELD(c, tells_gone, 0, QUIRE_OFF),
                               QR_FIELD(c, run_inline, 0, QUIRE_OFF)};
    err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    if (err != QUIRE_OK)
        return err;
    if (c->device.ops == NULL || c->memory == NULL)
        return qr_refuse("device.ops or memory is NULL");
    if (c->num_tiers > 0 && c->tiers == NULL)
        return qr_refuse("tiers is NULL, but num_tiers is %u", c->num_tiers);
    for (uint32_t i = 0; err == QUIRE_OK && i < c->num_tiers; i++)
        err = check_tier(c, i);
    return err;
}

/* ---- making ---------------------------------------------------------------- */

static size_t report_capacity(uint32_t num_jobs, uint32_t num_gone)
{
    return QR_REPORT_HEAD + (size_t)num_gone * QR_REPORT_GONE +
           (size_t)QR_PLAN_COPY_JOBS * (QR_REPORT_RESULT + 8) +
           (size_t)num_jobs * (QR_REPORT_RESULT + QR_REPORT_MOST_STATUSES);
}

static quire_worker *carve_worker(qr_arena *arena, const quire_worker_config *c, quire_worker *w)
{
    quire_worker *made = qr_arena_take(arena, 1, sizeof *made);
    memset(w, 0, sizeof *w);
    w->num_jobs = c->num_tiers * QR_PLAN_TIER_JOBS;
    w->copies = qr_arena_take(arena, QR_PLAN_COPY_JOBS, sizeof *w->copies);
    w->ended = qr_arena_take(arena, QR_PLAN_COPY_JOBS, sizeof *w->ended);
    w->jobs = qr_arena_take(arena, w->num_jobs, sizeof *w->jobs);
    w->job_ids = qr_arena_take(arena, w->num_jobs, sizeof *w->job_ids);
    w->seen = qr_arena_take(arena, (size_t)QR_PLAN_COPY_JOBS + w->num_jobs, sizeof *w->seen);
    w->commands = qr_arena_take(arena, QR_WORKER_COMMANDS, sizeof *w->commands);
    w->free_commands = qr_arena_take(arena, QR_WORKER_COMMANDS, sizeof *w->free_commands);
    w->crcs = qr_arena_take(arena, c->num_slots, sizeof *w->crcs);
    w->has_bytes = qr_arena_take(arena, c->num_slots, sizeof *w->has_bytes);
    qr_spsc_carve(&w->inbox, arena, w->num_jobs + QR_WORKER_COMMANDS);
    qr_spsc_carve(&w->outbox, arena, w->num_jobs + 1);
    qr_spsc_carve(&w->freed, arena, QR_WORKER_COMMANDS);
    uint32_t num_gone = c->tells_gone == QUIRE_ON ? QR_WORKER_GONE : 1;
    w->gone = qr_arena_take(arena, num_gone, sizeof *w->gone);
    w->taken = qr_arena_take(arena, num_gone, sizeof *w->taken);
    qr_spsc_carve(&w->gone_out, arena, num_gone);
    qr_spsc_carve(&w->gone_free, arena, num_gone);
    w->writer.capacity = report_capacity(w->num_jobs, num_gone + QUIRE_TRANSFER_MAX_TIERS);
    w->writer.bytes = qr_arena_take(arena, w->writer.capacity, 1);
    return made;
}

static void init_tiers(quire_worker *w, const quire_worker_config *c)
{
    uint64_t quarter = c->num_slots / 4 * c->block_bytes;
    uint64_t usual = quarter < MOST_STORE_BYTES ? quarter : MOST_STORE_BYTES;
    w->num_tiers = c->num_tiers;
    for (uint32_t i = 0; i < c->num_tiers; i++)
        w->tiers[i] =
            (qr_worker_tier){.tier = c->tiers[i].tier,
                             .most_store_bytes = qr_or_default(c->tiers[i].store_bytes, usual),
                             .most_waiting_stores = (uint32_t)qr_or_default(
                                 c->tiers[i].max_waiting_stores, DEFAULT_WAITING_STORES),
                             .loads = QR_CHAIN_EMPTY,
                             .stores = QR_CHAIN_EMPTY};
}

/* The memory is zeroed. */
static int init_worker(quire_worker *w, const quire_worker_config *c)
{
    w->wake_fd = -1;
    w->rank = c->rank;
    w->num_ranks = c->num_ranks;
    w->key_rank = c->key_rank;
    w->stores = c->stores != QUIRE_OFF;
    w->is_inline = c->run_inline == QUIRE_ON;
    w->tells_gone = c->tells_gone == QUIRE_ON;
    w->device = c->device;
    w->memory = c->memory;
    w->block_bytes = c->block_bytes;
    w->num_slots = c->num_slots;
    w->hooks = c->hooks;
    for (uint32_t way = 0; way < 2; way++)
        w->first_in[way] = w->last_in[way] = QR_NIL;
    for (uint32_t i = 0; i < QR_WORKER_COMMANDS; i++)
        w->free_commands[w->num_free_commands++] = i;
    init_tiers(w, c);
    qr_fork_guard_init(&w->guard);
    if (qr_random_bytes(&c->hooks, &w->id, sizeof w->id) != 0)
        return qr_fail(QUIRE_E_RANDOM, "%s", quire_strerror(QUIRE_E_RANDOM));
    w->id |= 1; /* 0: none */
    qr_worker_watch_tiers(w);
    if (!w->is_inline && qr_worker_start(w) != QUIRE_OK)
        return qr_fail(QUIRE_E_SYSTEM,
                       "a worker cannot create a thread or a descriptor; raise the limits of "
                       "processes (ulimit -u) and open files (ulimit -n)");
    w->magic = QR_WORKER_MAGIC;
    return QUIRE_OK;
}

QUIRE_API int quire_worker_create(const quire_worker_config *callers,
                                  const quire_allocator *allocator, quire_worker **worker)
{
    quire_worker_config config;
    quire_worker parts;
    qr_arena plan = qr_arena_plan();
    qr_arena arena;
    qr_owner owner;
    if (worker == NULL)
        return QUIRE_E_ARGUMENT;
    int err = read_worker_config(&config, callers);
    if (err != QUIRE_OK)
        return err;
    (void)carve_worker(&plan, &config, &parts);
    err = qr_owner_begin_zeroed(&owner, allocator, &plan, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_worker *made = carve_worker(&arena, &config, &parts);
    *made = parts;
    made->owner = owner;
    err = init_worker(made, &config);
    if (err != QUIRE_OK) {
        qr_worker_stop(made);
        qr_worker_unwatch_tiers(made);
        qr_owner_release(&owner);
        return err;
    }
    *worker = made;
    return QUIRE_OK;
}

static int check_worker(const quire_worker *w)
{
    if (w == NULL || w->magic != QR_WORKER_MAGIC)
        return QUIRE_E_ARGUMENT;
    return qr_fork_guard_is_child(&w->guard) ? QUIRE_E_SYSTEM : QUIRE_OK;
}

/* In a child there is no thread, and the descriptor is the parent's too. */
QUIRE_API int quire_worker_destroy(quire_worker *worker)
{
    if (worker == NULL)
        return QUIRE_OK;
    int err = check_worker(worker);
    if (err == QUIRE_E_ARGUMENT)
        return err;
    if (err == QUIRE_OK && qr_count_get(&worker->counters.jobs_in_flight) > 0 &&
        !worker->is_abandoned)
        return QUIRE_BUSY;
    if (err == QUIRE_OK)
        qr_worker_stop(worker);
    qr_worker_unwatch_tiers(worker);
    worker->magic = 0;
    qr_owner_release(&worker->owner);
    return QUIRE_OK;
}

QUIRE_API int quire_worker_abandon(quire_worker *worker)
{
    int err = check_worker(worker);
    if (err != QUIRE_OK)
        return err;
    qr_worker_stop(worker);
    worker->is_abandoned = true;
    return QUIRE_OK;
}

/* ---- a step ---------------------------------------------------------------- */

QUIRE_API int quire_worker_submit(quire_worker *worker, quire_bytes bytes)
{
    qr_plan plan;
    int err = check_worker(worker);
    if (err != QUIRE_OK || worker->is_abandoned)
        return err != QUIRE_OK ? err : QUIRE_E_ARGUMENT;
    err = qr_worker_check_plan(worker, bytes, &plan);
    if (err != QUIRE_OK) {
        qr_count_add(&worker->counters.refused_plans, err != QUIRE_BUSY);
        return err;
    }
    qr_worker_take_plan(worker, &plan);
    qr_count_add(&worker->counters.plans, 1);
    if (worker->is_inline)
        qr_worker_turn(worker);
    else
        qr_worker_wake(worker);
    return QUIRE_OK;
}

static void count_keys(quire_worker *w, const qr_worker_job *job)
{
    qr_worker_counters *c = &w->counters;
    bool is_load = job->kind == QR_PLAN_LOAD;
    for (uint32_t i = 0; i < job->num_keys; i++) {
        switch (job->statuses[i]) {
        case QUIRE_TIER_DONE:
            qr_count_add(is_load ? &c->loaded_keys : &c->stored_keys, 1);
            break;
        case QUIRE_TIER_MISSING:
            qr_count_add(&c->missing_keys, 1);
            break;
        case QUIRE_TIER_WRONG:
            qr_count_add(&c->corrupt_keys, 1);
            break;
        case QR_REPORT_LATE:
            qr_count_add(&c->late_keys, 1);
            break;
        case QUIRE_TIER_FAILED:
            qr_count_add(&c->failed_keys, 1);
            break;
        default:
            qr_count_add(&c->dropped_keys, is_load ? 0 : 1);
        }
    }
}

/* There is room for all jobs that there can be. */
static void report_copies(quire_worker *w, uint64_t now_ns)
{
    for (uint32_t i = 0; i < w->num_ended; i++) {
        qr_worker_copies *c = &w->copies[w->ended[i]];
        bool is_good = c->job.status == QUIRE_OK;
        bool is_load = c->job.op == QUIRE_DEVICE_LOAD;
        uint8_t status = is_good ? QUIRE_TIER_DONE : QUIRE_TIER_FAILED;
        qr_report_result result = {
            .id = c->id, .count = 1, .ns = now_ns - c->start_ns, .statuses = &status};
        (void)qr_report_add(&w->writer, &result);
        qr_count_add(!is_good  ? &w->counters.failed_copies
                     : is_load ? &w->counters.copies_in
                               : &w->counters.copies_out,
                     c->job.num_copies);
        c->id = 0;
    }
    w->num_ended = 0;
}

static void report_jobs(quire_worker *w, uint64_t now_ns)
{
    uint32_t place;
    while (qr_spsc_take(&w->outbox, &place)) {
        const qr_worker_job *job = &w->jobs[place];
        qr_report_result result = {.id = job->id,
                                   .count = job->num_keys,
                                   .ns = now_ns - job->start_ns,
                                   .statuses = job->statuses};
        (void)qr_report_add(&w->writer, &result);
        count_keys(w, job);
        w->job_ids[place] = 0;
    }
}

QUIRE_API int quire_worker_poll(quire_worker *worker, quire_bytes *report)
{
    int err = check_worker(worker);
    if (err != QUIRE_OK || report == NULL || worker->is_abandoned)
        return err != QUIRE_OK ? err : QUIRE_E_ARGUMENT;
    *report = (quire_bytes){0};
    if (worker->is_inline)
        qr_worker_turn(worker);
    qr_worker_poll_copies(worker);
    if (worker->session != 0)
        qr_worker_take_gone(worker);
    uint64_t now_ns = qr_now_ns(&worker->hooks);
    qr_report_begin(&worker->writer);
    report_copies(worker, now_ns);
    report_jobs(worker, now_ns);
    qr_worker_report_gone(worker);
    uint32_t n = worker->writer.num_results;
    qr_count_add(&worker->counters.jobs_in_flight, UINT64_C(0) - n);
    if (n == 0 && worker->writer.num_gone == 0 && !worker->is_new)
        return QUIRE_OK;
    qr_report_head head = {.session = worker->session,
                           .sequence = ++worker->num_reports,
                           .worker = worker->id,
                           .first_plan = worker->first_plan,
                           .rank = worker->rank,
                           .num_ranks = worker->num_ranks};
    worker->is_new = false;
    *report = qr_report_finish(&worker->writer, &head);
    qr_count_add(&worker->counters.reports, 1);
    return QUIRE_OK;
}

/* ---- looking --------------------------------------------------------------- */

QUIRE_API int quire_worker_has_pending(const quire_worker *worker)
{
    return check_worker(worker) == QUIRE_OK && qr_count_get(&worker->counters.jobs_in_flight) > 0;
}

QUIRE_API int quire_worker_get_stats(const quire_worker *worker, quire_worker_stats *stats)
{
    if (worker == NULL || worker->magic != QR_WORKER_MAGIC)
        return QUIRE_E_ARGUMENT;
    const qr_worker_counters *c = &worker->counters;
    quire_worker_stats own = {.plans = qr_count_get(&c->plans),
                              .refused_plans = qr_count_get(&c->refused_plans),
                              .reports = qr_count_get(&c->reports),
                              .copies_in = qr_count_get(&c->copies_in),
                              .copies_out = qr_count_get(&c->copies_out),
                              .failed_copies = qr_count_get(&c->failed_copies),
                              .loaded_keys = qr_count_get(&c->loaded_keys),
                              .stored_keys = qr_count_get(&c->stored_keys),
                              .missing_keys = qr_count_get(&c->missing_keys),
                              .corrupt_keys = qr_count_get(&c->corrupt_keys),
                              .late_keys = qr_count_get(&c->late_keys),
                              .failed_keys = qr_count_get(&c->failed_keys),
                              .dropped_keys = qr_count_get(&c->dropped_keys),
                              .jobs_in_flight = qr_count_get(&c->jobs_in_flight)};
    return qr_struct_out(stats, &own, sizeof own);
}
