#include "tier/offload/host_pool.h"

#include "base/list.h"
#include "base/rules.h"
#include "tier/promote/promote.h"

/* ---- making ---------------------------------------------------------------- */

quire_cache_config qr_host_pool_config(const quire_cache_config *engine, uint32_t num_blocks)
{
    quire_cache_config cpu = *engine;
    cpu.num_blocks = num_blocks;
    cpu.max_requests = 1; /* it is looked up and filled, and no request has blocks there */
    cpu.use_eagle = QUIRE_OFF;
    cpu.log_stats = QUIRE_OFF;
    cpu.track_new_blocks = QUIRE_OFF;
    cpu.watermark = 0;
    cpu.max_copies = 0;
    cpu.num_host_blocks = 0;
    cpu.event_log_bytes = 0;
    cpu.on_event = NULL;
    return cpu;
}

void qr_host_pool_init(qr_host_pool *host, const quire_cache_config *engine, quire_cache *cache)
{
    *host = (qr_host_pool){.cache = cache,
                           .pool = quire_cache_get_pool(cache),
                           .num_groups = engine->num_groups,
                           .full_group = QR_NIL,
                           .hash_size = quire_cache_get_counts(cache).hash_block_size,
                           .digest_bytes = engine->digest_bytes};
    for (uint32_t g = 0; g < engine->num_groups; g++) {
        const quire_layer_spec *spec = &engine->groups[g].spec;
        qr_host_group *group = &host->groups[g];
        group->block_size = (uint32_t)qr_block_tokens(engine, g);
        if (spec->kind == QUIRE_LAYER_CHUNKED_LOCAL)
            group->chunk_tokens = spec->attention_chunk_size;
        group->key_form = (qr_key_form){group->block_size / host->hash_size, host->digest_bytes,
                                        qr_rules_of(engine->profile)->keys_by_last_hash};
        if (host->full_group == QR_NIL && qr_is_full_kind(spec->kind))
            host->full_group = g;
    }
}

/* ---- finding --------------------------------------------------------------- */

/* Without its first block a group of a full kind has nothing at all: the usual answer, cheaply. */
static bool can_begin(const qr_host_pool *host, const unsigned char *hashes, uint32_t num_hashes)
{
    uint32_t g = host->full_group;
    if (g == QR_NIL)
        return num_hashes > 0;
    qr_key_form form = host->groups[g].key_form;
    if (num_hashes < form.joined)
        return false;
    quire_block block;
    return quire_pool_get_cached_block(host->pool, qr_block_key(form, hashes, 0), &g, 1, &block) ==
           QUIRE_OK;
}

/* Blocks whose content is still on its way are no hit, though they have their keys: their stores
 * hold them. */
static uint32_t tokens_before_pending(const qr_host_pool *host, const quire_block_span *spans,
                                      uint32_t num_hit)
{
    uint32_t end = num_hit;
    for (uint32_t g = 0; g < host->num_groups; g++) {
        uint32_t ready = quire_pool_count_unheld(host->pool, spans[g].ids, spans[g].count);
        if (ready < spans[g].count && ready * host->groups[g].block_size < end)
            end = ready * host->groups[g].block_size;
    }
    return end;
}

uint32_t qr_host_pool_find(const qr_host_pool *host, const unsigned char *hashes,
                           uint32_t num_hashes, uint32_t num_tokens, uint32_t num_local,
                           bool has_pending, quire_block_span *spans)
{
    uint32_t skipped = num_local / host->hash_size;
    if (num_hashes <= skipped || num_tokens <= num_local + 1)
        return 0;
    const unsigned char *first = hashes + (size_t)skipped * host->digest_bytes;
    if (!can_begin(host, first, num_hashes - skipped))
        return 0;
    quire_cache_request rest = {
        .num_tokens = num_tokens - num_local, .hashes = first, .num_hashes = num_hashes - skipped};
    for (;;) {
        uint32_t num_hit = 0;
        int err = quire_cache_get_computed_blocks(host->cache, &rest, spans, &num_hit);
        if (err != QUIRE_OK || num_hit == 0)
            return 0;
        uint32_t num_ready = has_pending ? tokens_before_pending(host, spans, num_hit) : num_hit;
        if (num_ready == num_hit)
            return num_hit;
        if (num_ready == 0)
            return 0;
        rest.num_tokens = num_ready + 1; /* a shorter one may need other blocks of a window */
    }
}

/* A chunk of attention begins at a multiple of its length, but the CPU pool's cache is asked from
 * num_local on and counts chunks from there. Up to the end of the chunk that num_local is in, this
 * makes no difference: the hit needs all blocks of the chunk. */
uint32_t qr_host_pool_most_tokens(const qr_host_pool *host, uint32_t num_tokens, uint32_t num_local)
{
    uint64_t most = num_tokens;
    for (uint32_t g = 0; g < host->num_groups; g++) {
        uint32_t chunk = host->groups[g].chunk_tokens;
        uint32_t inside = chunk > 0 ? num_local % chunk : 0;
        uint64_t end = (uint64_t)num_local - inside + chunk + 1;
        if (inside > 0 && end < most)
            most = end;
    }
    return (uint32_t)most;
}
