#include "fake_stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct fake_stream {
    pthread_t thread;
    fake_work *first;
    fake_work *last;
    bool is_busy;
    bool is_ending;
    fake_stream *next;
};

/* One lock for all: there are few streams, and they are slow on purpose. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static fake_stream *streams;
static fake_event *dead_events;
static uint32_t work_delay_us;
static bool is_context_lost;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void fill(const fake_work *work)
{
    for (size_t i = 0; i < work->bytes; i++)
        memcpy((char *)(uintptr_t)work->to + i * work->value_bytes, &work->value,
               work->value_bytes);
}

/* Without the lock. */
static void run_work(const fake_work *work)
{
    void *params[1] = {work->argument};
    switch (work->op) {
    case FAKE_COPY:
        memmove((void *)(uintptr_t)work->to, (const void *)(uintptr_t)work->from, work->bytes);
        break;
    case FAKE_FILL:
        fill(work);
        break;
    case FAKE_KERNEL:
        work->kernel(work->grid, work->block, work->shared_bytes, params);
        break;
    case FAKE_RECORD:
    case FAKE_WAIT:
        break;
    }
}

static void *stream_thread(void *user)
{
    fake_stream *stream = user;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (stream->first == NULL && !stream->is_ending)
            pthread_cond_wait(&changed, &lock);
        fake_work *work = stream->first;
        if (work == NULL)
            break;
        stream->is_busy = true;
        while (work->op == FAKE_WAIT && work->event->reached < work->number && !is_context_lost)
            pthread_cond_wait(&changed, &lock);
        uint32_t delay_us = work_delay_us;
        bool is_skipped = is_context_lost || work->op == FAKE_WAIT || work->op == FAKE_RECORD;
        pthread_mutex_unlock(&lock);
        if (!is_skipped && delay_us > 0)
            usleep(delay_us);
        if (!is_skipped)
            run_work(work);
        pthread_mutex_lock(&lock);
        if (work->op == FAKE_RECORD) {
            work->event->reached = work->number;
            work->event->reached_ns = now_ns();
        }
        stream->first = work->next;
        stream->is_busy = false;
        pthread_cond_broadcast(&changed);
        free(work->argument);
        free(work);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

fake_stream *fake_stream_create(void)
{
    fake_stream *stream = calloc(1, sizeof *stream);
    if (stream != NULL && pthread_create(&stream->thread, NULL, stream_thread, stream) != 0) {
        free(stream);
        return NULL;
    }
    if (stream != NULL) {
        pthread_mutex_lock(&lock);
        stream->next = streams;
        streams = stream;
        pthread_mutex_unlock(&lock);
    }
    return stream;
}

void fake_stream_destroy(fake_stream *stream)
{
    pthread_mutex_lock(&lock);
    fake_stream **at = &streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    stream->is_ending = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, NULL);
    free(stream);
}

void fake_stream_add(fake_stream *stream, const fake_work *work)
{
    fake_work *copy = malloc(sizeof *copy);
    *copy = *work;
    copy->next = NULL;
    pthread_mutex_lock(&lock);
    if (work->op == FAKE_RECORD)
        copy->number = ++work->event->recorded;
    else if (work->op == FAKE_WAIT)
        copy->number = work->event->recorded;
    if (stream->first == NULL)
        stream->first = copy;
    else
        stream->last->next = copy;
    stream->last = copy;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

bool fake_stream_is_idle(fake_stream *stream)
{
    pthread_mutex_lock(&lock);
    bool is_idle = stream->first == NULL || is_context_lost;
    pthread_mutex_unlock(&lock);
    return is_idle;
}

static bool does_overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static bool does_name(const fake_work *work, uint64_t address, uint64_t bytes, bool with_copies)
{
    if (work->op == FAKE_COPY && with_copies)
        return does_overlap(work->to, work->bytes, address, bytes) ||
               does_overlap(work->from, work->bytes, address, bytes);
    for (size_t at = 0; at + sizeof(uint64_t) <= work->argument_bytes; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, (const char *)work->argument + at, sizeof word);
        if (does_overlap(word, 1, address, bytes))
            return true;
    }
    return false;
}

bool fake_stream_is_named(uint64_t address, uint64_t bytes, bool with_copies)
{
    bool is_named = false;
    pthread_mutex_lock(&lock);
    for (const fake_stream *stream = streams; stream != NULL; stream = stream->next)
        for (const fake_work *work = stream->first; work != NULL; work = work->next)
            is_named = is_named || does_name(work, address, bytes, with_copies);
    is_named = is_named && !is_context_lost;
    pthread_mutex_unlock(&lock);
    return is_named;
}

void fake_stream_wait(fake_stream *stream)
{
    pthread_mutex_lock(&lock);
    while (stream->first != NULL)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void fake_stream_wait_all(void)
{
    pthread_mutex_lock(&lock);
    const fake_stream *stream = streams;
    while (stream != NULL) {
        if (stream->first == NULL) {
            stream = stream->next;
        } else {
            pthread_cond_wait(&changed, &lock);
            stream = streams;
        }
    }
    pthread_mutex_unlock(&lock);
}

void fake_event_destroy(fake_event *event)
{
    pthread_mutex_lock(&lock);
    event->next = dead_events;
    dead_events = event;
    pthread_mutex_unlock(&lock);
}

void fake_event_bury(void)
{
    pthread_mutex_lock(&lock);
    while (dead_events != NULL) {
        fake_event *next = dead_events->next;
        free(dead_events);
        dead_events = next;
    }
    pthread_mutex_unlock(&lock);
}

bool fake_event_is_reached(const fake_event *event)
{
    pthread_mutex_lock(&lock);
    bool is_reached = event->reached >= event->recorded;
    pthread_mutex_unlock(&lock);
    return is_reached;
}

void fake_event_wait(const fake_event *event)
{
    pthread_mutex_lock(&lock);
    while (event->reached < event->recorded)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void fake_stream_set_delay_us(uint32_t us)
{
    pthread_mutex_lock(&lock);
    work_delay_us = us;
    pthread_mutex_unlock(&lock);
}

void fake_stream_set_lost(bool is_lost)
{
    pthread_mutex_lock(&lock);
    is_context_lost = is_lost;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}
