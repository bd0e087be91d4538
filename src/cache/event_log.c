#include "cache/event_log.h"

#include "base/assert.h"

void qr_event_log_carve(qr_event_log *log, qr_arena *arena, size_t size)
{
    *log = (qr_event_log){.bytes = qr_arena_take(arena, size, 1), .size = size};
}

static size_t round_up_8(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

static size_t log_bytes(unsigned char *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
    return round_up_8(bytes);
}

/* The event's own pointers are of no use in the log; they are set when it is taken. */
void qr_event_log_add(qr_event_log *log, const quire_event *event)
{
    size_t hashes = (size_t)event->num_blocks * event->hash_bytes;
    size_t blocks = (size_t)event->num_blocks * sizeof *event->blocks;
    size_t need = round_up_8(sizeof *event) + round_up_8(event->parent.len) + round_up_8(hashes) +
                  round_up_8(blocks);
    if (log->num_lost > 0 || need > log->size - log->used) {
        log->num_lost++;
        return;
    }
    unsigned char *to = log->bytes + log->used;
    to += log_bytes(to, event, sizeof *event);
    to += log_bytes(to, event->parent.data, event->parent.len);
    to += log_bytes(to, event->hashes, hashes);
    to += log_bytes(to, event->blocks, blocks);
    log->used += need;
    qr_assert(to == log->bytes + log->used);
}

uint64_t qr_event_log_take(qr_event_log *log, void (*visit)(void *user, const quire_event *event),
                           void *user)
{
    const unsigned char *at = log->bytes;
    const unsigned char *end = log->bytes + log->used;
    while (at < end) {
        quire_event event = QUIRE_EVENT_INIT;
        memcpy(&event, at, sizeof event);
        at += round_up_8(sizeof event);
        event.parent.data = event.parent.len > 0 ? at : NULL;
        at += round_up_8(event.parent.len);
        event.hashes = event.num_blocks > 0 ? at : NULL;
        at += round_up_8((size_t)event.num_blocks * event.hash_bytes);
        event.blocks = event.num_blocks > 0 ? (const quire_block *)(const void *)at : NULL;
        at += round_up_8((size_t)event.num_blocks * sizeof *event.blocks);
        visit(user, &event);
    }
    uint64_t lost = log->num_lost;
    log->used = 0;
    log->num_lost = 0;
    return lost;
}
