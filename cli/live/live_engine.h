/* cli/live/live_engine.h - one engine on the wall clock, that serves the asks of its inbox.
 *
 *      inbox ──► arrivals ──► engine (replay/engine.h) ──► progress ──► inbox
 *                                │  ▲
 *                                ▼  │ engine_end, when the pace has come to the end of the step
 *
 * The scheduler, the cache and the time of a step are those of `quire replay`: an ask arrives at
 * the simulated time at which it came, and is added before the next step. One thread drives it.
 */
#ifndef QUIRE_CLI_LIVE_LIVE_ENGINE_H
#define QUIRE_CLI_LIVE_LIVE_ENGINE_H

#include "inbox.h"
#include "output/failure.h"
#include "pace.h"

#include <quire/events.h>
#include <stdatomic.h>

typedef struct live_engine {
    inbox inbox;
    bool has_inbox;
    engine engine;
    bool has_engine;
    replay_result result;
    pace pace;
    quire_publisher
        *publisher;        /* NULL: none. The owner of the live engine creates and destroys it */
    arrival_queue waiting; /* taken, and not in the scheduler yet */
    uint64_t num_asks;
    uint64_t num_aborted;
    pthread_t thread;
    bool has_thread;
    _Atomic bool has_failed;
    char failure[FAILURE_BYTES];
} live_engine;

/* An engine without requests, and its inbox. 0, or -1 and a sentence; live_engine_close in either
 * case. */
int live_engine_open(live_engine *e, const replay_settings *settings, double speed,
                     void (*sleep)(void *), void (*wake)(void *));
void live_engine_close(live_engine *e);
quire_monitor *live_engine_monitor(const live_engine *e);

/* 0, or -1 and a sentence. */
int live_engine_start(live_engine *e);
/* Closes the inbox, ends all asks with ASK_ABORT, and joins the thread. The result is complete. */
void live_engine_stop(live_engine *e);

#endif
