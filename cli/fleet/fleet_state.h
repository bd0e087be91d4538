/* cli/fleet/fleet_state.h - the state of one fleet, for the files that make it up.
 *
 *      fleet.c      the loop: windows        fleet_open.c     made and unmade
 *      route.c      requests go to workers   merge.c          what happened in a window
 *      fleet_end.c  results                  hits.c           what caches really have
 *      members.c    failures, autoscaling
 */
#ifndef QUIRE_CLI_FLEET_STATE_H
#define QUIRE_CLI_FLEET_STATE_H

#include "crew.h"
#include "fleet.h"
#include "worker.h"

/* An event of a worker, to be put in order. */
typedef struct merged {
    const engine_event *event;
    uint32_t worker;
} merged;

/* The same of what a worker asks of the shared tier. */
typedef struct merged_ask {
    const shared_ask *ask;
    uint32_t worker;
} merged_ask;

/* The request that routers are asked for: its whole blocks. In memory for the longest prompt. */
typedef struct fleet_asking {
    const unsigned char *hashes; /* of hash_block_size tokens each */
    const uint64_t *blocks;      /* names of blocks of block_size tokens */
    uint32_t num_hashes;
    uint32_t num_blocks;
} fleet_asking;

/* The prompts that were hashed last, that of request i in place i % count. With several threads
 * also of requests that come soon (fleet_look_ahead). */
typedef struct fleet_hashed {
    unsigned char *hashes; /* count times hash_bytes, */
    uint64_t *names;       /* and count times num_names: for the longest prompts */
    size_t hash_bytes;
    size_t num_names;
    uint64_t *of; /* by place: number of the request + 1; 0: none */
    uint32_t count;
} fleet_hashed;

typedef struct fleet {
    const fleet_settings *settings;
    history *history; /* NULL: not wanted */
    fleet_result *result;
    trace_reader *reader;
    arrivals *arrivals;
    ideal_cache ideal;
    routers *routers;
    bool wants_kv;
    bool wants_blocks; /* names of the blocks of prompts */
    bool wants_loads;
    quire_hasher *hasher;
    quire_chain *chain;
    uint32_t digest_bytes;
    fleet_asking asking;
    fleet_hashed hashed;
    hits_known *known; /* by worker; NULL: no router knows all caches */
    crew *crew;
    engine_prompt *prompts;   /* of the lanes */
    engine_prompt own;        /* for names */
    replay_settings engine;   /* of the workers of the first pool; what names depend on: of all */
    replay_settings *engines; /* by pool */
    fleet_pool one_pool;      /* where the settings have none */
    const fleet_pool *pools;
    uint32_t num_pools;
    uint32_t *pool_of;      /* by worker */
    uint32_t max_model_len; /* the longest of all workers */
    handoffs *handoffs;     /* NULL: no pools for prefill and decode */
    shared_moves *shared;   /* NULL: no shared tier */
    worker *workers;
    double *next_s;       /* by worker: worker_next_s, */
    double *quiet_s;      /* worker_quiet_s, */
    router_load *loads;   /* worker_load, and */
    router_load *reports; /* worker.report; of workers that are not heard as they were */
    uint32_t *going;      /* workers that advance in the window */
    uint32_t num_going;
    bool has_reader;                   /* fleet_look_ahead is a job of the window */
    const arrival *coming[HITS_FOUND]; /* by the end of the window, and hashed: workers look for
                                          hits before */
    uint32_t num_coming;
    uint64_t coming_places; /* of the hashed ones: a bit for each, where nothing may change */
    double until_s;
    double now_s;
    double told_s; /* the latest time that the routers know */
    merged *merged;
    uint32_t merged_capacity;
    merged_ask *asks;
    uint32_t asks_capacity;
    members members;
    arrival **waiting; /* in the routers */
    uint32_t num_waiting;
    uint32_t waiting_capacity;
    uint64_t num_added; /* to schedulers; */
    uint64_t num_admitted;
    uint64_t num_left_out;
} fleet;

/* ---- fleet_open.c -------------------------------------------------------------- */

/* 0, or -1 and a sentence; fleet_unmake in either case. */
int fleet_make(fleet *f);
void fleet_unmake(fleet *f);

/* ---- fleet.c --------------------------------------------------------------------- */

/* All requests of the trace have ended. */
bool fleet_is_done(const fleet *f);

/* ---- fleet_open.c ---------------------------------------------------------------- */

/* What routers are told of a worker that joins. */
router_worker_info fleet_worker_info(const fleet *f, uint32_t index);

/* ---- merge.c --------------------------------------------------------------------- */

/* The page and the trace: a request that the worker had admitted has left it. */
void fleet_note_left(fleet *f, uint32_t index, double time_s);
/* The same of one that waited there. */
void fleet_note_left_out(fleet *f, uint32_t index, double time_s);

/* ---- hits.c --------------------------------------------------------------------- */

/* For routers that know all: what the caches really have of the request that is asked for. */
void fleet_exact_hits(void *context, const router_request *request, router_hit *hits);
/* With several threads: the requests that come by the end of the window, and what a worker's cache
 * has of them then. The idle ones have it already. */
void fleet_find_coming(fleet *f);
void fleet_keep_hits(fleet *f, uint32_t index);
void fleet_keep_idle_hits(fleet *f);

/* ---- route.c ------------------------------------------------------------------- */

/* Reads the requests that come next, and hashes their prompts: a job beside the workers of a
 * window. */
void fleet_look_ahead(fleet *f);
bool fleet_is_hashed(const fleet *f, const arrival *it);
/* Of one that is hashed. */
fleet_asking fleet_asking_of(const fleet *f, const arrival *it);
/* Sends the requests that have come by now. 0, or -1 and a sentence. */
int fleet_route_arrivals(fleet *f);
/* A request that went back to the routers. 0, or -1 and a sentence. */
int fleet_route_again(fleet *f, arrival *it);
/* Requests that wait in the routers, and may now go. 0, or -1 and a sentence. */
int fleet_route_waiting(fleet *f);
/* The page and the trace: the worker has a request, or a part of one, which waits. */
void fleet_note_routed(fleet *f, uint32_t worker, double time_s);
/* Takes the worker's load and report, if it is heard. */
void fleet_hear(fleet *f, uint32_t worker);
/* The worker was given something, or has heard of something. */
void fleet_look_at(fleet *f, uint32_t worker);
/* Workers whose loads from the shared tier have ended. */
void fleet_look_at_changed(fleet *f);
/* The routers' clock never goes back: the time that they are told. */
double fleet_router_time(fleet *f, double time_s);

/* ---- merge.c ------------------------------------------------------------------- */

/* Takes what the workers of the window have to tell. 0, or -1 and a sentence. */
int fleet_merge(fleet *f);

/* ---- fleet_end.c --------------------------------------------------------------- */

/* The results. 0, or -1 and a sentence. */
int fleet_finish(fleet *f);

#endif
