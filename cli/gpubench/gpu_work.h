/* cli/gpubench/gpu_work.h - what `quire bench gpu` lets a GPU compute beside the copies. */
#ifndef QUIRE_CLI_GPUBENCH_GPU_WORK_H
#define QUIRE_CLI_GPUBENCH_GPU_WORK_H

enum { GPU_WORK_THREADS = 256 };

/* MATH: each thread multiplies and adds, steps times 64. CACHE: the CTAs together read and write
 * `vectors` of 16 bytes, each its own part of them steps times, so that those that run at a time
 * find theirs in the L2 cache. MEMORY: they read them, each another part in every step, so that no
 * cache has it. */
typedef struct gpu_work_args {
    unsigned long long memory; /* the vectors */
    unsigned long long vectors;
    unsigned long long results; /* GPU_WORK_THREADS words for each CTA */
    unsigned steps;
    unsigned unused;
} gpu_work_args;

#endif
