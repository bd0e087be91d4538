/* cli/gpubench/rig.h - a GPU with large memory on both sides, to measure on.
 *
 *      host (pinned)    | stores go here       | loads come from here |
 *      device           | stores come from here | loads go here       |     `bytes` each
 */
#ifndef QUIRE_CLI_GPUBENCH_RIG_H
#define QUIRE_CLI_GPUBENCH_RIG_H

#include "bench.h"
#include "output/progress.h"
#include "results.h"

#include "tier/device/cuda/gpu.h"

typedef enum gpu_work_kind {
    GPU_WORK_MATH,
    GPU_WORK_CACHE,
    GPU_WORK_MEMORY,
    GPU_NUM_WORKS
} gpu_work_kind;

typedef struct gpu_rig {
    quire_cuda *cuda;
    const qr_cuda_calls *calls;
    uint64_t bytes; /* of a half */
    unsigned char *host;
    qr_cu_address device;
    qr_cu_stream compute;
    qr_cu_stream plain[2]; /* D2H, H2D */
    qr_cu_event begin;     /* with times */
    qr_cu_event end;
    qr_cu_module module;
    qr_cu_function work[GPU_NUM_WORKS];
    qr_cu_address scratch; /* for kernels: results, vectors */
    uint64_t results_bytes;
    uint64_t vector_bytes;
    double case_seconds; /* for each case */
} gpu_rig;

/* 0, or -1 with a sentence on stderr. */
int gpu_rig_open(gpu_rig *rig, const gpu_bench_options *options);
void gpu_rig_close(gpu_rig *rig);

/* Whether a case that began at `start` wants another round. */
bool gpu_wants_more(const gpu_rig *rig, const gpu_rounds *rounds, double start);

/* Plain copies of the largest size: the limits, in GB/s. Bits of `ways`: 1 D2H, 2 H2D. 0: a call
 * failed. */
double gpu_rig_plain(gpu_rig *rig, unsigned ways);
double gpu_rig_plain_within(gpu_rig *rig);

/* A compute kernel, `launches` times in the compute stream. Between begin and end. */
int gpu_rig_compute(gpu_rig *rig, gpu_work_kind kind, uint32_t launches, uint32_t steps);
/* Whether it has ended; ms: how long it took. */
bool gpu_rig_has_computed(gpu_rig *rig, double *ms);

#endif
