#include "engine/cuda/flaky.h"

static uint32_t draw_below(engine_flaky *f, uint32_t below)
{
    f->random = f->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(f->random >> 33) % below;
}

static engine_flaky_job *find_job(engine_flaky *f, const quire_device_job *job)
{
    for (uint32_t i = 0; i < ENGINE_FLAKY_MOST; i++)
        if (f->jobs[i].job == job)
            return &f->jobs[i];
    return NULL;
}

static int flaky_mark(void *self, uint64_t *mark)
{
    engine_flaky *f = self;
    return f->inner->ops->mark(f->inner->self, mark);
}

static int flaky_submit(void *self, quire_device_job *job)
{
    engine_flaky *f = self;
    engine_flaky_job *failing = NULL;
    if (job->state == 0 && job->num_copies > 0 && draw_below(f, 1000) < f->fail_per_mille)
        failing = find_job(f, NULL);
    if (failing == NULL)
        return f->inner->ops->submit(f->inner->self, job);
    engine_flaky_job kept = {.job = job, .num_copies = job->num_copies};
    uint32_t num_made = draw_below(f, job->num_copies);
    if (num_made == 0) {
        kept.is_ended = 1;
        job->state = 1;
    } else {
        job->num_copies = num_made;
        int status = f->inner->ops->submit(f->inner->self, job);
        if (status != QUIRE_OK) {
            job->num_copies = kept.num_copies;
            return status;
        }
    }
    *failing = kept;
    return QUIRE_OK;
}

static void fail_job(engine_flaky_job *failing)
{
    failing->job->num_copies = failing->num_copies;
    failing->job->status = QUIRE_E_SYSTEM;
    failing->job->state = 0;
    *failing = (engine_flaky_job){0};
}

static uint32_t flaky_poll(void *self, quire_device_job **jobs, uint32_t capacity)
{
    engine_flaky *f = self;
    uint32_t n = 0;
    for (uint32_t i = 0; i < ENGINE_FLAKY_MOST && n < capacity; i++) {
        if (f->jobs[i].job == NULL || f->jobs[i].is_ended == 0)
            continue;
        jobs[n++] = f->jobs[i].job;
        fail_job(&f->jobs[i]);
    }
    uint32_t own = n;
    n += f->inner->ops->poll(f->inner->self, jobs + n, capacity - n);
    for (uint32_t i = own; i < n; i++) {
        engine_flaky_job *failing = find_job(f, jobs[i]);
        if (failing != NULL)
            fail_job(failing);
    }
    return n;
}

static void flaky_close(void *self)
{
    (void)self; /* whoever opened the real one closes it */
}

static const quire_device_ops FLAKY_OPS = {.abi = 1,
                                           .size = sizeof(quire_device_ops),
                                           .name = "flaky",
                                           .mark = flaky_mark,
                                           .submit = flaky_submit,
                                           .poll = flaky_poll,
                                           .close = flaky_close};

const quire_device *engine_flaky_open(engine_flaky *flaky, quire_device *inner)
{
    *flaky = (engine_flaky){.inner = inner, .random = 1};
    flaky->outer = (quire_device){&FLAKY_OPS, flaky};
    return &flaky->outer;
}
