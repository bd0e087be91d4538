#include "tier/core/system.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

enum { LOG_LINE = 512 };

void *qr_tier_alloc(size_t count, size_t bytes)
{
    return count == 0 || bytes == 0 ? NULL : calloc(count, bytes);
}

void *qr_tier_alloc_large(size_t bytes)
{
    const size_t page = (size_t)2 << 20;
    if (bytes < 2 * page || bytes > SIZE_MAX - page)
        return qr_tier_alloc(1, bytes);
    unsigned char *memory = calloc(1, bytes); /* fresh pages: what is never used is never touched */
    if (memory == NULL)
        return NULL;
    size_t before = (page - (uintptr_t)memory % page) % page;
    size_t inside = (bytes - before) & ~(page - 1);
    (void)madvise(memory + before, inside, MADV_HUGEPAGE); /* advice: slower without, but right */
    return memory;
}

void qr_tier_free(void *memory)
{
    free(memory);
}

void *qr_tier_map(size_t bytes, int flags)
{
    int all = MAP_PRIVATE | MAP_ANONYMOUS | flags;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, all, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void qr_tier_unmap(void *memory, size_t bytes)
{
    if (memory != NULL)
        (void)munmap(memory, bytes);
}

uint64_t qr_tier_now_ns(const quire_hooks *hooks)
{
    if (hooks != NULL && hooks->now_ns != NULL)
        return hooks->now_ns(hooks->user);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int qr_tier_random(const quire_hooks *hooks, void *out, size_t bytes)
{
    if (hooks != NULL && hooks->random_bytes != NULL)
        return hooks->random_bytes(hooks->user, out, bytes) == 0 ? 0 : -1;
    unsigned char *at = out;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -1;
        at += got;
        bytes -= (size_t)got;
    }
    return 0;
}

void qr_tier_say(char *message, size_t message_bytes, const char *format, ...)
{
    if (message == NULL || message_bytes == 0)
        return;
    va_list values;
    va_start(values, format);
    (void)vsnprintf(message, message_bytes, format, values);
    va_end(values);
}

void qr_tier_log(const quire_hooks *hooks, quire_log_level level, const char *format, ...)
{
    if (hooks == NULL || hooks->log == NULL)
        return;
    char line[LOG_LINE];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(line, sizeof line, format, values);
    va_end(values);
    hooks->log(hooks->user, level, line);
}
