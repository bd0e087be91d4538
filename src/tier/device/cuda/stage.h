/* tier/device/cuda/stage.h - small pieces of large blocks: gathered on the GPU, moved by the copy
 * engine.
 *
 *      STORE   regions ── kernel ──► stage ── copy engine ──► slots
 *      LOAD    slots ── copy engine ──► stage ── kernel ──► regions
 *
 * A stage is a little device memory in which blocks lie as in slots, one behind the other; each
 * direction has a few in turn, so that kernel and copy engine work at the same time. The kernel is
 * through in microseconds, at the speed of device memory: the engine's own are held up less than by
 * one that waits for the bus, and both directions of the bus are the copy engine's alone.
 *
 * Only the kernel touches the engine's blocks, so only its stream waits for marks.
 */
#ifndef QR_TIER_DEVICE_CUDA_STAGE_H
#define QR_TIER_DEVICE_CUDA_STAGE_H

#include "tier/device/cuda/copy.h"

enum { QR_NUM_STAGES = 3 };

typedef struct qr_cuda_stage {
    qr_cu_address memory; /* 2 * QR_NUM_STAGES stages */
    uint64_t stage_bytes;
    uint32_t blocks_in_stage;
    uint64_t next[2];        /* by direction: 0 stores, 1 loads */
    qr_cu_stream kernels[2]; /* the kernels' */
    qr_cu_event filled[2][QR_NUM_STAGES];
    qr_cu_event drained[2][QR_NUM_STAGES];
} qr_cuda_stage;

/* In the GPU's context, as the others. A stage has room for a block at least, and for most_blocks
 * at most. What is there after a failure is for release. */
qr_cu_result qr_cuda_stage_open(qr_cuda_stage *stage, quire_cuda *cuda, const qr_cuda_map *map,
                                uint64_t stage_bytes, uint32_t most_blocks);
void qr_cuda_stage_release(qr_cuda_stage *stage, quire_cuda *cuda);

/* stream is the copy engine's. A store is over when that has come so far, a load when the kernels'
 * stream has. */
qr_cu_result qr_cuda_stage_copy(qr_cuda_stage *stage, qr_cuda_copier *copier, quire_device_op op,
                                const qr_block_pair *pairs, qr_cu_address pairs_address,
                                uint32_t num_pairs, qr_cu_stream stream);

#endif
