/* cli/gpubench/bench.h - `quire bench gpu`: copies between host and GPU beside what the machine
 * gives.
 *
 *      rig.c       a GPU with large memory on both sides, plain copies, compute kernels
 *      bench.c     what is measured, each case beside its limit
 *      traffic.c   jobs through a quire_device
 *      results.c   a table, or JSON
 */
#ifndef QUIRE_CLI_GPUBENCH_BENCH_H
#define QUIRE_CLI_GPUBENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gpu_bench_options {
    double seconds;       /* for all cases together */
    uint64_t bytes;       /* that a round moves in one direction */
    uint32_t ctas;        /* 0: the device's default */
    uint64_t engine_from; /* 0: the device's default */
    const char *driver;   /* NULL: the machine's own */
    uint32_t device;
    bool json;
    bool scan;
    bool check; /* 1 as exit status where a goal is not met */
} gpu_bench_options;

/* An exit status. */
int gpu_bench_run(const gpu_bench_options *options);

#endif
