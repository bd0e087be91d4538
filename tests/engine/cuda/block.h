/* engine/cuda/block.h - blocks of threads on the host, for kernels that are compiled as C.
 *
 *      one thread     block 0, block 1, ...: each is a call
 *      several        each block is run by all of them, which meet at engine_block_together()
 *
 * With one thread kernels are fast enough for whole proofs. With several, under a race detector,
 * what is written and read without a meeting in between is found.
 */
#ifndef ENGINE_CUDA_BLOCK_H
#define ENGINE_CUDA_BLOCK_H

#include <stddef.h>
#include <stdint.h>

typedef struct engine_block_place {
    uint32_t block;
    uint32_t thread;
    uint32_t num_blocks;
    uint32_t num_threads;
    void *shared;
    void *barrier;
} engine_block_place;

extern _Thread_local engine_block_place engine_my_place;

typedef void (*engine_block_kernel)(const void *args);

/* Shared memory is all bits 1 (NaN) before each block. Returns 1 when there is no memory, or no
 * thread. */
int engine_block_run(engine_block_kernel kernel, const void *args, uint32_t num_blocks,
                     uint32_t num_threads, size_t shared_bytes);
void engine_block_together(void);
uint64_t engine_block_now_ns(void);

#endif
