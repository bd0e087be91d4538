/* tier/device/cuda/kernels.cu - the copies, checksums and tables of a GPU.
 *
 * Written as cta.cuh says, so that the same text runs on a processor too.
 */
#include "tier/device/cuda/cta.cuh"
#include "tier/device/cuda/kernels.h"

enum { LANES = 32, VECTORS = 8, VECTOR_BYTES = 16 };

/* ---- copies ---------------------------------------------------------------- */

typedef struct copy_item {
    unsigned long long from;
    unsigned long long to;
} copy_item;

INLINE unsigned look_up_item(const qr_copy_args *args, unsigned item, copy_item *out)
{
    const qr_chunk *chunk = (const qr_chunk *)args->chunks + item % args->num_chunks;
    const qr_block_pair pair = ((const qr_block_pair *)args->pairs)[item / args->num_chunks];
    unsigned long long here = chunk->base + pair.block * chunk->stride;
    unsigned long long other = chunk->base + pair.other * chunk->stride;
    const unsigned is_load = args->mode == QR_COPY_LOAD || args->mode == QR_COPY_SCATTER;
    if (args->mode == QR_COPY_STORE || args->mode == QR_COPY_LOAD)
        other = args->slots + pair.other * args->slot_bytes + chunk->offset;
    if (args->mode == QR_COPY_GATHER || args->mode == QR_COPY_SCATTER)
        other = args->slots + (item / args->num_chunks) * args->slot_bytes + chunk->offset;
    out->from = is_load != 0 ? other : here;
    out->to = is_load != 0 ? here : other;
    return chunk->bytes;
}

/* One chunk by one warp, this lane's part: all loads before the first store, so that a warp has
 * 4 KiB on the way. */
INLINE void move_whole(copy_item item, unsigned lane)
{
    qr_vector vectors[VECTORS];
    UNROLL
    for (unsigned i = 0; i < VECTORS; i++)
        vectors[i] = load_once(item.from + (lane + i * LANES) * VECTOR_BYTES);
    UNROLL
    for (unsigned i = 0; i < VECTORS; i++)
        store_vector(item.to + (lane + i * LANES) * VECTOR_BYTES, vectors[i]);
}

INLINE void move_item(copy_item item, unsigned bytes, unsigned lane, unsigned is_zero)
{
    qr_vector vectors[VECTORS];
    unsigned at = lane * VECTOR_BYTES;
    if (bytes == QR_CHUNK_BYTES && is_zero == 0) {
        move_whole(item, lane);
        return;
    }
    UNROLL
    for (unsigned i = 0; i < VECTORS; i++) {
        vectors[i].x = vectors[i].y = vectors[i].z = vectors[i].w = 0;
        if (at + i * LANES * VECTOR_BYTES < bytes && is_zero == 0)
            vectors[i] = load_once(item.from + at + i * LANES * VECTOR_BYTES);
    }
    UNROLL
    for (unsigned i = 0; i < VECTORS; i++)
        if (at + i * LANES * VECTOR_BYTES < bytes)
            store_vector(item.to + at + i * LANES * VECTOR_BYTES, vectors[i]);
}

KERNEL(quire_copy_pieces, qr_copy_args, QR_COPY_THREADS)
{
    SHARED copy_item items[QR_TILE_MOST];
    SHARED unsigned sizes[QR_TILE_MOST];
    const unsigned num_items = args.num_pairs * args.num_chunks;
    for (unsigned first = CTA * args.tile; first < num_items; first += NUM_CTAS * args.tile) {
        const unsigned count = num_items - first < args.tile ? num_items - first : args.tile;
        EACH_THREAD (thread)
            for (unsigned i = thread; i < count; i += NUM_THREADS)
                sizes[i] = look_up_item(&args, first + i, &items[i]);
        SYNC();
        EACH_THREAD (thread)
            for (unsigned i = thread / LANES; i < count; i += NUM_THREADS / LANES)
                move_item(items[i], sizes[i], thread % LANES, args.mode == QR_COPY_ZERO);
        SYNC();
    }
}

/* ---- CRC32C ---------------------------------------------------------------- */

/* a * b in the field of the CRC: bit 31 is x^0. */
INLINE unsigned multiply(unsigned a, unsigned b)
{
    unsigned product = 0;
    for (unsigned i = 0; i < 32; i++) {
        product ^= (a >> 31) != 0 ? b : 0;
        a <<= 1;
        b = (b >> 1) ^ ((b & 1) != 0 ? 0x82F63B78u : 0);
    }
    return product;
}

