/* tier/lower.h - the tiers below the CPU pool: what is found there, fetched, and put there.
 *
 *      a request asks ──► lookup in each tier ──► FIND where only the tier knows
 *                              │ worth it (costs.h)
 *                              ▼
 *      CPU blocks taken, LOAD ──► checked ──► they get their keys: a hit of the CPU pool
 *                              │ failed, late: the request goes on without; a late job's CPU blocks
 *                              ▼ are nobody's until it ends
 *      CPU block stored ──► admitted? ──► STORE, with one user more until it ended
 *
 * A key is fetched by one job at a time; others that need it wait for the same.
 */
#ifndef QR_TIER_LOWER_H
#define QR_TIER_LOWER_H

#include <quire/offload.h>

#include <stdbool.h>

typedef struct qr_lower qr_lower;

/* What of the config matters here; groups are those of the CPU pool's cache. */
size_t qr_lower_bytes(const quire_offload_config *config);
qr_lower *qr_lower_create_in(void *memory, const quire_offload_config *config, quire_cache *cpu);

/* A request, as it is seen here: its hashes from block 0 on, digest_bytes each. */
typedef struct qr_lower_request {
    quire_req req;
    const unsigned char *hashes;
    uint32_t num_hashes;
    uint32_t num_tokens; /* at most so many, less one, can be a hit */
    uint32_t num_found;  /* tokens that the engine or the CPU pool has already */
    uint64_t order;      /* place in the queue: smaller is sooner */
} qr_lower_request;

/* Starts fetching what is worth it, or goes on. true: the request should wait for it (ask again in
 * the next step); false: there is nothing more to wait for, what came is in the CPU pool. */
bool qr_lower_ask(qr_lower *lower, const qr_lower_request *request);
/* The same without waiting, for requests further behind in the queue. */
void qr_lower_prefetch(qr_lower *lower, const qr_lower_request *request);
/* The request has ended, or was admitted. */
void qr_lower_forget(qr_lower *lower, quire_req req);

/* These CPU blocks have their content now; keys are those the CPU pool knows. */
void qr_lower_stored(qr_lower *lower, const quire_block *cpu_blocks, const uint32_t *crcs,
                     uint32_t num_blocks);
/* The blocks were a hit. */
void qr_lower_reused(qr_lower *lower, const quire_block *cpu_blocks, uint32_t num_blocks);

/* Ends of jobs; once in a step. */
void qr_lower_poll(qr_lower *lower);
void qr_lower_learn(qr_lower *lower, uint32_t num_tokens, uint64_t ns);
/* Nothing that is on the way counts any more; the tiers are reset. */
int qr_lower_reset(qr_lower *lower);
bool qr_lower_is_idle(const qr_lower *lower);
/* References in the CPU pool that are held here, for the walker: adds to refs[block]. */
void qr_lower_count_refs(const qr_lower *lower, uint32_t *refs);
void qr_lower_add_stats(const qr_lower *lower, quire_offload_stats *stats);

#endif
