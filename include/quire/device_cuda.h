/* quire/device_cuda.h - a CUDA GPU as a device: KV memory, copies to and from host memory, copies
 * between blocks, block tables.
 *
 *      engine's stream    ── step n ── mark ── step n + 1 ──── copy_blocks, zero_blocks, tables
 *                                       │ after
 *      store stream                     ├──► pieces of blocks ──► slots       (low priority)
 *      load stream                      └──► slots ──► pieces of blocks       (low priority)
 *
 * quire_cuda     a GPU: the driver (opened at run time: the library does not link CUDA), its
 *                context, and the kernels of this library.
 * region         where the pieces of all blocks lie for one layer: piece b at base + b * stride. A
 *                block consists of its pieces in all regions; a slot has them one after the other.
 * quire_device   a device of quire/device.h, over regions and slots. The copy engine moves large
 *                pieces, a block or a batch at a time. Small pieces of large blocks are gathered on
 *                the GPU, and the copy engine moves whole blocks. A kernel that reads or writes
 *                host memory directly moves small blocks.
 *
 * Errors: any CUDA error other than "not ready" marks the GPU as broken. Jobs in flight then end
 * with QUIRE_E_SYSTEM as soon as nothing touches their memory any longer, and later jobs are
 * refused with QUIRE_E_SYSTEM; quire_cuda_get_info has the error. The library does not abort.
 *
 * Threads: one thread at a time may use a quire_cuda and everything opened on it. In the child of a
 * fork all calls return QUIRE_E_SYSTEM, and close frees nothing of the GPU.
 *
 * Graphs: poll queries events and streams. CUDA does not allow this while another thread captures
 * in global mode: the capture is then broken, and jobs end later. So capture in thread-local or
 * relaxed mode. During a capture do not open or close anything, and call nothing here while the
 * engine's own stream is captured.
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
    const char *library; /* the driver; NULL: $QUIRE_CUDA_LIBRARY, or libcuda.so.1 */
    uint32_t device;     /* number of the GPU; ignored with a context */
    /* The engine's CUcontext; NULL: the primary context of the device, which CUDA's runtime and
     * PyTorch use too. */
    void *context;
    void *stream;         /* the engine's CUstream; NULL: the default stream */
    quire_switch kernels; /* default ON: if they are built in and the driver accepts them */
    quire_hooks hooks;
} quire_cuda_config;

#define QUIRE_CUDA_CONFIG_INIT QUIRE_SIZED_INIT(quire_cuda_config)

typedef struct quire_cuda_info { /* lent */
    char name[64];
    int driver_version;  /* 13000 is 13.0 */
    uint32_t capability; /* 90 is 9.0 */
    uint32_t num_multiprocessors;
    uint64_t total_bytes;
    uint64_t free_bytes; /* now; 0 if it is unknown */
    uint32_t has_kernels;
    uint32_t has_batches; /* cuMemcpyBatchAsync, since CUDA 12.8 */
    uint32_t is_broken;
    char what[160]; /* why the GPU is broken, or why there are no kernels */
} quire_cuda_info;

/* Opens a GPU. QUIRE_E_SYSTEM: no driver, no such device, or the driver is too old; also
 * QUIRE_E_CONFIG and QUIRE_E_NOMEM. quire_refusal says which, and what to do. */
QUIRE_API int quire_cuda_open(const quire_cuda_config *config, const quire_allocator *allocator,
                              quire_cuda **cuda);
/* Closes the GPU, after everything that was opened on it. NULL: does nothing. */
QUIRE_API void quire_cuda_close(quire_cuda *cuda);
/* Valid until the next call with this GPU; NULL if cuda is NULL. */
QUIRE_API const quire_cuda_info *quire_cuda_get_info(quire_cuda *cuda);

/* Host memory that the GPU can access. QUIRE_E_NOMEM, QUIRE_E_SYSTEM. */
QUIRE_API int quire_cuda_host_alloc(quire_cuda *cuda, uint64_t bytes, void **memory);
QUIRE_API void quire_cuda_host_free(quire_cuda *cuda, void *memory); /* NULL: nothing */

/* ---- KV memory ------------------------------------------------------------- */

typedef struct quire_cuda_region { /* final */
    uint64_t base;                 /* device address of the piece of block 0 */
    uint64_t stride; /* bytes from the piece of one block to the piece of the next block */
    uint64_t bytes;  /* of a piece */
} quire_cuda_region;

typedef enum quire_cuda_layout {
    /* [layer][block][bytes]: like vLLM, one tensor for each layer. */
    QUIRE_CUDA_LAYER_OUTER = 0,
    QUIRE_CUDA_BLOCK_OUTER = 1 /* [block][layer][bytes]: a block is one piece */
} quire_cuda_layout;

