/* tier/promote/parts.h - what promotion knows, and who of it does what.
 *
 *      promote.c          making it, requests that ask
 *      plan.c     what a request needs, and where that is
 *      moves.c    keys on the way, who waits for them, the queues of tiers
 *      jobs.c     moves become jobs of tiers, and what becomes of those
 *      store.c    what goes down
 *      check.c    the walker
 *      events.c   what is in the tiers, as KV events
 *
 * move      a key that is looked for, fetched or stored: in a queue, or in a job.
 * waiter    a request that needs a move's key. It is alive while its epoch is the record's.
 * record    a request, by its quire_req_index. limit: from this token on nothing is fetched for it;
 *           what was not found, failed or was late lowers it, and it is never raised.
 *
 *      queued ──► in a FIND ──► queued ──► in a LOAD ──► DONE: a hit of the CPU pool
 *         ▲           │ missing    └ nobody waits  │ missing, failed
 *         └───────────┴── the next tier that may have it ──┘
 *                         └ none, or late: waiters' limits are lowered
 *
 * A load that is late loses its moves at once, and keeps its CPU blocks until it ends.
 *
 *      moves in use = in queues + in jobs             pending of a record = its live waiters
 */
#ifndef QR_TIER_PROMOTE_PARTS_H
#define QR_TIER_PROMOTE_PARTS_H

#include "base/bits.h"
#include "base/count.h"
#include "base/list.h"
#include "tier/core/block_key.h"
#include "tier/core/key.h"
#include "tier/offload/share.h"
#include "tier/promote/costs.h"
#include "tier/promote/promote.h"
#include "tier/slots/index.h"

#include <stdatomic.h>

enum {
    QR_LOWER_MAX_GROUPS = 64,
    QR_LOWER_BATCH = QR_AT_A_TIME(64, 2), /* keys looked at together */
    QR_LOWER_JOBS = 256, /* loads and stores of one tier, as many as a tier takes by default */
    QR_LOWER_STORE_JOBS = 192, /* of those: loads find a free one */
    QR_LOWER_FIND_JOBS = 32,   /* each for one request */
    QR_LOWER_ALL_JOBS = QR_LOWER_JOBS + QR_LOWER_FIND_JOBS,
    QR_LOWER_FIND_IOS = QR_AT_A_TIME(512, 2)
};

typedef enum qr_promote_queue_id {
    QR_QUEUE_FIND = 0,
    QR_QUEUE_LOAD = 1,  /* somebody waits */
    QR_QUEUE_AHEAD = 2, /* somebody will */
    QR_QUEUE_STORE = 3,
    QR_QUEUE_COUNT = 4,
    QR_QUEUE_NONE = 4 /* in a job */
} qr_promote_queue_id;

typedef struct qr_move {
    quire_tier_key key;
    uint32_t tag;
    qr_link link; /* in its queue; of the free ones: next alone */
    uint32_t first_waiter;
    quire_block block; /* STORE: from here */
    uint32_t crc;
    uint32_t content; /* STORE: of the block, when it was offered */
    uint8_t tier;
    uint8_t asked; /* bits: tiers that have not got it */
    uint8_t queue;
    bool is_store;
    bool has_crc;
    bool is_ahead; /* nobody waits for it yet */
    bool is_used;
} qr_move;

typedef struct qr_promote_block {
    uint8_t origin;  /* the tier it came from, and 1; 0: none, or it was a hit since */
    uint8_t offered; /* bits: tiers that have it, or were asked to */
} qr_promote_block;

typedef struct qr_waiter {
    uint32_t record;
    uint32_t epoch;
    uint32_t start; /* the block's first token */
    uint32_t next;
} qr_waiter;

typedef enum qr_ask_state { QR_ASK_IDLE = 0, QR_ASK_WAITING = 1, QR_ASK_DONE = 2 } qr_ask_state;

typedef struct qr_record {
    quire_req req;
    uint64_t until_ns; /* then it goes on without */
    uint64_t asked_ns; /* its first round; until_ns follows from it */
    uint64_t start_ns; /* of this round, */
    double bytes;      /* that it began to wait for, those before them in the queue included */
    uint32_t epoch;
    uint32_t limit;
    uint32_t pending;
    uint32_t num_taken;   /* blocks that were fetched for it */
    uint32_t start_limit; /* limit at the start of this round */
    uint8_t state;
    uint8_t rounds;
    uint8_t tiers;         /* bits: those it waits for, */
    uint8_t load_tiers;    /* those that it loads from, */
    uint8_t skipped_tiers; /* and those that are slower than computing; all in this round */
    bool is_urgent;        /* it was asked for, not only prefetched */
    bool is_expected;      /* tiers know what it will need */
} qr_record;

typedef struct qr_promote_queue {
    qr_chain chain;
    uint32_t count;
} qr_promote_queue;

