/* quire/offload.h - stores KV blocks outside of the engine's memory: the scheduler's side.
 *
 *      scheduler ─ quire_connector ─► offload ── stores, loads ──► device, or the engine's workers
 *                                        │
 *                    CPU pool: a quire_cache of the same groups
 *                                        │ promote, store
 *                                     tiers: file, Redis, ...
 *
 * EAGER     stores full blocks as soon as they are computed. The blocks of small steps are stored
 *           together, every 16 steps or more often, and when their request ends, but not when it is
 *           preempted before. (If a group has a window: in each step.)
 * LAZY      stores blocks shortly before they would be evicted: the blocks at the head of the free
 *           queue.
 * event     the stores, or the loads, of one step. Reports name an event by its number.
 *
 * The rules, the same in every profile of the scheduler (in brackets what the
 * SimpleCPUOffloadScheduler of vLLM 0.20.0 does):
 *
 *      lazily stored blocks are still evicted next                 [the coldest become the hottest]
 *      a key is stored once at a time                              [twice, from two blocks, steps]
 *      the last blocks of a request that ends are stored           [missed]
 *      a reported hit is kept until it is loaded                   [asserted]
 *      the start of a prompt is evicted after its end              [before]
 *      a block is stored only after it was computed                [also a block that a request in
 *                  the same step computes, or whose owner was preempted or lost it to another]
 *      blocks that waiting requests need are evicted last, and fetched from tiers in advance
 *      copies may fail, be refused and be late; the connector's reset_cache may be called while
 *                  copies are in flight (quire_sched_reset_prefix_cache then returns QUIRE_BUSY)
 *
 * With context parallelism a block has positions of all ranks, and the worker of each rank copies
 * its own part of a block (num_workers workers report).
 *
 * Order of creation: the offload, then the scheduler with quire_offload_connector in its config,
 * then quire_offload_bind. In each step:
 *
 *      schedule                                        step->connector_meta is a quire_offload_meta
 *      [the engine copies as the meta says, or the device copies; before the next schedule the
 *       step is submitted to the engine's compute stream]
 *      quire_offload_tell       what workers reported: not with a device
 *      quire_offload_poll       fills finished_recving and invalid_blocks of the output
 *      update
 *
 * If a load fails, or would take longer than computing, the tokens are computed again: no request
 * waits forever. Nothing is allocated after creation.
 *
 * Threads: the scheduler's thread. Any thread may call quire_offload_get_stats. In the child of a
 * fork, calls that change an offload return QUIRE_E_SYSTEM. If a required pointer is NULL, a call
 * returns QUIRE_E_ARGUMENT.
 */
#ifndef QUIRE_OFFLOAD_H
#define QUIRE_OFFLOAD_H

#include "cache.h"
#include "config.h"
#include "device.h"
#include "error.h"
#include "memory.h"
#include "sched.h"
#include "tier.h"
#include "tier_peer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_offload quire_offload;

typedef enum quire_offload_mode {
    QUIRE_OFFLOAD_EAGER = 0,
    QUIRE_OFFLOAD_LAZY = 1
} quire_offload_mode;

/* Which blocks may be stored in a tier below the CPU pool. */
typedef enum quire_offload_admit {
    QUIRE_ADMIT_ALL = 0,
    QUIRE_ADMIT_REUSED = 1, /* blocks that were a hit before */
    /* Blocks of prefixes that load faster than they are computed. Lengths are not known yet: all
     * prefixes count as long. */
    QUIRE_ADMIT_LONG = 2
} quire_offload_admit;

typedef struct quire_offload_tier { /* final */
    quire_tier *tier;
    quire_offload_admit admit;
    /* Deadline of a load; after it the request continues without the load. 0 = the tier's. */
    uint64_t deadline_ns;
    double bytes_per_s; /* initial value, until it is learned; 0: loads are tried */
    uint64_t latency_ns;
} quire_offload_tier;

