#include "tier/core/tier.h"

#include "base/count.h"
#include "base/hooks.h"

#include <time.h>

/* ---- counting -------------------------------------------------------------- */

static void count_ios(quire_tier *tier, const quire_tier_job *job)
{
    uint32_t counts[QR_TIER_STATUSES] = {0};
    uint64_t bytes_done = 0;
    for (uint32_t i = 0; i < job->num_ios; i++) {
        const quire_tier_io *io = &job->ios[i];
        counts[io->status & (QR_TIER_STATUSES - 1)]++;
        bytes_done += io->status == QUIRE_TIER_DONE ? io->bytes : 0;
    }
    for (uint32_t status = 0; status < QR_TIER_STATUSES; status++)
        if (counts[status] > 0)
            qr_count_add(&tier->counts.keys[job->op][status], counts[status]);
    if (job->op == QUIRE_TIER_LOAD)
        qr_count_add(&tier->counts.bytes_loaded, bytes_done);
    else if (job->op == QUIRE_TIER_STORE)
        qr_count_add(&tier->counts.bytes_stored, bytes_done);
}

/* ---- the breaker ----------------------------------------------------------- */

static bool is_let_through(quire_tier *tier, uint64_t now_ns)
{
    if (!qr_breaker_let(&tier->breaker, now_ns))
        return false;
    atomic_store_explicit(&tier->runner.epoch, tier->breaker.epoch, memory_order_relaxed);
    qr_count_set(&tier->counts.health, tier->breaker.health);
    return true;
}

static void tell_breaker(quire_tier *tier, uint32_t epoch, qr_outcome outcome, uint64_t now_ns)
{
    quire_tier_health before = tier->breaker.health;
    qr_breaker_take(&tier->breaker, epoch, outcome, now_ns);
    quire_tier_health after = tier->breaker.health;
    if (before == after)
        return;
    atomic_store_explicit(&tier->runner.epoch, tier->breaker.epoch, memory_order_relaxed);
    qr_count_set(&tier->counts.health, after);
    qr_count_set(&tier->counts.breaker_opened, tier->breaker.num_opened);
    if (after == QUIRE_TIER_CLOSED)
        qr_log(&tier->hooks, QUIRE_LOG_INFO, "tier %s works again", tier->label);
    else
        qr_log(&tier->hooks, QUIRE_LOG_WARNING,
               "tier %s failed or is late: breaker open for %.1f s; blocks are computed instead",
               tier->label, (double)(tier->breaker.until_ns - now_ns) * 1e-9);
}

/* ---- submitting ------------------------------------------------------------ */

static int check_call(const quire_tier *tier, bool has_arguments)
{
    if (tier == NULL || !has_arguments)
        return QUIRE_E_ARGUMENT;
    return qr_fork_guard_is_child(&tier->guard) ? QUIRE_E_SYSTEM : QUIRE_OK;
}

static int check_io(const quire_tier *tier, const quire_tier_io *io)
{
    const quire_tier_caps *caps = &tier->runner.caps;
    if (caps->is_simulated != 0)
        return QUIRE_OK;
    if (io->memory == NULL)
        return QUIRE_E_ARGUMENT;
    bool is_aligned = ((uintptr_t)io->memory | io->bytes) % caps->alignment == 0;
    return io->bytes > 0 && io->bytes <= caps->max_bytes && is_aligned ? QUIRE_OK : QUIRE_E_RANGE;
}

static int check_job(const quire_tier *tier, const quire_tier_job *job, uint64_t *bytes)
{
    *bytes = 0;
    if (job->num_ios == 0 || job->ios == NULL || job->state != 0 || job->op < QUIRE_TIER_LOAD ||
        job->op > QUIRE_TIER_FIND)
        return QUIRE_E_ARGUMENT;
    if (job->op != QUIRE_TIER_LOAD && job->op != QUIRE_TIER_STORE)
        return QUIRE_OK;
    for (uint32_t i = 0; i < job->num_ios; i++) {
        int status = check_io(tier, &job->ios[i]);
        if (status != QUIRE_OK)
            return status;
        *bytes += job->ios[i].bytes;
    }
    return QUIRE_OK;
}

