#include "event_log.h"

#include <stdio.h>
#include <string.h>

static void add_bytes(event_log *log, const void *data, size_t len)
{
    if (log->len + len <= EVENT_LOG_BYTES)
        memcpy(log->bytes + log->len, data, len);
    log->len += len;
}

static void add_u32(event_log *log, uint32_t v)
{
    add_bytes(log, &v, sizeof v);
}

static void add_stored(event_log *log, const quire_event *event)
{
    add_u32(log, event->first_block);
    add_u32(log, event->block_size);
    add_bytes(log, &event->request, sizeof event->request);
    add_u32(log, event->parent.data != NULL ? (uint32_t)event->parent.len : 0);
    if (event->parent.data != NULL)
        add_bytes(log, event->parent.data, event->parent.len);
}

void event_log_clear(event_log *log)
{
    log->len = 0;
    log->num_events = 0;
}

void event_log_add(void *user, const quire_event *event)
{
    event_log *log = user;
    log->num_events++;
    add_u32(log, (uint32_t)event->kind);
    if (event->kind == QUIRE_EVENT_CLEARED)
        return;
    add_u32(log, event->group_id);
    add_u32(log, event->num_blocks);
    add_u32(log, event->hash_bytes);
    if (event->kind == QUIRE_EVENT_STORED)
        add_stored(log, event);
    else
        add_u32(log, event->still_cached);
    add_bytes(log, event->blocks, event->num_blocks * sizeof event->blocks[0]);
    add_bytes(log, event->hashes, (size_t)event->num_blocks * event->hash_bytes);
}

void event_log_truncate(event_log *log, size_t len, uint32_t num_events)
{
    log->len = len;
    log->num_events = num_events;
}

bool event_log_equal(const event_log *a, const event_log *b)
{
    return a->num_events == b->num_events && a->len == b->len && a->len <= EVENT_LOG_BYTES &&
           memcmp(a->bytes, b->bytes, a->len) == 0;
}

void event_log_print(const char *name, const event_log *log)
{
    size_t len = log->len < EVENT_LOG_BYTES ? log->len : EVENT_LOG_BYTES;
    printf("  %s events: %u, %zu bytes:", name, (unsigned)log->num_events, log->len);
    for (size_t i = 0; i < len; i++)
        printf("%s%02x", i % 4 == 0 ? " " : "", (unsigned)log->bytes[i]);
    printf("\n");
}
