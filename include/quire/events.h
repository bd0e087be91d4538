/* quire/events.h - KV events over ZeroMQ: a publisher for the engine, a subscriber for the router.
 *
 *      scheduler ──► monitor ──► publisher's thread ── PUB ──► subscribers     topic, number, batch
 *                                                 └─ ROUTER ◄─► subscribers that missed batches
 *
 *      frames      topic (text) | number (u64, big-endian, from 0, gap-free) | batch (quire/wire.h)
 *      replay      ["", number]     ──► ["", number, batch] ... ["", ff ff ff ff ff ff ff ff, ""]
 *      whole index ["", "snapshot"] ──► ["", number, batch] ... ["", ff ..., ""]: the first batch
 *                  begins with AllBlocksCleared, and the batches store all blocks; all batches have
 *                  the number of the last batch that they include. Before the first batch the reply
 *                  is just the end
 *
 * These are the frames of vLLM 0.20.0: vLLM's subscribers and routers read them unchanged. The
 * snapshot is Quire's own, in batches that they can read. If the scheduler has
 * QUIRE_PROFILE_VLLM_0_32, a publisher does as vLLM 0.32.0: events have the map form, stored blocks
 * are told with the kind of their group, and each answer has the topic before its number, ["",
 * topic, number, batch] ... ["", "", ff ..., ""]. A subscriber reads both forms of answers.
 *
 * The scheduler never waits for a publisher (quire/monitor.h). A subscriber that is too slow misses
 * batches, detects this by their numbers, and asks for a replay; if the replay does not go back far
 * enough, it asks for the index. If the publisher itself has missed events, it publishes
 * AllBlocksCleared and then stores all blocks, in ordinary batches; this needs steps of the
 * scheduler (a walk). A subscriber that asks for the index in the meantime gets the known part
 * after a second, and the rest in the batches of the walk.
 *
 * Safety: endpoints are ipc:// or tcp:// on the loopback address. Any other endpoint requires CURVE
 * keys, or allow_strangers_to_read_prompts_and_stall_us. The size and the rate of incoming messages
 * are limited. The number of connections is not limited, and a connection that does not read keeps
 * its queue (hwm): let only trusted clients connect.
 *
 * Part of libquire_events. Threads: a publisher has one thread, and libzmq some threads, all with
 * signals blocked; any thread may read its stats. One thread at a time may use a subscriber.
 *
 * Both belong to the process that created them. In the child of a fork, destroy frees the handle
 * and reaches no thread and no socket of the parent, quire_subscriber_next returns QUIRE_E_SYSTEM,
 * and the stats of a publisher do not change. The child may create its own handles.
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
    quire_monitor *monitor;      /* must outlive the publisher */
    const char *endpoint;        /* NULL = "tcp://127.0.0.1:5557" */
    const char *replay_endpoint; /* NULL: no replay */
    const char *topic;           /* NULL = "" */
    /* Data-parallel rank: in batches; added to tcp ports, and to ipc files as _dpN. */
    uint32_t rank;
    uint32_t hwm;             /* the most batches that wait for one subscriber; 0 = 100,000 */
    uint32_t buffer_steps;    /* batches kept for replay; 0 = 10,000 */
    uint64_t buffer_bytes;    /* the most bytes kept for replay; 0 = 256 MiB */
    uint32_t hashes_as_bytes; /* 1: whole hashes, like VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 */
    uint32_t as_maps; /* 1: the map form of newer vLLM; QUIRE_PROFILE_VLLM_0_32 always has it */
    /* 1: report each block, like vLLM 0.20.0; 0: report a hash as stored with its first block and
     * as removed with its last block. */
    uint32_t every_copy;
    /* 40 characters (Z85): the publisher's key; NULL: no encryption. */
    const char *curve_secret_key;
    /* Public keys of the clients that may connect; NULL: any client that knows the publisher's key.
     */
    const char *const *curve_clients;
    uint32_t num_curve_clients;
    /* 1: allow endpoints other than the loopback without keys. */
    uint32_t allow_strangers_to_read_prompts_and_stall_us;
    /* Default: like vLLM, which listens if the endpoint has "*" or "::" or is ipc, and connects if
     * it names another host; on the loopback it listens. The replay endpoint always listens. */
    quire_switch listen;
    /* The most bytes that wait for all subscribers, beside buffer_bytes; 0 = 1 GiB. Beyond it
     * batches are not sent; subscribers can ask for them. */
    uint64_t queue_bytes;
} quire_publisher_config;

#define QUIRE_PUBLISHER_CONFIG_INIT QUIRE_SIZED_INIT(quire_publisher_config)

/* Opens the sockets, and starts the thread. *publisher is set only if the call returns QUIRE_OK.
 * If the call fails, quire_refusal names the value and says what to do.
 *
 *      QUIRE_E_ARGUMENT  a required pointer is NULL; an address, a key, or the port plus the rank
 *                        is invalid; keys of clients without a secret key
 *      QUIRE_E_CONFIG    a wrong size, an invalid switch, a topic of 256 bytes or more
 *      QUIRE_E_UNSAFE    an address other than the loopback, without keys and without the flag
 *      QUIRE_E_SYSTEM    the address is in use or does not belong to this machine; no socket, no
 *                        thread, no CURVE
 *      QUIRE_E_NOMEM     out of memory */
QUIRE_API int quire_publisher_create(const quire_publisher_config *config,
                                     quire_publisher **publisher);
/* Publishes the pending events (for at most a second), and stops the thread. NULL: does nothing.
 * Call it before the scheduler, whose monitor it reads, is destroyed. */
QUIRE_API void quire_publisher_destroy(quire_publisher *publisher);

