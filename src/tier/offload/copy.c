/* tier/offload/copy.c - stores and loads as jobs of a device. */
#include "tier/offload/offload.h"

#include "base/hooks.h"

void qr_copy_init(quire_offload *o)
{
    o->free_job = QR_NIL;
    o->due_loads = QR_CHAIN_EMPTY;
    for (uint32_t i = o->num_jobs; i-- > 0;) {
        o->jobs[i].next_free = o->free_job;
        o->jobs[i].is_out = o->jobs[i].is_late = false;
        o->free_job = i;
    }
}

bool qr_copy_mark(quire_offload *o)
{
    return o->device.ops->mark(o->device.self, &o->mark) == QUIRE_OK;
}

/* ---- sending --------------------------------------------------------------- */

static qr_offload_job *take_job(quire_offload *o, quire_device_op op, uint32_t owner, uint64_t mark)
{
    if (o->free_job == QR_NIL)
        return NULL;
    qr_offload_job *job = &o->jobs[o->free_job];
    o->free_job = job->next_free;
    job->owner = owner;
    job->job = (quire_device_job){
        .id = (uint64_t)(job - o->jobs), .op = op, .copies = job->copies, .after = mark};
    return job;
}

static void return_job(quire_offload *o, qr_offload_job *job)
{
    job->is_out = job->is_late = false;
    job->next_free = o->free_job;
    o->free_job = (uint32_t)(job - o->jobs);
}

/* QUIRE_OK; QUIRE_FULL: later; else the device refuses. */
static int submit(quire_offload *o, qr_offload_job *job)
{
    job->is_out = true;
    int err = o->device.ops->submit(o->device.self, &job->job);
    if (err == QUIRE_OK)
        o->num_jobs_out++;
    else
        return_job(o, job);
    return err;
}

static qr_transfers *transfers_of(quire_offload *o, quire_device_op op, uint32_t owner)
{
    return op == QUIRE_DEVICE_LOAD ? &o->reqs[owner].load : &o->events[owner].store;
}

static void end_if_done(quire_offload *o, quire_device_op op, uint32_t owner)
{
    const qr_transfers *list = transfers_of(o, op, owner);
    if (list->num_jobs > 0 || list->sent != QR_NIL)
        return;
    if (op == QUIRE_DEVICE_LOAD)
        qr_load_end(o, owner, false);
    else
        qr_store_report(o, &o->events[owner], o->num_workers);
}

/* From this batch on, as many whole ones as fit; returns the one behind them. */
static uint32_t fill_job(const quire_offload *o, qr_offload_job *job, uint32_t first)
{
    uint32_t at = first;
    uint32_t n = 0;
    for (; at != QR_NIL && n + QR_TRANSFER_PAIRS <= QR_COPIES_IN_JOB; at = o->transfers[at].next) {
        const qr_transfer_batch *batch = &o->transfers[at];
        quire_device_copy *copies = job->copies + n;
        uint32_t count = batch->count;
        for (uint32_t i = 0; i < count; i++)
            copies[i] = (quire_device_copy){.block = batch->gpu[i], .slot = batch->cpu[i]};
        n += count;
    }
    job->batch = first;
    job->job.num_copies = n;
    return at;
}

/* False: the device takes no more. */
static bool send_one(quire_offload *o, quire_device_op op, uint32_t owner)
{
    qr_transfers *list = transfers_of(o, op, owner);
    bool is_store = op == QUIRE_DEVICE_STORE;
    while (list->sent != QR_NIL) {
        qr_offload_job *job = take_job(o, op, owner, list->mark);
        if (job == NULL)
            return false;
        uint32_t next = fill_job(o, job, list->sent);
        int err = submit(o, job);
        if (err == QUIRE_FULL)
            return false;
        if (is_store)
            o->is_refused = err != QUIRE_OK;
        if (is_store && o->is_refused && list->num_jobs == 0 && list->step == o->step) {
            qr_store_undo(o, &o->events[owner]);
            return true;
        }
        list->num_jobs += err == QUIRE_OK;
        list->has_failed |= err != QUIRE_OK;
        list->sent = err == QUIRE_OK ? next : QR_NIL;
    }
    end_if_done(o, op, owner);
    return true;
}

static uint32_t send_list(quire_offload *o, quire_device_op op, uint32_t *owners, uint32_t n)
{
    uint32_t sent = 0;
    while (sent < n && send_one(o, op, owners[sent]))
        sent++;
    memmove(owners, owners + sent, (n - sent) * sizeof *owners);
    return n - sent;
}

