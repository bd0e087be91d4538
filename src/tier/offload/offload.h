/* tier/offload/offload.h - what an offload knows, and who of it does what.
 *
 *      plan.c     how much memory, and for what
 *      offload.c          making it, and the calls of quire/offload.h
 *      match.c    what a new request finds in the CPU pool
 *      load.c     loads: CPU blocks to GPU blocks
 *      store.c    the stores of a step; lazy ones
 *      eager.c    eager ones
 *      round.c    CPU blocks for both
 *      ends.c     what becomes of them when they have ended
 *      copy.c     both, as jobs of a device
 *      carts.c    the blocks of both
 *      share.c    CPU blocks for other engines
 *      protect.c   what waiting requests will need
 *      tiers.c    how full the CPU pool and the tiers are
 *      check.c    the walker
 *
 * Blocks on the way are in carts, some pairs in each:
 *
 *      store   event ──► [gpu 12 cpu 7, ..] ──► [..]
 *      load    request ──► [gpu 3 cpu 9, ..] ──► [..]
 *
 *      every one of them has one user more, in both pools, until the copy has ended
 *
 * A store needs no copy of its key: the GPU block keeps it as long as it has a user, unless it is
 * taken from it because the content was not good, and then the copy is not worth keeping either.
 */
#ifndef QR_TIER_OFFLOAD_OFFLOAD_H
#define QR_TIER_OFFLOAD_OFFLOAD_H

#include "base/bits.h"
#include "base/fork_guard.h"
#include "base/memory.h"
#include "tier/offload/share.h"
#include "tier/promote/promote.h"

#include <quire/offload.h>

#include <stdatomic.h>

#define QR_OFFLOAD_MAGIC UINT32_C(0x514f464c) /* "QOFL" */

enum { QR_OFFLOAD_MAX_GROUPS = 64, QR_COPIES_IN_JOB = QR_AT_A_TIME(256, 4) };

typedef enum qr_load_state {
    QR_LOAD_NONE = 0,
    QR_LOAD_WAITS,      /* for build_meta */
    QR_LOAD_ON_THE_WAY, /* the workers, or the device, have it */
    QR_LOAD_ENDED,      /* to be told to the scheduler */
    QR_LOAD_TOLD        /* in the output of the update that follows */
} qr_load_state;

/* A request, by its quire_req_index. */
typedef struct qr_offload_req {
    quire_req req;         /* whose this is; 0: nobody's */
    uint32_t loaded_from;  /* its tokens from here to */
    uint32_t loaded_to;    /* here came from the CPU pool */
    uint32_t protect_last; /* nodes of CPU blocks that it is expected to need */
    uint32_t num_protected;
    uint32_t place;        /* in the queue of those that wait */
    uint32_t seen;         /* the look at the queue in which it was there */
    quire_req ahead;       /* the request that was looked up there; 0: none */
    uint32_t num_expected; /* tokens that the CPU pool had of it then */
    uint32_t num_saved;    /* tokens that were saved when `req` lost its blocks; 0: none */

    uint32_t load_first; /* carts; QR_NIL: none */
    uint32_t load_last;
    uint32_t load_sent; /* device: the first that no job has yet */
    uint32_t load_count;
    uint32_t load_jobs; /* device: not ended */
    uint64_t load_step; /* in which it was decided */
    uint64_t load_mark;
    uint64_t load_due_ns; /* device: then the request goes on without */
    uint32_t sooner;      /* requests whose loads are due before it and after it */
    uint32_t later;
    uint8_t load_state;
    bool is_fresh;  /* decided in this very step */
    bool is_loaded; /* since the last time that it got blocks */
    bool has_failed;
    bool has_ended; /* the request, while its load was on the way */
} qr_offload_req;

/* The stores of a step. */
typedef struct qr_offload_event {
    uint64_t id;
    uint64_t mark;
    uint64_t step;
    uint64_t due_ns;
    uint32_t first; /* carts */
    uint32_t last;
    uint32_t sent;     /* device: the first that no job has yet; QR_NIL: none */
    uint32_t count;    /* blocks; 0: this place is free */
    uint32_t num_jobs; /* device: not ended */
    uint32_t num_reports;
    bool is_listed; /* in told_events */
    bool has_failed;
    bool is_dropped; /* by a reset */
    bool is_late;
    bool has_crcs;  /* of all blocks, so far */
    bool has_saved; /* blocks of requests that lost theirs */
} qr_offload_event;

typedef struct qr_offload_job {
    quire_device_job job; /* first: the device gives this back */
    quire_device_copy copies[QR_COPIES_IN_JOB];
    uint32_t owner; /* place of an event, or index of a request */
    uint32_t cart;  /* the first of those that it copies */
    uint32_t next_free;
    bool is_out;  /* the device has it */
    bool is_late; /* nobody waits for it any more; its blocks are its own */
} qr_offload_job;

