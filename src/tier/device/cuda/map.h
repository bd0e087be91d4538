/* tier/device/cuda/map.h - where the pieces of blocks lie: regions on the GPU, offsets in a slot.
 *
 *      regions given        | K0 V0 | K1 | V1 |
 *      regions              |  K0 V0  K1 |  V1 |      those that lie one behind the other in every
 *      chunks (for kernels) |4K|4K|.. |  |4K|..|      block are one: fewer, larger copies
 *      runs                 |      1     |  1  |      regions of one size at equal distances: one
 *                                                     call of the copy engine for all of them
 */
#ifndef QR_TIER_DEVICE_CUDA_MAP_H
#define QR_TIER_DEVICE_CUDA_MAP_H

#include "base/arena.h"
#include "tier/device/cuda/gpu.h"
#include "tier/device/cuda/kernels.h"

typedef struct qr_cuda_run {
    uint32_t first; /* region */
    uint32_t count;
    uint64_t pitch; /* from one to the next */
} qr_cuda_run;

typedef struct qr_cuda_map {
    quire_cuda_region *regions;
    uint64_t *offsets; /* in a slot */
    qr_cuda_run *runs; /* of all regions */
    uint32_t num_runs;
    uint32_t num_regions;
    uint32_t num_blocks;
    uint64_t block_bytes;
    uint64_t least_bytes; /* of a region's piece */
    bool is_aligned;      /* all at multiples of 16: kernels can move it */
    uint32_t num_chunks;  /* of a block; 0 where kernels cannot move it */
    uint32_t crc_constant;
    qr_cu_address chunks;      /* qr_chunk[num_chunks] */
    qr_cu_address crc_numbers; /* behind them */
} qr_cuda_map;

void qr_cuda_map_carve(qr_cuda_map *map, qr_arena *arena, uint32_t num_regions);
/* Merges and counts; what is wrong with the regions, or NULL. */
const char *qr_cuda_map_fill(qr_cuda_map *map, const quire_cuda_region *regions,
                             uint32_t num_regions, uint32_t num_blocks);
/* Puts the chunks where the kernels find them; in the GPU's context. QUIRE_E_NOMEM of the host's
 * memory is QR_CU_OUT_OF_MEMORY too. */
qr_cu_result qr_cuda_map_upload(qr_cuda_map *map, quire_cuda *cuda);
void qr_cuda_map_release(qr_cuda_map *map, quire_cuda *cuda);

static inline qr_cu_address qr_cuda_map_piece(const qr_cuda_map *map, uint32_t region,
                                              quire_block block)
{
    return map->regions[region].base + block * map->regions[region].stride;
}

#endif
