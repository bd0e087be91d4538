#include "engine/cuda/block.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_THREADS = 64 };

typedef struct crew {
    engine_block_kernel kernel;
    const void *args;
    size_t shared_bytes;
    engine_block_place place; /* of block 0, thread 0 */
    pthread_barrier_t barrier;
} crew;

typedef struct member {
    crew *crew;
    uint32_t thread;
} member;

_Thread_local engine_block_place engine_my_place;

void engine_block_together(void)
{
    if (engine_my_place.barrier != NULL)
        (void)pthread_barrier_wait(engine_my_place.barrier);
}

uint64_t engine_block_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void run_blocks(const crew *c, uint32_t thread)
{
    engine_my_place = c->place;
    engine_my_place.thread = thread;
    for (uint32_t b = 0; b < c->place.num_blocks; b++) {
        engine_my_place.block = b;
        if (thread == 0)
            memset(c->place.shared, 0xFF, c->shared_bytes);
        engine_block_together();
        c->kernel(c->args);
        engine_block_together();
    }
}

static void *run_member(void *user)
{
    const member *m = user;
    run_blocks(m->crew, m->thread);
    return NULL;
}

/* Threads wait for each other before the first block, so all of them must be there. */
static int run_crew(crew *c)
{
    pthread_t threads[MOST_THREADS];
    member members[MOST_THREADS];
    uint32_t count = c->place.num_threads;
    if (count > MOST_THREADS || pthread_barrier_init(&c->barrier, NULL, count) != 0)
        return 1;
    c->place.barrier = &c->barrier;
    for (uint32_t i = 1; i < count; i++) {
        members[i] = (member){c, i};
        if (pthread_create(&threads[i], NULL, run_member, &members[i]) != 0)
            abort(); /* those that are there wait at the barrier for ever */
    }
    run_blocks(c, 0);
    for (uint32_t i = 1; i < count; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pthread_barrier_destroy(&c->barrier);
    return 0;
}

int engine_block_run(engine_block_kernel kernel, const void *args, uint32_t num_blocks,
                     uint32_t num_threads, size_t shared_bytes)
{
    crew c = {.kernel = kernel, .args = args, .shared_bytes = shared_bytes};
    c.place.num_blocks = num_blocks;
    c.place.num_threads = num_threads;
    c.place.shared = malloc(shared_bytes + 1);
    if (c.place.shared == NULL)
        return 1;
    int failed = 0;
    if (num_threads == 1)
        run_blocks(&c, 0);
    else
        failed = run_crew(&c);
    free(c.place.shared);
    return failed;
}
