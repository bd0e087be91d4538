/* tier/worker/turn.c - loads and stores of tiers, on the worker's thread.
 *
 *      inbox ──► loads  ──► first key, where the tier does not know it ──► the others ──► outbox
 *            └─► stores ──► what the tier has not, while no load waits ──────────────────► outbox
 *                   └ too many wait, the budget is used, the breaker is open: dropped
 *
 * Finding and loading are one job: of a prefix whose first key is missing nothing else is asked.
 */
#include "tier/worker/worker.h"

#include "base/hooks.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_EVERY_NS = 200000 }; /* while tiers have jobs */

static uint32_t place_of(const quire_worker *w, const qr_worker_job *job)
{
    return (uint32_t)(job - w->jobs);
}

/* ---- ends ------------------------------------------------------------------ */

static void end_job(quire_worker *w, qr_worker_job *job)
{
    w->num_active--;
    qr_spsc_put(&w->outbox, place_of(w, job));
}

/* From this key on. */
static void end_rest(quire_worker *w, qr_worker_job *job, uint32_t first, quire_tier_status status)
{
    for (uint32_t i = first; i < job->num_keys; i++)
        job->statuses[i] = (uint8_t)status;
    end_job(w, job);
}

static void dequeue(quire_worker *w, qr_worker_job *job)
{
    qr_worker_tier *tier = &w->tiers[job->tier];
    bool is_load = job->kind == QR_PLAN_LOAD;
    qr_chain_remove(is_load ? &tier->loads : &tier->stores, &w->jobs->link, sizeof *job,
                    place_of(w, job));
    tier->num_waiting_stores -= is_load ? 0 : 1;
    job->is_queued = false;
}

/* ---- to the tier ----------------------------------------------------------- */

static void add_io(const quire_worker *w, qr_worker_job *job, uint32_t key)
{
    uint32_t slot = job->slots[key];
    job->which[job->job.num_ios] = (uint8_t)key;
    job->ios[job->job.num_ios++] =
        (quire_tier_io){.key = job->keys[key],
                        .memory = w->memory + (size_t)slot * w->block_bytes,
                        .bytes = (uint32_t)w->block_bytes,
                        .crc = w->crcs[slot]};
}

/* The keys of a load that the tier gets now: of a prefix the first alone, if the tier does not know
 * whether it is there; none, if it is not. */
static void fill_load(quire_worker *w, qr_worker_job *job)
{
    uint8_t found = 1;
    uint32_t end = job->num_keys;
    job->job = (quire_tier_job){.op = QUIRE_TIER_LOAD, .ios = job->ios};
    if (job->is_prefix && job->num_begun == 0)
        (void)quire_tier_lookup(w->tiers[job->tier].tier, job->keys, 1, &found);
    if (found == 0) {
        memset(job->statuses, QUIRE_TIER_CANCELLED, sizeof job->statuses);
        job->statuses[0] = QUIRE_TIER_MISSING;
        return;
    }
    if (found == 2)
        end = 1;
    for (uint32_t key = job->num_begun; key < end; key++) {
        w->crcs[job->slots[key]] = w->has_bytes[job->slots[key]] = 0;
        add_io(w, job, key);
    }
    job->num_begun = end;
}

/* What the tier has is not stored again. */
static void fill_store(quire_worker *w, qr_worker_job *job)
{
    uint8_t found[QR_PLAN_MOST_KEYS] = {0};
    bool has_crcs = true;
    (void)quire_tier_lookup(w->tiers[job->tier].tier, job->keys, job->num_keys, found);
    job->job = (quire_tier_job){.op = QUIRE_TIER_STORE, .ios = job->ios};
    for (uint32_t key = 0; key < job->num_keys; key++) {
        bool has_bytes = w->has_bytes[job->slots[key]] != 0; /* else another worker had them */
        job->statuses[key] = has_bytes ? QUIRE_TIER_DONE : QUIRE_TIER_FAILED;
        if (found[key] == 1 || !has_bytes)
            continue;
        add_io(w, job, key);
        has_crcs = has_crcs && w->crcs[job->slots[key]] != 0;
    }
    job->job.has_crcs = has_crcs;
    job->num_begun = job->num_keys;
}

