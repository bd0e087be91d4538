/* quire/tier_redis.h - KV blocks in a Redis cluster, or in one Redis or Valkey server.
 *
 *      key    quire:1:<fingerprint>:<hash>:<group>:<rank>   one for each block, on all nodes alike
 *      value  | header, 128 bytes: what it is, CRC32C | the block's bytes |
 *
 *      the tier's thread ── connections ──► node A   slots 0 .. 5460
 *             │          ── connections ──► node B   slots 5461 .. 10922
 *        epoll, no waiting ─ connections ──► node C   slots 10923 .. 16383
 *
 * Blocks go from the jobs' memory to the socket and from the socket into it; nothing is copied in
 * between. The map of slots is learned from the servers (CLUSTER SLOTS) and corrected when they say
 * so (MOVED, ASK). Each node has a breaker of its own: one that is down or stuck costs its own
 * blocks, and no time once it is known. What a server says is checked, byte by byte: a load gives
 * the bytes that were stored, or an error.
 *
 * Commands sent: AUTH, PING, CLUSTER SLOTS, ASKING, GET, SET, DEL, STRLEN, INFO, DBSIZE.
 * docs/tiers-redis.md has the server's settings, an ACL user with just these, the format, and what
 * each fault does.
 *
 * The tier is shared: quire_tier_reset is QUIRE_E_IDENTITY. Where the meaning of blocks changes
 * (new weights), call quire_tier_set_identity with the new fingerprint. The old blocks are still
 * found by engines of the old one, and go by eviction or ttl_ms.
 *
 * How jobs' ios end here, beyond what quire/tier.h says:
 *
 *      NO_ROOM   the server is full (maxmemory with noeviction)
 *      WRONG     the value is of another length, block or namespace, or damaged; it is deleted
 *      FAILED    the connection, the node, its configuration, or the time is over
 *      REFUSED   the node's breaker is open: not tried
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
     * cluster, or one server that is none. Names are looked up again for each new connection. */
    const char *const *servers;
    uint32_t num_servers;
    /* QUIRE_FINGERPRINT_BYTES, of quire_fingerprint: the namespace. */
    const unsigned char *fingerprint;
    const char
        *prefix; /* of all keys; NULL: "quire". Printable, without blanks and { }; up to 64 */

    const char *user;     /* NULL: the server's default user */
    const char *password; /* NULL: none. Never logged */
    /* Instead: its first line, read again for each new connection, so that a token that expires can
     * be replaced. Others must not be able to read the file. */
    const char *password_file;
    /* Instead: called on the tier's thread for each new connection; writes at most bytes, with a 0
     * at the end. 0: done; other: none, and the password before is tried again. The first call is
     * made while the tier is opened, and must give one. */
    int (*get_password)(void *user, char *password, size_t bytes);
    void *password_user;

    uint32_t tls;                /* 1: TLS to all nodes, and their certificates are checked */
    uint32_t tls_trust_any;      /* 1: they are not: whoever is in between can read and write */
    const char *tls_ca_file;     /* PEM; NULL: the system's */
    const char *tls_cert_file;   /* PEM, of this side, where the server asks for one; */
    const char *tls_key_file;    /* and its key */
    const char *tls_server_name; /* in the certificates; NULL: each node's host */
    /* Without TLS, only this machine (loopback, unix:) is talked to: keys and values can be read
     * and changed on the way, and KV blocks can be turned back into prompts. 1: the network between
     * is trusted. */
    uint32_t trust_network;

    uint32_t connections;     /* to each node; 0 = 3 */
    uint32_t max_nodes;       /* known at a time; 0 = 32 */
    uint32_t max_block_bytes; /* 0 = 64 MiB */
    uint64_t window_bytes; /* of stores under way on a connection; 0 = 16 MiB. One always may be */
    /* Of loads; 0 = 3 MiB, which is best for a server on the same machine: it copies each answer
     * before it sends it, and many at once do not fit its caches. Over a network take bandwidth x
     * round trip for each connection, and two blocks at least. One block always may be. */
    uint64_t load_window_bytes;
    uint64_t ttl_ms;     /* a block is gone so long after it was stored; 0: never. Storing a
                                 block that is there does not make its time longer */
    uint64_t connect_ns; /* until a new connection answers; 0 = 1 s */
    uint64_t wait_ns;    /* open waits so long for a first answer, and fails without; 0: it does
                                 not wait, and a server that is down is no error */
    uint64_t refresh_ns; /* between two looks at the map of slots, at least; 0 = 1 s */
    uint32_t breaker_strikes; /* of each node; 0 = 3 */
    uint64_t breaker_ns;      /* a node is left alone for so long first, then doubled up to 12 times
                                 that, each with some chance added; 0 = 5 s */
    uint64_t late_ns;         /* a connection whose answer is late by more than this beyond a job's
                                 deadline is closed; 0 = 1 s */
    /* Each server is asked so often how full it is (INFO memory, DBSIZE), by the tier's thread;
     * 0 = 5 s. quire_tier_stats then has the keys of all servers with slots, of whoever stored
     * them, as cached, and as empty the blocks that fit below maxmemory; and the bytes. */
    uint64_t usage_ns;
    /* KV events tell of at most so many keys that this engine has seen here: of one more than that
     * the key that was not used for longest is told as removed, although it may be there. 0: no
     * events of this tier. See quire_offload_config.events. */
    uint32_t event_keys;
} quire_tier_redis_config;

