/* tier/offload/ends.c - what becomes of stores when they have ended. */
#include "tier/offload/offload.h"

#include "base/hooks.h"

qr_offload_event *qr_store_event(quire_offload *o, uint64_t id)
{
    qr_offload_event *event = &o->events[id & (o->num_places - 1)];
    return event->store.count > 0 && event->id == id ? event : NULL;
}

void qr_store_report(quire_offload *o, qr_offload_event *event, uint32_t num_reports)
{
    event->num_reports += num_reports;
    if (!event->is_listed)
        o->told_events[o->num_told_events++] = (uint32_t)(event - o->events);
    event->is_listed = true;
}

/* Blocks that were stored lazily are as cold as before, unless a request had them meanwhile: the
 * cold ones are kept in o->refs, and go back together. */
static uint32_t free_gpu_blocks(quire_offload *o, const quire_block *gpu, uint32_t n,
                                uint32_t num_cold)
{
    uint32_t num_used = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (qr_bit_get(o->is_used, gpu[i]))
            o->scratch[num_used++] = gpu[i];
        else
            o->refs[num_cold++] = gpu[i];
        qr_bit_clear(o->is_storing, gpu[i]);
        qr_bit_clear(o->is_used, gpu[i]);
    }
    quire_pool_let_go(o->gpu, o->scratch, num_used, 0);
    return num_cold;
}

/* From the first on, however they are freed: where a tier has not room for all, their head is worth
 * more. */
static void offer_transfers(quire_offload *o, const qr_offload_event *event)
{
    for (uint32_t at = event->store.first; at != QR_NIL; at = o->transfers[at].next) {
        const qr_transfer_batch *batch = &o->transfers[at];
        const uint32_t *crcs = event->has_crcs ? batch->crcs : NULL;
        qr_promote_stored(o->promote, batch->cpu, crcs, batch->count);
    }
}

static uint32_t keep_transfer(quire_offload *o, const qr_transfer_batch *batch, uint32_t num_cold)
{
    uint32_t n = batch->count;
    if (!o->is_lazy) {
        quire_pool_leave_same(o->cpu, o->gpu, batch->gpu, batch->cpu, n);
        return num_cold;
    }
    quire_block last_first[QR_TRANSFER_PAIRS];
    qr_reverse(batch->cpu, n, last_first);
    quire_pool_let_go(o->cpu, last_first, n, 0);
    return free_gpu_blocks(o, batch->gpu, n, num_cold);
}

/* To the head: there is nothing in them. */
static uint32_t drop_transfer(quire_offload *o, const qr_transfer_batch *batch, uint32_t num_cold)
{
    if (o->promote != NULL)
        qr_promote_forget_content(o->promote, batch->cpu, batch->count);
    quire_pool_evict_blocks(o->cpu, batch->cpu, batch->count);
    quire_pool_let_go(o->cpu, batch->cpu, batch->count, 1);
    if (o->is_lazy)
        return free_gpu_blocks(o, batch->gpu, batch->count, num_cold);
    quire_pool_let_go(o->gpu, batch->gpu, batch->count, 0);
    return num_cold;
}

/* Of the usual stores the last block first: it is the first to go. Returns how many cold GPU blocks
 * are in o->refs, still held. */
static uint32_t finish_blocks(quire_offload *o, const qr_offload_event *event)
{
    bool is_last_first = !o->is_lazy;
    bool is_good = !event->store.has_failed && !event->is_dropped;
    uint32_t num_cold = 0;
    if (is_good && o->promote != NULL)
        offer_transfers(o, event);
    uint32_t at = is_last_first ? event->store.last : event->store.first;
    while (at != QR_NIL) {
        const qr_transfer_batch *batch = &o->transfers[at];
        uint32_t next = is_last_first ? batch->prev : batch->next;
        uint32_t n = batch->count;
        num_cold = is_good ? keep_transfer(o, batch, num_cold) : drop_transfer(o, batch, num_cold);
        if (is_good)
            qr_share_offer(&o->share, batch->cpu, event->has_crcs ? batch->crcs : NULL, n);
        o->num_flight -= n;
        qr_count_add(&o->counters.stores_in_flight, 0 - (uint64_t)n);
        qr_count_add(is_good ? &o->counters.stored_blocks : &o->counters.failed_stores, n);
        qr_transfers_return(o, at);
        at = next;
    }
    return num_cold;
}

static void end_event(quire_offload *o, qr_offload_event *event)
{
    o->num_late -= event->is_late;
    if (event->has_saved)
        o->last_waiting = 0; /* a look finds them now */
    *event = (qr_offload_event){0};
    o->num_events--;
}

void qr_store_note_late(quire_offload *o)
{
    uint64_t now_ns = qr_now_ns(&o->hooks);
    if (now_ns < o->next_due_ns)
        return;
    o->next_due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < o->num_places; i++) {
        qr_offload_event *event = &o->events[i];
        if (event->store.count == 0 || event->is_late)
            continue;
        event->is_late = event->store.due_ns <= now_ns;
        o->num_late += event->is_late;
        if (!event->is_late && event->store.due_ns < o->next_due_ns)
            o->next_due_ns = event->store.due_ns;
    }
}

void qr_store_finish_told(quire_offload *o)
{
    for (uint32_t i = 0; i < o->num_told_events; i++) {
        qr_offload_event *event = &o->events[o->told_events[i]];
        event->is_listed = false;
        if (event->num_reports < o->num_workers)
            continue;
        uint32_t num_cold = finish_blocks(o, event);
        quire_pool_let_go(o->gpu, o->refs, num_cold, 1);
        end_event(o, event);
    }
    o->num_told_events = 0;
}

void qr_store_drop_all(quire_offload *o)
{
    for (uint32_t i = 0; i < o->num_places; i++)
        o->events[i].is_dropped = o->events[i].store.count > 0;
    qr_offload_event kept = {.store = o->kept, .is_dropped = true};
    o->kept = QR_NO_TRANSFERS; /* nobody has begun these */
    o->has_saved = false;
    uint32_t num_cold = finish_blocks(o, &kept);
    quire_pool_let_go(o->gpu, o->refs, num_cold, 1);
}

void qr_store_undo(quire_offload *o, qr_offload_event *event)
{
    event->store.has_failed = true;
    for (uint32_t i = 0; i < o->num_walked; i++)
        if (!qr_bit_get(o->is_storing, o->walked[i]))
            quire_pool_hold(o->gpu, &o->walked[i], 1);
    finish_blocks(o, event);
    quire_pool_let_go(o->gpu, o->walked, o->num_walked, 1);
    o->num_walked = 0;
    o->walked_at -= o->target_free; /* again, in the next step */
    if (o->meta.store_event == event->id) {
        o->meta.store_event = QUIRE_OFFLOAD_NO_EVENT;
        o->meta.num_stores = 0;
    }
    end_event(o, event);
}
