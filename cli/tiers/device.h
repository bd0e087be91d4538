/* cli/tiers/device.h - links whose jobs take simulated time, and a device that copies over two.
 *
 *      mark        the end of all that the GPU was given
 *      STORE  ── after the mark ──► one link to the host ──┐ bytes / s, one job behind the other,
 *      LOAD   ── after the mark ──► one link back ─────────┘ each with some latency
 *
 * There are no bytes, unless somebody hangs some on: see `done`.
 */
#ifndef QUIRE_CLI_TIERS_DEVICE_H
#define QUIRE_CLI_TIERS_DEVICE_H

#include <quire/device.h>

#include <stdbool.h>
#include <stdint.h>

/* ---- a link ---------------------------------------------------------------- */

/* Jobs that go over it, one behind the other:
 *
 *      first                       last
 *      [job, end] [job, end] [job, end]       ends do not decrease
 */
typedef struct tiers_queue_entry {
    void *job;
    uint64_t end_ns;
} tiers_queue_entry;

typedef struct tiers_queue {
    double ns_per_byte;
    uint64_t latency_ns;
    uint64_t free_ns; /* the link has carried all by then */
    tiers_queue_entry *entries;
    uint32_t capacity;
    uint32_t first;
    uint32_t num;
} tiers_queue;

/* False: no memory. */
bool tiers_queue_init(tiers_queue *q, uint32_t capacity, double bytes_per_s, double latency_s);
void tiers_queue_free(tiers_queue *q);

static inline bool tiers_queue_is_full(const tiers_queue *q)
{
    return q->num == q->capacity;
}

/* Goes over the link when it is free, not before from_ns. There is room. */
void tiers_queue_put(tiers_queue *q, void *job, uint64_t from_ns, uint64_t bytes);
/* Ends now, since it is not tried; behind those that are on their way. */
void tiers_queue_put_failed(tiers_queue *q, void *job, uint64_t now_ns);
/* The link is taken for so many bytes of others. */
void tiers_queue_delay(tiers_queue *q, uint64_t from_ns, uint64_t bytes);
/* The first, when its time has come, or NULL. */
void *tiers_queue_take(tiers_queue *q, uint64_t now_ns);
/* When the first ends; UINT64_MAX: there is none. */
uint64_t tiers_queue_next_ns(const tiers_queue *q);

/* A number in [0, 1) from a state that goes on: the same in every run. */
double tiers_dice(uint64_t *state);

/* ---- the device ------------------------------------------------------------ */

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
