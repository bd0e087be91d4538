/* tier/offload/tiers.c - how full the CPU pool and the tiers are. */
#include "tier/offload/offload.h"

static uint64_t bytes_of(const quire_offload *o, uint64_t num_blocks)
{
    return o->block_bytes == 0 ? QUIRE_UNKNOWN_BYTES : num_blocks * o->block_bytes;
}

/* Tokens that came from a lower tier are that tier's, although they pass through the CPU pool. */
static uint64_t count_host_hits(quire_offload *o, const quire_tier_usage *promote, uint32_t n)
{
    uint64_t hits = qr_count_get(&o->counters.hit_tokens);
    for (uint32_t i = 0; i < n; i++)
        hits -= promote[i].hit_tokens < hits ? promote[i].hit_tokens : hits;
    if (hits > o->host_hits)
        o->host_hits = hits;
    return o->host_hits;
}

uint32_t qr_offload_get_tiers(void *user, quire_tier_usage *tiers, uint32_t capacity)
{
    quire_offload *o = user;
    const qr_offload_counters *c = &o->counters;
    uint64_t stored = qr_count_get(&c->stored_blocks);
    uint64_t loaded = qr_count_get(&c->loaded_blocks);
    uint32_t n = 0;
    if (capacity == 0)
        return 0;
    quire_usage usage = quire_pool_get_usage(o->cpu);
    if (o->promote != NULL && !o->is_closed)
        n = qr_promote_get_tiers(o->promote, tiers + 1, capacity - 1);
    tiers[0] = (quire_tier_usage){.name = "host",
                                  .medium = "CPU",
                                  .blocks = usage,
                                  .stored_blocks = stored,
                                  .loaded_blocks = loaded,
                                  .hit_tokens = count_host_hits(o, tiers + 1, n),
                                  .stored_bytes = bytes_of(o, stored),
                                  .loaded_bytes = bytes_of(o, loaded),
                                  .failed_blocks = qr_count_get(&c->failed_stores) +
                                                   qr_count_get(&c->failed_load_blocks),
                                  .used_bytes = bytes_of(o, usage.cached + usage.active),
                                  .capacity_bytes = bytes_of(o, usage.total - usage.null_blocks)};
    return 1 + n;
}
