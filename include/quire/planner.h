/* quire/planner.h - plans transfers for an engine that has its own scheduler and its own blocks,
 * such as vLLM: by block hashes, block numbers and slots.
 *
 *      engine's scheduler ── hashes, blocks ──► planner ── plan ──► quire_worker of each rank
 *                         ◄── hits, results ──          ◄─ reports ─
 *
 * host pool  the slots of all workers: slot s has the same key in every rank. A quire_cache of the
 *            same groups as the engine's.
 * hit        tokens whose blocks are in the host pool, verified, in all ranks. What is only in a
 *            tier is first loaded into the host pool: the answer is QUIRE_RETRY until then.
 * request    named by a quire_req of quire_planner_add.
 *
 * In each step, on the scheduler's thread:
 *
 *      for a new request: quire_planner_add
 *      for a request to be admitted: quire_planner_match ─► hit tokens, or QUIRE_RETRY
 *          admitted with its blocks: quire_planner_allocated; the load is part of the next plan
 *      for each request that the step computes: quire_planner_computed: its full blocks are stored
 *      quire_planner_plan ─► bytes for all workers, and the blocks that the engine must hold
 *      [workers submit the plan; they report after the step]
 *      quire_planner_report for each report
 *      quire_planner_results ─► loaded and failed requests, blocks that may be reused
 *      for a request that ends: quire_planner_finished
 *
 * A load or a store never makes the engine wait: the failure of a rank, a tier or a worker means
 * that tokens are computed. While one request loads a prefix into the engine, others that need the
 * same blocks get QUIRE_RETRY, and then find them in the engine: one load for all of them.
 *
 * The planner has no memory of blocks, no device, no thread and no file. Nothing is allocated after
 * creation. Costs of prefill and of tiers are learned from the times between the calls.
 *
 * Threads: the scheduler's thread. Any thread may call quire_planner_get_stats. If a required
 * pointer is NULL, calls return QUIRE_E_ARGUMENT; for a request that is not known,
 * QUIRE_E_UNKNOWN_REQ.
 */
#ifndef QUIRE_PLANNER_H
#define QUIRE_PLANNER_H

#include "cache.h"
#include "config.h"
#include "error.h"
#include "memory.h"
#include "offload.h"
#include "transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_planner quire_planner;

typedef struct quire_planner_tier { /* final */
    quire_transfer_tier tier;
    quire_offload_admit admit;
    uint32_t unused;    /* 0 */
    double bytes_per_s; /* initial value, until it is learned; 0: loads are tried */
    uint64_t latency_ns;
} quire_planner_tier;

typedef struct quire_planner_config {
    size_t size;
    /* Groups, max_model_len, hash_block_size, digest_bytes, context parallelism and profile of the
     * engine; num_blocks: its blocks. Read during creation. */
    const quire_cache_config *cache;
    uint32_t num_slots;              /* of each worker; slot 0 is never used */
    uint64_t block_bytes;            /* of the largest rank, for costs */
    uint32_t max_requests;           /* 0 = 4096 */
    uint32_t num_ranks;              /* 0 = 1 */
    const quire_planner_tier *tiers; /* copied; from the fastest to the slowest */
    uint32_t num_tiers;
    uint64_t recompute_token_ns; /* initial value; 0 = loading is always faster */
    /* Default ON: costs are learned. OFF: the initial values stay. */
    quire_switch learns;
    /* Default ON: a request whose prefix another request loads into the engine waits for it. */
    quire_switch shares_loads;
    /* Default ON. OFF: blocks of loads are not listed as held and released; the engine keeps the
     * blocks of a request until results list its load, also if the request ends. */
    quire_switch holds_loads;
    /* What the host pool stores and removes; NULL: not reported. */
    void (*on_event)(void *user, const quire_event *event);
    void *event_user;
    /* What the tiers have, one block in an event; the number of the block has no meaning. STORED:
     * all ranks have stored or loaded it. REMOVED: a load missed it, a worker with tells_gone has
     * evicted it, the tiers were reset, or more than event_keys keys of this tier are known, and
     * this one was not used for longest. NULL: not reported. */
    void (*on_tier_event)(void *user, uint32_t tier, const quire_event *event);
    uint32_t event_keys; /* of each tier; 0 = num_slots, and at least 65536 */
    quire_hooks hooks;
} quire_planner_config;