typedef struct quire_offload_config {
    size_t size;
    /* Config of the scheduler that will be bound; read during creation. */
    const quire_sched_config *sched;
    uint32_t num_cpu_blocks; /* with the null block, as in vLLM */
    quire_offload_mode mode;
    uint32_t num_workers; /* A store counts when num_workers workers have reported it; 0 = 1. */
    uint32_t max_events;  /* the most stores and loads in flight; 0 = 64 */

    const quire_device *device; /* NULL: the caller copies as the meta says, and reports */
    void *memory;               /* num_cpu_blocks * block_bytes, for tiers; NULL: no memory */
    uint64_t block_bytes;
    uint32_t rank;
    /* 0 = 30 s. A device's load that takes longer is abandoned, and its request computes its
     * tokens. While such a load or store is in flight, nothing else is loaded or stored. */
    uint64_t load_deadline_ns;

    uint32_t backlog;                /* number of waiting requests that are examined; 0 = 256 */
    quire_switch lookahead;          /* default on */
    const quire_offload_tier *tiers; /* copied; from the fastest to the slowest */
    uint32_t num_tiers;
    uint64_t recompute_token_ns; /* initial value; 0 = loading is always faster */
    /* The cost of computing is learned from the time between schedule and quire_offload_poll of
     * each step that is mostly prefill. OFF: only from quire_offload_learn, for engines whose steps
     * do not take the time of the computation (simulations). Default on. */
    quire_switch learns;

    quire_hooks hooks;

    /* Offers the blocks of the CPU pool to other engines: block n is slot n, so max_blocks must be
     * at least num_cpu_blocks. Requires memory. The server's fingerprint
     * follows quire_offload_set_identity. NULL: no server. Destroy the offload before the server is
     * closed, and close the server before the memory is freed. */
    quire_peer_server *peer_server;

    /* ON: the scheduler's monitor reports what the CPU pool stores and removes, with medium "CPU".
     * A block is reported when its copy begins, and as removed if the copy fails. The monitor also
     * reports the blocks of each lower tier, with the tier's medium: a block when its store has
     * ended or when it was found there, and as removed when it is evicted, removed or not found.
     * Files and directories are always reported, Redis and peers up to their event_keys, the
     * caller's own tiers if quire_tier_ops.slots is set. Groups whose hashes are longer than
     * QUIRE_TIER_HASH_BYTES are not reported. Default off. */
    quire_switch events;
} quire_offload_config;

#define QUIRE_OFFLOAD_CONFIG_INIT QUIRE_SIZED_INIT(quire_offload_config)

/* Create an offload: see quire/memory.h. */
QUIRE_API int quire_offload_create(const quire_offload_config *config,
                                   const quire_allocator *allocator, quire_offload **offload);
static inline size_t quire_offload_bytes(const quire_offload_config *config)
{
    size_t bytes = 0;
    quire_offload *none;
    quire_allocator measure = quire_allocator_measure(&bytes);
    (void)quire_offload_create(config, &measure, &none);
    return bytes;
}
/* Destroys an offload. Returns QUIRE_BUSY while jobs of tiers or of the device are in flight: poll
 * again; if they hang, close tiers and device and call quire_offload_abandon first. In the child of
 * a fork: frees the child's memory, and reaches neither the device nor a tier. */
QUIRE_API int quire_offload_destroy(quire_offload *offload);
/* Tells the offload that device and tiers are closed: their jobs will not complete, and the caller
 * must keep the memory that they copied to as long as they may write to it. From then on nothing is
 * reported or stored, and poll returns QUIRE_E_ARGUMENT: destroy the scheduler, then the offload.
 */
QUIRE_API int quire_offload_abandon(quire_offload *offload);

/* The connector for quire_sched_config.connector; valid as long as the offload. */
QUIRE_API const quire_connector *quire_offload_connector(quire_offload *offload);
/* Binds the scheduler, once. Returns QUIRE_E_CONFIG if it differs from config.sched. */
QUIRE_API int quire_offload_bind(quire_offload *offload, quire_sched *sched);

/* ---- a step ---------------------------------------------------------------- */

#define QUIRE_OFFLOAD_NO_EVENT UINT64_MAX

/* The copies to make, after everything that was computed before this step. Valid until the next
 * schedule. */
typedef struct quire_offload_meta { /* lent */
    uint64_t load_event;            /* QUIRE_OFFLOAD_NO_EVENT: no loads */
    uint32_t num_loads;
    const quire_block *load_gpu; /* copy from load_cpu[i] to load_gpu[i] */
    const quire_block *load_cpu;
    uint32_t num_load_reqs;
    const quire_req *load_reqs; /* the requests of the loads */
    uint64_t store_event;
    uint32_t num_stores;
    const quire_block *store_gpu;
    const quire_block *store_cpu;
    uint32_t need_flush; /* 1: a request was preempted */
} quire_offload_meta;

/* What workers have done since the last report. A store counts when num_workers workers have
 * reported it and none of them as failed. A failure is a report too. */
