#include "player.h"
#include "output/progress.h"
#include "trace/content.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A request that an engine has: its ask is told here. */
typedef struct played {
    player *player;
    arrival *from;
    struct played *next; /* that has ended */
} played;

struct player {
    const replay_settings *settings;
    live_engine *engines;
    uint32_t num_engines;
    trace_reader *reader;
    arrivals *arrivals;
    pace pace;
    uint64_t num_asked; /* that have not ended */
    uint64_t next_engine;
    pthread_t thread;
    bool has_thread;
    _Atomic bool is_stopping;
    _Atomic bool is_done;
    _Atomic bool has_failed;
    _Atomic uint64_t num_left_out;
    char failure[FAILURE_BYTES];

    pthread_mutex_t lock; /* of `ended` */
    pthread_cond_t news;
    played *ended;
};

/* ---- one request --------------------------------------------------------------- */

static quire_token token_at(const engine_ask *of, uint32_t place)
{
    quire_token token;
    content_tokens(((const ask *)(const void *)of)->content, place, 1, &token);
    return token;
}

/* On the engine's thread. */
static void told(void *user, ask *a, const ask_progress *p)
{
    (void)a;
    played *it = user;
    player *owner = it->player;
    if (p->end == ASK_OPEN)
        return;
    if (p->end == ASK_REFUSED)
        atomic_fetch_add(&owner->num_left_out, 1);
    pthread_mutex_lock(&owner->lock);
    it->next = owner->ended;
    owner->ended = it;
    pthread_cond_signal(&owner->news);
    pthread_mutex_unlock(&owner->lock);
}

/* NULL: no memory. */
static ask *make_ask(const trace_request *q)
{
    api_request request = {.kind = API_COMPLETION,
                           .num_tokens = q->num_prompt_tokens,
                           .max_tokens = q->num_output_tokens > 0 ? q->num_output_tokens : 1,
                           .priority = q->priority,
                           .ignore_eos = true};
    uint32_t at = 0;
    request.tokens = malloc(q->num_prompt_tokens * sizeof *request.tokens + 1);
    if (request.tokens == NULL)
        return NULL;
    for (uint32_t i = 0; i < q->num_segments; i++) {
        content_tokens(q->prompt[i].content, 0, q->prompt[i].num_tokens, request.tokens + at);
        at += q->prompt[i].num_tokens;
    }
    ask *a = ask_create(&request, UINT32_MAX);
    if (a == NULL) {
        api_request_free(&request);
        return NULL;
    }
    a->content = q->output_content;
    a->engine.token_at = token_at;
    a->told = told;
    return a;
}

static live_engine *engine_of(player *p, const trace_request *q)
{
    uint64_t number = q->session != 0 ? q->session : p->next_engine++;
    return &p->engines[number % p->num_engines];
}

/* 0; or -1 and a sentence. The arrival is freed at its end. */
static int submit(player *p, arrival *from)
{
    played *it = calloc(1, sizeof *it);
    ask *a = make_ask(&from->request);
    if (it == NULL || a == NULL) {
        free(it);
        ask_free(a);
        return fail_with("not enough memory for a request of the trace");
    }
    *it = (played){.player = p, .from = from};
    p->num_asked++;
    inbox_status status = inbox_submit(&engine_of(p, &from->request)->inbox, a, it);
    if (status == INBOX_OK)
        return 0;
    p->num_asked--;
    free(it);
    ask_free(a);
    if (status == INBOX_CLOSED)
        return fail_with("the engine is stopping");
    arrivals_put_back(p->arrivals, from);
    return 1;
}

/* ---- the loop -------------------------------------------------------------------- */

static played *take_ended(player *p)
{
    pthread_mutex_lock(&p->lock);
    played *ended = p->ended;
    p->ended = NULL;
    pthread_mutex_unlock(&p->lock);
    return ended;
}

static void note_ends(player *p, double now_s)
{
    for (played *next, *it = take_ended(p); it != NULL; it = next) {
        next = it->next;
        arrivals_note_end(p->arrivals, &it->from->request, now_s);
        arrival_free(it->from);
        free(it);
        p->num_asked--;
    }
}

