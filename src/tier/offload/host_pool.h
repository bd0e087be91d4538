/* tier/offload/host_pool.h - the CPU pool's cache, and what is found in it.
 *
 *      hashes of a request   | local: the engine has it | h | h | h | ...
 *                                                         └── a hit: all groups agree, and no block
 *                                                             of it is still being stored (held)
 */
#ifndef QR_TIER_OFFLOAD_HOST_POOL_H
#define QR_TIER_OFFLOAD_HOST_POOL_H

#include "tier/core/block_key.h"

#include <quire/cache.h>

enum { QR_HOST_MAX_GROUPS = 64 };

typedef struct qr_host_group {
    uint32_t block_size;   /* tokens */
    uint32_t chunk_tokens; /* of chunked attention; else 0 */
    qr_key_form key_form;
} qr_host_group;

typedef struct qr_host_pool {
    quire_cache *cache;
    quire_pool *pool;
    uint32_t num_groups;
    uint32_t full_group; /* the first of a full kind; QR_NIL: none */
    uint32_t hash_size;
    uint32_t digest_bytes;
    qr_host_group groups[QR_HOST_MAX_GROUPS];
} qr_host_pool;

/* The config of the CPU pool's cache for an engine's cache; its hooks, events and
 * max_num_batched_tokens are for the caller to set. digest_bytes is set. */
quire_cache_config qr_host_pool_config(const quire_cache_config *engine, uint32_t num_blocks);
/* cache: made from that config. */
void qr_host_pool_init(qr_host_pool *host, const quire_cache_config *engine, quire_cache *cache);

/* The hit behind the first num_local tokens, as spans of the CPU pool's cache; 0: none.
 * has_pending: some blocks are held. */
uint32_t qr_host_pool_find(const qr_host_pool *host, const unsigned char *hashes,
                           uint32_t num_hashes, uint32_t num_tokens, uint32_t num_local,
                           bool has_pending, quire_block_span *spans);
/* How many of the request's tokens a hit behind num_local of them may reach, and one. */
uint32_t qr_host_pool_most_tokens(const qr_host_pool *host, uint32_t num_tokens,
                                  uint32_t num_local);

#endif
