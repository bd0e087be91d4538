/* quire/offload.h - KV blocks outlive the engine's memory: the scheduler's side.
 *
 *      scheduler ─ quire_connector ─► offload ── stores, loads ──► device, or the engine's workers
 *                                        │
 *                    CPU pool: a quire_cache of the same groups
 *                                        │ promote, store
 *                                     tiers: file, Redis, ...
 *
 * EAGER     full blocks are stored as soon as they are computed. Those of small steps are stored
 *           together, every 16 steps or more often, and when their request ends; not when it is
 *           preempted before. (With vLLM's profile, or where a group has a window: in each step.)
 * LAZY      blocks are stored shortly before they would be evicted: those at the head of the free
 *           queue.
 * event     the stores, or the loads, of one step. Its number names them in reports.
 *
 * With QUIRE_PROFILE_VLLM_0_20 the decisions are those of vLLM 0.20.0's SimpleCPUOffloadScheduler,
 * its faults included; there are no tiers below the CPU pool then, a group of a full kind is
 * needed, and stores are copied after the step that names them, since they may be computed in it.
 * With QUIRE_PROFILE_DEFAULT (in brackets what vLLM does):
 *
 *      lazily stored blocks stay those that are evicted next       [the coldest become the hottest]
 *      a key is stored once at a time                              [twice, from two blocks, steps]
 *      the last blocks of a request that ends are stored           [missed]
 *      what was told as a hit is kept until it is loaded           [asserted]
 *      the head of a prompt is evicted after its tail              [before]
 *      a block is stored only after it was computed                [also one that a request in the
 *                  same step computes, or whose owner was preempted or has lost it to another]
 *      blocks that waiting requests need are evicted last, and fetched from tiers before their turn
 *      copies may fail, be refused and be late; the connector's reset_cache may be called while
 *                  copies are in flight (quire_sched_reset_prefix_cache is then QUIRE_BUSY)
 *
 * With context parallelism a block has positions of all ranks, and each rank's worker copies its
 * own part of a block (num_workers is how many report). vLLM asserts that there is one rank, so the
 * vLLM profile refuses more: QUIRE_E_CONFIG.
 *
 * Where vLLM's assertion on a hit would fail the tokens are computed, and where it would load into
 * the null block that block is not loaded. Requests are told apart by their quire_req, in vLLM by
 * their id.
 *
 * Order of making: offload, then the scheduler with quire_offload_connector in its config, then
 * quire_offload_bind. In each step:
 *
 *      schedule                                        step->connector_meta is a quire_offload_meta
 *      [the engine copies as the meta says, or the device does it by itself; before the next
 *       schedule the step is given to the engine's compute stream]
 *      quire_offload_tell       what workers reported: not with a device
 *      quire_offload_poll       fills finished_recving and invalid_blocks of the output
 *      update
 *
 * A load that fails, or is not worth its time, is computed again; none makes a request wait without
 * end. Nothing is allocated after creation.
 *
 * Threads: the scheduler's. quire_offload_get_stats: any.
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

/* What may go to a tier below the CPU pool. */
typedef enum quire_offload_admit {
    QUIRE_ADMIT_ALL = 0,
    QUIRE_ADMIT_REUSED = 1, /* blocks that were a hit once */
    QUIRE_ADMIT_LONG = 2    /* of prefixes long enough that loading them is faster than computing;
                               lengths are not known yet: all count as long */
} quire_offload_admit;

typedef struct quire_offload_tier {
    quire_tier *tier;
    quire_offload_admit admit;
    uint64_t deadline_ns; /* of a load: then its request goes on without; 0 = the tier's */
    double bytes_per_s;   /* to begin with, until it is learned; 0: loads are tried */
    uint64_t latency_ns;
} quire_offload_tier;

