/* tier/offload/offload.h - what an offload knows, and who of it does what.
 *
 * Each file has its section below; offload.c makes it all, and has the calls of quire/offload.h.
 *
 * Blocks on the way are in batches of transfers, some pairs in each:
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
#include "base/count.h"
#include "base/fork_guard.h"
#include "base/list.h"
#include "base/memory.h"
#include "tier/core/block_key.h"
#include "tier/offload/host_pool.h"
#include "tier/offload/share.h"
#include "tier/offload/step_times.h"
#include "tier/promote/promote.h"

#include <quire/offload.h>

#include <stdatomic.h>

#define QR_OFFLOAD_MAGIC UINT32_C(0x514f464c) /* "QOFL" */

enum { QR_OFFLOAD_MAX_GROUPS = QR_HOST_MAX_GROUPS, QR_COPIES_IN_JOB = QR_AT_A_TIME(256, 4) };

typedef enum qr_load_state {
    QR_LOAD_NONE = 0,
    QR_LOAD_WAITS,      /* for build_meta */
    QR_LOAD_ON_THE_WAY, /* the workers, or the device, have it */
    QR_LOAD_ENDED,      /* to be told to the scheduler */
    QR_LOAD_TOLD        /* in the output of the update that follows */
} qr_load_state;

/* Blocks that are stored or loaded together, as batches. */
typedef struct qr_transfers {
    uint32_t first; /* QR_NIL: none */
    uint32_t last;
    uint32_t sent;     /* device: the first that no job has yet; QR_NIL: none */
    uint32_t count;    /* blocks */
    uint32_t num_jobs; /* device: not ended */
    bool has_failed;
    uint64_t mark; /* the device's, for these copies */
    uint64_t step; /* in which they were decided */
    uint64_t due_ns;
} qr_transfers;

#define QR_NO_TRANSFERS ((qr_transfers){.first = QR_NIL, .last = QR_NIL, .sent = QR_NIL})

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

    qr_transfers load; /* device: when it is due, the request goes on without */
    qr_link due_link;  /* loads that are due before it and after it */
    uint8_t load_state;
    bool is_fresh;  /* decided in this very step */
    bool is_loaded; /* since the last time that it got blocks */
    bool has_ended; /* the request, while its load was on the way */
} qr_offload_req;

/* The stores of a step. */
typedef struct qr_offload_event {
    uint64_t id;
    qr_transfers store; /* without blocks: this place is free */
    uint32_t num_reports;
    bool is_listed;  /* in told_events */
    bool is_dropped; /* by a reset */
    bool is_late;
    bool has_crcs;  /* of all blocks, so far */
    bool has_saved; /* blocks of requests that lost theirs */
} qr_offload_event;

typedef struct qr_offload_job {
    quire_device_job job; /* first: the device gives this back */
    quire_device_copy copies[QR_COPIES_IN_JOB];
    uint32_t owner; /* place of an event, or index of a request */
    uint32_t batch; /* the first of those that it copies */
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
    uint32_t max_blocks;      /* of a request: more are never looked at */
    uint32_t row_start;       /* in the request's row */
    bool has_gaps;            /* some full blocks stay without a key for good (windows, states) */
    uint32_t num_keyed_later; /* has_gaps: so many of the last ones may still get one */
} qr_offload_group;

/* See transfers.h. */
enum { QR_TRANSFER_PAIRS = QR_AT_A_TIME(84, 4) }; /* 4: one line of memory */

typedef struct qr_transfer_batch {
    uint32_t next; /* or of the free ones */
    uint32_t prev;
    uint32_t count;
    uint32_t unused;
    quire_block gpu[QR_TRANSFER_PAIRS];
    quire_block cpu[QR_TRANSFER_PAIRS]; /* QUIRE_NULL_BLOCK: the load is lost */
    uint32_t crcs[QR_TRANSFER_PAIRS];   /* of what was stored, where a device told it */
} qr_transfer_batch;

_Static_assert(sizeof(qr_transfer_batch) % 64 == 0, "transfers begin where lines of memory do");
_Static_assert((int)QR_COPIES_IN_JOB >= (int)QR_TRANSFER_PAIRS,
               "a job has whole transfers, one at least");

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

