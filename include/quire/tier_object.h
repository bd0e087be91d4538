/* quire/tier_object.h - KV blocks in an object store that speaks the S3 protocol: AWS S3, MinIO,
 * Ceph, and others.
 *
 *      object  <prefix>/1/<fingerprint>/<hash>-<group>-<rank>   one object for each block
 *      body    | header, 128 bytes: identity, CRC32C | the bytes of the block |
 *
 *      the tier's thread ─┬─ connection ─► HEAD ... HEAD ... GET ...
 *        libcurl, epoll   ├─ connection ─► GET ...
 *                         └─ connection ─► PUT ...            one request at a time on each
 *
 * FIND is HEAD, LOAD is GET, STORE is HEAD and then PUT, REMOVE is DELETE. Requests are signed with
 * AWS Signature Version 4. A request that the server could not answer (500, 502, 503, 504, 429,
 * 408, a lost connection, no byte for stall_ns) is retried after a random pause, up to max_attempts
 * times and not after the deadline of its job. A load returns the stored bytes, or an error: the
 * length is checked before the body is read, then header and CRC32C.
 *
 * docs/tiers-object.md has the settings, the permissions of the user, the format, and the effect of
 * each fault. The tier needs libcurl; if the library was built without libcurl, open returns
 * QUIRE_E_CONFIG (quire_tier_object_is_built).
 *
 * The tier is shared: quire_tier_reset returns QUIRE_E_IDENTITY. If the meaning of blocks changes
 * (new weights), call quire_tier_set_identity with the new fingerprint. The tier deletes corrupt
 * objects only: let a lifecycle rule of the bucket delete old objects.
 *
 * Statuses of ios, beyond quire/tier.h:
 *
 *      NO_ROOM   the store is full, or a quota is reached
 *      WRONG     the object has another length, block or namespace, or is corrupt; it is deleted
 *      FAILED    connection error, error of the server, access denied, or timeout
 *      DONE      REMOVE: also if the object did not exist, since servers do not report it
 */
#ifndef QUIRE_TIER_OBJECT_H
#define QUIRE_TIER_OBJECT_H

#include "tier.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_tier_object quire_tier_object;

typedef struct quire_tier_object_config {
    size_t size;
    /* "https://minio.example:9000", "http://127.0.0.1:9000"; NULL: AWS S3 in the region. */
    const char *endpoint;
    const char *bucket; /* must exist; 3..63 of a-z 0-9 . - */
    /* 1..63 of a-z 0-9 -; NULL: the environment's AWS_REGION, AWS_DEFAULT_REGION, or us-east-1. */
    const char *region;
    /* First part of all names; NULL: "quire". 1..128 of A-Z a-z 0-9 . _ - /, where each part
     * between two / begins with a letter or a digit. */
    const char *prefix;
    /* QUIRE_FINGERPRINT_BYTES of quire_fingerprint: the namespace. */
    const unsigned char *fingerprint;
    /* ON: https://BUCKET.HOST/NAME; OFF: https://HOST/BUCKET/NAME. DEFAULT: ON for AWS S3 (endpoint
     * NULL), OFF for any other endpoint. */
    quire_switch virtual_host;

    /* Credentials: one of these three sources. If all are NULL: the environment's
     * AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; then the file
     * AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials, if it exists; then
     * AWS_CONTAINER_CREDENTIALS_FULL_URI or AWS_CONTAINER_CREDENTIALS_RELATIVE_URI. Credentials are
     * never logged. */
    const char *access_key;
    const char *secret_key;
    const char *session_token; /* NULL: none */
    /* A file in the format of the AWS tools. It is read again when it changes, and when the server
     * refuses the credentials. Other users must not be able to read the file. */
    const char *credentials_file;
    const char *profile; /* in the file; NULL: the environment's AWS_PROFILE, or "default" */
    /* Asked for credentials that expire, and again 5 minutes before they expire: "https://...", or
     * "http://" to this machine, 169.254.170.2 or 169.254.170.23. */
    const char *credentials_uri;
    /* A file whose first line is the Authorization header of that request. NULL: the environment's
     * AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or AWS_CONTAINER_AUTHORIZATION_TOKEN, or none. */
    const char *credentials_token_file;

    /* 1: certificates are not verified: an attacker in the network can read and change blocks. */
    uint32_t tls_trust_any;
    const char *tls_ca_file;   /* PEM; NULL: the system's CAs */
    const char *tls_cert_file; /* PEM, client certificate, if the server requires one */
    const char *tls_key_file;  /* its key */
    /* With "http://" only endpoints on this machine are allowed: blocks could be read and changed
     * in the network, and KV blocks can be turned back into prompts. 1: the network is trusted. */
    uint32_t trust_network;
    /* ON: the SHA-256 of each stored object is part of the signature, which takes about 1 ms of the
     * tier's thread for 2 MiB. DEFAULT: ON without TLS, OFF with TLS, which protects the bytes. */
    quire_switch sign_payload;

    /* Requests in flight, each on one connection; 0 = 32, at most 256. At most three quarters of
     * them are stores, so that loads do not wait for stores. */
    uint32_t connections;
    uint32_t max_block_bytes; /* 0 = 64 MiB, at most 512 MiB */
    uint32_t max_attempts;    /* of one request; 0 = 4, at most 16 */
    /* The longest pause before the second attempt, doubled for each further attempt; the pause is
     * random, and at least half as long. 0 = 50 ms, at most 10 s. */
    uint64_t retry_ns;
    uint64_t connect_ns; /* timeout of a new connection; 0 = 1 s */
    /* An attempt ends if no byte moves for this time; 0 = 2 s. */
    uint64_t stall_ns;
    /* Open waits at most this time for a first reply (HEAD of the bucket), and fails without a
     * reply that allows access; 0: open does not wait, and a server that is down is not an
     * error. */
    uint64_t wait_ns;
    /* The most keys that KV events report: see quire_tier_redis_config. 0: no events of this
     * tier. */
    uint32_t event_keys;
} quire_tier_object_config;

