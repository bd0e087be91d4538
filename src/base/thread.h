/* base/thread.h - threads of the library's own. The host's signals are for the host's threads: ours
 * have all of them blocked. */
#ifndef QR_BASE_THREAD_H
#define QR_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* name: at most 15 bytes, as /proc and debuggers show it. False when there is no thread to have. */
bool qr_thread_start(pthread_t *thread, const char *name, void *(*run)(void *user), void *user);

/* Around calls of others that start threads. */
void qr_signals_block(sigset_t *before);
void qr_signals_restore(const sigset_t *before);

#endif
