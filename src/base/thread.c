#include "base/thread.h"

void qr_signals_block(sigset_t *before)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, before);
}

void qr_signals_restore(const sigset_t *before)
{
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

bool qr_thread_start(pthread_t *thread, const char *name, void *(*run)(void *user), void *user)
{
    sigset_t before;
    qr_signals_block(&before);
    bool is_started = pthread_create(thread, NULL, run, user) == 0;
    qr_signals_restore(&before);
    if (is_started)
        (void)pthread_setname_np(*thread, name);
    return is_started;
}
