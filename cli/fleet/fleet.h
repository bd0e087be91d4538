/* cli/fleet/fleet.h - a trace through many engines, with a router in front of them.
 *
 *      trace ──► arrivals ──► routers ──► worker 0   engine, inbox        one clock for all
 *                   ▲            ▲    ──► worker 1
 *                   │            │    ──► ...
 *                   └── ends ────┴─ loads, KV events, first tokens, ends
 *
 * window    from now until the next time at which workers depend on each other: a request comes, a
 *           request that others wait for may end, the router reads loads, or a worker changes. In a
 *           window workers share nothing, so they advance in several threads.
 * change    between two windows, workers fail, become ready, are added and removed (members.h).
 * merge     after a window, what happened is taken in the order of (time, worker, order in the
 *           worker), whatever the threads did. So the result does not depend on the threads.
 *
 * One worker gets the same requests at the same times as the engine of `quire replay`, and its
 * result is the same.
 */
#ifndef QUIRE_CLI_FLEET_H
#define QUIRE_CLI_FLEET_H

#include "handoffs.h"
#include "history.h"
#include "members.h"
#include "replay/replay.h"
#include "routers/router.h"
#include "shared_moves.h"
#include "tracks.h"

enum { FLEET_MAX_WORKERS = 65535, FLEET_MAX_POOLS = 16 };

/* Workers with the same options. */
typedef struct fleet_pool {
    router_role role;
    uint32_t num_workers;
    const replay_settings *replay;
    const char *options; /* what differs from other pools, for reports; "": nothing */
    const char *gpu;
    double node_bytes_per_s; /* of each worker's node, each way */
    double block_bytes;      /* of a block of KV, on all GPUs of a worker */
    uint32_t num_layers;
    uint32_t gpus_per_worker; /* for GPU hours */
} fleet_pool;

typedef struct fleet_settings {
    const replay_settings *replay; /* of each worker; its files: of one worker alone */
    const fleet_pool *pools; /* serve; or prefill and decode, both. Workers are numbered from the
                                first pool on. NULL: num_workers with `replay` serve */
    uint32_t num_pools;
    transfer_settings transfers; /* from prefill to decode workers */
    routers_settings routers;    /* the fleet fills in max_workers, block_size and costs */
    uint32_t num_workers;        /* of all pools */
    uint32_t num_threads;
    uint32_t gpus_per_worker; /* for GPU hours, without pools */
    double price_per_gpu_hour;
    /* Of several workers; NULL: not wanted. */
    const failures *failures;
    const shared_spec *shared;   /* storage that workers share; NULL: none. They serve, and do not
                                    crash */
    uint64_t shared_block_bytes; /* of a block of KV, on all GPUs of a worker */
    const scale_spec *scale;     /* NULL: the workers stay as they are. Without pools alone */
    uint32_t num_first;          /* workers at time 0, the others are off; 0: all */
    FILE *requests_csv;
    FILE *why;        /* a line for each routing decision */
    tracks *tracks;   /* a trace for ui.perfetto.dev */
    history *history; /* for the page; the caller's */
    bool gives_all;   /* schedulers get requests as soon as they come. Costs memory; for tests */
    double window_s;  /* the longest window; 0: 10 s. Shorter ones cost time, and change nothing */
} fleet_settings;

typedef struct fleet_result {
    replay_result total;    /* counts are sums over workers, times are of all requests */
    replay_result *workers; /* without distributions: those are in total */
    uint64_t *routed;       /* requests, by worker */
    uint32_t num_workers;
    uint32_t gpus_per_worker;
    uint64_t believed_tokens; /* hits that the router believed in when it chose */
    uint64_t refused;         /* requests, by the router */
    uint64_t waited;          /* decisions to let a request wait in the router */
    router_view_stats views;
    const fleet_pool *pools; /* of the settings */
    uint32_t num_pools;
    bool has_transfers;
    handoff_stats transfers;
    bool has_shared;
    shared_stats shared;
    uint64_t shared_tokens; /* hits from storage that workers share: in all, */
    uint64_t peer_tokens;   /* of them, from other workers' host memory, */
    uint64_t *shared_hits;  /* and by worker */
    double *node_bytes;     /* moved, by worker; NULL without transfers */
    uint64_t num_windows;
    members_result members;
} fleet_result;

/* 0, or -1 and a sentence. The result is to be freed either way. */
int fleet_run(const fleet_settings *settings, fleet_result *result);
void fleet_result_free(fleet_result *result);

#endif
