#include "interrupt.h"

#include <signal.h>
#include <string.h>
#include <time.h>

static volatile sig_atomic_t came;

static void note(int number)
{
    (void)number;
    came = 1;
}

void interrupt_catch(bool ends_reads)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = note;
    action.sa_flags = (int)(ends_reads ? SA_RESETHAND : SA_RESETHAND | SA_RESTART);
    sigemptyset(&action.sa_mask);
    came = 0;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool interrupt_came(void)
{
    return came != 0;
}

/* Another thread may get the signal, or it may come just before the sleep: no nap is long. */
enum { NAP_MS = 50 };

bool interrupt_sleep(double seconds)
{
    while (seconds > 0 && !came) {
        double nap = seconds < NAP_MS * 1e-3 ? seconds : NAP_MS * 1e-3;
        struct timespec t = {.tv_nsec = (long)(nap * 1e9)};
        nanosleep(&t, NULL);
        seconds -= nap;
    }
    return !came;
}
