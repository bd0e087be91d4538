/* quire/worker.h - moves the bytes of one rank as plans say: slab, device, tiers.
 *
 *      plan ──► submit ── copies ──► device: after a mark that submit takes
 *                   └── loads, stores ──► the worker's thread ──► tiers: loads before stores
 *      report ◄── poll ◄── ended
 *
 * slab      num_slots slots of block_bytes bytes in host memory: slot s at
 *           memory + s * block_bytes.
 * copy      between a block of the engine and a slot.
 * load      finds keys in a tier and reads them into slots, as one job; a prefix ends at the first
 *           key that the tier has not. Bytes are verified (key, fingerprint, length, CRC32C) before
 *           a key is reported as done.
 * store     writes slots to a tier. Stores wait while loads wait, use at most the budget of their
 *           tier, and are dropped (reported as refused) if the tier is full.
 * report    for each job, once, when nothing touches its memory any longer: for each key done,
 *           missing, corrupt, timed out, failed or dropped.
 *
 * The worker decides nothing. Device, memory and tiers are the worker's from create to destroy.
 * The worker's thread calls the tiers; the caller's thread calls the device, in submit and poll.
 *
 * Threads: one thread calls a worker. Nothing is allocated after create. In the child of a fork
 * calls return QUIRE_E_SYSTEM. If a required pointer is NULL, calls return QUIRE_E_ARGUMENT.
 */
#ifndef QUIRE_WORKER_H
#define QUIRE_WORKER_H

#include "config.h"
#include "device.h"
#include "error.h"
#include "memory.h"
#include "tier.h"
#include "transfer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_worker quire_worker;

typedef struct quire_worker_tier { /* final */
    quire_tier *tier;
    /* The most bytes of stores in flight; 0 = a quarter of the slab, at most 1 GiB. */
    uint64_t store_bytes;
    uint32_t max_waiting_stores; /* jobs; more are dropped; 0 = 64 */
    uint32_t unused;             /* 0 */
} quire_worker_tier;

typedef struct quire_worker_config {
    size_t size;
    uint32_t rank;      /* in reports: below num_ranks */
    uint32_t num_ranks; /* 0 = 1 */
    /* The rank in the keys of tiers. Ranks with the same bytes (MLA) have the same key_rank. */
    uint32_t key_rank;
    /* Default ON. OFF: another rank with the same key_rank stores; this rank only loads. */
    quire_switch stores;

    quire_device device; /* the engine's blocks; closed by the caller, after destroy */
    void *memory;        /* the slab */
    uint64_t block_bytes;
    uint32_t num_slots;
    uint32_t num_tiers;
    const quire_worker_tier *tiers; /* copied; the order of the planner's tiers */

    /* Default OFF. ON: reports also name keys that the tiers have evicted, or found to be missing:
     * for a planner that tells events of tiers. */
    quire_switch tells_gone;
    /* Default OFF. ON: no thread; submit and poll move the tiers' jobs. For simulations. */
    quire_switch run_inline;
    quire_hooks hooks;
} quire_worker_config;

#define QUIRE_WORKER_CONFIG_INIT QUIRE_SIZED_INIT(quire_worker_config)

/* Creates a worker and starts its thread. Returns QUIRE_E_CONFIG (also if a tier cannot take blocks
 * of block_bytes), QUIRE_E_NOMEM, QUIRE_E_SYSTEM or QUIRE_E_RANDOM; quire_refusal says why. */
QUIRE_API int quire_worker_create(const quire_worker_config *config,
                                  const quire_allocator *allocator, quire_worker **worker);
/* Destroys a worker. Returns QUIRE_BUSY while jobs of device or tiers are in flight: poll until
 * they have ended, or call quire_worker_abandon, close tiers and device, and destroy then. NULL:
 * QUIRE_OK. */
