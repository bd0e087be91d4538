/* quire/device.h - copies between the engine's KV memory and host memory, in order with what it
 * computes.
 *
 *      compute   ── step n ── mark ── step n + 1 ──────────
 *                              │ after
 *      copies                  └──► blocks ──► slots (STORE)      slots ──► blocks (LOAD)
 *
 * block     of the engine's KV memory: its pages in all layers, as the device knows them.
 * slot      block_bytes of host memory, at memory + slot * block_bytes.
 * mark      a point in the engine's compute stream: everything given to it before. Copies of BOTH
 *           directions wait for one: a store must not read what is still being written, a load must
 *           not write what is still being read.
 *
 * quire_device_host is a device whose engine memory is a host buffer, with streams and marks that
 * behave as a GPU's do, and delays and faults on demand.
 *
 * Threads: one calls.
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

typedef struct quire_device_copy {
    quire_block block;
    uint32_t slot;
    uint32_t crc; /* set, CRC32C of what was copied; 0 where the device does not know it */
} quire_device_copy;

typedef struct quire_device_job {
    uint64_t id; /* the caller's */
    quire_device_op op;
    uint32_t num_copies;
    quire_device_copy *copies; /* stay until the job ended, as do its blocks and slots */
    uint64_t after;            /* a mark */
    int status;                /* set: QUIRE_OK, or QUIRE_E_SYSTEM: none of it counts */
    uint32_t state;            /* the device's own: 0 before the first submit, and after each end */
    void *next;                /* the device's own */
} quire_device_job;

typedef struct quire_device_ops {
    uint32_t abi;  /* 1 */
    uint32_t size; /* of this struct */
    const char *name;
    /* The present end of the compute stream. */
    int (*mark)(void *self, uint64_t *mark);
    /* Starts a job; never waits. QUIRE_FULL: not taken. QUIRE_E_RANGE: no such block, slot or mark;
     * QUIRE_E_ARGUMENT: it is in flight already (state is not 0). */
    int (*submit)(void *self, quire_device_job *job);
    /* Jobs that ended, each once, in any order; returns how many. */
    uint32_t (*poll)(void *self, quire_device_job **jobs, uint32_t capacity);
    void (*close)(void *self);
} quire_device_ops;

typedef struct quire_device {
    const quire_device_ops *ops;
    void *self;
} quire_device;

/* Closes and forgets it. Jobs in flight do not come back, and nothing touches their memory any
 * more. NULL, or a device that is closed, is fine. */
QUIRE_API void quire_device_close(quire_device *device);

/* ---- a device of host memory ----------------------------------------------- */

/* Block b lies at blocks + b * block_bytes. A thread of its own computes, a second one copies. */
typedef struct quire_device_host_config {
    size_t size;
    void *blocks; /* the engine's memory */
    uint32_t num_blocks;
    uint32_t num_slots;
    void *slots;
    uint64_t block_bytes;
    uint32_t max_jobs;  /* in flight; 0 = 256 */
    uint32_t max_works; /* in the compute stream; 0 = 256 */
    quire_hooks hooks;
} quire_device_host_config;

#define QUIRE_DEVICE_HOST_CONFIG_INIT QUIRE_SIZED_INIT(quire_device_host_config)

/* QUIRE_E_CONFIG, QUIRE_E_NOMEM, QUIRE_E_SYSTEM; message, where given, says why and what to do. In
 * the child of a fork the device has no threads: jobs are not taken (QUIRE_E_SYSTEM), and closing
 * it frees the child's memory only. */
QUIRE_API int quire_device_host_open(const quire_device_host_config *config,
                                     const quire_allocator *allocator, quire_device *device,
                                     char *message, size_t message_bytes);

/* Work for the compute stream: called there after all that was given before. QUIRE_FULL: not
 * taken. What is left when the device is closed is not called. */
QUIRE_API int quire_device_host_compute(quire_device *device, void (*work)(void *user), void *user);

/* What goes wrong, from now on; all zeros: nothing. */
typedef struct quire_device_host_faults {
    uint32_t compute_delay_us; /* before each work, up to */
    uint32_t copy_delay_us;    /* before each copy, up to */
    uint32_t fail_per_mille;   /* of the jobs, after some of their copies */
    uint32_t marks_stick;      /* no further mark is reached */
    uint32_t ignores_marks;    /* copies do not wait for theirs: shows what the waiting is for */
} quire_device_host_faults;

QUIRE_API int quire_device_host_set_faults(quire_device *device,
                                           const quire_device_host_faults *faults);

/* ---- host memory ----------------------------------------------------------- */

/* Large memory for slots: in huge pages where there are some, near the right processor, not in core
 * dumps, and there before the first step. */
typedef struct quire_host_memory quire_host_memory;

typedef struct quire_host_memory_config {
    size_t size;
    uint64_t bytes; /* is rounded up to whole pages */
    /* ON: reserved ones or an error; OFF: none; default: reserved ones, else transparent ones, else
     * ordinary ones */
    quire_switch hugepages;
    quire_switch prefault; /* default ON: every page is there when this returns */
    quire_switch lock;     /* default OFF; ON: it is never swapped out, or an error */
    quire_switch bind;     /* default OFF; ON: numa_node is preferred, or an error */
    uint32_t numa_node;
    quire_switch dump; /* default OFF: core dumps leave it out */
    quire_hooks hooks;
} quire_host_memory_config;

#define QUIRE_HOST_MEMORY_CONFIG_INIT QUIRE_SIZED_INIT(quire_host_memory_config)

typedef struct quire_host_memory_info {
    void *data; /* aligned to page_bytes */
    uint64_t bytes;
    uint64_t page_bytes;
    uint32_t is_huge;        /* reserved huge pages */
    uint32_t is_transparent; /* huge pages were asked for, as the kernel has them */
    uint32_t is_prefaulted;
    uint32_t is_locked;
    uint32_t is_bound;
} quire_host_memory_info;

/* QUIRE_E_NOMEM, QUIRE_E_SYSTEM (a limit, or a node that is not there), QUIRE_E_CONFIG; message
 * says which, and what to do. */
QUIRE_API int quire_host_memory_open(const quire_host_memory_config *config,
                                     quire_host_memory **memory, char *message,
                                     size_t message_bytes);
QUIRE_API void quire_host_memory_close(quire_host_memory *memory); /* NULL is fine */
/* All zeros for NULL. */
QUIRE_API quire_host_memory_info quire_host_memory_get_info(const quire_host_memory *memory);

#ifdef __cplusplus
}
#endif
#endif