#define QUIRE_TIER_REDIS_CONFIG_INIT QUIRE_SIZED_INIT(quire_tier_redis_config)

/* The tier. common: as for quire_tier_open, with ops and self NULL; NULL: all defaults. redis,
 * where not NULL, gets the handle for stats, good until the tier is closed. QUIRE_E_CONFIG,
 * E_ARGUMENT, E_UNSAFE (a server beyond this machine without TLS), E_NOMEM, E_SYSTEM; message,
 * where not NULL, gets a sentence that says what to do. */
QUIRE_API int quire_tier_redis_open(const quire_tier_redis_config *config,
                                    const quire_tier_config *common,
                                    const quire_allocator *allocator, quire_tier **tier,
                                    quire_tier_redis **redis, char *message, size_t message_bytes);

/* The two parts of it, for a runner of one's own. max_jobs: begun at a time. hooks may be NULL. The
 * ops' close frees it, also when it was never opened. */
QUIRE_API int quire_tier_redis_create(const quire_tier_redis_config *config, uint32_t max_jobs,
                                      const quire_hooks *hooks, quire_tier_redis **redis,
                                      char *message, size_t message_bytes);
QUIRE_API const quire_tier_ops *quire_tier_redis_ops(void);

typedef struct quire_tier_redis_stats {
    uint64_t nodes;
    uint64_t nodes_open; /* breakers */
    uint64_t slots;      /* that have a node; of 16,384 */
    uint64_t connections;
    uint64_t calls; /* sent or waiting, now; those whose job is gone, too */
    uint64_t jobs;  /* begun and not ended, now */
    /* since it was opened */
    uint64_t connected;
    uint64_t lost; /* connections, for whatever reason */
    uint64_t refreshed;
    uint64_t moved;
    uint64_t asked;
    uint64_t surprises; /* of the protocol: the connection was closed */
    uint64_t wrong;     /* values */
    uint64_t refused;
    uint64_t late;
    uint64_t present; /* stores of blocks that were there: not sent */
    uint64_t bytes_in;
    uint64_t bytes_out;
} quire_tier_redis_stats;

QUIRE_API int quire_tier_redis_get_stats(const quire_tier_redis *redis,
                                         quire_tier_redis_stats *stats); /* any thread */

/* 1 where this library was built with TLS. */
QUIRE_API int quire_tier_redis_has_tls(void);

#ifdef __cplusplus
}
#endif
#endif
