#include "events/publish/replay_buffer.h"

#include "base/memory.h"

#include <quire/error.h>

int qr_replay_buffer_init(qr_replay_buffer *buffer, uint32_t capacity, uint64_t max_bytes)
{
    *buffer = (qr_replay_buffer){.capacity = capacity, .max_bytes = max_bytes};
    buffer->batches = qr_alloc(capacity, sizeof(qr_payload *));
    return buffer->batches == NULL ? QUIRE_E_NOMEM : QUIRE_OK;
}

static uint64_t oldest_number(const qr_replay_buffer *buffer)
{
    return buffer->next - buffer->count;
}

static void drop_oldest(qr_replay_buffer *buffer)
{
    qr_payload **place = &buffer->batches[oldest_number(buffer) % buffer->capacity];
    buffer->bytes -= qr_payload_bytes(*place);
    buffer->count--;
    qr_payload_drop(*place);
    *place = NULL;
}

void qr_replay_buffer_release(qr_replay_buffer *buffer)
{
    while (buffer->count > 0)
        drop_oldest(buffer);
    qr_free(buffer->batches);
    buffer->batches = NULL;
}

void qr_replay_buffer_push(qr_replay_buffer *buffer, qr_payload *payload)
{
    while (buffer->count > 0 && (buffer->count == buffer->capacity ||
                                 buffer->bytes + qr_payload_bytes(payload) > buffer->max_bytes))
        drop_oldest(buffer);
    buffer->batches[buffer->next % buffer->capacity] = payload;
    buffer->bytes += qr_payload_bytes(payload);
    buffer->count++;
    buffer->next++;
}

qr_payload *qr_replay_buffer_find(const qr_replay_buffer *buffer, uint64_t number)
{
    if (number >= buffer->next || buffer->count == 0)
        return NULL;
    uint64_t oldest = oldest_number(buffer);
    return buffer->batches[(number < oldest ? oldest : number) % buffer->capacity];
}
