#include "tier/device/cuda/copy.h"

enum { NOT_SUPPORTED = 801 };

/* Enough to keep both directions of the bus busy. More would end sooner, but be more in the way. */
static const qr_cuda_grid STAGE_GRID = {16, QR_COPY_THREADS};

/* ---- kernels --------------------------------------------------------------- */

/* Items that a CTA looks up at a time: as many as there is room for, but so that all CTAs have the
 * same number of rounds. */
static uint32_t choose_tile(uint64_t num_items, uint32_t num_ctas)
{
    uint64_t rounds =
        (num_items + (uint64_t)num_ctas * QR_TILE_MOST - 1) / ((uint64_t)num_ctas * QR_TILE_MOST);
    uint64_t tile = (num_items + num_ctas * rounds - 1) / (num_ctas * rounds);
    return (uint32_t)tile;
}

static qr_cu_result launch_copy(quire_cuda *cuda, const qr_cuda_map *map, qr_copy_args *args,
                                qr_cuda_grid grid, qr_cu_stream stream)
{
    uint64_t num_items = (uint64_t)args->num_pairs * map->num_chunks;
    args->chunks = map->chunks;
    args->num_chunks = map->num_chunks;
    args->slot_bytes = map->block_bytes;
    args->tile = choose_tile(num_items, grid.num_ctas);
    uint64_t needed = (num_items + args->tile - 1) / args->tile;
    uint32_t num_ctas = needed < grid.num_ctas ? (uint32_t)needed : grid.num_ctas;
    return qr_gpu_launch(cuda, QR_KERNEL_COPY, num_ctas, grid.num_threads, stream, args);
}

uint32_t qr_cuda_crc_parts(const qr_cuda_map *map)
{
    enum { CHUNKS_IN_PART = 32 };
    uint32_t parts = map->num_chunks / CHUNKS_IN_PART;
    if (parts == 0)
        return 1;
    return parts < QR_CRC_PARTS ? parts : QR_CRC_PARTS;
}

qr_cu_result qr_cuda_crc(quire_cuda *cuda, const qr_cuda_map *map, qr_cu_address pairs,
                         uint32_t num_pairs, qr_cu_address results, uint32_t num_ctas,
                         qr_cu_stream stream)
{
    qr_crc_args args = {.chunks = map->chunks,
                        .pairs = pairs,
                        .tables = map->crc_numbers,
                        .results = results,
                        .num_chunks = map->num_chunks,
                        .num_pairs = num_pairs,
                        .team = 32,
                        .parts = qr_cuda_crc_parts(map)};
    while (args.team < QR_CRC_THREADS && args.team / 32 < map->num_chunks)
        args.team *= 2;
    uint32_t teams = QR_CRC_THREADS / args.team;
    uint32_t needed = (num_pairs * args.parts + teams - 1) / teams;
    return qr_gpu_launch(cuda, QR_KERNEL_CRC, needed < num_ctas ? needed : num_ctas, QR_CRC_THREADS,
                         stream, &args);
}

/* ---- the copy engine ------------------------------------------------------- */

static qr_cu_result copy_piece(qr_cuda_copier *copier, quire_device_op op, qr_cu_address piece,
                               unsigned char *host, size_t bytes, qr_cu_stream stream)
{
    const qr_cuda_calls *calls = &copier->cuda->driver.calls;
    if (op == QUIRE_DEVICE_STORE)
        return calls->cuMemcpyDtoHAsync(host, piece, bytes, stream);
    return calls->cuMemcpyHtoDAsync(piece, host, bytes, stream);
}

