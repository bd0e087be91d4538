/* quire/tier_redis.h - KV blocks in a Redis cluster, or in one Redis or Valkey server.
 *
 *      key    quire:1:<fingerprint>:<hash>:<group>:<rank>   one key for each block
 *      value  | header, 128 bytes: identity, CRC32C | the bytes of the block |
 *
 *      the tier's thread ── connections ──► node A   slots 0 .. 5460
 *             │          ── connections ──► node B   slots 5461 .. 10922
 *        epoll, no waiting ─ connections ──► node C   slots 10923 .. 16383
 *
 * Blocks go directly between the memory of the jobs and the socket, without a copy. The tier learns
 * the map of slots from the servers (CLUSTER SLOTS) and corrects it when they answer MOVED or ASK.
 * Each node has its own breaker: a node that is down or stuck costs its own blocks, and no time
 * once it is known. Every reply of a server is checked byte by byte: a load returns the stored
 * bytes, or an error.
 *
 * Commands: AUTH, PING, CLUSTER SLOTS, ASKING, GET, SET, DEL, STRLEN, INFO, DBSIZE.
 * docs/tiers-redis.md has the settings of the server, an ACL user with just these commands, the
 * format, and the effect of each fault.
 *
 * The tier is shared: quire_tier_reset returns QUIRE_E_IDENTITY. If the meaning of blocks changes
 * (new weights), call quire_tier_set_identity with the new fingerprint. Engines with the old
 * fingerprint still find the old blocks, until these are evicted or expire (ttl_ms).
 *
 * Statuses of ios, beyond quire/tier.h:
 *
 *      NO_ROOM   the server is full (maxmemory with noeviction)
 *      WRONG     the value has another length, block or namespace, or is corrupt; it is deleted
 *      FAILED    connection error, node error, configuration error of the node, or timeout
 *      REFUSED   the breaker of the node is open: not tried
 */
#ifndef QUIRE_TIER_REDIS_H
#define QUIRE_TIER_REDIS_H

#include "tier.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_tier_redis quire_tier_redis;

typedef struct quire_tier_redis_config {
    size_t size;
    /* "10.0.0.1:6379", "[::1]:6379", "redis-0.cache", "unix:/run/redis.sock": some nodes of one
     * cluster, or one server without a cluster. Names are resolved again for each new connection.
     */
    const char *const *servers;
    uint32_t num_servers;
    /* QUIRE_FINGERPRINT_BYTES of quire_fingerprint: the namespace. */
    const unsigned char *fingerprint;
    /* Prefix of all keys; NULL: "quire". At most 64 printable characters, without blanks and { }.
     */
    const char *prefix;

    const char *user;     /* NULL: the server's default user */
    const char *password; /* NULL: no password. Never logged */
    /* Instead of password: a file whose first line is the password, read again for each new
     * connection, so that a token that expires can be replaced. Other users must not be able to
     * read the file. */
    const char *password_file;
    /* Instead of password: called on the tier's thread for each new connection. Writes at most
     * bytes bytes, with a 0 at the end, and returns 0. If it returns another value, the last
     * password is used again. The first call is made while the tier is opened, and must succeed. */
    int (*get_password)(void *user, char *password, size_t bytes);
    void *password_user;

    uint32_t tls; /* 1: TLS to all nodes, with verified certificates */
    /* 1: certificates are not verified: an attacker in the network can read and change blocks. */
    uint32_t tls_trust_any;
    const char *tls_ca_file;     /* PEM; NULL: the system's CAs */
    const char *tls_cert_file;   /* PEM, client certificate, if the server requires one */
    const char *tls_key_file;    /* its key */
    const char *tls_server_name; /* name in the certificates; NULL: the host of each node */
    /* Without TLS, only servers on this machine (loopback, unix:) are allowed: keys and values
     * could be read and changed in the network, and KV blocks can be turned back into prompts. 1:
     * the network is trusted. */
    uint32_t trust_network;

    uint32_t connections;     /* to each node; 0 = 3 */
    uint32_t max_nodes;       /* the most known nodes; 0 = 32 */
    uint32_t max_block_bytes; /* 0 = 64 MiB */
    /* Bytes of stores in flight on a connection; 0 = 16 MiB. One store is always allowed. */
    uint64_t window_bytes;
    /* Bytes of loads in flight on a connection; 0 = 3 MiB, which is best for a server on the same
     * machine: it copies each reply before it sends it, and many replies do not fit in its caches.
     * Over a network use bandwidth x round trip for each connection, and at least two blocks. One
     * load is always allowed. */
    uint64_t load_window_bytes;
    /* A block expires this time after it was stored; 0: never. Storing a block that is already
     * stored does not extend its time. */
    uint64_t ttl_ms;
    uint64_t connect_ns; /* timeout of a new connection; 0 = 1 s */
    /* Open waits at most this time for a first reply, and fails without a reply; 0: open does not
     * wait, and a server that is down is not an error. */
    uint64_t wait_ns;
    /* The shortest time between two refreshes of the map of slots; 0 = 1 s. */
    uint64_t refresh_ns;
    uint32_t breaker_strikes; /* failures in a row that open the breaker of a node; 0 = 3 */
    /* First time without requests to a node whose breaker opened, then doubled up to 12 times this
     * time, each an eighth more or less at random; 0 = 5 s. */
    uint64_t breaker_ns;
    /* A connection is closed if its reply is late by more than this after the deadline of a job; 0
     * = 1 s. */
    uint64_t late_ns;
    /* Time between two requests of INFO memory and DBSIZE to each server, by the tier's thread; 0 =
     * 5 s. quire_tier_stats then has the keys of all servers with slots, stored by any client, as
     * cached; the blocks that fit below maxmemory as empty; and the bytes. */
    uint64_t usage_ns;
    /* The most keys that KV events report: keys that this engine has seen in the tier. If there is
     * one more, the least recently used key is reported as removed, although the tier may still
     * have it. 0: no events of this tier. See quire_offload_config.events. */
    uint32_t event_keys;
} quire_tier_redis_config;

