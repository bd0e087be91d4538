/* tier/promote/promote.h - the tiers below the CPU pool: what is found there, fetched, and put
 * there.
 *
 *      a request asks ──► lookup in each tier ──► FIND where only the tier knows
 *                              │ worth it (costs.h)
 *                              ▼
 *      CPU blocks taken, LOAD ──► checked ──► they get their keys: a hit of the CPU pool
 *                              │ failed, late: the request goes on without; a late job's CPU blocks
 *                              ▼ are nobody's until it ends
 *      CPU block stored ──► admitted? ──► STORE, with one user more until it ended
 *
 * A key is fetched by one job at a time; others that need it wait for the same. What was not found,
 * failed, came late or was not worth it for a request is not tried again for that request.
 *
 * No request waits longer than its tiers' deadlines, whatever the tiers do. Tables are as large as
 * creation made them: what does not fit is not fetched, or not stored.
 */
#ifndef QR_TIER_PROMOTE_PROMOTE_H
#define QR_TIER_PROMOTE_PROMOTE_H

#include "base/rules.h"

#include <quire/monitor.h>
#include <quire/offload.h>

#include <stdbool.h>

typedef struct qr_promote qr_promote;

/* Whether a hit of a group needs all blocks from the first on. */
static inline bool qr_is_full_kind(quire_layer_kind kind)
{
    return kind == QUIRE_LAYER_FULL || kind == QUIRE_LAYER_TQ_FULL || kind == QUIRE_LAYER_MLA ||
           kind == QUIRE_LAYER_SINK_FULL || kind == QUIRE_LAYER_HIDDEN_STATE;
}

/* Tokens of a group's block, which has positions of all ranks of context parallelism. */
static inline uint64_t qr_block_tokens(const quire_cache_config *cache, uint32_t group)
{
    uint64_t dcp = cache->dcp_world_size > 0 ? cache->dcp_world_size : 1;
    uint64_t pcp = cache->pcp_world_size > 0 ? cache->pcp_world_size : 1;
    uint64_t tokens = cache->groups[group].spec.block_size;
    if (!qr_rules_of(cache->profile)->shards_attention_only)
        return tokens * dcp * pcp;
    return cache->groups[group].spec.kind == QUIRE_LAYER_MAMBA ? tokens : tokens * dcp;
}

/* 0: not a config for this, or a tier cannot take its blocks. Of it matter the tiers, memory,
 * block_bytes, rank, num_cpu_blocks, recompute_token_ns, the hooks, and of its sched the cache and
 * max_requests. */
size_t qr_promote_bytes(const quire_offload_config *config);
/* cpu: of the same groups; its hash block size is the engine's. NULL: as _bytes says 0. */
qr_promote *qr_promote_create_in(void *memory, const quire_offload_config *config,
                                 quire_cache *cpu);
/* Asked when promotion finds fewer free CPU blocks than it needs: to let go of what is kept for
 * later, until so many are free. */
void qr_promote_set_room(qr_promote *promote, void (*make_room)(void *user, uint32_t num_blocks),
                         void *user);

/* A request, as it is seen here: its hashes from block 0 on, digest_bytes each. */
typedef struct qr_promote_request {
    quire_req req;
    const unsigned char *hashes;
    uint32_t num_hashes;
    uint32_t num_tokens; /* at most so many, less one, can be a hit */
    uint32_t num_local;  /* tokens that the engine has, whole blocks, */
    uint32_t num_found;  /* and those with what the CPU pool has behind them */
} qr_promote_request;

/* Starts fetching what is worth it, or goes on. true: the request should wait for it (ask again in
 * the next step); false: there is nothing more to wait for, what came is in the CPU pool, and this
 * call has changed nothing there. */
bool qr_promote_ask(qr_promote *promote, const qr_promote_request *request);
/* The same without waiting, for requests further behind in the queue: what they need is fetched
 * when nobody else needs the tier. */
void qr_promote_prefetch(qr_promote *promote, const qr_promote_request *request);
/* Whether hashes of all its blocks are of interest: else those of what was found and of the next
 * block tell whether there is more at all. */
bool qr_promote_needs_all(const qr_promote *promote);
bool qr_promote_has_next(qr_promote *promote, const qr_promote_request *request);
/* The request has ended, or was admitted. What is on the way for it still comes, for others. */
void qr_promote_forget(qr_promote *promote, quire_req req);

/* These CPU blocks have their content and their keys now. crcs NULL: the tier's thread makes them.
 * They go their way in qr_promote_poll. */
void qr_promote_stored(qr_promote *promote, const quire_block *cpu_blocks, const uint32_t *crcs,
                       uint32_t num_blocks);
/* These were written over, and what came is not good: stores of what they had are void. */
void qr_promote_forget_content(qr_promote *promote, const quire_block *blocks, uint32_t num_blocks);
/* The blocks were a hit; null blocks are passed over. Hits of a tier are those of blocks that came
 * from it and were no hit since. */
void qr_promote_reused(qr_promote *promote, const quire_block *cpu_blocks, uint32_t num_blocks);

/* Ends of jobs, and what is next; once in a step. */
void qr_promote_poll(qr_promote *promote);
/* A prefill of so many tokens took so long. */
void qr_promote_learn(qr_promote *promote, uint32_t num_tokens, uint64_t ns);
/* Nothing that is on the way counts any more; the tiers are reset. QUIRE_E_IDENTITY, and nothing
 * has changed: a tier is shared with other engines. */
int qr_promote_reset(qr_promote *promote);
/* The same, with another identity for all tiers. QUIRE_BUSY, and nothing has changed: a tier has
 * jobs. Other errors: those of a tier, which is not used any more. */
int qr_promote_set_identity(qr_promote *promote, const unsigned char *fingerprint);
/* The same as soon as no tier has jobs, in a later qr_promote_poll if need be; until then the tiers
 * are not used. Errors of tiers are logged then. */
int qr_promote_set_identity_soon(qr_promote *promote, const unsigned char *fingerprint);
bool qr_promote_can_reset(const qr_promote *promote);
/* Whether something is to be done that will end soon: jobs that are late do not count. */
bool qr_promote_has_pending(const qr_promote *promote);
/* Whether no tier has anything of the CPU pool's memory, late jobs included. */
bool qr_promote_is_idle(const qr_promote *promote);

/* The monitor tells what each tier has from now on, as its tiers from first_place on. Ends with
 * qr_promote_unwatch_tiers, or with the tier. */
void qr_promote_watch_tiers(qr_promote *promote, quire_monitor *monitor, uint32_t first_place);
void qr_promote_unwatch_tiers(qr_promote *promote);

/* References in the CPU pool that are held here, for the walker: adds to refs[block]. */
void qr_promote_count_refs(const qr_promote *promote, uint32_t *refs);
/* Walks everything: QUIRE_OK or QUIRE_E_CORRUPT. */
int qr_promote_check(const qr_promote *promote);
/* As quire_tier_usage says, from the fastest tier to the slowest; returns how many. */
uint32_t qr_promote_get_tiers(const qr_promote *promote, quire_tier_usage *tiers,
                              uint32_t capacity);
void qr_promote_add_stats(const qr_promote *promote, quire_offload_stats *stats); /* any thread */

#endif
