/* cli/fleet/links.c - transfers begin, end and are stopped; links_rates.c has their rates. */
#include "links_inner.h"

#include <stdlib.h>
#include <string.h>

links *links_create(uint32_t num_links, uint32_t max_transfers)
{
    links *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    l->links = calloc(num_links, sizeof *l->links);
    l->transfers = calloc(max_transfers, sizeof *l->transfers);
    l->events = calloc(max_transfers, sizeof *l->events);
    l->set = calloc(max_transfers, sizeof *l->set);
    l->touched = calloc(num_links, sizeof *l->touched);
    l->changed = calloc(num_links, sizeof *l->changed);
    l->shares = calloc(num_links, sizeof *l->shares);
    bool is_small = num_links > 0 && max_transfers > 0 && max_transfers < NONE / LINKS_MAX_ROUTE;
    if (!is_small || l->links == NULL || l->transfers == NULL || l->events == NULL ||
        l->set == NULL || l->touched == NULL || l->changed == NULL || l->shares == NULL) {
        links_destroy(l);
        return NULL;
    }
    l->num_links = num_links;
    l->max_transfers = max_transfers;
    for (uint32_t i = 0; i < num_links; i++)
        l->links[i].first = NONE;
    for (uint32_t i = 0; i < max_transfers; i++)
        l->transfers[i].link_next = i + 1 < max_transfers ? i + 1 : NONE;
    l->ended = NONE;
    l->last_ended = NONE;
    return l;
}

void links_destroy(links *l)
{
    if (l == NULL)
        return;
    free(l->links);
    free(l->transfers);
    free(l->events);
    free(l->set);
    free(l->touched);
    free(l->changed);
    free(l->shares);
    free(l);
}

/* ---- the heap of events -------------------------------------------------------- */

static bool comes_before(const links *l, uint32_t a, uint32_t b)
{
    const transfer *x = &l->transfers[a];
    const transfer *y = &l->transfers[b];
    return x->event_s < y->event_s || (x->event_s == y->event_s && x->number < y->number);
}

static void put_event(links *l, uint32_t place, uint32_t t)
{
    l->events[place] = t;
    l->transfers[t].heap_place = place;
}

static void move_up(links *l, uint32_t place)
{
    uint32_t t = l->events[place];
    for (; place > 0 && comes_before(l, t, l->events[(place - 1) / 2]); place = (place - 1) / 2)
        put_event(l, place, l->events[(place - 1) / 2]);
    put_event(l, place, t);
}

static void move_down(links *l, uint32_t place)
{
    uint32_t t = l->events[place];
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= l->num_events)
            break;
        if (child + 1 < l->num_events && comes_before(l, l->events[child + 1], l->events[child]))
            child++;
        if (!comes_before(l, l->events[child], t))
            break;
        put_event(l, place, l->events[child]);
        place = child;
    }
    put_event(l, place, t);
}

static void add_event(links *l, uint32_t t)
{
    l->events[l->num_events] = t;
    move_up(l, l->num_events++);
}

static void remove_event(links *l, uint32_t t)
{
    uint32_t place = l->transfers[t].heap_place;
    uint32_t last = l->events[--l->num_events];
    if (last == t)
        return;
    put_event(l, place, last);
    move_up(l, place);
    move_down(l, l->transfers[last].heap_place);
}

void links_set_event(links *l, uint32_t t, double event_s)
{
    l->transfers[t].event_s = event_s;
    move_up(l, l->transfers[t].heap_place);
    move_down(l, l->transfers[t].heap_place);
}

/* ---- transfers on links ----------------------------------------------------------- */

static void note_changed(links *l, uint32_t link)
{
    if (l->links[link].has_changed)
        return;
    l->links[link].has_changed = true;
    l->changed[l->num_changed++] = link;
}