#define QUIRE_TIER_REDIS_CONFIG_INIT QUIRE_SIZED_INIT(quire_tier_redis_config)

/* Opens the tier. common: as for quire_tier_open, with ops and self NULL; NULL: all defaults.
 * redis, if not NULL, gets the handle for stats, valid until the tier is closed. Returns
 * QUIRE_E_CONFIG, QUIRE_E_ARGUMENT, QUIRE_E_UNSAFE (a server beyond this machine without TLS),
 * QUIRE_E_NOMEM or QUIRE_E_SYSTEM; quire_refusal says why and what to do. */
QUIRE_API int quire_tier_redis_open(const quire_tier_redis_config *config,
                                    const quire_tier_config *common,
                                    const quire_allocator *allocator, quire_tier **tier,
                                    quire_tier_redis **redis);

/* The two parts of the tier, for the caller's own runner. max_jobs: the most jobs begun at a time.
 * hooks may be NULL. close of the ops frees the handle, also if it was never opened. */
QUIRE_API int quire_tier_redis_create(const quire_tier_redis_config *config, uint32_t max_jobs,
                                      const quire_hooks *hooks, quire_tier_redis **redis);
QUIRE_API const quire_tier_ops *quire_tier_redis_ops(void);

typedef struct quire_tier_redis_stats {
    size_t size;
    uint64_t nodes;
    uint64_t nodes_open; /* nodes whose breaker is open */
    uint64_t slots;      /* slots that have a node; of 16,384 */
    uint64_t connections;
    uint64_t calls; /* sent or waiting, now; with calls whose job has ended */
    uint64_t jobs;  /* begun and not ended, now */
    /* since the tier was opened */
    uint64_t connected;
    uint64_t lost; /* connections lost, for any reason */
    uint64_t refreshed;
    uint64_t moved;
    uint64_t asked;
    uint64_t surprises; /* protocol errors: the connection was closed */
    uint64_t wrong;     /* corrupt or foreign values */
    uint64_t refused;
    uint64_t late;
    uint64_t present; /* stores of blocks that were already stored: not sent */
    uint64_t bytes_in;
    uint64_t bytes_out;
} quire_tier_redis_stats;

#define QUIRE_TIER_REDIS_STATS_INIT QUIRE_SIZED_INIT(quire_tier_redis_stats)

QUIRE_API int quire_tier_redis_get_stats(const quire_tier_redis *redis,
                                         quire_tier_redis_stats *stats); /* any thread */

/* 1 if this library was built with TLS, otherwise 0. */
QUIRE_API int quire_tier_redis_has_tls(void);

#ifdef __cplusplus
}
#endif
#endif
