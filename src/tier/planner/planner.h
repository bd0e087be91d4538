/* tier/planner/planner.h - what a planner knows, and who of it does what.
 *
 *      planner.c    making it, the calls of quire/planner.h
 *      match.c      what a request finds in the host pool, and asks of tiers
 *      copies.c     batches of copies: to the device of the transfer, and what becomes of them
 *      loads.c      a request's load
 *      stores.c     full blocks that the host pool has not
 *      events.c     what lies in the tiers
 *      check.c      the walker
 *
 * batch     at most 256 copies, in one direction: waiting for room in a plan, or in flight.
 *
 *      match ─► pinned ─► allocated ─► batches ─ plan ─► in flight ─ reports ─► results: loaded
 *      computed ───────────────────► batches ─ plan ─► in flight ─ reports ─► a hit of the pool
 *
 * In the host pool a pin or a load is a user of its blocks; a store is a hold, so that its blocks,
 * which have their keys already, are no hits. The engine holds its own blocks as
 * quire_planner_out.held says.
 */
#ifndef QR_TIER_PLANNER_PLANNER_H
#define QR_TIER_PLANNER_PLANNER_H

#include "base/count.h"
#include "base/list.h"
#include "base/memory.h"
#include "tier/offload/host_pool.h"
#include "tier/offload/step_times.h"
#include "tier/promote/promote.h"
#include "tier/transfer/plan.h"

#include <quire/planner.h>
#include <quire/slots.h>

#include <stdatomic.h>

#define QR_PLANNER_MAGIC UINT32_C(0x514e4c50) /* "PLNQ" */

enum { QR_BATCH_COPIES = QR_AT_A_TIME(QR_PLAN_MOST_COPIES, 4) };

typedef struct qr_planner_batch {
    quire_device_job job; /* first: the device gives this back */
    quire_device_copy copies[QR_BATCH_COPIES];
    uint32_t next;  /* in a queue, of a load, or of the free ones */
    uint32_t owner; /* a load: the request's index */
    bool is_used;
    bool is_out;      /* the transfer has it */
    bool is_dropped;  /* a store: what comes does not count */
    bool is_released; /* the engine's blocks were */
} qr_planner_batch;

typedef enum qr_planner_load {
    QR_PLANNER_NO_LOAD = 0,
    QR_PLANNER_LOADING, /* batches wait, or are in flight */
    QR_PLANNER_LOADED   /* to be told */
} qr_planner_load;

/* A request, by its quire_req_index. */
typedef struct qr_planner_req {
    quire_req req; /* 0: free */
    uint32_t generation;
    uint32_t next_free;
    uint32_t num_batches; /* of its load, not ended */
    uint32_t first_batch; /* of its load; they stay until it was told */
    uint32_t waits_since; /* number of the last load when it began to wait for another's; 0: no */
    uint8_t load;
    bool has_failed;
    bool has_ended;  /* the request, while its load was in flight */
    bool has_stored; /* blocks that were computed, or found in the engine */
} qr_planner_req;

typedef struct qr_planner_match {
    quire_req req; /* 0: none */
    uint32_t num_local;
    uint32_t num_asked; /* tokens of the request */
    uint32_t num_external;
    bool is_pinned; /* its blocks have a user more */
    uint32_t counts[QR_HOST_MAX_GROUPS];
    quire_block *blocks; /* of all groups, one after the other; null blocks keep their places */
} qr_planner_match;

/* A host block that is being loaded into the engine. */
typedef struct qr_planner_slot {
    uint32_t num_loads;
    uint32_t last_load; /* the number of the last one */
} qr_planner_slot;

typedef struct qr_planner_queue {
    uint32_t first;
    uint32_t last;
} qr_planner_queue;

/* A tier whose events are told. */
typedef struct qr_planner_watch {
    const struct quire_planner *planner;
    struct quire_slots *slots; /* the keys that are known to be there */
    void (*on_event)(void *user, uint32_t tier, const quire_event *event);
    void *user;
    uint32_t tier;
} qr_planner_watch;

typedef struct qr_planner_counters {
    _Atomic uint64_t stored_blocks;
    _Atomic uint64_t loaded_blocks;
    _Atomic uint64_t failed_loads;
    _Atomic uint64_t failed_stores;
    _Atomic uint64_t no_room;
    _Atomic uint64_t hit_tokens;
    _Atomic uint64_t stores_in_flight;
    _Atomic uint64_t loads_in_flight;
} qr_planner_counters;

struct quire_planner {
    uint32_t magic;
    uint32_t num_gpu;
    uint32_t num_slots;
    uint32_t max_requests;
    uint32_t row_blocks; /* of a request, all groups */
    bool learns;
    bool shares_loads;
    bool holds_loads;
    qr_host_pool host;
    qr_promote *promote;    /* NULL: no tiers */
    qr_owner promote_owner; /* its memory NULL: there is none */
    quire_transfer *transfer;
    const quire_device *device;
    qr_step_times times;
    qr_planner_match match;

