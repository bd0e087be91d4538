/* quire/tier_peer.h - the host memory of another engine as a tier.
 *
 *      engine A                                                engine B
 *      CPU pool ── offer, withdraw ──► quire_peer_server ◄── TCP ── quire_tier_peer: FIND, LOAD
 *      (quire_offload_config.peer_server does that)
 *
 * server   a thread of engine A that answers for the blocks that its owner offers. An offer is a
 *          slot number, a key, and memory. The server sends from that memory.
 * tier     the other side: a read-only quire_tier. FIND asks whether the peer has a key now; LOAD
 *          fetches it into the job's memory. STORE and REMOVE are REFUSED, and an offload does not
 *          try them (quire_tier_caps.is_read_only).
 *
 * Neither side waits for the other: offer and withdraw take no lock and make no system call. The
 * memory may be written as soon as withdraw returns, also while the server sends from it: the
 * server checks the offer again after the last byte, and tells the client after the block whether
 * the offer was valid all the time. If not, the client's LOAD is MISSING.
 *
 * Both sides prove that they know the same secret (HMAC-SHA256 over random numbers of both sides),
 * and that they have the same fingerprint. The secret itself is never sent. The traffic after the
 * proof is not encrypted unless tls is set: see trust_network. docs/tiers-peer.md has the protocol.
 *
 * Statuses of a LOAD, beyond quire/tier.h:
 *
 *      MISSING   the peer does not have the key, or reused its memory in the meantime
 *      WRONG     another length, another key, or a checksum mismatch
 *      FAILED    connection error, protocol error, or timeout
 *      REFUSED   the last connection attempt failed a moment ago: not tried
 */
#ifndef QUIRE_TIER_PEER_H
#define QUIRE_TIER_PEER_H

#include "tier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the server -------------------------------------------------------------- */

typedef struct quire_peer_server quire_peer_server;

typedef struct quire_peer_server_config {
    size_t size;
    /* "10.0.0.1:7400", "[::]:7400", "unix:/run/engine.sock"; port 0: any free port. Numeric
     * addresses, no names. */
    const char *address;
    /* QUIRE_FINGERPRINT_BYTES of quire_fingerprint: the identity of the blocks. */
    const unsigned char *fingerprint;
    /* The secret of both sides; at least 16 characters. Set one of the three, like the password of
     * quire_tier_redis_config. It is read again for each connection. */
    const char *secret;
    const char *secret_file;
    int (*get_secret)(void *user, char *secret, size_t bytes);
    void *secret_user;

    uint32_t tls;              /* 1: only TLS connections */
    const char *tls_cert_file; /* certificate of the server (PEM) */
    const char *tls_key_file;  /* its key */
    const char *tls_ca_file;   /* if set: clients need a certificate of this CA */
    /* Without TLS, only addresses of this machine (loopback, unix:) are allowed. 1: the network is
     * trusted. */
    uint32_t trust_network;

    uint32_t max_blocks;      /* slots 0 .. max_blocks - 1; 1 to 2^28 */
    uint32_t max_block_bytes; /* 0 = 64 MiB */
    uint32_t max_connections; /* 0 = 32; at most 1,024 */
    uint64_t handshake_ns;    /* timeout of a connection without proof; 0 = 2 s */
    uint64_t stall_ns;        /* timeout of a connection that accepts no byte; 0 = 10 s */
    quire_hooks hooks;        /* log and random_bytes, on the server's thread */
} quire_peer_server_config;

#define QUIRE_PEER_SERVER_CONFIG_INIT QUIRE_SIZED_INIT(quire_peer_server_config)

/* Listens, and starts the thread. Returns QUIRE_E_CONFIG, QUIRE_E_ARGUMENT, QUIRE_E_UNSAFE (an
 * address beyond this machine without TLS), QUIRE_E_NOMEM or QUIRE_E_SYSTEM; quire_refusal
 * says why. In the child of a fork every call returns QUIRE_E_SYSTEM. */
QUIRE_API int quire_peer_server_open(const quire_peer_server_config *config,
                                     quire_peer_server **server);
