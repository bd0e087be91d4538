#include "arrivals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A closed-loop session that has begun. */
typedef struct session {
    uint64_t id;
    bool is_idle;      /* no turn of it is due or in the scheduler */
    double last_end_s; /* of its last turn */
    arrival **turns;   /* to come, a queue */
    size_t first_turn;
    size_t num_turns;
    size_t capacity;
    struct session *next; /* of its bucket */
} session;

enum { NUM_BUCKETS = 1 << 14 };

/* By time, then by number. */
typedef struct heap {
    arrival **items;
    size_t count;
    size_t capacity;
} heap;

struct arrivals {
    trace_reader *reader;
    replay_clock clock;
    double speed;
    arrival *ahead;    /* read, and not due yet */
    arrival *back;     /* put back */
    bool has_sessions; /* whose turns may wait for each other */
    bool is_at_end;
    bool is_broken;
    bool no_memory;
    uint64_t num_read;
    uint64_t num_active; /* taken and not ended */
    heap due;            /* have come */
    heap later;          /* turns of sessions whose time is known */
    session *buckets[NUM_BUCKETS];
};

void arrival_free(arrival *it)
{
    if (it != NULL)
        free(it->segments);
    free(it);
}

arrivals *arrivals_open(trace_reader *reader, replay_clock clock, double speed)
{
    arrivals *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->reader = reader;
    a->clock = clock;
    a->speed = speed;
    trace_format format = trace_reader_format(reader);
    bool is_open = format == TRACE_BAILIAN || format == TRACE_AZURE || format == TRACE_BURSTGPT;
    a->has_sessions = clock == REPLAY_CLOCK_TRACE && !is_open;
    return a;
}

/* ---- sessions -------------------------------------------------------------- */

static session **bucket_of(arrivals *a, uint64_t id)
{
    return &a->buckets[(id * UINT64_C(0x9e3779b97f4a7c15)) >> 50];
}

static session *find_session(arrivals *a, uint64_t id)
{
    session *s = *bucket_of(a, id);
    while (s != NULL && s->id != id)
        s = s->next;
    return s;
}

static session *begin_session(arrivals *a, uint64_t id)
{
    session *s = calloc(1, sizeof *s);
    session **bucket = bucket_of(a, id);
    if (s == NULL)
        return NULL;
    s->id = id;
    s->next = *bucket;
    *bucket = s;
    return s;
}

static void free_session(session *s)
{
    for (size_t i = s->first_turn; i < s->num_turns; i++)
        arrival_free(s->turns[i]);
    free(s->turns);
    free(s);
}

static void end_session(arrivals *a, session *s)
{
    session **at = bucket_of(a, s->id);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free_session(s);
}

/* ---- the heap -------------------------------------------------------------- */

static bool is_before(const arrival *a, const arrival *b)
{
    return a->time_s < b->time_s || (a->time_s == b->time_s && a->number < b->number);
}

static bool heap_push(heap *h, arrival *it)
{
    if (h->count == h->capacity) {
        size_t capacity = h->capacity == 0 ? 64 : 2 * h->capacity;
        arrival **items = realloc(h->items, capacity * sizeof *items);
        if (items == NULL)
            return false;
        h->items = items;
        h->capacity = capacity;
    }
    size_t i = h->count++;
    for (; i > 0 && is_before(it, h->items[(i - 1) / 2]); i = (i - 1) / 2)
        h->items[i] = h->items[(i - 1) / 2];
    h->items[i] = it;
    return true;
}

static arrival *heap_pop(heap *h)
{
    arrival *top = h->items[0];
    arrival *last = h->items[--h->count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->count)
            break;
        if (child + 1 < h->count && is_before(h->items[child + 1], h->items[child]))
            child++;
        if (!is_before(h->items[child], last))
            break;
        h->items[i] = h->items[child];
        i = child;
    }
    if (h->count > 0)
        h->items[i] = last;
    return top;
}

static void heap_free(heap *h)
{
    for (size_t i = 0; i < h->count; i++)
        arrival_free(h->items[i]);
    free(h->items);
}

void arrivals_close(arrivals *a)
{
    if (a == NULL)
        return;
    for (size_t i = 0; i < NUM_BUCKETS; i++)
        while (a->buckets[i] != NULL)
            end_session(a, a->buckets[i]);
    heap_free(&a->due);
    heap_free(&a->later);
    arrival_free(a->ahead);
    arrival_free(a->back);
    free(a);
}

