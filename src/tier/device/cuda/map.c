#include "tier/device/cuda/map.h"

#include "base/memory.h"

enum { ALIGNED = 16, MOST_CHUNKS = 1 << 20, CRC_NUMBERS = QR_CRC_TABLES * 256 + 32 };

/* ---- the numbers that the kernel for CRC32C needs ----------------------------
 *
 * A CRC without its first and last inversion is linear: that of a block is the sum (exclusive or)
 * of its chunks', each multiplied by x^(8 * bytes behind it) in the CRC's field. So threads can
 * take parts in any order. What the inversions add depends on the length alone. */

#define POLYNOMIAL UINT32_C(0x82F63B78)
#define ONE        UINT32_C(0x80000000) /* x^0: bits stand in reverse */

static uint32_t multiply_in_field(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= (a & ONE) != 0 ? b : 0;
        a <<= 1;
        b = (b >> 1) ^ ((b & 1) != 0 ? POLYNOMIAL : 0); /* times x */
    }
    return product;
}

/* x^(8 * bytes) */
static uint32_t crc_power(uint64_t bytes)
{
    uint32_t power = ONE;
    uint32_t square = ONE >> 8; /* x^8 */
    for (; bytes != 0; bytes >>= 1) {
        if ((bytes & 1) != 0)
            power = multiply_in_field(power, square);
        square = multiply_in_field(square, square);
    }
    return power;
}

/* What the inversions add to the CRC of so many bytes. */
static uint32_t crc_constant(uint64_t bytes)
{
    return multiply_in_field(UINT32_MAX, crc_power(bytes)) ^ UINT32_MAX;
}

/* As qr_crc_args.tables has them. */
static void fill_crc_numbers(uint32_t numbers[CRC_NUMBERS])
{
    enum { VECTOR = 16, LANES = 32, STEP = VECTOR * LANES };
    for (uint32_t at = 0; at < QR_CRC_TABLES; at++) {
        /* The byte at this place of a vector, then the rest of it, then 31 vectors. A byte enters
         * as the highest powers of a word, and one byte of zeros brings it into the register. */
        uint32_t power = crc_power(STEP - at);
        for (uint32_t byte = 0; byte < 256; byte++)
            numbers[at * 256 + byte] = multiply_in_field(byte, power);
    }
    uint32_t lane = ONE;
    for (uint32_t i = 0; i < LANES; i++) {
        numbers[QR_CRC_TABLES * 256 + i] = lane;
        for (uint32_t bit = 0; bit < 8 * VECTOR; bit++) /* divided by x */
            lane = (lane & ONE) != 0 ? ((lane ^ POLYNOMIAL) << 1) | 1 : lane << 1;
    }
}

/* ---- regions ----------------------------------------------------------------- */

void qr_cuda_map_carve(qr_cuda_map *map, qr_arena *arena, uint32_t num_regions)
{
    map->regions = qr_arena_take(arena, num_regions, sizeof *map->regions);
    map->offsets = qr_arena_take(arena, num_regions, sizeof *map->offsets);
    map->runs = qr_arena_take(arena, num_regions, sizeof *map->runs);
}

/* The regions' last block must end within what addresses can say. */
static bool is_region_sound(const quire_cuda_region *region, uint32_t num_blocks)
{
    uint64_t most = UINT64_MAX / 4;
    return region->base != 0 && region->bytes != 0 && region->stride >= region->bytes &&
           region->base < most && region->stride < most / num_blocks;
}

/* Whether a region goes on with the run that the one before it ends. */
static bool does_continue(const qr_cuda_map *map, const qr_cuda_run *run, uint32_t region)
{
    const quire_cuda_region *last = &map->regions[region - 1];
    const quire_cuda_region *next = &map->regions[region];
    uint64_t pitch = next->base - last->base;
    return next->bytes == last->bytes && next->stride == last->stride && next->base > last->base &&
           pitch >= next->bytes && pitch <= QR_CU_MOST_PITCH &&
           (run->count == 1 || run->pitch == pitch);
}

static void find_runs(qr_cuda_map *map)
{
    map->num_runs = 0;
    for (uint32_t i = 0; i < map->num_regions; i++) {
        qr_cuda_run *run = i == 0 ? NULL : &map->runs[map->num_runs - 1];
        if (run != NULL && does_continue(map, run, i)) {
            run->pitch = map->regions[i].base - map->regions[i - 1].base;
            run->count++;
        } else {
            map->runs[map->num_runs++] = (qr_cuda_run){.first = i, .count = 1};
        }
    }
}