/* Until a request has ended or that time has passed; at most a tenth of a second. */
static void wait_for_news(player *p, double seconds)
{
    enum { LOOK_MS = 100 };
    struct timespec until;
    seconds = fmin(seconds, LOOK_MS * 1e-3);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(seconds * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&p->lock);
    while (p->ended == NULL && !atomic_load(&p->is_stopping))
        if (pthread_cond_timedwait(&p->news, &p->lock, &until) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&p->lock);
}

/* 1: all requests that are due were asked; 0: an engine takes no more now; -1: an error. */
static int submit_due(player *p, double now_s)
{
    arrival *it;
    while ((it = arrivals_take(p->arrivals, now_s)) != NULL) {
        const trace_request *q = &it->request;
        if (q->num_prompt_tokens == 0 ||
            q->num_prompt_tokens >= p->engines[0].engine.max_model_len) {
            atomic_fetch_add(&p->num_left_out, 1);
            arrivals_note_left_out(p->arrivals, q, now_s);
            arrival_free(it);
            continue;
        }
        int status = submit(p, it);
        if (status != 0)
            return status < 0 ? -1 : 0;
    }
    return 1;
}

static int run_all(player *p)
{
    enum { FULL_MS = 10 };
    double now_s = 0;
    (void)pace_left_s(&p->pace, 0, progress_clock());
    while (!atomic_load(&p->is_stopping)) {
        now_s = fmax(now_s, pace_simulated_s(&p->pace, progress_clock()));
        note_ends(p, now_s);
        int status = submit_due(p, now_s);
        double next_s = arrivals_next_time(p->arrivals, now_s);
        if (status < 0)
            return -1;
        if (arrivals_no_memory(p->arrivals))
            return fail_with("not enough memory for the requests that wait");
        if (next_s < 0)
            return fail_with("%s", trace_error(p->reader));
        atomic_store(&p->is_done, next_s == HUGE_VAL && p->num_asked == 0);
        double left = pace_left_s(&p->pace, next_s, progress_clock());
        wait_for_news(p, status == 0 ? FULL_MS * 1e-3 : fmax(left, 0));
    }
    return 0;
}

static void *run(void *user)
{
    player *p = user;
    if (run_all(p) != 0 && !atomic_load(&p->is_stopping)) {
        snprintf(p->failure, sizeof p->failure, "%s", failure());
        atomic_store(&p->has_failed, true);
    }
    return NULL;
}

/* ---- opening and closing ----------------------------------------------------------- */

player *player_open(const replay_settings *settings, double speed, live_engine *engines,
                    uint32_t num_engines)
{
    pthread_condattr_t clock;
    player *p = calloc(1, sizeof *p);
    if (p == NULL) {
        fail_with("not enough memory");
        return NULL;
    }
    p->settings = settings;
    p->engines = engines;
    p->num_engines = num_engines;
    p->pace.speed = speed;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->news, &clock);
    pthread_mutex_init(&p->lock, NULL);
    p->reader = replay_open_trace(settings);
    if (p->reader != NULL)
        p->arrivals =
            arrivals_open(p->reader, settings->clock, settings->speed > 0 ? settings->speed : 1, 0);
    if (p->arrivals != NULL)
        return p;
    if (p->reader != NULL)
        fail_with("not enough memory");
    player_close(p);
    return NULL;
}

int player_start(player *p)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->has_thread = pthread_create(&p->thread, NULL, run, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p->has_thread ? 0 : fail_with("cannot start a thread for the trace");
}

void player_stop(player *p)
{
    if (p == NULL)
        return;
    atomic_store(&p->is_stopping, true);
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->news);
    pthread_mutex_unlock(&p->lock);
    if (p->has_thread)
        pthread_join(p->thread, NULL);
    p->has_thread = false;
}

void player_close(player *p)
{
    if (p == NULL)
        return;
    for (played *next, *it = p->ended; it != NULL; it = next) {
        next = it->next;
        arrival_free(it->from);
        free(it);
    }
    arrivals_close(p->arrivals);
    trace_close(p->reader);
    pthread_cond_destroy(&p->news);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

bool player_is_done(const player *p)
{
    return atomic_load(&p->is_done);
}

const char *player_failure(const player *p)
{
    return atomic_load(&p->has_failed) ? p->failure : NULL;
}

uint64_t player_num_left_out(const player *p)
{
    return atomic_load(&p->num_left_out);
}
