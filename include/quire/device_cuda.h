/* quire/device_cuda.h - a device that is a GPU: KV memory there, copies to and from host memory,
 * copies between blocks, block tables.
 *
 *      engine's stream    ── step n ── mark ── step n + 1 ──── copy_blocks, zero_blocks, tables
 *                                       │ after
 *      store stream                     ├──► pieces of blocks ──► slots       (low priority)
 *      load stream                      └──► slots ──► pieces of blocks       (low priority)
 *
 * quire_cuda     a GPU: the driver (opened at run time: nothing of CUDA is linked), its context,
 *                the kernels of this library.
 * region         where the pieces of all blocks lie for one layer: piece b at base + b * stride.
 *                A block is its pieces in all regions; a slot has them one behind the other.
 * quire_device   of quire/device.h, over regions and slots. Large pieces are moved by the copy
 *                engine, a block or a batch at a time; small pieces of large blocks are gathered
 *                on the GPU, and the copy engine moves whole blocks; small blocks are moved by a
 *                kernel that reads or writes host memory itself.
 *
 * Errors: what CUDA answers beyond "not ready" marks the GPU as broken. Jobs in flight then end
 * with QUIRE_E_SYSTEM as soon as nothing touches their memory any more, later ones are refused
 * with QUIRE_E_SYSTEM; quire_cuda_get_info says what it was. Nothing aborts.
 *
 * Threads: one at a time for a quire_cuda and what was opened on it. In the child of a fork all
 * calls give QUIRE_E_SYSTEM, and closing frees nothing of the GPU's.
 *
 * Graphs: poll asks events and streams, which CUDA does not allow while another thread captures in
 * global mode: that capture is broken, and jobs end later. Capture in thread-local or relaxed mode.
 * Open and close nothing then, and call nothing here while the engine's own stream is captured.
 */
#ifndef QUIRE_DEVICE_CUDA_H
#define QUIRE_DEVICE_CUDA_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a GPU ----------------------------------------------------------------- */

typedef struct quire_cuda quire_cuda;

typedef struct quire_cuda_config {
    size_t size;
    const char *library;  /* the driver; NULL: $QUIRE_CUDA_LIBRARY, else libcuda.so.1 */
    uint32_t device;      /* its number; not used with a context */
    void *context;        /* the engine's CUcontext; NULL: the device's primary one, which is also
                            what CUDA's runtime and PyTorch use */
    void *stream;         /* the engine's CUstream; NULL: the default stream */
    quire_switch kernels; /* default ON: where they were built in and the driver takes them */
    quire_hooks hooks;
} quire_cuda_config;

#define QUIRE_CUDA_CONFIG_INIT QUIRE_SIZED_INIT(quire_cuda_config)

typedef struct quire_cuda_info {
    char name[64];
    int driver_version;  /* 13000 is 13.0 */
    uint32_t capability; /* 90 is 9.0 */
    uint32_t num_multiprocessors;
    uint64_t total_bytes;
    uint64_t free_bytes; /* now; 0 where it cannot be asked */
    uint32_t has_kernels;
    uint32_t has_batches; /* cuMemcpyBatchAsync, since 12.8 */
    uint32_t is_broken;
    char what[160]; /* why it is broken, or why there are no kernels */
} quire_cuda_info;

/* QUIRE_E_SYSTEM: no driver, no such device, a driver that is too old; QUIRE_E_CONFIG,
 * QUIRE_E_NOMEM. message says which, and what to do. */
QUIRE_API int quire_cuda_open(const quire_cuda_config *config, const quire_allocator *allocator,
                              quire_cuda **cuda, char *message, size_t message_bytes);
/* After all that was opened on it. NULL is fine. */
QUIRE_API void quire_cuda_close(quire_cuda *cuda);
QUIRE_API quire_cuda_info quire_cuda_get_info(const quire_cuda *cuda);

/* Host memory that the GPU reaches itself. QUIRE_E_NOMEM, QUIRE_E_SYSTEM. */
QUIRE_API int quire_cuda_host_alloc(quire_cuda *cuda, uint64_t bytes, void **memory);
QUIRE_API void quire_cuda_host_free(quire_cuda *cuda, void *memory); /* NULL is fine */

/* ---- KV memory ------------------------------------------------------------- */

typedef struct quire_cuda_region {
    uint64_t base;   /* device address of block 0's piece */
    uint64_t stride; /* from one block's piece to the next one's */
    uint64_t bytes;  /* of a piece */
} quire_cuda_region;

