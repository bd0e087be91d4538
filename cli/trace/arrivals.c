#include "arrivals.h"

#include "output/grown.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is found by a number stands in the chain of its bucket. */
typedef struct link {
    uint64_t key;
    struct link *next;
} link;

/* Whose turns come one after the other: the last one that was read. */
typedef struct session {
    link link; /* first, as is that of an open_request; by id */
    uint64_t last_number;
    bool has_ended; /* that turn */
    double end_s;
} session;

/* A turn that waits for the ends of others. */
typedef struct waiter {
    arrival *it;
    uint32_t num_open; /* that have not ended */
} waiter;

/* A request that was read and has not ended, and those that wait for it. */
typedef struct open_request {
    link link; /* by number + 1 */
    waiter **waiters;
    uint32_t num_waiters;
    uint32_t capacity;
} open_request;

enum { NUM_BUCKETS = 1 << 14, MAX_SESSIONS = 1 << 20 };

struct arrivals {
    trace_reader *reader;
    replay_clock clock;
    double speed;
    double start_s;
    arrival *records[ARRIVALS_RECORDS]; /* read, and not needed yet: a ring */
    uint32_t first_record;
    uint32_t num_records;
    int end;           /* what trace_next said last; 1: it may have more */
    bool lacks_memory; /* for the record behind the last one that was read */
    arrival *ahead;    /* read, and not due yet */
    arrival *back;     /* put back */
    bool has_sessions; /* whose turns may wait for each other */
    bool is_broken;
    bool no_memory;
    uint64_t num_active; /* taken and not ended */
    arrival_queue due;   /* have come */
    arrival_queue later; /* turns of sessions whose time is known */
    double now_s;
    arrivals_read read;
    size_t num_sessions;
    link *sessions[NUM_BUCKETS];
    link *open[NUM_BUCKETS];
};

arrivals *arrivals_open(trace_reader *reader, replay_clock clock, double speed, double start_s)
{
    arrivals *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->reader = reader;
    a->clock = clock;
    a->speed = speed;
    a->start_s = start_s;
    a->end = 1;
    trace_format format = trace_reader_format(reader);
    bool is_open = format == TRACE_BAILIAN || format == TRACE_AZURE || format == TRACE_BURSTGPT;
    a->has_sessions = clock == REPLAY_CLOCK_TRACE && !is_open;
    return a;
}

/* ---- who waits for whom ------------------------------------------------------ */

static size_t bucket_of(uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 50);
}

/* What leads to the link of that key; to NULL, where there is none. */
static link **find_link(link **buckets, uint64_t key)
{
    link **at = &buckets[bucket_of(key)];
    while (*at != NULL && (*at)->key != key)
        at = &(*at)->next;
    return at;
}

/* Something new of that key, all else zero. NULL: no memory. */
static void *add_link(link **buckets, uint64_t key, size_t bytes)
{
    link *it = calloc(1, bytes);
    link **first = &buckets[bucket_of(key)];
    if (it == NULL)
        return NULL;
    *it = (link){.key = key, .next = *first};
    *first = it;
    return it;
}

static session *find_session(arrivals *a, uint64_t id)
{
    return (session *)*find_link(a->sessions, id);
}

static void drop_session(arrivals *a, link *s)
{
    *find_link(a->sessions, s->key) = s->next;
    a->num_sessions--;
    free(s);
}

/* Of very many sessions, one that has been idle for long counts as new when it goes on. */
static void forget_idle_session(arrivals *a, size_t bucket)
{
    link *oldest = NULL;
    for (link *at = a->sessions[bucket]; at != NULL; at = at->next)
        if (((session *)at)->has_ended)
            oldest = at;
    if (oldest != NULL)
        drop_session(a, oldest);
}

static session *begin_session(arrivals *a, uint64_t id)
{
    if (a->num_sessions >= MAX_SESSIONS)
        forget_idle_session(a, bucket_of(id));
    session *s = add_link(a->sessions, id, sizeof *s);
    a->num_sessions += s != NULL;
    return s;
}

/* One end more to wait for, if that has not come yet. False: no memory. */
static bool wait_for(arrivals *a, waiter *w, uint64_t number)
{
    open_request *it = (open_request *)*find_link(a->open, number + 1);
    if (it == NULL)
        return true;
    if (!grow(&it->waiters, it->num_waiters, &it->capacity, UINT32_MAX, sizeof(waiter *)))
        return false;
    it->waiters[it->num_waiters++] = w;
    w->num_open++;
    return true;
}

/* ---- ends ------------------------------------------------------------------- */

/* Those that wait for it lose one that they wait for; who waits for nobody is handed to `ready`. */
static bool close_request(arrivals *a, link **at, bool (*ready)(arrivals *, waiter *))
{
    open_request *it = (open_request *)*at;
    bool ok = true;
    *at = it->link.next;
    for (size_t i = 0; i < it->num_waiters; i++)
        if (--it->waiters[i]->num_open == 0)
            ok = ready(a, it->waiters[i]) && ok;
    free(it->waiters);
    free(it);
    return ok;
}

