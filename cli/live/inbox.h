/* cli/live/inbox.h - requests from outside, between those who ask and one engine.
 *
 *      asker's thread    inbox_submit ──► new ────────► inbox_take      engine's thread
 *                        inbox_leave  ──► cancelled ──► inbox_take_cancelled
 *                        inbox_look   ◄── progress ◄─── inbox_tell
 *
 *      ask: SUBMITTED ──► TAKEN ──► DONE      the engine is the only one who changes this
 *
 * An ask has two holders, the asker and the engine; it is freed when both have let it go. An asker
 * that has read all there is may sleep: it is woken by the next inbox_tell. The lock of the inbox
 * covers all that both sides use; sleep and wake are called under it.
 */
#ifndef QUIRE_CLI_LIVE_INBOX_H
#define QUIRE_CLI_LIVE_INBOX_H

#include "api_request.h"
#include "replay/engine.h"

#include <pthread.h>

typedef enum ask_state { ASK_SUBMITTED, ASK_TAKEN, ASK_DONE } ask_state;

typedef enum ask_end {
    ASK_OPEN = 0,
    ASK_STOP,   /* the model ended its answer, or generated a stop token */
    ASK_LENGTH, /* max_tokens, or max_model_len */
    ASK_ABORT,  /* the engine stops */
    ASK_REFUSED /* it can never be served */
} ask_end;

/* What an asker sees. */
typedef struct ask_progress {
    uint32_t num_generated;
    uint32_t cached_tokens; /* of the prompt: found in the prefix cache */
    ask_end end;
} ask_progress;

struct inbox;

typedef struct ask {
    engine_ask engine; /* first: ask_token_at finds the ask by it */
    api_request request;
    uint64_t content;       /* of the answer (words.h) */
    uint32_t answer_tokens; /* the model ends its answer behind so many; UINT32_MAX: never */
    double created_s;       /* real time, and Unix time */
    double created_unix_s;
    /* Called by the engine in inbox_tell, in place of an asker that looks; NULL: it looks. */
    void (*told)(void *asker, struct ask *ask, const ask_progress *progress);

    /* Under the lock. */
    struct inbox *inbox;
    ask_state state;
    ask_progress progress;
    bool is_left; /* the asker has gone */
    bool is_asleep;
    bool only_end; /* sleeps until its end */
    void *asker;   /* of sleep and wake */
    struct ask *next;
    struct ask *older; /* all that have an asker */
    struct ask *newer;

    /* The engine's own. */
    arrival *arrival;
    ask_progress mine;
    bool is_waiting; /* outside of the scheduler */
} ask;

typedef struct inbox {
    pthread_mutex_t lock;
    pthread_cond_t news; /* for the engine */
    ask *first;
    ask *last;
    ask *cancelled;
    ask *all;
    uint32_t num_open; /* asks that are not done */
    uint32_t max_open;
    bool is_closed;
    void (*sleep)(void *asker);
    void (*wake)(void *asker);
} inbox;

/* False: no memory. */
bool inbox_open(inbox *x, uint32_t max_open, void (*sleep)(void *), void (*wake)(void *));
void inbox_free(inbox *x); /* no asks are left */

/* ---- the asker --------------------------------------------------------------- */

/* A new ask, which takes over the request's memory; NULL: no memory. */
ask *ask_create(api_request *request, uint32_t answer_tokens);
/* Frees an ask that was not submitted. */
void ask_free(ask *a);
typedef enum inbox_status { INBOX_OK, INBOX_FULL, INBOX_CLOSED } inbox_status;
/* Hands it to the engine; unless INBOX_OK, it stays the caller's. */
inbox_status inbox_submit(inbox *x, ask *a, void *asker);
/* How far it is. If nothing is new since *seen (only_end: if it has not ended), the asker is put to
 * sleep, and false comes back. */
bool inbox_look(inbox *x, ask *a, const ask_progress *seen, bool only_end, ask_progress *now);
/* The asker does not want it any more, or has read all: the ask is not its own after this. */
void inbox_leave(inbox *x, ask *a);
/* Wakes askers that sleep and for which is_gone answers true. */
void inbox_wake_gone(inbox *x, bool (*is_gone)(void *asker));

/* ---- the engine -------------------------------------------------------------- */

/* The oldest new ask, or NULL. */
ask *inbox_take(inbox *x);
/* The real time at which that ask came; negative: there is none. */
double inbox_first_s(inbox *x);
/* One that was taken, is not done, and whose asker has left; NULL: none. Each comes once. */
ask *inbox_take_cancelled(inbox *x);
/* How far it is; with an end, the ask is not the engine's any more. */
void inbox_tell(inbox *x, ask *a, const ask_progress *progress);
/* Waits until there are new or cancelled asks, the inbox is closed, or `seconds` have passed
 * (HUGE_VAL: no limit). */
void inbox_wait(inbox *x, double seconds);
/* The same, but asks do not end it. */
void inbox_pause(inbox *x, double seconds);

/* No more asks; the engine is woken. */
void inbox_close(inbox *x);
bool inbox_is_closed(inbox *x);
uint32_t inbox_num_open(inbox *x);
/* Waits until all askers have left, but not longer. */
void inbox_wait_left(inbox *x, double seconds);

#endif
