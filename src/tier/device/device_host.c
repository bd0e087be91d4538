/* tier/device/device_host.c - a device that is host memory, with streams as a GPU has them.
 *
 *      caller                      compute thread            copy thread
 *      compute ──► works   ──────► work, work, work
 *                                     └─ computed ─────────► (mark is reached)
 *      submit  ──► submitted ──────────────────────────────► loads, stores: two queues, each in
 *      order poll    ◄── ended   ◄─────────────────────────────────┘
 *
 * A mark is how many works had been given; it is reached when as many are computed. The first of
 * each queue waits for its mark, and those behind it wait for it, as in a stream.
 */
#include <quire/device.h>

#include "base/arena.h"
#include "base/fork_guard.h"
#include "base/memory.h"
#include "base/refuse.h"
#include "base/thread.h"
#include "tier/core/crc32c.h"
#include "tier/core/spsc.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

enum { DEFAULT_MANY = 256, MOST_MANY = 65536, NUM_OPS = 3 };

typedef struct host_work {
    void (*work)(void *user);
    void *user;
} host_work;

typedef struct host_device {
    quire_device_host_config config;
    qr_fork_guard guard;
    /* the caller's */
    quire_device_job **jobs; /* by slot of max_jobs; NULL: free */
    uint32_t *free_slots;
    uint32_t num_free;
    uint64_t num_given; /* works */
    /* between threads */
    host_work *works; /* as many as given has room for */
    qr_spsc given;
    qr_spsc submitted;
    qr_spsc ended;
    _Atomic uint64_t num_computed;
    _Atomic bool is_stopping;
    _Atomic uint32_t compute_delay_us;
    _Atomic uint32_t copy_delay_us;
    _Atomic uint32_t fail_per_mille;
    _Atomic uint32_t marks_stick;
    _Atomic uint32_t ignores_marks;
    sem_t compute_wake;
    sem_t copy_wake;
    pthread_t threads[2];
    uint32_t num_threads;
    bool has_semaphores;
    /* the copy thread's */
    uint64_t num_reached; /* of the computed works, those that marks see */
    quire_device_job *first[NUM_OPS];
    quire_device_job *last[NUM_OPS];
    uint64_t copy_random;
    uint64_t compute_random;
    qr_owner owner; /* where all of this lies */
} host_device;

/* ---- the two threads ------------------------------------------------------- */

static uint64_t draw_delay(uint64_t *random, uint64_t below)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below == 0 ? 0 : (*random >> 33) % below;
}

static void sleep_us(uint64_t us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    if (us > 0)
        (void)nanosleep(&t, NULL);
}

static void wait_for(sem_t *wake)
{
    while (sem_wait(wake) != 0 && errno == EINTR)
        ;
}

static bool is_device_stopping(const host_device *d)
{
    return atomic_load_explicit(&d->is_stopping, memory_order_acquire);
}

static void *compute_thread(void *user)
{
    host_device *d = user;
    for (;;) {
        uint32_t at;
        wait_for(&d->compute_wake);
        if (is_device_stopping(d))
            return NULL;
        if (!qr_spsc_take(&d->given, &at))
            continue;
        uint32_t most_us = atomic_load_explicit(&d->compute_delay_us, memory_order_relaxed);
        sleep_us(draw_delay(&d->compute_random, (uint64_t)most_us + 1));
        d->works[at].work(d->works[at].user);
        (void)atomic_fetch_add_explicit(&d->num_computed, 1, memory_order_release);
        (void)sem_post(&d->copy_wake);
    }
}

static void copy_block(host_device *d, quire_device_op op, quire_device_copy *copy)
{
    size_t bytes = (size_t)d->config.block_bytes;
    unsigned char *block = (unsigned char *)d->config.blocks + copy->block * bytes;
    unsigned char *slot = (unsigned char *)d->config.slots + copy->slot * bytes;
    uint32_t most_us = atomic_load_explicit(&d->copy_delay_us, memory_order_relaxed);
    sleep_us(draw_delay(&d->copy_random, (uint64_t)most_us + 1));
    if (op == QUIRE_DEVICE_STORE)
        copy->crc = qr_crc32c_copy(slot, block, bytes);
    else
        copy->crc = qr_crc32c_copy(block, slot, bytes);
}