static bool has_room(const quire_tier *tier, uint64_t bytes)
{
    uint64_t in_flight = qr_count_get(&tier->counts.bytes_in_flight);
    return tier->num_free > 0 && (in_flight == 0 || in_flight + bytes <= tier->max_bytes);
}

static void fill_flight(quire_tier *tier, uint32_t slot, quire_tier_job *job, uint64_t bytes)
{
    qr_flight *f = &tier->runner.flights[slot];
    f->job = job;
    f->ios = job->ios;
    f->num_ios = job->num_ios;
    f->epoch = tier->breaker.epoch;
    f->bytes = bytes;
    f->is_late = false;
    f->num_left = 0;
    f->has_answered = false;
    f->num_failed = 0;
    atomic_store_explicit(&f->is_cancelled, false, memory_order_relaxed);
}

/* The tier's own part may know some answers already; returns how many ios are left for the
 * thread. */
static uint32_t prepare_job(quire_tier *tier, quire_tier_job *job)
{
    uint32_t num_left = 0;
    for (uint32_t i = 0; i < job->num_ios; i++)
        job->ios[i].status = QUIRE_TIER_PENDING;
    if (tier->runner.ops.prepare == NULL)
        return job->num_ios;
    tier->runner.ops.prepare(tier->runner.self, job);
    for (uint32_t i = 0; i < job->num_ios; i++)
        num_left += job->ios[i].status == QUIRE_TIER_PENDING ? 1 : 0;
    return num_left;
}

static void count_submitted(quire_tier *tier, const quire_tier_job *job, uint64_t bytes)
{
    qr_count_add(&tier->counts.jobs, 1);
    qr_count_add(&tier->counts.jobs_in_flight, 1);
    qr_count_add(&tier->counts.bytes_in_flight, bytes);
    if (job->due_ns < tier->earliest_due_ns)
        tier->earliest_due_ns = job->due_ns;
}

QUIRE_API int quire_tier_submit(quire_tier *tier, quire_tier_job *job)
{
    uint64_t bytes;
    int status = check_call(tier, job != NULL);
    if (status == QUIRE_OK)
        status = check_job(tier, job, &bytes);
    if (status != QUIRE_OK)
        return status;
    if (tier->is_closing)
        return QUIRE_BUSY;
    if (!has_room(tier, bytes))
        return QUIRE_FULL;
    uint64_t now_ns = qr_now_ns(&tier->hooks);
    if (!is_let_through(tier, now_ns))
        return QUIRE_BUSY;

    uint32_t slot = tier->free_slots[--tier->num_free];
    job->state = slot + 1;
    job->submitted_ns = now_ns;
    job->ended_ns = now_ns;
    job->due_ns = job->deadline_ns != 0 ? job->deadline_ns : now_ns + tier->deadline_ns;
    fill_flight(tier, slot, job, bytes);
    count_submitted(tier, job, bytes);
    uint32_t num_left = prepare_job(tier, job);
    if (num_left == 0) {
        qr_spsc_put(&tier->ready, slot);
    } else {
        tier->runner.flights[slot].num_left = num_left;
        qr_runner_submit(&tier->runner, slot);
    }
    return QUIRE_OK;
}

/* ---- coming back ----------------------------------------------------------- */

static void count_late(quire_tier *tier, qr_flight *f, uint64_t now_ns)
{
    f->is_late = true;
    qr_count_add(&tier->counts.late, 1);
    qr_count_add(&tier->counts.bytes_late, f->bytes);
    tell_breaker(tier, f->epoch, QR_OUTCOME_BAD, now_ns);
}

quire_tier_job *qr_tier_take_back(quire_tier *tier, uint32_t slot)
{
    qr_flight *f = &tier->runner.flights[slot];
    quire_tier_job *job = f->job;
    qr_outcome outcome = f->num_failed > 0 ? QR_OUTCOME_BAD : QR_OUTCOME_NONE;
    if (tier->runner.ops.finish != NULL)
        tier->runner.ops.finish(tier->runner.self, job);
    count_ios(tier, job);
    if (!f->is_late && job->ended_ns > job->due_ns)
        count_late(tier, f, job->ended_ns);
    if (f->is_late) /* the breaker knows of it */
        qr_count_add(&tier->counts.bytes_late, UINT64_C(0) - f->bytes);
    else
        tell_breaker(tier, f->epoch, f->has_answered ? QR_OUTCOME_GOOD : outcome, job->ended_ns);
    qr_count_add(&tier->counts.jobs_in_flight, UINT64_MAX);
    qr_count_add(&tier->counts.bytes_in_flight, UINT64_C(0) - f->bytes);
    f->job = NULL;
    tier->free_slots[tier->num_free++] = slot;
    job->state = 0;
    return job;
}

