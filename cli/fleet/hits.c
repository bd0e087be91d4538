#include "hits.h"

#include "fleet_state.h"

/* Blocks that are looked for at a time: more wait for memory together, fewer are in vain. */
enum { AT_A_TIME = 16, BITS_OF_A_BLOCK = 4 };

bool hits_open(hits_known *known, uint32_t num_blocks)
{
    uint64_t bits = 64;
    while (bits < (uint64_t)num_blocks * BITS_OF_A_BLOCK)
        bits *= 2;
    *known = (hits_known){.ever = calloc(bits / 64, sizeof *known->ever), .mask = bits - 1};
    return known->ever != NULL;
}

void hits_close(hits_known *known)
{
    free(known->ever);
}

static bool was_ever_there(const hits_known *known, uint64_t name)
{
    return (known->ever[(name & known->mask) / 64] >> (name % 64) & 1) != 0;
}

/* Blocks of the last hit that the prompt begins with, and that are still there. */
static uint32_t same_as_last(const hits_known *known, const hits_prompt *prompt)
{
    const hits_last *last = &known->last;
    bool is_same = last->num_blocks > 0 && last->num_blocks <= prompt->num_blocks &&
                   last->num_removed == known->num_removed &&
                   last->name == prompt->names[last->num_blocks - 1];
    return is_same ? last->num_blocks : 0;
}

uint32_t hits_find(hits_known *known, const quire_pool *pool, const hits_prompt *prompt)
{
    const uint32_t group = 0;
    quire_block found[AT_A_TIME];
    uint32_t num_hit = same_as_last(known, prompt);
    uint32_t n = num_hit > 0 ? AT_A_TIME : 1; /* most workers have not even the first */
    while (num_hit < prompt->num_blocks && was_ever_there(known, prompt->names[num_hit])) {
        uint32_t num_new = 0;
        n = prompt->num_blocks - num_hit < n ? prompt->num_blocks - num_hit : n;
        int err = quire_pool_get_cached_prefix(pool, prompt->hashes + num_hit * prompt->block_bytes,
                                               prompt->block_bytes, n, &group, 1, found, &num_new);
        num_hit += err == QUIRE_OK ? num_new : 0;
        if (err != QUIRE_OK || num_new < n)
            break;
        n = AT_A_TIME;
    }
    if (num_hit > 0)
        known->last = (hits_last){.name = prompt->names[num_hit - 1],
                                  .num_removed = known->num_removed,
                                  .num_blocks = num_hit};
    return num_hit;
}

void fleet_exact_hits(void *context, const router_request *request, router_hit *hits)
{
    const fleet *f = context;
    uint32_t hashes_of_block = f->engine.block_size / f->engine.hash_block_size;
    hits_prompt prompt = {.hashes = f->asking.hashes,
                          .block_bytes = (size_t)f->digest_bytes * hashes_of_block,
                          .names = f->asking.blocks,
                          .num_blocks = request->num_blocks};
    for (uint32_t i = 0; i < f->settings->num_workers; i++) {
        hits[i].gpu = hits_find(&f->known[i], f->workers[i].pool, &prompt);
        hits[i].leading = hits[i].gpu;
    }
}
