#include "base/hooks.h"

#include <quire/error.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

enum { LOG_LINE = 512 };

uint64_t qr_now_ns(const quire_hooks *hooks)
{
    if (hooks != NULL && hooks->now_ns != NULL)
        return hooks->now_ns(hooks->user);
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

double qr_wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int kernel_random(unsigned char *out, size_t bytes)
{
    while (bytes > 0) {
        ssize_t got = getrandom(out, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return QUIRE_E_RANDOM;
        out += got;
        bytes -= (size_t)got;
    }
    return QUIRE_OK;
}

int qr_random_bytes(const quire_hooks *hooks, void *out, size_t bytes)
{
    if (hooks == NULL || hooks->random_bytes == NULL)
        return kernel_random(out, bytes);
    return hooks->random_bytes(hooks->user, out, bytes) == 0 ? QUIRE_OK : QUIRE_E_RANDOM;
}

void qr_log(const quire_hooks *hooks, quire_log_level level, const char *format, ...)
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