typedef struct quire_offload_config {
    size_t size;
    const quire_sched_config *sched; /* of the scheduler that will be bound; read during creation */
    uint32_t num_cpu_blocks;         /* the null block included, as in vLLM */
    quire_offload_mode mode;
    uint32_t num_workers; /* that report a store before it counts; 0 = 1 */
    uint32_t max_events;  /* stores and loads in flight; 0 = 64 */
    quire_profile profile;

    const quire_device *device; /* NULL: the caller copies as the meta says, and reports */
    void *memory;               /* num_cpu_blocks * block_bytes, for tiers; NULL: none */
    uint64_t block_bytes;
    uint32_t rank;
    uint64_t load_deadline_ns; /* 0 = 30 s. A device's load that takes longer is given up, and its
                                  request computes; while such a load or store is on the way nothing
                                  else is loaded or stored. Default profile only */

    /* Default profile only */
    uint32_t backlog;                /* waiting requests that are looked at; 0 = 256 */
    quire_switch lookahead;          /* default on */
    const quire_offload_tier *tiers; /* copied; from the fastest to the slowest */
    uint32_t num_tiers;
    uint64_t recompute_token_ns; /* to begin with; 0 = loading is always faster */
    /* What computing costs is learned from the time between schedule and quire_offload_poll of each
     * step that is mostly prefill. OFF: from quire_offload_learn alone, for engines whose steps do
     * not take the time that computing takes (simulations). Default on */
    quire_switch learns;

    quire_hooks hooks;

    /* Default profile only. The blocks of the CPU pool are offered to other engines here: block n
     * is slot n, so max_blocks is num_cpu_blocks at least. It needs memory. The server's
     * fingerprint follows quire_offload_set_identity. NULL: none. Close the server before the
     * memory is freed, and destroy the offload before the server is closed. */
    quire_peer_server *peer_server;

    /* ON: the scheduler's monitor tells what the CPU pool stores and removes, medium "CPU". A block
     * is told when its copy begins, and as removed when that fails. It also tells what is in each
     * tier below, with the tier's medium: a block when its store has ended, or when it was found
     * there, and as removed when it is evicted, removed, or not found any more. Files and
     * directories always, Redis and peers as far as their event_keys go, the caller's own tiers
     * where quire_tier_ops.slots is there; not in groups whose hashes are longer than
     * QUIRE_TIER_HASH_BYTES. Default off */
    quire_switch events;
} quire_offload_config;

#define QUIRE_OFFLOAD_CONFIG_INIT QUIRE_SIZED_INIT(quire_offload_config)

QUIRE_API size_t quire_offload_bytes(const quire_offload_config *config);
QUIRE_API int quire_offload_create_in(void *memory, size_t bytes,
                                      const quire_offload_config *config, quire_offload **offload);
QUIRE_API int quire_offload_create(const quire_offload_config *config,
                                   const quire_allocator *allocator, quire_offload **offload);
/* QUIRE_BUSY while jobs of tiers or the device are in flight: poll on; or, where these hang, close
 * them and abandon first. In the child of a fork: frees the child's memory, and reaches neither the
 * device nor a tier; all other calls that change an offload return QUIRE_E_SYSTEM there. */
QUIRE_API int quire_offload_destroy(quire_offload *offload);
/* Device and tiers are closed, with what they had: their jobs do not come back, and the memory that
 * they copied to is the caller's to keep as long as they may write to it. Nothing is told or stored
 * any more, and poll is QUIRE_E_ARGUMENT: destroy the scheduler, then this. */
QUIRE_API int quire_offload_abandon(quire_offload *offload);

QUIRE_API const quire_connector *quire_offload_connector(quire_offload *offload);
QUIRE_API int quire_offload_bind(quire_offload *offload, quire_sched *sched);

/* ---- a step ---------------------------------------------------------------- */

#define QUIRE_OFFLOAD_NO_EVENT UINT64_MAX

/* What is to be copied, after everything that was computed before this step (stores of the vLLM
 * profile: and in it). Valid until the next schedule. */
typedef struct quire_offload_meta {
    uint64_t load_event; /* QUIRE_OFFLOAD_NO_EVENT: none */
    uint32_t num_loads;
    const quire_block *load_gpu; /* from load_cpu[i] to load_gpu[i] */
    const quire_block *load_cpu;
    uint32_t num_load_reqs;
    const quire_req *load_reqs; /* whose loads they are */
    uint64_t store_event;
    uint32_t num_stores;
    const quire_block *store_gpu;
    const quire_block *store_cpu;
    uint32_t need_flush; /* somebody was preempted */
} quire_offload_meta;

/* What workers have done since the last report. A store counts when num_workers reported it, and
 * none of them that it failed, which is a report too. */
