#include "events/host.h"

#include <quire/error.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

void *qr_host_alloc(size_t bytes)
{
    return bytes == 0 ? NULL : malloc(bytes);
}

void *qr_host_alloc_zeroed(size_t count, size_t bytes)
{
    return count == 0 || bytes == 0 ? NULL : calloc(count, bytes);
}

void *qr_host_realloc(void *memory, size_t bytes)
{
    return bytes == 0 ? NULL : realloc(memory, bytes);
}

void qr_host_free(void *memory)
{
    free(memory);
}

uint64_t qr_host_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

double qr_host_wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int qr_host_random(void *out, size_t bytes)
{
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

void qr_host_say(char *message, size_t message_bytes, const char *format, ...)
{
    if (message == NULL || message_bytes == 0)
        return;
    va_list values;
    va_start(values, format);
    (void)vsnprintf(message, message_bytes, format, values);
    va_end(values);
}
