#include "tier/device/cuda/stage.h"

/* ---- opening --------------------------------------------------------------- */

qr_cu_result qr_cuda_stage_open(qr_cuda_stage *stage, quire_cuda *cuda, const qr_cuda_map *map,
                                uint64_t stage_bytes, uint32_t most_blocks)
{
    uint64_t blocks = stage_bytes / map->block_bytes;
    blocks = blocks == 0 ? 1 : blocks;
    stage->blocks_in_stage = blocks < most_blocks ? (uint32_t)blocks : most_blocks;
    stage->stage_bytes = stage->blocks_in_stage * map->block_bytes;
    size_t bytes = (size_t)(UINT64_C(2) * QR_NUM_STAGES * stage->stage_bytes);
    qr_cu_result result = qr_gpu_alloc(cuda, bytes, &stage->memory);
    for (int i = 0; i < 2 && result == QR_CU_SUCCESS; i++) {
        result = qr_gpu_make_stream(cuda, &stage->kernels[i]);
        if (result == QR_CU_SUCCESS)
            result = qr_gpu_make_events(cuda, stage->filled[i], QR_NUM_STAGES);
        if (result == QR_CU_SUCCESS)
            result = qr_gpu_make_events(cuda, stage->drained[i], QR_NUM_STAGES);
    }
    return result;
}

void qr_cuda_stage_release(qr_cuda_stage *stage, quire_cuda *cuda)
{
    for (int i = 0; i < 2; i++) {
        qr_gpu_drop_stream(cuda, stage->kernels[i]);
        qr_gpu_drop_events(cuda, stage->filled[i], QR_NUM_STAGES);
        qr_gpu_drop_events(cuda, stage->drained[i], QR_NUM_STAGES);
    }
    qr_gpu_free(cuda, stage->memory);
    stage->memory = 0;
}

/* ---- copies ---------------------------------------------------------------- */

/* What one stage has room for. A store is gathered by the kernel, then moved to slots by the copy
 * engine; a load goes the other way. */
static qr_cu_result copy_stage(qr_cuda_stage *stage, qr_cuda_copier *copier, quire_device_op op,
                               const qr_block_pair *pairs, qr_cu_address pairs_address,
                               uint32_t num_pairs, qr_cu_stream engine)
{
    const qr_cuda_calls *calls = &copier->cuda->driver.calls;
    int which = op == QUIRE_DEVICE_STORE ? 0 : 1;
    uint64_t at = stage->next[which]++ % QR_NUM_STAGES;
    qr_cu_address memory =
        stage->memory + ((uint64_t)which * QR_NUM_STAGES + at) * stage->stage_bytes;
    qr_cu_stream streams[2] = {engine, engine};
    streams[which] = stage->kernels[which];
    qr_cu_result result = calls->cuStreamWaitEvent(streams[0], stage->drained[which][at], 0);
    for (int half = 0; half < 2 && result == QR_CU_SUCCESS; half++) {
        qr_cu_stream stream = streams[half];
        if (half == 1)
            result = calls->cuStreamWaitEvent(stream, stage->filled[which][at], 0);
        if (result == QR_CU_SUCCESS && half == which)
            result = qr_cuda_gather(copier, op, pairs_address, num_pairs, memory, stream);
        else if (result == QR_CU_SUCCESS)
            result = qr_cuda_copy_whole(copier, op, pairs, num_pairs, memory, stream);
        qr_cu_event done = half == 0 ? stage->filled[which][at] : stage->drained[which][at];
        if (result == QR_CU_SUCCESS)
            result = calls->cuEventRecord(done, stream);
    }
    return result;
}

qr_cu_result qr_cuda_stage_copy(qr_cuda_stage *stage, qr_cuda_copier *copier, quire_device_op op,
                                const qr_block_pair *pairs, qr_cu_address pairs_address,
                                uint32_t num_pairs, qr_cu_stream stream)
{
    qr_cu_result result = QR_CU_SUCCESS;
    for (uint32_t first = 0; first < num_pairs && result == QR_CU_SUCCESS;
         first += stage->blocks_in_stage) {
        uint32_t left = num_pairs - first;
        uint32_t n = left < stage->blocks_in_stage ? left : stage->blocks_in_stage;
        qr_cu_address address = pairs_address + first * sizeof *pairs;
        result = copy_stage(stage, copier, op, pairs + first, address, n, stream);
    }
    return result;
}