typedef struct quire_cuda_arena quire_cuda_arena;

typedef struct quire_cuda_arena_config {
    size_t size;
    uint32_t num_layers;
    uint32_t num_blocks;
    uint64_t bytes; /* bytes of one layer in a block */
    quire_cuda_layout layout;
} quire_cuda_arena_config;

#define QUIRE_CUDA_ARENA_CONFIG_INIT QUIRE_SIZED_INIT(quire_cuda_arena_config)

/* Allocates zeroed KV memory. QUIRE_E_NOMEM: quire_refusal says how much was requested, and how
 * much is free. */
QUIRE_API int quire_cuda_arena_open(quire_cuda *cuda, const quire_cuda_arena_config *config,
                                    quire_cuda_arena **arena);
QUIRE_API void quire_cuda_arena_close(quire_cuda_arena *arena); /* NULL: nothing */

typedef struct quire_cuda_arena_view { /* final */
    uint64_t base;
    uint64_t bytes;                   /* of the whole arena */
    const quire_cuda_region *regions; /* one for each layer; valid as long as the arena */
    uint32_t num_regions;
} quire_cuda_arena_view;

QUIRE_API quire_cuda_arena_view quire_cuda_arena_get_view(const quire_cuda_arena *arena);

/* ---- the device ------------------------------------------------------------ */

/* Which processor computes the CRC32C of stored bytes. NONE (default): crc is 0. GPU: a kernel
 * beside the copy, which reads device memory once more. HOST: the caller's processor, in poll. */
typedef enum quire_cuda_crc {
    QUIRE_CUDA_CRC_DEFAULT = 0,
    QUIRE_CUDA_CRC_GPU = 1,
    QUIRE_CUDA_CRC_HOST = 2,
    QUIRE_CUDA_CRC_NONE = 3
} quire_cuda_crc;

/* How pieces are moved: BY_SIZE (default) chooses, the others always use one method. */
typedef enum quire_cuda_method {
    QUIRE_CUDA_BY_SIZE = 0,
    QUIRE_CUDA_KERNEL = 1, /* requires regions and slots at multiples of 16 */
    QUIRE_CUDA_BATCH = 2,
    QUIRE_CUDA_LOOP = 3, /* one call for each piece: for drivers without other methods */
    /* A kernel copies between pieces and a little device memory in which blocks lie as in slots,
     * and the copy engine moves that memory. Requirements as KERNEL. */
    QUIRE_CUDA_STAGED = 4,
    /* The copy engine, with one call for all pieces of a block in regions of one size at equal
     * distances. */
    QUIRE_CUDA_ROWS = 5
} quire_cuda_method;

typedef struct quire_device_cuda_config {
    size_t size;
    quire_cuda *cuda;
    const quire_cuda_region *regions; /* the engine's tensors, or an arena's regions; copied */
    uint32_t num_regions;
    uint32_t num_blocks;
    uint32_t num_slots;
    void *slots; /* num_slots times the bytes of all regions together */
    /* Default ON: pins the slots, unless they are pinned; their 4 KiB pages must not contain other
     * data. OFF: the slots must be pinned, otherwise an error. If several devices share slots, pin
     * the slots yourself: when the device that pinned them is closed, they are no longer pinned for
     * any device. */
    quire_switch pin;
    uint32_t max_jobs; /* the most jobs in flight; 0 = 256 */
    /* The most copies of a job, of copy_blocks or of zero_blocks; 0 = 256. */
    uint32_t max_copies;
    uint32_t max_pieces; /* the most pieces that the copy engine has at a time; 0 = 16,384 */
    quire_cuda_method method;
    /* BY_SIZE: pieces of at least this size use the copy engine; 0 = 64 KiB. */
    uint64_t engine_from;
    /* KERNEL: CTAs of a launch that loads, with one warp each; a launch that stores has half as
     * many. A small number leaves the GPU to the engine; 0 = 48. */
    uint32_t num_ctas;
    quire_cuda_crc crc;
    quire_hooks hooks;
    /* BY_SIZE: smaller pieces, of blocks of at least this size, are staged; 0 = 128 KiB. */
    uint64_t staged_from;
    /* Device memory of a stage; there are 6 stages. At least one block, at most max_copies blocks;
     * 0 = 8 MiB. */
    uint64_t stage_bytes;
    /* The most bytes that the copy engine has at a time, each way; 0 = 512 MiB. With more, submit
     * may wait for the driver. Poll at least every 10 ms to keep a fast bus busy with 512 MiB. */
    uint64_t max_bytes;
} quire_device_cuda_config;

#define QUIRE_DEVICE_CUDA_CONFIG_INIT QUIRE_SIZED_INIT(quire_device_cuda_config)

