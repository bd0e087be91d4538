/* quire/events.h - KV events over ZeroMQ: a publisher for the engine, a subscriber for the router.
 *
 *      scheduler ──► monitor ──► publisher's thread ── PUB ──► subscribers     topic, number, batch
 *                                                 └─ ROUTER ◄─► subscribers that missed batches
 *
 *      frames      topic (text) | number (u64, big-endian, from 0, gap-free) | batch (quire/wire.h)
 *      replay      ["", number]     ──► ["", number, batch] ... ["", ff ff ff ff ff ff ff ff, ""]
 *      whole index ["", "snapshot"] ──► ["", number, batch] ... ["", ff ..., ""]: batches of which
 *                  the first begins with AllBlocksCleared, and which store everything there is; all
 *                  have the number of the last batch that they include. Before the first batch
 *                  there is just the end
 *
 * These are vLLM 0.20.0's frames, and its subscribers and routers take them as they are; the
 * snapshot is Quire's own, in batches that they can read.
 *
 * The scheduler never waits for any of this (quire/monitor.h). A subscriber that is too slow misses
 * batches, sees so from their numbers, and asks for a replay; where that no longer goes back far
 * enough, for the index. When the publisher itself has missed events it says AllBlocksCleared and
 * then stores what is there, in ordinary batches; that takes steps of the scheduler (a walk). A
 * subscriber that asks for the index meanwhile gets what is known after a second, and the rest in
 * the walk's batches.
 *
 * Safety: endpoints are ipc:// or tcp:// on the loopback; any other needs CURVE keys, or
 * allow_strangers_to_read_prompts_and_stall_us. What others send is bounded, each part of it and
 * how often. The number of connections is not bounded, and a connection that does not read holds
 * its queue (hwm): let only trusted clients connect.
 *
 * Part of libquire_events. Threads: a publisher has one of its own, and libzmq some, all with
 * signals blocked; it may be asked for its stats by any thread. A subscriber belongs to one thread
 * at a time.
 *
 * Both belong to the process that created them. In the child of a fork destroy frees the handle
 * and reaches neither thread nor socket of the parent, quire_subscriber_next returns
 * QUIRE_E_SYSTEM, and a publisher's stats stay as they were. The child may create its own.
 */
#ifndef QUIRE_EVENTS_H
#define QUIRE_EVENTS_H

#include "monitor.h"
#include "wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the engine's side -------------------------------------------------- */

typedef struct quire_publisher quire_publisher;

typedef struct quire_publisher_config {
    size_t size;
    quire_monitor *monitor;       /* must outlive the publisher */
    const char *endpoint;         /* NULL = "tcp://127.0.0.1:5557" */
    const char *replay_endpoint;  /* NULL: no replay */
    const char *topic;            /* NULL = "" */
    uint32_t rank;                /* data-parallel rank: in batches; added to tcp ports, and to ipc
                                    files as _dpN */
    uint32_t hwm;                 /* batches that wait for one subscriber; 0 = 100,000 */
    uint32_t buffer_steps;        /* batches kept for replay; 0 = 10,000 */
    uint64_t buffer_bytes;        /* and at most so many bytes; 0 = 256 MiB */
    uint32_t hashes_as_bytes;     /* 1: whole hashes, as VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 */
    uint32_t as_maps;             /* 1: newer vLLM's form */
    uint32_t every_copy;          /* 1: tell of each block as vLLM 0.20.0 does; 0: a hash is stored
                                    with its first block and removed with its last */
    const char *curve_secret_key; /* 40 characters (Z85): this side's; NULL: no encryption */
    const char *const *curve_clients; /* public keys that may connect; NULL: whoever knows ours */
    uint32_t num_curve_clients;
    uint32_t allow_strangers_to_read_prompts_and_stall_us; /* endpoints beyond the loopback without
                                                              keys */
    quire_switch listen;  /* default: as vLLM, which listens on what has "*" or "::" and on ipc, and
                             connects to what names another host; the loopback is listened on. The
                             replay endpoint always listens */
    uint64_t queue_bytes; /* that wait for all subscribers, beside buffer_bytes; 0 = 1 GiB. Beyond
                             it batches are not sent, but can be asked for */
} quire_publisher_config;

#define QUIRE_PUBLISHER_CONFIG_INIT QUIRE_SIZED_INIT(quire_publisher_config)

/* Opens the sockets, and starts the thread. *publisher is set when it returns 0 alone; message,
 * where not NULL, gets a sentence when it fails, with the value and what to do.
 *
 *      QUIRE_E_ARGUMENT  a pointer that is needed is NULL; an address, a key, or the port with the
 *                        rank added is none; clients' keys without a secret one
 *      QUIRE_E_CONFIG    a wrong size, a switch that is none, a topic of 256 bytes or more
 *      QUIRE_E_UNSAFE    an address beyond the loopback, and neither keys nor the flag
 *      QUIRE_E_SYSTEM    the address is taken or not ours; no socket, no thread, no CURVE
 *      QUIRE_E_NOMEM
 */
QUIRE_API int quire_publisher_create(const quire_publisher_config *config,
                                     quire_publisher **publisher, char *message,
                                     size_t message_bytes);
/* Publishes what is there (for a second at most), and stops. NULL is fine. Before the scheduler is
 * destroyed, whose monitor it reads. */