static void run_job(host_device *d, quire_device_job *job)
{
    uint32_t per_mille = atomic_load_explicit(&d->fail_per_mille, memory_order_relaxed);
    bool is_failing = draw_delay(&d->copy_random, 1000) < per_mille;
    uint32_t num_copies = job->num_copies;
    if (is_failing)
        num_copies = (uint32_t)draw_delay(&d->copy_random, (uint64_t)num_copies + 1);
    for (uint32_t i = 0; i < num_copies; i++)
        copy_block(d, job->op, &job->copies[i]);
    job->status = is_failing ? QUIRE_E_SYSTEM : QUIRE_OK;
    qr_spsc_put(&d->ended, job->state - 1);
}

/* Runs the first of a queue if its mark is reached. */
static bool has_run_first(host_device *d, quire_device_op op)
{
    quire_device_job *job = d->first[op];
    if (job == NULL)
        return false;
    if (atomic_load_explicit(&d->ignores_marks, memory_order_relaxed) == 0 &&
        d->num_reached < job->after)
        return false;
    d->first[op] = job->next;
    run_job(d, job);
    return true;
}

static void *copy_thread(void *user)
{
    host_device *d = user;
    for (;;) {
        uint32_t slot;
        wait_for(&d->copy_wake);
        while (qr_spsc_take(&d->submitted, &slot)) {
            quire_device_job *job = d->jobs[slot];
            job->next = NULL;
            if (d->first[job->op] == NULL)
                d->first[job->op] = job;
            else
                d->last[job->op]->next = job;
            d->last[job->op] = job;
        }
        bool has_moved = true;
        while (has_moved && !is_device_stopping(d)) {
            /* Works that are computed count for marks unless those stick. */
            if (atomic_load_explicit(&d->marks_stick, memory_order_relaxed) == 0)
                d->num_reached = atomic_load_explicit(&d->num_computed, memory_order_acquire);
            has_moved = has_run_first(d, QUIRE_DEVICE_STORE);
            has_moved = has_run_first(d, QUIRE_DEVICE_LOAD) || has_moved;
        }
        if (is_device_stopping(d))
            return NULL;
    }
}

/* ---- the caller's side ----------------------------------------------------- */

static int host_mark(void *self, uint64_t *mark)
{
    host_device *d = self;
    if (mark == NULL)
        return QUIRE_E_ARGUMENT;
    *mark = d->num_given;
    return QUIRE_OK;
}

static int check_device_job(const host_device *d, const quire_device_job *job)
{
    if (job == NULL || job->state != 0 || (job->num_copies > 0 && job->copies == NULL) ||
        (job->op != QUIRE_DEVICE_STORE && job->op != QUIRE_DEVICE_LOAD))
        return QUIRE_E_ARGUMENT;
    if (job->after > d->num_given)
        return QUIRE_E_RANGE;
    for (uint32_t i = 0; i < job->num_copies; i++)
        if (job->copies[i].block >= d->config.num_blocks ||
            job->copies[i].slot >= d->config.num_slots)
            return QUIRE_E_RANGE;
    return QUIRE_OK;
}

static int host_submit(void *self, quire_device_job *job)
{
    host_device *d = self;
    if (qr_fork_guard_is_child(&d->guard))
        return QUIRE_E_SYSTEM;
    int status = check_device_job(d, job);
    if (status != QUIRE_OK)
        return status;
    if (d->num_free == 0)
        return QUIRE_FULL;
    uint32_t slot = d->free_slots[--d->num_free];
    d->jobs[slot] = job;
    job->state = slot + 1;
    qr_spsc_put(&d->submitted, slot);
    (void)sem_post(&d->copy_wake);
    return QUIRE_OK;
}

