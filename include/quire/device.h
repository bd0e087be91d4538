/* quire/device.h - copies between the engine's KV memory and host memory, in order with the
 * computation.
 *
 *      compute   ── step n ── mark ── step n + 1 ──────────
 *                              │ after
 *      copies                  └──► blocks ──► slots (STORE)      slots ──► blocks (LOAD)
 *
 * block     a block of the engine's KV memory: its pages in all layers, as the device knows them.
 * slot      block_bytes bytes of host memory, at memory + slot * block_bytes.
 * mark      a point in the engine's compute stream: everything submitted before. Copies in BOTH
 *           directions wait for a mark: a store must not read what is still being written, and a
 *           load must not overwrite what is still being read.
 *
 * quire_device_host is a device whose engine memory is a host buffer. Its streams and marks behave
 * like the streams and marks of a GPU, with delays and faults on demand.
 *
 * Threads: one thread calls a device.
 */
#ifndef QUIRE_DEVICE_H
#define QUIRE_DEVICE_H

#include "config.h"
#include "error.h"
#include "memory.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum quire_device_op { QUIRE_DEVICE_STORE = 1, QUIRE_DEVICE_LOAD = 2 } quire_device_op;

typedef struct quire_device_copy { /* final */
    quire_block block;
    uint32_t slot;
    /* Set by the device: CRC32C of the copied bytes; 0 if the device does not compute it. */
    uint32_t crc;
} quire_device_copy;

typedef struct quire_device_job { /* final */
    uint64_t id;                  /* set by the caller */
    quire_device_op op;
    uint32_t num_copies;
    /* The array, its blocks and its slots must stay valid until the job has ended. */
    quire_device_copy *copies;
    uint64_t after; /* a mark: the copies wait for it */
    int status;     /* Set by the device: QUIRE_OK, or QUIRE_E_SYSTEM: the whole job has failed. */
    /* For the device. The caller sets 0 before the first submit; it is 0 after each end. */
    uint32_t state;
    void *next; /* for the device */
} quire_device_job;

typedef struct quire_device_ops {
    uint32_t abi;  /* 1 */
    uint32_t size; /* of this struct */
    const char *name;
    /* Sets *mark to the current end of the compute stream. */
    int (*mark)(void *self, uint64_t *mark);
    /* Starts a job; never waits. Returns QUIRE_FULL if the device has no room for the job;
     * QUIRE_E_RANGE if a block, a slot or the mark does not exist; QUIRE_E_ARGUMENT if the job is
     * already in flight (state is not 0). */
    int (*submit)(void *self, quire_device_job *job);
    /* Writes the jobs that have ended, each once, in any order. Returns their number. */
    uint32_t (*poll)(void *self, quire_device_job **jobs, uint32_t capacity);
    void (*close)(void *self);
} quire_device_ops;

typedef struct quire_device { /* final */
    const quire_device_ops *ops;
    void *self;
} quire_device;

/* Closes the device. Jobs in flight do not complete, and nothing touches their memory any longer.
 * NULL, or a closed device: does nothing. */
QUIRE_API void quire_device_close(quire_device *device);

/* ---- a device of host memory ----------------------------------------------- */

/* Block b lies at blocks + b * block_bytes. One thread computes, a second thread copies. */
typedef struct quire_device_host_config {
    size_t size;
    void *blocks; /* the engine's memory */
    uint32_t num_blocks;
    uint32_t num_slots;
    void *slots;
    uint64_t block_bytes;
    uint32_t max_jobs;  /* the most jobs in flight; 0 = 256 */
    uint32_t max_works; /* the most works in the compute stream; 0 = 256 */
    quire_hooks hooks;
} quire_device_host_config;

#define QUIRE_DEVICE_HOST_CONFIG_INIT QUIRE_SIZED_INIT(quire_device_host_config)

/* Opens the device. Returns QUIRE_E_CONFIG, QUIRE_E_NOMEM or QUIRE_E_SYSTEM; quire_refusal
 * says why and what to do. In the child of a fork the device has no threads: submit returns
 * QUIRE_E_SYSTEM, and close frees only the child's memory. */
QUIRE_API int quire_device_host_open(const quire_device_host_config *config,
                                     const quire_allocator *allocator, quire_device *device);

/* Submits work to the compute stream; the device calls it after all work submitted before. Returns
 * QUIRE_FULL if the stream has no room. Work that is still queued when the device is closed is not
 * called. */
QUIRE_API int quire_device_host_compute(quire_device *device, void (*work)(void *user), void *user);

/* Faults to inject from now on; all 0: no faults. */
typedef struct quire_device_host_faults { /* final */
    uint32_t compute_delay_us;            /* the longest delay before each work */
    uint32_t copy_delay_us;               /* the longest delay before each copy */
    uint32_t fail_per_mille;              /* jobs that fail after some of their copies */
    uint32_t marks_stick;                 /* 1: no further mark is reached */
    uint32_t ignores_marks; /* 1: copies do not wait for their marks, to show the effect */
} quire_device_host_faults;

QUIRE_API int quire_device_host_set_faults(quire_device *device,
                                           const quire_device_host_faults *faults);

/* ---- host memory ----------------------------------------------------------- */

/* Large memory for slots: in huge pages if available, on the chosen NUMA node, not in core dumps,
 * and mapped before the first step. */
typedef struct quire_host_memory quire_host_memory;

typedef struct quire_host_memory_config {
    size_t size;
    uint64_t bytes; /* rounded up to whole pages */
    /* ON: reserved huge pages, or an error. OFF: no huge pages. Default: reserved huge pages if
     * available, otherwise transparent huge pages, otherwise ordinary pages. */
    quire_switch hugepages;
    quire_switch prefault; /* default ON: every page is mapped when open returns */
    quire_switch lock;     /* default OFF; ON: never swapped out, or an error */
    quire_switch bind;     /* default OFF; ON: prefer numa_node, or an error */
    uint32_t numa_node;
    quire_switch dump; /* default OFF: not in core dumps */
    quire_hooks hooks;
} quire_host_memory_config;

#define QUIRE_HOST_MEMORY_CONFIG_INIT QUIRE_SIZED_INIT(quire_host_memory_config)

typedef struct quire_host_memory_info { /* lent */
    void *data;                         /* aligned to page_bytes */
    uint64_t bytes;
    uint64_t page_bytes;
    uint32_t is_huge;        /* reserved huge pages */
    uint32_t is_transparent; /* transparent huge pages were requested from the kernel */
    uint32_t is_prefaulted;
    uint32_t is_locked;
    uint32_t is_bound;
} quire_host_memory_info;

/* Opens the memory. Returns QUIRE_E_NOMEM, QUIRE_E_SYSTEM (a limit, or a NUMA node that does not
 * exist) or QUIRE_E_CONFIG; quire_refusal says which, and what to do. */
QUIRE_API int quire_host_memory_open(const quire_host_memory_config *config,
                                     quire_host_memory **memory);
QUIRE_API void quire_host_memory_close(quire_host_memory *memory); /* NULL: nothing */
/* Valid as long as the memory; NULL if memory is NULL. */
QUIRE_API const quire_host_memory_info *quire_host_memory_get_info(const quire_host_memory *memory);

#ifdef __cplusplus
}
#endif
#endif
