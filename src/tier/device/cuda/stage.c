#include "tier/device/cuda/stage.h"

/* ---- opening --------------------------------------------------------------- */

static qr_cu_result make_stage_events(const qr_cuda_calls *calls, qr_cu_event *events)
{
    qr_cu_result result = QR_CU_SUCCESS;
    for (int i = 0; i < QR_NUM_STAGES && result == QR_CU_SUCCESS; i++) {
        result = calls->cuEventCreate(&events[i], QR_CU_EVENT_DISABLE_TIMING);
        if (result != QR_CU_SUCCESS)
            events[i] = NULL;
    }
    return result;
}

qr_cu_result qr_cuda_stage_open(qr_cuda_stage *stage, quire_cuda *cuda, const qr_cuda_map *map,
                                uint64_t stage_bytes, uint32_t most_blocks)
{
    const qr_cuda_calls *calls = &cuda->driver.calls;
    uint64_t blocks = stage_bytes / map->block_bytes;
    blocks = blocks == 0 ? 1 : blocks;
    stage->blocks_in_stage = blocks < most_blocks ? (uint32_t)blocks : most_blocks;
    stage->stage_bytes = stage->blocks_in_stage * map->block_bytes;
    qr_cu_result result = calls->cuMemAlloc(
        &stage->memory, (size_t)(UINT64_C(2) * QR_NUM_STAGES * stage->stage_bytes));
    if (result != QR_CU_SUCCESS)
        stage->memory = 0;
    for (int i = 0; i < 2 && result == QR_CU_SUCCESS; i++) {
        result = calls->cuStreamCreateWithPriority(&stage->kernels[i], QR_CU_STREAM_NON_BLOCKING,
                                                   cuda->low_priority);
        if (result != QR_CU_SUCCESS)
            stage->kernels[i] = NULL;
        if (result == QR_CU_SUCCESS)
            result = make_stage_events(calls, stage->filled[i]);
        if (result == QR_CU_SUCCESS)
            result = make_stage_events(calls, stage->drained[i]);
    }
    return result;
}

void qr_cuda_stage_release(qr_cuda_stage *stage, quire_cuda *cuda)
{
    const qr_cuda_calls *calls = &cuda->driver.calls;
    for (int i = 0; i < 2; i++) {
        if (stage->kernels[i] != NULL) {
            (void)calls->cuStreamSynchronize(stage->kernels[i]);
            (void)calls->cuStreamDestroy(stage->kernels[i]);
        }
        for (int k = 0; k < QR_NUM_STAGES; k++) {
            if (stage->filled[i][k] != NULL)
                (void)calls->cuEventDestroy(stage->filled[i][k]);
            if (stage->drained[i][k] != NULL)
                (void)calls->cuEventDestroy(stage->drained[i][k]);
        }
    }
    if (stage->memory != 0)
        (void)calls->cuMemFree(stage->memory);
    stage->memory = 0;
}

/* ---- copies ---------------------------------------------------------------- */

/* What one stage has room for: gathered, then moved to slots. */
static qr_cu_result store_stage(qr_cuda_stage *stage, qr_cuda_copier *copier,
                                const qr_block_pair *pairs, qr_cu_address pairs_address,
                                uint32_t num_pairs, qr_cu_stream stream)
{
    const qr_cuda_calls *calls = &copier->cuda->driver.calls;
    uint64_t at = stage->next[0]++ % QR_NUM_STAGES;
    qr_cu_address memory = stage->memory + at * stage->stage_bytes;
    qr_cu_result result = calls->cuStreamWaitEvent(stage->kernels[0], stage->drained[0][at], 0);
    if (result == QR_CU_SUCCESS)
        result = qr_cuda_gather(copier, QUIRE_DEVICE_STORE, pairs_address, num_pairs, memory,
                                stage->kernels[0]);
    if (result == QR_CU_SUCCESS)
        result = calls->cuEventRecord(stage->filled[0][at], stage->kernels[0]);
    if (result == QR_CU_SUCCESS)
        result = calls->cuStreamWaitEvent(stream, stage->filled[0][at], 0);
    if (result == QR_CU_SUCCESS)
        result = qr_cuda_copy_whole(copier, QUIRE_DEVICE_STORE, pairs, num_pairs, memory, stream);
    if (result == QR_CU_SUCCESS)
        result = calls->cuEventRecord(stage->drained[0][at], stream);
    return result;
}

/* The same back. */
static qr_cu_result load_stage(qr_cuda_stage *stage, qr_cuda_copier *copier,
                               const qr_block_pair *pairs, qr_cu_address pairs_address,
                               uint32_t num_pairs, qr_cu_stream stream)
{
    const qr_cuda_calls *calls = &copier->cuda->driver.calls;
    uint64_t at = stage->next[1]++ % QR_NUM_STAGES;
    qr_cu_address memory = stage->memory + (QR_NUM_STAGES + at) * stage->stage_bytes;
    qr_cu_result result = calls->cuStreamWaitEvent(stream, stage->drained[1][at], 0);
    if (result == QR_CU_SUCCESS)
        result = qr_cuda_copy_whole(copier, QUIRE_DEVICE_LOAD, pairs, num_pairs, memory, stream);
    if (result == QR_CU_SUCCESS)
        result = calls->cuEventRecord(stage->filled[1][at], stream);
    if (result == QR_CU_SUCCESS)
        result = calls->cuStreamWaitEvent(stage->kernels[1], stage->filled[1][at], 0);
    if (result == QR_CU_SUCCESS)
        result = qr_cuda_gather(copier, QUIRE_DEVICE_LOAD, pairs_address, num_pairs, memory,
                                stage->kernels[1]);
    if (result == QR_CU_SUCCESS)
        result = calls->cuEventRecord(stage->drained[1][at], stage->kernels[1]);
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
        if (op == QUIRE_DEVICE_STORE)
            result = store_stage(stage, copier, pairs + first, address, n, stream);
        else
            result = load_stage(stage, copier, pairs + first, address, n, stream);
    }
    return result;
}