/* What the request that was asked about last can have. */
typedef struct qr_offload_match {
    quire_req req; /* 0: none */
    uint32_t num_tokens;
    uint32_t num_local;
    uint32_t num_asked; /* the tokens that the request had */
    uint64_t step;      /* in which it was told last */
    bool is_pinned;     /* its blocks have a user more: */
    uint32_t num_known; /* the first of them the one that protects them, see protect.h */
    uint32_t counts[QR_OFFLOAD_MAX_GROUPS];
    quire_block *blocks; /* of all groups, one after the other */
} qr_offload_match;

typedef struct qr_offload_group {
    uint32_t block_size;
    uint32_t max_blocks;   /* of a request: more are never looked at */
    uint32_t row_start;    /* in the request's row */
    uint32_t chunk_tokens; /* of chunked attention, in the default profile; else 0 */
} qr_offload_group;

/* See carts.h. */
enum { QR_CART_PAIRS = QR_AT_A_TIME(84, 4) }; /* 4: one line of memory */

typedef struct qr_offload_cart {
    uint32_t next; /* or of the free ones */
    uint32_t prev;
    uint32_t count;
    uint32_t unused;
    quire_block gpu[QR_CART_PAIRS];
    quire_block cpu[QR_CART_PAIRS]; /* QUIRE_NULL_BLOCK: the load is lost */
    uint32_t crcs[QR_CART_PAIRS];   /* of what was stored, where a device told it */
} qr_offload_cart;

_Static_assert(sizeof(qr_offload_cart) % 64 == 0, "carts begin where lines of memory do");
_Static_assert((int)QR_COPIES_IN_JOB >= (int)QR_CART_PAIRS, "a job has whole carts, one at least");

/* CPU blocks that a waiting request will need, as many as lie in one line of memory. */
enum { QR_NODE_BLOCKS = QR_AT_A_TIME(15, 1) };

typedef struct qr_offload_node {
    uint32_t next; /* those before these, or of the free ones */
    quire_block blocks[QR_NODE_BLOCKS];
} qr_offload_node;

typedef struct qr_offload_counters {
    _Atomic uint64_t stored_blocks;
    _Atomic uint64_t loaded_blocks;
    _Atomic uint64_t failed_loads;
    _Atomic uint64_t failed_stores;
    _Atomic uint64_t no_room;
    _Atomic uint64_t hit_tokens;
    _Atomic uint64_t expected_blocks;
    _Atomic uint64_t stores_in_flight;
    _Atomic uint64_t loads_in_flight;
    _Atomic uint64_t failed_load_blocks;
} qr_offload_counters;

/* A step that is being computed, for what computing costs. */
typedef struct qr_offload_timed {
    uint64_t step;
    uint64_t start_ns;
    uint32_t num_tokens; /* 0: not of interest */
} qr_offload_timed;

enum { QR_OFFLOAD_TIMED = QR_AT_A_TIME(8, 2) }; /* steps in flight that are measured */

struct quire_offload {
    qr_fork_guard guard;
    uint32_t magic;
    bool is_vllm;
    bool is_lazy;
    bool has_device;
    bool looks_ahead;
    bool learns;      /* what computing costs, from steps */
    bool is_closed;   /* device and tiers are gone */
    bool has_pins;    /* or other users of blocks: the scheduler's */
    bool has_windows; /* a group gives blocks back while its request runs */
    bool has_rows;    /* eager: blocks of requests are kept as steps told them */
    uint32_t num_groups;
    uint32_t fa_group; /* the first of a full kind; QR_NIL: none */
    uint32_t hash_size;
    uint32_t digest_bytes;
    uint32_t num_cpu;
    uint32_t num_gpu;
    uint32_t max_requests;
    uint32_t num_workers;
    uint32_t row_blocks;        /* of all groups */
    uint32_t most_placeholders; /* of a request, in vLLM's profile; else 0 */
    qr_offload_group groups[QR_OFFLOAD_MAX_GROUPS];

    quire_cache *cpu_cache;
    quire_pool *cpu;
    quire_cache *gpu_cache;
    quire_pool *gpu; /* NULL: not bound yet */
    quire_sched *sched;
    qr_promote *promote; /* NULL: no tiers */
    qr_share share;
    quire_device device;
    quire_connector connector;

    qr_offload_req *reqs;
    quire_block *rows;    /* where there are some: row_blocks of each request */
    uint32_t *row_count;  /* num_groups each */
    uint32_t *num_stored; /* eager: the first that are done with, num_groups each */
    qr_offload_match match;

    qr_offload_cart *carts;
    uint32_t num_carts;
    uint32_t num_fresh_carts; /* the last ones: never used so far */
    uint32_t free_cart;