static qr_cu_result send_batch(qr_cuda_copier *copier, quire_device_op op, uint32_t count,
                               qr_cu_stream stream)
{
    const qr_cuda_calls *calls = &copier->cuda->driver.calls;
    qr_cuda_batch *b = copier->batch;
    qr_cu_copy_attributes in_order = {.source_order = QR_CU_ORDER_STREAM};
    size_t start = 0;
    size_t failed = 0;
    qr_cu_result result = QR_CU_SUCCESS;
    if (copier->has_batches && count > 0)
        result = calls->cuMemcpyBatchAsync(b->to, b->from, b->bytes, count, &in_order, &start, 1,
                                           &failed, stream);
    if (result == NOT_SUPPORTED) {
        copier->has_batches = false;
        for (int i = 0; i < 2; i++)
            if (copier->method[i] == QUIRE_CUDA_BATCH)
                copier->method[i] = QUIRE_CUDA_LOOP;
        result = QR_CU_SUCCESS;
    }
    if (copier->has_batches)
        return result;
    for (uint32_t i = 0; i < count && result == QR_CU_SUCCESS; i++) {
        bool is_store = op == QUIRE_DEVICE_STORE;
        qr_cu_address host = is_store ? b->to[i] : b->from[i];
        result = copy_piece(copier, op, is_store ? b->from[i] : b->to[i],
                            (unsigned char *)(uintptr_t)host, b->bytes[i], stream);
    }
    return result;
}

/* One more piece; a batch that is full is sent. */
static qr_cu_result add_piece(qr_cuda_copier *copier, quire_device_op op, qr_cu_address piece,
                              const unsigned char *host, uint64_t bytes, uint32_t *n,
                              qr_cu_stream stream)
{
    qr_cuda_batch *b = copier->batch;
    b->to[*n] = op == QUIRE_DEVICE_STORE ? (uintptr_t)host : piece;
    b->from[*n] = op == QUIRE_DEVICE_STORE ? piece : (uintptr_t)host;
    b->bytes[*n] = (size_t)bytes;
    if (++*n < QR_BATCH_MOST)
        return QR_CU_SUCCESS;
    *n = 0;
    return send_batch(copier, op, QR_BATCH_MOST, stream);
}

static qr_cu_result copy_by_engine(qr_cuda_copier *copier, quire_device_op op,
                                   const qr_block_pair *pairs, uint32_t num_pairs,
                                   qr_cu_stream stream)
{
    const qr_cuda_map *map = copier->map;
    qr_cu_result result = QR_CU_SUCCESS;
    uint32_t n = 0;
    for (uint32_t i = 0; i < num_pairs && result == QR_CU_SUCCESS; i++) {
        const unsigned char *slot = copier->slots + pairs[i].other * map->block_bytes;
        for (uint32_t r = 0; r < map->num_regions && result == QR_CU_SUCCESS; r++)
            result = add_piece(copier, op, qr_cuda_map_piece(map, r, pairs[i].block),
                               slot + map->offsets[r], map->regions[r].bytes, &n, stream);
    }
    return result == QR_CU_SUCCESS ? send_batch(copier, op, n, stream) : result;
}

/* One block's pieces in the regions of a run. */
static qr_cu_result copy_run(qr_cuda_copier *copier, quire_device_op op, const qr_cuda_run *run,
                             qr_block_pair pair, qr_cu_stream stream)
{
    const qr_cuda_map *map = copier->map;
    size_t bytes = (size_t)map->regions[run->first].bytes;
    unsigned char *host = copier->slots + pair.other * map->block_bytes + map->offsets[run->first];
    qr_cu_address piece = qr_cuda_map_piece(map, run->first, pair.block);
    if (run->count == 1)
        return copy_piece(copier, op, piece, host, bytes, stream);
    qr_cu_side here = {.type = QR_CU_MEMORY_DEVICE, .device = piece, .pitch = (size_t)run->pitch};
    qr_cu_side there = {.type = QR_CU_MEMORY_HOST, .host = host, .pitch = bytes};
    bool is_store = op == QUIRE_DEVICE_STORE;
    qr_cu_copy_2d rows = {.source = is_store ? here : there,
                          .target = is_store ? there : here,
                          .width = bytes,
                          .height = run->count};
    return copier->cuda->driver.calls.cuMemcpy2DAsync(&rows, stream);
}

