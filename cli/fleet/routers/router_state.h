/* cli/fleet/routers/router_state.h - what the routers of a fleet are made of: router_open.c creates
 * it, router.c uses it. */
#ifndef QUIRE_CLI_FLEET_ROUTERS_ROUTER_STATE_H
#define QUIRE_CLI_FLEET_ROUTERS_ROUTER_STATE_H

#include "fleet/views/pair_map.h"
#include "fleet/views/view.h"
#include "router.h"
#include "wait_queue.h"

typedef struct one_router {
    view view;
    kv_feed *feed; /* its own; NULL: the fleet's exact one, or none */
    void *state;
    uint64_t random;
} one_router;

/* A request that was sent, from router_choose to router_done. */
typedef struct flight {
    uint64_t number;
    view_flight prefill; /* not open without a prefill worker */
    view_flight serve;
    double routed_s;
    double first_token_s;
    uint32_t router;
    uint32_t num_cached_tokens; /* believed */
    double prefill_work;        /* of the choices */
    double serve_work;
    uint32_t next_free;
} flight;

struct routers {
    routers_settings settings;
    const router_policy *policy;
    double values[ROUTER_MAX_OPTIONS];
    kv_feed *truth; /* exact; NULL: no router needs it */
    bool asks_caches;
    one_router *each;
    uint32_t num_open; /* of each, whose policy is open */
    uint32_t turn;
    uint32_t *candidates[3]; /* by role: workers that are ready, in increasing order */
    uint32_t num_candidates[3];
    pair_map numbers; /* of requests, to flights */
    flight *flights;
    uint32_t num_flights;
    uint32_t flights_room;
    uint32_t free_flight;
    wait_queue queue;
    bool may_retry; /* something changed since a waiting request was last asked */
    double next_tick_s;
    router_view_stats stats;
};

/* The first report is one interval from now. */
void routers_begin_reports(routers *r, double now_s);

#endif
