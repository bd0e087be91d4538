#include "failures.h"

#include "fields.h"
#include "output/failure.h"
#include "output/grown.h"

#include <math.h>

static const double LONGEST_S = 1e9;
enum { MAX_FACTOR = 1000, NUM_KINDS = 5, MAX_FIELDS = 4, MAX_BYTES = 256 };

static const char *const names[NUM_KINDS] = {"crash", "slow", "partition", "gap", "tier"};

/* worker, from, to or restart, factor; of a tier: from, to, lose. */
static void fields_of(failure_kind kind, uint32_t num_workers, field table[MAX_FIELDS + 1])
{
    bool is_crash = kind == FAILURE_CRASH;
    uint32_t n = 0;
    if (kind != FAILURE_TIER)
        table[n++] = (field){"worker", NAN, 0, num_workers - 1.0, true};
    table[n++] = (field){is_crash ? "at" : "from", NAN, 0, LONGEST_S, false};
    if (is_crash)
        table[n++] = (field){"restart", HUGE_VAL, 0, LONGEST_S, false};
    else
        table[n++] = (field){"to", LONGEST_S, 0, LONGEST_S, false};
    if (kind == FAILURE_SLOW)
        table[n++] = (field){"factor", NAN, 1, MAX_FACTOR, false};
    if (kind == FAILURE_TIER)
        table[n++] = (field){"lose", 0, 0, 1, true};
    table[n] = (field){0};
}

/* Behind those that begin at the same time. */
static int insert(failures *f, const failure_event *event)
{
    if (!grow(&f->events, f->num_events, &f->capacity, UINT32_MAX, sizeof *f->events))
        return fail_with("not enough memory");
    uint32_t i = f->num_events++;
    for (; i > 0 && f->events[i - 1].from_s > event->from_s; i--)
        f->events[i] = f->events[i - 1];
    f->events[i] = *event;
    return 0;
}

static int add_one(failures *f, const char *text, uint32_t num_workers)
{
    char name[16];
    const char *rest;
    double values[MAX_FIELDS] = {0};
    field table[MAX_FIELDS + 1];
    uint32_t kind = 0;
    bool is_short = fields_name(text, name, sizeof name, &rest);
    while (kind < NUM_KINDS && (!is_short || strcmp(names[kind], name) != 0))
        kind++;
    if (kind == NUM_KINDS)
        return fail_with("invalid failure \"%.64s\" (expected crash, slow, partition, gap or tier)",
                         text);
    fields_of((failure_kind)kind, num_workers, table);
    if (fields_read(name, rest, table, values) != 0)
        return -1;
    bool is_crash = kind == FAILURE_CRASH;
    bool is_tier = kind == FAILURE_TIER;
    const double *times = is_tier ? values : values + 1;
    failure_event event = {.kind = (failure_kind)kind,
                           .worker = is_tier ? FAILURES_NO_WORKER : (uint32_t)values[0],
                           .from_s = times[0],
                           .to_s = is_crash ? times[0] + times[1] : times[1],
                           .factor = kind == FAILURE_SLOW ? values[3] : 1,
                           .loses = is_tier && values[2] > 0};
    if (!is_crash && event.to_s <= event.from_s)
        return fail_with("invalid value \"%g\" for to of %s (expected more than from: %g)",
                         event.to_s, name, event.from_s);
    return insert(f, &event);
}

int failures_add(failures *f, const char *text, uint32_t num_workers)
{
    char one[MAX_BYTES];
    do {
        size_t n = strcspn(text, ";");
        if (n >= sizeof one)
            return fail_with("a failure has %zu characters (expected at most %d)", n,
                             MAX_BYTES - 1);
        memcpy(one, text, n);
        one[n] = '\0';
        if (add_one(f, one, num_workers) != 0)
            return -1;
        text += n;
    } while (*text++ == ';');
    return 0;
}

void failures_free(failures *f)
{
    free(f->events);
    *f = (failures){0};
}

bool failures_lose_events(const failures *f)
{
    for (uint32_t i = 0; i < f->num_events; i++)
        if (f->events[i].kind == FAILURE_PARTITION || f->events[i].kind == FAILURE_GAP)
            return true;
    return false;
}

/* A number from 0 to 1, both excluded: splitmix64 of the three. */
static double draw(uint64_t seed, uint32_t worker, uint64_t number)
{
    uint64_t x = seed + (worker + UINT64_C(1)) * UINT64_C(0xd6e8feb86659fd93) +
                 (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return ((double)((x ^ x >> 31) >> 11) + 0.5) * 0x1p-53;
}

double failures_draw_s(const failures *f, uint32_t worker, uint64_t number, double ready_s)
{
    if (f->mtbf_s <= 0)
        return HUGE_VAL;
    return ready_s - f->mtbf_s * log(draw(f->seed, worker, number));
}

double failures_next_s(const failures *f, double now_s)
{
    double next_s = HUGE_VAL;
    for (uint32_t i = 0; i < f->num_events; i++) {
        const failure_event *e = &f->events[i];
        if (e->from_s > now_s && e->from_s < next_s)
            next_s = e->from_s;
        if (e->kind != FAILURE_CRASH && e->to_s > now_s && e->to_s < next_s)
            next_s = e->to_s;
    }
    return next_s;
}

failure_state failures_now(const failures *f, uint32_t worker, double now_s)
{
    failure_state state = {.slowness = 1};
    for (uint32_t i = 0; i < f->num_events; i++) {
        const failure_event *e = &f->events[i];
        if (e->worker != worker || e->from_s > now_s || e->to_s <= now_s)
            continue;
        if (e->kind == FAILURE_SLOW && e->factor > state.slowness)
            state.slowness = e->factor;
        state.is_mute |= e->kind == FAILURE_PARTITION || e->kind == FAILURE_GAP;
        state.is_hidden |= e->kind == FAILURE_PARTITION;
    }
    return state;
}

failure_tier failures_tier_now(const failures *f, double now_s)
{
    failure_tier state = {0};
    for (uint32_t i = 0; i < f->num_events; i++) {
        const failure_event *e = &f->events[i];
        if (e->kind != FAILURE_TIER || e->from_s > now_s || e->to_s <= now_s)
            continue;
        state.is_down = true;
        state.loses |= e->loses;
    }
    return state;
}