/* Four bytes, and the zero bytes that the tables have behind them. */
INLINE unsigned fold_word(const unsigned *tables, unsigned word)
{
    return tables[word & 255] ^ tables[256 + (word >> 8 & 255)] ^
           tables[512 + (word >> 16 & 255)] ^ tables[768 + (word >> 24)];
}

/* This lane's part of a chunk: vectors lane, lane + 32 ... of 256, of which a short chunk has only
 * the last (zeros before the first byte change nothing). The tables count 31 vectors behind each:
 * right for all but the last, which `lanes` puts right in the end. */
INLINE unsigned fold_chunk(const unsigned *tables, const qr_chunk *chunk, unsigned block,
                           unsigned lane)
{
    const unsigned long long base = chunk->base + block * chunk->stride;
    const unsigned missing = (QR_CHUNK_BYTES - chunk->bytes) / VECTOR_BYTES;
    qr_vector vectors[VECTORS];
    unsigned state = 0;
    UNROLL
    for (unsigned i = 0; i < VECTORS; i++) {
        vectors[i].x = vectors[i].y = vectors[i].z = vectors[i].w = 0;
        if (lane + i * LANES >= missing)
            vectors[i] = load_vector(base + (lane + i * LANES - missing) * VECTOR_BYTES);
    }
    UNROLL
    for (unsigned i = 0; i < VECTORS; i++)
        state = fold_word(tables, vectors[i].x ^ state) ^ fold_word(tables + 1024, vectors[i].y) ^
                fold_word(tables + 2048, vectors[i].z) ^ fold_word(tables + 3072, vectors[i].w);
    return multiply(state, chunk->power);
}

/* A part of a block: index counts those of all blocks. */
INLINE unsigned fold_part(const qr_crc_args *args, const unsigned *tables, unsigned index,
                          unsigned thread)
{
    const qr_chunk *chunks = (const qr_chunk *)args->chunks;
    const unsigned lane = thread % LANES;
    const unsigned num_warps = args->team / LANES;
    const unsigned size = (args->num_chunks + args->parts - 1) / args->parts;
    const unsigned first = index % args->parts * size;
    const unsigned end = first + size < args->num_chunks ? first + size : args->num_chunks;
    unsigned sum = 0;
    if (index >= args->num_pairs * args->parts)
        return 0;
    const unsigned block = ((const qr_block_pair *)args->pairs)[index / args->parts].block;
    for (unsigned i = first + thread % args->team / LANES; i < end; i += num_warps)
        sum ^= fold_chunk(tables, &chunks[i], block, lane);
    return multiply(sum, ((const unsigned *)args->tables)[QR_CRC_TABLES * 256 + lane]);
}

KERNEL(quire_crc_blocks, qr_crc_args, QR_CRC_THREADS)
{
    SHARED unsigned tables[QR_CRC_TABLES * 256];
    SHARED unsigned sums[QR_CRC_THREADS];
    const unsigned num_teams = NUM_THREADS / args.team;
    const unsigned num_parts = args.num_pairs * args.parts;
    EACH_THREAD (thread)
        for (unsigned i = thread; i < QR_CRC_TABLES * 256; i += NUM_THREADS)
            tables[i] = ((const unsigned *)args.tables)[i];
    SYNC();
    for (unsigned first = CTA * num_teams; first < num_parts; first += NUM_CTAS * num_teams) {
        EACH_THREAD (thread)
            sums[thread] = fold_part(&args, tables, first + thread / args.team, thread);
        SYNC();
        for (unsigned half = args.team / 2; half > 0; half /= 2) {
            EACH_THREAD (thread)
                if (thread % args.team < half)
                    sums[thread] ^= sums[thread + half];
            SYNC();
        }
        EACH_THREAD (thread)
            if (thread % args.team == 0 && first + thread / args.team < num_parts)
                ((unsigned *)args.results)[first + thread / args.team] = sums[thread];
        SYNC();
    }
}

/* ---- tables ---------------------------------------------------------------- */

KERNEL(quire_set_tables, qr_tables_args, QR_TABLES_THREADS)
{
    for (unsigned i = CTA; i < args.num_changes; i += NUM_CTAS) {
        const qr_table_change change = ((const qr_table_change *)args.changes)[i];
        EACH_THREAD (thread)
            for (unsigned at = thread; at < change.count; at += NUM_THREADS) {
                if (change.is_slots != 0)
                    ((long long *)args.slots)[change.target + at] =
                        ((const long long *)args.numbers)[change.source + at];
                else
                    ((int *)args.entries)[change.target + at] =
                        ((const int *)args.ids)[change.source + at];
            }
    }
}
