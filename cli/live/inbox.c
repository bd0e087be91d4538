#include "inbox.h"
#include "output/progress.h"
#include "words.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- one ask ------------------------------------------------------------------ */

static quire_token ask_token_at(const engine_ask *of, uint32_t place)
{
    const ask *a = (const ask *)(const void *)of;
    return place < a->answer_tokens ? words_answer(a->content, place) : WORDS_END;
}

ask *ask_create(api_request *request, uint32_t answer_tokens)
{
    ask *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    a->request = *request;
    request->tokens = NULL;
    const api_request *q = &a->request;
    a->content = words_content(q->tokens, q->num_tokens);
    /* Like a model: it does not end its answer where it must not. */
    a->answer_tokens = q->ignore_eos                   ? UINT32_MAX
                       : q->min_tokens > answer_tokens ? q->min_tokens
                                                       : answer_tokens;
    a->created_s = progress_clock();
    a->created_unix_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    a->engine.token_at = ask_token_at;
    a->engine.params = (quire_request_params){
        .size = sizeof(quire_request_params),
        .prompt = q->tokens,
        .num_prompt_tokens = q->num_tokens,
        .max_tokens = q->max_tokens,
        .min_tokens = q->min_tokens,
        .has_eos = !q->ignore_eos,
        .eos_token_id = WORDS_END,
        .stop_token_ids = q->num_stops > 0 ? q->stops : NULL,
        .num_stop_token_ids = q->num_stops,
    };
    if (q->salt[0] != '\0')
        a->engine.params.cache_salt = (quire_bytes){a->request.salt, strlen(q->salt)};
    return a;
}

void ask_free(ask *a)
{
    if (a != NULL)
        api_request_free(&a->request);
    free(a);
}

/* ---- both sides ---------------------------------------------------------------- */

bool inbox_open(inbox *x, uint32_t max_open, void (*sleep)(void *), void (*wake)(void *))
{
    pthread_condattr_t clock;
    *x = (inbox){.max_open = max_open, .sleep = sleep, .wake = wake};
    bool ok = pthread_condattr_init(&clock) == 0;
    ok = ok && pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0 &&
         pthread_cond_init(&x->news, &clock) == 0 && pthread_mutex_init(&x->lock, NULL) == 0;
    return ok;
}

void inbox_free(inbox *x)
{
    pthread_cond_destroy(&x->news);
    pthread_mutex_destroy(&x->lock);
}

static void list_asker(inbox *x, ask *a)
{
    a->older = x->all;
    if (x->all != NULL)
        x->all->newer = a;
    x->all = a;
}

static void unlist_asker(inbox *x, ask *a)
{
    if (a->newer != NULL)
        a->newer->older = a->older;
    else if (x->all == a)
        x->all = a->older;
    if (a->older != NULL)
        a->older->newer = a->newer;
    a->newer = a->older = NULL;
}

/* ---- the asker ------------------------------------------------------------------ */

inbox_status inbox_submit(inbox *x, ask *a, void *asker)
{
    inbox_status status = INBOX_OK;
    pthread_mutex_lock(&x->lock);
    if (x->is_closed)
        status = INBOX_CLOSED;
    else if (x->num_open >= x->max_open)
        status = INBOX_FULL;
    if (status == INBOX_OK) {
        a->inbox = x;
        a->asker = asker;
        a->is_left = a->told != NULL; /* nobody looks: it is told */
        if (!a->is_left)
            list_asker(x, a);
        if (x->last != NULL)
            x->last->next = a;
        else
            x->first = a;
        x->last = a;
        x->num_open++;
        pthread_cond_signal(&x->news);
    }
    pthread_mutex_unlock(&x->lock);
    return status;
}

bool inbox_look(inbox *x, ask *a, const ask_progress *seen, bool only_end, ask_progress *now)
{
    pthread_mutex_lock(&x->lock);
    *now = a->progress;
    bool is_new = now->end != seen->end || (!only_end && now->num_generated != seen->num_generated);
    if (!is_new) {
        a->is_asleep = true;
        a->only_end = only_end;
        x->sleep(a->asker);
    }
    pthread_mutex_unlock(&x->lock);
    return is_new;
}

void inbox_leave(inbox *x, ask *a)
{
    pthread_mutex_lock(&x->lock);
    a->is_left = true;
    a->is_asleep = false;
    unlist_asker(x, a);
    bool is_done = a->state == ASK_DONE;
    if (a->state == ASK_TAKEN) { /* one that is not taken yet is looked at when it is */
        a->next = x->cancelled;
        x->cancelled = a;
        pthread_cond_signal(&x->news);
    }
    pthread_mutex_unlock(&x->lock);
    if (is_done)
        ask_free(a);
}

