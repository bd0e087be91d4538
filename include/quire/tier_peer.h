/* quire/tier_peer.h - the host memory of another engine as a tier.
 *
 *      engine A                                                engine B
 *      CPU pool ── offer, withdraw ──► quire_peer_server ◄── TCP ── quire_tier_peer: FIND, LOAD
 *      (quire_offload_config.peer_server does that)
 *
 * server   a thread of engine A that answers for the blocks which its owner offers. An offer is a
 *          slot number, a key, and memory. The server sends from that memory.
 * tier     the other side: a quire_tier that is read only. FIND asks whether the peer has a key
 *          now; LOAD fetches it into the job's memory. STORE and REMOVE are REFUSED, and an offload
 *          does not try them (quire_tier_caps.is_read_only).
 *
 * Neither waits for the other: offer and withdraw take no lock, call nothing of the system, and the
 * memory may be written as soon as withdraw returns, also while the server sends from it. The
 * server looks at the offer again after the last byte, and tells the client behind the block
 * whether the offer stood all the time; if not, the client's LOAD is MISSING.
 *
 * Both sides prove that they know the same secret (HMAC-SHA256 over random numbers of both), and
 * that they have the same fingerprint. The secret itself is never sent. What comes behind the proof
 * is not encrypted unless tls is set: see trust_network. docs/tiers-peer.md has the protocol.
 *
 * How a LOAD ends, beyond what quire/tier.h says:
 *
 *      MISSING   the peer has not got the key, or gave its memory to another block meanwhile
 *      WRONG     another length, another key, or a checksum mismatch
 *      FAILED    the connection, a protocol error, or the time is over
 *      REFUSED   the peer could not be reached a moment ago: not tried
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
    /* "10.0.0.1:7400", "[::]:7400", "unix:/run/engine.sock"; port 0: any that is free. Addresses in
     * numbers, no names. */
    const char *address;
    /* QUIRE_FINGERPRINT_BYTES, of quire_fingerprint: what the blocks mean. */
    const unsigned char *fingerprint;
    /* Known to both sides; 16 characters at least. One of the three; see quire_tier_redis_config's
     * password. It is read again for each connection. */
    const char *secret;
    const char *secret_file;
    int (*get_secret)(void *user, char *secret, size_t bytes);
    void *secret_user;

    uint32_t tls;              /* 1: TLS alone is spoken, with */
    const char *tls_cert_file; /* this certificate (PEM) */
    const char *tls_key_file;  /* and its key */
    const char *tls_ca_file;   /* given: clients need a certificate of this CA */
    /* Without TLS only this machine (loopback, unix:) is listened to. 1: the network is trusted. */
    uint32_t trust_network;

    uint32_t max_blocks;      /* slots 0 .. max_blocks - 1; 1 to 2^28 */
    uint32_t max_block_bytes; /* 0 = 64 MiB */
    uint32_t max_connections; /* 0 = 32; at most 1,024 */
    uint64_t handshake_ns;    /* a connection without proof is closed after this; 0 = 2 s */
    uint64_t stall_ns;        /* and one that takes no byte for so long; 0 = 10 s */
    quire_hooks hooks;        /* log and random_bytes, on the server's thread */
} quire_peer_server_config;

#define QUIRE_PEER_SERVER_CONFIG_INIT QUIRE_SIZED_INIT(quire_peer_server_config)

/* Listens, and starts the thread. QUIRE_E_CONFIG, E_ARGUMENT, E_UNSAFE (an address beyond this
 * machine without TLS), E_NOMEM, E_SYSTEM; message, where not NULL, gets a sentence. In the child
 * of a fork every call returns QUIRE_E_SYSTEM. */
QUIRE_API int quire_peer_server_open(const quire_peer_server_config *config,
                                     quire_peer_server **server, char *message,
                                     size_t message_bytes);
/* Closes all connections, and waits for the thread, which never waits for a client. The memory of
 * offers must not be unmapped before. NULL is fine. */
QUIRE_API int quire_peer_server_close(quire_peer_server *server);
/* Where it listens; 0: not at TCP. */
QUIRE_API uint32_t quire_peer_server_port(const quire_peer_server *server);

/* The owner's thread, one at a time, calls these three. None waits or calls the system. */
/* The slot has this block from now on; what it had before is withdrawn. crc: CRC32C of the bytes,
 * NULL: the server computes it when the block is asked for. QUIRE_E_RANGE for a slot beyond
 * max_blocks, or bytes that are 0 or above max_block_bytes. */
QUIRE_API int quire_peer_server_offer(quire_peer_server *server, uint32_t slot,
                                      const quire_tier_key *key, const void *memory, uint32_t bytes,
                                      const uint32_t *crc);
/* Before the memory of the slot is written. QUIRE_OK also for a slot without an offer. */
QUIRE_API int quire_peer_server_withdraw(quire_peer_server *server, uint32_t slot);
/* All offers are withdrawn, and clients must have this fingerprint from now on: connections of the
 * old one are closed. */
QUIRE_API int quire_peer_server_set_identity(quire_peer_server *server,
                                             const unsigned char *fingerprint);

typedef struct quire_peer_server_stats {
    uint64_t connections; /* now */
    uint64_t offered;     /* blocks, now */
    /* since it was opened */
    uint64_t accepted;
    uint64_t turned_away; /* no room, or no proof in time */
    uint64_t not_proven;  /* another secret */
    uint64_t not_same;    /* another fingerprint */
    uint64_t bad_frames;  /* the connection was closed */
    uint64_t stalled;     /* connections that took no byte for stall_ns */
    uint64_t keys_found;
    uint64_t keys_missing;
    uint64_t blocks_sent;
    uint64_t blocks_missing;
    uint64_t blocks_void; /* withdrawn while they were sent */
    uint64_t bytes_sent;  /* of blocks */
} quire_peer_server_stats;

