/* predict_clock.c - a clock that stands still while other processes run.
 *
 *      cc -shared -fPIC -O2 -o predict_clock.so predict_clock.c        LD_PRELOAD=predict_clock.so
 *
 * On the first thread of a process, the two clocks that programs read are the time that this thread
 * had on a processor, and what predict_skip added: a machine that other work shares measures an
 * engine of one thread all the same. Other threads read the real clocks.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t skipped_ns;

/* The caller has waited for so long, in its own time. */
void predict_skip(int64_t ns)
{
    skipped_ns += ns;
}

int clock_gettime(clockid_t id, struct timespec *out)
{
    static int64_t start_ns[2];
    int is_wall = id == CLOCK_REALTIME;
    if ((!is_wall && id != CLOCK_MONOTONIC) || getpid() != (pid_t)syscall(SYS_gettid))
        return (int)syscall(SYS_clock_gettime, id, out);
    struct timespec now;
    if (start_ns[is_wall] == 0) {
        if (syscall(SYS_clock_gettime, id, &now) != 0)
            return -1;
        start_ns[is_wall] = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    }
    if (syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &now) != 0)
        return -1;
    int64_t ns = start_ns[is_wall] + skipped_ns + now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    out->tv_sec = ns / 1000000000;
    out->tv_nsec = ns % 1000000000;
    return 0;
}
