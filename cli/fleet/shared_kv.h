/* cli/fleet/shared_kv.h - storage that workers share, as the scheduler of one worker sees it.
 *
 *      a request waits ──► a place has more of its prompt than the GPU: it gets blocks,
 *                          a LOAD is asked for ──► remote_kv_received ──► it runs after the end of
 *                          the next step, and computes the rest, or all of it, if the load failed
 *
 *      a step ends     ──► a STORE is asked for: the blocks that the step has filled
 *
 * place      one tier of all workers, or the host memory of each worker: its own one first, then
 *            those of its peers. A load has parts, each from another place.
 *
 * It is the connector of the worker's scheduler (quire/connector.h). While workers advance, the
 * places do not change and are only read. What is asked for waits here until the fleet takes it
 * (shared_moves.h).
 */
#ifndef QUIRE_CLI_FLEET_SHARED_KV_H
#define QUIRE_CLI_FLEET_SHARED_KV_H

#include "remote_kv.h"
#include "shared_tier.h"

enum { SHARED_MAX_PARTS = 4 };

/* Where a worker looks. */
typedef struct shared_places {
    shared_tier *const *tiers;
    uint32_t count; /* 0: nowhere */
    uint32_t own;   /* where it stores, and looks first */
} shared_places;

typedef struct key_list {
    uint64_t *keys;
    uint32_t count;
    uint32_t capacity;
} key_list;

typedef struct shared_ask {
    shared_tier_way way;
    quire_req req; /* of a LOAD; so are the next two */
    uint32_t place;
    uint32_t num_more; /* asks behind this one, for the other parts of the load */
    uint32_t first;
    uint32_t count; /* of `asked`; never 0 */
    double time_s;
} shared_ask;

typedef struct shared_kv {
    shared_places places;
    engine *engine;
    remote_kv *remote;                   /* counts the loads, and hears of their ends */
    key_list found[SHARED_MAX_PARTS];    /* what the last question was answered with: by part, */
    uint32_t found_at[SHARED_MAX_PARTS]; /* the place; */
    uint32_t num_parts;
    uint32_t num_found;               /* and in all */
    key_list filling[REPLAY_BATCHES]; /* by the place of the step's flight */
    key_list filled;                  /* by loads that ended in this step */
    bool is_scheduling;
    shared_ask *asks; /* until the fleet has taken them */
    uint32_t num_asks;
    uint32_t asks_capacity;
    key_list asked;
    bool no_memory;
} shared_kv;

void shared_kv_open(shared_kv *s, const shared_places *places, engine *e, remote_kv *r,
                    quire_connector *connector);
void shared_kv_close(shared_kv *s);

/* Blocks under these keys are in the GPU's prefix cache from now on: in engine_begin those that the
 * step will fill, in engine_end those that a load has filled. */
void shared_kv_cached(shared_kv *s, uint64_t key);
/* Around engine_begin; then behind engine_end: the oldest flight has ended. */
void shared_kv_begin(shared_kv *s);
void shared_kv_began(shared_kv *s);
void shared_kv_ended(shared_kv *s, uint32_t ended);
/* The worker has crashed: what its steps have filled is lost. */
void shared_kv_crashed(shared_kv *s);
/* The fleet has taken what was asked for. */
void shared_kv_taken(shared_kv *s);

/* A load has ended. False: no memory. */
bool shared_kv_received(shared_kv *s, quire_req req, bool has_failed);

#endif
