/* cli/tiers/tiers.h - what lies behind the GPU's memory in a replay: host memory, a peer, a file,
 * Redis, an object store.
 *
 *      scheduler ── tiers_run ── quire_offload ──► tiers_device    copies over a link, in simulated
 *                   whose tokens      │                            time
 *                   came from where   └─ quire_tier ─► tiers_sim   keys without bytes, the same
 *                                                   └► tiers_real  a peer, a file, a Redis cluster,
 *                                                                  an object store
 *
 * tier      0 is the host's memory, the CPU pool; those behind it are lower tiers.
 * in, out   blocks that moved over the link to a tier: towards it, and back.
 */
#ifndef QUIRE_CLI_TIERS_H
#define QUIRE_CLI_TIERS_H

#include "options/tls_options.h"
#include "page/page.h"

#include <quire/offload.h>
#include <quire/slots.h>
#include <stdbool.h>

enum { TIERS_MAX_LOWER = 4, TIERS_MAX = 1 + TIERS_MAX_LOWER, TIERS_PLACE_BYTES = 256 };

typedef enum tiers_kind { TIERS_CPU, TIERS_FILE, TIERS_REDIS, TIERS_PEER, TIERS_OBJECT } tiers_kind;

typedef struct tiers_lower {
    tiers_kind kind;
    uint64_t bytes;                /* its size; 0: whatever is there, of a real one */
    char place[TIERS_PLACE_BYTES]; /* path, HOST:PORT,... or URL; empty: simulated */
    double bytes_per_s;
    double latency_s;
} tiers_lower;

typedef struct tiers_settings {
    uint32_t cpu_blocks; /* 0: there are no tiers */
    quire_offload_mode mode;
    bool has_lookahead;
    uint32_t backlog;
    double bytes_per_s; /* of the link between GPU and host, each direction */
    double latency_s;
    tiers_lower lower[TIERS_MAX_LOWER]; /* the fastest first */
    uint32_t num_lower;
    quire_slots_policy policy; /* of simulated lower tiers, and the file */
    quire_offload_admit admit;
    bool is_real;
    bool trust_network;        /* of real Redis servers */
    const char *password_file; /* NULL: none */
    double failures;           /* share of copies and jobs that fail, of simulated ones */
    const char *peer_listen;   /* host memory is offered to peers there; NULL: not */
    uint32_t *peer_port;       /* where it listens then; NULL: nobody asks */
    const char *peer_secret_file;
    bool peer_trust_network;
    tls_options peer_tls; /* of both sides */
    tls_options redis_tls;
    const char *object_region; /* NULL: the environment's, or us-east-1 */
    const char *object_credentials_file;
    const char *object_tls_ca_file;
    bool object_trust_network;
} tiers_settings;

/* tiers_options.c: what a tier is called in the names of columns and metrics; slots of a lower
 * tier; the names and sizes of all, whose number is returned. */
const char *tiers_label(tiers_kind kind);
uint32_t tiers_num_slots(const tiers_lower *lower, uint64_t block_bytes);
uint32_t tiers_describe(const tiers_settings *s, uint64_t block_bytes, page_tier *tiers);

/* ---- what came of it -------------------------------------------------------- */

typedef struct tiers_tally {
    const char *name;  /* "CPU", "Peer", "File", "Redis", "Object" */
    const char *label; /* "cpu", "peer", "file", "redis", "object" */
    uint64_t total;
    quire_usage usage; /* at the end */
    quire_usage most;
    double mean_empty;
    double mean_cached;
    double mean_active;
    uint64_t hit_tokens; /* of prompts that count in the report */
    uint64_t in_blocks;
    uint64_t out_blocks;
    uint64_t failed_blocks;  /* loads and stores */
    uint64_t late_blocks;    /* loads that nobody waited for any more */
    uint64_t skipped_tokens; /* were there; computing them was expected to be faster */
    uint64_t refused_blocks; /* not admitted, or no room */
} tiers_tally;

typedef struct tiers_result {
    uint32_t num_tiers; /* 0: there were none */
    tiers_tally tiers[TIERS_MAX];
    uint64_t gpu_hit_tokens;    /* gpu_hit_tokens + hit_tokens of all tiers + computed_tokens */
    uint64_t computed_tokens;   /*     = prompt_tokens */
    uint64_t saved_preemptions; /* after which host memory had, or got, the request's KV */
    uint64_t saved_tokens;
    uint64_t restored_tokens; /* of preempted requests: came from tiers, and were not computed */
    uint64_t failed_loads;    /* requests */
    double recompute_s;       /* what computing the loaded tokens would have taken */
    double wait_s;            /* that requests waited for them */
    uint64_t wrong_blocks;    /* came back with other bytes: real ones */
} tiers_result;

#endif
