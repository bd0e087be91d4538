#include "sched/watch/observer.h"

#include "base/bits.h"

void qr_observer_carve(qr_observer *observer, qr_arena *arena, uint32_t num_ghosts)
{
    *observer = (qr_observer){.num_ghosts = num_ghosts};
    observer->ghosts = qr_arena_take(arena, num_ghosts, sizeof *observer->ghosts);
}

void qr_observer_tell(const qr_observer *observer, quire_decision decision)
{
    if (observer->on_decision == NULL)
        return;
    decision.step = observer->step;
    observer->on_decision(observer->user, &decision);
}

/* Hashes are as good as random: their end is a fingerprint, and its place. Never 0. */
static uint64_t ghost_of(const unsigned char *hash, uint32_t len)
{
    return qr_load_u64(hash + len - 8) | 1;
}

static uint64_t *ghost_place(const qr_observer *observer, uint64_t ghost)
{
    return &observer->ghosts[(uint32_t)((ghost >> 32) * observer->num_ghosts >> 32)];
}

void qr_observer_take_event(void *user, const quire_event *event)
{
    qr_observer *observer = user;
    const unsigned char *hashes = event->hashes;
    for (uint32_t i = 0; observer->num_ghosts > 0 && i < event->num_blocks; i++) {
        uint64_t ghost = ghost_of(hashes + (size_t)i * event->hash_bytes, event->hash_bytes);
        uint64_t *place = ghost_place(observer, ghost);
        if (event->kind == QUIRE_EVENT_REMOVED && !event->still_cached)
            *place = ghost;
        else if (event->kind == QUIRE_EVENT_STORED && *place == ghost)
            *place = 0;
    }
    if (event->kind == QUIRE_EVENT_REMOVED && observer->taker != 0)
        qr_observer_tell(observer, (quire_decision){.kind = QUIRE_DECISION_EVICTED,
                                                    .req = observer->taker,
                                                    .block = event->blocks[0]});
    if (observer->on_event != NULL)
        observer->on_event(observer->event_user, event);
}

uint32_t qr_observer_count_ghosts(const qr_observer *observer, const unsigned char *hashes,
                                  uint32_t len, uint32_t stride, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n && observer->num_ghosts > 0; i++) {
        uint64_t ghost = ghost_of(hashes + (size_t)i * stride, len);
        count += *ghost_place(observer, ghost) == ghost;
    }
    return count;
}
