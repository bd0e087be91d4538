#include "interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

static volatile sig_atomic_t came; /* the signal's number */
static volatile sig_atomic_t is_caught;
static void (*before_end)(void);

/* The first SIGINT or SIGTERM is noted; any other signal ends the program, now as it would without
 * a handler. */
static void take(int number)
{
    if (is_caught && came == 0 && (number == SIGINT || number == SIGTERM)) {
        came = number;
        return;
    }
    if (before_end != NULL)
        before_end();
    signal(number, SIG_DFL);
    raise(number); /* comes when this returns */
}

static void handle(int number)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = take;
    action.sa_flags = SA_RESTART;
    sigfillset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void interrupt_catch(void)
{
    came = 0;
    is_caught = 1;
    handle(SIGINT);
    handle(SIGTERM);
}

bool interrupt_came(void)
{
    return came != 0;
}

const char *interrupt_name(void)
{
    return came == 0 ? NULL : came == SIGTERM ? "terminated" : "interrupt";
}

int interrupt_status(int status)
{
    return came == 0 ? status : 128 + came;
}

void interrupt_before_end(void (*function)(void))
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM};
    before_end = function;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            handle(numbers[i]);
    }
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