/* Opens a device. QUIRE_E_CONFIG; QUIRE_E_NOMEM (host memory, GPU memory, or memory that can be
 * pinned); QUIRE_E_SYSTEM. Beyond quire/device.h:
 *   mark    is an event in the engine's stream.
 *   submit  returns QUIRE_E_RANGE also for more copies than max_copies, and QUIRE_E_SYSTEM if the
 *           GPU is broken.
 *   crc     of a LOAD is 0.
 *   close   waits for the jobs in flight: a GPU cannot cancel them. */
QUIRE_API int quire_device_cuda_open(const quire_device_cuda_config *config,
                                     const quire_allocator *allocator, quire_device *device);

typedef struct quire_cuda_pair { /* final */
    quire_block from;
    quire_block to;
} quire_cuda_pair;

/* Copy or zero blocks in the engine's stream, after everything submitted before, in one launch. No
 * block may be twice in to, or in both from and to. QUIRE_FULL: too many such calls are in flight;
 * also QUIRE_E_RANGE and QUIRE_E_SYSTEM. Without kernels: one driver call for each piece. */
QUIRE_API int quire_device_cuda_copy_blocks(quire_device *device, const quire_cuda_pair *pairs,
                                            uint32_t n);
QUIRE_API int quire_device_cuda_zero_blocks(quire_device *device, const quire_block *blocks,
                                            uint32_t n);

typedef struct quire_device_cuda_stats { /* lent */
    uint64_t jobs;
    uint64_t failed_jobs;
    uint64_t bytes_stored;
    uint64_t bytes_loaded;
    quire_cuda_method method; /* method of loads */
    quire_cuda_method store_method;
    quire_cuda_crc crc;
    uint32_t pieces_in_block; /* adjacent regions count as one */
    uint32_t in_flight;
} quire_device_cuda_stats;

/* Valid until the next call with this device; NULL if device is not such a device. */
QUIRE_API const quire_device_cuda_stats *quire_device_cuda_get_stats(const quire_device *device);

/* For tests: ignores_marks shows the effect of the marks. */
QUIRE_API int quire_device_cuda_ignore_marks(quire_device *device, uint32_t ignores_marks);

/* ---- block tables ---------------------------------------------------------- */

/* Block tables (int32, num_rows x row_stride) and slot mapping (int64) in device memory, for
 * attention kernels. The changes of a step are sent in one launch:
 *
 *      set(row, first, ids) ... slots(first, slots) ... send ──► one kernel in the engine's stream
 *
 * The changes of a step in flight stay in pinned memory; there is memory for `depth` steps. */
typedef struct quire_cuda_tables quire_cuda_tables;

typedef struct quire_cuda_tables_config {
    size_t size;
    quire_cuda *cuda;
    uint32_t num_rows;
    uint32_t row_stride; /* entries of a row */
    uint32_t num_slots;  /* slots of the slot mapping */
    /* The most calls of set and set_slots in a step; 0 = 2 x num_rows + 16. */
    uint32_t max_changes;
    /* The most entries in a step, where a slot counts twice; 0 = num_rows x row_stride (at most 1
     * Mi) + 2 x num_slots. */
    uint32_t max_entries;
    uint32_t depth; /* the most steps in flight; 0 = 4 */
} quire_cuda_tables_config;

#define QUIRE_CUDA_TABLES_CONFIG_INIT QUIRE_SIZED_INIT(quire_cuda_tables_config)

/* Opens tables. Entries begin as 0, slots as -1. QUIRE_E_SYSTEM if there are no kernels. */
QUIRE_API int quire_cuda_tables_open(const quire_cuda_tables_config *config,
                                     const quire_allocator *allocator, quire_cuda_tables **tables);
QUIRE_API void quire_cuda_tables_close(quire_cuda_tables *tables); /* waits; NULL: nothing */

/* Changes entries or slots. QUIRE_E_RANGE: outside the table. QUIRE_FULL: no room until the next
 * send, or all steps are in flight: wait for one. The changes of one step must not overlap. */
QUIRE_API int quire_cuda_tables_set(quire_cuda_tables *tables, uint32_t row, uint32_t first,
                                    const int32_t *ids, uint32_t n);
QUIRE_API int quire_cuda_tables_set_slots(quire_cuda_tables *tables, uint32_t first,
                                          const int64_t *slots, uint32_t n);
/* Sends the changes; without changes does nothing. QUIRE_E_SYSTEM if the GPU is broken. */
QUIRE_API int quire_cuda_tables_send(quire_cuda_tables *tables);

typedef struct quire_cuda_tables_view { /* final */
    uint64_t entries;                   /* device addresses */
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
