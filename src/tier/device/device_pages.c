/* tier/device/device_pages.c - a device over the tensors of an engine that computes on this
 * processor: a job is done when submit returns. */
#include "base/assert.h"
#include "base/config.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "tier/core/crc32c.h"

#include <quire/tier.h>
#include <quire/worker.h>

enum { MOST_REGIONS = 65536 };

typedef struct device_pages {
    quire_page_region *regions;
    uint32_t num_regions;
    uint32_t num_blocks;
    uint32_t num_slots;
    unsigned char *slots;
    uint64_t block_bytes;
    quire_device_job *first; /* ended, not polled */
    quire_device_job *last;
    qr_owner owner;
} device_pages;

static int mark_pages(void *self, uint64_t *mark)
{
    (void)self;
    *mark = 1; /* what was submitted has been computed */
    return QUIRE_OK;
}

static void copy_block(const device_pages *d, const quire_device_job *job, quire_device_copy *copy)
{
    unsigned char *slot = d->slots + copy->slot * d->block_bytes;
    bool is_store = job->op == QUIRE_DEVICE_STORE;
    uint32_t crc = 0;
    for (uint32_t r = 0; r < d->num_regions; r++) {
        const quire_page_region *region = &d->regions[r];
        unsigned char *page = (unsigned char *)region->base + copy->block * region->stride;
        memcpy(is_store ? slot : page, is_store ? page : slot, region->bytes);
        if (is_store)
            crc = quire_crc32c(crc, slot, region->bytes);
        slot += region->bytes;
    }
    copy->crc = crc;
}

static int submit_pages(void *self, quire_device_job *job)
{
    device_pages *d = self;
    if (job->state != 0)
        return QUIRE_E_ARGUMENT;
    for (uint32_t i = 0; i < job->num_copies; i++)
        if (job->copies[i].block >= d->num_blocks || job->copies[i].slot >= d->num_slots)
            return QUIRE_E_RANGE;
    for (uint32_t i = 0; i < job->num_copies; i++)
        copy_block(d, job, &job->copies[i]);
    job->status = QUIRE_OK;
    job->state = 1;
    job->next = NULL;
    if (d->first == NULL)
        d->first = job;
    else
        d->last->next = job;
    d->last = job;
    return QUIRE_OK;
}

static uint32_t poll_pages(void *self, quire_device_job **jobs, uint32_t capacity)
{
    device_pages *d = self;
    uint32_t n = 0;
    for (; n < capacity && d->first != NULL; n++) {
        jobs[n] = d->first;
        d->first = d->first->next;
        jobs[n]->state = 0;
    }
    return n;
}

static void close_pages(void *self)
{
    device_pages *d = self;
    qr_owner_release(&d->owner);
}

static const quire_device_ops PAGES = {.abi = 1,
                                       .size = sizeof(quire_device_ops),
                                       .name = "pages",
                                       .mark = mark_pages,
                                       .submit = submit_pages,
                                       .poll = poll_pages,
                                       .close = close_pages};

/* ---- opening --------------------------------------------------------------- */

/* Where the pages of a region begin and end; those of two regions may take turns, as K and V of one
 * tensor do, but no page may have bytes of another. */
static bool do_overlap(const quire_page_region *a, const quire_page_region *b, uint32_t num_blocks)
{
    uintptr_t x = (uintptr_t)a->base;
    uintptr_t y = (uintptr_t)b->base;
    uintptr_t x_end = x + (num_blocks - 1) * a->stride + a->bytes;
    uintptr_t y_end = y + (num_blocks - 1) * b->stride + b->bytes;
    if (x_end <= y || y_end <= x)
        return false;
    if (a->stride != b->stride)
        return true;
    uint64_t apart = (x > y ? x - y : y - x) % a->stride;
    const quire_page_region *low = x > y ? b : a;
    const quire_page_region *high = x > y ? a : b;
    return apart < low->bytes || a->stride - apart < high->bytes;
}

static int check_region(const quire_device_pages_config *c, uint32_t i)
{
    const quire_page_region *r = &c->regions[i];
    if (r->base == NULL || r->bytes == 0 || r->stride < r->bytes ||
        r->stride > UINT64_MAX / c->num_blocks / 2)
        return qr_refuse("regions[%u]: base is NULL, or bytes (%llu) is not in 1..stride (%llu)", i,
                         (unsigned long long)r->bytes, (unsigned long long)r->stride);
    for (uint32_t k = 0; k < i; k++)
        if (do_overlap(r, &c->regions[k], c->num_blocks))
            return qr_refuse("regions[%u] and regions[%u] have bytes in common", k, i);
    return QUIRE_OK;
}

static int read_pages_config(quire_device_pages_config *c, const quire_device_pages_config *callers)
{
    int err = qr_refuse_reading(c, sizeof *c, callers, "quire_device_pages_config");
    if (err != QUIRE_OK)
        return err;
    const qr_field fields[] = {QR_FIELD(c, num_regions, 1, MOST_REGIONS),
                               QR_FIELD(c, num_blocks, 1, QUIRE_MAX_BLOCKS),
                               QR_FIELD(c, num_slots, 1, QUIRE_MAX_BLOCKS)};
    err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    if (err == QUIRE_OK && (c->regions == NULL || c->slots == NULL))
        err = qr_refuse("regions or slots is NULL");
    for (uint32_t i = 0; err == QUIRE_OK && i < c->num_regions; i++)
        err = check_region(c, i);
    return err;
}

static device_pages *carve_pages(qr_arena *arena, uint32_t num_regions, device_pages *d)
{
    device_pages *made = qr_arena_take(arena, 1, sizeof *made);
    *d = (device_pages){.num_regions = num_regions};
    d->regions = qr_arena_take(arena, num_regions, sizeof *d->regions);
    return made;
}

QUIRE_API int quire_device_pages_open(const quire_device_pages_config *callers,
                                      const quire_allocator *allocator, quire_device *device)
{
    quire_device_pages_config c;
    device_pages parts;
    qr_arena plan = qr_arena_plan();
    qr_arena arena;
    qr_owner owner;
    if (device == NULL)
        return QUIRE_E_ARGUMENT;
    int err = read_pages_config(&c, callers);
    if (err != QUIRE_OK)
        return err;
    (void)carve_pages(&plan, c.num_regions, &parts);
    err = qr_owner_begin(&owner, allocator, &plan, &arena);
    if (err != QUIRE_OK)
        return err;
    device_pages *d = carve_pages(&arena, c.num_regions, &parts);
    *d = parts;
    d->owner = owner;
    d->num_blocks = c.num_blocks;
    d->num_slots = c.num_slots;
    d->slots = c.slots;
    memcpy(d->regions, c.regions, c.num_regions * sizeof *d->regions);
    for (uint32_t i = 0; i < c.num_regions; i++)
        d->block_bytes += c.regions[i].bytes;
    *device = (quire_device){.ops = &PAGES, .self = d};
    return QUIRE_OK;
}
