#include "fleet_state.h"

#include <quire/pool.h>

/* Blocks that are looked for at a time: more wait for memory together, fewer are in vain. */
enum { AT_A_TIME = 16 };

/* Leading blocks of the request in the pool of a worker. Most workers have not even the first. */
static uint32_t hit_of(const fleet *f, const worker *w, uint32_t num_blocks)
{
    const uint32_t group = 0;
    const unsigned char *hashes = f->asking->hashes;
    size_t bytes = (size_t)f->digest_bytes * (f->engine.block_size / f->engine.hash_block_size);
    quire_block found[AT_A_TIME];
    uint32_t num_hit = 0;
    for (uint32_t n = 1; num_hit < num_blocks; n = AT_A_TIME) {
        uint32_t num_new = 0;
        n = num_blocks - num_hit < n ? num_blocks - num_hit : n;
        int err = quire_pool_get_cached_prefix(w->pool, hashes + num_hit * bytes, bytes, n, &group,
                                               1, found, &num_new);
        num_hit += err == QUIRE_OK ? num_new : 0;
        if (err != QUIRE_OK || num_new < n)
            break;
    }
    return num_hit;
}

void fleet_exact_hits(void *context, const router_request *request, router_hit *hits)
{
    const fleet *f = context;
    if (f->asking->hashes == NULL || request->num_blocks == 0)
        return;
    for (uint32_t i = 0; i < f->settings->num_workers; i++) {
        hits[i].gpu = hit_of(f, &f->workers[i], request->num_blocks);
        hits[i].leading = hits[i].gpu;
    }
}
