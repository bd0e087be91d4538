#include "pace.h"
#include "output/interrupt.h"

#include <time.h>

enum { MAX_BEHIND_MS = 500 };

static double real_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void pace_wait(pace *p, double until_s)
{
    if (p->speed <= 0)
        return;
    double now = real_time();
    if (!p->has_begun) {
        p->has_begun = true;
        p->real_s = now;
    }
    /* Naps add up to a little more than was asked for: the clock says how much is left. */
    for (;;) {
        double left = p->real_s + (until_s - p->simulated_s) / p->speed - now;
        if (left < -MAX_BEHIND_MS * 1e-3) {
            p->real_s = now;
            p->simulated_s = until_s;
        }
        if (left <= 0 || !interrupt_sleep(left))
            return;
        now = real_time();
    }
}
