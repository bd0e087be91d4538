/* cli/gpubench/traffic.h - jobs of scattered pieces through a quire_device, in one or both
 * directions. */
#ifndef QUIRE_CLI_GPUBENCH_TRAFFIC_H
#define QUIRE_CLI_GPUBENCH_TRAFFIC_H

#include "rig.h"

enum { GPU_STORES = 1, GPU_LOADS = 2 };

typedef struct gpu_traffic_plan {
    uint64_t piece;
    uint32_t layers;          /* of a block, each a piece of its own on the GPU; 0 = 1 */
    unsigned ways;            /* GPU_STORES, GPU_LOADS or both */
    quire_cuda_method method; /* BY_SIZE: as the device chooses */
    uint32_t ctas;
    uint64_t engine_from;
    quire_cuda_crc crc;
    uint64_t bytes; /* that a round moves in each direction; at most the rig's */
} gpu_traffic_plan;

typedef struct gpu_traffic {
    gpu_rig *rig;
    gpu_traffic_plan plan;
    quire_device device;
    uint64_t block_bytes;
    uint32_t num_blocks; /* of a round and direction */
    uint32_t num_jobs;   /* of a round and direction */
    quire_device_job *jobs[2];
    quire_device_copy *copies[2];
    uint32_t next[2];     /* to be submitted in this round */
    uint64_t bytes_moved; /* since it was opened */
    bool has_failed;
} gpu_traffic;

/* 0, or -1 with a sentence on stderr. */
int gpu_traffic_open(gpu_traffic *traffic, gpu_rig *rig, const gpu_traffic_plan *plan);
void gpu_traffic_close(gpu_traffic *traffic);

/* All pieces once: GB/s, both directions together; 0 when a job failed. */
double gpu_traffic_round(gpu_traffic *traffic);
/* Rounds until the case's time is over, each with one of plain copies in the same directions behind
 * it: what the machine gives changes while others use it. */
void gpu_traffic_measure(gpu_traffic *traffic, gpu_rounds *rounds, gpu_rounds *plain);
/* Submits what can be submitted, takes what has ended, and never stops: the pieces again and again
 * while something else is measured. */
void gpu_traffic_turn(gpu_traffic *traffic);
/* Until nothing is in flight. */
void gpu_traffic_drain(gpu_traffic *traffic);

/* Some pieces: whether both sides have the same. */
bool gpu_traffic_is_right(gpu_traffic *traffic);

#endif