typedef struct quire_offload_report {
    const quire_req *loaded; /* requests whose loads are there */
    uint32_t num_loaded;
    const quire_req *failed; /* or failed: computed again */
    uint32_t num_failed;
    const uint64_t *stored_events;
    const uint32_t *stored_counts; /* workers; NULL: 1 each */
    uint32_t num_stored;
    const uint64_t *failed_events; /* stores that failed: forgotten */
    uint32_t num_failed_events;
} quire_offload_report;

/* QUIRE_E_UNKNOWN_REQ for a load or a store that is not on the way, or was reported as there;
 * QUIRE_E_ARGUMENT with a device. */
QUIRE_API int quire_offload_tell(quire_offload *offload, const quire_offload_report *report);

/* Looks at device and tiers, and sets finished_recving and invalid_blocks of output, which is then
 * given to the update of this step; what they point at is valid until the next poll. */
QUIRE_API int quire_offload_poll(quire_offload *offload, uint64_t step, quire_model_output *output);

/* A prefill of so many tokens took so long: what recomputing costs. Steps are measured without this
 * call, unless config.learns is QUIRE_OFF. */
QUIRE_API int quire_offload_learn(quire_offload *offload, uint32_t num_tokens, uint64_t ns);

/* Blocks mean something else from now on: new weights. The CPU pool is emptied, and all tiers keep
 * the blocks of this identity (QUIRE_FINGERPRINT_BYTES; see quire_tier_set_identity). The engine's
 * own blocks are the scheduler's: quire_sched_reset_prefix_cache, with reset_connector 0. With a
 * tier that is shared and persistent this is the only way: a reset of the connector is refused.
 * QUIRE_BUSY while tiers have jobs: nothing has changed; make steps or poll, and call again. If a
 * tier fails, its error is returned, no tier gives old blocks, and that tier is not used until a
 * later call succeeds. QUIRE_E_ARGUMENT with vLLM's profile. */
QUIRE_API int quire_offload_set_identity(quire_offload *offload, const unsigned char *fingerprint);

/* ---- looking --------------------------------------------------------------- */

#define QUIRE_OFFLOAD_MAX_TIERS 4

typedef struct quire_offload_stats {
    quire_usage cpu;        /* blocks */
    uint64_t stored_blocks; /* to the CPU pool */
    uint64_t loaded_blocks; /* from it */
    uint64_t failed_loads;  /* requests */
    uint64_t failed_stores; /* blocks */
    /* Blocks that were not stored because all CPU blocks were in use, or because stores in flight
     * already held as many of the engine's blocks as they may (half of them, or what the longest
     * request leaves, but at least an eighth). EAGER: when their request ended. LAZY, and in vLLM's
     * profile: at each look, so that one block may count several times. */
    uint64_t no_room;
    uint64_t hit_tokens;       /* of requests: found in the CPU pool */
    uint64_t expected_blocks;  /* of waiting requests, now */
    uint64_t stores_in_flight; /* blocks */
    uint64_t loads_in_flight;
    struct {
        uint64_t hit_tokens; /* of requests: promoted from here */
        uint64_t promoted_blocks;
        uint64_t stored_blocks;
        uint64_t failed_blocks;
        uint64_t late_blocks;
        uint64_t skipped_tokens; /* there, but computing was expected to be faster */
        uint64_t not_admitted;   /* blocks */
        uint64_t dropped_blocks; /* admitted, but there was no room or the tier was too slow */
        uint64_t in_flight;      /* blocks */
        double bytes_per_s;      /* as learned */
        double latency_ns;
    } tiers[QUIRE_OFFLOAD_MAX_TIERS];
    double recompute_token_ns; /* as learned */
} quire_offload_stats;

QUIRE_API int quire_offload_get_stats(const quire_offload *offload, quire_offload_stats *stats);
/* Of CPU blocks; to look at. A block that is held there (quire_pool_hold) is one whose content is
 * still on its way: no hit. */
QUIRE_API quire_cache *quire_offload_cache(quire_offload *offload);
/* Whether stores are on the way: an engine without requests goes on until they are there. */
QUIRE_API int quire_offload_has_pending(const quire_offload *offload);
/* Walks everything: every reference in both pools is that of a job, a request or a hit. */
QUIRE_API int quire_offload_check(const quire_offload *offload);

#ifdef __cplusplus
}
#endif
#endif
