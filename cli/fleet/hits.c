#include "fleet_state.h"

#include <quire/pool.h>

/* Leading blocks of the request in the pool of a worker. Most workers have not even the first. */
static uint32_t hit_of(const fleet *f, const worker *w, const router_request *request)
{
    const uint32_t group = 0;
    const quire_cache *cache = quire_sched_get_cache(w->engine.sched);
    const quire_pool *pool = quire_cache_get_pool(cache);
    const unsigned char *hashes = f->asking->hashes;
    size_t bytes = (size_t)f->digest_bytes * (f->engine.block_size / f->engine.hash_block_size);
    uint32_t num_hit = 0;
    if (quire_pool_get_cached_block(pool, (quire_bytes){hashes, bytes}, &group, 1, f->found) !=
        QUIRE_OK)
        return 0;
    int err = quire_pool_get_cached_prefix(pool, hashes, bytes, request->num_blocks, &group, 1,
                                           f->found, &num_hit);
    return err == QUIRE_OK ? num_hit : 0;
}

void fleet_exact_hits(void *context, const router_request *request, router_hit *hits)
{
    const fleet *f = context;
    if (f->asking->hashes == NULL || request->num_blocks == 0)
        return;
    for (uint32_t i = 0; i < f->settings->num_workers; i++) {
        hits[i].gpu = hit_of(f, &f->workers[i], request);
        hits[i].leading = hits[i].gpu;
    }
}