typedef struct quire_offload_report {
    size_t size;
    const quire_req *loaded; /* requests whose loads have completed */
    uint32_t num_loaded;
    const quire_req *failed; /* requests whose loads have failed: they are computed again */
    uint32_t num_failed;
    const uint64_t *stored_events;
    const uint32_t *stored_counts; /* number of workers; NULL: 1 each */
    uint32_t num_stored;
    const uint64_t *failed_events; /* stores that failed: they are dropped */
    uint32_t num_failed_events;
} quire_offload_report;

#define QUIRE_OFFLOAD_REPORT_INIT QUIRE_SIZED_INIT(quire_offload_report)

/* Reports what workers have done. Returns QUIRE_E_UNKNOWN_REQ if a load or a store is not in flight
 * or was already reported; QUIRE_E_ARGUMENT with a device. */
QUIRE_API int quire_offload_tell(quire_offload *offload, const quire_offload_report *report);

/* Polls device and tiers, and sets finished_recving and invalid_blocks of output. Pass output to
 * the update of this step; the arrays are valid until the next poll. */
QUIRE_API int quire_offload_poll(quire_offload *offload, uint64_t step, quire_model_output *output);

/* Reports a measurement: a prefill of num_tokens took ns. Steps are measured without this call,
 * unless config.learns is QUIRE_OFF. */
QUIRE_API int quire_offload_learn(quire_offload *offload, uint32_t num_tokens, uint64_t ns);

/* Changes the identity of the blocks, for new weights. Empties the CPU pool; all tiers keep the
 * blocks of this identity from now on (QUIRE_FINGERPRINT_BYTES; see quire_tier_set_identity). The
 * scheduler owns the engine's own blocks: call quire_sched_reset_prefix_cache with reset_connector
 * 0. With a tier that is shared and persistent this is the only way: a reset of the connector
 * fails. Returns QUIRE_BUSY while tiers have jobs: nothing has changed; make steps or poll, then
 * retry. If a tier fails, returns its error: no tier then returns old blocks, and the failed tier
 * is not used until a later call succeeds. */
QUIRE_API int quire_offload_set_identity(quire_offload *offload, const unsigned char *fingerprint);

/* ---- looking --------------------------------------------------------------- */

#define QUIRE_OFFLOAD_MAX_TIERS 4

typedef struct quire_offload_stats {
    size_t size;
    quire_usage cpu;        /* blocks */
    uint64_t stored_blocks; /* blocks copied to the CPU pool */
    uint64_t loaded_blocks; /* blocks copied from the CPU pool */
    uint64_t failed_loads;  /* requests */
    uint64_t failed_stores; /* blocks */
    /* Blocks that were not stored because all CPU blocks were in use, or because stores in flight
     * already held their share of the engine's blocks (half of the blocks, or all that the longest
     * request leaves, but at least an eighth). EAGER: counted when their request ended. LAZY:
     * counted at each attempt, so that one block may count several times. */
    uint64_t no_room;
    uint64_t hit_tokens;       /* tokens of requests, found in the CPU pool */
    uint64_t expected_blocks;  /* blocks that waiting requests need now */
    uint64_t stores_in_flight; /* blocks */
    uint64_t loads_in_flight;
    struct {
        uint64_t hit_tokens; /* tokens of requests, promoted from this tier */
        uint64_t promoted_blocks;
        uint64_t stored_blocks;
        uint64_t failed_blocks;
        uint64_t late_blocks;
        /* Tokens in the tier that were expected to be computed faster. */
        uint64_t skipped_tokens;
        uint64_t not_admitted; /* blocks */
        /* Blocks admitted, but no room was left or the tier was too slow. */
        uint64_t dropped_blocks;
        uint64_t in_flight; /* blocks */
        double bytes_per_s; /* learned */
        double latency_ns;
    } tiers[QUIRE_OFFLOAD_MAX_TIERS];
    double recompute_token_ns; /* learned */
} quire_offload_stats;

#define QUIRE_OFFLOAD_STATS_INIT QUIRE_SIZED_INIT(quire_offload_stats)

QUIRE_API int quire_offload_get_stats(const quire_offload *offload, quire_offload_stats *stats);
/* The cache of CPU blocks, for reading. A block with a hold (quire_pool_hold) is still being
 * copied: it is not a hit. */
QUIRE_API quire_cache *quire_offload_cache(quire_offload *offload);
/* 1 if stores are in flight: an engine without requests continues until they have ended. */
QUIRE_API int quire_offload_has_pending(const quire_offload *offload);
/* Walks everything and checks that each reference in both pools belongs to a job, a request or a
 * hit. Returns QUIRE_OK or QUIRE_E_CORRUPT. */
QUIRE_API int quire_offload_check(const quire_offload *offload);

#ifdef __cplusplus
}
#endif
#endif