typedef enum quire_cuda_layout {
    QUIRE_CUDA_LAYER_OUTER = 0, /* [layer][block][bytes]: as vLLM's tensors, one for each layer */
    QUIRE_CUDA_BLOCK_OUTER = 1  /* [block][layer][bytes]: a block is one piece */
} quire_cuda_layout;

typedef struct quire_cuda_arena quire_cuda_arena;

typedef struct quire_cuda_arena_config {
    size_t size;
    uint32_t num_layers;
    uint32_t num_blocks;
    uint64_t bytes; /* of one layer's part of a block */
    quire_cuda_layout layout;
} quire_cuda_arena_config;

#define QUIRE_CUDA_ARENA_CONFIG_INIT QUIRE_SIZED_INIT(quire_cuda_arena_config)

/* Zeroed. QUIRE_E_NOMEM: message says how much was asked for, and how much there is. */
QUIRE_API int quire_cuda_arena_open(quire_cuda *cuda, const quire_cuda_arena_config *config,
                                    quire_cuda_arena **arena, char *message, size_t message_bytes);
QUIRE_API void quire_cuda_arena_close(quire_cuda_arena *arena); /* NULL is fine */

typedef struct quire_cuda_arena_view {
    uint64_t base;
    uint64_t bytes;                   /* of all */
    const quire_cuda_region *regions; /* one for each layer, as long as the arena */
    uint32_t num_regions;
} quire_cuda_arena_view;

QUIRE_API quire_cuda_arena_view quire_cuda_arena_get_view(const quire_cuda_arena *arena);

/* ---- the device ------------------------------------------------------------ */

/* CRC32C of what is stored: not at all (default: crc is 0, and whoever wants one computes it), by a
 * kernel beside the copy, which reads device memory once more, or by the caller's processor in
 * poll. */
typedef enum quire_cuda_crc {
    QUIRE_CUDA_CRC_DEFAULT = 0,
    QUIRE_CUDA_CRC_GPU = 1,
    QUIRE_CUDA_CRC_HOST = 2,
    QUIRE_CUDA_CRC_NONE = 3
} quire_cuda_crc;

/* How pieces move: by their size (default), or always the same way. */
typedef enum quire_cuda_method {
    QUIRE_CUDA_BY_SIZE = 0,
    QUIRE_CUDA_KERNEL = 1, /* needs regions and slots at multiples of 16 */
    QUIRE_CUDA_BATCH = 2,
    QUIRE_CUDA_LOOP = 3,   /* one call for each piece: for drivers that have nothing else */
    QUIRE_CUDA_STAGED = 4, /* a kernel between pieces and a little device memory in which blocks lie
                              as in slots, and the copy engine from there on; as KERNEL */
    QUIRE_CUDA_ROWS = 5    /* the copy engine, one call for a block's pieces in regions of one size
                              at equal distances */
} quire_cuda_method;

typedef struct quire_device_cuda_config {
    size_t size;
    quire_cuda *cuda;
    const quire_cuda_region *regions; /* the engine's tensors, or an arena's; copied */
    uint32_t num_regions;
    uint32_t num_blocks;
    uint32_t num_slots;
    void *slots; /* num_slots times the regions' bytes together */
    /* default ON: slots are pinned here, unless they are already; their pages (of 4 KiB) must be
     * theirs alone. OFF: they are pinned, or it is an error. Where several devices share slots, pin
     * them yourself: closing the device that pinned them ends it for all */
    quire_switch pin;
    uint32_t max_jobs;   /* in flight; 0 = 256 */
    uint32_t max_copies; /* in a job, or a call of copy_blocks or zero_blocks; 0 = 256 */
    uint32_t max_pieces; /* that the copy engine has at a time; 0 = 16,384 */
    quire_cuda_method method;
    uint64_t engine_from; /* BY_SIZE: pieces from here on use the copy engine; 0 = 64 KiB */
    /* KERNEL: CTAs of a launch that loads, one warp each; half as many store. So that the engine
     * keeps its GPU; 0 = 64 */
    uint32_t num_ctas;
    quire_cuda_crc crc;
    quire_hooks hooks;
    uint64_t staged_from; /* BY_SIZE: smaller pieces, of blocks from here on, are staged;
                             0 = 128 KiB */
    uint64_t stage_bytes; /* device memory of a stage, of which there are 6; at least a block, at
                             most max_copies of them; 0 = 8 MiB */
} quire_device_cuda_config;

#define QUIRE_DEVICE_CUDA_CONFIG_INIT QUIRE_SIZED_INIT(quire_device_cuda_config)