static bool discard(arrivals *a, waiter *w)
{
    (void)a;
    arrival_free(w->it);
    free(w);
    return true;
}

/* All have ended that it waited for. */
static bool start_turn(arrivals *a, waiter *w)
{
    w->it->time_s = a->now_s + w->it->request.think_s / a->speed;
    bool ok = arrival_queue_push(&a->later, w->it);
    if (!ok)
        arrival_free(w->it);
    free(w);
    return ok;
}

void arrivals_close(arrivals *a)
{
    if (a == NULL)
        return;
    for (size_t i = 0; i < NUM_BUCKETS; i++) {
        while (a->sessions[i] != NULL)
            drop_session(a, a->sessions[i]);
        while (a->open[i] != NULL)
            close_request(a, &a->open[i], discard);
    }
    for (uint32_t i = 0; i < a->num_records; i++)
        arrival_free(a->records[(a->first_record + i) % ARRIVALS_RECORDS]);
    arrival_queue_free(&a->due);
    arrival_queue_free(&a->later);
    arrival_free(a->ahead);
    arrival_free(a->back);
    free(a);
}

/* ---- reading --------------------------------------------------------------- */

/* NULL: no memory. */
static void *copy_array(const void *from, size_t bytes)
{
    void *to = malloc(bytes == 0 ? 1 : bytes);
    if (to != NULL && bytes > 0)
        memcpy(to, from, bytes);
    return to;
}

static arrival *copy_request(const arrivals *a, const trace_request *request)
{
    arrival *it = calloc(1, sizeof *it);
    if (it == NULL)
        return NULL;
    it->segments = copy_array(request->prompt, request->num_segments * sizeof *it->segments);
    it->after = copy_array(request->after, request->num_after * sizeof *it->after);
    if (it->segments == NULL || it->after == NULL) {
        arrival_free(it);
        return NULL;
    }
    it->request = *request;
    it->request.prompt = it->segments;
    it->request.after = it->after;
    it->number = request->number;
    it->time_s = a->start_s + (a->clock == REPLAY_CLOCK_TRACE ? request->time_s / a->speed : 0);
    return it;
}

/* The next record of the trace. NULL: `end` and lacks_memory say why. */
static arrival *read_record(arrivals *a)
{
    trace_request request;
    arrival *it = NULL;
    if (a->end == 1)
        a->end = trace_next(a->reader, &request);
    if (a->end == 1)
        it = copy_request(a, &request);
    if (a->end == 1 && it == NULL) {
        a->end = -1;
        a->lacks_memory = true;
    }
    return it;
}

bool arrivals_may_read_on(const arrivals *a)
{
    return a->end == 1 && a->num_records < ARRIVALS_RECORDS;
}

const arrival *arrivals_read_on(arrivals *a)
{
    arrival *it = a->num_records < ARRIVALS_RECORDS ? read_record(a) : NULL;
    if (it != NULL)
        a->records[(a->first_record + a->num_records++) % ARRIVALS_RECORDS] = it;
    return it;
}

const arrival *arrivals_coming(const arrivals *a, uint32_t i)
{
    bool has_ahead = a->ahead != NULL;
    if (has_ahead && i == 0)
        return a->ahead;
    i -= has_ahead;
    return i < a->num_records ? a->records[(a->first_record + i) % ARRIVALS_RECORDS] : NULL;
}

static arrival *next_record(arrivals *a)
{
    if (a->num_records == 0)
        return read_record(a);
    arrival *it = a->records[a->first_record];
    a->first_record = (a->first_record + 1) % ARRIVALS_RECORDS;
    a->num_records--;
    return it;
}

/* The next record becomes `ahead`; false at the end, or when something is wrong. */
static bool read_ahead(arrivals *a)
{
    if (a->ahead != NULL || a->read.is_all || a->is_broken)
        return a->ahead != NULL;
    a->ahead = next_record(a);
    if (a->ahead == NULL) {
        a->read.is_all = a->end == 0;
        a->is_broken = a->end < 0;
        a->no_memory |= a->lacks_memory;
        return false;
    }
    a->read.requests++;
    a->read.prompt_tokens += a->ahead->request.num_prompt_tokens;
    a->read.output_tokens += a->ahead->request.num_output_tokens;
    return true;
}

static bool is_later_turn(const arrivals *a, const arrival *it)
{
    const trace_request *r = &it->request;
    return a->has_sessions && r->is_closed_loop && (r->turn > 0 || r->num_after > 0);
}

