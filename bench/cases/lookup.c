/* lookup.c - finding a cached prefix.
 *
 *      prefix    2,048 hashes in one quire_pool_get_cached_prefix call
 *      one       the same, a quire_pool_get_cached_block call for each
 *      miss      quire_pool_get_cached_block of hashes that nothing has
 *      prompt    32,768 tokens: hashed with quire128, then looked up, all hits
 *
 * The pool holds 99,999 cached blocks, at ids in no order.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define CACHED_BLOCKS 99999u
#define PREFIX_BLOCKS 2048u
#define BLOCK_SIZE    16u
#define PROMPT_TOKENS ((size_t)PREFIX_BLOCKS * BLOCK_SIZE)
#define CALLS         8u

static const uint32_t group_zero = 0;

static uint64_t prefix_pass(void *state, bench_timer *timer)
{
    bench_cached *c = state;
    uint32_t num_hit = 0;
    uint64_t hits = 0;
    int status = QUIRE_OK;

    bench_start(timer);
    for (uint32_t i = 0; i < CALLS; i++) {
        status |= quire_pool_get_cached_prefix(c->pool, c->hashes, c->hash_bytes, c->batch,
                                               &group_zero, 1, c->out, &num_hit);
        hits += num_hit;
    }
    bench_stop(timer, hits);
    bench_must(status, "quire_pool_get_cached_prefix");
    if (hits != (uint64_t)CALLS * c->batch || c->out[c->batch - 1] != c->blocks[c->batch - 1])
        bench_must(QUIRE_MISS, "quire_pool_get_cached_prefix");
    return c->out[c->batch - 1];
}

static uint64_t one_pass(void *state, bench_timer *timer)
{
    bench_cached *c = state;
    uint64_t check = 0;
    int status = QUIRE_OK;

    bench_start(timer);
    for (uint32_t i = 0; i < c->batch; i++) {
        quire_bytes hash = {c->hashes + (size_t)i * c->hash_bytes, c->hash_bytes};
        quire_block block = 0;
        status |= quire_pool_get_cached_block(c->pool, hash, &group_zero, 1, &block);
        check += block;
    }
    bench_stop(timer, c->batch);
    bench_must(status, "quire_pool_get_cached_block");
    return check;
}

/* The hashes exist, but in group 0 only. */
static uint64_t miss_pass(void *state, bench_timer *timer)
{
    static const uint32_t other_group = 1;
    bench_cached *c = state;
    uint32_t misses = 0;

    bench_start(timer);
    for (uint32_t i = 0; i < c->batch; i++) {
        quire_bytes hash = {c->hashes + (size_t)i * c->hash_bytes, c->hash_bytes};
        quire_block block = 0;
        misses += quire_pool_get_cached_block(c->pool, hash, &other_group, 1, &block) == QUIRE_MISS;
    }
    bench_stop(timer, c->batch);
    if (misses != c->batch)
        bench_must(QUIRE_E_CORRUPT, "quire_pool_get_cached_block found what is not there");
    return misses;
}

/* ---- a whole prompt ----------------------------------------------------- */

typedef struct prompt {
    bench_cached *cached;
    quire_hasher *hasher;
    void *chain;
    size_t chain_bytes;
    quire_token *tokens;
    unsigned char *hashes;
} prompt;

static void prompt_hash(prompt *p)
{
    quire_chain *chain = NULL;
    size_t num_new = 0;
    bench_must(quire_chain_init(p->hasher, p->chain, p->chain_bytes, &chain), "quire_chain_init");
    bench_must(quire_chain_append(p->hasher, chain, p->tokens, PROMPT_TOKENS, NULL, p->hashes,
                                  PREFIX_BLOCKS, &num_new),
               "quire_chain_append");
}

static void *prompt_setup(const bench_case *self)
{
    prompt *p = bench_memory(sizeof *p);
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.algo = QUIRE_HASH_QUIRE128;
    config.block_size = BLOCK_SIZE;
    bench_must(quire_hasher_create(&config, NULL, &p->hasher), "quire_hasher_create");
    uint32_t digest_bytes = (uint32_t)quire_hash_digest_bytes(config.algo);

    p->chain_bytes = quire_chain_bytes(p->hasher);
    p->chain = bench_memory(p->chain_bytes);
    p->tokens = bench_memory(PROMPT_TOKENS * sizeof *p->tokens);
    p->hashes = bench_memory((size_t)PREFIX_BLOCKS * digest_bytes);
    bench_tokens(p->tokens, PROMPT_TOKENS);
    prompt_hash(p);

    p->cached = bench_cached_new(self->size, digest_bytes);
    memcpy(p->cached->hashes, p->hashes, (size_t)PREFIX_BLOCKS * digest_bytes);
    bench_cached_fill(p->cached, self->shuffled);
    return p;
}

static uint64_t prompt_pass(void *state, bench_timer *timer)
{
    prompt *p = state;
    bench_cached *c = p->cached;
    uint32_t num_hit = 0;

    bench_start(timer);
    prompt_hash(p);
    bench_must(quire_pool_get_cached_prefix(c->pool, p->hashes, c->hash_bytes, PREFIX_BLOCKS,
                                            &group_zero, 1, c->out, &num_hit),
               "quire_pool_get_cached_prefix");
    bench_stop(timer, 1);
    if (num_hit != PREFIX_BLOCKS)
        bench_must(QUIRE_MISS, "quire_pool_get_cached_prefix");
    return c->out[num_hit - 1];
}

static void prompt_teardown(void *state)
{
    prompt *p = state;
    bench_cached_teardown(p->cached);
    quire_hasher_destroy(p->hasher);
    free(p->chain);
    free(p->tokens);
    free(p->hashes);
    free(p);
}

bench_group bench_lookup_group(void)
{
    static const bench_case cases[] = {
        {"lookup/prefix/2048", "ns/block", 1, 0, CACHED_BLOCKS, PREFIX_BLOCKS, true,
         bench_cached_setup, prefix_pass, bench_cached_teardown},
        {"lookup/one/2048", "ns/block", 1, 0, CACHED_BLOCKS, PREFIX_BLOCKS, true,
         bench_cached_setup, one_pass, bench_cached_teardown},
        {"lookup/miss/2048", "ns/block", 1, 0, CACHED_BLOCKS, PREFIX_BLOCKS, true,
         bench_cached_setup, miss_pass, bench_cached_teardown},
        {"lookup/prompt/32768", "us/prompt", 1000, 55, CACHED_BLOCKS, PREFIX_BLOCKS, true,
         prompt_setup, prompt_pass, prompt_teardown},
    };
    return (bench_group){cases, sizeof cases / sizeof *cases};
}
