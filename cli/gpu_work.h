/* cli/gpu_work.h - what `quire bench gpu` lets a GPU compute beside the copies. */
#ifndef QUIRE_CLI_GPU_WORK_H
#define QUIRE_CLI_GPU_WORK_H

enum { GPU_WORK_THREADS = 256 };

/* MATH: each thread multiplies and adds, steps times 64. MEMORY: the CTAs together read and write
 * `vectors` of 16 bytes, steps times. */
typedef struct gpu_work_args {
    unsigned long long memory; /* GPU_WORK_THREADS words for each CTA, or the vectors */
    unsigned long long vectors;
    unsigned steps;
    unsigned unused;
} gpu_work_args;

#endif
