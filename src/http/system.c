#include "http/system.h"

#include <stdlib.h>
#include <time.h>

void *qr_http_alloc(size_t bytes)
{
    return calloc(1, bytes);
}

void *qr_http_realloc(void *memory, size_t bytes)
{
    return realloc(memory, bytes);
}

void qr_http_free(void *memory)
{
    free(memory);
}

uint64_t qr_http_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

double qr_http_unix_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
