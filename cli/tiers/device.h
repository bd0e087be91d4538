/* cli/tiers/device.h - a device whose copies take simulated time.
 *
 *      mark        the end of all that the GPU was given
 *      STORE  ── after the mark ──► one link to the host ──┐ bytes / s, one job behind the other,
 *      LOAD   ── after the mark ──► one link back ─────────┘ each with some latency
 *
 * There are no bytes, unless somebody hangs some on: see `done`.
 */
#ifndef QUIRE_CLI_TIERS_DEVICE_H
#define QUIRE_CLI_TIERS_DEVICE_H

#include "queue.h"

#include <quire/device.h>

typedef struct tiers_device {
    quire_device device; /* for quire_offload */
    uint64_t block_bytes;
    tiers_queue stores;
    tiers_queue loads;
    double failures;
    uint64_t dice;
    uint64_t in_blocks; /* that came to the host, and went back */
    uint64_t out_blocks;
    uint64_t failed_blocks;

    void *user;
    uint64_t (*now_ns)(void *user);
    uint64_t (*compute_end_ns)(void *user); /* of what the GPU was given */

    /* Bytes that hang on: a job is taken, and has ended well; NULL: not told. */
    void *bytes_user;
    void (*begun)(void *user, const quire_device_job *job);
    void (*done)(void *user, quire_device_job *job);
} tiers_device;

/* The owner has filled in block_bytes, failures, the functions, and both queues by
 * tiers_queue_init. */
void tiers_device_init(tiers_device *d);
/* When the next job ends; UINT64_MAX: there is none. */
uint64_t tiers_device_next_ns(const tiers_device *d);
void tiers_device_free(tiers_device *d);

#endif
