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

#include "events/publish/feed_wire.h"
#include "events/publish/mirror.h"
#include "events/publish/texts.h"

typedef enum qr_batch_content {
    QR_CONTENT_NONE,
    QR_CONTENT_UPDATE, /* of an update: QUIRE_FEED_BATCH ends it */
    QR_CONTENT_WALK    /* of a walk: whatever else comes ends it */
} qr_batch_content;

typedef struct qr_batches {
    quire_monitor *monitor;
    uint32_t rank;
    uint32_t every_copy;
    quire_reader *reader;
    qr_mirror *mirror; /* of all tiers: their blocks and groups one after the other */
    qr_texts *texts;   /* NULL: events have no tokens, or there is no tier but the GPU */
    quire_monitor_info info;
    uint32_t bases[QUIRE_MAX_TIERS];   /* of each tier: the number of its block 0 there */
    uint32_t mediums[QUIRE_MAX_TIERS]; /* of each tier: the first one of the same medium */
    quire_wire_writer *writer;
    qr_feed_wire feed_wire;

    qr_batch_content content; /* of the batch that is being written */
    uint32_t num_events;      /* in it */
    bool owes_clear;          /* before anything else is told */
    bool is_wrong;            /* the mirror and the reader do not agree */
    bool has_held;            /* an event that came while another batch had to end first */
    quire_feed_event held;
    double time; /* of the last batch */
    uint64_t walk;
    bool is_walking; /* until it ends, the mirror is not the pool's */
    uint64_t num_lost;
} qr_batches;

typedef struct qr_batches_config {
    quire_monitor *monitor;
    uint32_t rank;
    uint32_t hashes_as_bytes;
    uint32_t as_maps;
    bool has_specs; /* stored events say what kind of layers their group has */
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

#endif
