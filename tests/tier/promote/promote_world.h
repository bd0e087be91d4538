/* tier/promote/promote_world.h - a CPU pool with faulty tiers below it, and requests that ask.
 *
 *      request ── ask ... false ──► the CPU pool's hit, every block looked at
 *                                   the rest is "computed": stored in the CPU pool, and offered
 *                                   to the tiers
 *
 * Every block's bytes are the pattern of its key. A block that has a key and other bytes is the
 * failure that all of this is about.
 */
#ifndef PROMOTE_WORLD_H
#define PROMOTE_WORLD_H

#include "base/unit.h"
#include "tier/core/faulty.h"
#include "tier/promote/promote.h"

#ifndef WORLD_MAX_HASHES
#define WORLD_MAX_HASHES 64
#endif

enum {
    WORLD_MAX_TIERS = 3,
    WORLD_RANK = 3, /* in all keys */
    WORLD_MAX_REQUESTS = 16,
    WORLD_TOKENS = 16, /* of a hash */
    WORLD_BYTES = 64   /* of a block */
};

typedef enum world_groups {
    WORLD_FULL,         /* one group */
    WORLD_WINDOW,       /* full and a window, which joins two hashes */
    WORLD_MAMBA,        /* full and states */
    WORLD_ALL,          /* all of them */
    WORLD_WINDOW_ALONE, /* no full group */
    WORLD_CHUNKED,      /* full and chunks */
    WORLD_NUM_GROUPS
} world_groups;

typedef struct world_config {
    world_groups groups;
    uint32_t num_cpu_blocks;
    uint32_t num_tiers;
    uint32_t max_keys; /* of a tier; 0: plenty */
    bool has_threads;
    uint32_t shared_tiers; /* bits */
    quire_offload_admit admit;
    uint64_t deadline_ns; /* 0 = 20 ms */
    uint64_t max_bytes_in_flight;
    uint32_t max_jobs;
    uint64_t breaker_ns; /* 0 = 30 ms */
    uint64_t recompute_token_ns;
    double bytes_per_s;
    uint64_t latency_ns;
    const quire_tier_ops *ops; /* NULL: faulty_ops */
    uint64_t seed;
} world_config;

typedef struct world_request {
    quire_req req; /* 0: none */
    unsigned char hashes[WORLD_MAX_HASHES][32];
    uint32_t num_hashes;
    uint32_t num_tokens;
    uint32_t num_local;
    uint64_t asked_ns; /* when it began to wait; 0: not yet */
} world_request;

typedef struct world {
    world_config config;
    quire_group_config groups[3];
    uint32_t num_groups;
    quire_cache *cache;
    quire_pool *pool;
    unsigned char *memory;
    faulty *parts[WORLD_MAX_TIERS];
    quire_tier *tiers[WORLD_MAX_TIERS];
    qr_promote *promote; /* NULL: no tiers */
    void *lower_memory;
    uint64_t now_ns;
    uint64_t random;
    uint64_t next_generation;
    world_request requests[WORLD_MAX_REQUESTS];
    uint32_t *refs;
    uint64_t num_looked_at; /* blocks */
    uint64_t num_hit_tokens;
} world;

void world_open(world *w, const world_config *config);
/* All references are gone, and what is left is the pool as it should be. */
void world_close(world *w);

/* A prompt: at every hash it goes one of several ways, the first one mostly. */
void world_draw_prompt(world *w, world_request *r, uint32_t num_hashes);
/* A request with this prompt in a free place. */
world_request *world_add(world *w, const world_request *prompt);

/* Tokens behind num_local that the CPU pool has; blocks and bytes are looked at. */
uint32_t world_match(world *w, const world_request *r);
bool world_ask(world *w, world_request *r);
void world_prefetch(world *w, world_request *r);
/* It is admitted: its hit is used, the rest of its full blocks computed and stored (each block of a
 * group that is not full with this chance of 1,000). Returns the hit. */
uint32_t world_admit(world *w, world_request *r, uint32_t keep_per_mille);
void world_abort(world *w, world_request *r);

/* Time goes on, jobs too. */
void world_step(world *w);
/* Steps until the request need not wait; it must end in time. Returns the steps. */
uint32_t world_wait(world *w, world_request *r);
/* Steps until nothing is in flight. */
void world_drain(world *w);
/* Every block that has a key has its bytes; references are those of jobs. */
void world_check(world *w);

/* Whether a key of the request's group is in a tier's memory. */
bool world_tier_has(world *w, uint32_t tier, const world_request *r, uint32_t group,
                    uint32_t block);
uint32_t world_block_size(const world *w, uint32_t group);
quire_offload_stats world_stats(const world *w);

/* ---- in short --------------------------------------------------------------- */

/* One world for tests that need no two: with one tier and 400 CPU blocks, where nothing is said. */
world *world_make(world_config config);
world_request world_draw(world *w, uint32_t num_hashes);
/* Computed, stored in the tiers, and gone from the CPU pool. */
void world_put_below(world *w, const world_request *prompt);
uint64_t world_tier_keys(world *w, uint32_t tier, quire_tier_op op, quire_tier_status status);
uint64_t world_tier_jobs(world *w, uint32_t tier);

#endif
