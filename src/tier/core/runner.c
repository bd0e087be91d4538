#include "tier/core/runner.h"

#include "base/hooks.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { STOPPING_TURN_MS = 50, NS_IN_MS = 1000000 };

/* ---- jobs under way -------------------------------------------------------- */

static uint32_t tag_of_job(const qr_runner *r, const quire_tier_job *job)
{
    return qr_buckets_tag(&r->table, (uintptr_t)job, 0);
}

static qr_flight *find_flight(qr_runner *r, const quire_tier_job *job)
{
    qr_buckets_search search = qr_buckets_search_begin(&r->table, tag_of_job(r, job));
    uint32_t id = qr_buckets_search_next(&search);
    while (id != 0 && r->flights[id - 1].given != job)
        id = qr_buckets_search_next(&search);
    return id == 0 ? NULL : &r->flights[id - 1];
}

/* ---- ends ------------------------------------------------------------------ */

static void count_bad_end(qr_runner *r)
{
    (void)atomic_fetch_add_explicit(&r->bad_ends, 1, memory_order_relaxed);
}

/* DONE only where the bytes are those that were stored. */
static quire_tier_status checked_load(const qr_runner *r, const quire_tier_io *io)
{
    if (r->caps.checks_crc != 0 || r->caps.is_simulated != 0)
        return QUIRE_TIER_DONE;
    return quire_crc32c(0, io->memory, io->bytes) == io->crc ? QUIRE_TIER_DONE : QUIRE_TIER_WRONG;
}

static void set_ended(qr_runner *r, qr_flight *f, uint32_t io, quire_tier_status status)
{
    f->ios[io].status = status;
    f->num_left--;
    if (f->num_left > 0)
        return;
    f->job->ended_ns = qr_now_ns(r->hooks);
    r->ended_now[r->num_ended_now++] = (uint32_t)(f - r->flights);
}

static void end_io(quire_tier_ends *ends, quire_tier_job *job, uint32_t io,
                   quire_tier_status status)
{
    qr_runner *r = (qr_runner *)ends;
    qr_flight *f = find_flight(r, job);
    if (f == NULL || io >= f->given->num_ios || f->ios[io].status != QUIRE_TIER_PENDING) {
        count_bad_end(r);
        return;
    }
    if (status <= QUIRE_TIER_PENDING || status > QUIRE_TIER_REFUSED) {
        count_bad_end(r);
        status = QUIRE_TIER_FAILED; /* it must end with something */
    }
    if (status == QUIRE_TIER_DONE && job->op == QUIRE_TIER_LOAD)
        status = checked_load(r, &f->ios[io]);
    bool was_tried = status != QUIRE_TIER_CANCELLED && status != QUIRE_TIER_REFUSED;
    bool has_failed = status == QUIRE_TIER_FAILED || status == QUIRE_TIER_WRONG;
    f->num_failed += has_failed ? 1 : 0;
    f->has_answered = f->has_answered || (was_tried && !has_failed);
    set_ended(r, f, io, status);
    if (f->given != f->job && --f->num_part_left == 0 && f->num_left > 0)
        r->part_ended[r->num_part_ended++] = (uint32_t)(f - r->flights);
}

/* The tier's own part has returned: what ended in there goes to the scheduler. */
static void hand_back_ended(qr_runner *r)
{
    for (uint32_t i = 0; i < r->num_ended_now; i++) {
        uint32_t slot = r->ended_now[i];
        qr_buckets_remove(&r->table, tag_of_job(r, r->flights[slot].given), slot + 1);
        r->flights[slot].is_under_way = false;
        r->num_under_way--;
        qr_spsc_put(&r->ended, slot);
    }
    r->num_ended_now = 0;
}

/* ---- the thread ------------------------------------------------------------ */

static bool is_runner_stopping(const qr_runner *r)
{
    return atomic_load_explicit(&r->is_stopping, memory_order_acquire);
}

/* PENDING: it shall be begun. A job whose user has gone on without it is not worth the work. */
static quire_tier_status status_before_begin(const qr_runner *r, const qr_flight *f)
{
    if (is_runner_stopping(r) || f->epoch != atomic_load_explicit(&r->epoch, memory_order_relaxed))
        return QUIRE_TIER_REFUSED;
    if (atomic_load_explicit(&f->is_cancelled, memory_order_relaxed) ||
        qr_now_ns(r->hooks) > f->job->due_ns)
        return QUIRE_TIER_CANCELLED;
    return QUIRE_TIER_PENDING;
}

static void compute_crcs(qr_flight *f)
{
    for (uint32_t i = 0; i < f->num_ios; i++)
        if (f->ios[i].status == QUIRE_TIER_PENDING)
            f->ios[i].crc = quire_crc32c(0, f->ios[i].memory, f->ios[i].bytes);
}