QUIRE_API int quire_worker_destroy(quire_worker *worker);
/* Tells the worker that its jobs in flight will not end: device and tiers are closed next. Stops
 * the thread, which uses the tiers until then. Keep the memory as long as device and tiers may
 * write to it. */
QUIRE_API int quire_worker_abandon(quire_worker *worker);

/* Takes a plan, and marks the engine's compute stream: copies come after everything submitted
 * before. Call submit after the work of the step before, in each step that has a plan. Never waits.
 * QUIRE_E_CORRUPT: not a plan, of another version, damaged, not the next one, or with a slot or a
 * tier that does not exist; quire_refusal says which, and nothing has changed. A block that does
 * not exist fails its job. QUIRE_BUSY: a plan of another planner, while jobs of the planner before
 * are in flight: poll, then retry. */
QUIRE_API int quire_worker_submit(quire_worker *worker, quire_bytes plan);

/* Polls the device, and writes the jobs that have ended since the last poll. report->len is 0 if
 * there are none. Valid until the next call. Call poll once in each step, also without a plan. */
QUIRE_API int quire_worker_poll(quire_worker *worker, quire_bytes *report);

/* 1 if jobs are in flight: call poll again. */
QUIRE_API int quire_worker_has_pending(const quire_worker *worker);

/* Tests the way of the bytes before the first plan: writes a pattern to two free blocks of the
 * engine and to two slots, reads the blocks back, stores and loads through each tier, and compares.
 * The blocks' content is lost. Waits at most timeout_ns. QUIRE_E_CORRUPT: bytes differ: do not use
 * the worker; QUIRE_E_SYSTEM: a copy or a tier failed, or was late; quire_refusal says where.
 * QUIRE_BUSY: jobs are in flight. */
QUIRE_API int quire_worker_self_test(quire_worker *worker, quire_block first, quire_block second,
                                     uint64_t timeout_ns);

typedef struct quire_worker_stats {
    size_t size;
    uint64_t plans;
    uint64_t refused_plans;
    uint64_t reports;
    uint64_t copies_in;  /* blocks: slots to the engine */
    uint64_t copies_out; /* blocks: the engine to slots */
    uint64_t failed_copies;
    uint64_t loaded_keys;
    uint64_t stored_keys;
    uint64_t missing_keys;
    uint64_t corrupt_keys;
    uint64_t late_keys;
    uint64_t failed_keys;
    uint64_t dropped_keys; /* stores */
    uint64_t jobs_in_flight;
} quire_worker_stats;

#define QUIRE_WORKER_STATS_INIT QUIRE_SIZED_INIT(quire_worker_stats)

/* Any thread. */
QUIRE_API int quire_worker_get_stats(const quire_worker *worker, quire_worker_stats *stats);

/* ---- the engine's memory as host tensors ------------------------------------ */

/* Where the pages of all blocks lie in one tensor: page b at base + b * stride. */
typedef struct quire_page_region { /* final */
    void *base;
    uint64_t stride; /* bytes from the page of one block to the page of the next block */
    uint64_t bytes;  /* of a page */
} quire_page_region;

typedef struct quire_device_pages_config {
    size_t size;
    const quire_page_region *regions; /* of all layers; copied. A slot has the pages in order */
    uint32_t num_regions;
    uint32_t num_blocks;
    uint32_t num_slots;
    void *slots; /* num_slots times the bytes of all regions together */
} quire_device_pages_config;

#define QUIRE_DEVICE_PAGES_CONFIG_INIT QUIRE_SIZED_INIT(quire_device_pages_config)

/* Opens a device for an engine that computes on this processor: submit copies at once, in the
 * caller's thread, so call it between steps. Regions must not overlap. Returns QUIRE_E_CONFIG or
 * QUIRE_E_NOMEM; quire_refusal says why. For CUDA: quire/device_cuda.h. */
QUIRE_API int quire_device_pages_open(const quire_device_pages_config *config,
                                      const quire_allocator *allocator, quire_device *device);

#ifdef __cplusplus
}
#endif
#endif