const char *qr_cuda_map_fill(qr_cuda_map *map, const quire_cuda_region *regions,
                             uint32_t num_regions, uint32_t num_blocks)
{
    uint64_t chunks = 0;
    map->num_blocks = num_blocks;
    map->num_regions = 0;
    map->block_bytes = 0;
    map->is_aligned = true;
    for (uint32_t i = 0; i < num_regions; i++) {
        const quire_cuda_region *next = &regions[i];
        if (!is_region_sound(next, num_blocks) || next->bytes > UINT64_MAX / 4 - map->block_bytes)
            return "invalid region (base 0, 0 bytes, a stride below its bytes, or an end past 64 "
                   "bits)";
        quire_cuda_region *last =
            map->num_regions == 0 ? NULL : &map->regions[map->num_regions - 1];
        if (last != NULL && last->base + last->bytes == next->base &&
            last->stride == next->stride && last->bytes + next->bytes <= last->stride) {
            last->bytes += next->bytes;
        } else {
            map->offsets[map->num_regions] = map->block_bytes;
            map->regions[map->num_regions++] = *next;
        }
        map->block_bytes += next->bytes;
        if (((next->base | next->stride | next->bytes) & (ALIGNED - 1)) != 0)
            map->is_aligned = false;
    }
    find_runs(map);
    map->least_bytes = UINT64_MAX;
    for (uint32_t i = 0; i < map->num_regions; i++) {
        uint64_t bytes = map->regions[i].bytes;
        map->least_bytes = bytes < map->least_bytes ? bytes : map->least_bytes;
        chunks += (bytes + QR_CHUNK_BYTES - 1) / QR_CHUNK_BYTES;
    }
    map->is_aligned = map->is_aligned && chunks <= MOST_CHUNKS;
    map->num_chunks = map->is_aligned ? (uint32_t)chunks : 0;
    map->crc_constant = crc_constant(map->block_bytes);
    return NULL;
}

static void fill_chunks(const qr_cuda_map *map, qr_chunk *chunks)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < map->num_regions; i++) {
        const quire_cuda_region *region = &map->regions[i];
        for (uint64_t at = 0; at < region->bytes; at += QR_CHUNK_BYTES) {
            uint64_t left = region->bytes - at;
            qr_chunk *chunk = &chunks[n++];
            chunk->base = region->base + at;
            chunk->stride = region->stride;
            chunk->offset = map->offsets[i] + at;
            chunk->bytes = (unsigned)(left < QR_CHUNK_BYTES ? left : QR_CHUNK_BYTES);
            chunk->power = crc_power(map->block_bytes - chunk->offset - chunk->bytes);
        }
    }
}

qr_cu_result qr_cuda_map_upload(qr_cuda_map *map, quire_cuda *cuda)
{
    const qr_cuda_calls *calls = &cuda->driver.calls;
    size_t chunk_bytes = map->num_chunks * sizeof(qr_chunk);
    size_t bytes = chunk_bytes + CRC_NUMBERS * sizeof(uint32_t);
    unsigned char *all = qr_alloc(1, bytes);
    if (all == NULL)
        return QR_CU_OUT_OF_MEMORY;
    fill_chunks(map, (qr_chunk *)(void *)all);
    fill_crc_numbers((uint32_t *)(void *)(all + chunk_bytes));
    qr_cu_result result = qr_gpu_alloc(cuda, bytes, &map->chunks);
    map->crc_numbers = map->chunks + chunk_bytes;
    if (result == QR_CU_SUCCESS)
        result = calls->cuMemcpyHtoDAsync(map->chunks, all, bytes, cuda->stream);
    if (result == QR_CU_SUCCESS)
        result = calls->cuStreamSynchronize(cuda->stream);
    if (result != QR_CU_SUCCESS)
        qr_cuda_map_release(map, cuda); /* waits for the copy, which reads all */
    qr_free(all);
    return result;
}

void qr_cuda_map_release(qr_cuda_map *map, quire_cuda *cuda)
{
    qr_gpu_free(cuda, map->chunks);
    map->chunks = 0;
}
