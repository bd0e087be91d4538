/* hash.c - hashing blocks of 16 tokens.
 *
 *      chain     32,768 tokens in one append: 2,048 blocks, each hashed with the one before
 *      append    the same tokens one at a time, as they come out of a model; 16 fill a block
 *      block     quire_hasher_hash_block for each block: the call that has no chain
 *
 * The seed of NONE_HASH is "0": vLLM with PYTHONHASHSEED=0 gets the same digests from the same
 * tokens (see bench_tokens), and the check value, the last 8 bytes of the last digest, shows it.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_SIZE 16u
#define NUM_BLOCKS 2048u
#define NUM_TOKENS ((size_t)NUM_BLOCKS * BLOCK_SIZE)

typedef struct hashing {
    quire_hasher *hasher;
    size_t digest_bytes;
    void *chain;
    size_t chain_bytes;
    quire_token *tokens;
    unsigned char *digests;
} hashing;

/* A case's size is its algorithm. */
static void *hashing_setup(const bench_case *self)
{
    hashing *h = bench_memory(sizeof *h);
    quire_hasher_config config = QUIRE_HASHER_CONFIG_INIT;
    config.algo = (quire_hash_algo)self->size;
    config.block_size = BLOCK_SIZE;
    config.profile = bench_profile();
    config.seed = (quire_bytes){"0", 1};
    bench_must(quire_hasher_create(&config, NULL, &h->hasher), "quire_hasher_create");
    h->digest_bytes = quire_hash_digest_bytes(config.algo);
    h->chain_bytes = quire_chain_bytes(h->hasher);
    h->chain = bench_memory(h->chain_bytes);
    h->tokens = bench_memory(NUM_TOKENS * sizeof *h->tokens);
    h->digests = bench_memory(NUM_BLOCKS * h->digest_bytes);
    bench_tokens(h->tokens, NUM_TOKENS);
    return h;
}

static void hashing_teardown(void *state)
{
    hashing *h = state;
    quire_hasher_destroy(h->hasher);
    free(h->chain);
    free(h->tokens);
    free(h->digests);
    free(h);
}

static uint64_t last_digest(const hashing *h)
{
    const unsigned char *last = h->digests + (NUM_BLOCKS - 1) * h->digest_bytes;
    return quire_hash_external((quire_bytes){last, h->digest_bytes});
}

static uint64_t chain_pass(void *state, bench_timer *timer)
{
    hashing *h = state;
    quire_chain *chain = NULL;
    size_t num_new = 0;

    bench_start(timer);
    int status = quire_chain_init(h->hasher, h->chain, h->chain_bytes, &chain);
    status |= quire_chain_append(h->hasher, chain, h->tokens, NUM_TOKENS, NULL, h->digests,
                                 NUM_BLOCKS, &num_new);
    bench_stop(timer, num_new);
    bench_must(status, "quire_chain_append");
    return last_digest(h);
}

static uint64_t append_pass(void *state, bench_timer *timer)
{
    hashing *h = state;
    quire_chain *chain = NULL;
    size_t full = 0;

    bench_start(timer);
    int status = quire_chain_init(h->hasher, h->chain, h->chain_bytes, &chain);
    for (size_t i = 0; i < NUM_TOKENS; i++) {
        size_t num_new = 0;
        status |=
            quire_chain_append(h->hasher, chain, h->tokens + i, 1, NULL,
                               h->digests + full * h->digest_bytes, NUM_BLOCKS - full, &num_new);
        full += num_new;
    }
    bench_stop(timer, NUM_TOKENS);
    bench_must(status, "quire_chain_append");
    return last_digest(h);
}

static uint64_t block_pass(void *state, bench_timer *timer)
{
    hashing *h = state;
    quire_bytes parent = {NULL, 0};
    int status = QUIRE_OK;

    bench_start(timer);
    for (size_t i = 0; i < NUM_BLOCKS; i++) {
        unsigned char *digest = h->digests + i * h->digest_bytes;
        status |= quire_hasher_hash_block(h->hasher, parent, h->tokens + i * BLOCK_SIZE, BLOCK_SIZE,
                                          NULL, 0, digest);
        parent = (quire_bytes){digest, h->digest_bytes};
    }
    bench_stop(timer, NUM_BLOCKS);
    bench_must(status, "quire_hasher_hash_block");
    return last_digest(h);
}

#define CHAIN(value, name, text, bytes)                                                            \
    {"hash/" text "/chain", "ns/block", 1, 0, value, 0, false, hashing_setup, chain_pass,          \
     hashing_teardown},
#define APPEND(text, value)                                                                        \
    {                                                                                              \
        "hash/" text "/append", "ns/token", 1, 0, value, 0, false, hashing_setup, append_pass,     \
            hashing_teardown                                                                       \
    }
#define BLOCK(text, value)                                                                         \
    {                                                                                              \
        "hash/" text "/block", "ns/block", 1, 0, value, 0, false, hashing_setup, block_pass,       \
            hashing_teardown                                                                       \
    }

bench_group bench_hash_group(void)
{
    static const bench_case cases[] = {
        QUIRE_HASH_ALGO_MAP(CHAIN) /* one for each algorithm */
        BLOCK("sha256", QUIRE_HASH_SHA256),
        BLOCK("quire128", QUIRE_HASH_QUIRE128),
        APPEND("sha256", QUIRE_HASH_SHA256),
        APPEND("quire128", QUIRE_HASH_QUIRE128),
    };
    return (bench_group){cases, sizeof cases / sizeof *cases};
}
