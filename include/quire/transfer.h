/* quire/transfer.h - plans and reports: the jobs of a planner, carried to workers as bytes.
 *
 *      planner's process                                  a process for each rank
 *      quire_offload ─► device ┐                        ┌─► quire_worker (quire/worker.h)
 *                    ─► tiers ─┴► quire_transfer ─ plan ─┤
 *                                     ◄──────── reports ┴── quire_worker
 *
 * plan      the jobs of a step, for all ranks the same bytes.
 * report    the jobs that a rank has ended since its last report.
 *
 * A quire_transfer has a device and tiers that move nothing: give them to a quire_offload
 * (config.device, config.tiers; without config.memory). Each job becomes part of the next plan, and
 * ends when all ranks have reported it. A key counts as done if all ranks have done it; the failure
 * of one rank is a failure for all. The transfer has no memory of blocks, no thread and no file.
 * Engines with their own scheduler use quire/planner.h, which has a transfer inside.
 *
 *      schedule ─► quire_transfer_take_plan ─► all ranks: quire_worker_submit ... quire_worker_poll
 *      quire_transfer_give_report for each report ─► quire_offload_poll ─► update
 *
 * Deliver plans to a rank in order, each once; the same for the reports of a rank. A lost, repeated
 * or damaged message is refused. Messages are not encrypted: carry them inside the engine.
 *
 * Threads: the scheduler's thread. Nothing is allocated after open. If a required pointer is NULL,
 * calls return QUIRE_E_ARGUMENT.
 */
#ifndef QUIRE_TRANSFER_H
#define QUIRE_TRANSFER_H

#include "config.h"
#include "device.h"
#include "error.h"
#include "memory.h"
#include "tier.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QUIRE_TRANSFER_MAX_RANKS 256
#define QUIRE_TRANSFER_MAX_TIERS 4

typedef struct quire_transfer quire_transfer;

/* A tier that every worker has opened, as its worker says (quire_tier_get_caps). */
typedef struct quire_transfer_tier { /* final */
    const char *label;               /* in logs and metrics; NULL: "tier" */
    const char *medium;              /* "DISK", "REDIS", ...; NULL: the label in capitals */
    uint64_t deadline_ns;            /* of a job; 0 = 5 s */
    uint32_t is_persistent;
    uint32_t is_shared;
    uint32_t is_read_only;
    uint32_t unused; /* 0 */
} quire_transfer_tier;

typedef struct quire_transfer_config {
    size_t size;
    uint32_t num_ranks;               /* 0 = 1 */
    uint32_t num_tiers;               /* the same in all ranks, from the fastest to the slowest */
    const quire_transfer_tier *tiers; /* copied */
    /* 0: no events of tiers. Otherwise the most keys of each tier that are known to exist in it. A
     * store or a load that is done makes a key known; a miss, a reset, and a worker with tells_gone
     * that has evicted it make it unknown. If there are more keys, the key that was not used for
     * longest is reported as removed. */
    uint32_t event_keys;
    quire_hooks hooks;
} quire_transfer_config;

#define QUIRE_TRANSFER_CONFIG_INIT QUIRE_SIZED_INIT(quire_transfer_config)

/* Opens a transfer. Returns QUIRE_E_CONFIG, QUIRE_E_NOMEM or QUIRE_E_RANDOM; quire_refusal says
 * why. */
QUIRE_API int quire_transfer_open(const quire_transfer_config *config,
                                  const quire_allocator *allocator, quire_transfer **transfer);
/* Closes the transfer, its device and its tiers, after the offload that uses them is destroyed. If
 * jobs are in flight, first quire_offload_abandon, then close the transfer, then destroy the
 * offload: these jobs do not end. NULL: does nothing. */
QUIRE_API void quire_transfer_close(quire_transfer *transfer);

/* The device and the tiers; valid as long as the transfer. NULL if there is none. */
QUIRE_API const quire_device *quire_transfer_device(const quire_transfer *transfer);
QUIRE_API quire_tier *quire_transfer_get_tier(const quire_transfer *transfer, uint32_t tier);

/* Ends the plan: the jobs since the last plan. plan->len is 0 if there are none: nothing is to be
 * delivered. Valid until the next call. */
QUIRE_API int quire_transfer_take_plan(quire_transfer *transfer, quire_bytes *plan);

/* Takes a report. QUIRE_E_CORRUPT: not a report, of another version or session, damaged, or not the
 * next one of its rank; quire_refusal says which, and nothing has changed. QUIRE_LOST: the worker
 * of this rank has restarted, and its slots have lost their content; its jobs have failed, and the
 * report was taken. The caller then resets the host pool (quire_sched_reset_prefix_cache with
 * reset_connector). */
QUIRE_API int quire_transfer_give_report(quire_transfer *transfer, quire_bytes report);

typedef struct quire_transfer_stats {
    size_t size;
    uint64_t plans;
    uint64_t plan_bytes;
    uint64_t reports;
    uint64_t refused_reports;
    uint64_t jobs;
    uint64_t jobs_in_flight;
    uint64_t lost_workers;    /* restarts */
    uint64_t rank_failures;   /* keys and copies that failed in some rank, but not in all */
    uint64_t unknown_results; /* results of jobs that are not in flight */
} quire_transfer_stats;

#define QUIRE_TRANSFER_STATS_INIT QUIRE_SIZED_INIT(quire_transfer_stats)

QUIRE_API int quire_transfer_get_stats(const quire_transfer *transfer, quire_transfer_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