static void join_links(links *l, uint32_t t)
{
    transfer *it = &l->transfers[t];
    for (uint32_t i = 0; i < it->num_route; i++) {
        one_link *link = &l->links[it->route[i]];
        it->prev[i] = NONE;
        it->next[i] = link->first;
        if (link->first != NONE)
            l->transfers[link->first / LINKS_MAX_ROUTE].prev[link->first % LINKS_MAX_ROUTE] =
                t * LINKS_MAX_ROUTE + i;
        link->first = t * LINKS_MAX_ROUTE + i;
        note_changed(l, it->route[i]);
    }
}

static void leave_links(links *l, uint32_t t)
{
    transfer *it = &l->transfers[t];
    for (uint32_t i = 0; i < it->num_route; i++) {
        one_link *link = &l->links[it->route[i]];
        uint32_t next = it->next[i];
        uint32_t prev = it->prev[i];
        if (next != NONE)
            l->transfers[next / LINKS_MAX_ROUTE].prev[next % LINKS_MAX_ROUTE] = prev;
        if (prev != NONE)
            l->transfers[prev / LINKS_MAX_ROUTE].next[prev % LINKS_MAX_ROUTE] = next;
        else
            link->first = next;
        link->moved += it->bytes - it->left;
        note_changed(l, it->route[i]);
    }
}

/* ---- time --------------------------------------------------------------------------- */

static void note_end(links *l, uint32_t t, links_outcome outcome)
{
    transfer *it = &l->transfers[t];
    it->phase = ENDED;
    it->outcome = (uint8_t)outcome;
    it->event_s = l->now_s;
    it->link_next = NONE;
    if (l->last_ended != NONE)
        l->transfers[l->last_ended].link_next = t;
    else
        l->ended = t;
    l->last_ended = t;
}

static void begin_moving(links *l, uint32_t t)
{
    transfer *it = &l->transfers[t];
    it->phase = MOVES;
    it->since_s = l->now_s;
    it->bottleneck = NONE;
    links_set_event(l, t, HUGE_VAL); /* until it has a rate */
    join_links(l, t);
}

/* All events of one time together, and the rates once. */
void links_advance(links *l, double now_s)
{
    while (l->num_events > 0 && l->transfers[l->events[0]].event_s <= now_s) {
        double event_s = l->transfers[l->events[0]].event_s;
        l->now_s = fmax(l->now_s, event_s);
        while (l->num_events > 0 && l->transfers[l->events[0]].event_s <= event_s) {
            uint32_t t = l->events[0];
            transfer *it = &l->transfers[t];
            if (it->phase == WAITS && it->bytes > 0) {
                begin_moving(l, t);
                continue;
            }
            remove_event(l, t);
            it->left = 0;
            if (it->phase == MOVES)
                leave_links(l, t);
            note_end(l, t, LINKS_DONE);
        }
        links_compute_rates(l);
    }
    l->now_s = fmax(l->now_s, now_s);
}

double links_next_s(const links *l)
{
    return l->num_events > 0 ? l->transfers[l->events[0]].event_s : HUGE_VAL;
}

bool links_take(links *l, links_ended *ended)
{
    uint32_t t = l->ended;
    if (t == NONE)
        return false;
    transfer *it = &l->transfers[t];
    *ended = (links_ended){.user = it->user,
                           .time_s = it->event_s,
                           .left_bytes = it->left,
                           .outcome = (links_outcome)it->outcome};
    l->ended = it->link_next;
    if (l->ended == NONE)
        l->last_ended = NONE;
    it->phase = UNUSED;
    it->link_next = l->unused;
    l->unused = t;
    return true;
}

/* ---- changes -------------------------------------------------------------------------- */

void links_set_bandwidth(links *l, double now_s, uint32_t link, double bytes_per_s)
{
    links_advance(l, now_s);
    l->links[link].bandwidth = fmax(bytes_per_s, 0);
    for (uint32_t p = l->links[link].first; p != NONE;) {
        transfer *it = &l->transfers[p / LINKS_MAX_ROUTE];
        it->bottleneck =
            NONE; /* all of them join the set: the link may be too small for them now */
        p = it->next[p % LINKS_MAX_ROUTE];
    }
    note_changed(l, link);
    links_compute_rates(l);
}