/* QUIRE_E_CONFIG, QUIRE_E_NOMEM (of the host, of the GPU, of what can be pinned), QUIRE_E_SYSTEM.
 * As quire/device.h says, and:
 *   mark    an event in the engine's stream.
 *   submit  QUIRE_E_RANGE also for more copies than max_copies, QUIRE_E_SYSTEM when it is broken.
 *   crc     of a LOAD is 0.
 *   close   waits for what is in flight: what was given to a GPU cannot be taken back. */
QUIRE_API int quire_device_cuda_open(const quire_device_cuda_config *config,
                                     const quire_allocator *allocator, quire_device *device,
                                     char *message, size_t message_bytes);

typedef struct quire_cuda_pair {
    quire_block from;
    quire_block to;
} quire_cuda_pair;

/* In the engine's stream, after what it was given before, in one launch. No block stands in to
 * twice, or in both. QUIRE_FULL: too many such calls are on their way; QUIRE_E_RANGE,
 * QUIRE_E_SYSTEM. Without kernels as many calls as there are pieces. */
QUIRE_API int quire_device_cuda_copy_blocks(quire_device *device, const quire_cuda_pair *pairs,
                                            uint32_t n);
QUIRE_API int quire_device_cuda_zero_blocks(quire_device *device, const quire_block *blocks,
                                            uint32_t n);

typedef struct quire_device_cuda_stats {
    uint64_t jobs;
    uint64_t failed_jobs;
    uint64_t bytes_stored;
    uint64_t bytes_loaded;
    quire_cuda_method method; /* of loads */
    quire_cuda_method store_method;
    quire_cuda_crc crc;
    uint32_t pieces_in_block; /* regions that lie one behind the other are one */
    uint32_t in_flight;
} quire_device_cuda_stats;

QUIRE_API quire_device_cuda_stats quire_device_cuda_get_stats(const quire_device *device);

/* For tests: ignores_marks shows what the waiting is for. */
QUIRE_API int quire_device_cuda_ignore_marks(quire_device *device, uint32_t ignores_marks);

/* ---- block tables ---------------------------------------------------------- */

/* Block tables (int32, num_rows x row_stride) and slot mapping (int64) in device memory, as
 * attention kernels read them. What changed in a step is sent in one launch:
 *
 *      set(row, first, ids) ... slots(first, slots) ... send ──► one kernel in the engine's stream
 *
 * Steps that are on their way keep their changes in pinned memory of their own, `depth` of them. */
typedef struct quire_cuda_tables quire_cuda_tables;

typedef struct quire_cuda_tables_config {
    size_t size;
    quire_cuda *cuda;
    uint32_t num_rows;
    uint32_t row_stride;  /* entries in a row */
    uint32_t num_slots;   /* of the slot mapping */
    uint32_t max_changes; /* calls of set and slots in a step; 0 = 2 x num_rows + 16 */
    uint32_t max_entries; /* entries in a step, slots counted twice; 0 = num_rows x row_stride (at
                             most 1 Mi) + 2 x num_slots */
    uint32_t depth;       /* steps; 0 = 4 */
} quire_cuda_tables_config;

#define QUIRE_CUDA_TABLES_CONFIG_INIT QUIRE_SIZED_INIT(quire_cuda_tables_config)

/* Entries begin as 0, slots as -1. Needs kernels: QUIRE_E_SYSTEM else. */
QUIRE_API int quire_cuda_tables_open(const quire_cuda_tables_config *config,
                                     const quire_allocator *allocator, quire_cuda_tables **tables,
                                     char *message, size_t message_bytes);
QUIRE_API void quire_cuda_tables_close(quire_cuda_tables *tables); /* waits; NULL is fine */

/* QUIRE_E_RANGE outside the table; QUIRE_FULL: no room before the next send, or all steps are still
 * on their way: wait for one. Changes of one step must not overlap. */
QUIRE_API int quire_cuda_tables_set(quire_cuda_tables *tables, uint32_t row, uint32_t first,
                                    const int32_t *ids, uint32_t n);
QUIRE_API int quire_cuda_tables_set_slots(quire_cuda_tables *tables, uint32_t first,
                                          const int64_t *slots, uint32_t n);
/* Nothing to send is fine. QUIRE_E_SYSTEM. */
QUIRE_API int quire_cuda_tables_send(quire_cuda_tables *tables);

typedef struct quire_cuda_tables_view {
    uint64_t entries; /* device addresses */
    uint64_t slots;
    uint32_t num_rows;
    uint32_t row_stride;
    uint32_t num_slots;
} quire_cuda_tables_view;

QUIRE_API quire_cuda_tables_view quire_cuda_tables_get_view(const quire_cuda_tables *tables);

#ifdef __cplusplus
}
#endif
#endif
