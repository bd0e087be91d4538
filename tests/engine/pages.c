#include "engine/pages.h"

#include <quire/tier.h>

#include <stdlib.h>

enum { MAX_JOBS = 256 };

typedef struct page_job {
    quire_device_job job; /* of pages */
    uint32_t capacity;    /* of job.copies */
    quire_device_job *outer;
} page_job;

typedef struct pages {
    quire_device *inner;
    uint32_t num_blocks;
    uint32_t num_layers;
    const unsigned char *slots;
    uint64_t block_bytes;
    page_job jobs[MAX_JOBS];
} pages;

static int pages_mark(void *self, uint64_t *mark)
{
    pages *p = self;
    return p->inner->ops->mark(p->inner->self, mark);
}

static page_job *free_job(pages *p, uint32_t num_copies)
{
    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        page_job *j = &p->jobs[i];
        if (j->outer != NULL)
            continue;
        if (j->capacity < num_copies) {
            quire_device_copy *copies = realloc(j->job.copies, num_copies * sizeof *copies);
            if (copies == NULL)
                return NULL;
            j->job.copies = copies;
            j->capacity = num_copies;
        }
        return j;
    }
    return NULL;
}

static int pages_submit(void *self, quire_device_job *outer)
{
    pages *p = self;
    if (outer->state != 0)
        return QUIRE_E_ARGUMENT;
    page_job *j = free_job(p, outer->num_copies * p->num_layers);
    if (j == NULL)
        return QUIRE_FULL;
    j->job.op = outer->op;
    j->job.after = outer->after;
    j->job.num_copies = outer->num_copies * p->num_layers;
    for (uint32_t i = 0; i < outer->num_copies; i++) {
        if (outer->copies[i].block >= p->num_blocks)
            return QUIRE_E_RANGE;
        for (uint32_t l = 0; l < p->num_layers; l++)
            j->job.copies[i * p->num_layers + l] =
                (quire_device_copy){.block = l * p->num_blocks + outer->copies[i].block,
                                    .slot = outer->copies[i].slot * p->num_layers + l};
    }
    int status = p->inner->ops->submit(p->inner->self, &j->job);
    if (status != QUIRE_OK)
        return status;
    j->outer = outer;
    outer->state = 1;
    return QUIRE_OK;
}

static void end_job(const pages *p, page_job *j)
{
    quire_device_job *outer = j->outer;
    for (uint32_t i = 0; i < outer->num_copies; i++) {
        quire_device_copy *copy = &outer->copies[i];
        copy->crc = 0;
        if (outer->op == QUIRE_DEVICE_STORE)
            copy->crc = quire_crc32c(0, p->slots + copy->slot * p->block_bytes, p->block_bytes);
    }
    outer->status = j->job.status;
    outer->state = 0;
    j->outer = NULL;
}

static uint32_t pages_poll(void *self, quire_device_job **jobs, uint32_t capacity)
{
    pages *p = self;
    uint32_t n = p->inner->ops->poll(p->inner->self, jobs, capacity);
    for (uint32_t i = 0; i < n; i++) {
        page_job *j = (page_job *)(void *)jobs[i]; /* its first member */
        jobs[i] = j->outer;
        end_job(p, j);
    }
    return n;
}

static void pages_close(void *self)
{
    pages *p = self;
    for (uint32_t i = 0; i < MAX_JOBS; i++)
        free(p->jobs[i].job.copies);
    free(p);
}

static const quire_device_ops PAGES_OPS = {.abi = 1,
                                           .size = sizeof PAGES_OPS,
                                           .name = "pages",
                                           .mark = pages_mark,
                                           .submit = pages_submit,
                                           .poll = pages_poll,
                                           .close = pages_close};

void *engine_pages_create(quire_device *inner, uint32_t num_blocks, uint32_t num_layers,
                          const void *slots, uint64_t block_bytes, quire_device *device)
{
    pages *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->inner = inner;
    p->num_blocks = num_blocks;
    p->num_layers = num_layers;
    p->slots = slots;
    p->block_bytes = block_bytes;
    *device = (quire_device){&PAGES_OPS, p};
    return p;
}