static uint32_t host_poll(void *self, quire_device_job **jobs, uint32_t capacity)
{
    host_device *d = self;
    uint32_t count = 0;
    uint32_t slot;
    if (jobs == NULL || qr_fork_guard_is_child(&d->guard))
        return 0;
    while (count < capacity && qr_spsc_take(&d->ended, &slot)) {
        quire_device_job *job = d->jobs[slot];
        d->jobs[slot] = NULL;
        d->free_slots[d->num_free++] = slot;
        job->state = 0;
        jobs[count++] = job;
    }
    return count;
}

static void stop_threads(host_device *d)
{
    atomic_store_explicit(&d->is_stopping, true, memory_order_release);
    if (d->has_semaphores) {
        (void)sem_post(&d->compute_wake);
        (void)sem_post(&d->copy_wake);
    }
    for (uint32_t i = 0; i < d->num_threads; i++)
        (void)pthread_join(d->threads[i], NULL);
    if (d->has_semaphores) {
        (void)sem_destroy(&d->compute_wake);
        (void)sem_destroy(&d->copy_wake);
    }
}

static void host_close(void *self)
{
    host_device *d = self;
    if (!qr_fork_guard_is_child(&d->guard)) /* in a child the threads do not exist */
        stop_threads(d);
    qr_owner_release(&d->owner);
}

static const quire_device_ops HOST_OPS = {.abi = 1,
                                          .size = sizeof HOST_OPS,
                                          .name = "host",
                                          .mark = host_mark,
                                          .submit = host_submit,
                                          .poll = host_poll,
                                          .close = host_close};

QUIRE_API void quire_device_close(quire_device *device)
{
    if (device == NULL || device->ops == NULL)
        return;
    if (device->ops->close != NULL)
        device->ops->close(device->self);
    *device = (quire_device){0};
}

QUIRE_API int quire_device_host_compute(quire_device *device, void (*work)(void *user), void *user)
{
    if (device == NULL || device->ops != &HOST_OPS || work == NULL)
        return QUIRE_E_ARGUMENT;
    host_device *d = device->self;
    if (qr_fork_guard_is_child(&d->guard))
        return QUIRE_E_SYSTEM;
    uint64_t num_left = d->num_given - atomic_load_explicit(&d->num_computed, memory_order_acquire);
    if (num_left >= d->config.max_works)
        return QUIRE_FULL;
    uint32_t at = (uint32_t)(d->num_given & (d->given.capacity - 1));
    d->works[at] = (host_work){work, user};
    d->num_given++;
    qr_spsc_put(&d->given, at);
    (void)sem_post(&d->compute_wake);
    return QUIRE_OK;
}

QUIRE_API int quire_device_host_set_faults(quire_device *device,
                                           const quire_device_host_faults *faults)
{
    if (device == NULL || device->ops != &HOST_OPS || faults == NULL)
        return QUIRE_E_ARGUMENT;
    host_device *d = device->self;
    if (qr_fork_guard_is_child(&d->guard))
        return QUIRE_E_SYSTEM;
    atomic_store_explicit(&d->compute_delay_us, faults->compute_delay_us, memory_order_relaxed);
    atomic_store_explicit(&d->copy_delay_us, faults->copy_delay_us, memory_order_relaxed);
    atomic_store_explicit(&d->fail_per_mille, faults->fail_per_mille, memory_order_relaxed);
    atomic_store_explicit(&d->marks_stick, faults->marks_stick, memory_order_relaxed);
    atomic_store_explicit(&d->ignores_marks, faults->ignores_marks, memory_order_relaxed);
    (void)sem_post(&d->copy_wake); /* what waited may go on */
    return QUIRE_OK;
}

/* ---- opening --------------------------------------------------------------- */

