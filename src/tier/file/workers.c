#include "tier/file/workers.h"

#include "base/hooks.h"
#include "base/memory.h"
#include "base/thread.h"

#include <quire/error.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORKERS = 64 };

typedef struct work_list {
    qr_file_work *first;
    qr_file_work *last;
} work_list;

struct qr_file_workers {
    pthread_mutex_t lock; /* of all below but the threads */
    pthread_cond_t more;  /* to do, or is_closing */
    pthread_cond_t gone;  /* a thread went home */
    work_list waiting;
    work_list ended;
    uint32_t num_alive;
    bool is_closing;
    int ended_fd; /* readable when something ended */
    uint32_t num_threads;
    pthread_t threads[MAX_WORKERS];
};

static void add_work(work_list *list, qr_file_work *work)
{
    work->next = NULL;
    if (list->first == NULL)
        list->first = work;
    else
        list->last->next = work;
    list->last = work;
}

static void ring_bell(int fd)
{
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

static void *worker_main(void *user)
{
    qr_file_workers *workers = user;
    pthread_mutex_lock(&workers->lock);
    while (!workers->is_closing) {
        qr_file_work *work = workers->waiting.first;
        if (work == NULL) {
            pthread_cond_wait(&workers->more, &workers->lock);
            continue;
        }
        workers->waiting.first = work->next;
        pthread_mutex_unlock(&workers->lock);
        work->run(work);
        pthread_mutex_lock(&workers->lock);
        add_work(&workers->ended, work);
        ring_bell(workers->ended_fd);
    }
    workers->num_alive--;
    pthread_cond_signal(&workers->gone);
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

static int start_workers(qr_file_workers *workers, uint32_t num_threads)
{
    uint32_t n = 0;
    pthread_mutex_lock(&workers->lock);
    while (n < num_threads &&
           qr_thread_start(&workers->threads[n], "quire-file", worker_main, workers))
        n++;
    workers->num_threads = n;
    workers->num_alive = n;
    pthread_mutex_unlock(&workers->lock);
    return n == 0 ? QUIRE_E_SYSTEM : QUIRE_OK; /* fewer than asked for will do */
}

static void free_workers(qr_file_workers *workers)
{
    for (uint32_t i = 0; i < workers->num_threads; i++)
        pthread_join(workers->threads[i], NULL);
    close(workers->ended_fd);
    pthread_cond_destroy(&workers->more);
    pthread_cond_destroy(&workers->gone);
    pthread_mutex_destroy(&workers->lock);
    qr_free(workers);
}

int qr_file_workers_open(uint32_t num_threads, qr_file_workers **out)
{
    pthread_condattr_t steady;
    qr_file_workers *workers = qr_alloc(1, sizeof *workers);
    *out = NULL;
    if (workers == NULL)
        return QUIRE_E_NOMEM;
    workers->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (workers->ended_fd < 0) {
        qr_free(workers);
        return QUIRE_E_SYSTEM;
    }
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->more, NULL);
    pthread_cond_init(&workers->gone, &steady);
    pthread_condattr_destroy(&steady);
    int status = start_workers(workers, num_threads > MAX_WORKERS ? MAX_WORKERS : num_threads);
    if (status != QUIRE_OK) {
        free_workers(workers);
        return status;
    }
    *out = workers;
    return QUIRE_OK;
}

void qr_file_workers_give(qr_file_workers *workers, qr_file_work *work)
{
    pthread_mutex_lock(&workers->lock);
    add_work(&workers->waiting, work);
    pthread_cond_signal(&workers->more);
    pthread_mutex_unlock(&workers->lock);
}

static qr_file_work *take_ended(qr_file_workers *workers)
{
    uint64_t count;
    pthread_mutex_lock(&workers->lock);
    qr_file_work *ended = workers->ended.first;
    workers->ended.first = NULL;
    if (ended != NULL && read(workers->ended_fd, &count, sizeof count) < 0)
        count = 0; /* it was empty: nothing to quieten */
    pthread_mutex_unlock(&workers->lock);
    return ended;
}

qr_file_work *qr_file_workers_wait(qr_file_workers *workers, int wake_fd, int timeout_ms)
{
    qr_file_work *ended = take_ended(workers);
    if (ended != NULL || timeout_ms == 0)
        return ended;
    struct pollfd fds[2] = {{.fd = workers->ended_fd, .events = POLLIN},
                            {.fd = wake_fd, .events = POLLIN}};
    if (poll(fds, 2, timeout_ms) < 0)
        return NULL;
    return take_ended(workers);
}

bool qr_file_workers_close(qr_file_workers *workers, int timeout_ms)
{
    if (workers == NULL)
        return true;
    uint64_t until_ns = qr_now_ns(NULL) + (uint64_t)timeout_ms * 1000000;
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    int result = 0;
    pthread_mutex_lock(&workers->lock);
    workers->is_closing = true;
    workers->waiting.first = NULL;
    pthread_cond_broadcast(&workers->more);
    while (workers->num_alive > 0 && result == 0)
        result = pthread_cond_timedwait(&workers->gone, &workers->lock, &until);
    bool is_empty = workers->num_alive == 0;
    pthread_mutex_unlock(&workers->lock);
    if (is_empty)
        free_workers(workers);
    return is_empty;
}
