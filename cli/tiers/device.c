#include "device.h"

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

/* ---- the device ------------------------------------------------------------ */

static int device_mark(void *self, uint64_t *mark)
{
    tiers_device *d = self;
    *mark = d->compute_end_ns(d->user);
    return QUIRE_OK;
}

static int device_submit(void *self, quire_device_job *job)
{
    tiers_device *d = self;
    bool is_store = job->op == QUIRE_DEVICE_STORE;
    tiers_queue *q = is_store ? &d->stores : &d->loads;
    uint64_t now_ns = d->now_ns(d->user);
    if (tiers_queue_is_full(q))
        return QUIRE_FULL;
    if (d->failures >= 1) { /* it is broken, and says so at once */
        d->failed_blocks += job->num_copies;
        return QUIRE_E_SYSTEM;
    }
    if (d->begun != NULL)
        d->begun(d->bytes_user, job);
    bool is_failed = d->failures > 0 && tiers_dice(&d->dice) < d->failures;
    job->status = is_failed ? QUIRE_E_SYSTEM : QUIRE_OK;
    if (is_failed) {
        tiers_queue_put_failed(q, job, now_ns);
        return QUIRE_OK;
    }
    uint64_t from_ns = job->after > now_ns ? job->after : now_ns;
    tiers_queue_put(q, job, from_ns, job->num_copies * d->block_bytes);
    return QUIRE_OK;
}

static void count_job(tiers_device *d, quire_device_job *job)
{
    if (job->status != QUIRE_OK) {
        d->failed_blocks += job->num_copies;
        return;
    }
    if (job->op == QUIRE_DEVICE_STORE)
        d->in_blocks += job->num_copies;
    else
        d->out_blocks += job->num_copies;
    if (d->done != NULL)
        d->done(d->bytes_user, job);
}

static uint32_t device_poll(void *self, quire_device_job **jobs, uint32_t capacity)
{
    tiers_device *d = self;
    uint64_t now_ns = d->now_ns(d->user);
    uint32_t num = 0;
    while (num < capacity) {
        bool is_store = tiers_queue_next_ns(&d->stores) <= tiers_queue_next_ns(&d->loads);
        quire_device_job *job = tiers_queue_take(is_store ? &d->stores : &d->loads, now_ns);
        if (job == NULL)
            break;
        count_job(d, job);
        jobs[num++] = job;
    }
    return num;
}

void tiers_device_init(tiers_device *d)
{
    static const quire_device_ops OPS = {.abi = 1,
                                         .size = sizeof OPS,
                                         .name = "simulated",
                                         .mark = device_mark,
                                         .submit = device_submit,
                                         .poll = device_poll};
    d->device = (quire_device){.ops = &OPS, .self = d};
}

uint64_t tiers_device_next_ns(const tiers_device *d)
{
    uint64_t store_ns = tiers_queue_next_ns(&d->stores);
    uint64_t load_ns = tiers_queue_next_ns(&d->loads);
    return store_ns < load_ns ? store_ns : load_ns;
}

void tiers_device_free(tiers_device *d)
{
    tiers_queue_free(&d->stores);
    tiers_queue_free(&d->loads);
}