#define QUIRE_PLANNER_CONFIG_INIT QUIRE_SIZED_INIT(quire_planner_config)

/* Creates a planner. Returns QUIRE_E_CONFIG, QUIRE_E_NOMEM or QUIRE_E_RANDOM; quire_refusal says
 * why. */
QUIRE_API int quire_planner_create(const quire_planner_config *config, quire_planner **planner);
/* Destroys a planner, also with jobs in flight. NULL: does nothing. */
QUIRE_API void quire_planner_destroy(quire_planner *planner);

/* ---- requests -------------------------------------------------------------- */

/* Adds a request. QUIRE_FULL: max_requests is reached. */
QUIRE_API int quire_planner_add(quire_planner *planner, quire_req *req);

/* A request, as it is now. hashes: of its full blocks of hash_block_size tokens, from the first on,
 * digest_bytes each, one after the other. */
typedef struct quire_planner_request { /* final */
    quire_req req;
    const void *hashes;
    uint32_t num_hashes;
    uint32_t num_tokens; /* of the request; a hit leaves at least one to compute */
    uint32_t is_last;    /* 1, for computed: the request ends behind this call */
    uint32_t unused;     /* 0 */
} quire_planner_request;

/* How many tokens behind the first num_local, which the engine has, can be loaded: *num_external.
 * They are held until another request is asked about, or quire_planner_allocated. QUIRE_RETRY: not
 * known yet: tiers load, or another request loads the same blocks; ask again in the next step. Such
 * a request waits no longer than the deadlines of the tiers. num_local is a multiple of all block
 * sizes, otherwise there is no hit. May be called any number of times. */
QUIRE_API int quire_planner_match(quire_planner *planner, const quire_planner_request *request,
                                  uint32_t num_local, uint32_t *num_external);

/* A request that waits, but is not asked about yet: what it will need is loaded from tiers when no
 * other request waits for them. The first requests of the queue only; calls that do not fit are
 * ignored. */
QUIRE_API int quire_planner_prefetch(quire_planner *planner, const quire_planner_request *request,
                                     uint32_t num_local);

/* The request has blocks: blocks[g] are all its blocks in group g, from position 0 on (null blocks
 * where it needs none). num_external: what match said: the load begins with the next plan, and ends
 * in quire_planner_results; or 0: nothing is loaded. If match did not say num_external, the request
 * is reported as failed. */
QUIRE_API int quire_planner_allocated(quire_planner *planner, quire_req req,
                                      const quire_block_span *blocks, uint32_t num_external);

/* The first num_computed tokens of the request are computed by the steps before this one, in these
 * blocks: full blocks that the host pool has not are stored with the next plan. Call it for each
 * request of a step, before plan; a call without a new full block costs little.
 * QUIRE_RETRY: too many stores are in flight for some of them: call it again in the next step, if
 * the request still has these blocks then. Stores of running requests hold a quarter of the
 * engine's blocks at most. The blocks of a request that ends (is_last) have no next step: they are
 * held until they are stored, up to three quarters of the engine's blocks; what is beyond that, or
 * finds no room in the host pool, counts as dropped (quire_offload_stats.no_room), and the result
 * is QUIRE_OK. */
QUIRE_API int quire_planner_computed(quire_planner *planner, const quire_planner_request *request,
                                     const quire_block_span *blocks, uint32_t num_computed);

/* The request lost its blocks, and waits again. */
QUIRE_API int quire_planner_preempted(quire_planner *planner, quire_req req);

/* The request has ended; its quire_req is valid no longer. Blocks of its transfers stay held
 * (quire_planner_out.held) until results release them. If its load is in flight, results list the
 * request when the load has ended. To store its last blocks: quire_planner_computed with is_last
 * and quire_planner_take_held before. */
