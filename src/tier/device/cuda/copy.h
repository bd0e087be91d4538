/* tier/device/cuda/copy.h - ways to move the pieces of a list of blocks; each only gives work to
 * a stream.
 *
 *      KERNEL   one launch: CTAs read or write pinned memory themselves, 16 bytes a thread
 *      STAGED   see stage.h
 *      ROWS     one call for the pieces of a block that lie at equal distances: the copy engine's
 *               work, as are the next two
 *      BATCH    one call for many pieces, wherever they lie
 *      LOOP     one call for each piece: the same without batches
 */
#ifndef QR_TIER_DEVICE_CUDA_COPY_H
#define QR_TIER_DEVICE_CUDA_COPY_H

#include "tier/device/cuda/map.h"

/* The engine begins when a call has all its pieces, at most a microsecond of the processor for
 * each. */
enum { QR_BATCH_MOST = 256 };

/* The arrays of a batch; the driver reads them during the call only. */
typedef struct qr_cuda_batch {
    qr_cu_address to[QR_BATCH_MOST];
    qr_cu_address from[QR_BATCH_MOST];
    size_t bytes[QR_BATCH_MOST];
} qr_cuda_batch;

typedef struct qr_cuda_grid {
    uint32_t num_ctas;
    uint32_t num_threads; /* of a CTA */
} qr_cuda_grid;

typedef struct qr_cuda_copier {
    quire_cuda *cuda;
    const qr_cuda_map *map;
    unsigned char *slots;        /* as the host sees them */
    qr_cu_address slots_address; /* as kernels do */
    quire_cuda_method method[2]; /* of stores, of loads */
    bool has_batches;
    qr_cuda_grid grid[2];
    qr_cuda_batch *batch;
} qr_cuda_copier;

/* pairs are where the host reads them, pairs_address where kernels do: pinned, and there until the
 * stream has come so far. */
qr_cu_result qr_cuda_copy(qr_cuda_copier *copier, quire_device_op op, const qr_block_pair *pairs,
                          qr_cu_address pairs_address, uint32_t num_pairs, qr_cu_stream stream);
/* Between blocks, or zeros into them, by as much of the GPU as there is. */
qr_cu_result qr_cuda_copy_within(quire_cuda *cuda, const qr_cuda_map *map, qr_copy_mode mode,
                                 const qr_block_pair *pairs, qr_cu_address pairs_address,
                                 uint32_t num_pairs, qr_cu_stream stream);
/* Between the pieces of blocks and memory in which whole blocks lie one behind the other, in the
 * order of the list: the kernel's half of a staged copy; and the copy engine's, between that memory
 * and the slots. */
qr_cu_result qr_cuda_gather(const qr_cuda_copier *copier, quire_device_op op,
                            qr_cu_address pairs_address, uint32_t num_pairs, qr_cu_address memory,
                            qr_cu_stream stream);
qr_cu_result qr_cuda_copy_whole(qr_cuda_copier *copier, quire_device_op op,
                                const qr_block_pair *pairs, uint32_t num_pairs,
                                qr_cu_address memory, qr_cu_stream stream);
/* Parts in which the kernel takes a block: so many results there are for each. */
uint32_t qr_cuda_crc_parts(const qr_cuda_map *map);
/* CRC32C of blocks, without the map's constant, to results: unsigned[num_pairs][parts]. */
qr_cu_result qr_cuda_crc(quire_cuda *cuda, const qr_cuda_map *map, qr_cu_address pairs,
                         uint32_t num_pairs, qr_cu_address results, uint32_t num_ctas,
                         qr_cu_stream stream);

#endif