/* False: the tier takes no more now; the job is where it was. */
static bool begin_job(quire_worker *w, qr_worker_job *job)
{
    qr_worker_tier *tier = &w->tiers[job->tier];
    bool is_load = job->kind == QR_PLAN_LOAD;
    uint32_t num_begun = job->num_begun;
    if (is_load)
        fill_load(w, job);
    else
        fill_store(w, job);
    if (job->job.num_ios == 0) { /* nothing to load, or the tier has all of it */
        if (job->is_queued)
            dequeue(w, job);
        end_job(w, job);
        return true;
    }
    job->job.deadline_ns = job->due_ns;
    int err = quire_tier_submit(tier->tier, &job->job);
    if (err == QUIRE_FULL) {
        job->num_begun = num_begun;
        return false;
    }
    if (job->is_queued)
        dequeue(w, job);
    if (err != QUIRE_OK) {
        end_rest(w, job, num_begun, QUIRE_TIER_REFUSED);
        return true;
    }
    job->is_out = true;
    tier->num_out++;
    tier->store_bytes_out += is_load ? 0 : job->job.num_ios * w->block_bytes;
    return true;
}

static void pump(quire_worker *w, qr_worker_tier *tier)
{
    while (tier->loads.first != QR_NIL)
        if (!begin_job(w, &w->jobs[tier->loads.first]))
            return;
    while (tier->stores.first != QR_NIL &&
           (tier->store_bytes_out == 0 || tier->store_bytes_out < tier->most_store_bytes))
        if (!begin_job(w, &w->jobs[tier->stores.first]))
            return;
}

/* ---- from the tier --------------------------------------------------------- */

static void put_first(quire_worker *w, qr_worker_job *job)
{
    qr_worker_tier *tier = &w->tiers[job->tier];
    qr_chain_insert(&tier->loads, &w->jobs->link, sizeof *job, tier->loads.first, place_of(w, job));
    job->is_queued = true;
}

static void take_back(quire_worker *w, qr_worker_job *job)
{
    qr_worker_tier *tier = &w->tiers[job->tier];
    bool is_load = job->kind == QR_PLAN_LOAD;
    bool is_late = is_load && quire_tier_is_late(tier->tier, &job->job) != 0;
    uint32_t num_done = 0;
    job->is_out = false;
    tier->num_out--;
    tier->store_bytes_out -= is_load ? 0 : job->job.num_ios * w->block_bytes;
    for (uint32_t i = 0; i < job->job.num_ios; i++) {
        quire_tier_status status = job->ios[i].status;
        num_done += status == QUIRE_TIER_DONE;
        if (is_load && status == QUIRE_TIER_DONE) {
            w->crcs[job->slots[job->which[i]]] = job->ios[i].crc;
            w->has_bytes[job->slots[job->which[i]]] = 1;
        }
        job->statuses[job->which[i]] = is_late ? QR_REPORT_LATE : (uint8_t)status;
    }
    if (job->num_begun == job->num_keys)
        end_job(w, job);
    else if (num_done < job->job.num_ios || is_late || job->is_cancelled)
        end_rest(w, job, job->num_begun, QUIRE_TIER_CANCELLED);
    else if (!begin_job(w, job))
        put_first(w, job);
}

static void poll_tier(quire_worker *w, qr_worker_tier *tier)
{
    enum { AT_ONCE = QR_AT_A_TIME(32, 2) };
    quire_tier_job *ended[AT_ONCE];
    uint32_t n = AT_ONCE;
    while (n == AT_ONCE && tier->num_out > 0) {
        n = quire_tier_poll(tier->tier, ended, AT_ONCE);
        for (uint32_t i = 0; i < n; i++)
            take_back(w, (qr_worker_job *)(void *)ended[i]);
    }
}

/* ---- from the planner ------------------------------------------------------ */

static void take_job(quire_worker *w, qr_worker_job *job)
{
    qr_worker_tier *tier = &w->tiers[job->tier];
    bool is_load = job->kind == QR_PLAN_LOAD;
    w->num_active++;
    job->is_queued = job->is_out = job->is_cancelled = false;
    job->num_begun = 0;
    if (!is_load && !w->stores) { /* another rank stores the same bytes */
        end_rest(w, job, 0, QUIRE_TIER_DONE);
        return;
    }
    if (tier->is_void || (!is_load && tier->num_waiting_stores >= tier->most_waiting_stores)) {
        end_rest(w, job, 0, QUIRE_TIER_REFUSED);
        return;
    }
    qr_chain_insert(is_load ? &tier->loads : &tier->stores, &w->jobs->link, sizeof *job, QR_NIL,
                    place_of(w, job));
    tier->num_waiting_stores += is_load ? 0 : 1;
    job->is_queued = true;
}