    qr_planner_req *reqs;
    uint32_t free_req;
    uint32_t *num_stored; /* blocks of a request that are done with, num_groups each */

    qr_planner_batch *batches;
    uint32_t num_batches;
    uint32_t free_batch;
    uint32_t num_free_batches;
    qr_planner_queue waiting_loads; /* batches without a place in a plan */
    qr_planner_queue waiting_stores;
    uint32_t open_store;   /* the last batch of waiting_stores, if it has room; QR_NIL */
    uint32_t num_storing;  /* blocks */
    uint32_t most_storing; /* of running requests; and with those that end */
    uint32_t most_ending;
    qr_planner_slot *slots;
    uint32_t last_load; /* loads count 1, 2, ... */

    /* what is told */
    quire_block *held;
    uint32_t num_held;
    bool is_held_taken; /* the caller has the list */
    quire_block *released;
    uint32_t num_released;
    uint32_t num_told_released; /* the first of them: in the last results */
    quire_req *loaded;
    uint32_t num_loaded;
    quire_req *failed;
    uint32_t num_failed;
    quire_block *failed_blocks;
    uint32_t num_failed_blocks;
    uint32_t *ended; /* requests whose loads ended */
    uint32_t num_ended;

    quire_block *scratch; /* row_blocks, or a batch */
    quire_block *scratch2;
    uint32_t *refs; /* the walker's */
    qr_planner_watch watches[QUIRE_TRANSFER_MAX_TIERS];
    qr_planner_counters counters;
    quire_hooks hooks;
    qr_owner owner;
};

/* The record of a request; NULL: it is not known. */
static inline qr_planner_req *qr_planner_find(quire_planner *p, quire_req req)
{
    uint32_t index = quire_req_index(req);
    bool is_known = req != 0 && index < p->max_requests && p->reqs[index].req == req;
    return is_known && !p->reqs[index].has_ended ? &p->reqs[index] : NULL;
}

/* The place is free. */
void qr_planner_free_req(quire_planner *p, qr_planner_req *r);

/* ---- match.c --------------------------------------------------------------- */

int qr_planner_match_request(quire_planner *p, qr_planner_req *r,
                             const quire_planner_request *request, uint32_t num_local,
                             uint32_t *num_external);
void qr_planner_release_match(quire_planner *p);

/* ---- copies.c -------------------------------------------------------------- */

void qr_planner_init_batches(quire_planner *p);
/* One more; NULL: there is none. */
qr_planner_batch *qr_planner_new_batch(quire_planner *p, quire_device_op op);
/* It waits for room in a plan. */
void qr_planner_queue_batch(quire_planner *p, qr_planner_batch *batch);
/* It is over: its place is free. */
void qr_planner_free_batch(quire_planner *p, qr_planner_batch *batch);
/* Takes the waiting batches of a load out of the queue, and ends them without success. */
void qr_planner_unqueue_load(quire_planner *p, uint32_t index);
/* The engine holds this block; and it need not any more. */
void qr_planner_hold(quire_planner *p, quire_block block);
void qr_planner_release(quire_planner *p, qr_planner_batch *batch);
/* Into the plan, loads first. */
void qr_planner_send(quire_planner *p);
/* What the ranks have ended. */
void qr_planner_poll(quire_planner *p);

/* ---- loads.c --------------------------------------------------------------- */

void qr_planner_begin_load(quire_planner *p, qr_planner_req *r, const quire_block_span *blocks,
                           uint32_t num_external);
void qr_planner_end_load_batch(quire_planner *p, qr_planner_batch *batch, bool is_good);
/* Into the results, and over. */
void qr_planner_tell_loads(quire_planner *p);

/* ---- stores.c -------------------------------------------------------------- */

/* False: some blocks wait for stores in flight. */
bool qr_planner_store(quire_planner *p, qr_planner_req *r, const quire_planner_request *request,
                      const quire_block_span *blocks, uint32_t num_computed);
void qr_planner_end_store(quire_planner *p, qr_planner_batch *batch, bool is_good);
/* Nothing that is in flight or waits counts any more. */
void qr_planner_drop_stores(quire_planner *p);

/* ---- events.c -------------------------------------------------------------- */

/* Until the transfer is closed. */
void qr_planner_watch_tiers(quire_planner *p, const quire_planner_config *config);

/* ---- check.c --------------------------------------------------------------- */

/* QUIRE_OK or QUIRE_E_CORRUPT. */
int qr_planner_check(const quire_planner *p);

#endif
