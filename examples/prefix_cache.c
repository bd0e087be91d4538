/* prefix_cache.c - two prompts that begin alike, and a pool that notices.
 *
 *      A   [ system prompt: 48 tokens ][ question A: 20 ]      4 full blocks and 4 tokens
 *      B   [ system prompt: 48 tokens ][ question B: 25 ]      3 of B's blocks are A's
 *
 * Each step draws the pool: N null, A active, C cached (free, but it can be found), E empty.
 */
#include <quire.h>

#include <stdio.h>
#include <stdlib.h>

#define NUM_BLOCKS 12
#define BLOCK_SIZE 16
#define MAX_BLOCKS 8 /* of one request */

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

static void draw(const quire_pool *pool, const char *what)
{
    char letters[NUM_BLOCKS + 1];
    quire_usage u = quire_pool_get_usage(pool);
    must(quire_pool_draw(pool, 0, NUM_BLOCKS, letters), "draw");
    printf("  %s  %-42s empty %2d  cached %2d  active %2d\n", letters, what, (int)u.empty,
           (int)u.cached, (int)u.active);
}

/* What an engine does for one request: hash, look up, take what is missing, run, cache, free. */
static void serve(quire_hasher *hasher, quire_pool *pool, const char *name,
                  const quire_token *tokens, uint32_t num_tokens)
{
    unsigned char hashes[MAX_BLOCKS * QUIRE_MAX_DIGEST_BYTES];
    quire_block blocks[MAX_BLOCKS], last_to_first[MAX_BLOCKS];
    uint32_t num_blocks = (num_tokens + BLOCK_SIZE - 1) / BLOCK_SIZE, num_hit = 0;
    size_t digest_bytes = quire_hash_digest_bytes(QUIRE_HASH_SHA256), num_full = 0;
    printf("%s: %u tokens, %u blocks\n", name, num_tokens, num_blocks);

    /* Hashes of the full blocks. The chain would go on hashing as tokens are generated. */
    quire_chain *chain = NULL;
    void *memory = malloc(quire_chain_bytes(hasher)); /* NULL is answered by the next call */
    must(quire_chain_init(hasher, memory, quire_chain_bytes(hasher), &chain), "chain");
    must(quire_chain_append(hasher, chain, tokens, num_tokens, NULL, hashes, MAX_BLOCKS, &num_full),
         "append");
    free(memory);
    must(quire_pool_get_cached_prefix(pool, hashes, digest_bytes, (uint32_t)num_full,
                                      (const uint32_t[]){0}, 1, blocks, &num_hit),
         "lookup");
    printf("  %u of %zu full blocks are in the cache\n", num_hit, num_full);
    must(quire_pool_touch(pool, blocks, num_hit), "touch"); /* before anything can evict them */
    draw(pool, "hits touched");
    must(quire_pool_get_new_blocks(pool, num_blocks - num_hit, blocks + num_hit), "take");
    draw(pool, "the rest taken");

    /* Here the model would run. Now the full blocks have content that others can use. */
    quire_cache_full_params params = {.size = sizeof(quire_cache_full_params),
                                      .blocks = blocks,
                                      .num_cached_blocks = num_hit,
                                      .num_full_blocks = (uint32_t)num_full,
                                      .hashes = hashes,
                                      .hash_len = digest_bytes,
                                      .num_hashes = (uint32_t)num_full};
    must(quire_pool_cache_full_blocks(pool, &params), "cache");

    /* Last to first, so that the end of a prompt is evicted before its beginning. */
    for (uint32_t i = 0; i < num_blocks; i++)
        last_to_first[i] = blocks[num_blocks - 1 - i];
    must(quire_pool_free_blocks(pool, last_to_first, num_blocks), "free");
    draw(pool, "finished: full blocks stay cached");
}

int main(void)
{
    quire_token prompt[80];
    quire_hasher *hasher = NULL;
    quire_pool *pool = NULL;
    quire_hasher_config hashing = QUIRE_HASHER_CONFIG_INIT; /* sha256, blocks of 16 tokens */
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;      /* prefix caching on */
    config.num_blocks = NUM_BLOCKS;
    must(quire_hasher_create(&hashing, NULL, &hasher), "hasher");
    must(quire_pool_create(&config, NULL, &pool), "pool");
    draw(pool, "a new pool");

    for (int i = 0; i < 80; i++)
        prompt[i] = 1000 + i;
    serve(hasher, pool, "A", prompt, 68);
    for (int i = 48; i < 80; i++) /* the question differs, the system prompt does not */
        prompt[i] = 2000 + i;
    serve(hasher, pool, "B", prompt, 73);
    for (int i = 0; i < 80; i++) /* nothing in common: empty blocks first, then the oldest cached */
        prompt[i] = 3000 + i;
    serve(hasher, pool, "C", prompt, 80);

    quire_pool_destroy(pool);
    quire_hasher_destroy(hasher);
}