typedef struct qr_promote_job {
    quire_tier_job job; /* first: the tier gives this back */
    uint32_t *moves;    /* QR_NIL: no longer of interest */
    quire_block *blocks;
    qr_link link; /* among those that are out; of the free ones: next alone */
    uint8_t tier;
    bool is_out;
    bool has_blocks; /* one user more for each of its CPU blocks */
    bool is_late;
    bool is_stale; /* from before a reset */
} qr_promote_job;

/* X(count, also of the stats). */
#define QR_PROMOTE_COUNTS(X)                                                                       \
    X(hit_tokens)                                                                                  \
    X(promoted_blocks)                                                                             \
    X(stored_blocks)                                                                               \
    X(failed_blocks)                                                                               \
    X(late_blocks)                                                                                 \
    X(skipped_tokens)                                                                              \
    X(not_admitted)                                                                                \
    X(dropped_blocks)                                                                              \
    X(in_flight)

typedef struct qr_promote_counters {
#define QR_X(name) _Atomic uint64_t name;
    QR_PROMOTE_COUNTS(QR_X)
#undef QR_X
    _Atomic double bytes_per_s;
    _Atomic double latency_ns;
} qr_promote_counters;

/* A tier whose events are told. */
typedef struct qr_promote_watch {
    const qr_promote *promote;
    struct quire_slots *slots; /* NULL: they are not */
    uint32_t place;            /* among the monitor's tiers */
} qr_promote_watch;

typedef struct qr_promote_tier {
    quire_tier *tier;
    qr_promote_watch watch;
    quire_offload_admit admit;
    bool looks_ahead;
    bool is_read_only;    /* nothing is stored there */
    bool loads_unknown;   /* it finds what it loads: no FIND */
    uint64_t deadline_ns; /* 0: the tier's */
    uint64_t wait_ns;     /* the longest that a request waits for it */
    qr_promote_queue queues[QR_QUEUE_COUNT];
    uint32_t free_job; /* of loads and stores */
    uint32_t free_find;
    uint32_t stalled; /* a job that is ready and was not taken; QR_NIL */
    qr_chain out;     /* jobs that are not late, oldest first */
    uint32_t num_on_time;
    uint32_t num_late;
    uint32_t num_stale;     /* stores from before a reset: the tier is not used until they ended */
    uint32_t num_stores;    /* jobs */
    uint32_t num_storing;   /* CPU blocks in those, late ones included */
    uint32_t num_queued;    /* moves that are stores, in the queue or in jobs */
    uint32_t num_loading;   /* CPU blocks in jobs, late ones included */
    uint32_t loads_on_time; /* blocks */
    uint64_t bytes_out;     /* in jobs */
    uint64_t store_bytes_out;
    uint64_t most_store_bytes; /* three quarters of what the tier took at once */
    bool is_stuck;             /* late jobs have all the room there is */
    bool is_void;              /* it has not got the identity that it should have */
    qr_promote_counters counters;
} qr_promote_tier;

typedef struct qr_promote_group {
    quire_layer_kind kind;
    uint32_t block_size; /* tokens */
    qr_key_form key_form;
    uint32_t hash_len; /* of a key */
    uint32_t window_blocks;
    uint32_t chunk_tokens;
    uint32_t max_blocks;
    uint8_t *sources; /* of a request's blocks, in a plan */
    bool is_full;
} qr_promote_group;

struct qr_promote {
    quire_pool *pool;
    qr_share share;
    uint32_t num_cpu_blocks;
    uint32_t rank;
    unsigned char *memory;
    uint64_t block_bytes;
    uint32_t digest_bytes;
    uint32_t hash_size; /* tokens of a hash */
    uint32_t num_groups;
    uint32_t alignment;   /* tokens: hits end at multiples */
    uint32_t count_group; /* whose blocks are counted as tokens */
    bool is_single;       /* one group, of a full kind */
    bool looks_ahead;     /* some tier does */
    qr_promote_group groups[QR_LOWER_MAX_GROUPS];

    uint32_t num_tiers;
    qr_promote_tier tiers[QUIRE_OFFLOAD_MAX_TIERS];
    qr_costs costs;
    _Atomic double token_ns;

    qr_buckets index;
    qr_move *moves;
    uint32_t num_moves;
    uint32_t free_move;
    uint32_t num_loads;   /* moves in use that fetch; */
    uint32_t max_loads;   /* and of a request's plan */
    uint32_t max_stores;  /* of one tier */
    uint32_t max_loading; /* CPU blocks for the loads of one tier */
    uint32_t max_storing; /* and for its stores */
    uint32_t hash_bytes;  /* of the longest hash; above 32: */
    unsigned char *long_hashes;

    qr_waiter *waiters;
    uint32_t num_waiters;
    uint32_t free_waiter;

    qr_record *records;
    uint32_t num_records;