struct quire_offload {
    qr_fork_guard guard;
    uint32_t magic;
    bool is_lazy;
    bool has_device;
    bool looks_ahead;
    bool learns;      /* what computing costs, from steps */
    bool is_closed;   /* device and tiers are gone */
    bool has_pins;    /* or other users of blocks: the scheduler's */
    bool has_windows; /* a group gives blocks back while its request runs */
    bool has_rows;    /* eager: blocks of requests are kept as steps told them */
    uint32_t num_groups;
    uint32_t num_cpu;
    uint32_t num_gpu;
    uint32_t max_requests;
    uint32_t num_workers;
    uint32_t row_blocks; /* of all groups */
    qr_offload_group groups[QR_OFFLOAD_MAX_GROUPS];

    quire_cache *cpu_cache;
    quire_pool *cpu;
    qr_host_pool host; /* what is found there */
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

    qr_transfer_batch *transfers;
    uint32_t num_transfers;
    uint32_t num_fresh_transfers; /* the last ones: never used so far */
    uint32_t free_transfer;

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
    uint64_t *is_storing; /* bits, lazy: GPU blocks */
    uint64_t *is_used;    /* bits, lazy: given to a request while its store is on the way */
    uint64_t *seen;       /* lazy: of a GPU block, its number in the walk that met it last */
    qr_offload_event *events;
    uint32_t num_places; /* for events, a power of two */
    uint32_t num_events;
    uint64_t next_event;
    uint32_t *told_events; /* places */
    uint32_t num_told_events;
    uint32_t num_flight; /* blocks that are being stored */
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
    qr_transfers kept;    /* stores that were decided between two steps */
    bool has_saved;       /* some of them are of requests that lost their blocks */

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
    uint64_t step; /* the last one */
    qr_step_times times;
    uint64_t mark; /* the device's, for the copies of the step */