QUIRE_API void quire_publisher_destroy(quire_publisher *publisher);

typedef struct quire_publisher_stats {
    uint64_t num_batches;
    uint64_t num_events;
    uint64_t num_bytes;
    uint64_t num_lost;    /* times that the monitor was ahead by more than its ring */
    uint64_t num_replays; /* requests answered */
    uint64_t num_snapshots;
    uint64_t num_refused; /* requests that were malformed, or too many */
    uint64_t num_blocks;  /* in its picture of the index: different keys */
    uint64_t num_unsent;  /* batches that subscribers have to ask for: see queue_bytes */
    uint32_t is_whole;    /* 0: a walk is under way, and its picture not yet the pool's */
} quire_publisher_stats;

QUIRE_API quire_publisher_stats quire_publisher_get_stats(const quire_publisher *publisher);
/* The endpoints it listens to, with the port where the system chose one (tcp://127.0.0.1:*); "" for
 * one that is not there. Valid as long as the publisher. */
QUIRE_API const char *quire_publisher_endpoint(const quire_publisher *publisher);
QUIRE_API const char *quire_publisher_replay_endpoint(const quire_publisher *publisher);

/* ---- the router's side -------------------------------------------------- */

/* Listens to one publisher: a router has one of these for each worker. */
typedef struct quire_subscriber quire_subscriber;

typedef struct quire_subscriber_config {
    size_t size;
    const char *endpoint;
    const char *replay_endpoint;  /* NULL: gaps stay */
    const char *topic;            /* prefix; NULL: all */
    uint32_t hwm;                 /* 0 = 100,000 */
    uint32_t replay_timeout_ms;   /* 0 = 2,000 */
    uint64_t max_message_bytes;   /* 0 = 64 MiB */
    uint32_t start;               /* 0: from the whole index on, where there is a replay endpoint;
                                    1: from now on; 2: as far back as replay goes */
    const char *curve_server_key; /* the publisher's public key; NULL: no encryption */
    const char *curve_public_key; /* this side's; NULL: that of the secret one, */
    const char *curve_secret_key; /* which is made up when it is NULL too */
    quire_switch listen;          /* default: where the endpoint has "*", else it connects */
    uint32_t quiet_ms; /* after so long without a batch it asks whether the last ones were missed;
                            0 = 5,000 */
    uint32_t allow_strangers_to_tell_us_lies; /* listening beyond the loopback without keys */
} quire_subscriber_config;

#define QUIRE_SUBSCRIBER_CONFIG_INIT QUIRE_SIZED_INIT(quire_subscriber_config)

typedef enum quire_delivery_kind {
    QUIRE_DELIVERY_LIVE = 1,
    QUIRE_DELIVERY_REPLAY = 2,   /* was missed, and came again */
    QUIRE_DELIVERY_SNAPSHOT = 3, /* a part of the whole index; the first begins with CLEARED */
    QUIRE_DELIVERY_GAP = 4,      /* nothing can fill it: what was known is not to be trusted */
    QUIRE_DELIVERY_RESTART = 5,  /* numbers began anew: the publisher was restarted; the same */
    QUIRE_DELIVERY_WHOLE = 6     /* the snapshot has come, up to and including number */
} quire_delivery_kind;

/* Fields that a kind does not have are 0 and NULL: a loop over batch.num_events is right for all.
 *
 *                  number                           num_missed  topic  bytes, batch, events
 *      LIVE        of the batch                     -           yes    yes
 *      REPLAY      of the batch                     -           -      yes
 *      SNAPSHOT    of the last batch it includes    -           -      yes
 *      GAP         the first that is there again    0: unknown  -      -
 *      RESTART     one of the new publisher         -           -      -
 *      WHOLE       as SNAPSHOT                      -           -      -
 */
typedef struct quire_delivery {
    quire_delivery_kind kind;
    uint64_t number;
    uint64_t num_missed;
    quire_bytes topic;
    quire_bytes bytes; /* the batch as it came */
    quire_wire_batch batch;
    quire_wire_reader *events; /* quire_wire_get(events, i) */
} quire_delivery;

/* Does not wait for the publisher, which may come later. Statuses, message and *subscriber as of
 * quire_publisher_create, but that an address is never unsafe here. */
QUIRE_API int quire_subscriber_create(const quire_subscriber_config *config,
                                      quire_subscriber **subscriber, char *message,
                                      size_t message_bytes);
/* NULL is fine. */
QUIRE_API void quire_subscriber_destroy(quire_subscriber *subscriber);
/* The next batch, in the order of numbers, each once; valid until the next call.
 *
 *      timeout_ms       0: what is there; < 0: until something comes. A signal does not end it: who
 *                       wants to look at a flag gives a timeout
 *      QUIRE_RETRY      nothing came in that time: ask again
 *      QUIRE_E_CORRUPT  a message that is no batch was passed over, and
 *      QUIRE_E_NOMEM    one for which there was no memory. What was known may now be wrong: forget
 *                       it, and begin with the whole index of a new subscriber; or ask on
 */
QUIRE_API int quire_subscriber_next(quire_subscriber *subscriber, int timeout_ms,
                                    quire_delivery *delivery);

#ifdef __cplusplus
}
#endif
#endif
