/* tier/worker/gone.c - keys that its tiers have not got any longer, on their way into a report.
 *
 *      slots of a tier ── key evicted ──► a place of w->gone ──► gone_out ──► report
 *      (worker's thread)                        ▲                            (caller's thread)
 *                                               └── gone_free ◄──────────────────┘
 *
 * If there is no place, the report says that all keys of the tier may be gone.
 */
#include "tier/worker/worker.h"

#include "tier/core/tier.h"

/* On the worker's thread: it alone submits and polls. */
static void take_change(void *user, uint32_t slot, const quire_tier_key *key, uint32_t is_there)
{
    (void)slot;
    qr_worker_tier *tier = user;
    quire_worker *w = tier->worker;
    uint32_t place;
    if (is_there != 0 || key->rank != w->key_rank || key->group == QR_REPORT_ALL_GONE)
        return; /* the last: of the self test */
    uint32_t t = (uint32_t)(tier - w->tiers);
    if (w->num_gone_used < QR_WORKER_GONE)
        place = w->num_gone_used++;
    else if (!qr_spsc_take(&w->gone_free, &place)) {
        (void)atomic_fetch_or_explicit(&w->all_gone, 1u << t, memory_order_release);
        return;
    }
    w->gone[place] = (qr_worker_gone){.key = *key, .tier = t};
    qr_spsc_put(&w->gone_out, place);
}

void qr_worker_watch_tiers(quire_worker *w)
{
    for (uint32_t t = 0; w->tells_gone && t < w->num_tiers; t++) {
        w->tiers[t].worker = w;
        qr_tier_watch(w->tiers[t].tier, &w->tiers[t].slots, take_change, &w->tiers[t]);
    }
}

void qr_worker_unwatch_tiers(quire_worker *w)
{
    for (uint32_t t = 0; t < w->num_tiers; t++)
        if (w->tiers[t].slots != NULL) /* else the tier is closed, or has none */
            qr_tier_unwatch(w->tiers[t].tier);
}

/* The places stay taken until they are written. */
void qr_worker_take_gone(quire_worker *w)
{
    w->all_taken = atomic_exchange_explicit(&w->all_gone, 0, memory_order_acquire);
    w->num_taken = 0;
    while (w->num_taken < QR_WORKER_GONE && qr_spsc_take(&w->gone_out, &w->taken[w->num_taken]))
        w->num_taken++;
}

void qr_worker_report_gone(quire_worker *w)
{
    for (uint32_t i = 0; i < w->num_taken; i++) {
        const qr_worker_gone *gone = &w->gone[w->taken[i]];
        (void)qr_report_add_gone(&w->writer, gone->tier, &gone->key);
        qr_spsc_put(&w->gone_free, w->taken[i]);
    }
    for (uint32_t t = 0; t < w->num_tiers; t++)
        if ((w->all_taken >> t & 1) != 0)
            (void)qr_report_add_gone(&w->writer, t, NULL);
    w->num_taken = w->all_taken = 0;
}