static void wake(inbox *x, ask *a)
{
    if (!a->is_asleep)
        return;
    a->is_asleep = false;
    x->wake(a->asker);
}

void inbox_wake_gone(inbox *x, bool (*is_gone)(void *asker))
{
    pthread_mutex_lock(&x->lock);
    for (ask *a = x->all; a != NULL; a = a->older)
        if (a->is_asleep && is_gone(a->asker))
            wake(x, a);
    pthread_mutex_unlock(&x->lock);
}

/* ---- the engine ------------------------------------------------------------------ */

ask *inbox_take(inbox *x)
{
    pthread_mutex_lock(&x->lock);
    ask *a = x->first;
    if (a != NULL) {
        x->first = a->next;
        if (x->first == NULL)
            x->last = NULL;
        a->next = NULL;
        a->state = ASK_TAKEN;
        if (a->is_left && a->told == NULL) {
            a->next = x->cancelled;
            x->cancelled = a;
        }
    }
    pthread_mutex_unlock(&x->lock);
    return a;
}

double inbox_first_s(inbox *x)
{
    pthread_mutex_lock(&x->lock);
    double first_s = x->first != NULL ? x->first->created_s : -1;
    pthread_mutex_unlock(&x->lock);
    return first_s;
}

ask *inbox_take_cancelled(inbox *x)
{
    pthread_mutex_lock(&x->lock);
    ask *a = x->cancelled;
    if (a != NULL)
        x->cancelled = a->next;
    pthread_mutex_unlock(&x->lock);
    return a;
}

/* It is done, and was cancelled since: the engine has not looked yet, and need not. */
static void forget_cancelled(inbox *x, const ask *a)
{
    ask **at = &x->cancelled;
    while (*at != NULL && *at != a)
        at = &(*at)->next;
    if (*at != NULL)
        *at = a->next;
}

void inbox_tell(inbox *x, ask *a, const ask_progress *p)
{
    bool is_end = p->end != ASK_OPEN;
    if (a->told != NULL)
        a->told(a->asker, a, p);
    pthread_mutex_lock(&x->lock);
    a->progress = *p;
    bool is_left = a->is_left;
    if (is_end) {
        a->state = ASK_DONE;
        x->num_open--;
        forget_cancelled(x, a);
    }
    if (is_end || !a->only_end)
        wake(x, a);
    pthread_mutex_unlock(&x->lock);
    if (is_end && is_left)
        ask_free(a);
}

static void wait_for(inbox *x, double seconds, bool for_asks)
{
    enum { LONGEST_S = 3600 };
    struct timespec until;
    double whole = floor(seconds < LONGEST_S ? seconds : LONGEST_S);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)whole;
    until.tv_nsec += seconds < LONGEST_S ? (long)((seconds - whole) * 1e9) : 0;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&x->lock);
    while (!x->is_closed && !(for_asks && (x->first != NULL || x->cancelled != NULL)))
        if (pthread_cond_timedwait(&x->news, &x->lock, &until) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&x->lock);
}

void inbox_wait(inbox *x, double seconds)
{
    wait_for(x, seconds, true);
}

void inbox_pause(inbox *x, double seconds)
{
    wait_for(x, seconds, false);
}

void inbox_close(inbox *x)
{
    pthread_mutex_lock(&x->lock);
    x->is_closed = true;
    pthread_cond_broadcast(&x->news);
    pthread_mutex_unlock(&x->lock);
}

bool inbox_is_closed(inbox *x)
{
    pthread_mutex_lock(&x->lock);
    bool is_closed = x->is_closed;
    pthread_mutex_unlock(&x->lock);
    return is_closed;
}

uint32_t inbox_num_open(inbox *x)
{
    pthread_mutex_lock(&x->lock);
    uint32_t n = x->num_open;
    pthread_mutex_unlock(&x->lock);
    return n;
}

void inbox_wait_left(inbox *x, double seconds)
{
    double until = progress_clock() + seconds;
    bool is_left = false;
    while (!is_left && progress_clock() < until) {
        pthread_mutex_lock(&x->lock);
        is_left = x->all == NULL;
        pthread_mutex_unlock(&x->lock);
        if (!is_left)
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}
