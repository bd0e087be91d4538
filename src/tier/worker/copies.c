/* tier/worker/copies.c - copies between the engine's blocks and slots. Loads go first: requests
 * wait for them. */
#include "tier/worker/worker.h"

#include "base/hooks.h"

enum { IN = 0, OUT = 1 };

static void wait_for_device(quire_worker *w, uint32_t place)
{
    uint32_t way = w->copies[place].job.op == QUIRE_DEVICE_LOAD ? IN : OUT;
    w->copies[place].next = QR_NIL;
    if (w->first_in[way] == QR_NIL)
        w->first_in[way] = place;
    else
        w->copies[w->last_in[way]].next = place;
    w->last_in[way] = place;
}

static void end_copies(quire_worker *w, qr_worker_copies *c, int status)
{
    c->job.status = status;
    if (c->job.op == QUIRE_DEVICE_STORE && status == QUIRE_OK)
        for (uint32_t i = 0; i < c->job.num_copies; i++) {
            w->crcs[c->copies[i].slot] = c->copies[i].crc;
            w->has_bytes[c->copies[i].slot] = 1;
        }
    w->ended[w->num_ended++] = (uint32_t)(c - w->copies);
}

void qr_worker_copy(quire_worker *w, const qr_plan_job *planned, uint64_t now_ns)
{
    uint32_t place = qr_plan_place(planned->id);
    qr_worker_copies *c = &w->copies[place];
    bool is_out = planned->kind == QR_PLAN_COPY_OUT;
    bool has_bytes = true;
    c->id = planned->id;
    c->start_ns = now_ns;
    c->job = (quire_device_job){.id = place,
                                .op = is_out ? QUIRE_DEVICE_STORE : QUIRE_DEVICE_LOAD,
                                .num_copies = planned->count,
                                .copies = c->copies};
    for (uint32_t i = 0; i < planned->count; i++) {
        uint32_t slot = qr_plan_slot(planned, i);
        c->copies[i] = (quire_device_copy){.block = qr_plan_block(planned, i), .slot = slot};
        if (is_out)
            w->crcs[slot] = w->has_bytes[slot] = 0;
        else
            has_bytes = has_bytes && w->has_bytes[slot] != 0;
    }
    if (has_bytes)
        wait_for_device(w, place);
    else /* another worker had them */
        end_copies(w, c, QUIRE_E_SYSTEM);
}

/* The mark is behind everything that was submitted before this plan. Copies that wait longer keep
 * their mark. */
static int mark_new(quire_worker *w)
{
    uint64_t mark;
    int err = w->device.ops->mark(w->device.self, &mark);
    for (uint32_t way = IN; way <= OUT; way++)
        for (uint32_t i = w->first_in[way]; i != QR_NIL; i = w->copies[i].next)
            if (w->copies[i].job.after == 0)
                w->copies[i].job.after = mark;
    return err;
}

static bool send_way(quire_worker *w, uint32_t way)
{
    while (w->first_in[way] != QR_NIL) {
        qr_worker_copies *c = &w->copies[w->first_in[way]];
        int err = w->device.ops->submit(w->device.self, &c->job);
        if (err == QUIRE_FULL)
            return false;
        w->first_in[way] = c->next;
        if (err != QUIRE_OK)
            end_copies(w, c, err);
    }
    return true;
}

/* Without a mark nothing may be copied. */
static void fail_waiting(quire_worker *w)
{
    for (uint32_t way = IN; way <= OUT; way++)
        for (; w->first_in[way] != QR_NIL; w->first_in[way] = w->copies[w->first_in[way]].next)
            end_copies(w, &w->copies[w->first_in[way]], QUIRE_E_SYSTEM);
}

void qr_worker_send_copies(quire_worker *w, bool has_new)
{
    if (has_new && mark_new(w) != QUIRE_OK)
        fail_waiting(w);
    if (send_way(w, IN))
        (void)send_way(w, OUT);
}

void qr_worker_poll_copies(quire_worker *w)
{
    enum { AT_ONCE = QR_AT_A_TIME(32, 2) };
    quire_device_job *ended[AT_ONCE];
    uint32_t n = AT_ONCE;
    while (n == AT_ONCE) {
        n = w->device.ops->poll(w->device.self, ended, AT_ONCE);
        for (uint32_t i = 0; i < n; i++)
            end_copies(w, (qr_worker_copies *)(void *)ended[i], ended[i]->status);
    }
    qr_worker_send_copies(w, false);
}