/* Closes all connections and joins the thread, which never waits for a client. Unmap the memory of
 * offers only afterwards. NULL: does nothing. */
QUIRE_API int quire_peer_server_close(quire_peer_server *server);
/* The port that the server listens on; 0: not TCP. */
QUIRE_API uint32_t quire_peer_server_port(const quire_peer_server *server);

/* One thread at a time, the owner's, calls the next three functions. They do not wait or make
 * system calls. */
/* Offers a block in a slot; an earlier offer of the slot is withdrawn. crc: CRC32C of the bytes;
 * NULL: the server computes it when a client asks for the block. QUIRE_E_RANGE if slot is not below
 * max_blocks, or bytes is 0 or above max_block_bytes. */
QUIRE_API int quire_peer_server_offer(quire_peer_server *server, uint32_t slot,
                                      const quire_tier_key *key, const void *memory, uint32_t bytes,
                                      const uint32_t *crc);
/* Withdraws the offer of a slot: call it before the memory is written. QUIRE_OK also if the slot
 * has no offer; QUIRE_E_RANGE if slot is not below max_blocks. */
QUIRE_API int quire_peer_server_withdraw(quire_peer_server *server, uint32_t slot);
/* Withdraws all offers. From now on clients must have this fingerprint; connections of the old
 * fingerprint are closed. */
QUIRE_API int quire_peer_server_set_identity(quire_peer_server *server,
                                             const unsigned char *fingerprint);

typedef struct quire_peer_server_stats {
    size_t size;
    uint64_t connections; /* now */
    uint64_t offered;     /* blocks, now */
    /* since the server was opened */
    uint64_t accepted;
    uint64_t turned_away; /* too many connections, or no proof in time */
    uint64_t not_proven;  /* unauthenticated: another secret */
    uint64_t not_same;    /* another fingerprint */
    uint64_t bad_frames;  /* protocol errors: the connection was closed */
    uint64_t stalled;     /* connections that accepted no byte for stall_ns */
    uint64_t keys_found;
    uint64_t keys_missing;
    uint64_t blocks_sent;
    uint64_t blocks_missing;
    uint64_t blocks_void; /* withdrawn while the server sent them */
    uint64_t bytes_sent;  /* of blocks */
} quire_peer_server_stats;

#define QUIRE_PEER_SERVER_STATS_INIT QUIRE_SIZED_INIT(quire_peer_server_stats)

QUIRE_API int quire_peer_server_get_stats(const quire_peer_server *server,
                                          quire_peer_server_stats *stats); /* any thread */

/* ---- the tier -------------------------------------------------------------- */

typedef struct quire_tier_peer quire_tier_peer;

typedef struct quire_tier_peer_config {
    size_t size;
    const char
        *server; /* "10.0.0.1:7400", "[::1]:7400", "engine-0:7400", "unix:/run/engine.sock" */
    const unsigned char *fingerprint; /* the same as the server's */
    const char *secret;               /* the same as the server's: one of the three */
    const char *secret_file;
    int (*get_secret)(void *user, char *secret, size_t bytes);
    void *secret_user;

    /* See quire_tier_redis_config. */
    uint32_t tls;
    uint32_t tls_trust_any;
    const char *tls_ca_file;
    const char *tls_cert_file;
    const char *tls_key_file;
    const char *tls_server_name;
    uint32_t trust_network;

    uint32_t connections;     /* 0 = 2; at most 16 */
    uint32_t max_block_bytes; /* 0 = 64 MiB */
    /* Bytes of loads in flight on a connection; 0 = 8 MiB. One load is always allowed. */
    uint64_t load_window_bytes;
    uint64_t connect_ns; /* timeout of the proof of a new connection; 0 = 1 s */
    /* Open waits at most this time for the peer, and fails without the peer; 0: open does not wait.
     */
    uint64_t wait_ns;
    /* First time without attempts after a connection failed, then doubled up to 32 times this time;
     * 0 = 100 ms. */
    uint64_t retry_ns;
    /* A connection is closed if its reply is late by more than this after the deadline of a job; 0
     * = 1 s. */
    uint64_t late_ns;
    /* The most keys that KV events report: keys that this engine has seen in the tier. If there is
     * one more, the least recently used key is reported as removed, although the peer may still
     * have it. 0: no events of this tier. See quire_offload_config.events. */
    uint32_t event_keys;
    /* The most different blocks that quire_tier_peer_take_event remembers, 16 to 32 bytes each; at
     * most 2^26; 0: none. */
    uint32_t max_hints;
} quire_tier_peer_config;