static const char *what_is_wrong(const quire_device_host_config *config)
{
    uint64_t most = config->num_blocks > config->num_slots ? config->num_blocks : config->num_slots;
    if (config->blocks == NULL || config->slots == NULL)
        return "blocks or slots is NULL";
    if (config->num_blocks == 0 || config->num_slots == 0 || config->block_bytes == 0)
        return "num_blocks, num_slots or block_bytes is 0";
    if (config->block_bytes > SIZE_MAX / 2 / most)
        return "the blocks together exceed the address space";
    if (config->max_jobs > MOST_MANY || config->max_works > MOST_MANY)
        return "max_jobs or max_works is above 65,536";
    return NULL;
}

static void carve_device(qr_arena *arena, host_device *d, const quire_device_host_config *config)
{
    d->jobs = qr_arena_take(arena, config->max_jobs, sizeof(quire_device_job *));
    d->free_slots = qr_arena_take(arena, config->max_jobs, sizeof *d->free_slots);
    qr_spsc_carve(&d->submitted, arena, config->max_jobs);
    qr_spsc_carve(&d->ended, arena, config->max_jobs);
    qr_spsc_carve(&d->given, arena, config->max_works);
    d->works = qr_arena_take(arena, d->given.capacity, sizeof *d->works);
}

static host_device *create_device(const quire_device_host_config *config,
                                  const quire_allocator *allocator)
{
    host_device none;
    qr_owner owner;
    qr_arena plan = qr_arena_plan();
    (void)qr_arena_take(&plan, 1, sizeof none);
    carve_device(&plan, &none, config);
    qr_arena arena = qr_owner_carve(&owner, allocator, plan.used);
    if (arena.base == NULL)
        return NULL;
    host_device *d = qr_arena_take(&arena, 1, sizeof *d);
    carve_device(&arena, d, config);
    d->owner = owner;
    d->config = *config;
    for (uint32_t i = 0; i < config->max_jobs; i++)
        d->free_slots[i] = config->max_jobs - 1 - i;
    d->num_free = config->max_jobs;
    return d;
}

static int start_threads(host_device *d)
{
    static void *(*const STARTS[2])(void *) = {compute_thread, copy_thread};
    static const char *const NAMES[2] = {"quire-compute", "quire-copy"};
    qr_fork_guard_init(&d->guard);
    d->has_semaphores = sem_init(&d->compute_wake, 0, 0) == 0 && sem_init(&d->copy_wake, 0, 0) == 0;
    if (!d->has_semaphores)
        return QUIRE_E_SYSTEM;
    while (d->num_threads < 2 && qr_thread_start(&d->threads[d->num_threads], NAMES[d->num_threads],
                                                 STARTS[d->num_threads], d))
        d->num_threads++;
    return d->num_threads == 2 ? QUIRE_OK : QUIRE_E_SYSTEM;
}

QUIRE_API int quire_device_host_open(const quire_device_host_config *callers,
                                     const quire_allocator *allocator, quire_device *device)
{
    quire_device_host_config config;
    int status = qr_refuse_opening(&config, sizeof config, callers, device, allocator,
                                   "the host device's config");
    if (status != QUIRE_OK)
        return status;
    const char *wrong = what_is_wrong(&config);
    if (wrong != NULL)
        return qr_fail(QUIRE_E_CONFIG, "the host device's config: %s", wrong);
    config.max_jobs = config.max_jobs == 0 ? DEFAULT_MANY : config.max_jobs;
    config.max_works = config.max_works == 0 ? DEFAULT_MANY : config.max_works;
    host_device *d = create_device(&config, allocator);
    if (d == NULL)
        return qr_fail(QUIRE_E_NOMEM, "out of memory for a host device of %u jobs",
                       config.max_jobs);
    if (start_threads(d) != QUIRE_OK) {
        host_close(d);
        return qr_fail(
            QUIRE_E_SYSTEM,
            "cannot start the threads of the host device; raise the limit of processes (ulimit "
            "-u)");
    }
    *device = (quire_device){&HOST_OPS, d};
    return QUIRE_OK;
}