/* ---- reading --------------------------------------------------------------- */

static arrival *copy_request(arrivals *a, const trace_request *request)
{
    arrival *it = calloc(1, sizeof *it);
    size_t n = request->num_segments;
    if (it == NULL)
        return NULL;
    it->segments = malloc((n == 0 ? 1 : n) * sizeof *it->segments);
    if (it->segments == NULL) {
        free(it);
        return NULL;
    }
    memcpy(it->segments, request->prompt, n * sizeof *it->segments);
    it->request = *request;
    it->request.prompt = it->segments;
    it->number = a->num_read++;
    bool by_clock = a->clock == REPLAY_CLOCK_TRACE;
    it->time_s = by_clock ? request->time_s / a->speed : 0;
    return it;
}

/* Reads one more record into `ahead`; false at the end, or when something is wrong. */
static bool read_ahead(arrivals *a)
{
    trace_request request;
    if (a->ahead != NULL || a->is_at_end || a->is_broken)
        return a->ahead != NULL;
    int status = trace_next(a->reader, &request);
    a->is_at_end = status == 0;
    a->is_broken = status < 0;
    if (status <= 0)
        return false;
    a->ahead = copy_request(a, &request);
    a->no_memory |= a->ahead == NULL;
    a->is_broken |= a->ahead == NULL;
    return a->ahead != NULL;
}

static bool is_later_turn(const arrivals *a, const arrival *it)
{
    return a->has_sessions && it->request.is_closed_loop && it->request.turn > 0;
}

static bool queue_turn(session *s, arrival *it)
{
    if (s->num_turns == s->capacity) {
        size_t capacity = s->capacity == 0 ? 8 : 2 * s->capacity;
        arrival **turns = realloc(s->turns, capacity * sizeof *turns);
        if (turns == NULL)
            return false;
        s->turns = turns;
        s->capacity = capacity;
    }
    s->turns[s->num_turns++] = it;
    return true;
}

/* The session's next turn gets its time, if that turn is known and the one before has ended. */
static bool start_turn(arrivals *a, session *s)
{
    if (!s->is_idle || s->first_turn == s->num_turns)
        return true;
    arrival *it = s->turns[s->first_turn++];
    if (s->first_turn == s->num_turns)
        s->first_turn = s->num_turns = 0;
    it->time_s = s->last_end_s + it->request.think_s / a->speed;
    s->is_idle = false;
    return heap_push(&a->later, it);
}

/* Puts `ahead` where it belongs. */
static bool place_ahead(arrivals *a)
{
    arrival *it = a->ahead;
    const trace_request *r = &it->request;
    a->ahead = NULL;
    bool is_open = r->turn > 0 && !r->is_closed_loop;
    if (!a->has_sessions || r->session == 0 || is_open)
        return heap_push(&a->due, it);
    session *s = find_session(a, r->session);
    if (s == NULL) {
        s = begin_session(a, r->session);
        if (s == NULL) {
            arrival_free(it);
            return false;
        }
        s->is_idle = r->turn > 0; /* its first turn was skipped: it begins with this one */
        s->last_end_s = it->time_s;
    }
    if (r->turn == 0)
        return heap_push(&a->due, it);
    return queue_turn(s, it) && start_turn(a, s);
}

/* Reads until the next record lies in the future. Without times: one at a time, as they are taken,
 * and serially only when nobody is active. */
static void fill_due(arrivals *a, double now_s)
{
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
        if (!place_ahead(a)) {
            a->no_memory = true;
            a->is_broken = true;
        }
    }
    while (!a->is_broken && a->later.count > 0 && a->later.items[0]->time_s <= now_s)
        if (!heap_push(&a->due, heap_pop(&a->later))) {
            a->no_memory = true;
            a->is_broken = true;
        }
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
        it = heap_pop(&a->due);
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
    session *s = r->session != 0 ? find_session(a, r->session) : NULL;
    if (s == NULL)
        return;
    if (r->is_last_turn) {
        end_session(a, s);
        return;
    }
    s->is_idle = true;
    s->last_end_s = now_s;
    if (!start_turn(a, s)) {
        a->no_memory = true;
        a->is_broken = true;
    }
}

bool arrivals_no_memory(const arrivals *a)
{
    return a->no_memory;
}

uint64_t arrivals_num_due(const arrivals *a)
{
    return a->due.count + (a->back != NULL);
}