bool qr_tier_next_ended(quire_tier *tier, uint32_t *slot)
{
    return qr_spsc_take(&tier->ready, slot) || qr_spsc_take(&tier->runner.ended, slot);
}

/* Each is counted once, at the first poll past its deadline, and asked to end. */
static void look_for_late(quire_tier *tier)
{
    uint64_t now_ns = qr_now_ns(&tier->hooks);
    if (now_ns <= tier->earliest_due_ns)
        return;
    tier->earliest_due_ns = UINT64_MAX;
    for (uint32_t slot = 0; slot < tier->runner.max_jobs; slot++) {
        qr_flight *f = &tier->runner.flights[slot];
        if (f->job == NULL || f->is_late)
            continue;
        if (now_ns > f->job->due_ns) {
            count_late(tier, f, now_ns);
            qr_runner_cancel(&tier->runner, slot);
        } else if (f->job->due_ns < tier->earliest_due_ns) {
            tier->earliest_due_ns = f->job->due_ns;
        }
    }
}

QUIRE_API uint32_t quire_tier_poll(quire_tier *tier, quire_tier_job **jobs, uint32_t capacity)
{
    uint32_t count = 0;
    uint32_t slot;
    if (tier == NULL || jobs == NULL || qr_fork_guard_is_child(&tier->guard))
        return 0;
    if (qr_count_get(&tier->counts.jobs_in_flight) == 0 && !tier->is_inline)
        return 0;
    if (tier->is_inline)
        qr_runner_turn(&tier->runner);
    while (count < capacity && qr_tier_next_ended(tier, &slot))
        jobs[count++] = qr_tier_take_back(tier, slot);
    if (count < capacity) /* otherwise some that ended in time may not have been seen */
        look_for_late(tier);
    return count;
}

QUIRE_API int quire_tier_cancel(quire_tier *tier, quire_tier_job *job)
{
    int status = check_call(tier, job != NULL);
    if (status != QUIRE_OK)
        return status;
    if (job->state == 0 || job->state > tier->runner.max_jobs ||
        tier->runner.flights[job->state - 1].job != job)
        return QUIRE_MISS;
    qr_runner_cancel(&tier->runner, job->state - 1);
    return QUIRE_OK;
}

QUIRE_API int quire_tier_is_late(const quire_tier *tier, const quire_tier_job *job)
{
    if (tier == NULL || job == NULL)
        return 0;
    if (job->state == 0)
        return job->ended_ns > job->due_ns;
    return qr_now_ns(&tier->hooks) > job->due_ns;
}

/* ---- what is there --------------------------------------------------------- */

QUIRE_API int quire_tier_lookup(quire_tier *tier, const quire_tier_key *keys, uint32_t n,
                                uint8_t *found)
{
    int status = check_call(tier, n == 0 || (keys != NULL && found != NULL));
    if (status != QUIRE_OK || n == 0)
        return status;
    bool is_open =
        tier->is_closing || (tier->breaker.health != QUIRE_TIER_CLOSED &&
                             !qr_breaker_would_let(&tier->breaker, qr_now_ns(&tier->hooks)));
    if (is_open)
        memset(found, 0, n);
    else if (tier->runner.ops.lookup == NULL)
        memset(found, 2, n);
    else
        tier->runner.ops.lookup(tier->runner.self, keys, n, found);
    return QUIRE_OK;
}

QUIRE_API int quire_tier_touch(quire_tier *tier, const quire_tier_key *keys, uint32_t n)
{
    int status = check_call(tier, n == 0 || keys != NULL);
    if (status == QUIRE_OK && tier->runner.ops.touch != NULL)
        tier->runner.ops.touch(tier->runner.self, keys, n);
    return status;
}

QUIRE_API int quire_tier_expect(quire_tier *tier, uint64_t request, uint64_t order,
                                const quire_tier_key *keys, uint32_t n)
{
    int status = check_call(tier, n == 0 || keys != NULL);
    if (status == QUIRE_OK && tier->runner.ops.expect != NULL)
        tier->runner.ops.expect(tier->runner.self, request, order, keys, n);
    return status;
}