    qr_promote_job *jobs; /* of tier t: QR_LOWER_JOBS, then QR_LOWER_FIND_JOBS */
    uint32_t job_ios;
    qr_promote_block *blocks;    /* of the CPU pool */
    uint64_t *has_past;          /* bits: of those that have, or had, an origin or offers */
    uint32_t *contents;          /* of each: grows with a new content that a tier could mistake */
    quire_tier_key *expected;    /* scratch: the keys of a request, */
    uint64_t next_order;         /* in the order in which they came */
    uint8_t *run;                /* scratch: sources of a plan's blocks */
    quire_block *free_list;      /* scratch: of one job */
    unsigned char *hash_scratch; /* of one job */

    unsigned char next_identity[QUIRE_FINGERPRINT_BYTES];
    bool has_next_identity; /* when the tiers have no jobs */

    void (*make_room)(void *user, uint32_t num_blocks);
    void *room_user;
    quire_monitor *monitor; /* that is told of events; NULL: none is */
    quire_hooks hooks;
};

/* What a CPU block is to tiers changes. */
static inline void qr_promote_set_block(qr_promote *promote, quire_block block, qr_promote_block to)
{
    promote->blocks[block] = to;
    qr_bit_set(promote->has_past, block);
}

/* Whether what it has, or would be given, may not be used. */
static inline bool qr_promote_is_out(const qr_promote_tier *tier)
{
    return tier->num_stale > 0 || tier->is_void;
}

/* Whether it may be asked. */
static inline bool qr_promote_is_usable(const qr_promote_tier *tier)
{
    return !tier->is_stuck && !qr_promote_is_out(tier);
}

/* ---- moves.c ---------------------------------------------------------- */

void qr_promote_moves_init(qr_promote *promote);
/* The move that fetches a key, from whichever tier; QR_NIL. Stores are not found: a block of the
 * CPU pool is offered to a tier once, and keys are there once. */
uint32_t qr_promote_move_find(const qr_promote *promote, const quire_tier_key *key);
/* The same, with the key's tag in lower->index in hand. */
uint32_t qr_promote_move_find_tag(const qr_promote *promote, uint32_t tag,
                                  const quire_tier_key *key);
/* One more, in no queue; QR_NIL: there are as many as there may be. tag: in lower->index. */
uint32_t qr_promote_move_new_load(qr_promote *promote, const quire_tier_key *key, uint32_t tag,
                                  uint32_t tier);
uint32_t qr_promote_move_new_store(qr_promote *promote, const quire_tier_key *key, uint32_t tier);
/* It is gone, and its waiters are told: has_failed lowers their limits. */
void qr_promote_move_end(qr_promote *promote, uint32_t move, bool has_failed);
/* Its tier has not got it, or failed: a load goes to the queue of the next tier that may have it;
 * if there is none, and for a store, qr_promote_move_end with has_failed. */
void qr_promote_move_fail(qr_promote *promote, uint32_t move);
/* Its tier was not asked, since it has not got an earlier block of the prefix: the next tier may
 * have that, and this. If it has not, this tier is asked again. */
void qr_promote_move_skip(qr_promote *promote, uint32_t move);
/* It was found in its tier, or its tier finds it, and waits for its LOAD. */
void qr_promote_move_load(qr_promote *promote, uint32_t move);
/* One more that needs it; false: no room. */
bool qr_promote_move_await(qr_promote *promote, uint32_t move, uint32_t record, uint32_t start);
bool qr_promote_move_is_wanted(const qr_promote *promote, uint32_t move);

/* At its end, or before all others. */
void qr_promote_queue_push(qr_promote *promote, uint32_t move, qr_promote_queue_id queue,
                           bool is_first);
void qr_promote_queue_remove(qr_promote *promote, uint32_t move);

/* ---- plan.c ------------------------------------------------------------ */

/* The key of a request's block in a group. */
void qr_promote_plan_key(const qr_promote *promote, const qr_promote_request *request,
                         uint32_t group, uint32_t block, quire_tier_key *key);
/* Puts what the record needs, and is worth it, into queues; returns how many moves it awaits. */
uint32_t qr_promote_plan_fetch(qr_promote *promote, const qr_promote_request *request,
                               uint32_t record);
/* Tells the tiers what the request will need, or that it does not wait any more. */
void qr_promote_plan_expect(qr_promote *promote, const qr_promote_request *request);
void qr_promote_plan_unexpect(qr_promote *promote, qr_record *record);
/* What it waits for goes before what others will need. */
void qr_promote_plan_hurry(qr_promote *promote, const qr_promote_request *request);

/* ---- jobs.c ------------------------------------------------------------ */

void qr_promote_jobs_init(qr_promote *promote);
/* Whether something is queued for it. */
bool qr_promote_is_waiting(const qr_promote_tier *tier);
/* Gives the tier what is queued for it, as far as it takes it. */
void qr_promote_jobs_pump(qr_promote *promote, uint32_t tier);
/* Ends of the tier's jobs, and those that are late. */
void qr_promote_jobs_poll(qr_promote *promote, uint32_t tier);
/* Nothing of it counts any more. */
void qr_promote_jobs_drop(qr_promote *promote, uint32_t tier);

#endif