static void cancel_job(quire_worker *w, uint64_t id)
{
    uint32_t place = qr_plan_place(id) - QR_PLAN_COPY_JOBS;
    qr_worker_job *job = &w->jobs[place < w->num_jobs ? place : 0];
    if (place >= w->num_jobs || job->id != id)
        return;
    if (job->is_out)
        (void)quire_tier_cancel(w->tiers[job->tier].tier, &job->job);
    job->is_cancelled = true;
    if (!job->is_queued)
        return;
    dequeue(w, job);
    end_rest(w, job, job->num_begun, QUIRE_TIER_CANCELLED);
}

/* What waits was meant for what the tier had. */
static void refuse_waiting(quire_worker *w, qr_worker_tier *tier)
{
    qr_chain *chains[] = {&tier->loads, &tier->stores};
    for (uint32_t i = 0; i < 2; i++)
        while (chains[i]->first != QR_NIL) {
            qr_worker_job *job = &w->jobs[chains[i]->first];
            dequeue(w, job);
            end_rest(w, job, job->num_begun, QUIRE_TIER_REFUSED);
        }
}

static void run_command(quire_worker *w, const qr_worker_command *command)
{
    qr_worker_tier *tier = &w->tiers[command->tier];
    switch (command->kind) {
    case QR_PLAN_CANCEL:
        cancel_job(w, command->id);
        break;
    case QR_PLAN_TOUCH:
        (void)quire_tier_touch(tier->tier, command->keys, command->count);
        break;
    case QR_PLAN_RESET:
        refuse_waiting(w, tier);
        (void)quire_tier_reset(tier->tier);
        break;
    default:
        refuse_waiting(w, tier);
        tier->is_void = quire_tier_set_identity(tier->tier, command->fingerprint) != QUIRE_OK;
        if (tier->is_void)
            qr_log(&w->hooks, QUIRE_LOG_ERROR,
                   "worker: tier %s has not got its new identity, and is not used: %s",
                   quire_tier_label(tier->tier), quire_refusal());
    }
}

void qr_worker_turn(quire_worker *w)
{
    uint32_t number;
    while (qr_spsc_take(&w->inbox, &number)) {
        if (number < w->num_jobs) {
            take_job(w, &w->jobs[number]);
            continue;
        }
        run_command(w, &w->commands[number - w->num_jobs]);
        qr_spsc_put(&w->freed, number - w->num_jobs);
    }
    for (uint32_t t = 0; t < w->num_tiers; t++) {
        poll_tier(w, &w->tiers[t]);
        pump(w, &w->tiers[t]);
    }
}

/* ---- the thread ------------------------------------------------------------ */

static void sleep_a_while(quire_worker *w)
{
    struct pollfd wake = {.fd = w->wake_fd, .events = POLLIN};
    const struct timespec soon = {.tv_nsec = LOOK_EVERY_NS};
    const struct timespec now = {0};
    atomic_store_explicit(&w->is_asleep, true, memory_order_seq_cst);
    bool may_sleep =
        qr_spsc_is_empty(&w->inbox) && !atomic_load_explicit(&w->is_stopping, memory_order_seq_cst);
    const struct timespec *timeout = w->num_active > 0 ? &soon : NULL;
    (void)ppoll(&wake, 1, may_sleep ? timeout : &now, NULL);
    atomic_store_explicit(&w->is_asleep, false, memory_order_relaxed);
    uint64_t count;
    (void)!read(w->wake_fd, &count, sizeof count);
}

static void *worker_thread(void *user)
{
    quire_worker *w = user;
    while (!atomic_load_explicit(&w->is_stopping, memory_order_acquire)) {
        qr_worker_turn(w);
        sleep_a_while(w);
    }
    return NULL;
}

void qr_worker_wake(quire_worker *w)
{
    if (!atomic_load_explicit(&w->is_asleep, memory_order_seq_cst) ||
        !atomic_exchange_explicit(&w->is_asleep, false, memory_order_relaxed))
        return;
    uint64_t one = 1;
    (void)!write(w->wake_fd, &one, sizeof one);
}

int qr_worker_start(quire_worker *w)
{
    w->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (w->wake_fd >= 0)
        w->has_thread = qr_thread_start(&w->thread, "quire-worker", worker_thread, w);
    return w->has_thread ? QUIRE_OK : QUIRE_E_SYSTEM;
}

void qr_worker_stop(quire_worker *w)
{
    if (w->has_thread) {
        atomic_store_explicit(&w->is_stopping, true, memory_order_seq_cst);
        qr_worker_wake(w);
        (void)pthread_join(w->thread, NULL);
    }
    w->has_thread = false;
    if (w->wake_fd >= 0)
        (void)close(w->wake_fd);
    w->wake_fd = -1;
}