#define QUIRE_TIER_PEER_CONFIG_INIT QUIRE_SIZED_INIT(quire_tier_peer_config)

/* Opens the tier; arguments and statuses as for quire_tier_redis_open. */
QUIRE_API int quire_tier_peer_open(const quire_tier_peer_config *config,
                                   const quire_tier_config *common,
                                   const quire_allocator *allocator, quire_tier **tier,
                                   quire_tier_peer **peer);

/* The two parts of the tier, for the caller's own runner. max_jobs: the most jobs begun at a time.
 * hooks may be NULL. close of the ops frees the handle, also if it was never opened. */
QUIRE_API int quire_tier_peer_create(const quire_tier_peer_config *config, uint32_t max_jobs,
                                     const quire_hooks *hooks, quire_tier_peer **peer);
QUIRE_API const quire_tier_ops *quire_tier_peer_ops(void);

typedef struct quire_tier_peer_stats {
    size_t size;
    uint64_t connections; /* authenticated connections, now */
    uint64_t jobs;        /* begun and not ended, now */
    /* since the tier was opened */
    uint64_t connected;
    uint64_t lost;      /* connections lost, for any reason */
    uint64_t surprises; /* protocol errors: the connection was closed */
    uint64_t wrong;     /* corrupt or foreign blocks */
    uint64_t voided;    /* blocks that the peer withdrew while it sent them */
    uint64_t refused;
    uint64_t late;
    uint64_t bytes_in;
    uint64_t hints;     /* blocks that the peer's events name, now */
    uint64_t not_asked; /* keys that the events do not name, since the tier was opened */
} quire_tier_peer_stats;

#define QUIRE_TIER_PEER_STATS_INIT QUIRE_SIZED_INIT(quire_tier_peer_stats)

QUIRE_API int quire_tier_peer_get_stats(const quire_tier_peer *peer,
                                        quire_tier_peer_stats *stats); /* any thread */

/* ---- hints from the peer's KV events ------------------------------------------
 *
 * With the events of the peer (quire/events.h), the tier knows which blocks the peer has. While
 * this knowledge is complete, the tier asks the peer only for blocks that the events name: so of
 * several peers it asks the peer that has the block. A block that the events do not name is missing
 * immediately, without a request. While the knowledge is incomplete (no events, a gap, too many
 * blocks), the tier asks the peer for every block. Events are hints: if they are wrong, the peer's
 * own answer counts.
 *
 *      quire_subscriber_next ─┬─ an error but RETRY, ─► quire_tier_peer_set_whole(peer, 0)
 *                             │  GAP, RESTART
 *                             ├─ LIVE, REPLAY, ──────► quire_tier_peer_take_event, for each event
 *                             │  SNAPSHOT
 *                             └─ WHOLE, and after ───► quire_tier_peer_set_whole(peer, 1)
 *                                batch number 0
 *
 * One thread at a time calls the next two functions: any thread except the thread of the
 * scheduler's steps, and before quire_tier_close. They do not wait. QUIRE_E_DISABLED without
 * max_hints. */
struct quire_wire_event;

/* Reads stored and removed blocks of medium "CPU", and AllBlocksCleared; skips other events.
 * QUIRE_E_ARGUMENT if the hashes are numbers: the publisher must have hashes_as_bytes = 1.
 * QUIRE_FULL beyond max_hints: the knowledge is then incomplete. */
QUIRE_API int quire_tier_peer_take_event(quire_tier_peer *peer,
                                         const struct quire_wire_event *event);
/* 1: the events so far name all blocks of the peer. 0: they do not, and all hints are dropped. */
QUIRE_API int quire_tier_peer_set_whole(quire_tier_peer *peer, uint32_t is_whole);

#ifdef __cplusplus
}
#endif
#endif