static void end_rest(qr_runner *r, qr_flight *f, quire_tier_status status)
{
    for (uint32_t i = 0; i < f->num_ios; i++)
        if (f->ios[i].status == QUIRE_TIER_PENDING)
            set_ended(r, f, i, status);
}

/* Whether all ios of the part before have been found. */
static bool is_part_found(const qr_flight *f)
{
    for (uint32_t i = 0; i < f->part.num_ios; i++)
        if (f->ios[i].status != QUIRE_TIER_DONE)
            return false;
    return true;
}

/* The part before has ended, and some ios are PENDING: the next part, or the end of them. */
static void begin_part(qr_runner *r, qr_flight *f)
{
    do {
        quire_tier_status status =
            is_part_found(f) ? status_before_begin(r, f) : QUIRE_TIER_CANCELLED;
        if (status != QUIRE_TIER_PENDING) {
            end_rest(r, f, status);
            return;
        }
        uint32_t first = f->part.num_ios;
        uint32_t most = f->num_ios - first;
        uint32_t n = 3 * first + 1; /* 1, 4, 16, 64, ... */
        f->part.num_ios = first + (n < most ? n : most);
        f->num_part_left = 0;
        for (uint32_t i = first; i < f->part.num_ios; i++)
            f->num_part_left += f->ios[i].status == QUIRE_TIER_PENDING;
    } while (f->num_part_left == 0); /* all of them were known before */
    r->ops.begin(r->self, &r->ends, &f->part);
}

/* The tier's own part has returned: parts that were found go on. */
static void go_on(qr_runner *r)
{
    hand_back_ended(r);
    while (r->num_part_ended > 0) {
        begin_part(r, &r->flights[r->part_ended[--r->num_part_ended]]);
        hand_back_ended(r);
    }
}

static void begin_whole(qr_runner *r, qr_flight *f)
{
    quire_tier_status status = status_before_begin(r, f);
    if (status != QUIRE_TIER_PENDING) {
        end_rest(r, f, status);
        return;
    }
    if (f->job->op == QUIRE_TIER_STORE && f->job->has_crcs == 0 && r->caps.is_simulated == 0)
        compute_crcs(f);
    r->ops.begin(r->self, &r->ends, f->job);
}

static void begin_job(qr_runner *r, uint32_t slot)
{
    qr_flight *f = &r->flights[slot];
    bool has_parts = f->job->op == QUIRE_TIER_FIND && f->job->is_prefix != 0;
    f->given = f->job;
    if (has_parts) {
        f->part = *f->job;
        f->part.num_ios = 0;
        f->given = &f->part;
    }
    qr_buckets_insert(&r->table, tag_of_job(r, f->given), slot + 1);
    f->is_under_way = true;
    f->is_told = false;
    r->num_under_way++;
    if (has_parts)
        begin_part(r, f);
    else
        begin_whole(r, f);
    go_on(r);
}

/* Those of whom the tier's own part has not heard yet. */
static void cancel_jobs(qr_runner *r)
{
    if (!atomic_exchange_explicit(&r->has_cancels, false, memory_order_acquire))
        return;
    for (uint32_t slot = 0; slot < r->max_jobs; slot++) {
        qr_flight *f = &r->flights[slot];
        if (!f->is_under_way || f->is_told || r->ops.cancel == NULL ||
            !atomic_load_explicit(&f->is_cancelled, memory_order_relaxed))
            continue;
        f->is_told = true;
        r->ops.cancel(r->self, &r->ends, f->given);
        go_on(r);
    }
}

static void take_submitted(qr_runner *r)
{
    uint32_t slot;
    while (qr_spsc_take(&r->submitted, &slot))
        begin_job(r, slot);
    cancel_jobs(r);
}

static void turn_once(qr_runner *r, int timeout_ms)
{
    if (r->ops.turn != NULL) {
        r->ops.turn(r->self, &r->ends, r->wake_fd, timeout_ms);
        go_on(r);
    } else if (r->wake_fd >= 0) {
        struct pollfd wake = {.fd = r->wake_fd, .events = POLLIN};
        (void)poll(&wake, 1, timeout_ms);
    }
}

static void sleep_turn(qr_runner *r)
{
    atomic_store_explicit(&r->is_asleep, true, memory_order_seq_cst);
    bool may_sleep = qr_spsc_is_empty(&r->submitted) &&
                     !atomic_load_explicit(&r->has_cancels, memory_order_seq_cst) &&
                     !atomic_load_explicit(&r->is_stopping, memory_order_seq_cst);
    turn_once(r, may_sleep ? -1 : 0);
    atomic_store_explicit(&r->is_asleep, false, memory_order_relaxed);
    uint64_t count; /* also where nobody seems to have woken it: one may be about to write */
    (void)!read(r->wake_fd, &count, sizeof count);
}