static qr_cu_result copy_by_rows(qr_cuda_copier *copier, quire_device_op op,
                                 const qr_block_pair *pairs, uint32_t num_pairs,
                                 qr_cu_stream stream)
{
    const qr_cuda_map *map = copier->map;
    qr_cu_result result = QR_CU_SUCCESS;
    for (uint32_t i = 0; i < num_pairs; i++)
        for (uint32_t r = 0; r < map->num_runs && result == QR_CU_SUCCESS; r++)
            result = copy_run(copier, op, &map->runs[r], pairs[i], stream);
    return result;
}

qr_cu_result qr_cuda_copy_whole(qr_cuda_copier *copier, quire_device_op op,
                                const qr_block_pair *pairs, uint32_t num_pairs,
                                qr_cu_address memory, qr_cu_stream stream)
{
    uint64_t bytes = copier->map->block_bytes;
    qr_cu_result result = QR_CU_SUCCESS;
    uint32_t n = 0;
    for (uint32_t i = 0; i < num_pairs && result == QR_CU_SUCCESS; i++)
        result = add_piece(copier, op, memory + i * bytes, copier->slots + pairs[i].other * bytes,
                           bytes, &n, stream);
    return result == QR_CU_SUCCESS ? send_batch(copier, op, n, stream) : result;
}

/* ---- both ------------------------------------------------------------------ */

qr_cu_result qr_cuda_copy(qr_cuda_copier *copier, quire_device_op op, const qr_block_pair *pairs,
                          qr_cu_address pairs_address, uint32_t num_pairs, qr_cu_stream stream)
{
    if (num_pairs == 0)
        return QR_CU_SUCCESS;
    int which = op == QUIRE_DEVICE_STORE ? 0 : 1;
    if (copier->method[which] == QUIRE_CUDA_ROWS)
        return copy_by_rows(copier, op, pairs, num_pairs, stream);
    if (copier->method[which] != QUIRE_CUDA_KERNEL)
        return copy_by_engine(copier, op, pairs, num_pairs, stream);
    qr_copy_args args = {.pairs = pairs_address,
                         .slots = copier->slots_address,
                         .num_pairs = num_pairs,
                         .mode = which == 0 ? QR_COPY_STORE : QR_COPY_LOAD};
    return launch_copy(copier->cuda, copier->map, &args, copier->grid[which], stream);
}

qr_cu_result qr_cuda_gather(const qr_cuda_copier *copier, quire_device_op op,
                            qr_cu_address pairs_address, uint32_t num_pairs, qr_cu_address memory,
                            qr_cu_stream stream)
{
    qr_copy_args args = {.pairs = pairs_address,
                         .slots = memory,
                         .num_pairs = num_pairs,
                         .mode = op == QUIRE_DEVICE_STORE ? QR_COPY_GATHER : QR_COPY_SCATTER};
    return launch_copy(copier->cuda, copier->map, &args, STAGE_GRID, stream);
}

qr_cu_result qr_cuda_copy_within(quire_cuda *cuda, const qr_cuda_map *map, qr_copy_mode mode,
                                 const qr_block_pair *pairs, qr_cu_address pairs_address,
                                 uint32_t num_pairs, qr_cu_stream stream)
{
    const qr_cuda_calls *calls = &cuda->driver.calls;
    qr_cu_result result = QR_CU_SUCCESS;
    if (num_pairs > 0 && cuda->info.has_kernels != 0 && map->chunks != 0) {
        qr_copy_args args = {.pairs = pairs_address, .num_pairs = num_pairs, .mode = mode};
        qr_cuda_grid all = {2 * cuda->info.num_multiprocessors, QR_COPY_THREADS};
        return launch_copy(cuda, map, &args, all, stream);
    }
    for (uint32_t i = 0; i < num_pairs; i++)
        for (uint32_t r = 0; r < map->num_regions && result == QR_CU_SUCCESS; r++) {
            size_t bytes = (size_t)map->regions[r].bytes;
            qr_cu_address to = qr_cuda_map_piece(map, r, pairs[i].other);
            if (mode == QR_COPY_ZERO)
                result = calls->cuMemsetD8Async(to, 0, bytes, stream);
            else
                result = calls->cuMemcpyDtoDAsync(to, qr_cuda_map_piece(map, r, pairs[i].block),
                                                  bytes, stream);
        }
    return result;
}
