#include "tier/offload/ends.h"

#include "base/hooks.h"
#include "tier/offload/carts.h"

qr_offload_event *qr_store_event(quire_offload *o, uint64_t id)
{
    qr_offload_event *event = &o->events[id & (o->num_places - 1)];
    return event->count > 0 && event->id == id ? event : NULL;
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
    qr_gpu_let_go(o, o->scratch, num_used);
    return num_cold;
}

/* Returns how many cold GPU blocks are in o->refs, still held. */
static uint32_t leave_gpu_blocks(quire_offload *o, const quire_block *gpu, uint32_t n,
                                 uint32_t num_cold)
{
    if (!o->is_lazy || o->is_vllm) {
        qr_gpu_let_go(o, gpu, n);
        return num_cold;
    }
    return free_gpu_blocks(o, gpu, n, num_cold);
}

static void offer_cart(quire_offload *o, const qr_offload_event *event, const qr_offload_cart *cart)
{
    const uint32_t *crcs = event->has_crcs ? cart->crcs : NULL;
    if (o->promote != NULL)
        qr_promote_stored(o->promote, cart->cpu, crcs, NULL, cart->count);
}

/* From the first on, however they are freed: where a tier has not room for all, their head is worth
 * more. In vLLM's profile they have no keys yet. */
static void offer_carts(quire_offload *o, const qr_offload_event *event)
{
    for (uint32_t at = event->first; !o->is_vllm && at != QR_NIL; at = o->carts[at].next)
        offer_cart(o, event, &o->carts[at]);
}

/* vLLM frees them first to last, and evicts the head of a prompt before what is behind it. */
static uint32_t keep_cart(quire_offload *o, const qr_offload_event *event,
                          const qr_offload_cart *cart, uint32_t num_cold)
{
    uint32_t n = cart->count;
    if (o->is_vllm) {
        quire_pool_cache_same(o->cpu, cart->cpu, o->gpu, cart->gpu, n);
        offer_cart(o, event, cart);
        quire_pool_free_blocks(o->cpu, cart->cpu, n);
    } else if (o->is_lazy) {
        quire_block last_first[QR_CART_PAIRS];
        qr_reverse(cart->cpu, n, last_first);
        quire_pool_let_go(o->cpu, last_first, n, 0);
    } else {
        quire_pool_leave_same(o->cpu, o->gpu, cart->gpu, cart->cpu, n);
        return num_cold;
    }
    return leave_gpu_blocks(o, cart->gpu, n, num_cold);
}

/* To the head: there is nothing in them. */
static uint32_t drop_cart(quire_offload *o, const qr_offload_cart *cart, uint32_t num_cold)
{
    if (o->promote != NULL)
        qr_promote_forget_content(o->promote, cart->cpu, cart->count);
    quire_pool_evict_blocks(o->cpu, cart->cpu, cart->count);
    if (o->is_vllm) {
        quire_pool_hold(o->cpu, cart->cpu, cart->count);
        quire_pool_free_blocks(o->cpu, cart->cpu, cart->count);
    }
    quire_pool_let_go(o->cpu, cart->cpu, cart->count, 1);
    return leave_gpu_blocks(o, cart->gpu, cart->count, num_cold);
}

/* Of the usual stores the last block first: it is the first to go. Returns how many cold GPU blocks
 * are in o->refs, still held. */
static uint32_t finish_blocks(quire_offload *o, const qr_offload_event *event)
{
    bool is_last_first = !o->is_vllm && !o->is_lazy;
    bool is_good = !event->has_failed && !event->is_dropped;
    uint32_t num_cold = 0;
    if (is_good)
        offer_carts(o, event);
    uint32_t at = is_last_first ? event->last : event->first;
    while (at != QR_NIL) {
        const qr_offload_cart *cart = &o->carts[at];
        uint32_t next = is_last_first ? cart->prev : cart->next;
        uint32_t n = cart->count;
        num_cold = is_good ? keep_cart(o, event, cart, num_cold) : drop_cart(o, cart, num_cold);
        if (is_good)
            qr_share_offer(&o->share, cart->cpu, event->has_crcs ? cart->crcs : NULL, n);
        o->num_flight -= o->is_vllm ? 0 : n;
        qr_count(&o->counters.stores_in_flight, 0 - (uint64_t)n);
        qr_count(is_good ? &o->counters.stored_blocks : &o->counters.failed_stores, n);
        qr_carts_return(o, at);
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
        if (event->count == 0 || event->is_late)
            continue;
        event->is_late = event->due_ns <= now_ns;
        o->num_late += event->is_late;
        if (!event->is_late && event->due_ns < o->next_due_ns)
            o->next_due_ns = event->due_ns;
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
        o->events[i].is_dropped = o->events[i].count > 0;
    qr_offload_event kept = {.first = o->kept_first, .last = o->kept_last, .is_dropped = true};
    o->kept_first = o->kept_last = QR_NIL; /* nobody has begun these */
    o->has_saved = false;
    uint32_t num_cold = finish_blocks(o, &kept);
    quire_pool_let_go(o->gpu, o->refs, num_cold, 1);
}

void qr_store_undo(quire_offload *o, qr_offload_event *event)
{
    event->has_failed = true;
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