QUIRE_API int quire_peer_server_get_stats(const quire_peer_server *server,
                                          quire_peer_server_stats *stats); /* any thread */

/* ---- the tier -------------------------------------------------------------- */

typedef struct quire_tier_peer quire_tier_peer;

typedef struct quire_tier_peer_config {
    size_t size;
    const char
        *server; /* "10.0.0.1:7400", "[::1]:7400", "engine-0:7400", "unix:/run/engine.sock" */
    const unsigned char *fingerprint; /* as the server's */
    const char *secret;               /* as the server's: one of the three */
    const char *secret_file;
    int (*get_secret)(void *user, char *secret, size_t bytes);
    void *secret_user;

    /* As in quire_tier_redis_config. */
    uint32_t tls;
    uint32_t tls_trust_any;
    const char *tls_ca_file;
    const char *tls_cert_file;
    const char *tls_key_file;
    const char *tls_server_name;
    uint32_t trust_network;

    uint32_t connections;       /* 0 = 2; at most 16 */
    uint32_t max_block_bytes;   /* 0 = 64 MiB */
    uint64_t load_window_bytes; /* asked for on a connection; 0 = 8 MiB. One block always may be */
    uint64_t connect_ns;        /* until a new connection is proven; 0 = 1 s */
    uint64_t wait_ns;  /* open waits so long for the peer, and fails without; 0: it does not wait */
    uint64_t retry_ns; /* after a connection failed nothing is tried for so long, then doubled up to
                          32 times that; 0 = 100 ms */
    uint64_t late_ns;  /* a connection whose answer is late by more than this beyond a job's
                          deadline is closed; 0 = 1 s */
    /* KV events tell of at most so many keys that this engine has seen here: of one more than that
     * the key that was not used for longest is told as removed, although it may be there. 0: no
     * events of this tier. See quire_offload_config.events. */
    uint32_t event_keys;
    /* Different blocks that quire_tier_peer_take_event remembers, 16 to 32 bytes each; at most
     * 2^26; 0: none. */
    uint32_t max_hints;
} quire_tier_peer_config;

#define QUIRE_TIER_PEER_CONFIG_INIT QUIRE_SIZED_INIT(quire_tier_peer_config)

/* The tier; arguments and errors as for quire_tier_redis_open. */
QUIRE_API int quire_tier_peer_open(const quire_tier_peer_config *config,
                                   const quire_tier_config *common,
                                   const quire_allocator *allocator, quire_tier **tier,
                                   quire_tier_peer **peer, char *message, size_t message_bytes);

/* The two parts of it, for a runner of one's own. max_jobs: begun at a time. hooks may be NULL. The
 * ops' close frees it, also when it was never opened. */
QUIRE_API int quire_tier_peer_create(const quire_tier_peer_config *config, uint32_t max_jobs,
                                     const quire_hooks *hooks, quire_tier_peer **peer,
                                     char *message, size_t message_bytes);
QUIRE_API const quire_tier_ops *quire_tier_peer_ops(void);

typedef struct quire_tier_peer_stats {
    uint64_t connections; /* proven, now */
    uint64_t jobs;        /* begun and not ended, now */
    /* since it was opened */
    uint64_t connected;
    uint64_t lost;      /* connections, for whatever reason */
    uint64_t surprises; /* protocol errors: the connection was closed */
    uint64_t wrong;     /* blocks */
    uint64_t voided;    /* blocks that the peer gave away while it sent them */
    uint64_t refused;
    uint64_t late;
    uint64_t bytes_in;
    uint64_t hints;     /* blocks that the peer's events name, now */
    uint64_t not_asked; /* keys that they do not name, since it was opened */
} quire_tier_peer_stats;

QUIRE_API int quire_tier_peer_get_stats(const quire_tier_peer *peer,
                                        quire_tier_peer_stats *stats); /* any thread */

/* ---- what the peer's KV events say --------------------------------------------
 *
 * With the events of the peer (quire/events.h), the tier knows which blocks the peer has. While
 * what it knows is whole, only a block that the events name is asked for, so of several peers the
 * one that has it; a block that they do not name is missing at once, without a question. While it
 * is not whole (no events, a gap, too many blocks) the peer is asked about every block. Events are
 * hints: if they are wrong, the peer's own answer counts.
 *
 *      quire_subscriber_next ─┬─ an error but RETRY, ─► quire_tier_peer_set_whole(peer, 0)
 *                             │  GAP, RESTART
 *                             ├─ LIVE, REPLAY, ──────► quire_tier_peer_take_event, for each event
 *                             │  SNAPSHOT
 *                             └─ WHOLE, and after ───► quire_tier_peer_set_whole(peer, 1)
 *                                batch number 0
 *
 * One thread at a time calls these two, any but that of the scheduler's steps, and before
 * quire_tier_close. Neither waits. QUIRE_E_DISABLED without max_hints.
 */
struct quire_wire_event;

/* Stored and removed blocks of medium "CPU", and AllBlocksCleared, count; other events are passed
 * over. QUIRE_E_ARGUMENT for hashes that are numbers: the publisher has hashes_as_bytes = 1.
 * QUIRE_FULL beyond max_hints: what is known is no longer whole. */
QUIRE_API int quire_tier_peer_take_event(quire_tier_peer *peer,
                                         const struct quire_wire_event *event);
/* 1: the events so far name all that the peer has. 0: they do not, and all are forgotten. */
QUIRE_API int quire_tier_peer_set_whole(quire_tier_peer *peer, uint32_t is_whole);

#ifdef __cplusplus
}
#endif
#endif
