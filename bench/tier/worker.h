/* worker.h - what the parts of bench/tier/worker.c share: a planner with the workers of one or two
 * ranks in one process. A function call carries plans and reports, so that all of both halves is
 * measured, and nothing else.
 *
 *      match, allocated, computed ──► planner ── plan ──► workers: submit
 *                                        ◄──── reports ── workers: poll
 */
#ifndef BENCH_TIER_WORKER_H
#define BENCH_TIER_WORKER_H

#include "bench.h"

#include <quire/planner.h>
#include <quire/worker.h>

enum {
    WORKER_RANKS = 2,
    WORKER_TOKENS = 16,
    WORKER_HASH = 32,
    WORKER_MOST_ROUNDS = 101,
    WORKER_SKIPPED = 77
};

typedef struct worker_rank {
    quire_device device;
    quire_tier *tier; /* NULL: none */
    void *slots;
    quire_worker *worker;
} worker_rank;

typedef struct worker_kit {
    uint32_t num_ranks;
    uint64_t block_bytes;
    uint32_t num_blocks;             /* of the engine, the null block included */
    uint32_t num_slots;              /* of each slab */
    uint32_t most_blocks;            /* of a request */
    worker_rank ranks[WORKER_RANKS]; /* device, tier and slots are the caller's */
    quire_planner *planner;
    uint64_t step;
    uint32_t num_held; /* blocks of the engine, by transfers */
    quire_planner_out out;
    quire_planner_results results;
    unsigned char *hashes; /* of most_blocks blocks */
} worker_kit;

/* Creates planner and workers; ranks have their device, slots and tier. */
void worker_kit_open(worker_kit *kit);
/* Ends what is in flight, and closes planner, workers, tiers and devices. */
void worker_kit_close(worker_kit *kit);

/* The beginning of a step: plans go to the workers. */
void worker_kit_plan(worker_kit *kit);
/* Its end: reports, results. */
void worker_kit_poll(worker_kit *kit);

/* The blocks [first, first + n) of the numbered content, in kit->hashes. */
quire_planner_request worker_kit_request(worker_kit *kit, quire_req req, uint64_t first,
                                         uint32_t n);

/* ---- numbers --------------------------------------------------------------- */

typedef struct worker_values {
    double values[WORKER_MOST_ROUNDS];
    uint32_t n;
} worker_values;

void worker_values_add(worker_values *v, double value);
double worker_values_at(worker_values *v, uint32_t percent); /* 50: the median */

/* ---- parts: 0, 1 (a target was missed) or WORKER_SKIPPED ------------------- */

typedef struct worker_options {
    uint32_t rounds;
    uint64_t mib; /* of a rank, moved in a round */
    uint32_t num_ranks;
    const char *folder; /* files */
    uint32_t seconds;   /* of one measurement */
    uint32_t requests;  /* that wait at a time */
    uint32_t prefix_mib;
    uint32_t depth;    /* of the file tier; 0: its default */
    uint32_t kib;      /* of a value, or of a piece; 0: all sizes */
    uint32_t num_ctas; /* of the GPU's kernels; 0: the device's default */
} worker_options;

int worker_bench_gpu(const worker_options *options);
int worker_bench_file(const worker_options *options);

#endif