#define QUIRE_TIER_OBJECT_CONFIG_INIT QUIRE_SIZED_INIT(quire_tier_object_config)

/* Opens the tier. common: as for quire_tier_open, with ops and self NULL; NULL: all defaults.
 * object, if not NULL, gets the handle for stats, valid until the tier is closed. Returns
 * QUIRE_E_CONFIG, QUIRE_E_ARGUMENT, QUIRE_E_UNSAFE (an endpoint beyond this machine without TLS),
 * QUIRE_E_NOMEM or QUIRE_E_SYSTEM; quire_refusal says why and what to do. */
QUIRE_API int quire_tier_object_open(const quire_tier_object_config *config,
                                     const quire_tier_config *common,
                                     const quire_allocator *allocator, quire_tier **tier,
                                     quire_tier_object **object);

/* The two parts of the tier, for the caller's own runner. max_jobs: the most jobs begun at a time.
 * hooks may be NULL. close of the ops frees the handle, also if it was never opened. */
QUIRE_API int quire_tier_object_create(const quire_tier_object_config *config, uint32_t max_jobs,
                                       const quire_hooks *hooks, quire_tier_object **object);
QUIRE_API const quire_tier_ops *quire_tier_object_ops(void);

typedef struct quire_tier_object_stats {
    size_t size;
    uint64_t connections; /* open, now */
    uint64_t calls;       /* requests sent or waiting for their next attempt, now */
    uint64_t jobs;        /* begun and not ended, now */
    /* since the tier was opened */
    uint64_t connected;
    uint64_t lost;      /* attempts that ended with a connection error or a timeout */
    uint64_t requests;  /* attempts */
    uint64_t retries;   /* of them: not the first attempt of a request */
    uint64_t slowed;    /* replies 429 and 503: the server asks for fewer requests */
    uint64_t denied;    /* replies 401 and 403 */
    uint64_t renewed;   /* times that the credentials changed */
    uint64_t surprises; /* protocol errors: the connection was closed */
    uint64_t wrong;     /* corrupt or foreign objects */
    uint64_t refused;
    uint64_t late;
    uint64_t present; /* stores of blocks that were already stored: not sent */
    uint64_t bytes_in;
    uint64_t bytes_out;
} quire_tier_object_stats;

#define QUIRE_TIER_OBJECT_STATS_INIT QUIRE_SIZED_INIT(quire_tier_object_stats)

QUIRE_API int quire_tier_object_get_stats(const quire_tier_object *object,
                                          quire_tier_object_stats *stats); /* any thread */

/* 1 if this library was built with libcurl, otherwise 0: open fails. */
QUIRE_API int quire_tier_object_is_built(void);

#ifdef __cplusplus
}
#endif
#endif