    /* device */
    qr_offload_job *jobs;
    uint32_t num_jobs;
    uint32_t free_job;
    uint32_t num_jobs_out;
    uint64_t deadline_ns;
    qr_chain due_loads;      /* of the loads that the device has */
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

/* ---- plan.c ---------------------------------------------------------------- */

/* The configs with their defaults, and what others will need. */
typedef struct qr_offload_plan {
    quire_offload_config config;
    quire_sched_config sched; /* its cache is sched_cache */
    quire_cache_config sched_cache;
    quire_cache_config cpu;
    size_t cpu_bytes;
    size_t lower_bytes;
} qr_offload_plan;

int qr_offload_read_plan(qr_offload_plan *plan, const quire_offload_config *callers);
/* The offload's numbers and parts into *o; returns where it will be. cpu and lower get the memory
 * of the CPU pool's cache and of the tiers. */
quire_offload *qr_offload_carve(qr_arena *arena, const qr_offload_plan *plan, quire_offload *o,
                                void **cpu, void **promote);

/* ---- transfers.c --------------------------------------------------------------- */

/* Pairs of blocks on their way, many in a batch. All batches of a list but its last one are full;
 * an empty list has QR_NIL for both ends. */
static inline void qr_reverse(const quire_block *blocks, uint32_t n, quire_block *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = blocks[n - 1 - i];
}

void qr_transfers_init(quire_offload *o);
/* Adds pairs behind the last ones. */
void qr_transfers_add(quire_offload *o, qr_transfers *list, const quire_block *gpu,
                      const quire_block *cpu, uint32_t n);
/* Gives back a batch that no list needs any more. */
void qr_transfers_return(quire_offload *o, uint32_t batch);

/* ---- match.c: what a request finds in the CPU pool, behind what the engine has  */

/* quire_connector.get_num_new_matched_tokens. What was found is kept in o->match, in the default
 * profile with one user more for each block, until the next request is asked about or
 * qr_match_release. */
int qr_match_request(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                     uint32_t *is_async);
/* Its request gets what it was told: from now on all of the match's blocks have its own user. */
void qr_match_take_over(quire_offload *o, quire_req req);
void qr_match_release(quire_offload *o);

/* The hit behind the first num_local tokens, as spans of the CPU pool's cache; 0: none. */
uint32_t qr_match_find(const quire_offload *o, const unsigned char *hashes, uint32_t num_hashes,
                       uint32_t num_tokens, uint32_t num_local, quire_block_span *spans);

/* ---- protect.c ------------------------------------------------------------- */

/* What waiting requests will need is evicted last:
 *
 *      waiting   r1   r2   r3   r4  ...   the first `backlog` of them
 *                 │    │    │
 *                 ▼    ▼    ▼
 *      CPU blocks with a user more each: they are not in the free queue
 *
 * A request is looked up once, when it comes into view. Its blocks are free again when it is
 * admitted or ends; and when there is no other room, those of the last in the queue go first. */
void qr_protect_init(quire_offload *o);
/* Looks at the queue, when it may have changed. Not inside callbacks. */
void qr_protect_look(quire_offload *o);
/* The request was admitted, or has ended. */
void qr_protect_release(quire_offload *o, quire_req req);
void qr_protect_release_all(quire_offload *o);
/* How many blocks of a request are protected; 0 where it is out of view. */
uint32_t qr_protect_count(const quire_offload *o, quire_req req);
/* They, in order, so many; of a request in view. */
void qr_protect_list(const quire_offload *o, quire_req req, quire_block *blocks);
/* From `first` on they keep their user, who is the caller's now. */
void qr_protect_hand_over(quire_offload *o, quire_req req, uint32_t first);
/* The last in the queue gives its blocks up; false: nobody has any. */
bool qr_protect_give_way(quire_offload *o);

/* ---- round.c --------------------------------------------------------------- */

/* What is stored at one time, and the CPU blocks for it. */
typedef struct qr_store_round {
    quire_block *gpu;
    quire_block *cpu;
    uint32_t count;
    uint32_t num_free; /* CPU blocks that are left for others */
    uint32_t num_left; /* blocks that may be chosen */
    bool is_full;      /* there was no room for a block */
} qr_store_round;

/* Whether there is room for one more: what requests far behind in the queue will need gives way. */
bool qr_round_has_room(quire_offload *o, qr_store_round *round);

/* Counts those of n GPU blocks that have a key and are not in the CPU pool: they are not stored for
 * want of room. */
void qr_round_count_missing(quire_offload *o, const quire_block *gpu, uint32_t n);

/* Stores those of n GPU blocks that are not in the CPU pool. The CPU blocks have keys at once, so
 * that nobody else stores these; they are no hits yet: match.c ends a hit before a block
 * that is pending. Returns how many are done with: fewer than n when there is no room;
 * num_with_key: how many before the first that has no key. */
uint32_t qr_round_take_missing(quire_offload *o, const quire_block *gpu, uint32_t n,
                               qr_store_round *round, uint32_t *num_with_key);

/* ---- store.c --------------------------------------------------------------- */

/* eager   blocks of the requests of a step, as far as they were computed before it
 * lazy    the head of the engine's free queue: what will be evicted next
 *
 *      chosen ──► CPU block taken, GPU block kept ──► copied ──► the CPU block gets the key
 *                                                        └─ failed, reset: it stays empty */
/* quire_connector.update_state_after_alloc, as far as stores go. */
void qr_store_note_alloc(quire_offload *o, quire_req req, const quire_block_span *blocks);
/* Chooses the stores of a step, and puts them into the meta. */
void qr_store_build(quire_offload *o, const quire_step *step);
/* Chooses among the full blocks of one request, with at most so many stores more. */
void qr_store_of_one(quire_offload *o, qr_offload_req *r, uint32_t most);
/* The request loses its blocks, and comes back: all full blocks of its first num_tokens tokens that
 * the CPU pool lacks; none if the request has more blocks than half of that pool. is_urgent: half
 * of its blocks at least are free at once. Returns how many of its first tokens are in the CPU
 * pool, or on their way to it. */
uint32_t qr_store_preempted(quire_offload *o, qr_offload_req *r, const quire_block_span *blocks,
                            uint32_t num_tokens, bool is_urgent);

/* ---- eager.c --------------------------------------------------------------- */

/* Of steps with few tokens, the stores of some together; where a group has a window, request by
 * request. */
/* Nothing of the request is stored, and it has other blocks. */
void qr_eager_begin(quire_offload *o, uint32_t index);
/* has_place: there is one for their event. */
void qr_eager_choose(quire_offload *o, const quire_step *step, bool has_place,
                     qr_store_round *round);
/* Those of a request that ends. */
void qr_eager_choose_last(quire_offload *o, qr_offload_req *r, qr_store_round *round);

/* ---- ends.c: stores that ended --------------------------------------------- */

/* The event of a number that is on the way; NULL: there is none. */
qr_offload_event *qr_store_event(quire_offload *o, uint64_t id);
/* So many reports more, to be looked at in the update. */
void qr_store_report(quire_offload *o, qr_offload_event *event, uint32_t num_reports);
void qr_store_finish_told(quire_offload *o);
void qr_store_drop_all(quire_offload *o);
/* Whether stores are past their deadline: then none is begun before they have ended. They keep
 * their blocks, which a copy may still read; plan.c says how many that can be. */
void qr_store_note_late(quire_offload *o);
/* The device refused all of an event in the step that made it: as if nothing had been chosen, also
 * in the engine's free queue. */
void qr_store_undo(quire_offload *o, qr_offload_event *event);

/* ---- load.c ---------------------------------------------------------------- */

/* CPU blocks to the GPU blocks that a request got for them:
 *
 *      WAITS ──build_meta──► ON_THE_WAY ──report, or the device──► ENDED ──poll──► TOLD ──update──►
 *
 * In a hybrid model a hit covers the tail of what a group has, the window, so both sides are laid
 * end to end:
 *
 *      CPU hit           [ null ][ null ][ c8 ][ c9 ]
 *      GPU blocks  [ g1 ][ null ][ null ][ g4 ][ g5 ][ g6 ]
 *                                            ^ local + external tokens end here
 */
/* quire_connector.update_state_after_alloc, as far as loads go. */
void qr_load_begin(quire_offload *o, quire_req req, const quire_block_span *blocks,
                   uint32_t num_external);
/* Puts the loads that wait into the meta. zeroes: the step clears blocks that it took; those of its
 * own loads may be among them, so they come after it. */
void qr_load_build(quire_offload *o, bool zeroes);
/* There is no way to load them: they are computed. */
void qr_load_refuse(quire_offload *o);
/* Whether a load of this request can be reported. */
bool qr_load_is_on_the_way(quire_offload *o, quire_req req);
void qr_load_end(quire_offload *o, uint32_t index, bool has_failed);
/* Its request has ended; false: there is no load, nothing has to be kept. */
bool qr_load_abandon(quire_offload *o, qr_offload_req *r);
/* Into the output of the update of this step. */
void qr_load_tell(quire_offload *o, uint64_t step, quire_model_output *output);
/* In that update: what was told is over. */
void qr_load_finish_told(quire_offload *o);
/* What is on the way does not count any more. */
void qr_load_drop_all(quire_offload *o);

/* ---- copy.c ---------------------------------------------------------------- */

/* Stores and loads as jobs of a device, of at most QR_COPIES_IN_JOB. A load that is not there in
 * time is given up: its request computes instead, in other blocks. Those of the jobs that the
 * device still has are nobody's until it gives them back. What finds no free job, or a device that
 * takes no more, is sent in a later poll. */
void qr_copy_init(quire_offload *o);
/* The point in the engine's compute behind which the copies of this step come. False: the device
 * has none, and nothing can be copied. */
bool qr_copy_mark(quire_offload *o);
/* Gives the device what it has not yet: loads first, requests wait for them. */
void qr_copy_send(quire_offload *o);
/* Takes what has ended, and gives up what is late. */
void qr_copy_poll(quire_offload *o);
/* A load begins to be due; and it has ended. */
void qr_copy_expect_load(quire_offload *o, uint32_t index);
void qr_copy_forget_load(quire_offload *o, uint32_t index);

/* ---- tiers.c, check.c ------------------------------------------------------ */

/* quire_connector.get_tiers; user is the offload. */
uint32_t qr_offload_get_tiers(void *user, quire_tier_usage *tiers, uint32_t capacity);
/* The walker: every user of a block is known. QUIRE_OK or QUIRE_E_CORRUPT. */
int qr_offload_check(const quire_offload *o);

#endif