static void cancel_all(qr_runner *r)
{
    for (uint32_t slot = 0; slot < r->max_jobs; slot++)
        if (r->flights[slot].is_under_way)
            atomic_store_explicit(&r->flights[slot].is_cancelled, true, memory_order_relaxed);
    atomic_store_explicit(&r->has_cancels, true, memory_order_relaxed);
    cancel_jobs(r);
}

static void *tier_thread(void *user)
{
    qr_runner *r = user;
    while (!is_runner_stopping(r)) {
        take_submitted(r);
        sleep_turn(r);
    }
    take_submitted(r);
    cancel_all(r);
    while (r->num_under_way > 0) {
        turn_once(r, STOPPING_TURN_MS);
        cancel_jobs(r);
    }
    uint64_t one = 1;
    (void)!write(r->gone_fd, &one, sizeof one);
    return NULL;
}

/* ---- the scheduler's side -------------------------------------------------- */

static void wake_thread(qr_runner *r)
{
    if (!atomic_load_explicit(&r->is_asleep, memory_order_seq_cst) ||
        !atomic_exchange_explicit(&r->is_asleep, false, memory_order_relaxed))
        return;
    uint64_t one = 1;
    (void)!write(r->wake_fd, &one, sizeof one);
}

/* Without a thread it is this one that does it. */
static void get_it_done(qr_runner *r)
{
    if (r->has_thread)
        wake_thread(r);
    else
        take_submitted(r);
}

void qr_runner_submit(qr_runner *runner, uint32_t slot)
{
    qr_spsc_put(&runner->submitted, slot);
    get_it_done(runner);
}

void qr_runner_cancel(qr_runner *runner, uint32_t slot)
{
    if (atomic_exchange_explicit(&runner->flights[slot].is_cancelled, true, memory_order_relaxed))
        return;
    atomic_store_explicit(&runner->has_cancels, true, memory_order_seq_cst);
    get_it_done(runner);
}

void qr_runner_wake(qr_runner *runner)
{
    if (runner->has_thread)
        wake_thread(runner);
}

void qr_runner_turn(qr_runner *runner)
{
    turn_once(runner, 0);
}

void qr_runner_init(qr_runner *runner)
{
    static const uint64_t MIX[2] = {UINT64_C(0xbf58476d1ce4e5b9), UINT64_C(0x9e3779b97f4a7c15)};
    qr_buckets_init(&runner->table, runner->max_jobs, MIX);
    runner->ends.end = end_io;
    runner->wake_fd = -1;
    runner->gone_fd = -1;
}

int qr_runner_start(qr_runner *runner)
{
    runner->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    runner->gone_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (runner->wake_fd >= 0 && runner->gone_fd >= 0)
        runner->has_thread = qr_thread_start(&runner->thread, "quire-tier", tier_thread, runner);
    return runner->has_thread ? QUIRE_OK : QUIRE_E_SYSTEM;
}

/* In true time: a clock of the caller's may stand still meanwhile. */
static bool is_thread_gone(const qr_runner *r, uint64_t wait_ns)
{
    uint64_t end_ns = qr_now_ns(NULL) + wait_ns;
    for (;;) {
        uint64_t now_ns = qr_now_ns(NULL);
        uint64_t left_ms = now_ns < end_ns ? (end_ns - now_ns) / NS_IN_MS + 1 : 0;
        struct pollfd gone = {.fd = r->gone_fd, .events = POLLIN};
        int found = poll(&gone, 1, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
        if (found > 0)
            return true;
        if (left_ms == 0 || (found < 0 && errno != EINTR))
            return false;
    }
}

/* What only keeps keys can let go of a job at any time. */
static void let_go_of_all(qr_runner *r)
{
    for (uint32_t slot = 0; slot < r->max_jobs; slot++) {
        qr_flight *f = &r->flights[slot];
        if (f->is_under_way)
            end_rest(r, f, QUIRE_TIER_CANCELLED);
    }
    hand_back_ended(r);
}

static bool has_stopped_inline(qr_runner *r, uint64_t wait_ns)
{
    uint64_t end_ns = qr_now_ns(NULL) + wait_ns;
    cancel_all(r);
    if (r->caps.is_simulated != 0)
        let_go_of_all(r);
    while (r->num_under_way > 0 && qr_now_ns(NULL) < end_ns)
        turn_once(r, 1);
    return r->num_under_way == 0;
}

bool qr_runner_stop(qr_runner *runner, uint64_t wait_ns)
{
    atomic_store_explicit(&runner->is_stopping, true, memory_order_seq_cst);
    if (runner->has_thread) {
        wake_thread(runner);
        if (!is_thread_gone(runner, wait_ns))
            return false;
        (void)pthread_join(runner->thread, NULL);
        runner->has_thread = false;
    } else if (!has_stopped_inline(runner, wait_ns)) {
        return false;
    }
    if (runner->wake_fd >= 0)
        (void)close(runner->wake_fd);
    if (runner->gone_fd >= 0)
        (void)close(runner->gone_fd);
    return true;
}
