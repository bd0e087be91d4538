#include "queue.h"

#include "trace/content.h"

#include <stdlib.h>

bool tiers_queue_init(tiers_queue *q, uint32_t capacity, double bytes_per_s, double latency_s)
{
    *q = (tiers_queue){.ns_per_byte = 1e9 / bytes_per_s,
                       .latency_ns = (uint64_t)(latency_s * 1e9),
                       .entries = calloc(capacity, sizeof *q->entries),
                       .capacity = capacity};
    return q->entries != NULL;
}

void tiers_queue_free(tiers_queue *q)
{
    free(q->entries);
    *q = (tiers_queue){0};
}

static void put_entry(tiers_queue *q, void *job, uint64_t end_ns)
{
    uint32_t last = (q->first + q->num) % q->capacity;
    q->entries[last] = (tiers_queue_entry){.job = job, .end_ns = end_ns};
    q->num++;
}

void tiers_queue_delay(tiers_queue *q, uint64_t from_ns, uint64_t bytes)
{
    uint64_t start = q->free_ns > from_ns ? q->free_ns : from_ns;
    q->free_ns = start + (uint64_t)((double)bytes * q->ns_per_byte);
}

void tiers_queue_put(tiers_queue *q, void *job, uint64_t from_ns, uint64_t bytes)
{
    tiers_queue_delay(q, from_ns, bytes);
    put_entry(q, job, q->free_ns + q->latency_ns);
}

void tiers_queue_put_failed(tiers_queue *q, void *job, uint64_t now_ns)
{
    uint32_t last = (q->first + q->num + q->capacity - 1) % q->capacity;
    uint64_t before = q->num > 0 ? q->entries[last].end_ns : 0;
    put_entry(q, job, before > now_ns ? before : now_ns);
}

void *tiers_queue_take(tiers_queue *q, uint64_t now_ns)
{
    if (tiers_queue_next_ns(q) > now_ns || q->num == 0)
        return NULL;
    void *job = q->entries[q->first].job;
    q->first = (q->first + 1) % q->capacity;
    q->num--;
    return job;
}

uint64_t tiers_queue_next_ns(const tiers_queue *q)
{
    return q->num > 0 ? q->entries[q->first].end_ns : UINT64_MAX;
}

double tiers_dice(uint64_t *state)
{
    return (double)(content_random(state) >> 11) * 0x1p-53;
}