typedef struct quire_publisher_stats {
    size_t size;
    uint64_t num_batches;
    uint64_t num_events;
    uint64_t num_bytes;
    uint64_t num_lost;    /* how often the ring of the monitor overtook the publisher */
    uint64_t num_replays; /* requests that were answered */
    uint64_t num_snapshots;
    uint64_t num_refused; /* invalid requests, and requests beyond the rate limit */
    uint64_t num_blocks;  /* different keys in the publisher's copy of the index */
    uint64_t num_unsent;  /* batches that were not sent: see queue_bytes */
    uint32_t is_whole;    /* 0: a walk is in progress, and the copy is incomplete */
} quire_publisher_stats;

#define QUIRE_PUBLISHER_STATS_INIT QUIRE_SIZED_INIT(quire_publisher_stats)

QUIRE_API int quire_publisher_get_stats(const quire_publisher *publisher,
                                        quire_publisher_stats *stats);
/* The endpoints that the publisher listens on, with the port if the system chose one
 * (tcp://127.0.0.1:*); "" if there is no such endpoint. Valid as long as the publisher. */
QUIRE_API const char *quire_publisher_endpoint(const quire_publisher *publisher);
QUIRE_API const char *quire_publisher_replay_endpoint(const quire_publisher *publisher);

/* ---- the router's side -------------------------------------------------- */

/* Reads the events of one publisher: a router has one subscriber for each worker. */
typedef struct quire_subscriber quire_subscriber;

typedef struct quire_subscriber_config {
    size_t size;
    const char *endpoint;
    const char *replay_endpoint; /* NULL: gaps are not filled */
    const char *topic;           /* prefix; NULL: all topics */
    uint32_t hwm;                /* 0 = 100,000 */
    uint32_t replay_timeout_ms;  /* 0 = 2,000 */
    uint64_t max_message_bytes;  /* 0 = 64 MiB */
    /* 0: from the whole index on, if there is a replay endpoint; 1: from now on; 2: from the oldest
     * batch of the replay on. */
    uint32_t start;
    const char *curve_server_key; /* the publisher's public key; NULL: no encryption */
    const char *curve_public_key; /* this side's key; NULL: from the secret key */
    const char *curve_secret_key; /* NULL: a new key */
    quire_switch listen;          /* default: listens if the endpoint has "*", otherwise connects */
    /* After this time without a batch the subscriber asks whether batches were missed; 0 = 5,000.
     */
    uint32_t quiet_ms;
    /* 1: allow listening on addresses other than the loopback without keys. */
    uint32_t allow_strangers_to_tell_us_lies;
} quire_subscriber_config;

#define QUIRE_SUBSCRIBER_CONFIG_INIT QUIRE_SIZED_INIT(quire_subscriber_config)

typedef enum quire_delivery_kind {
    QUIRE_DELIVERY_LIVE = 1,
    QUIRE_DELIVERY_REPLAY = 2,   /* was missed, and was sent again */
    QUIRE_DELIVERY_SNAPSHOT = 3, /* a part of the whole index; the first begins with CLEARED */
    QUIRE_DELIVERY_GAP = 4,      /* batches are lost: drop the known blocks */
    /* The publisher was restarted, its numbers begin again: drop the known blocks. */
    QUIRE_DELIVERY_RESTART = 5,
    QUIRE_DELIVERY_WHOLE = 6 /* the snapshot is complete, up to and including number */
} quire_delivery_kind;

/* Fields that a kind does not have are 0 and NULL: a loop over batch.num_events is right for all
 * kinds.
 *
 *                  number                           num_missed  topic  bytes, batch, events
 *      LIVE        of the batch                     -           yes    yes
 *      REPLAY      of the batch                     -           -      yes
 *      SNAPSHOT    of the last batch it includes    -           -      yes
 *      GAP         the next batch that is known     0: unknown  -      -
 *      RESTART     one of the new publisher         -           -      -
 *      WHOLE       as SNAPSHOT                      -           -      - */
typedef struct quire_delivery {
    size_t size;
    quire_delivery_kind kind;
    uint64_t number;
    uint64_t num_missed;
    quire_bytes topic;
    quire_bytes bytes; /* the batch as it was received */
    quire_wire_batch batch;
    quire_wire_reader *events; /* quire_wire_get(events, i) */
} quire_delivery;

#define QUIRE_DELIVERY_INIT QUIRE_SIZED_INIT(quire_delivery)

/* Creates a subscriber. Does not wait for the publisher, which may start later. Statuses,
 * quire_refusal and *subscriber as for quire_publisher_create; QUIRE_E_UNSAFE only for listening
 * without keys. */
QUIRE_API int quire_subscriber_create(const quire_subscriber_config *config,
                                      quire_subscriber **subscriber);
/* NULL: does nothing. */
QUIRE_API void quire_subscriber_destroy(quire_subscriber *subscriber);
/* The next batch, in the order of numbers, each once; valid until the next call.
 *
 *      timeout_ms       0: do not wait; < 0: wait until a batch comes. A signal does not end the
 *                       wait: to check a flag, use a timeout
 *      QUIRE_RETRY      no batch came in this time: retry
 *      QUIRE_E_CORRUPT  an invalid message was skipped
 *      QUIRE_E_NOMEM    a message was skipped because memory ran out
 *
 * After QUIRE_E_CORRUPT and QUIRE_E_NOMEM the known blocks may be wrong: drop them and begin with
 * the whole index of a new subscriber, or continue. */
QUIRE_API int quire_subscriber_next(quire_subscriber *subscriber, int timeout_ms,
                                    quire_delivery *delivery);

#ifdef __cplusplus
}
#endif
#endif
