#include "events/payload.h"

#include "base/memory.h"

qr_payload *qr_payload_create(qr_budget *budget, uint64_t number, quire_bytes bytes)
{
    qr_payload *payload = qr_alloc_raw(sizeof *payload + bytes.len);
    if (payload == NULL)
        return NULL;
    atomic_init(&payload->refs, 1);
    payload->number = number;
    payload->budget = budget;
    payload->len = bytes.len;
    if (bytes.len > 0)
        memcpy(payload->bytes, bytes.data, bytes.len);
    atomic_fetch_add_explicit(&budget->bytes, qr_payload_bytes(payload), memory_order_relaxed);
    return payload;
}

void qr_payload_drop(qr_payload *payload)
{
    if (atomic_fetch_sub_explicit(&payload->refs, 1, memory_order_acq_rel) != 1)
        return;
    atomic_fetch_sub_explicit(&payload->budget->bytes, qr_payload_bytes(payload),
                              memory_order_relaxed);
    qr_free(payload);
}

/* Called by ZeroMQ, in one of its threads, when the last peer has the message. */
static void let_go(void *data, void *hint)
{
    (void)data;
    qr_payload_drop(hint);
}

bool qr_payload_wrap(qr_payload *payload, zmq_msg_t *frame)
{
    /* Releases what was written, for whoever drops this reference in a thread of ZeroMQ's. */
    atomic_fetch_add_explicit(&payload->refs, 1, memory_order_release);
    if (zmq_msg_init_data(frame, payload->bytes, payload->len, let_go, payload) == 0)
        return true;
    qr_payload_drop(payload);
    return false;
}