QUIRE_API int quire_planner_finished(quire_planner *planner, quire_req req);

/* ---- a step ---------------------------------------------------------------- */

/* Valid until the next plan. */
typedef struct quire_planner_out { /* lent */
    quire_bytes plan;              /* for quire_worker_submit of all ranks; len 0: nothing to do */
    /* Blocks of the engine that transfers read or write, once for each transfer. The engine must
     * not reuse them before results release them, whatever becomes of their requests. */
    const quire_block *held;
    uint32_t num_held;
} quire_planner_out;

/* The held blocks of the calls since the last plan: take them before the engine frees blocks
 * between two plans. Plan does not list them again. Valid until the next call. */
QUIRE_API int quire_planner_take_held(quire_planner *planner, const quire_block **blocks,
                                      uint32_t *num_blocks);

/* Ends the plan of step `step`, which computes num_tokens tokens of num_reqs requests. */
QUIRE_API int quire_planner_plan(quire_planner *planner, uint64_t step, uint32_t num_tokens,
                                 uint32_t num_reqs, quire_planner_out *out);

/* Takes the report of a rank. Statuses as quire_transfer_give_report; after QUIRE_LOST the planner
 * has reset the host pool itself. */
QUIRE_API int quire_planner_report(quire_planner *planner, quire_bytes report);

/* Valid until the next results. */
typedef struct quire_planner_results { /* lent */
    const quire_req *loaded;           /* requests whose tokens are in the engine */
    uint32_t num_loaded;
    const quire_req *failed; /* requests whose loads failed: compute their tokens */
    uint32_t num_failed;
    /* Blocks of these loads: their content is invalid. Blocks of requests that have ended are not
     * listed. */
    const quire_block *failed_blocks;
    uint32_t num_failed_blocks;
    /* Blocks that no transfer reads or writes any longer, once for each time in held. */
    const quire_block *released;
    uint32_t num_released;
} quire_planner_results;

/* What has ended, after the reports of step `step`. */
QUIRE_API int quire_planner_get_results(quire_planner *planner, uint64_t step,
                                        quire_planner_results *results);

/* 1 if transfers are in flight: an engine without requests still plans and reports. */
QUIRE_API int quire_planner_has_pending(const quire_planner *planner);

/* The engine needs all its blocks now, for example to reset its prefix cache: no store that waits
 * or is in flight counts, and the blocks that they read are released here instead of by results.
 * What a worker still reads of them is dropped. Loads continue. Take the held blocks first
 * (quire_planner_take_held). The list ends the list of the last results; it is valid until the next
 * results or drop_stores. */
QUIRE_API int quire_planner_drop_stores(quire_planner *planner, const quire_block **released,
                                        uint32_t *num_released);

/* ---- identity -------------------------------------------------------------- */

/* Empties the host pool and the private tiers. Transfers in flight do not count when they end.
 * QUIRE_E_IDENTITY: a tier is shared and persistent; the host pool is emptied, the tiers are not:
 * call quire_planner_set_identity. */
QUIRE_API int quire_planner_reset(quire_planner *planner);
/* Empties the host pool; all tiers of all ranks use the blocks of this identity alone from now on
 * (QUIRE_FINGERPRINT_BYTES). Transfers in flight do not count when they end; tiers that have some
 * are not used until these have ended. */
QUIRE_API int quire_planner_set_identity(quire_planner *planner, const unsigned char *fingerprint);

/* ---- looking --------------------------------------------------------------- */

QUIRE_API int quire_planner_get_stats(const quire_planner *planner, quire_offload_stats *stats);
QUIRE_API int quire_planner_get_transfer_stats(const quire_planner *planner,
                                               quire_transfer_stats *stats);
/* Walks everything. Returns QUIRE_OK or QUIRE_E_CORRUPT. */
QUIRE_API int quire_planner_check(const quire_planner *planner);

#ifdef __cplusplus
}
#endif
#endif
