/* tier/worker/submit.c - a plan is checked as a whole, then taken. */
#include "tier/worker/worker.h"

#include "base/hooks.h"
#include "base/refuse.h"

/* ---- checking -------------------------------------------------------------- */

static bool are_slots_valid(const quire_worker *w, const qr_plan_job *job)
{
    for (uint32_t i = 0; i < job->count; i++) {
        uint32_t slot = qr_plan_slot(job, i);
        if (slot == 0 || slot >= w->num_slots)
            return false;
    }
    return true;
}

/* Its place is one of its kind, and free. */
static bool is_place_valid(quire_worker *w, const qr_plan_job *job)
{
    uint32_t place = qr_plan_place(job->id);
    if (qr_plan_is_copy(job->kind)) {
        if (place >= QR_PLAN_COPY_JOBS || w->copies[place].id != 0)
            return false;
    } else {
        uint32_t first = qr_plan_first_place(job->tier);
        if (place < first || place >= first + QR_PLAN_TIER_JOBS ||
            w->job_ids[place - QR_PLAN_COPY_JOBS] != 0)
            return false;
    }
    bool is_first = w->seen[place] != w->num_looks;
    w->seen[place] = w->num_looks;
    return is_first;
}

static int check_job(quire_worker *w, uint32_t number, const qr_plan_job *job)
{
    if (!qr_plan_is_copy(job->kind) && job->tier >= w->num_tiers)
        return qr_fail(QUIRE_E_CORRUPT, "job %u of a plan: invalid tier %u (expected 0..%u)",
                       number, job->tier, w->num_tiers - 1);
    if (!qr_plan_is_job(job->kind))
        return QUIRE_OK;
    if (!are_slots_valid(w, job))
        return qr_fail(QUIRE_E_CORRUPT, "job %u of a plan: a slot is not in 1..%u", number,
                       w->num_slots - 1);
    if (!is_place_valid(w, job))
        return qr_fail(QUIRE_E_CORRUPT, "job %u of a plan: place %u is in use, or does not exist",
                       number, qr_plan_place(job->id));
    return QUIRE_OK;
}

static void take_free_commands(quire_worker *w)
{
    uint32_t number;
    while (qr_spsc_take(&w->freed, &number))
        w->free_commands[w->num_free_commands++] = number;
}

int qr_worker_check_plan(quire_worker *w, quire_bytes bytes, qr_plan *plan)
{
    int err = qr_plan_read(bytes, plan);
    if (err != QUIRE_OK)
        return err;
    bool is_new = plan->session != w->session;
    if (is_new && qr_count_get(&w->counters.jobs_in_flight) > 0)
        return QUIRE_BUSY;
    if (plan->session == 0 || plan->sequence == 0 || (!is_new && plan->sequence != w->sequence + 1))
        return qr_fail(QUIRE_E_CORRUPT, "plan %llu of a session (expected plan %llu)",
                       (unsigned long long)plan->sequence, (unsigned long long)w->sequence + 1);
    qr_plan walk = *plan;
    qr_plan_job job;
    uint32_t num_must = 0;
    w->num_looks++;
    for (uint32_t i = 0; qr_plan_next(&walk, &job); i++) {
        err = check_job(w, i, &job);
        if (err != QUIRE_OK)
            return err;
        num_must += job.kind == QR_PLAN_RESET || job.kind == QR_PLAN_IDENTITY;
    }
    take_free_commands(w);
    return num_must > w->num_free_commands ? QUIRE_BUSY : QUIRE_OK;
}

/* ---- taking ---------------------------------------------------------------- */

static void take_tier_job(quire_worker *w, const qr_plan_job *planned, uint64_t now_ns)
{
    uint32_t place = qr_plan_place(planned->id) - QR_PLAN_COPY_JOBS;
    qr_worker_job *job = &w->jobs[place];
    job->id = planned->id;
    job->start_ns = now_ns;
    job->due_ns = 0;
    if (planned->timeout_ns > 0 && planned->timeout_ns < UINT64_MAX - now_ns)
        job->due_ns = now_ns + planned->timeout_ns;
    job->num_keys = planned->count;
    job->kind = planned->kind;
    job->tier = planned->tier;
    job->is_prefix = (planned->flags & QR_PLAN_PREFIX) != 0;
    for (uint32_t i = 0; i < planned->count; i++) {
        qr_plan_get_key(planned, i, w->key_rank, &job->keys[i]);
        job->slots[i] = qr_plan_slot(planned, i);
    }
    w->job_ids[place] = planned->id;
    qr_spsc_put(&w->inbox, place);
}

/* RESET and IDENTITY always find room: it was counted. */
static void take_command(quire_worker *w, const qr_plan_job *planned, uint32_t num_kept)
{
    bool must = planned->kind == QR_PLAN_RESET || planned->kind == QR_PLAN_IDENTITY;
    if (w->num_free_commands <= (must ? 0 : num_kept))
        return;
    uint32_t number = w->free_commands[--w->num_free_commands];
    qr_worker_command *command = &w->commands[number];
    command->id = planned->id;
    command->kind = planned->kind;
    command->tier = planned->tier;
    command->count = planned->count;
    if (planned->kind == QR_PLAN_IDENTITY)
        memcpy(command->fingerprint, planned->items, QUIRE_FINGERPRINT_BYTES);
    for (uint32_t i = 0; planned->kind == QR_PLAN_TOUCH && i < planned->count; i++)
        qr_plan_get_key(planned, i, w->key_rank, &command->keys[i]);
    qr_spsc_put(&w->inbox, w->num_jobs + number);
}

static uint32_t count_kept(const qr_plan *plan)
{
    qr_plan walk = *plan;
    qr_plan_job job;
    uint32_t n = 0;
    while (qr_plan_next(&walk, &job))
        n += job.kind == QR_PLAN_RESET || job.kind == QR_PLAN_IDENTITY;
    return n;
}

void qr_worker_take_plan(quire_worker *w, qr_plan *plan)
{
    qr_plan_job job;
    uint64_t now_ns = qr_now_ns(&w->hooks);
    uint32_t num_kept = count_kept(plan);
    bool has_copies = false;
    if (plan->session != w->session) {
        w->session = plan->session;
        w->first_plan = plan->sequence;
        w->num_reports = 0;
        w->is_new = true;
    }
    w->sequence = plan->sequence;
    while (qr_plan_next(plan, &job)) {
        if (qr_plan_is_copy(job.kind)) {
            qr_worker_copy(w, &job, now_ns);
            has_copies = true;
        } else if (qr_plan_is_job(job.kind)) {
            take_tier_job(w, &job, now_ns);
        } else {
            take_command(w, &job, num_kept);
        }
        qr_count_add(&w->counters.jobs_in_flight, qr_plan_is_job(job.kind));
    }
    if (has_copies)
        qr_worker_send_copies(w, true);
}
