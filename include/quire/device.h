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
    uint32_t crc; /* STORE: set, CRC32C of what is in the slot */
} quire_device_copy;

typedef struct quire_device_job {
    uint64_t id; /* the caller's */
    quire_device_op op;
    uint32_t num_copies;
    quire_device_copy *copies; /* stay until the job ended, as do its blocks and slots */
    uint64_t after;            /* a mark */
    int status;                /* set: QUIRE_OK, or QUIRE_E_SYSTEM: none of it counts */
    uint32_t state;            /* the device's own, */
    void *next;                /* and this */
} quire_device_job;

typedef struct quire_device_ops {
    uint32_t abi;  /* 1 */
    uint32_t size; /* of this struct */
    const char *name;
    /* The present end of the compute stream. */
    int (*mark)(void *self, uint64_t *mark);
    /* Starts a job; never waits. QUIRE_FULL: not taken. */
    int (*submit)(void *self, quire_device_job *job);
    /* Jobs that ended, each once, in any order; returns how many. */
    uint32_t (*poll)(void *self, quire_device_job **jobs, uint32_t capacity);
    void (*close)(void *self);
} quire_device_ops;

typedef struct quire_device {
    const quire_device_ops *ops;
    void *self;
} quire_device;

#ifdef __cplusplus
}
#endif
#endif