    /* stores */
    uint32_t *next_ready; /* of a request: with fewer computed tokens there is nothing to store;
                                UINT32_MAX: it is not known here */
    quire_req *listed;    /* eager: the requests of the step that was looked at last, */
    uint32_t *due;        /* and next_ready of each */
    uint32_t num_passed_steps;  /* eager: since the running requests were looked at, */
    uint32_t num_passed_tokens; /* and what they have computed in them: */
    uint32_t look_tokens;       /* with so many, a look is worth it, */
    uint32_t num_looks_left;    /* in so many steps: */
    uint32_t num_batches;       /* as many as may be on their way */
    uint32_t num_listed;
    uint64_t *is_storing; /* bits: GPU blocks; vLLM: of this step */
    uint64_t *is_used;    /* bits, lazy: given to a request while its store is on the way */
    uint64_t *seen;       /* lazy: of a GPU block, its number in the walk that met it last */
    qr_offload_event *events;
    uint32_t num_places; /* for events, a power of two */
    uint32_t num_events;
    uint64_t next_event;
    uint32_t *told_events; /* places */
    uint32_t num_told_events;
    uint32_t num_flight; /* blocks that are being stored; in vLLM's profile 0 */
    quire_block cursor;  /* lazy; QUIRE_NULL_BLOCK: none */
    uint32_t target_free;
    uint64_t walk_first; /* number of the first block of the last walk, */
    uint64_t walk_next;  /* and of the next walk */
    uint64_t walked_at;  /* blocks that had been taken from the queue by then */
    quire_block *walked; /* in this step, from the head of the queue on */
    uint32_t num_walked;
    uint32_t most_stores; /* GPU blocks that stores may hold */
    uint64_t next_due_ns; /* no store is late before */
    uint32_t num_late;    /* events, and loads that were given up */
    bool has_mark;        /* the device can tell where its compute is */
    bool is_refused;      /* the device took nothing of the last stores */
    uint32_t kept_first;  /* carts: stores that were decided between two steps; QR_NIL: none */
    uint32_t kept_last;
    bool has_saved; /* some of them are of requests that lost their blocks */

    /* loads */
    uint32_t *new_loads; /* requests whose loads wait for build_meta */
    uint32_t num_new_loads;
    uint32_t *ended_loads; /* requests, in the order in which they ended */
    uint32_t num_ended_loads;
    quire_req *told_reqs;
    quire_block *invalid_blocks;
    uint32_t *sending; /* device: requests whose loads have blocks without a job */
    uint32_t num_sending;
    uint64_t next_load_event;
    uint64_t step;                            /* the last one */
    qr_offload_timed timed[QR_OFFLOAD_TIMED]; /* by step */
    uint64_t last_end_ns;                     /* of a step, where the next one had begun */
    uint32_t most_decode; /* tokens that a request computes in a step without prefill */
    uint64_t mark;        /* and the device's, for its copies */

    /* device */
    qr_offload_job *jobs;
    uint32_t num_jobs;
    uint32_t free_job;
    uint32_t num_jobs_out;
    uint64_t deadline_ns;
    uint32_t first_due; /* of the loads that the device has */
    uint32_t last_due;
    uint32_t *unsent_events; /* places */
    uint32_t num_unsent;

    /* lookahead */
    qr_offload_node *nodes;
    uint32_t free_node;
    uint32_t num_nodes; /* free ones */
    uint32_t *expected; /* requests whose blocks are protected */
    uint32_t num_expected;
    uint32_t backlog;
    uint32_t look;
    uint32_t last_waiting;
    uint32_t num_polls;
    quire_req *queue; /* scratch */

    /* the meta of this step, and scratch */
    quire_offload_meta meta;
    quire_block *meta_store_gpu;
    quire_block *meta_store_cpu;
    quire_block *meta_load_gpu;
    quire_block *meta_load_cpu;
    quire_req *meta_reqs;
    quire_block *scratch; /* the blocks of a request, or QR_COPIES_IN_JOB */
    quire_block *scratch2;
    uint32_t *refs; /* for the walker: of CPU blocks, then of GPU blocks */
    quire_req *check_queue;

    qr_offload_counters counters;
    quire_monitor *monitor; /* NULL: nothing is told */
    uint32_t monitor_tier;
    bool has_events;
    uint64_t host_hits;   /* the most that was told */
    uint64_t block_bytes; /* 0: not known */
    quire_hooks hooks;
    qr_owner owner; /* where all of this lies */
};

/* ---- small things ----------------------------------------------------------- */

static inline void qr_count(_Atomic uint64_t *counter, uint64_t n)
{
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + n, memory_order_relaxed);
}

/* The request is not known here any more. */
static inline void qr_offload_leave(quire_offload *o, qr_offload_req *r)
{
    r->req = 0;
    o->next_ready[r - o->reqs] = UINT32_MAX;
    o->num_listed = 0;
}

/* The record of a request; NULL: there is none, or it is another's by now. */
static inline qr_offload_req *qr_offload_find(quire_offload *o, quire_req req)
{
    uint32_t index = quire_req_index(req);
    return index < o->max_requests && o->reqs[index].req == req ? &o->reqs[index] : NULL;
}

/* A user more for blocks of the engine. vLLM's is one as requests are, and counts where those that
 * share a prefix are counted. */
static inline int qr_gpu_hold(quire_offload *o, const quire_block *blocks, uint32_t n)
{
    return o->is_vllm ? quire_pool_touch(o->gpu, blocks, n) : quire_pool_hold(o->gpu, blocks, n);
}

static inline void qr_gpu_let_go(quire_offload *o, const quire_block *blocks, uint32_t n)
{
    if (o->is_vllm)
        quire_pool_free_blocks(o->gpu, blocks, n);
    else
        quire_pool_let_go(o->gpu, blocks, n, 0);
}

#endif