/* ---- another identity ------------------------------------------------------ */

/* In true time: a clock of the caller's may stand still meanwhile. */
static int await_settled(quire_tier *tier)
{
    const struct timespec a_little = {.tv_nsec = 100000};
    uint64_t end_ns = qr_now_ns(NULL) + tier->close_ns;
    if (tier->runner.ops.is_settled == NULL || tier->is_inline)
        return QUIRE_OK;
    for (;;) {
        int is_settled = tier->runner.ops.is_settled(tier->runner.self);
        if (is_settled > 0)
            return QUIRE_OK;
        if (is_settled < 0 || qr_now_ns(NULL) >= end_ns)
            return QUIRE_E_SYSTEM;
        (void)nanosleep(&a_little, NULL);
    }
}

int qr_tier_forget(quire_tier *tier)
{
    if (tier->runner.ops.reset == NULL)
        return QUIRE_OK;
    int status = tier->runner.ops.reset(tier->runner.self);
    qr_runner_wake(&tier->runner); /* what is on the disk goes too, and soon */
    return status;
}

QUIRE_API int quire_tier_reset(quire_tier *tier)
{
    int status = check_call(tier, true);
    if (status != QUIRE_OK)
        return status;
    if (tier->runner.caps.is_shared != 0 && tier->runner.caps.is_persistent != 0)
        return QUIRE_E_IDENTITY; /* it is others' too */
    status = qr_tier_forget(tier);
    return status == QUIRE_OK ? await_settled(tier) : status;
}

QUIRE_API int quire_tier_set_identity(quire_tier *tier, const unsigned char *fingerprint)
{
    int status = check_call(tier, fingerprint != NULL);
    if (status != QUIRE_OK)
        return status;
    if (tier->is_closing || qr_count_get(&tier->counts.jobs_in_flight) > 0)
        return QUIRE_BUSY;
    if (tier->runner.ops.set_identity == NULL)
        return quire_tier_reset(tier);
    status = tier->runner.ops.set_identity(tier->runner.self, fingerprint);
    qr_runner_wake(&tier->runner);
    return status == QUIRE_OK ? await_settled(tier) : status;
}

QUIRE_API const quire_tier_caps *quire_tier_get_caps(const quire_tier *tier)
{
    return tier == NULL ? NULL : &tier->runner.caps;
}

QUIRE_API const char *quire_tier_label(const quire_tier *tier)
{
    return tier == NULL ? "" : tier->label;
}

QUIRE_API const char *quire_tier_medium(const quire_tier *tier)
{
    return tier == NULL ? "" : tier->medium;
}

QUIRE_API int quire_tier_get_stats(const quire_tier *tier, quire_tier_stats *stats)
{
    if (tier == NULL)
        return QUIRE_E_ARGUMENT;
    const qr_tier_counts *counts = &tier->counts;
    quire_tier_stats own = {0};
    own.health = (quire_tier_health)qr_count_get(&counts->health);
    if (tier->runner.ops.usage != NULL)
        own.usage = tier->runner.ops.usage(tier->runner.self);
    own.space.capacity_bytes = tier->runner.caps.capacity_bytes;
    if (tier->runner.ops.space != NULL)
        own.space = tier->runner.ops.space(tier->runner.self);
    own.jobs = qr_count_get(&counts->jobs);
    own.jobs_in_flight = qr_count_get(&counts->jobs_in_flight);
    own.bytes_in_flight = qr_count_get(&counts->bytes_in_flight);
    own.bytes_late = qr_count_get(&counts->bytes_late);
    for (size_t op = 0; op < QR_TIER_OPS; op++)
        for (size_t status = 0; status < QR_TIER_STATUSES; status++)
            own.keys[op][status] = qr_count_get(&counts->keys[op][status]);
    own.bytes_loaded = qr_count_get(&counts->bytes_loaded);
    own.bytes_stored = qr_count_get(&counts->bytes_stored);
    own.late = qr_count_get(&counts->late);
    own.breaker_opened = qr_count_get(&counts->breaker_opened);
    own.bad_ends = qr_count_get(&tier->runner.bad_ends);
    return qr_struct_out(stats, &own, sizeof own);
}
