/* tier/device/cuda/kernels.h - what the kernels are given: one struct each, read by both sides.
 *
 *      block      = chunks of at most 4 KiB, each inside one region: one warp moves one at a time
 *      item       = (pair, chunk); a CTA looks up the addresses of a tile of items, then its warps
 *                   move them
 *
 * Addresses are the GPU's. Everything that is moved lies at multiples of 16.
 */
#ifndef QR_TIER_DEVICE_CUDA_KERNELS_H
#define QR_TIER_DEVICE_CUDA_KERNELS_H

enum { QR_CHUNK_BYTES = 4096, QR_COPY_THREADS = 512, QR_TILE_MOST = 512, QR_CRC_THREADS = 64 };
enum { QR_TABLES_THREADS = 128, QR_CRC_TABLES = 16, QR_CRC_PARTS = 16 };

typedef struct qr_chunk {
    unsigned long long base; /* in block 0 */
    unsigned long long stride;
    unsigned long long offset; /* in a slot */
    unsigned bytes;
    unsigned power; /* x^(8 * bytes of the block behind it), for its part of the CRC */
} qr_chunk;

typedef struct qr_block_pair {
    unsigned block; /* STORE and LOAD; COPY: from; ZERO: not used */
    unsigned other; /* STORE and LOAD: the slot; COPY: to; ZERO: the block */
} qr_block_pair;

/* GATHER and SCATTER: as STORE and LOAD, but the slot is the pair's place in the list. */
typedef enum qr_copy_mode {
    QR_COPY_STORE,
    QR_COPY_LOAD,
    QR_COPY_BLOCKS,
    QR_COPY_ZERO,
    QR_COPY_GATHER,
    QR_COPY_SCATTER
} qr_copy_mode;

typedef struct qr_copy_args {
    unsigned long long chunks; /* qr_chunk[num_chunks] */
    unsigned long long pairs;  /* qr_block_pair[num_pairs] */
    unsigned long long slots;
    unsigned long long slot_bytes;
    unsigned num_chunks; /* in a block */
    unsigned num_pairs;
    unsigned tile; /* items that a CTA looks up at a time */
    unsigned mode;
} qr_copy_args;

typedef struct qr_crc_args {
    unsigned long long chunks;
    unsigned long long pairs;
    unsigned long long tables; /* unsigned[QR_CRC_TABLES][256], then unsigned[32] for lanes */
    unsigned long long
        results; /* unsigned[num_pairs][parts]: their sum is the CRC, but for what all
                                   blocks have in common */
    unsigned num_chunks;
    unsigned num_pairs;
    unsigned team;  /* threads for a part of a block: a power of 2, from 32 on */
    unsigned parts; /* of a block, so that all of the GPU has a little to do */
} qr_crc_args;

typedef struct qr_table_change {
    unsigned long long target; /* place of its first entry, or slot */
    unsigned source;           /* place of its first number among the changes' */
    unsigned count;
    unsigned is_slots; /* numbers of 8 bytes: places count in these */
    unsigned unused;
} qr_table_change;

typedef struct qr_tables_args {
    unsigned long long changes; /* qr_table_change[num_changes] */
    unsigned long long ids;     /* int[] */
    unsigned long long numbers; /* long long[] */
    unsigned long long entries;
    unsigned long long slots;
    unsigned num_changes;
    unsigned unused;
} qr_tables_args;

#endif
