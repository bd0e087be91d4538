/* events/publish/batches.h - what the monitor tells, as batches of bytes to be sent.
 *
 *      reader ──► stored 5 6 7 ──► mirror: 6 is there already ──► stored 5, stored 7 ──► batch
 *
 * With every_copy the events go out as they come: vLLM 0.20.0's. Without it a key is told once,
 * with its first block, and taken back with its last: an event is split around the blocks whose
 * keys are there already, each part with the hash before it as its parent.
 *
 * lost      the reader missed something, or memory ran out: the mirror is forgotten, the next batch
 *           begins with AllBlocksCleared, and a walk tells anew what is there. What the walk finds
 *           goes out in batches of its own.
 */
#ifndef QR_EVENTS_PUBLISH_BATCHES_H
#define QR_EVENTS_PUBLISH_BATCHES_H

#include "events/publish/mirror.h"

#include <quire/monitor.h>

#include <stdbool.h>

typedef struct qr_batches qr_batches;

typedef struct qr_batches_config {
    quire_monitor *monitor;
    uint32_t rank;
    uint32_t hashes_as_bytes;
    uint32_t as_maps;
    uint32_t every_copy;
} qr_batches_config;

/* Begins with a walk: the scheduler may have run before. */
int qr_batches_create(const qr_batches_config *config, qr_batches **batches);
void qr_batches_destroy(qr_batches *batches);

/* The next batch and how many events it has; its bytes are valid until the next call. QUIRE_RETRY:
 * nothing new. */
int qr_batches_next(qr_batches *batches, quire_bytes *bytes, uint32_t *num_events);

/* The batch of the last call never went out (no memory): as if the reader had missed it. */
void qr_batches_lose(qr_batches *batches);

/* Whether the mirror is the pool's: not while a walk is under way. */
bool qr_batches_is_whole(const qr_batches *batches);
uint64_t qr_batches_num_lost(const qr_batches *batches);

/* For the whole index. */
const qr_mirror *qr_batches_mirror(const qr_batches *batches);
double qr_batches_time(const qr_batches *batches);

#endif