/* A turn that comes after others have ended. */
static bool place_turn(arrivals *a, arrival *it, const session *s)
{
    const trace_request *r = &it->request;
    waiter *w = calloc(1, sizeof *w);
    if (w == NULL) {
        arrival_free(it);
        return false;
    }
    w->it = it;
    bool ok = true;
    for (uint32_t i = 0; i < r->num_after; i++)
        ok = ok && wait_for(a, w, it->after[i]);
    bool has_before = r->num_after == 0 && s != NULL && s->last_number != it->number;
    if (has_before && !s->has_ended)
        ok = ok && wait_for(a, w, s->last_number);
    if (!ok || w->num_open > 0)
        return ok;
    double from_s = has_before ? s->end_s : a->now_s; /* all have ended already */
    it->time_s = from_s + r->think_s / a->speed;
    free(w);
    return arrival_queue_push(&a->later, it);
}

/* Puts `ahead` where it belongs. */
static bool place_ahead(arrivals *a)
{
    arrival *it = a->ahead;
    const trace_request *r = &it->request;
    a->ahead = NULL;
    if (!a->has_sessions)
        return arrival_queue_push(&a->due, it);
    session *s = r->session == 0 ? NULL : find_session(a, r->session);
    bool is_later = is_later_turn(a, it);
    bool ok = add_link(a->open, it->number + 1, sizeof(open_request)) != NULL;
    uint64_t number = it->number;
    ok = ok && (is_later ? place_turn(a, it, s) : arrival_queue_push(&a->due, it));
    if (!ok || r->session == 0)
        return ok;
    if (s == NULL)
        s = begin_session(a, r->session);
    if (s == NULL)
        return false;
    s->last_number = number;
    s->has_ended = false;
    return true;
}

static void give_up(arrivals *a)
{
    a->no_memory = true;
    a->is_broken = true;
}

/* Reads until the next record lies in the future. Without times: one at a time, as they are taken,
 * and serially only when nobody is active. */
static void fill_due(arrivals *a, double now_s)
{
    a->now_s = now_s;
    while (!a->is_broken && read_ahead(a)) {
        bool is_needed = is_later_turn(a, a->ahead) || a->ahead->time_s <= now_s;
        if (a->clock != REPLAY_CLOCK_TRACE)
            is_needed = a->due.count == 0 && a->back == NULL;
        if (a->clock == REPLAY_CLOCK_SERIAL)
            is_needed = is_needed && a->num_active == 0;
        if (!is_needed)
            break;
        if (a->clock == REPLAY_CLOCK_SERIAL)
            a->ahead->time_s = now_s;
        if (!place_ahead(a))
            give_up(a);
    }
    while (!a->is_broken && a->later.count > 0 && a->later.items[0]->time_s <= now_s)
        if (!arrival_queue_push(&a->due, arrival_queue_pop(&a->later)))
            give_up(a);
}

/* ---- for the replay -------------------------------------------------------- */

double arrivals_next_time(arrivals *a, double now_s)
{
    fill_due(a, now_s);
    if (a->is_broken)
        return -1;
    double next = HUGE_VAL;
    if (a->back != NULL)
        next = a->back->time_s;
    if (a->due.count > 0 && a->due.items[0]->time_s < next)
        next = a->due.items[0]->time_s;
    if (a->later.count > 0 && a->later.items[0]->time_s < next)
        next = a->later.items[0]->time_s;
    if (a->clock == REPLAY_CLOCK_TRACE && a->ahead != NULL && a->ahead->time_s < next)
        next = a->ahead->time_s;
    return next;
}

arrival *arrivals_take(arrivals *a, double now_s)
{
    fill_due(a, now_s);
    if (a->is_broken)
        return NULL;
    arrival *it = a->back;
    a->back = NULL;
    if (it == NULL && a->due.count > 0)
        it = arrival_queue_pop(&a->due);
    a->num_active += it != NULL;
    return it;
}

void arrivals_put_back(arrivals *a, arrival *it)
{
    a->back = it;
    a->num_active--;
}

void arrivals_note_end(arrivals *a, const trace_request *r, double now_s)
{
    a->num_active--;
    a->now_s = now_s;
    if (!a->has_sessions)
        return;
    link **at = find_link(a->open, r->number + 1);
    if (*at != NULL && !close_request(a, at, start_turn))
        give_up(a);
    session *s = r->session != 0 ? find_session(a, r->session) : NULL;
    if (s == NULL || s->last_number != r->number)
        return;
    s->has_ended = true;
    s->end_s = now_s;
    if (r->is_last_turn)
        drop_session(a, &s->link);
}

void arrivals_note_left_out(arrivals *a, const trace_request *r, double now_s)
{
    a->read.requests--;
    a->read.prompt_tokens -= r->num_prompt_tokens;
    a->read.output_tokens -= r->num_output_tokens;
    arrivals_note_end(a, r, now_s);
}

bool arrivals_may_follow(const arrivals *a, const trace_request *r)
{
    return a->clock == REPLAY_CLOCK_SERIAL ||
           (a->has_sessions && (r->session != 0 || r->is_closed_loop));
}

bool arrivals_no_memory(const arrivals *a)
{
    return a->no_memory;
}

arrivals_read arrivals_get_read(const arrivals *a)
{
    return a->read;
}

uint64_t arrivals_num_due(const arrivals *a)
{
    return a->due.count + (a->back != NULL);
}
