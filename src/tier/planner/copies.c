/* tier/planner/copies.c - batches of copies, from the first thought to their end. */
#include "tier/planner/planner.h"

void qr_planner_init_batches(quire_planner *p)
{
    p->free_batch = QR_NIL;
    p->num_free_batches = p->num_batches;
    for (uint32_t i = p->num_batches; i-- > 0;) {
        p->batches[i].next = p->free_batch;
        p->batches[i].is_used = p->batches[i].is_out = false;
        p->free_batch = i;
    }
    p->waiting_loads = p->waiting_stores = (qr_planner_queue){QR_NIL, QR_NIL};
    p->open_store = QR_NIL;
}

qr_planner_batch *qr_planner_new_batch(quire_planner *p, quire_device_op op)
{
    uint32_t at = p->free_batch;
    if (at == QR_NIL)
        return NULL;
    qr_planner_batch *batch = &p->batches[at];
    p->free_batch = batch->next;
    p->num_free_batches--;
    batch->job = (quire_device_job){.id = at, .op = op, .copies = batch->copies};
    batch->next = QR_NIL;
    batch->is_used = true;
    batch->is_out = batch->is_dropped = batch->is_released = false;
    return batch;
}

static void push(quire_planner *p, qr_planner_queue *queue, qr_planner_batch *batch)
{
    uint32_t at = (uint32_t)(batch - p->batches);
    if (queue->first == QR_NIL)
        queue->first = at;
    else
        p->batches[queue->last].next = at;
    queue->last = at;
    batch->next = QR_NIL;
}

void qr_planner_queue_batch(quire_planner *p, qr_planner_batch *batch)
{
    bool is_load = batch->job.op == QUIRE_DEVICE_LOAD;
    push(p, is_load ? &p->waiting_loads : &p->waiting_stores, batch);
}

void qr_planner_free_batch(quire_planner *p, qr_planner_batch *batch)
{
    batch->is_used = false;
    batch->next = p->free_batch;
    p->free_batch = (uint32_t)(batch - p->batches);
    p->num_free_batches++;
}

void qr_planner_hold(quire_planner *p, quire_block block)
{
    if (p->is_held_taken)
        p->num_held = 0;
    p->is_held_taken = false;
    p->held[p->num_held++] = block;
}

void qr_planner_release(quire_planner *p, qr_planner_batch *batch)
{
    if (batch->is_released || (batch->job.op == QUIRE_DEVICE_LOAD && !p->holds_loads))
        return;
    batch->is_released = true;
    for (uint32_t i = 0; i < batch->job.num_copies; i++)
        p->released[p->num_released++] = batch->copies[i].block;
}

void qr_planner_unqueue_load(quire_planner *p, uint32_t index)
{
    qr_planner_queue kept = {QR_NIL, QR_NIL};
    for (uint32_t at = p->waiting_loads.first, next; at != QR_NIL; at = next) {
        qr_planner_batch *batch = &p->batches[at];
        next = batch->next;
        if (batch->owner != index) {
            push(p, &kept, batch);
            continue;
        }
        qr_planner_release(p, batch);
        qr_planner_end_load_batch(p, batch, false);
    }
    p->waiting_loads = kept;
}

/* False: the plan is full. */
static bool send_queue(quire_planner *p, qr_planner_queue *queue)
{
    while (queue->first != QR_NIL) {
        qr_planner_batch *batch = &p->batches[queue->first];
        if (p->device->ops->submit(p->device->self, &batch->job) != QUIRE_OK)
            return false;
        batch->is_out = true;
        queue->first = batch->next;
    }
    return true;
}

void qr_planner_send(quire_planner *p)
{
    p->open_store = QR_NIL; /* what comes now is of the next plan */
    if (send_queue(p, &p->waiting_loads))
        (void)send_queue(p, &p->waiting_stores);
}

void qr_planner_poll(quire_planner *p)
{
    enum { AT_ONCE = QR_AT_A_TIME(32, 2) };
    quire_device_job *ended[AT_ONCE];
    uint32_t n = AT_ONCE;
    while (n == AT_ONCE) {
        n = p->device->ops->poll(p->device->self, ended, AT_ONCE);
        for (uint32_t i = 0; i < n; i++) {
            qr_planner_batch *batch = (qr_planner_batch *)(void *)ended[i];
            bool is_good = batch->job.status == QUIRE_OK;
            qr_planner_release(p, batch);
            if (batch->job.op == QUIRE_DEVICE_LOAD)
                qr_planner_end_load_batch(p, batch, is_good);
            else
                qr_planner_end_store(p, batch, is_good);
        }
    }
}
