/* cli/fleet/links_inner.h - what links.c, which knows times, and links_rates.c share. */
#ifndef QUIRE_CLI_FLEET_LINKS_INNER_H
#define QUIRE_CLI_FLEET_LINKS_INNER_H

#include "links.h"

#include <math.h>

#define NONE LINKS_NONE

typedef enum phase { UNUSED, WAITS, MOVES, ENDED } phase;

typedef struct transfer {
    uint64_t user;
    uint64_t number; /* in the order of the starts */
    double bytes;
    double left;    /* bytes, at since_s */
    double since_s; /* when its rate was set */
    double event_s; /* when it begins to move, or ends */
    double rate;
    double new_rate;
    uint32_t route[LINKS_MAX_ROUTE];
    uint32_t next[LINKS_MAX_ROUTE]; /* the next and previous places on the same link: */
    uint32_t prev[LINKS_MAX_ROUTE]; /* transfer * LINKS_MAX_ROUTE + place in its route */
    uint32_t bottleneck;            /* link */
    uint32_t new_bottleneck;
    uint32_t heap_place;
    uint32_t link_next; /* of the lists of unused and of ended transfers */
    uint8_t num_route;
    uint8_t phase;
    uint8_t outcome;
    bool is_in_set;
} transfer;

typedef struct one_link {
    double bandwidth;
    double moved;
    uint32_t first; /* place of a transfer that moves */
    /* while rates are computed: */
    double left;        /* what is not given away yet */
    double others_load; /* rates of transfers that are not in the set */
    double others_max;
    double share;      /* as the heap has it */
    double set_level;  /* of the transfers of which it is the bottleneck; negative: none */
    uint32_t num_open; /* transfers of the set without a new rate */
    uint32_t heap_place;
    bool is_touched;
    bool has_changed; /* transfers that have it as bottleneck join the set at the start */
} one_link;

struct links {
    one_link *links;
    transfer *transfers;
    uint32_t *events;  /* a heap of transfers by event_s, then number */
    uint32_t *set;     /* transfers whose rates are computed */
    uint32_t *touched; /* links of their routes */
    uint32_t *changed; /* links whose transfers, or whose bandwidth, have changed */
    uint32_t *shares;  /* a heap of links by share, then by number */
    uint32_t num_links;
    uint32_t max_transfers;
    uint32_t num_events;
    uint32_t num_set;
    uint32_t num_touched;
    uint32_t num_changed;
    uint32_t num_shares;
    uint32_t unused;
    uint32_t ended; /* a list, by time */
    uint32_t last_ended;
    uint64_t number;
    double now_s;
};

/* What is left at this time. */
static inline double links_left_at(const transfer *it, double now_s)
{
    return fmax(it->left - it->rate * (now_s - it->since_s), 0);
}

/* The event of a transfer gets another time. */
void links_set_event(links *l, uint32_t transfer, double event_s);
/* Rates after links have changed (`changed`): their transfers, or their bandwidth. */
void links_compute_rates(links *l);

#endif