void qr_copy_send(quire_offload *o)
{
    o->num_sending = send_list(o, QUIRE_DEVICE_LOAD, o->sending, o->num_sending);
    if (o->num_sending == 0)
        o->num_unsent = send_list(o, QUIRE_DEVICE_STORE, o->unsent_events, o->num_unsent);
}

/* ---- late ones ------------------------------------------------------------- */

void qr_copy_expect_load(quire_offload *o, uint32_t index)
{
    qr_offload_req *r = &o->reqs[index];
    r->load.due_ns = qr_now_ns(&o->hooks) + o->deadline_ns;
    qr_chain_insert(&o->due_loads, &o->reqs->due_link, sizeof *r, QR_NIL, index);
}

void qr_copy_forget_load(quire_offload *o, uint32_t index)
{
    qr_chain_remove(&o->due_loads, &o->reqs->due_link, sizeof *o->reqs, index);
}

/* The job keeps its blocks when the load gives its own users of them back. */
static void make_late(quire_offload *o, qr_offload_job *job)
{
    job->is_late = true;
    o->num_late++;
    for (uint32_t i = 0; i < job->job.num_copies; i++) {
        quire_pool_hold(o->gpu, &job->copies[i].block, 1);
        quire_pool_touch(o->cpu, &job->copies[i].slot, 1);
    }
}

static void end_late(quire_offload *o, const qr_offload_job *job)
{
    o->num_late--;
    for (uint32_t i = job->job.num_copies; i-- > 0;) {
        quire_pool_let_go(o->gpu, &job->copies[i].block, 1, 0);
        quire_pool_free_blocks(o->cpu, &job->copies[i].slot, 1);
    }
}

static void give_up_load(quire_offload *o, uint32_t index)
{
    qr_offload_req *r = &o->reqs[index];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < o->num_jobs; i++)
        if (o->jobs[i].is_out && !o->jobs[i].is_late && o->jobs[i].owner == index &&
            o->jobs[i].job.op == QUIRE_DEVICE_LOAD)
            make_late(o, &o->jobs[i]);
    for (uint32_t i = 0; i < o->num_sending; i++)
        if (o->sending[i] != index)
            o->sending[kept++] = o->sending[i];
    o->num_sending = kept;
    r->load.num_jobs = 0;
    r->load.sent = QR_NIL;
    qr_load_end(o, index, true);
}

static void give_up_late(quire_offload *o)
{
    uint64_t now_ns = o->due_loads.first == QR_NIL ? 0 : qr_now_ns(&o->hooks);
    while (o->due_loads.first != QR_NIL && o->reqs[o->due_loads.first].load.due_ns <= now_ns)
        give_up_load(o, o->due_loads.first);
}

/* ---- ends ------------------------------------------------------------------ */

/* False: the device does not know them all. */
static bool keep_crcs(quire_offload *o, const qr_offload_job *job)
{
    const quire_device_copy *copy = job->copies;
    uint32_t at = job->batch;
    bool is_known = true;
    for (uint32_t left = job->job.num_copies; left > 0; at = o->transfers[at].next) {
        qr_transfer_batch *batch = &o->transfers[at];
        for (uint32_t i = 0; i < batch->count; i++, copy++) {
            batch->crcs[i] = copy->crc;
            is_known &= copy->crc != 0;
        }
        left -= batch->count;
    }
    return is_known;
}

static void end_job(quire_offload *o, qr_offload_job *job)
{
    o->num_jobs_out--;
    if (job->is_late) {
        end_late(o, job);
    } else {
        qr_transfers *list = transfers_of(o, job->job.op, job->owner);
        list->num_jobs--;
        list->has_failed |= job->job.status != QUIRE_OK;
        bool is_store = job->job.op == QUIRE_DEVICE_STORE;
        if (is_store && o->events[job->owner].has_crcs)
            o->events[job->owner].has_crcs = keep_crcs(o, job);
        end_if_done(o, job->job.op, job->owner);
    }
    return_job(o, job);
}

void qr_copy_poll(quire_offload *o)
{
    enum { AT_ONCE = QR_AT_A_TIME(64, 2) };
    quire_device_job *ended[AT_ONCE];
    uint32_t n = AT_ONCE;
    while (n == AT_ONCE) {
        n = o->device.ops->poll(o->device.self, ended, AT_ONCE);
        for (uint32_t i = 0; i < n; i++)
            end_job(o, (qr_offload_job *)ended[i]);
    }
    give_up_late(o);
    qr_copy_send(o);
}
