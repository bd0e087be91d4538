#include "crew.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* Looks at the round before a thread sleeps: some tens of microseconds. */
enum { LOOKS = 4000 };

struct crew {
    uint32_t num_threads;
    uint32_t num_started;
    pthread_t threads[CREW_MAX_THREADS];
    pthread_mutex_t lock;
    pthread_cond_t begun;      /* a round has begun, for threads that sleep */
    pthread_cond_t ended;      /* all threads have left the round, for the caller */
    _Atomic uint32_t round;    /* counts; 0: none yet */
    _Atomic uint32_t next;     /* job */
    _Atomic uint32_t num_busy; /* threads that have not left the round */
    uint32_t num_jobs;
    crew_job job;
    void *user;
    bool is_over;
};

typedef struct member {
    crew *crew;
    uint32_t lane;
} member;

static void pause_a_little(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void do_jobs(crew *c, uint32_t lane)
{
    for (;;) {
        uint32_t i = atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
        if (i >= c->num_jobs)
            return;
        c->job(c->user, i, lane);
    }
}

static void wait_for_round(crew *c, uint32_t seen)
{
    for (int i = 0; i < LOOKS; i++) {
        if (atomic_load_explicit(&c->round, memory_order_acquire) != seen)
            return;
        pause_a_little();
    }
    pthread_mutex_lock(&c->lock);
    while (atomic_load_explicit(&c->round, memory_order_acquire) == seen)
        pthread_cond_wait(&c->begun, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void leave_round(crew *c)
{
    if (atomic_fetch_sub_explicit(&c->num_busy, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_lock(&c->lock);
    pthread_cond_signal(&c->ended);
    pthread_mutex_unlock(&c->lock);
}

static void *serve(void *user)
{
    member *m = user;
    crew *c = m->crew;
    uint32_t lane = m->lane;
    free(m);
    for (uint32_t seen = 0;; seen++) {
        wait_for_round(c, seen);
        if (c->is_over)
            return NULL;
        do_jobs(c, lane);
        leave_round(c);
    }
}

static void begin_round(crew *c)
{
    pthread_mutex_lock(&c->lock);
    atomic_fetch_add_explicit(&c->round, 1, memory_order_release);
    pthread_cond_broadcast(&c->begun);
    pthread_mutex_unlock(&c->lock);
}

static void wait_for_all(crew *c)
{
    for (int i = 0; i < LOOKS; i++) {
        if (atomic_load_explicit(&c->num_busy, memory_order_acquire) == 0)
            return;
        pause_a_little();
    }
    pthread_mutex_lock(&c->lock);
    while (atomic_load_explicit(&c->num_busy, memory_order_acquire) > 0)
        pthread_cond_wait(&c->ended, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

void crew_run(crew *c, uint32_t num_jobs, crew_job job, void *user)
{
    if (c->num_threads == 1 || num_jobs <= 1) {
        for (uint32_t i = 0; i < num_jobs; i++)
            job(user, i, 0);
        return;
    }
    c->num_jobs = num_jobs;
    c->job = job;
    c->user = user;
    atomic_store_explicit(&c->next, 0, memory_order_relaxed);
    atomic_store_explicit(&c->num_busy, c->num_started, memory_order_relaxed);
    begin_round(c);
    do_jobs(c, 0);
    wait_for_all(c);
}

static bool start(crew *c, uint32_t lane)
{
    member *m = malloc(sizeof *m);
    if (m == NULL)
        return false;
    *m = (member){.crew = c, .lane = lane};
    if (pthread_create(&c->threads[c->num_started], NULL, serve, m) != 0) {
        free(m);
        return false;
    }
    c->num_started++;
    return true;
}

crew *crew_open(uint32_t num_threads)
{
    crew *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->num_threads = num_threads;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->begun, NULL);
    pthread_cond_init(&c->ended, NULL);
    for (uint32_t lane = 1; lane < num_threads; lane++) {
        if (start(c, lane))
            continue;
        crew_close(c);
        return NULL;
    }
    return c;
}

void crew_close(crew *c)
{
    if (c == NULL)
        return;
    c->is_over = true;
    begin_round(c);
    for (uint32_t i = 0; i < c->num_started; i++)
        pthread_join(c->threads[i], NULL);
    pthread_cond_destroy(&c->begun);
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
