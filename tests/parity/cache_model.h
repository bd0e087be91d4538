/* parity/cache_model.h - one cache of a recording, its requests, and how it is described.
 *
 *      digest 17 of the recording   --cache_digest-->   16 or 32 bytes   --cache_add_hash-->   "17"
 *
 * A recording numbers digests by their first appearance: to a cache only their equality matters, so
 * any bytes do that are different for different numbers. Here the last four are the number, masked
 * with the first four; the way back is exact.
 */
#ifndef PARITY_CACHE_MODEL_H
#define PARITY_CACHE_MODEL_H

#include "parity/recording.h"

#include <quire/cache.h>

enum {
    CACHE_MAX_GROUPS = 8,
    CACHE_MAX_BLOCKS = 256,
    CACHE_MAX_HASHES = 2048,
    CACHE_MAX_DIGEST = 32,
    CACHE_MAX_REQUESTS = 128
};

typedef struct cache_request {
    quire_cache_request q;
    uint32_t num_prompt_tokens;
    uint32_t shared_prefix_boundary; /* as the lookup said that admitted it */
    unsigned char hashes[CACHE_MAX_HASHES * CACHE_MAX_DIGEST];
} cache_request;

/* The answer of the last lookup, kept: the spans of the library end with the next one. */
typedef struct cache_hit {
    quire_block ids[CACHE_MAX_GROUPS][CACHE_MAX_HASHES];
    quire_block_span spans[CACHE_MAX_GROUPS];
    uint32_t num_tokens;
} cache_hit;

static inline bool cache_is_0_32(const recording *r)
{
    return r->profile == QUIRE_PROFILE_VLLM_0_32;
}

typedef struct cache_model {
    recording r;
    quire_profile profile;
    quire_cache *cache;
    quire_cache_config config;
    quire_group_config groups[CACHE_MAX_GROUPS];
    char mix[32];
    bool
        is_passed_over; /* the profile of this replay refuses the cache, the recorded one does not */
    cache_request requests[CACHE_MAX_REQUESTS];
    cache_hit hit;
    text events;       /* of this call, as the hook told them */
    text log_expected; /* the same as the log must have them, since it was last taken */
    text log_taken;
    uint64_t num_stored;
    uint64_t num_removed;
    uint64_t num_cleared;
    uint64_t num_partial;        /* stored, for a part of a block */
    uint64_t num_keyless;        /* stored, but no block got a key */
    const cache_request *caller; /* the request that the call is about */
} cache_model;

/* Makes the cache that a `cache` line describes; the one before is destroyed. */
void cache_model_start(cache_model *m);
/* Fails when the cache can be made. */
void cache_model_refuse(cache_model *m);
void cache_model_free(cache_model *m);

/* Reads "1-3,7" and adds these digests to a request's hashes. */
void cache_read_hashes(cache_model *m, cache_request *request);

void cache_add_spans(text *t, const cache_model *m, const quire_block_span *spans);
void cache_add_request(text *t, cache_model *m, const cache_request *request);
/* Free blocks, usage and keys; with all, the free queue and every block too. */
void cache_add_state(text *t, cache_model *m, bool all);
/* Compares what the event log has with what the hook was told. */
void cache_check_log(cache_model *m);

uint32_t cache_num_sink_blocks(const cache_model *m);

#endif