static bool is_route(const links *l, const uint32_t *route, uint32_t num_route)
{
    for (uint32_t i = 0; i < num_route && num_route <= LINKS_MAX_ROUTE; i++)
        for (uint32_t k = 0; k <= i; k++)
            if (route[i] >= l->num_links || (k < i && route[k] == route[i]))
                return false;
    return num_route > 0 && num_route <= LINKS_MAX_ROUTE;
}

uint32_t links_start(links *l, double now_s, double latency_s, double bytes, const uint32_t *route,
                     uint32_t num_route, uint64_t user)
{
    uint32_t t = l->unused;
    bool is_valid = bytes >= 0 && latency_s >= 0 && isfinite(bytes) && isfinite(latency_s);
    if (t == NONE || !is_valid || !is_route(l, route, num_route))
        return NONE;
    links_advance(l, now_s);
    transfer *it = &l->transfers[t];
    l->unused = it->link_next;
    *it = (transfer){.user = user,
                     .number = l->number++,
                     .bytes = bytes,
                     .left = bytes,
                     .since_s = l->now_s,
                     .event_s = l->now_s + latency_s,
                     .bottleneck = NONE,
                     .num_route = (uint8_t)num_route,
                     .phase = WAITS};
    memcpy(it->route, route, num_route * sizeof *route);
    add_event(l, t);
    if (latency_s == 0 && bytes > 0) {
        begin_moving(l, t);
        links_compute_rates(l);
    }
    return t;
}

/* The transfer ends before it is done. */
static void stop(links *l, uint32_t t)
{
    transfer *it = &l->transfers[t];
    it->left = links_left_at(it, l->now_s);
    remove_event(l, t);
    if (it->phase == MOVES)
        leave_links(l, t);
}

double links_cancel(links *l, double now_s, uint32_t t)
{
    links_advance(l, now_s);
    transfer *it = &l->transfers[t];
    if (it->phase != WAITS && it->phase != MOVES)
        return 0;
    stop(l, t);
    it->phase = UNUSED;
    it->link_next = l->unused;
    l->unused = t;
    links_compute_rates(l);
    return it->left;
}

static bool goes_over(const transfer *it, uint32_t link)
{
    for (uint32_t i = 0; i < it->num_route; i++)
        if (it->route[i] == link)
            return true;
    return false;
}

/* In the order of their starts, those that wait their latency too. */
void links_fail(links *l, double now_s, uint32_t link)
{
    links_advance(l, now_s);
    for (;;) {
        uint32_t first = NONE;
        for (uint32_t i = 0; i < l->num_events; i++) {
            uint32_t t = l->events[i];
            if (goes_over(&l->transfers[t], link) &&
                (first == NONE || l->transfers[t].number < l->transfers[first].number))
                first = t;
        }
        if (first == NONE)
            break;
        stop(l, first);
        note_end(l, first, LINKS_FAILED);
    }
    links_compute_rates(l);
}

/* ---- what is -------------------------------------------------------------------------- */

double links_rate(const links *l, uint32_t t)
{
    return l->transfers[t].phase == MOVES ? l->transfers[t].rate : 0;
}

double links_load(const links *l, uint32_t link)
{
    double load = 0;
    for (uint32_t p = l->links[link].first; p != NONE;) {
        const transfer *it = &l->transfers[p / LINKS_MAX_ROUTE];
        load += it->rate;
        p = it->next[p % LINKS_MAX_ROUTE];
    }
    return load;
}

double links_moved(const links *l, uint32_t link)
{
    return l->links[link].moved;
}

uint32_t links_num_open(const links *l)
{
    return l->num_events;
}
